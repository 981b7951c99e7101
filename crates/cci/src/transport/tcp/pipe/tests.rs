//! Two pipes over a stream of this machine, in one thread: neither ever waits.

use super::*;
use crate::Options;
use crate::device::{DeviceInfo, TransportKind};
use crate::security::Security as Given;
use cci_sys::tcp::Listener;
use std::time::{Duration, Instant};

const KEY: &[u8] = b"a = 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n";
const PATIENCE: Duration = Duration::from_secs(20);

/// What a pool has that may keep buffers, and one that may keep none.
const POOLS_BYTES: [u64; 2] = [1 << 20, 0];
const HERE: Host = Host::V4(std::net::Ipv4Addr::LOCALHOST);

fn security(update: UpdateLimits, bytes_max: u64) -> Security {
    let device = DeviceInfo::new("t".to_owned(), TransportKind::Tcp);
    let options = Options { security: Some(Given::psk(KEY).unwrap()), ..Options::default() };
    let sealing = Sealing::of(&device, &options).unwrap().unwrap();
    let mut security = Security::new(sealing, bytes_max, 0).unwrap();
    security.config.update = update;
    security
}

fn security_of_plenty(of: &Security) -> Security {
    Security {
        sealing: of.sealing.clone(),
        pool: Arc::new(Pool::new(POOLS_BYTES[0])),
        config: of.config.clone(),
        handshakes_max: of.handshakes_max,
    }
}

fn pair(security: &Security) -> (Pipe, Pipe) {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let dialled = Stream::connect("127.0.0.1:0".parse().unwrap(), listener.local_addr()).unwrap();
    let start = Instant::now();
    let accepted = loop {
        if let Ok((stream, _)) = listener.accept() {
            break stream;
        }
        assert!(start.elapsed() < PATIENCE);
    };
    // Another endpoint of the same credentials and buffers.
    let own = EndpointId::random().unwrap();
    let config = StreamConfig { own, ..security.config.clone() };
    let theirs = Security {
        sealing: security.sealing.clone(),
        pool: Arc::clone(&security.pool),
        config,
        handshakes_max: 1,
    };
    // Sending takes buffers that may be kept.
    let sends = security_of_plenty(security);
    let mut answers = Pipe::accepted(accepted, Some(&theirs), HERE);
    answers.want();
    (Pipe::dialled(dialled, Some(&sends), None, HERE).unwrap(), answers)
}

