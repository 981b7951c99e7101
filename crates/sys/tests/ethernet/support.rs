//! A pair of interfaces, and endpoints that talk across it.

use cci_sys::ethernet::{FrameHeader, FrameSocket, Link, PAYLOAD_OFFSET};
use std::time::{Duration, Instant};

use crate::net::{End, Veth};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A pair with both ends in one fresh namespace, in which the calling thread is until it is dropped.
pub fn pair(mtu_bytes: u32) -> Option<Veth> {
    Veth::pair_in_one_namespace(mtu_bytes).map_err(|reason| println!("skipped: {reason}")).ok()
}

pub fn link(veth: &Veth, end: End) -> Link {
    Link::of(&veth.name(end, 0)).unwrap()
}

/// From endpoint 1 on a to endpoint `to` on b.
pub fn header(veth: &Veth, to: u32) -> FrameHeader {
    let (a, b) = (link(veth, End::A), link(veth, End::B));
    FrameHeader { to: b.mac, from: a.mac, to_endpoint: to, from_endpoint: 1 }
}

/// The other way.
pub fn back(header: &FrameHeader) -> FrameHeader {
    FrameHeader {
        to: header.from,
        from: header.to,
        to_endpoint: header.from_endpoint,
        from_endpoint: header.to_endpoint,
    }
}

/// Puts one frame into the socket; false: no room.
pub fn put(socket: &mut dyn FrameSocket, header: &FrameHeader, payload: &[u8]) -> bool {
    put_bytes(socket, &[&header.emit(payload.len() as u16)[..], payload].concat())
}

pub fn put_bytes(socket: &mut dyn FrameSocket, bytes: &[u8]) -> bool {
    let Some(room) = socket.begin(bytes.len()) else { return false };
    assert_eq!(room.as_ptr().wrapping_add(PAYLOAD_OFFSET) as usize % 8, 0, "aligned payload");
    room.copy_from_slice(bytes);
    socket.commit(bytes.len());
    true
}

/// Puts and flushes; fails when that does not succeed within patience.
pub fn send(socket: &mut dyn FrameSocket, header: &FrameHeader, payload: &[u8]) {
    let start = Instant::now();
    while !put(socket, header, payload) {
        assert!(start.elapsed() < PATIENCE, "room: {:?}", socket.stats());
        socket.flush().unwrap();
    }
    socket.flush().unwrap();
}

/// The next frame's header and payload, if one comes within `patience`.
pub fn take_within(socket: &mut dyn FrameSocket, patience: Duration) -> Option<(FrameHeader, Vec<u8>)> {
    let start = Instant::now();
    loop {
        if let Some(frame) = socket.receive() {
            let (header, payload) = FrameHeader::parse(frame).unwrap();
            assert_eq!(payload.as_ptr() as usize % 8, 0, "aligned payload");
            return Some((header, payload.to_vec()));
        }
        if start.elapsed() >= patience {
            return None;
        }
        std::thread::yield_now();
    }
}

pub fn take(socket: &mut dyn FrameSocket) -> (FrameHeader, Vec<u8>) {
    take_within(socket, PATIENCE).unwrap_or_else(|| panic!("nothing came: {:?}", socket.stats()))
}

/// Fails if something comes within 20 ms.
pub fn nothing(socket: &mut dyn FrameSocket) {
    let came = take_within(socket, Duration::from_millis(20));
    assert!(came.is_none(), "{came:?}");
}

/// `len` bytes that show where they should be.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + seed) as u8).collect()
}

/// What every kind of socket must do: all sizes both ways, many at once in order, and a full ring that empties again.
pub fn exchanges(a: &mut dyn FrameSocket, b: &mut dyn FrameSocket, there: &FrameHeader) {
    let payload_max = a.frame_bytes_max() - PAYLOAD_OFFSET;
    let here = back(there);
    for (seed, len) in [1, 8, 14, 28, 60, 1_000, 1_400, payload_max - 1, payload_max].into_iter().enumerate()
    {
        let payload = pattern(len.min(payload_max), seed);
        send(a, there, &payload);
        let came = take_within(b, PATIENCE);
        let right = came == Some((*there, payload.clone()));
        assert!(right, "{len} bytes, {:?}, {:?}", a.stats(), b.stats());
        send(b, &here, &payload);
        assert!(take(a) == (here, payload), "{len} bytes back");
    }
    assert!(a.begin(payload_max + PAYLOAD_OFFSET + 1).is_none(), "longer than a frame");
    // Many round the rings, in batches; each comes once and in order.
    let (mut sent, mut came, mut in_order, start) = (0u32, 0u32, true, Instant::now());
    while came < 20_000 {
        assert!(start.elapsed() < 4 * PATIENCE, "{sent} sent, {came} came, {:?} {:?}", a.stats(), b.stats());
        while sent < 20_000 && sent - came < 48 && put(a, there, &sent.to_le_bytes()) {
            sent += 1;
        }
        a.flush().unwrap();
        while let Some(frame) = b.receive() {
            let (_, payload) = FrameHeader::parse(frame).unwrap();
            in_order &= payload == came.to_le_bytes();
            came += 1;
        }
        assert!(in_order, "up to {came} of {sent}: {:?} {:?}", a.stats(), b.stats());
        b.release();
        assert!(!b.ready() || sent != came);
    }
    assert_eq!(b.stats().malformed + b.stats().dropped, 0, "{:?}", b.stats());
}
