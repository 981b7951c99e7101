//! Scripted peers for tests and fuzzing, which connect by the real handshake.
#![allow(clippy::unwrap_used, dead_code, reason = "only tests and fuzzing have it, and each uses its part")]

use super::server::Asked;
use super::wire::{self, Accept, Message, Offer, PeerConn, Request};
use crate::config::builtin;
use crate::{Attribute, Connection, Endpoint, Event, Options};
use cci_memory::ring::{Consumer, Producer, region_bytes};
use cci_sys::event::EventFd;
use cci_sys::shared_memory::SharedMemory;
use cci_sys::unix::{Name, Received, Stream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const PATIENCE: Duration = Duration::from_secs(10);
pub(super) const RING_BYTES: u32 = 32 << 10;
pub(super) const OWN: PeerConn = PeerConn { index: 7, generation: 9 };

pub(super) fn endpoint() -> Endpoint {
    Endpoint::create(&builtin::shm("shm"), Options::default()).unwrap()
}

pub(super) fn until<T>(
    endpoint: &mut Endpoint,
    what: &str,
    mut done: impl FnMut(&mut Endpoint, Option<Event>) -> Option<T>,
) -> T {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let event = endpoint.next_event();
        if let Some(result) = done(endpoint, event) {
            return result;
        }
    }
    panic!("{what} did not happen; {:?}", endpoint.counters());
}

pub(super) fn dropped(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().drops.iter().find(|reason| reason.name == name).map_or(0, |reason| reason.count)
}

/// A scripted client that has received the server's offer.
pub(super) struct Stranger {
    pub stream: Stream,
    pub accept: Accept,
    pub offered: Received,
}

pub(super) fn ask(server: &mut Endpoint, endpoint: u64, attribute: Attribute) -> Stranger {
    ask_as(server, endpoint, attribute, std::process::id())
}

/// Sends a request as a scripted client. The server takes it for a process with this number.
pub(super) fn ask_as(server: &mut Endpoint, endpoint: u64, attribute: Attribute, pid: u32) -> Stranger {
    let name = server.uri().strip_prefix("shm://").unwrap().to_owned();
    let stream = Stream::connect(&Name::Abstract(format!("cci/{name}").into_bytes())).unwrap();
    let request = Request { endpoint, conn: OWN, mss: 4096, attribute };
    stream.send(Message::Request(request, b"let me in").bytes().as_slice(), &[]).unwrap();
    until(server, "a request", |server, event| {
        let Some(Event::ConnectRequest(mut request)) = event else { return None };
        let asked = request.body.as_mut().unwrap().inner.downcast_mut::<Asked>().unwrap();
        asked.peer.pid = Some(pid);
        server.accept(request, 1).unwrap();
        Some(())
    });
    let mut buffer = [0; wire::BYTES_MAX];
    let offered = stream.recv(&mut buffer, 2).unwrap();
    let Ok(Message::Accept(accept)) = wire::parse(&buffer[..offered.len]) else { panic!() };
    Stranger { stream, accept, offered }
}

/// A scripted client that has confirmed honestly: its ends of the link, and the server's connection.
pub(super) struct Joined {
    pub producer: Producer<Arc<SharedMemory>>,
    pub consumer: Consumer<SharedMemory>,
    pub connection: Connection,
    pub conn: PeerConn,
    /// Another mapping of the ring that this client reads.
    pub again: SharedMemory,
    /// Another mapping of the ring that the server reads.
    pub theirs: SharedMemory,
    pub bell: EventFd,
    /// The server's doorbell.
    pub peer_bell: EventFd,
    pub stream: Stream,
}

pub(super) fn confirm(server: &mut Endpoint, mut attacker: Stranger) -> Joined {
    let Offer::New { ring_bytes } = attacker.accept.offer else { panic!() };
    assert_eq!(attacker.accept.mss, 8192);
    let theirs =
        SharedMemory::open(attacker.offered.fds.take(0).unwrap(), region_bytes(ring_bytes as usize)).unwrap();
    let twice = theirs.fd().unwrap().try_clone_to_owned().unwrap();
    let twice = SharedMemory::open(twice, region_bytes(ring_bytes as usize)).unwrap();
    let peer_bell = EventFd::from_peer(attacker.offered.fds.take(1).unwrap()).unwrap();
    let ours = SharedMemory::create("cci-liar", region_bytes(RING_BYTES as usize)).unwrap();
    let again = ours.fd().unwrap().try_clone_to_owned().unwrap();
    let again = SharedMemory::open(again, region_bytes(RING_BYTES as usize)).unwrap();
    let bell = EventFd::new().unwrap();
    let confirm = Message::Confirm { ring_bytes: RING_BYTES }.bytes();
    attacker.stream.send(confirm.as_slice(), &[ours.fd().unwrap(), bell.as_fd()]).unwrap();
    let connection = until(server, "an accept", |_, event| match event {
        Some(Event::Accept { result, .. }) => Some(result.unwrap()),
        _ => None,
    });
    Joined {
        producer: theirs.into_producer(8192).unwrap(),
        consumer: ours.into_consumer(8192).unwrap(),
        connection,
        conn: attacker.accept.conn,
        again,
        theirs: twice,
        bell,
        peer_bell,
        stream: attacker.stream,
    }
}
