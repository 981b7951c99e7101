//! Messages of every size arrive, many of them, in order and exactly once.

use super::*;
use crate::{SendError, SendFlags};

#[test]
fn every_size_arrives_whole() {
    for ip in ["127.0.0.1", "::1"] {
        for attribute in ALL {
            let Some(mut pair) = Pair::on(ip, attribute) else { continue };
            sizes(&mut pair, attribute);
        }
    }
}

/// Sends messages from 0 bytes to the longest: each size near a boundary, and a sample of those between. Unreliable ones are sent
/// one at a time, since nothing brings back one that is lost in a burst.
fn sizes(pair: &mut Pair, attribute: Attribute) {
    let max = pair.client.max_send_size(pair.to_server).unwrap() as usize;
    let lens: Vec<usize> = (0..=max).filter(|len| *len < 70 || len % 61 == 0 || max - len < 70).collect();
    let most = if attribute.is_reliable() { 32 } else { 1 };
    let (to_server, to_client) = (pair.to_server, pair.to_client);
    let (mut sent, mut seen, mut done, mut echoed) = (0, 0, 0, 0);
    pair.run(|client, server, side, event| {
        if sent < lens.len() && sent - done.min(echoed) < most {
            let message = fill(lens[sent] as u64, lens[sent]);
            let (one, two) = message.split_at(message.len() / 3);
            client.send_vectored(to_server, &[one, two], sent as u64, SendFlags::NONE).unwrap();
            sent += 1;
        }
        match (side, event) {
            (Side::Client, Some(Event::Send { connection, context, status })) => {
                assert_eq!(connection, to_server);
                if attribute == Attribute::ReliableOrdered {
                    assert_eq!(context, done as u64, "completions in order");
                }
                is_success(status);
                done += 1;
            }
            (Side::Server, Some(Event::Recv(message))) => {
                assert_eq!(message.connection(), to_client);
                if attribute != Attribute::ReliableUnordered {
                    assert_eq!(message.len(), lens[seen]);
                }
                check(message.len() as u64, &message);
                server.send(to_client, &message, 0, SendFlags::SILENT).unwrap();
                seen += 1;
            }
            (Side::Client, Some(Event::Recv(message))) => {
                check(message.len() as u64, &message);
                echoed += 1;
            }
            (_, None) => {}
            (side, other) => panic!("{side:?} {other:?}"),
        }
        done == lens.len() && echoed == lens.len()
    });
    let error = pair.client.send(pair.to_server, &vec![0; max + 1], 0, SendFlags::NONE);
    assert_eq!(error, Err(SendError::TooLong { len_bytes: max + 1, max_bytes: max as u32 }));
}

