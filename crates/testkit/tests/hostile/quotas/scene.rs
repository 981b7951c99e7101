//! An endpoint with two peers: one that may be silent, and an honest one.

use cci::{
    Access, Attribute, Connection, Endpoint, Event, Memory, Options, RegionAddress, RegionHandle, Segment,
    SendError, SendFlags, Status,
};
use cci_testkit::hostile::{Stage, device};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Longer than anything takes here. Nothing is concluded from how long it takes.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Indices of the peers: the first may be silent.
pub const SILENT: usize = 0;
pub const HONEST: usize = 1;

pub struct Scene {
    pub server: Endpoint,
    pub peers: [Endpoint; 2],
    /// The server's connections to them.
    pub connections: [Connection; 2],
    /// What the server's program heard.
    pub completions: VecDeque<(u64, Status)>,
    /// The network is there as long as endpoints are.
    _stage: Stage,
}

/// Memory of the server, and as much of a peer, with their handles.
pub struct Memories {
    pub local_handle: RegionHandle,
    pub remote_handle: RegionHandle,
    _memories: [Memory; 2],
}

impl Memories {
    /// So many segments on each side, all of them the same `len_bytes`.
    pub fn segments(&self, count: usize, len_bytes: u64) -> [Vec<Segment>; 2] {
        [self.local_handle, self.remote_handle]
            .map(|handle| vec![Segment { address: RegionAddress::new(handle, 0), len_bytes }; count])
    }
}

impl Scene {
    /// None: this machine can't, and it was said why.
    pub fn open(name: &str) -> Option<Scene> {
        let stage = Stage::find(name)?;
        let open = |text: &str| Endpoint::create(&device(text), Options::default()).unwrap();
        let mut server = open(&stage.victim);
        let mut peers = [open(&stage.peers), open(&stage.peers)];
        let (mut connections, started) = (Vec::new(), Instant::now());
        for peer in &mut peers {
            peer.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
            let (mut local_handle, mut remote_handle) = (None, false);
            while local_handle.is_none() || !remote_handle {
                assert!(started.elapsed() < PATIENCE, "not connected");
                match server.next_event() {
                    Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
                    Some(Event::Accept { result, .. }) => local_handle = Some(result.unwrap()),
                    _ => {}
                }
                remote_handle |= matches!(peer.next_event(), Some(Event::Connect { result: Ok(_), .. }));
            }
            connections.extend(local_handle);
        }
        let connections = connections.try_into().unwrap();
        Some(Scene { server, peers, connections, completions: VecDeque::new(), _stage: stage })
    }

    /// Memory of the server and of a peer that may be read and written.
    pub fn memories(&mut self, peer: usize, len_bytes: usize) -> Memories {
        let local = self.server.allocate(len_bytes).unwrap();
        let remote = self.peers[peer].allocate(len_bytes).unwrap();
        let local_handle = self.server.register(&local, Access::LOCAL).unwrap();
        let remote_handle = self.peers[peer].register(&remote, Access::READ | Access::WRITE).unwrap();
        Memories { local_handle, remote_handle, _memories: [local, remote] }
    }

    /// The server's program takes all events; the peers named make progress and let go of what they received.
    pub fn turn(&mut self, peers: &[usize]) {
        while let Some(event) = self.server.next_event() {
            if let Event::Send { context, status, .. } = event {
                self.completions.push_back((context, status));
            }
        }
        for peer in peers {
            while self.peers[*peer].next_event().is_some() {}
        }
    }

    pub fn send(&mut self, to: usize, context: u64) -> bool {
        match self.server.send(self.connections[to], b"12345678", context, SendFlags::NONE) {
            Ok(()) => true,
            Err(SendError::WouldBlock) => false,
            Err(other) => panic!("{other}"),
        }
    }
}
