//! Messages, slow peers, batches.

use super::{PATIENCE, connect, counted, endpoint, until};
use crate::{Attribute, Event, Options, SendError, SendFlags, Status};
use cci_sys::event::{Epoll, Events, Interest, Trigger};
use std::time::{Duration, Instant};

const RO: Attribute = Attribute::ReliableOrdered;

#[test]
fn messages_of_one_call_leave_in_one_write() {
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(Options::default()));
    let (to_server, _) = connect(&mut client, &mut server, RO).unwrap();
    client.progress();
    let before = counted(&client, "send_syscalls");
    for number in 0..101u64 {
        client.send(to_server, &number.to_le_bytes(), 0, SendFlags::SILENT).unwrap();
    }
    client.progress();
    assert_eq!(counted(&client, "send_syscalls") - before, 2, "the first alone, the others together");
    let mut next = 0u64;
    until(&mut server, |_, event| {
        if let Some(Event::Recv(message)) = event {
            assert_eq!(*message, next.to_le_bytes());
            next += 1;
        }
        next == 101
    });
}

#[test]
fn a_burst_leaves_in_one_write() {
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(Options::default()));
    let (to_server, _) = connect(&mut client, &mut server, RO).unwrap();
    client.progress();
    let before = counted(&client, "send_syscalls");
    // Three runs of messages of one length.
    let messages: Vec<Vec<u8>> = (0..60u8).map(|number| vec![number; 8 + usize::from(number) / 20]).collect();
    let burst: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    assert_eq!(client.send_burst(to_server, &burst, 5, SendFlags::NONE), Ok(60));
    assert_eq!(counted(&client, "send_syscalls") - before, 1, "without a call of progress");
    let mut next = 0;
    until(&mut server, |_, event| {
        if let Some(Event::Recv(message)) = event {
            assert_eq!(&*message, burst[next]);
            next += 1;
        }
        next == 60
    });
    until(&mut client, |_, event| {
        assert!(matches!(event, None | Some(Event::Send { context: 5, status: Status::Success, .. })));
        event.is_some()
    });
}

/// The receiver has a few buffers, gives them back one by one, and refuses what comes meanwhile: in the middle of runs. Every message
/// arrives once and in order, and every burst ends once.
#[test]
fn runs_that_are_refused_in_the_middle_arrive_all_the_same() {
    const BURSTS: u64 = 30;
    let hungry = Options { recv_buffers: 3, ..Options::default() };
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(hungry));
    let (to_server, _) = connect(&mut client, &mut server, RO).unwrap();
    let messages: Vec<[u8; 8]> = (0..20 * BURSTS).map(u64::to_le_bytes).collect();
    for (context, burst) in messages.chunks(20).enumerate() {
        let burst: Vec<&[u8]> = burst.iter().map(<[u8; 8]>::as_slice).collect();
        assert_eq!(client.send_burst(to_server, &burst, context as u64, SendFlags::NONE), Ok(20));
    }
    let (mut next, mut held, mut ended, start) = (0, Vec::new(), 0, Instant::now());
    while next < messages.len() || ended < BURSTS {
        if let Some(Event::Send { context, status, .. }) = client.next_event() {
            assert_eq!((context, status), (ended, Status::Success), "in order");
            ended += 1;
        }
        match server.next_event() {
            Some(Event::Recv(message)) => {
                assert_eq!(*message, messages[next]);
                next += 1;
                held.push(message);
            }
            // Buffers come back only once the receiver has refused something.
            None if !held.is_empty() && counted(&server, "rnr_sent") > 0 => {
                held.remove(0);
            }
            _ if next == messages.len() => held.clear(),
            _ => {}
        }
        assert!(start.elapsed() < PATIENCE, "{next} messages, {ended} bursts: {:?}", server.counters());
    }
}

#[test]
fn an_answer_acknowledges() {
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(Options::default()));
    let (to_server, to_client) = connect(&mut client, &mut server, RO).unwrap();
    for round in 0..50 {
        client.send(to_server, b"ping", round, SendFlags::NONE).unwrap();
        until(&mut server, |_, event| matches!(event, Some(Event::Recv(_))));
        server.send(to_client, b"pong", round, SendFlags::SILENT).unwrap();
        let (mut sent, mut got) = (false, false);
        until(&mut client, |_, event| {
            match event {
                Some(Event::Send { status, .. }) => sent = status == Status::Success,
                Some(Event::Recv(_)) => got = true,
                _ => {}
            }
            sent && got
        });
    }
    assert_eq!(counted(&server, "acks_sent"), 0);
}

