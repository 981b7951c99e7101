//! AF_XDP, natively and generically, on both ends of a pair.

use cci_sys::ethernet::{EndpointLock, FrameHeader, FrameSocket};
use cci_sys::packet;
use cci_sys::xdp::{Attachment, Check, Mode, Options, Program, Refusal, Socket, Wanted};

use crate::net::{End, Veth};
use crate::support::*;

/// An endpoint with its ring.
pub struct Ring {
    pub socket: Socket,
    pub attachment: Attachment,
    pub _lock: EndpointLock,
}

pub fn options(veth: &Veth, end: End) -> Options {
    let link = link(veth, end);
    Options {
        interface_index: link.index,
        frame_bytes_max: link.mtu_bytes + 14,
        recv_frames: 64,
        send_frames: 64,
    }
}

pub fn try_open(veth: &Veth, end: End, endpoint: u32, wanted: Wanted) -> Result<Ring, Refusal> {
    let link = link(veth, end);
    let lock = EndpointLock::take(link.mac, endpoint).unwrap();
    let program = Program::attach(link.index, wanted)?;
    let socket = Socket::open(&options(veth, end))?;
    let attachment = Attachment::create(program, &lock, link.mac, Some(&socket))?;
    Ok(Ring { socket, attachment, _lock: lock })
}

