//! What becomes of sends when the receiver is not ready, or the peer is gone.

use super::*;
use crate::SendFlags;

/// Sends until `kept` on the server holds every buffer and something is refused.
fn fill_up(pair: &mut Pair, count: u64, kept: &mut Vec<Message>) -> (u64, Vec<(u64, Status)>) {
    let (to_server, mut sent) = (pair.to_server, 0);
    let mut ended = Vec::new();
    pair.run(|client, server, side, event| {
        if sent < count && client.send(to_server, &fill(sent, 600), sent, SendFlags::NONE).is_ok() {
            sent += 1;
        }
        match (side, event) {
            (Side::Server, Some(Event::Recv(message))) => kept.push(message),
            (Side::Client, Some(Event::Send { context, status, .. })) => ended.push((context, status)),
            (_, None) => {}
            (side, other) => panic!("{side:?} {other:?}"),
        }
        sent == count && server.counters().receiver_not_ready > 0 && server.recv_buffers_free() == 0
    });
    (sent, ended)
}

#[test]
fn messages_wait_for_buffers_and_arrive_when_there_are_some() {
    let Some(device) = device("127.0.0.1") else { return };
    let options = Options { recv_buffers: 16, ..Options::default() };
    let mut pair = Pair::of(&device, Attribute::ReliableOrdered, options);
    let mut kept = Vec::new();
    const COUNT: u64 = 300;
    let (_, mut ended) = fill_up(&mut pair, COUNT, &mut kept);
    assert_eq!(kept.len(), 16);
    for (number, message) in kept.iter().enumerate() {
        check(number as u64, message);
    }
    kept.reverse();
    let mut next = kept.len() as u64;
    pair.run(|_, _, side, event| {
        kept.pop();
        match (side, event) {
            (Side::Server, Some(Event::Recv(message))) => {
                check(next, &message);
                next += 1;
            }
            (Side::Client, Some(Event::Send { context, status, .. })) => ended.push((context, status)),
            (_, None) => {}
            (side, other) => panic!("{side:?} {other:?}"),
        }
        next == COUNT && ended.len() as u64 == COUNT
    });
    assert!(ended.iter().enumerate().all(|(at, end)| *end == (at as u64, Status::Success)), "{ended:?}");
}

#[test]
fn a_send_that_finds_no_buffer_in_time_fails_and_the_connection_lives() {
    // The receiver's library holds messages for its program until it has a whole window of them, or its memory is used up.
    for (memory_bytes_max, len) in [(1 << 20, 1000), (256 << 20, 8000)] {
        let Some(device) = device_with("127.0.0.1", if len == 1000 { "mtu = 1500" } else { "" }) else {
            return;
        };
        let options = Options {
            recv_buffers: 4,
            send_buffers: 1024,
            memory_bytes_max,
            send_timeout: Duration::from_millis(300),
            ..Options::default()
        };
        not_ready(&device, options, len);
    }
}

fn not_ready(device: &Device, options: Options, len: usize) {
    let mut pair = Pair::of(device, Attribute::ReliableOrdered, options);
    let mut kept = Vec::new();
    let (to_server, mut sent) = (pair.to_server, 0);
    let mut ended = Vec::new();
    pair.run(|client, _, side, event| {
        if !ended.iter().any(|(_, status)| *status == Status::ReceiverNotReady)
            && client.send(to_server, &fill(sent, len), sent, SendFlags::NONE).is_ok()
        {
            sent += 1;
        }
        match (side, event) {
            (Side::Server, Some(Event::Recv(message))) => kept.push(message),
            (Side::Client, Some(Event::Send { context, status, .. })) => ended.push((context, status)),
            (_, None) => {}
            (side, other) => panic!("{side:?} {other:?}"),
        }
        ended.len() as u64 == sent && ended.iter().any(|(_, status)| *status == Status::ReceiverNotReady)
    });
    assert!(pair.client.is_open(to_server), "{ended:?}");
    assert!(ended.iter().all(|(_, status)| *status != Status::TimedOut), "{ended:?}");
    // The sends that succeeded were all delivered; those that failed were not, and never will be.
    let good = ended.iter().filter(|(_, status)| *status == Status::Success);
    let mut expected: Vec<u64> = good.map(|(context, _)| *context).collect();
    expected.push(sent);
    let mut got = Vec::new();
    let mut late = false;
    let take = |kept: &mut Vec<Message>, got: &mut Vec<u64>| {
        for message in kept.drain(..) {
            let key = u64::from_le_bytes(message[..8].try_into().unwrap());
            got.push(key.wrapping_mul(0xf1de_83e1_9937_733d));
        }
    };
    take(&mut kept, &mut got);
    pair.run(|client, _, side, event| {
        late = late || client.send(to_server, &fill(sent, len), sent, SendFlags::SILENT).is_ok();
        match (side, event) {
            (Side::Server, Some(Event::Recv(message))) => kept.push(message),
            (_, None) => {}
            (side, other) => panic!("{side:?} {other:?}"),
        }
        take(&mut kept, &mut got);
        got.last() == Some(&sent)
    });
    assert_eq!(got, expected);
}

#[test]
fn a_peer_that_vanished_ends_every_send_once() {
    let Some(device) = device("127.0.0.1") else { return };
    let options = Options { send_timeout: Duration::from_millis(200), ..Options::default() };
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        let mut pair = Pair::of(&device, attribute, options.clone());
        // Its host is as good as gone: nothing is sent any more.
        let Pair { client, server, to_server, .. } = &mut pair;
        std::mem::forget(std::mem::replace(server, endpoint(&device)));
        let mut ended = [0; 50];
        for number in 0..50 {
            client.send(*to_server, b"anyone?", number, SendFlags::NONE).unwrap();
        }
        let start = Instant::now();
        while ended.iter().sum::<i32>() < 50 {
            if let Some(event) = client.wait(Some(Duration::from_millis(50))).unwrap() {
                let Event::Send { context, status, .. } = event else { panic!("{event:?}") };
                assert!(matches!(status, Status::TimedOut | Status::Disconnected), "{status}");
                ended[context as usize] += 1;
            }
            assert!(start.elapsed() < PATIENCE, "{:?}", client.counters());
        }
        assert!(ended.iter().all(|count| *count == 1));
        assert!(!client.is_open(*to_server));
        assert_eq!(client.send(*to_server, b"x", 0, SendFlags::NONE), Err(crate::SendError::Disconnected));
    }
}

#[test]
fn keepalive_notices_once() {
    let Some(device) = device("127.0.0.1") else { return };
    let options = Options { keepalive: Some(Duration::from_millis(50)), ..Options::default() };
    let mut pair = Pair::of(&device, Attribute::ReliableOrdered, options);
    // A peer that answers is not reported.
    let start = Instant::now();
    pair.run(|_, _, _, event| {
        assert!(event.is_none(), "{event:?}");
        start.elapsed() > Duration::from_millis(300)
    });
    let Pair { mut client, server, to_server, .. } = pair;
    std::mem::forget(server);
    let event = client.wait(Some(PATIENCE)).unwrap();
    assert!(
        matches!(event, Some(Event::KeepaliveTimedOut { connection }) if connection == to_server),
        "{event:?}"
    );
    assert!(client.wait(Some(Duration::from_millis(300))).unwrap().is_none(), "raised once");
    assert!(client.is_open(to_server));
}
