use super::*;
use std::time::{Duration, Instant};

fn until<T>(mut call: impl FnMut() -> io::Result<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        match call() {
            Ok(value) => return value,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                assert!(Instant::now() < patience, "nothing comes");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn pair() -> (Stream, Stream) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let near = Stream::connect("127.0.0.1:7".parse().unwrap(), listener.local_addr()).unwrap();
    let (far, from) = until(|| listener.accept());
    until(|| near.peer_addr().or(Err(io::ErrorKind::WouldBlock.into())));
    near.take_error().unwrap();
    assert_eq!((from, near.peer_addr().unwrap()), (near.local_addr().unwrap(), listener.local_addr()));
    (near, far)
}

#[test]
fn bytes_arrive_in_order_and_then_the_end() {
    let (near, far) = pair();
    let mut buffer = [0; 16];
    assert_eq!(far.recv(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(near.send(b"abc").unwrap(), 3);
    assert_eq!(near.send_vectored(&[IoSlice::new(b"de"), IoSlice::new(b"f")]).unwrap(), 3);
    assert!(!far.has_ended());
    near.shutdown_write().unwrap();
    until(|| far.has_ended().then_some(()).ok_or(io::ErrorKind::WouldBlock.into()));
    let mut got = Vec::new();
    loop {
        assert!(until(|| far.peek(&mut buffer)) <= 6);
        match until(|| far.recv(&mut buffer)) {
            0 => break,
            len => got.extend_from_slice(&buffer[..len]),
        }
    }
    assert_eq!(got, b"abcdef");
    drop(near);
}

#[test]
fn the_kernel_tells_what_it_knows() {
    let (near, far) = pair();
    near.set_user_timeout_ms(1000).unwrap();
    near.set_keepalive(Duration::from_secs(30), Duration::from_secs(10), 9).unwrap();
    near.set_unsent_bytes_max(1 << 16).unwrap();
    near.send(&[1; 1000]).unwrap();
    until(|| far.recv(&mut [0; 1000]));
    let info = near.info().unwrap();
    assert!(info.rtt_ns > 0 && info.window_bytes > 0 && info.segment_bytes > 0, "{info:?}");
}

#[test]
fn nobody_there_and_somebody_there_already() {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let at = listener.local_addr();
    assert_eq!(Listener::bind(at).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(listener);
    let refused = match Stream::connect(at, at) {
        Err(error) => error.kind(),
        Ok(stream) => {
            std::thread::sleep(Duration::from_millis(20));
            stream.take_error().unwrap_err().kind()
        }
    };
    assert_eq!(refused, io::ErrorKind::ConnectionRefused);
}

/// A reader that leaves a little of each segment in the kernel goes on getting more, also where the kernel appends all that
/// follows to the segment of which a part is left, which it does on some of several connections.
#[test]
fn there_is_space_behind_parts() {
    (0..16).for_each(|_| leave_parts_in_the_kernel());
}

fn leave_parts_in_the_kernel() {
    let (near, far) = pair();
    far.make_space_behind_parts();
    let (bytes, mut copy) = (vec![7; 1 << 20], vec![0; 64 << 10]);
    let (mut sent, mut taken, start) = (0, 0, Instant::now());
    while taken < (8 << 20) {
        assert!(start.elapsed() < Duration::from_secs(20), "{sent} sent, {taken} taken");
        sent += near.send(&bytes).unwrap_or(0);
        let there = far.peek(&mut copy).unwrap_or(0);
        // Never the last 16 KiB of what is there.
        if let Some(some) = copy.get_mut(..there.saturating_sub(16 << 10)).filter(|some| !some.is_empty()) {
            taken += far.recv(some).unwrap();
        }
    }
}

#[test]
fn nothing_is_paced_within_a_host() {
    let (near, far) = pair();
    for end in [near, far] {
        assert_eq!(sockopt::tcp_congestion(&end.fd).unwrap(), WITHIN_HOST);
    }
}
