//! One endpoint that sends to two honest peers and a hostile one, each a process of its own: a peer that takes nothing, or does
//! nothing at all, does not keep the endpoint from sending to the others, or from reaching their memory.
//!
//! `CCI_HOSTILE_MESSAGES` (2,000 if not given): what each honest peer has to get.

use super::processes::{Environment, Killed, PATIENCE, Role, messages};
use cci::{
    Access, Connection, Device, Endpoint, Event, Options, RegionAddress as Spot, RegionHandle, RmaError,
    RmaFlags, SendError, SendFlags,
};
use cci_testkit::figures;
use cci_testkit::hostile::device;
use std::time::{Duration, Instant};

/// Sends, and operations, that the endpoint may have in progress: few, so that they run out.
const IN_PROGRESS_MAX: u32 = 64;
/// Turns without a completion after which a peer is taken to be stuck.
const TURNS_WITHOUT: u32 = 20_000;
/// Receive buffers of a peer that keeps what it gets.
const KEPT_MAX: u32 = 16;

/// A peer's process: announces its region, and receives in its manner until it is killed.
pub fn receive(role: &Role<'_>, device: &Device) {
    let manner = role.manner;
    let recv_buffers = if manner == "keeps" { KEPT_MAX } else { 256 };
    let mut endpoint = Endpoint::create(device, Options::default().recv_buffers(recv_buffers)).unwrap();
    let memory = endpoint.allocate(4096).unwrap();
    let handle = endpoint.register(&memory, Access::ALL).unwrap().to_bytes();
    endpoint.connect(role.uri, manner.as_bytes(), role.attribute, 0, Some(PATIENCE)).unwrap();
    let (start, mut kept, mut is_sent) = (Instant::now(), Vec::new(), false);
    while start.elapsed() < 2 * PATIENCE {
        match endpoint.wait(Some(Duration::from_millis(1))).unwrap() {
            Some(Event::Connect { result, .. }) => {
                endpoint.send(result.unwrap(), &handle, 0, SendFlags::NONE).unwrap();
            }
            Some(Event::Send { .. }) => is_sent = true,
            Some(Event::Recv(message)) if manner == "keeps" => kept.push(message),
            _ => {}
        }
        if is_sent && manner == "freezes" {
            std::thread::sleep(2 * PATIENCE);
        }
    }
}

struct Peer {
    connection: Connection,
    is_honest: bool,
    handle: Option<RegionHandle>,
    /// Sends or operations begun, and completed.
    begun: u64,
    completed: u64,
}

struct Arena {
    server: Endpoint,
    place: Environment,
    peers: Vec<Peer>,
    children: Vec<Killed>,
}

impl Arena {
    fn open(name: &str, attribute: &str, hostile: &str) -> Option<Arena> {
        let place = Environment::find(name)?;
        let options = Options::default()
            .send_buffers(IN_PROGRESS_MAX)
            .rma_operations(IN_PROGRESS_MAX)
            .send_timeout(2 * PATIENCE);
        let server = Endpoint::create(&device(&place.0.victim), options).unwrap();
        let mut arena = Arena { server, place, peers: Vec::new(), children: Vec::new() };
        // The hostile one first: whoever comes after finds what it has left.
        for manner in [hostile, "takes", "takes"] {
            let role = format!("{manner} {attribute} 0 {}", arena.server.uri());
            arena.children.push(arena.place.start(&role));
            let (start, before) = (Instant::now(), arena.peers.len());
            while arena.peers.len() == before || arena.peers[before].handle.is_none() {
                arena.turn();
                assert!(start.elapsed() < PATIENCE, "{manner} does not come");
            }
        }
        Some(arena)
    }

    fn turn(&mut self) {
        match self.server.next_event() {
            Some(Event::ConnectRequest(request)) => {
                let is_honest = request.data() == b"takes";
                self.server.accept(request, is_honest.into()).unwrap();
            }
            Some(Event::Accept { context, result }) => {
                let (connection, is_honest) = (result.unwrap(), context == 1);
                self.peers.push(Peer { connection, is_honest, handle: None, begun: 0, completed: 0 });
            }
            Some(Event::Recv(message)) => {
                let from = message.connection();
                let peer = self.peers.iter_mut().find(|peer| peer.connection == from).unwrap();
                peer.handle = RegionHandle::from_message(&message);
            }
            Some(Event::Send { context, status, .. }) => {
                assert_eq!(status, cci::Status::Success);
                self.peers[context as usize].completed += 1;
            }
            _ => {}
        }
    }

