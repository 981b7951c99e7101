//! Datagrams that nobody asked for are counted and dropped.

use super::*;
use crate::SendFlags;
use std::net::UdpSocket;

/// Throws datagrams at both sides of a connection while it is used. Each is counted, and does nothing else.
#[test]
fn forged_datagrams_are_counted_and_nothing_else() {
    let Some(mut pair) = Pair::on("127.0.0.1", Attribute::ReliableOrdered) else { return };
    let addr = |endpoint: &Endpoint| endpoint.uri().strip_prefix("udp://").unwrap().to_owned();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    // Datagrams that look right are what the client really sends, caught by a socket of the test's own.
    let caught = catch_request(&mut pair);
    let (to_server, mut state, mut sent, mut got) = (pair.to_server, 1u64, 0, 0);
    let targets = [addr(&pair.client), addr(&pair.server)];
    pair.run(|client, _, side, event| {
        if sent < 2000 && client.send(to_server, &fill(sent, 64), sent, SendFlags::SILENT).is_ok() {
            sent += 1;
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let mut forged = if sent % 2 == 0 { caught.clone() } else { vec![0; (next() % 300) as usize] };
            let whole = sent % 2 == 1;
            for byte in &mut forged {
                if whole || next() % 16 == 0 {
                    *byte = next() as u8;
                }
            }
            stranger.send_to(&forged, &targets[(next() % 2) as usize]).unwrap();
        }
        match (side, event) {
            (Side::Server, Some(Event::Recv(message))) => {
                check(got, &message);
                got += 1;
            }
            // A forged request becomes a request like any other once it brings back its cookie. These never do.
            (_, None) => {}
            (side, other) => panic!("{side:?} {other:?}"),
        }
        got == 2000
    });
    for endpoint in [&pair.client, &pair.server] {
        let dropped: u64 = endpoint.counters().drops.iter().map(|drop| drop.count).sum();
        assert!(dropped > 100, "{:?}", endpoint.counters());
    }
    assert!(pair.client.is_open(pair.to_server) && pair.server.is_open(pair.to_client));
}

fn catch_request(pair: &mut Pair) -> Vec<u8> {
    let trap = UdpSocket::bind("127.0.0.1:0").unwrap();
    trap.set_read_timeout(Some(PATIENCE)).unwrap();
    let uri = format!("udp://{}", trap.local_addr().unwrap());
    let timeout = Some(Duration::from_millis(1));
    pair.client.connect(&uri, b"caught", Attribute::ReliableOrdered, 1, timeout).unwrap();
    let mut caught = vec![0; 2000];
    let len = trap.recv(&mut caught).unwrap();
    caught.truncate(len);
    let event = pair.client.wait(Some(PATIENCE)).unwrap();
    assert!(matches!(event, Some(Event::Connect { result: Err(ConnectFailure::TimedOut), .. })), "{event:?}");
    caught
}