/// Both sides have as many sends under way as they may. What came meanwhile is acknowledged although a further send, which would have
/// carried that, finds no space. Seed 10080 of the simulated streams: neither side acknowledged any more, and both waited.
#[test]
fn a_send_without_space_takes_no_acknowledgement_along() {
    let options = Options { send_buffers: 2, ..Options::default() };
    let (mut client, mut server) = (endpoint(options.clone()), endpoint(options));
    let (to_server, to_client) = connect(&mut client, &mut server, RO).unwrap();
    for (end, to) in [(&mut client, to_server), (&mut server, to_client)] {
        for context in 0..2 {
            end.send(to, b"there is space", context, SendFlags::NONE).unwrap();
        }
        end.progress();
    }
    for (end, to) in [(&mut client, to_server), (&mut server, to_client)] {
        until(end, |_, event| matches!(event, Some(Event::Recv(_))));
        assert_eq!(end.send(to, b"there is none", 2, SendFlags::NONE), Err(SendError::WouldBlock));
    }
    let (mut sent, start) = ([0, 0], Instant::now());
    while sent != [2, 2] {
        for (end, sent) in [&mut client, &mut server].into_iter().zip(&mut sent) {
            if let Some(Event::Send { status, .. }) = end.next_event() {
                assert_eq!(status, Status::Success);
                *sent += 1;
            }
        }
        assert!(start.elapsed() < PATIENCE, "stuck: {:?} {:?}", client.counters(), server.counters());
    }
}

/// A peer that does not poll at all: what is sent to it is as much as there are send buffers, ends as timed out, and so does the
/// connection.
#[test]
fn a_peer_that_does_nothing_holds_no_more_than_its_share() {
    let options =
        Options { send_timeout: Duration::from_millis(400), send_buffers: 1024, ..Options::default() };
    let (mut client, mut server) = (endpoint(options.clone()), endpoint(options));
    let (to_server, _) = connect(&mut client, &mut server, RO).unwrap();
    let message = vec![7; 8192];
    let start = Instant::now();
    let mut taken = 0;
    loop {
        match client.send(to_server, &message, taken, SendFlags::NONE) {
            Ok(()) => taken += 1,
            Err(SendError::WouldBlock) => break,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(taken, 1024, "messages of 8 KiB");
    let mut ended = Vec::new();
    until(&mut client, |_, event| {
        if let Some(Event::Send { context, status, .. }) = event {
            assert_eq!(status, Status::TimedOut);
            ended.push(context);
        }
        ended.len() as u64 == taken
    });
    assert_eq!(ended, (0..taken).collect::<Vec<_>>(), "each once, in order");
    assert!(start.elapsed() >= Duration::from_millis(390), "{:?}", start.elapsed());
    assert_eq!(client.send(to_server, b"x", 0, SendFlags::NONE), Err(SendError::Disconnected));
}

/// Buffers come back one by one; every message arrives once and in order, whatever was dropped on the way.
#[test]
fn a_receiver_that_eats_slowly_gets_all() {
    let hungry = Options { recv_buffers: 3, ..Options::default() };
    for pause_us in [0, 300, 3_000] {
        let (mut client, mut server) = (endpoint(Options::default()), endpoint(hungry.clone()));
        let (to_server, to_client) = connect(&mut client, &mut server, RO).unwrap();
        let count = if pause_us > 1_000 { 60u64 } else { 400 };
        let (mut sent, mut done, mut next, mut back) = (0, 0, 0u64, 0);
        let (mut held, mut ate) = (Vec::new(), Instant::now());
        let start = Instant::now();
        while done < count || next < count || back < 20 {
            assert!(start.elapsed() < PATIENCE, "{sent} {done} {next} {back}");
            if sent < count && client.send(to_server, &sent.to_le_bytes(), sent, SendFlags::NONE).is_ok() {
                sent += 1;
            }
            match client.next_event() {
                Some(Event::Send { context, status, .. }) => {
                    assert_eq!((context, status), (done, Status::Success));
                    done += 1;
                }
                Some(Event::Recv(_)) => back += 1,
                _ => {}
            }
            if let Some(Event::Recv(message)) = server.next_event() {
                assert_eq!(*message, next.to_le_bytes());
                if next % (count / 20) == 0 {
                    // Its own messages pass, and are acknowledged, while it starves.
                    server.send(to_client, b"back", 0, SendFlags::SILENT).unwrap();
                }
                next += 1;
                held.push(message);
            }
            if ate.elapsed() >= Duration::from_micros(pause_us) {
                held.pop();
                ate = Instant::now();
            }
        }
        if pause_us > 2_000 {
            assert!(counted(&server, "rnr_sent") > 0, "messages were dropped and sent again");
            assert_eq!(counted(&server, "rnr_sent"), counted(&client, "rnr_received"));
        }
    }
}

/// A send timeout that changes while no operation is under way leaves nothing due, for which the program would wake up at once.
#[test]
fn a_program_sleeps_after_it_has_changed_a_send_timeout() {
    let (mut client, mut server) = (endpoint(Options::default()), endpoint(Options::default()));
    let (connection, _) = connect(&mut client, &mut server, Attribute::ReliableOrdered).unwrap();
    client.set_send_timeout(connection, Duration::from_secs(50)).unwrap();
    let (watch, mut woken) = (Epoll::new().unwrap(), Events::with_capacity(1));
    watch.add(&client, 0, Interest::Read, Trigger::Level).unwrap();
    until(&mut client, |client, _| !client.arm() && watch.wait(&mut woken, Some(1_000_000)).unwrap() == 0);
}
