//! Completions that wait their turn behind a long operation, on a reliable ordered connection, count against that connection
//! only: sends to other peers go on. Real endpoints, driven in turns by one thread, so that nothing depends on time.

use cci::{
    Access, Attribute, Connection, Context, Endpoint, Event, Memory, Options, Piece, Place, Rma, RmaFlags,
    RmaHandle, RmaKind, SendError, SendFlags, Status,
};
use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longer than anything takes here. Nothing is concluded from how long it takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The long operation reads the same memory so often: more than any device moves in this test.
const PIECES: usize = 1_024;
const PIECE_BYTES: usize = 16 << 20;
/// Sends behind it are tried until this many turns in a row brought neither room nor a completion.
const QUIET_TURNS_MAX: u32 = 500;
/// What has to get through to the honest peer meanwhile.
const HONEST_SENDS: u64 = 1_000;
/// The context of the long operation; sends behind it count up from there.
const LONG: u64 = 1 << 32;

struct Scene {
    server: Endpoint,
    /// The peer whose memory is read, and the honest one.
    peers: [Endpoint; 2],
    /// The server's connections to them.
    connections: [Connection; 2],
    /// What the server's program was told.
    told: VecDeque<(u64, Status)>,
}

impl Scene {
    fn open(config: &str) -> Scene {
        let context = Context::from_text(config, Path::new("held.ini")).unwrap();
        let open = || Endpoint::create(&context.devices()[0], Options::default()).unwrap();
        let (mut server, mut peers) = (open(), [open(), open()]);
        let (mut connections, started) = (Vec::new(), Instant::now());
        for peer in &mut peers {
            peer.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
            let (mut here, mut there) = (None, false);
            while here.is_none() || !there {
                assert!(started.elapsed() < PATIENCE, "not connected");
                match server.next_event() {
                    Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
                    Some(Event::Accept { result, .. }) => here = Some(result.unwrap()),
                    _ => {}
                }
                there |= matches!(peer.next_event(), Some(Event::Connect { result: Ok(_), .. }));
            }
            connections.extend(here);
        }
        let told = VecDeque::new();
        Scene { server, peers, connections: connections.try_into().unwrap(), told }
    }

    /// The server's program takes all events; the peers named make progress and let go of what they received.
    fn turn(&mut self, peers: &[usize]) {
        while let Some(event) = self.server.next_event() {
            if let Event::Send { context, status, .. } = event {
                self.told.push_back((context, status));
            }
        }
        for peer in peers {
            while self.peers[*peer].next_event().is_some() {}
        }
    }

    fn send(&mut self, to: usize, context: u64) -> bool {
        match self.server.send(self.connections[to], b"12345678", context, SendFlags::NONE) {
            Ok(()) => true,
            Err(SendError::WouldBlock) => false,
            Err(other) => panic!("{other}"),
        }
    }

    /// Starts to read the first peer's memory again and again. It ends when that peer deregisters the region.
    fn start_long_operation(&mut self) -> ([Memory; 2], RmaHandle) {
        let local = self.server.allocate(PIECE_BYTES).unwrap();
        let remote = self.peers[0].allocate(PIECE_BYTES).unwrap();
        let here = self.server.register(&local, Access::LOCAL).unwrap();
        let there = self.peers[0].register(&remote, Access::READ).unwrap();
        let pieces =
            |handle| vec![Piece { place: Place::new(handle, 0), len_bytes: PIECE_BYTES as u64 }; PIECES];
        let rma = Rma {
            kind: RmaKind::Read,
            local: &pieces(here),
            remote: &pieces(there),
            message: None,
            context: LONG,
            flags: RmaFlags::NONE,
        };
        self.server.rma(self.connections[0], &rma).unwrap();
        ([local, remote], there)
    }
}

fn held_completions_stop_nobody_else(config: &str) {
    let mut scene = Scene::open(config);
    let (_memory, remote) = scene.start_long_operation();
    let started = Instant::now();

    // As many sends behind it as are taken. They are acknowledged, and can't be told before the operation is.
    let (mut behind, mut quiet_turns) = (0, 0);
    while quiet_turns < QUIET_TURNS_MAX {
        assert!(started.elapsed() < PATIENCE, "{behind} sends behind the operation");
        let before = behind;
        while scene.send(0, LONG + behind + 1) {
            behind += 1;
        }
        scene.turn(&[0, 1]);
        assert!(scene.told.is_empty(), "the operation is over too soon for this test");
        quiet_turns = if behind == before { quiet_turns + 1 } else { 0 };
    }
    println!("{behind} sends behind the operation");
    assert!(behind > 10_000, "only {behind}: what holds them is not the operation");

    // The honest peer's turn: the first one does nothing now, so that its operation stays as it is.
    for context in 0..HONEST_SENDS {
        assert!(scene.send(1, context), "send {context} to the honest peer has no room");
        while scene.told.pop_front().is_none_or(|told| told != (context, Status::Success)) {
            assert!(started.elapsed() < PATIENCE, "send {context} to the honest peer");
            scene.turn(&[1]);
        }
    }

    // All that was held is told, once and in order.
    scene.peers[0].deregister(&remote).unwrap();
    let mut next = 0;
    while next <= behind {
        assert!(started.elapsed() < PATIENCE, "{next} of {behind} were told");
        scene.turn(&[0, 1]);
        while let Some(told) = scene.told.pop_front() {
            let status = if next == 0 { Status::RmaHandle } else { Status::Success };
            assert_eq!(told, (LONG + next, status));
            next += 1;
        }
    }
    scene.turn(&[0, 1]);
    assert!(scene.told.is_empty());
    assert!(scene.send(0, 0), "there is room again");
}

#[test]
fn held_completions_stop_nobody_else_on_shm() {
    held_completions_stop_nobody_else("[d]\ntransport = shm\ndirect = off\ncma = off\n");
}

#[test]
fn held_completions_stop_nobody_else_on_udp() {
    held_completions_stop_nobody_else("[d]\ntransport = udp\nip = 127.0.0.1\n");
}

#[test]
fn held_completions_stop_nobody_else_on_tcp() {
    held_completions_stop_nobody_else("[d]\ntransport = tcp\nip = 127.0.0.1\n");
}
