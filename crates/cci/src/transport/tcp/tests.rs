//! Endpoints over streams of this machine, and peers that are no endpoints.

mod crowds;
mod deadlines;
mod flow;
mod handshakes;
mod hostile;
mod lend;
mod parts;
mod sealed;
mod sealed_parts;

use crate::config::ini;
use crate::{Attribute, ConnectFailure, Connection, Device, Endpoint, Event, Options};
use std::path::Path;
use std::time::{Duration, Instant};

/// Nothing here takes as long; a test that does is stuck.
const PATIENCE: Duration = Duration::from_secs(20);

fn device() -> Device {
    let text = "[t]\ntransport = tcp\nip = 127.0.0.1\n";
    ini::devices(text, Path::new("test.ini")).unwrap().remove(0)
}

fn endpoint(options: Options) -> Endpoint {
    Endpoint::create(&device(), options).unwrap()
}

/// Where an endpoint listens.
fn address(endpoint: &Endpoint) -> &str {
    endpoint.uri().strip_prefix("tcp://").unwrap()
}

/// How often something of this kind was dropped.
fn dropped(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().drops.iter().find(|reason| reason.name == name).map_or(0, |reason| reason.count)
}

fn counted(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().device.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

/// Polls until `done`; events are given to it.
fn until(endpoint: &mut Endpoint, mut done: impl FnMut(&mut Endpoint, Option<Event>) -> bool) {
    let start = Instant::now();
    loop {
        let event = endpoint.next_event();
        if done(endpoint, event) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "stuck: {:?}", endpoint.counters());
    }
}

/// Connects `client` to `server`, which accepts.
fn connect(
    client: &mut Endpoint,
    server: &mut Endpoint,
    attribute: Attribute,
) -> Result<(Connection, Connection), ConnectFailure> {
    client.connect(server.uri(), b"hello", attribute, 7, Some(PATIENCE)).unwrap();
    let (mut ours, mut theirs) = (None, None);
    let start = Instant::now();
    while ours.is_none() || theirs.is_none() {
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            ours = Some(result?);
        }
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 9).unwrap(),
            Some(Event::Accept { result, .. }) => theirs = Some(result?),
            _ => {}
        }
        assert!(start.elapsed() < PATIENCE, "{:?} {:?}", client.counters(), server.counters());
    }
    Ok((ours.unwrap(), theirs.unwrap()))
}
