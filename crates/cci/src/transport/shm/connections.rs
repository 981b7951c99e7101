//! The connections of a shared-memory endpoint: what the transport keeps of each, and what all of them share.

use super::keepalive::Keepalive;
use super::pending::Sends;
use super::wire::PeerConn;
use crate::ConnectFailure;
use crate::connection::{Connection, DisconnectReason, Status};
use crate::engine::core::{Core, SendOp};
use crate::transport::token;
use cci_memory::slab::{Key, Slab};

/// What became of a connection, as far as the transport is concerned.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Being made: `at` names the handshake.
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

/// A connection. An idle one costs these bytes, and the engine's.
pub(super) struct Conn {
    /// The engine's handle.
    pub connection: Connection,
    /// A link or a handshake, depending on [`State`].
    pub at: Key,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub bytes_received: u64,
    /// The index of the peer's entry for it.
    pub peer_index: u32,
    /// `u32::MAX` stands for ever.
    pub send_timeout_us: u32,
    /// 0 means that keepalive is off.
    pub keepalive_us: u32,
    /// Reliable sends that have not completed.
    pub in_progress: u32,
    /// How many of the sends in progress are not silent.
    pub not_silent: u32,
    /// Its flow while remote memory operations are under way; NOWHERE otherwise.
    pub flow: Key,
    /// The low bits of the generation of the peer's entry.
    pub peer_generation: u8,
    pub state: State,
    pub is_reliable: bool,
}

/// What a slab adds to each entry: its generation, and a link of the list of free ones.
const SLOT_BYTES: usize = 8;
/// The engine's entry.
const ENGINE_BYTES: usize = size_of::<crate::engine::core::Conn>() + SLOT_BYTES;
const _: () = assert!(
    size_of::<Option<Conn>>() + SLOT_BYTES + ENGINE_BYTES <= 120,
    "an idle connection takes 120 bytes at most (design: what it must reach)"
);

impl Conn {
    pub fn send_timeout_ns(&self) -> u64 {
        from_us(self.send_timeout_us)
    }

    /// The connection as the peer names it.
    pub fn peer(&self) -> PeerConn {
        PeerConn { index: self.peer_index, generation: u32::from(self.peer_generation) }
    }
}

/// Nanoseconds to microseconds, rounded up, so that no timeout becomes 0; what is too long is for ever.
pub(super) fn to_us(ns: u64) -> u32 {
    u32::try_from(ns.div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// Microseconds to nanoseconds; `u32::MAX` is for ever.
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

/// The connections, their sends, and the settings and the clock that go with them. It knows no link.
pub(super) struct Connections {
    pub conns: Slab<Conn>,
    pub sends: Sends,
    pub counts: Counts,
    /// Connections that were disconnected and not answered yet, with the time when we stop waiting.
    pub closing: Vec<(Key, u64)>,
    pub keepalive: Keepalive,
    /// The time when the clock was last read.
    pub now_ns: u64,
    pub mss: u32,
    pub send_timeout_us: u32,
    pub keepalive_us: u32,
}

impl Connections {
    /// Bytes of one entry.
    const CONN_BYTES: usize = size_of::<Option<Conn>>() + SLOT_BYTES;

    /// By how many bytes the table grows with the next connection: it doubles when it is full.
    pub fn growth_bytes(&self) -> u64 {
        let is_full = self.conns.len() as usize * Self::CONN_BYTES >= self.conns.bytes();
        if is_full { self.conns.bytes() as u64 } else { 0 }
    }

    /// Enters a connection that is to be made. None: the table is full, or the system has no memory for it.
    pub fn insert(&mut self, connection: Connection, is_reliable: bool) -> Option<Key> {
        let conn = Conn {
            connection,
            at: token::NOWHERE,
            messages_sent: 0,
            bytes_sent: 0,
            messages_received: 0,
            bytes_received: 0,
            peer_index: 0,
            send_timeout_us: self.send_timeout_us,
            keepalive_us: self.keepalive_us,
            in_progress: 0,
            not_silent: 0,
            flow: token::NOWHERE,
            peer_generation: 0,
            state: State::Making,
            is_reliable,
        };
        self.conns.insert(conn).ok()
    }

    /// A connection as a peer names it: its index, and the low bits of its generation.
    #[inline]
    pub fn named(&mut self, index: u32, generation: u8) -> Option<(Key, &mut Conn)> {
        self.conns.at_mut(index).filter(|(key, _)| key.generation as u8 == generation)
    }

    /// A connection that rides on `link`, as a peer names it.
    #[inline]
    pub fn named_on(&mut self, link: Key, index: u32, generation: u8) -> Option<(Key, &mut Conn)> {
        self.named(index, generation).filter(|(_, conn)| conn.at == link)
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

    /// Connections that were disconnected and not answered in time; they leave the list.
    pub fn take_overdue_closing(&mut self) -> Vec<Key> {
        let now_ns = self.now_ns;
        let mut over = Vec::new();
        self.closing.retain(|&(key, until_ns)| {
            if now_ns >= until_ns {
                over.push(key);
            }
            now_ns < until_ns
        });
        over
    }

    /// When the first connection that closes is given up; `u64::MAX`: never.
    pub fn closing_deadline_ns(&self) -> u64 {
        self.closing.iter().map(|(_, until_ns)| *until_ns).min().unwrap_or(u64::MAX)
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
            self.keepalive.set(key, true);
        }
    }

    /// The link `link` is no more: what rides on it ends.
    pub fn end_all_on(&mut self, core: &mut Core, link: Key, reason: DisconnectReason) {
        let mut over = Vec::new();
        for (key, conn) in self.conns.iter_mut().filter(|(_, conn)| conn.at == link) {
            match conn.state {
                State::Open | State::Broken => {
                    conn.state = State::Gone;
                    conn.at = token::NOWHERE;
                    core.ended(conn.connection, reason);
                }
                State::Closing => over.push(key),
                State::Making | State::Gone => {}
            }
        }
        for key in over {
            if let Some(conn) = self.conns.remove(key) {
                core.closed(conn.connection);
            }
        }
    }
}

/// A send ended.
#[inline]
pub(super) fn complete(conns: &mut Slab<Conn>, core: &mut Core, conn: u32, op: SendOp, status: Status) {
    let Some((_, conn)) = conns.at_mut(conn) else { return };
    conn.in_progress = conn.in_progress.saturating_sub(1);
    conn.not_silent = conn.not_silent.saturating_sub(u32::from(!op.silent));
    core.complete(conn.connection, op, status);
}