/// `None`: this kernel does not have it, which is said.
pub fn open(veth: &Veth, end: End, endpoint: u32, wanted: Wanted) -> Option<Ring> {
    let start = std::time::Instant::now();
    loop {
        match try_open(veth, end, endpoint, wanted) {
            Ok(ring) => return Some(ring),
            // Where that takes the kernel long, the one that was closed last has the queue still.
            Err(Refusal::NoQueue { .. }) if start.elapsed() < PATIENCE => {}
            Err(refusal @ (Refusal::Unsupported(_) | Refusal::Rights { .. })) => {
                println!("skipped: {refusal}; {}", refusal.remedy());
                return None;
            }
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

#[test]
fn frames_of_every_size_both_ways() {
    for (wanted, mode) in [(Wanted::Native, Mode::Native), (Wanted::Generic, Mode::Generic)] {
        for mtu_bytes in [1_500, 3_500, 3_700, 9_000, 1_280] {
            let Some(veth) = pair(mtu_bytes) else { return };
            let Some(mut a) = open(&veth, End::A, 1, wanted) else { return };
            let Some(mut b) = open(&veth, End::B, 2, wanted) else { return };
            assert_eq!((a.attachment.mode(), b.attachment.mode()), (mode, mode));
            exchanges(&mut a.socket, &mut b.socket, &header(&veth, 2));
            let counters = b.attachment.counters().unwrap();
            assert_eq!(counters.redirected, b.socket.stats().received, "{mode:?}, {mtu_bytes}");
            assert_eq!(counters.passed + counters.malformed + counters.no_endpoint, 0, "{counters:?}");
        }
    }
}

#[test]
fn packet_sockets_get_what_the_ring_does_not() {
    let Some(veth) = pair(1_500) else { return };
    let Some(mut b) = open(&veth, End::B, 2, Wanted::Auto) else { return };
    let mut a = crate::packet::open(&veth, End::A, 1);
    let mut beside = crate::packet::open(&veth, End::B, 2);
    let mut other = crate::packet::open(&veth, End::B, 3);
    let good = header(&veth, 2);
    send(&mut a, &good, b"to the ring");
    assert_eq!(take(&mut b.socket).1, b"to the ring");
    send(&mut a, &FrameHeader { to_endpoint: 3, ..good }, b"to another");
    assert_eq!(take(&mut other).1, b"to another");
    nothing(&mut b.socket);
    nothing(&mut beside);
    // The ring goes, its endpoint stays: nothing is lost from then on.
    drop(b);
    send(&mut a, &good, b"beside");
    assert_eq!(take(&mut beside).1, b"beside");
    let _: &packet::Socket = &beside;
}

/// An established datagram (DATA) of that index, generation 3, and nonce.
fn established(index: u32, nonce: u64) -> Vec<u8> {
    of_generation(index, 3, nonce)
}

fn of_generation(index: u32, generation: u32, nonce: u64) -> Vec<u8> {
    let mut bytes = vec![0x18, 0, 0, 0];
    bytes.extend(index.to_le_bytes());
    bytes.extend(generation.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(nonce.to_le_bytes());
    bytes.extend([0; 24]);
    bytes
}

/// A handshake, as far as the kernel looks.
const MARK: [u8; 8] = [0x13; 8];

#[test]
fn the_kernel_drops_what_has_the_wrong_nonce() {
    for wanted in [Wanted::Native, Wanted::Generic] {
        let Some(veth) = pair(1_500) else { return };
        let Some(mut b) = open(&veth, End::B, 2, wanted) else { return };
        let mut a = crate::packet::open(&veth, End::A, 1);
        let mut beside = crate::packet::open(&veth, End::B, 2);
        let to = header(&veth, 2);
        let mut try_all = |b: &mut Ring| -> Vec<bool> {
            let (right, wrong, old) = (established(5, 77), established(5, 78), of_generation(5, 2, 70));
            let frames = [right, wrong, old, established(6, 77), vec![0x14; 56]];
            let came = frames.map(|bytes| {
                // Behind it one that always comes, so that nobody has to wait for what does not.
                send(&mut a, &to, &bytes);
                send(&mut a, &to, &MARK);
                let came = take(&mut b.socket).1 != MARK;
                assert!(!came || take(&mut b.socket).1 == MARK);
                came
            });
            nothing(&mut beside);
            came.to_vec()
        };
        assert_eq!(try_all(&mut b), [true, true, true, true, true], "no check");
        b.attachment.connected(5, 3, 77).unwrap();
        b.attachment.set_check(Check::Nonce).unwrap();
        assert_eq!(try_all(&mut b), [true, false, true, true, true], "the nonce");
        b.attachment.set_check(Check::NonceAndId).unwrap();
        assert_eq!(try_all(&mut b), [true, false, false, false, true], "and the id");
        b.attachment.disconnected(5);
        assert_eq!(try_all(&mut b), [false, false, false, false, true], "gone");
        let counters = b.attachment.counters().unwrap();
        assert_eq!((counters.wrong_nonce, counters.unknown_connection), (2, 6), "{counters:?}");
    }
}

#[test]
fn malformed_frames_reach_nobody_and_frames_of_others_everybody() {
    let Some(veth) = pair(1_500) else { return };
    let Some(mut b) = open(&veth, End::B, 2, Wanted::Auto) else { return };
    b.attachment.set_check(Check::NonceAndId).unwrap();
    let mut a = crate::packet::open(&veth, End::A, 1);
    let good = header(&veth, 2);
    let bytes = |payload: &[u8]| [&good.emit(payload.len() as u16)[..], payload].concat();
    let changed = |at: usize, to: u8| {
        let mut bytes = bytes(&[0x11; 8]);
        bytes[at] = to;
        bytes
    };
    let (cut, whole) = (bytes(&[0x18; 8]), bytes(&[0x11; 8]));
    let frames: [&[u8]; 8] = [
        &whole[..14],
        &whole[..31],
        &bytes(&[]),
        // An established datagram that ends before its nonce.
        &cut,
        &changed(14, 2),
        &changed(15, 2),
        // To another card, and to nobody.
        &changed(0, 0x0e),
        &changed(16, 9),
    ];
    for frame in frames {
        assert!(put_bytes(&mut a, frame));
    }
    a.flush().unwrap();
    send(&mut a, &good, &[0x11; 8]);
    assert_eq!(take(&mut b.socket).1, [0x11; 8]);
    nothing(&mut b.socket);
    let counters = b.attachment.counters().unwrap();
    assert_eq!((counters.malformed, counters.no_endpoint, counters.redirected), (6, 2, 1), "{counters:?}");
}

#[test]
fn one_socket_a_queue_and_then_none() {
    let Some(veth) = pair(1_500) else { return };
    let Some(mut first) = open(&veth, End::B, 2, Wanted::Auto) else { return };
    assert_eq!(first.socket.queue(), 0);
    let refused = try_open(&veth, End::B, 3, Wanted::Auto).err().unwrap();
    assert!(matches!(refused, Refusal::NoQueue { queues: 1 }), "{refused}");
    // A place without a ring: frames pass, after the check.
    let to = link(&veth, End::B);
    let lock = EndpointLock::take(to.mac, 4).unwrap();
    let program = Program::attach(to.index, Wanted::Auto).unwrap();
    let mut attachment = Attachment::create(program, &lock, to.mac, None).unwrap();
    attachment.set_check(Check::NonceAndId).unwrap();
    let (mut a, mut b) = (crate::packet::open(&veth, End::A, 1), crate::packet::open(&veth, End::B, 4));
    let there = header(&veth, 4);
    send(&mut a, &there, &established(1, 1));
    nothing(&mut b);
    attachment.connected(1, 3, 1).unwrap();
    send(&mut a, &there, &established(1, 1));
    assert_eq!(take(&mut b).1, established(1, 1));
    send(&mut a, &header(&veth, 2), b"first");
    assert_eq!(take(&mut first.socket).1, b"first");
    // The queue is free again at once.
    drop(first);
    let again = open(&veth, End::B, 2, Wanted::Auto).unwrap();
    assert_eq!(again.socket.queue(), 0);
}

#[test]
fn other_traffic_passes_untouched() {
    use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
    for wanted in [Wanted::Native, Wanted::Generic] {
        let veth = match Veth::across(&[crate::net::Wire::default()]) {
            Ok(veth) => veth,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let Some(_a) = open(&veth, End::A, 1, wanted) else { return };
        let here: IpAddr = crate::net::ipv4(End::A, 0).into();
        let there: IpAddr = crate::net::ipv4(End::B, 0).into();
        let (udp, listener, _b) = {
            let _inside = veth.enter(End::B);
            let lock = EndpointLock::take(link(&veth, End::B).mac, 2).unwrap();
            let program = Program::attach(link(&veth, End::B).index, wanted).unwrap();
            let attachment = Attachment::create(program, &lock, link(&veth, End::B).mac, None).unwrap();
            (UdpSocket::bind((there, 0)).unwrap(), TcpListener::bind((there, 0)).unwrap(), (lock, attachment))
        };
        let sender = UdpSocket::bind((here, 0)).unwrap();
        udp.set_read_timeout(Some(PATIENCE)).unwrap();
        for len in [1, 1_000, 1_472, 5_000, 60_000] {
            sender.send_to(&pattern(len, len), udp.local_addr().unwrap()).unwrap();
            let mut heard = vec![0; 65_536];
            let len_heard = udp.recv(&mut heard).unwrap();
            assert_eq!(heard[..len_heard], pattern(len, len));
        }
        // A megabyte of segments that the pair would rather carry unsegmented.
        let to = listener.local_addr().unwrap();
        let writer = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(to).unwrap();
            std::io::Write::write_all(&mut stream, &pattern(1 << 20, 3)).unwrap();
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut heard = Vec::new();
        std::io::Read::read_to_end(&mut stream, &mut heard).unwrap();
        assert!(heard == pattern(1 << 20, 3), "{} bytes", heard.len());
        writer.join().unwrap();
    }
}

#[test]
fn an_interface_goes_down_comes_up_and_goes_away() {
    let Some(veth) = pair(1_500) else { return };
    let Some(mut a) = open(&veth, End::A, 1, Wanted::Auto) else { return };
    let Some(mut b) = open(&veth, End::B, 2, Wanted::Auto) else { return };
    let there = header(&veth, 2);
    veth.down(End::A, 0);
    assert!(put(&mut a.socket, &there, b"into the dark"));
    let down = a.socket.flush().unwrap_err();
    assert!(matches!(down.raw_os_error(), Some(libc::ENETDOWN | libc::ENXIO)), "{down}");
    veth.up(End::A, 0);
    let start = std::time::Instant::now();
    loop {
        let _ = put(&mut a.socket, &there, b"again");
        let _ = a.socket.flush();
        if take_within(&mut b.socket, std::time::Duration::from_millis(10)).is_some() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{:?} {:?}", a.socket.stats(), b.socket.stats());
    }
    let done = std::process::Command::new("ip").args(["link", "del", "a0"]).status().unwrap();
    assert!(done.success());
    assert!(put(&mut a.socket, &there, b"nowhere"));
    let gone = a.socket.flush().unwrap_err();
    assert!(matches!(gone.raw_os_error(), Some(libc::ENXIO | libc::ENETDOWN)), "{gone}");
}
