//! Endpoints that close at the same time.
#![allow(clippy::unwrap_used)]

use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};
use std::time::{Duration, Instant};

/// Nothing on one host takes nearly so long; a close that misses the last word of its peer does.
const LIMIT: Duration = Duration::from_secs(60);

fn open(device: &str) -> Endpoint {
    let context = Context::new().unwrap();
    Endpoint::create(context.device(device).unwrap(), Options::default()).unwrap()
}

fn pair(device: &str) -> [Endpoint; 2] {
    let (mut client, mut server) = (open(device), open(device));
    client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, Some(LIMIT)).unwrap();
    let (mut connection, mut accepted, start) = (None, None, Instant::now());
    while connection.is_none() || accepted.is_none() {
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Accept { result, .. }) => accepted = Some(result.unwrap()),
            _ => {}
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            connection = Some(result.unwrap());
        }
        assert!(start.elapsed() < LIMIT, "{device}: no connection");
    }
    for (endpoint, connection) in [(&mut client, connection), (&mut server, accepted)] {
        endpoint.send(connection.unwrap(), b"last", 0, SendFlags::SILENT).unwrap();
    }
    [client, server]
}

/// What ends the wait may come while the endpoint looks for it for the last time before it sleeps.
#[test]
fn whoever_closes_hears_that_its_peer_has_closed() {
    for (device, rounds) in [("shm", 20), ("udp-lo", 100), ("tcp-lo", 20)] {
        for round in 0..rounds {
            let threads = pair(device).map(|endpoint| {
                std::thread::spawn(move || {
                    let start = Instant::now();
                    endpoint.close(LIMIT);
                    start.elapsed()
                })
            });
            for thread in threads {
                assert!(thread.join().unwrap() < LIMIT / 2, "{device}, round {round}");
            }
        }
    }
}
