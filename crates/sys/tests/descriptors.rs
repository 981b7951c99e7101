//! Counts the descriptors of the whole process: alone in its own binary, and one test, so that nothing else runs.

#![allow(clippy::unwrap_used, reason = "a test: what fails must fail it")]
use std::os::fd::{AsFd, BorrowedFd};

use cci_sys::event::{Epoll, EventFd, Interest, TimerFd, Trigger};
use cci_sys::shared_memory::SharedMemory;
use cci_sys::udp::{RecvBatch, SendBatch, UdpSocket};
use cci_sys::unix::{FDS_MAX, Listener, Name, Stream};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn no_path_leaks_a_descriptor() {
    cci_sys::process::fork::token();
    every_path();
    let before = open_descriptors();
    for _ in 0..50 {
        every_path();
    }
    assert_eq!(open_descriptors(), before);
}

fn every_path() {
    let (one, other) = Stream::pair().unwrap();
    let event = EventFd::new().unwrap();
    let fds = [event.as_fd(); FDS_MAX + 1];
    let mut buffer = [0; 64];

    assert!(one.send(b"too many to send", &fds).is_err());
    assert!(other.recv(&mut buffer, FDS_MAX).is_err(), "nothing was sent");

    let most: &[BorrowedFd<'_>] = &fds[..FDS_MAX];
    one.send(b"all taken", most).unwrap();
    let mut got = other.recv(&mut buffer, FDS_MAX).unwrap();
    assert_eq!(got.fds.len(), FDS_MAX);
    assert!(got.fds.take(3).is_some());
    one.send(b"more than expected", most).unwrap();
    assert!(other.recv(&mut buffer, 2).is_err());
    one.send(b"none expected", &fds[..1]).unwrap();
    assert!(other.recv(&mut buffer, 0).is_err());
    one.send(b"message too long", most).unwrap();
    assert!(other.recv(&mut [0; 4], FDS_MAX).is_err());
    send_far_too_many(&one, &fds);
    assert!(other.recv(&mut buffer, FDS_MAX).is_err(), "cut off by the kernel");
    one.send(b"never received", most).unwrap();

    let sealed = SharedMemory::create("cci-test", 4_096).unwrap();
    let copy = || sealed.fd().unwrap().try_clone_to_owned().unwrap();
    assert!(SharedMemory::open(copy(), 8_192).is_err());
    SharedMemory::open(copy(), 4_096).unwrap();
    assert!(SharedMemory::create("cci-test", 0).is_err());
    assert!(EventFd::from_peer(copy()).is_err());
    EventFd::from_peer(event.as_fd().try_clone_to_owned().unwrap()).unwrap();

    let epoll = Epoll::new().unwrap();
    let timer = TimerFd::new().unwrap();
    epoll.add(&timer, 1, Interest::Read, Trigger::Level).unwrap();
    assert!(epoll.add(&timer, 1, Interest::Read, Trigger::Level).is_err());

    let name = Name::Abstract(format!("cci-sys-leak-{}", std::process::id()).into_bytes());
    let listener = Listener::bind(&name).unwrap();
    assert!(Listener::bind(&name).is_err());
    let _client = Stream::connect(&name).unwrap();
    let _server = listener.accept().unwrap().unwrap();
    assert!(Stream::connect(&Name::Path("/nowhere/at/all".into())).is_err());

    let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    assert!(UdpSocket::bind(socket.local_addr()).is_err());
    SendBatch::new(&socket, 4, 1).flush(&socket).unwrap();
    RecvBatch::new(4).recv(&socket).unwrap();
    socket.interface_mtu("lo").unwrap();
    cci_sys::net::interfaces().unwrap();
}

/// What a hostile peer can do and [`Stream::send`] cannot: more descriptors than the receiver has room for.
fn send_far_too_many(stream: &Stream, fds: &[BorrowedFd<'_>]) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let many: Vec<_> = fds.iter().cycle().take(100).copied().collect();
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&many)));
    sendmsg(stream, &[std::io::IoSlice::new(b"x")], &mut control, SendFlags::NOSIGNAL).unwrap();
}
