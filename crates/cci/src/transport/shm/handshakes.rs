//! The handshakes under way.

use super::connections::{Connections, State};
use super::handshake::{Handshake, Stage};
use super::wire::PeerConn;
use crate::ConnectFailure;
use crate::engine::core::Core;
use crate::engine::poller::Poller;
use crate::transport::token;
use cci_memory::slab::{Key, Slab};
use cci_sys::SysError;
use cci_sys::unix::Stream;
use std::os::fd::AsFd;

/// The most handshakes at a time.
const HANDSHAKES_MAX: u32 = 64 << 10;

/// Time between two attempts to reach a server whose queue is full.
pub(super) const RETRY_NS: u64 = 1_000_000;

/// All handshakes of an endpoint, on either side.
pub(super) struct Handshakes {
    all: Slab<Handshake>,
    /// When their deadlines were last checked.
    looked_ns: u64,
}

impl Handshakes {
    pub const fn new() -> Handshakes {
        Handshakes { all: Slab::new(HANDSHAKES_MAX), looked_ns: 0 }
    }

    pub fn get(&self, key: Key) -> Option<&Handshake> {
        self.all.get(key)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Handshake> {
        self.all.get_mut(key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Key, &Handshake)> {
        self.all.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.all.bytes() as u64
    }

    /// The handshake of a token of the poller.
    pub fn named_by(&self, what: u64) -> Option<Key> {
        self.all.key_at(token::index(what)).filter(|key| token::names(what, *key))
    }

    /// Enters a handshake without a stream. Returns `None` if there are too many, or there is no memory.
    pub fn insert(&mut self, deadline_ns: u64, stage: Stage) -> Option<Key> {
        self.all.insert(Handshake { stream: None, deadline_ns, stage }).ok()
    }

    /// Gives a handshake its stream, and watches it.
    pub fn watch(&mut self, poller: &Poller, key: Key, stream: Stream) -> Result<(), (SysError, Stream)> {
        if let Err(error) = poller.watch(stream.as_fd(), token::make(token::HANDSHAKE, key)) {
            return Err((error, stream));
        }
        if let Some(handshake) = self.all.get_mut(key) {
            handshake.stream = Some(stream);
        }
        Ok(())
    }

    /// Closes a handshake's stream, on which nothing more comes.
    pub fn release(&mut self, poller: &Poller, key: Key) {
        if let Some(stream) = self.all.get_mut(key).and_then(|handshake| handshake.stream.take()) {
            poller.unwatch(stream.as_fd());
        }
    }

    /// Takes a handshake out, and stops watching its stream.
    pub fn remove(&mut self, poller: &Poller, key: Key) -> Option<Handshake> {
        let handshake = self.all.remove(key)?;
        if let Some(stream) = &handshake.stream {
            poller.unwatch(stream.as_fd());
        }
        Some(handshake)
    }

    /// Changes the stage of a handshake. Its deadline stays, so that other connections of the same process can't prolong it.
    pub fn set_stage(&mut self, key: Key, stage: Stage) {
        if let Some(handshake) = self.all.get_mut(key) {
            handshake.stage = stage;
        }
    }

    /// Handles a CONFIRM that came through the ring of `link`: a client has joined it, for one of our connections. Returns false
    /// if no such client is expected.
    pub fn confirm(
        &mut self,
        connections: &mut Connections,
        core: &mut Core,
        link: Key,
        (conn, generation): (u32, u8),
        from: PeerConn,
    ) -> bool {
        if let Some((key, conn)) = connections.conns.named(conn, generation)
            && let State::Making { handshake: at, .. } = conn.state
            && let Some(handshake) = self.all.get(at)
            && let Stage::Joining { pending, link: joined } = handshake.stage
            && joined == link
            && pending.theirs == from
        {
            self.remove(&core.poller, at);
            connections.counts.links_joined += 1;
            connections.establish(core, key, link, pending.theirs, pending.mss);
            return true;
        }
        false
    }

    /// Ends handshakes of clients that were about to join `link`, which has ended. A client whose socket is open can still ask
    /// for a new link, so its handshake goes on.
    pub fn fail_joining(&mut self, connections: &mut Connections, core: &mut Core, link: Key) {
        let is_over = |handshake: &Handshake| {
            handshake.stream.is_none()
                && matches!(handshake.stage, Stage::Joining { link: joined, .. } if joined == link)
        };
        let over: Vec<Key> =
            self.all.iter().filter(|(_, handshake)| is_over(handshake)).map(|(key, _)| key).collect();
        for key in over {
            if let Some(conn) = self.all.remove(key).and_then(|handshake| handshake.stage.conn()) {
                connections.fail(core, conn, ConnectFailure::Disconnected);
            }
        }
    }

    /// When the next handshake times out, or the next server is tried again; `u64::MAX`: never.
    pub fn deadline_ns(&self) -> u64 {
        let due_ns = |handshake: &Handshake| match &handshake.stage {
            Stage::Hello { hello, .. } => handshake.deadline_ns.min(hello.again_ns),
            _ => handshake.deadline_ns,
        };
        self.all.iter().map(|(_, handshake)| due_ns(handshake)).min().unwrap_or(u64::MAX)
    }

    /// Whether it is time to call [`due`](Self::due). If so, it counts as called.
    #[inline]
    pub fn are_due(&mut self, now_ns: u64) -> bool {
        let are_due = !self.all.is_empty() && now_ns >= self.looked_ns + RETRY_NS;
        if are_due {
            self.looked_ns = now_ns;
        }
        are_due
    }

    /// The handshakes whose deadline has passed, and those whose server is to be tried again.
    pub fn due(&self, now_ns: u64) -> (Vec<Key>, Vec<Key>) {
        let (mut over, mut again) = (Vec::new(), Vec::new());
        for (key, handshake) in self.all.iter() {
            if now_ns >= handshake.deadline_ns {
                over.push(key);
            } else if matches!(&handshake.stage, Stage::Hello { hello, .. } if now_ns >= hello.again_ns) {
                again.push(key);
            }
        }
        (over, again)
    }
}
