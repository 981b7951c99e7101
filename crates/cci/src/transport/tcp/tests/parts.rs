//! Peers that send parts, go in the middle, or come and are gone.

use super::hostile::{accepted, dial, hello, record};
use super::{PATIENCE, counted, device, dropped, endpoint, until};
use crate::transport::tcp::wire::Kind;
use crate::{Endpoint, Event, Options, SendFlags, Status};
use std::io::Write;
use std::time::{Duration, Instant};

/// An endpoint that has no memory to keep what is no whole record.
fn poor() -> Endpoint {
    let mut options =
        Options { recv_buffers: 16, send_buffers: 16, rma_operations: 16, ..Options::default() };
    options.memory_bytes_max = 1 << 20;
    Endpoint::create(&device(), options).unwrap()
}

/// Where nothing may be kept, a part of a record stays in the kernel; the end behind it is noticed all the same, and a
/// write that fails does not read that part for ever.
#[test]
fn who_goes_in_the_middle_of_a_record_is_noticed() {
    for (sends, waits) in [(false, false), (true, false), (false, true)] {
        let mut server = poor();
        let mut stream = accepted(&mut server);
        let connection = until_open(&mut server, &mut stream);
        stream.write_all(&record(Kind::Message, 0, &[1; 800])[..500]).unwrap();
        for _ in 0..20 {
            server.progress();
        }
        drop(stream);
        let (start, mut ended) = (Instant::now(), !sends);
        while server.is_open(connection) || !ended {
            assert!(start.elapsed() < PATIENCE / 4, "sends {sends}, waits {waits}: {:?}", server.counters());
            if sends && server.send(connection, b"x", 1, SendFlags::NONE).is_err() {
                ended = true;
            }
            let event = if waits {
                server.wait(Some(Duration::from_millis(20))).unwrap()
            } else {
                server.next_event()
            };
            if let Some(Event::Send { status, .. }) = event {
                assert_eq!(status, Status::Disconnected);
            }
        }
    }
}

/// Where nothing may be kept, a part of a record that stays in the kernel ends no sleep.
#[test]
fn parts_of_records_keep_nobody_awake() {
    let mut server = poor();
    let mut streams: Vec<_> = (0..4).map(|_| accepted(&mut server)).collect();
    let message = record(Kind::Message, 0, &[1; 800]);
    for (stream, len) in streams.iter_mut().zip([1, 7, 300, 807]) {
        stream.write_all(&message[..len]).unwrap();
    }
    for _ in 0..200 {
        server.progress();
    }
    let before = counted(&server, "kernel_polls");
    assert!(server.wait(Some(Duration::from_millis(150))).unwrap().is_none());
    let polls = counted(&server, "kernel_polls") - before;
    assert!(polls < 30, "{polls} polls in a sleep");
    // The rest brings the message all the same.
    for (stream, len) in streams.iter_mut().zip([1, 7, 300, 807]) {
        stream.write_all(&message[len..]).unwrap();
    }
    let mut came = 0;
    until(&mut server, |_, event| {
        came += u32::from(matches!(event, Some(Event::Recv(_))));
        came == 4
    });
}

/// A record that was begun has a time, however it is kept alive.
#[test]
fn a_byte_now_and_then_does_not_keep_a_record_unfinished() {
    let options = || Options { send_timeout: Duration::from_millis(100), ..Options::default() };
    let few = Options { recv_buffers: 16, send_buffers: 16, rma_operations: 16, ..options() };
    let poor = Options { memory_bytes_max: 1 << 20, ..few };
    for mut server in [endpoint(options()), endpoint(poor)] {
        let mut stream = accepted(&mut server);
        let message = record(Kind::Message, 0, &[1; 800]);
        let (start, mut received, mut at) = (Instant::now(), Instant::now(), 0);
        while dropped(&server, "unfinished-record") == 0 {
            assert!(start.elapsed() < PATIENCE && at < 700, "{at}");
            let _ = server.next_event();
            if received.elapsed() >= Duration::from_millis(20) {
                let _ = stream.write(&message[at..=at]);
                (received, at) = (Instant::now(), at + 1);
            }
        }
        assert!(at > 1);
    }
}

/// The server's end of a scripted connection, which is known by its first message.
fn until_open(server: &mut Endpoint, stream: &mut std::net::TcpStream) -> crate::Connection {
    stream.write_all(&record(Kind::Message, 0, b"here")).unwrap();
    let mut found = None;
    until(server, |_, event| {
        if let Some(Event::Recv(message)) = event {
            found = Some(message.connection());
        }
        found.is_some()
    });
    found.unwrap()
}

/// Asks for answers few at a time, so that each is written, until the kernel takes a part of one only.
#[test]
fn answers_that_are_written_in_part_pile_up_to_a_bound() {
    let mut server = endpoint(Options::default());
    let mut stream = accepted(&mut server);
    stream.set_nonblocking(true).unwrap();
    let pings: Vec<u8> = (0..384).flat_map(|_| record(Kind::Ping, 0, b"")).collect();
    let before = server.counters().memory.total_bytes;
    let (start, mut at) = (Instant::now(), 0);
    while dropped(&server, "answers-not-read") == 0 {
        assert!(start.elapsed() < PATIENCE, "{:?}", server.counters());
        at = (at + stream.write(&pings[at..]).unwrap_or(0)) % pings.len();
        server.progress();
        assert!(server.counters().memory.total_bytes < before + (1 << 20));
    }
}

/// A client that has given up before the server looked is not shown to the program.
#[test]
fn who_has_left_already_is_not_asked_about() {
    let mut server = endpoint(Options::default());
    for _ in 0..3 {
        let mut stream = dial(&server);
        stream.write_all(&hello()).unwrap();
    }
    let mut stays = dial(&server);
    stays.write_all(&hello()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    until(&mut server, |_, event| matches!(event, Some(Event::ConnectRequest(_))));
    for _ in 0..100 {
        assert!(server.next_event().is_none());
    }
    assert_eq!(counted(&server, "requests_received"), 1);
}
