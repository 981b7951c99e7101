//! What loopback with its large MTU and its prompt delivery cannot show: in a network namespace of the test's own.
//! Needs the right to make one (root); says so and passes without.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test: what fails must fail it, and skips say why"
)]

use std::ffi::{c_int, c_short};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::mem::zeroed;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use cci_sys::udp::{Options, RecvBatch, SendBatch, UdpSocket};

const PATIENCE: Duration = Duration::from_secs(60);
const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// Runs `test` on a thread that is alone in a fresh network namespace.
fn in_namespace(test: fn()) {
    let inside = move || {
        // SAFETY: moves only this thread, which ends after the test, to a new network namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            println!("skipped: no network namespace here: {}", std::io::Error::last_os_error());
            return;
        }
        test();
    };
    std::thread::spawn(inside).join().unwrap();
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: an ifreq of zeros is a valid one with an empty name.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as _;
    }
    request
}

/// ioctl with a structure that the request reads, and maybe writes.
fn ioctl<T>(fd: &impl AsRawFd, number: libc::c_ulong, argument: &mut T) {
    // SAFETY: every caller passes the structure its request works on; it outlives the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), number as _, &raw mut *argument) };
    assert_eq!(done, 0, "ioctl {number:#x}: {}", std::io::Error::last_os_error());
}

fn control() -> OwnedFd {
    std::net::UdpSocket::bind("0.0.0.0:0").unwrap().into()
}

fn set_mtu(name: &str, mtu: c_int) {
    let mut request = request(name);
    request.ifr_ifru.ifru_mtu = mtu;
    ioctl(&control(), libc::SIOCSIFMTU, &mut request);
}

fn bring_up(name: &str) {
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as c_short;
    ioctl(&control(), libc::SIOCSIFFLAGS, &mut request);
}

fn sockaddr(ip: Ipv4Addr) -> libc::sockaddr {
    let [a, b, c, d] = ip.octets().map(|octet| octet as libc::c_char);
    let mut sa_data = [0; 14];
    sa_data[2..6].copy_from_slice(&[a, b, c, d]);
    libc::sockaddr { sa_family: libc::AF_INET as _, sa_data }
}

fn set_addr(name: &str, number: libc::c_ulong, ip: Ipv4Addr) {
    let mut request = request(name);
    request.ifr_ifru.ifru_addr = sockaddr(ip);
    ioctl(&control(), number, &mut request);
}

/// An Ethernet interface `tap0` whose wire ends in the file returned; `None` where there are no such things.
fn tap() -> Option<File> {
    let open = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun");
    let Ok(wire) = open else {
        println!("skipped: /dev/net/tun: {}", open.unwrap_err());
        return None;
    };
    let mut request = request("tap0");
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as c_short;
    ioctl(&wire, libc::TUNSETIFF, &mut request);
    set_addr("tap0", libc::SIOCSIFADDR, HERE);
    set_addr("tap0", libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 255, 255, 0));
    bring_up("tap0");
    Some(wire)
}

/// Tells the kernel where the neighbour is, as if it had answered.
fn answer_for_neighbour() {
    // SAFETY: an arpreq of zeros is a valid one.
    let mut entry: libc::arpreq = unsafe { zeroed() };
    entry.arp_pa = sockaddr(NEIGHBOUR);
    entry.arp_ha.sa_family = libc::ARPHRD_ETHER;
    entry.arp_ha.sa_data[0] = 2;
    entry.arp_flags = libc::ATF_COM | libc::ATF_PERM;
    for (to, from) in entry.arp_dev.iter_mut().zip(*b"tap0") {
        *to = from as _;
    }
    ioctl(&control(), libc::SIOCSARP, &mut entry);
}

fn put(batch: &mut SendBatch, to: SocketAddr, number: u8, len: usize) {
    let room = batch.next(&to, len).unwrap();
    room.fill(number);
    batch.commit(len);
}

/// First payload bytes of the UDP datagrams on the wire; their header is 42 bytes long.
fn payloads_on(mut wire: &File, numbers: &mut Vec<u8>) {
    let mut frame = [0; 65_536];
    while let Ok(len) = wire.read(&mut frame) {
        if frame[12..14] == [8, 0] && frame[23] == libc::IPPROTO_UDP as u8 && len > 42 {
            numbers.push(frame[42]);
        }
    }
}