    /// Starts as much as there is room for with the hostile one, until nothing of it has completed for long.
    fn fill(&mut self, start: &mut impl FnMut(&mut Endpoint, &Peer, u64) -> bool) {
        let (mut last, mut turns) = (0, 0);
        while turns < TURNS_WITHOUT {
            while start(&mut self.server, &self.peers[0], 0) {
                self.peers[0].begun += 1;
            }
            self.turn();
            turns = if self.peers[0].completed == last { turns + 1 } else { 0 };
            last = self.peers[0].completed;
        }
    }

    /// Starts as much as there is room for, with all peers in turn, until each honest one has got through what it has to.
    fn race(&mut self, start: &mut impl FnMut(&mut Endpoint, &Peer, u64) -> bool) -> Vec<(bool, u64, u64)> {
        let (began, messages) = (Instant::now(), messages());
        while !self.peers.iter().all(|peer| !peer.is_honest || peer.completed >= messages) {
            for (context, peer) in (0..).zip(&mut self.peers) {
                while start(&mut self.server, peer, context) {
                    peer.begun += 1;
                }
            }
            self.turn();
            assert!(began.elapsed() < PATIENCE, "{:?}\n{:#?}", self.seen(), self.server.counters());
        }
        self.seen()
    }

    /// Of each: honest, begun, completed.
    fn seen(&self) -> Vec<(bool, u64, u64)> {
        self.peers.iter().map(|peer| (peer.is_honest, peer.begun, peer.completed)).collect()
    }
}

/// What the hostile one, who is the first, has taken of the table.
fn check(what: &str, seen: &[(bool, u64, u64)]) {
    let (_, begun, completed) = seen[0];
    println!("{what}: the hostile one holds {} of {IN_PROGRESS_MAX}; {seen:?}", begun - completed);
    assert!(begun - completed <= u64::from(IN_PROGRESS_MAX / 2), "{seen:?}");
    assert!(begun - completed >= u64::from(IN_PROGRESS_MAX / 4), "it was hostile: {seen:?}");
}

fn sends_pass_by_one_that_takes_nothing(name: &str) {
    for (attribute, hostile) in [("RO", "keeps"), ("RO", "freezes"), ("RU", "keeps")] {
        let Some(mut arena) = Arena::open(name, attribute, hostile) else { return };
        let mut start = |server: &mut Endpoint, peer: &Peer, context| match server.send(
            peer.connection,
            &[7; 200],
            context,
            SendFlags::NONE,
        ) {
            Ok(()) => true,
            Err(SendError::WouldBlock) => false,
            Err(other) => panic!("{other}"),
        };
        arena.fill(&mut start);
        let seen = arena.race(&mut start);
        check(&format!("{name} {attribute}, sends to one that {hostile}"), &seen);
        figures::note("hostile.receivers", 1);
    }
}

fn operations_pass_by_one_that_answers_nothing(name: &str) {
    let Some(mut arena) = Arena::open(name, "RO", "freezes") else { return };
    let memory = arena.server.allocate(64).unwrap();
    let local = arena.server.register(&memory, Access::LOCAL).unwrap();
    let mut start = |server: &mut Endpoint, peer: &Peer, context| {
        let (from, to) = (Spot::new(local, 0), Spot::new(peer.handle.unwrap(), 0));
        match server.rma_write(peer.connection, from, to, 64, context, RmaFlags::NONE) {
            Ok(()) => true,
            Err(RmaError::WouldBlock) => false,
            Err(other) => panic!("{other}"),
        }
    };
    arena.fill(&mut start);
    let seen = arena.race(&mut start);
    check(&format!("{name}, operations on one that is frozen"), &seen);
    assert_eq!(seen[0].2, 0, "it was hostile: {seen:?}");
    figures::note("hostile.receivers", 1);
}

tests! {
    fn sends_udp() = sends_pass_by_one_that_takes_nothing("udp");
    fn sends_tcp() = sends_pass_by_one_that_takes_nothing("tcp");
    fn sends_shm() = sends_pass_by_one_that_takes_nothing("shm");
    fn sends_eth() = sends_pass_by_one_that_takes_nothing("eth");
    fn operations_udp() = operations_pass_by_one_that_answers_nothing("udp");
    fn operations_tcp() = operations_pass_by_one_that_answers_nothing("tcp");
    fn operations_eth() = operations_pass_by_one_that_answers_nothing("eth");
}
