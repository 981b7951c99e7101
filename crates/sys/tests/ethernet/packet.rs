//! AF_PACKET with mapped rings.

use cci_sys::ethernet::{FrameHeader, FrameSocket, Link, PAYLOAD_OFFSET};
use cci_sys::packet::{Options, Socket};
use std::time::Instant;

use crate::net::{End, Veth};
use crate::support::*;

pub fn options(link: &Link, endpoint: u32) -> Options {
    Options {
        interface_index: link.index,
        endpoint,
        frame_bytes_max: link.mtu_bytes + 14,
        recv_frames: 64,
        send_frames: 64,
    }
}

pub fn open(veth: &Veth, end: End, endpoint: u32) -> Socket {
    Socket::open(&options(&link(veth, end), endpoint)).unwrap()
}

#[test]
fn frames_of_every_size_both_ways() {
    for mtu_bytes in [1_500, 9_000, 1_280] {
        let Some(veth) = pair(mtu_bytes) else { return };
        let (mut a, mut b) = (open(&veth, End::A, 1), open(&veth, End::B, 2));
        exchanges(&mut a, &mut b, &header(&veth, 2));
    }
}

#[test]
fn each_endpoint_gets_its_own_frames_and_nothing_else() {
    let Some(veth) = pair(1_500) else { return };
    let mut a = open(&veth, End::A, 1);
    let mut b: Vec<Socket> = (2..5).map(|endpoint| open(&veth, End::B, endpoint)).collect();
    let good = header(&veth, 3);
    send(&mut a, &good, b"for 3");
    assert_eq!(take(&mut b[1]).1, b"for 3");
    // Nobody's; to another card; to all; of another version, ethertype, or cut off.
    send(&mut a, &FrameHeader { to_endpoint: 9, ..good }, b"nobody");
    send(&mut a, &FrameHeader { to: [2, 9, 9, 9, 9, 9], ..good }, b"overheard");
    send(&mut a, &FrameHeader { to: [255; 6], ..good }, b"everybody");
    let bytes = good.emit(8);
    let changed = |at: usize, to: u8| {
        let mut bytes = bytes;
        bytes[at] = to;
        bytes
    };
    for bytes in [changed(14, 2), changed(15, 1), changed(12, 8)] {
        assert!(put_bytes(&mut a, &bytes));
    }
    assert!(put_bytes(&mut a, &bytes[..PAYLOAD_OFFSET - 1]));
    a.flush().unwrap();
    send(&mut a, &good, b"last");
    assert_eq!(take(&mut b[1]).1, b"last", "and none of the others");
    for socket in &mut b {
        nothing(socket);
        assert_eq!(socket.stats().dropped, 0);
    }
    nothing(&mut a);
}

#[test]
fn what_finds_no_room_is_counted() {
    let Some(veth) = pair(1_500) else { return };
    let (mut a, mut b) = (open(&veth, End::A, 1), open(&veth, End::B, 2));
    let room = b.receive_buffer_bytes() / b.frame_bytes_max();
    for number in 0..2 * room {
        send(&mut a, &header(&veth, 2), &pattern(100, number));
    }
    let mut came = 0;
    while let Some(frame) = b.receive() {
        assert_eq!(FrameHeader::parse(frame).unwrap().1, pattern(100, came));
        came += 1;
    }
    assert_eq!((came, b.stats().dropped), (room, room as u64));
    // And afterwards all is well.
    b.release();
    send(&mut a, &header(&veth, 2), b"again");
    assert_eq!(take(&mut b).1, b"again");
}

#[test]
fn an_interface_goes_down_comes_up_and_goes_away() {
    let Some(veth) = pair(1_500) else { return };
    let (mut a, mut b) = (open(&veth, End::A, 1), open(&veth, End::B, 2));
    veth.down(End::A, 0);
    assert!(put(&mut a, &header(&veth, 2), b"into the dark"));
    let down = a.flush().unwrap_err();
    assert_eq!(down.raw_os_error(), Some(libc::ENETDOWN), "{down}");
    veth.up(End::A, 0);
    let start = Instant::now();
    let came = loop {
        // The kernel reports to a socket once that the interface was down.
        let _ = a.flush();
        let _ = put(&mut a, &header(&veth, 2), b"again");
        if let Some((_, payload)) = take_within(&mut b, std::time::Duration::from_millis(10)) {
            break payload;
        }
        assert!(start.elapsed() < PATIENCE, "{:?} {:?}", a.stats(), b.stats());
    };
    assert!(came == b"into the dark" || came == b"again");
    let done = std::process::Command::new("ip").args(["link", "del", "a0"]).status().unwrap();
    assert!(done.success());
    while put(&mut a, &FrameHeader { to: [2; 6], from: [2; 6], to_endpoint: 2, from_endpoint: 1 }, b"x") {}
    let gone = a.flush().unwrap_err();
    assert!(matches!(gone.raw_os_error(), Some(libc::ENXIO | libc::ENETDOWN)), "{gone}");
}