#[test]
fn a_full_send_buffer_keeps_the_rest_in_order_for_later() {
    in_namespace(|| {
        let Some(wire) = tap() else { return };
        let small = Options { send_buffer_bytes: 8_192, ..Options::default() };
        let socket = UdpSocket::bind_with((HERE, 0).into(), small).unwrap();
        let to = SocketAddr::from((NEIGHBOUR, 7));
        let mut batch = SendBatch::new(&socket, 128, 1 << 18);
        for number in 0..100 {
            put(&mut batch, to, number, 1_000 + usize::from(number % 3));
        }
        // The neighbour does not answer: its datagrams wait in the kernel and fill the socket's buffer.
        let mut sent = batch.flush(&socket).unwrap();
        assert!(sent < 100, "{:?}", batch.stats());
        assert_eq!((sent + batch.pending(), batch.stats().would_block), (100, 1));
        assert_eq!(batch.flush(&socket).unwrap(), 0, "still no room");
        assert!(batch.stats().would_block >= 2);
        answer_for_neighbour();
        let (mut numbers, start) = (Vec::new(), Instant::now());
        while numbers.len() < 100 {
            assert!(start.elapsed() < PATIENCE, "{} of 100 came, {sent} sent", numbers.len());
            sent += batch.flush(&socket).unwrap();
            payloads_on(&wire, &mut numbers);
        }
        assert_eq!((sent, batch.pending()), (100, 0));
        assert!(numbers.iter().copied().eq(0..100), "in order, each once: {numbers:?}");
        let stats = batch.stats();
        assert_eq!(
            (stats.datagrams, stats.unreachable + stats.failed + stats.too_big),
            (100, 0),
            "{stats:?}"
        );
    });
}

#[test]
fn gso_beyond_the_mtu_falls_back_and_keeps_what_works() {
    in_namespace(|| {
        bring_up("lo");
        set_mtu("lo", 1_500);
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let in_fragments = Options { fragment: true, ..Options::default() };
        let a = UdpSocket::bind_with(local, in_fragments).unwrap();
        let b = UdpSocket::bind(local).unwrap();
        if a.gso().is_err() {
            println!("skipped: {:?}", a.gso());
            return;
        }
        let (mut send, mut recv) = (SendBatch::new(&a, 64, 1 << 18), RecvBatch::new(16));
        // Longer than the MTU: GSO refuses, one by one they go in fragments.
        for (round, len) in [3_000, 3_000, 1_400].into_iter().enumerate() {
            for number in 0..8 {
                put(&mut send, b.local_addr(), number, len);
            }
            assert_eq!(send.flush(&a).unwrap(), 8, "{:?}", send.stats());
            let numbers = take(&mut recv, &b, 8);
            assert!(numbers.iter().copied().eq((0..8).map(|number| (number, len))), "{numbers:?}");
            assert_eq!(send.stats().gso_refused, 1, "learnt at the first, round {round}");
        }
        assert!(send.gso());
        assert_eq!(send.stats().gso_batches, 1, "the short ones still go in one piece");

        // Unfragmented they cannot go at all, joined or not: given up and reported, and GSO is not blamed.
        a.set_fragment(false).unwrap();
        let mut send = SendBatch::new(&a, 64, 1 << 18);
        for number in 0..8 {
            put(&mut send, b.local_addr(), number, 3_000);
        }
        put(&mut send, b.local_addr(), 9, 100);
        assert_eq!(send.flush(&a).unwrap(), 1);
        assert_eq!((send.stats().too_big, send.gso()), (8, true));
        assert_eq!(send.take_too_big().map(|big| big.len), Some(3_000));
        assert_eq!(take(&mut recv, &b, 1), [(9, 100)]);
        assert_eq!(a.interface_mtu("lo"), Some(1_500));
    });
}

/// First byte and length of the next `count` datagrams.
fn take(batch: &mut RecvBatch, socket: &UdpSocket, count: usize) -> Vec<(u8, usize)> {
    let (mut got, start) = (Vec::new(), Instant::now());
    while got.len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count} came", got.len());
        batch.recv(socket).unwrap();
        got.extend(batch.iter().map(|(_, bytes)| (bytes[0], bytes.len())));
    }
    got
}

#[test]
fn a_namespace_without_interfaces_is_described_and_has_no_routes() {
    in_namespace(|| {
        let all = cci_sys::net::interfaces().unwrap();
        assert!(all.iter().all(|interface| !interface.up && interface.addrs.is_empty()), "{all:?}");
        let any = UdpSocket::bind("0.0.0.0:0".parse().unwrap()).unwrap();
        let mut batch = SendBatch::new(&any, 8, 1);
        put(&mut batch, "10.1.2.3:4".parse().unwrap(), 1, 8);
        put(&mut batch, "10.1.2.4:4".parse().unwrap(), 1, 8);
        assert_eq!(batch.flush(&any).unwrap(), 0);
        assert_eq!((batch.pending(), batch.stats().unreachable), (0, 2), "no route: lost and counted");
    });
}
