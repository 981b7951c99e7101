//! The data path allocates nothing. A binary of its own for its allocator, which counts by thread: the test runner's
//! own thread allocates when it likes.

#![allow(clippy::unwrap_used, reason = "a test: what fails must fail it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::AsFd;

use cci_sys::event::{Epoll, EventFd, Events, Interest, TimerFd, Trigger};
use cci_sys::udp::{RecvBatch, SendBatch, UdpSocket};
use cci_sys::unix::Stream;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Not at all once the thread is ending and its counter is gone.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn the_data_path_allocates_nothing() {
    let local = "127.0.0.1:0".parse().unwrap();
    let (a, b) = (UdpSocket::bind(local).unwrap(), UdpSocket::bind(local).unwrap());
    let (mut send, mut recv) = (SendBatch::new(&a, 128, 1 << 18), RecvBatch::new(16));
    let (one, other) = Stream::pair().unwrap();
    let (event, timer, epoll) = (EventFd::new().unwrap(), TimerFd::new().unwrap(), Epoll::new().unwrap());
    let mut events = Events::with_capacity(4);
    epoll.add(&event, 1, Interest::Read, Trigger::Level).unwrap();
    cci_sys::process::fork::token();
    let mut round = || {
        for number in 0..100 {
            // Also to a port that is none: the ways errors take must not allocate either.
            let to = if number % 10 == 9 { local } else { b.local_addr() };
            send.next(&to, 1_000).unwrap().fill(1);
            send.commit(1_000 - number / 50);
        }
        assert_eq!(send.flush(&a).unwrap(), 90);
        let mut left = 90;
        while left > 0 {
            left -= recv.recv(&b).unwrap();
            assert!(recv.iter().all(|(_, bytes)| bytes.len() >= 990));
        }
        assert_eq!(recv.recv(&b).unwrap(), 0);
        one.send(b"x", &[event.as_fd()]).unwrap();
        assert_eq!(other.recv(&mut [0; 8], 1).unwrap().fds.len(), 1);
        event.signal().unwrap();
        assert_eq!(epoll.wait(&mut events, Some(1_000)).unwrap(), 1);
        assert!(event.drain().unwrap());
        timer.arm(cci_sys::clock::now_ns()).unwrap();
        assert!(!other.hung_up());
    };
    round();
    let before = ALLOCATIONS.get();
    for _ in 0..20 {
        round();
    }
    assert_eq!(ALLOCATIONS.get(), before);
    drop(vec![0_u8; 8]);
    assert!(ALLOCATIONS.get() > before, "the counter counts");
}