#[test]
fn a_hundred_thousand_small_messages_in_order() {
    const COUNT: u64 = 100_000;
    let Some(mut pair) = Pair::on("127.0.0.1", Attribute::ReliableOrdered) else { return };
    let (to_server, mut sent, mut done, mut seen) = (pair.to_server, 0u64, 0u64, 0u64);
    pair.run(|client, _, side, event| {
        while sent < COUNT {
            match client.send(to_server, &sent.to_le_bytes(), sent, SendFlags::NONE) {
                Ok(()) => sent += 1,
                Err(SendError::WouldBlock) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        match (side, event) {
            (Side::Client, Some(Event::Send { context, status, .. })) => {
                is_success(status);
                assert_eq!(context, done);
                done += 1;
            }
            (Side::Server, Some(Event::Recv(message))) => {
                assert_eq!(*message, seen.to_le_bytes());
                seen += 1;
            }
            (_, None) => {}
            (side, other) => panic!("{side:?} {other:?}"),
        }
        seen == COUNT && done == COUNT
    });
    let counters = pair.client.counters();
    let datagrams = counters.device.iter().find(|(name, _)| *name == "datagrams_sent").unwrap().1;
    assert!(datagrams < COUNT / 20, "many messages share a datagram: {datagrams} for {COUNT}");
    assert_eq!((counters.messages_sent, counters.bytes_sent), (COUNT, 8 * COUNT));
    assert_eq!(pair.server.counters().messages_received, COUNT);
    let of = pair.client.connection_counters(pair.to_server).unwrap();
    assert!(of.rtt_ns.is_some() && of.window_bytes > 0, "{of:?}");
    let why = pair.client.explain(pair.to_server).unwrap();
    assert!(why.paths[0].chosen && why.paths[0].path.starts_with("UDP"), "{why}");
}

#[test]
fn both_ways_at_once_between_threads() {
    const COUNT: u64 = 20_000;
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        let Some(pair) = Pair::on("127.0.0.1", attribute) else { return };
        let Pair { client, server, to_server, to_client } = pair;
        let other = std::thread::spawn(move || talk(server, to_client, COUNT));
        let client = talk(client, to_server, COUNT);
        let server = other.join().unwrap();
        drop((client, server));
    }
}

/// Sends `count` numbered messages and takes as many, each exactly once.
fn talk(mut endpoint: Endpoint, connection: Connection, count: u64) -> Endpoint {
    let mut seen = vec![false; count as usize];
    let (mut sent, mut done, mut got) = (0, 0, 0);
    let start = Instant::now();
    while done < count || got < count {
        while sent < count
            && endpoint.send(connection, &fill(sent, 8 + sent as usize % 90), sent, SendFlags::NONE).is_ok()
        {
            sent += 1;
        }
        match endpoint.wait(Some(Duration::from_millis(100))).unwrap() {
            Some(Event::Send { status, .. }) => {
                is_success(status);
                done += 1;
            }
            Some(Event::Recv(message)) => {
                let key = u64::from_le_bytes(message[..8].try_into().unwrap());
                let number = key.wrapping_mul(0xf1de_83e1_9937_733d); // the inverse of the factor in `fill`
                check(number, &message);
                assert!(!std::mem::replace(&mut seen[number as usize], true), "{number} twice");
                got += 1;
            }
            None => {}
            Some(other) => panic!("{other:?}"),
        }
        assert!(start.elapsed() < PATIENCE, "sent {sent} done {done} got {got} {:?}", endpoint.counters());
    }
    // The other side may still wait for the last acknowledgement.
    assert!(endpoint.wait(Some(Duration::from_millis(200))).unwrap().is_none());
    endpoint
}

#[test]
fn a_blocking_send_returns_its_status() {
    let Some(pair) = Pair::on("127.0.0.1", Attribute::ReliableOrdered) else { return };
    let Pair { mut client, mut server, to_server, .. } = pair;
    let other = std::thread::spawn(move || {
        let mut got = 0;
        while got < 100 {
            if let Some(Event::Recv(message)) = server.wait(Some(PATIENCE)).unwrap() {
                assert_eq!(*message, [got; 40]);
                got += 1;
            }
        }
    });
    for number in 0..100u8 {
        let halves = [number; 20];
        assert_eq!(client.send_blocking(to_server, &[&halves, &halves]), Ok(Status::Success));
    }
    other.join().unwrap();
    // The other endpoint is gone by now, and this program may have got the event.
    let reported = client.next_event();
    let is_end = reported.as_ref().is_none_or(|event| matches!(event, Event::Disconnected { .. }));
    assert!(is_end, "no event for a blocking send: {reported:?}");
}

#[test]
fn what_was_sent_before_a_disconnect_arrives() {
    let Some(mut pair) = Pair::on("127.0.0.1", Attribute::ReliableOrdered) else { return };
    let to_server = pair.to_server;
    for number in 0..200 {
        pair.client.send(to_server, &fill(number, 100), number, SendFlags::NONE).unwrap();
    }
    pair.client.disconnect(to_server);
    assert_eq!(pair.client.send(to_server, b"late", 0, SendFlags::NONE), Err(SendError::Disconnected));
    let (mut got, mut done) = (0, 0);
    pair.run(|_, _, side, event| {
        note(side, event, &mut got, &mut done);
        got == 200 && done == 200
    });
    let to_client = pair.to_client;
    pair.run(|_, server, _, _| !server.is_open(to_client));
    assert_eq!(pair.server.send(to_client, b"x", 0, SendFlags::NONE), Err(SendError::Disconnected));
}
