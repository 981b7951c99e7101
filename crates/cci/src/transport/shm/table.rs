//! The connections of a shared-memory endpoint, and what every part of the transport works with.

use super::hand::Hand;
use super::pending::Sends;
use super::rma::state::Rma;
use super::wire::PeerConn;
use crate::ConnectFailure;
use crate::connection::{Connection, Status};
use crate::engine::core::{Core, SendOp};
use cci_memory::slab::{Key, Slab};

/// What became of a connection, as far as the transport is concerned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Being made: `at` names the [`Hand`].
    Making,
    /// Open: `at` names the link.
    Open,
    /// The program disconnected; CLOSE is queued or sent, the answer has not come. `at` names the link.
    Closing,
    /// A send timed out without an answer: nothing is sent any more, but the peer does not know. `at` names the link.
    Broken,
    /// The peer closed or died: `at` names nothing. Waits for the program to disconnect.
    Gone,
}

/// A connection. What is idle costs these bytes, and the engine's.
pub(super) struct Conn {
    /// The engine's handle.
    pub connection: Connection,
    /// A link or a hand, by [`State`].
    pub at: Key,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub bytes_received: u64,
    /// The peer's place for it.
    pub peer_index: u32,
    /// u32::MAX: for ever.
    pub send_timeout_us: u32,
    /// 0: off.
    pub keepalive_us: u32,
    pub in_progress: u32,
    /// Of these, those that are not silent.
    pub to_be_told: u32,
    /// Its flow while remote memory operations are under way; NOWHERE otherwise.
    pub rma: Key,
    /// Low bits of the generation of the peer's place.
    pub peer_generation: u8,
    pub state: State,
    pub is_reliable: bool,
}

/// Of a connection of ours, beside the engine's: place and generation.
const PLACE_BYTES: usize = 8;
/// The engine's entry and its place.
const ENGINE_BYTES: usize = size_of::<crate::engine::core::Conn>() + PLACE_BYTES;
const _: () = assert!(
    size_of::<Option<Conn>>() + PLACE_BYTES + ENGINE_BYTES <= 120,
    "an idle connection takes 120 bytes at most (design: what it must reach)"
);

impl Conn {
    pub fn send_timeout_ns(&self) -> u64 {
        from_us(self.send_timeout_us)
    }
}

/// To microseconds, up, so that no timeout becomes 0 by rounding; what is too long is for ever.
pub(super) fn to_us(ns: u64) -> u32 {
    u32::try_from(ns.div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// Back; u32::MAX is for ever.
pub(super) fn from_us(us: u32) -> u64 {
    if us == u32::MAX { u64::MAX } else { u64::from(us) * 1_000 }
}

/// Counted since the endpoint was opened.
#[derive(Default)]
pub(super) struct Counts {
    pub wakes_sent: u64,
    pub wakes_received: u64,
    pub kernel_polls: u64,
    pub stalls: u64,
    pub links_made: u64,
    pub links_joined: u64,
    pub links_died: u64,
    pub link_corrupt: u64,
    pub bad_record: u64,
    pub unknown_connection: u64,
    pub after_close: u64,
    pub unreliable_no_buffer: u64,
    pub bad_handshake: u64,
    pub not_permitted: u64,
    pub not_proven: u64,
    pub handshake_timed_out: u64,
    pub requests_over_quota: u64,
    pub operations_over_quota: u64,
    pub system_errors: u64,
}

/// All but the links: what the handling of one link may touch.
pub(super) struct Table {
    /// Our name among endpoints: random.
    pub endpoint: u64,
    pub conns: Slab<Conn>,
    pub hands: Slab<Hand>,
    pub sends: Sends,
    pub counts: Counts,
    /// Disconnected and not answered yet, with the time when we stop waiting.
    pub closing: Vec<(Key, u64)>,
    /// Connections with keepalive on.
    pub keepalive: Vec<Key>,
    pub next_keepalive_ns: u64,
    pub rma: Rma,
    /// The time when it was last looked at.
    pub now_ns: u64,
    pub mss: u32,
    pub send_timeout_us: u32,
    pub keepalive_us: u32,
}

impl Table {
    /// A connection as a peer names it: its place, and the low bits of its generation.
    #[inline]
    pub fn named(&mut self, index: u32, generation: u8) -> Option<(Key, &mut Conn)> {
        self.conns.at_mut(index).filter(|(key, _)| key.generation as u8 == generation)
    }

    /// A connection is closing, and is given up at `until_ns`. Those that have closed since leave the list when it
    /// would grow: with a long send timeout, or none, it would keep all there ever were.
    pub fn closes_by(&mut self, key: Key, until_ns: u64) {
        if self.closing.len() == self.closing.capacity() {
            let conns = &self.conns;
            self.closing.retain(|(key, _)| conns.get(*key).is_some());
            self.closing.reserve(self.closing.len().max(16));
        }
        self.closing.push((key, until_ns));
    }

    /// The attempt to make a connection is over, without one.
    pub fn fail(&mut self, core: &mut Core, key: Key, why: ConnectFailure) {
        if let Some(conn) = self.conns.remove(key) {
            core.failed(conn.connection, why);
        }
    }

    /// A connection is made; it rides on `link`.
    pub fn open(&mut self, core: &mut Core, key: Key, link: Key, peer: PeerConn, mss: u32) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.at = link;
        conn.state = State::Open;
        conn.peer_index = peer.index;
        conn.peer_generation = peer.generation as u8;
        core.opened(conn.connection, mss.min(self.mss));
        if conn.keepalive_us != 0 {
            self.keepalive.push(key);
            self.next_keepalive_ns = 0;
        }
    }
}

/// A send ended.
#[inline]
pub(super) fn complete(conns: &mut Slab<Conn>, core: &mut Core, conn: u32, op: SendOp, status: Status) {
    let Some((_, conn)) = conns.at_mut(conn) else { return };
    conn.in_progress = conn.in_progress.saturating_sub(1);
    conn.to_be_told = conn.to_be_told.saturating_sub(u32::from(!op.silent));
    core.complete(conn.connection, op, status);
}