fn nothing(result: &io::Result<usize>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

fn byte(at: usize) -> u8 {
    (at * 31 + at / 251) as u8
}

/// Bytes of all kinds of sends come out by all kinds of reads, in order, through buffers that fill up meanwhile; and all
/// that was borrowed is given back.
#[test]
fn what_goes_in_comes_out() {
    POOLS_BYTES.into_iter().for_each(passes);
}

fn passes(bytes_max: u64) {
    const TOTAL: usize = 6 << 20;
    let security = security(UpdateLimits { records: 50, age_ns: u64::MAX }, bytes_max);
    let (mut a, mut b) = pair(&security);
    let (mut sent, mut got, mut round) = (0usize, 0usize, 0usize);
    let start = Instant::now();
    let mut buffer = vec![0; 100_000];
    while got < TOTAL {
        assert!(start.elapsed() < PATIENCE, "{sent} {got}");
        round += 1;
        if a.flush().unwrap() && sent < TOTAL {
            let len = [1, 20, 500, 70_000, 16_384, 300_000][round % 6].min(TOTAL - sent);
            let bytes: Vec<u8> = (sent..sent + len).map(byte).collect();
            let (first, second) = bytes.split_at(len / 3);
            let taken = if round % 2 == 0 {
                a.send(&bytes)
            } else {
                a.send_vectored(&[IoSlice::new(first), IoSlice::new(&[]), IoSlice::new(second)])
            };
            match taken {
                Ok(taken) => sent += taken,
                other => assert!(nothing(&other), "{other:?}"),
            }
        }
        // Now and then the reader lets things pile up.
        if round % 50 < 20 {
            continue;
        }
        let space = [1, 33, 4096, 65_536, 100_000][round / 3 % 5];
        match b.recv(&mut buffer[..space]) {
            Ok(len) => {
                assert!(len > 0 && buffer[..len].iter().enumerate().all(|(i, is)| *is == byte(got + i)));
                got += len;
            }
            other => assert!(nothing(&other), "{other:?}"),
        }
    }
    assert!(a.flush().unwrap() && !a.has_unsent());
    assert!(nothing(&b.recv(&mut buffer)));
    let made = security.bytes();
    assert!(made <= 2 * pool::BUFFER_BYTES as u64 + 1024, "{made}");
    assert!(b.has_peer_of(&a) && a.peer().is_some());
    a.shutdown_write().unwrap();
    assert_eq!(b.recv(&mut buffer).unwrap(), 0);
}

/// The kernel reports what it has: with room for a whole record, nothing stays behind in the pipe.
#[test]
fn nothing_is_left_where_the_kernel_does_not_see_it() {
    let security = security(UpdateLimits::default(), POOLS_BYTES[0]);
    let (mut a, mut b) = pair(&security);
    let mut buffer = vec![0; 65_536];
    let start = Instant::now();
    while nothing(&a.send(&[7; 9])) {
        let _ = b.recv(&mut buffer);
        assert!(start.elapsed() < PATIENCE);
    }
    for _ in 0..200 {
        let mut sent = 0;
        while sent < 150_000 {
            match a.send(&vec![1; 15_000]) {
                Ok(len) => sent += len,
                other => {
                    assert!(nothing(&other));
                    break;
                }
            }
        }
        while b.recv(&mut buffer).is_ok() {}
        let _ = a.flush();
        assert!(!b.has_content());
    }
}

/// A short read, as of the handshake of connections, takes no more from the kernel than its record.
#[test]
fn short_reads_leave_the_next_record_to_the_kernel() {
    POOLS_BYTES.into_iter().for_each(reads_shortly);
}

fn reads_shortly(bytes_max: u64) {
    let security = security(UpdateLimits::default(), bytes_max);
    let (mut a, mut b) = pair(&security);
    let (start, mut first) = (Instant::now(), [0; 3]);
    while nothing(&a.send(b"one")) {
        assert!(nothing(&b.recv(&mut first)) && start.elapsed() < PATIENCE);
    }
    a.send(b"second").unwrap();
    while b.recv(&mut first).ok() != Some(3) {
        assert!(start.elapsed() < PATIENCE);
    }
    assert_eq!(&first, b"one");
    assert!(!b.sealed.as_ref().unwrap().input().has_input());
    assert_eq!(b.peek(&mut [0]).unwrap(), 1);
    let mut tail = [0; 64];
    assert_eq!((b.recv(&mut tail[..2]).unwrap(), b.recv(&mut tail).unwrap()), (2, 4));
}

/// A reader that keeps nothing, and takes only whole messages of five to a thousand bytes: what it does not take stays in the
/// kernel, over changes of keys, and the kernel reports the stream as readable when there is more.
#[test]
fn what_is_not_taken_stays_in_the_kernel() {
    const MESSAGES: usize = 3_000;
    let message = |number: usize| {
        let len = 5 + number * 7_919 % 1_000;
        let body = (1..len - 1).map(|at| byte(number + at));
        [(len as u16).to_le_bytes().to_vec(), body.collect()].concat()
    };
    let security = security(UpdateLimits { records: 40, age_ns: u64::MAX }, 0);
    let (mut a, mut b) = pair(&security);
    let all: Vec<u8> = (0..MESSAGES).flat_map(message).collect();
    let (mut sent, mut got, mut round, mut waits) = (0, 0, 0usize, 0);
    let mut space = vec![0; 65_536];
    let start = Instant::now();
    while a.is_in_handshake() || b.is_in_handshake() {
        assert!(start.elapsed() < PATIENCE);
        let _ = a.flush();
        assert!(nothing(&a.recv(&mut space)) && nothing(&b.recv(&mut space)));
    }
    while got < MESSAGES {
        assert!(start.elapsed() < PATIENCE, "{sent} of {} sent, {got} got", all.len());
        round += 1;
        if a.flush().unwrap() && sent < all.len() && round % 3 > 0 {
            let end = (sent + 1 + round * 131 % 700).min(all.len());
            if let Ok(len) = a.send(&all[sent..end]) {
                sent += len;
            }
        }
        let Some(len) = b.peek_now(&mut space).unwrap() else { continue };
        let mut used = 0;
        while let Some(&[low, high]) = space[used..len].first_chunk() {
            let end = used + usize::from(u16::from_le_bytes([low, high]));
            if end > len {
                break;
            }
            assert!(space[used..end] == message(got), "message {got}");
            (used, got) = (end, got + 1);
        }
        assert!(b.take(&mut space[..used]));
        waits += usize::from(used < len);
        assert!(b.has_part() || used == len);
        assert!(!b.has_input());
    }
    assert!(waits > 100, "{waits}");
    assert_eq!(b.peek_now(&mut space).unwrap(), None);
    a.shutdown_write().unwrap();
    assert_eq!(b.recv(&mut space).unwrap(), 0);
}

/// A part of a record in the kernel does not hide the end behind it.
#[test]
fn an_end_behind_a_part_is_an_end() {
    for bytes_max in POOLS_BYTES {
        let security = security(UpdateLimits::default(), bytes_max);
        let (mut a, mut b) = pair(&security);
        let (start, mut space) = (Instant::now(), vec![0; 65_536]);
        while nothing(&a.send(b"one")) {
            assert!(nothing(&b.recv(&mut space)) && start.elapsed() < PATIENCE);
        }
        while b.recv(&mut space).ok() != Some(3) {
            assert!(start.elapsed() < PATIENCE);
        }
        a.stream.send(&[200, 0, 1, 0, 7]).unwrap();
        assert!(nothing(&b.recv(&mut space)) && b.has_part());
        a.shutdown_write().unwrap();
        assert_eq!(b.recv(&mut space).unwrap(), 0);
    }
}

/// A peer may seal a byte in each record, of which many come before the bytes that were asked for have. One read opens no more than
/// there are in some buffers, and the next ones go on.
#[test]
fn a_read_of_short_records_ends() {
    const RECORDS: usize = 60_000;
    let security = security(UpdateLimits::default(), POOLS_BYTES[0]);
    let (mut a, mut b) = pair(&security);
    let (mut buffer, start) = (vec![0; 256 << 10], Instant::now());
    let (mut sent, mut got, mut most) = (0, 0, 0);
    while got < RECORDS {
        assert!(start.elapsed() < PATIENCE, "{sent} {got}");
        // As much as the kernel takes, so that a read finds all of it.
        while sent < RECORDS && a.flush().unwrap() {
            match a.send(&[byte(sent)]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                other => sent += other.unwrap(),
            }
        }
        match b.recv(&mut buffer) {
            result if nothing(&result) => {}
            result => {
                let len = result.unwrap();
                assert!((0..len).all(|at| buffer[at] == byte(got + at)));
                (got, most) = (got + len, most.max(len));
            }
        }
    }
    println!("{most} records in one read");
    // Each has 21 bytes.
    assert!(most <= 6 * pool::BUFFER_BYTES / 21, "{most} in one read");
}
