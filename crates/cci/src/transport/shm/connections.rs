//! The connections of a shared-memory endpoint: what the transport keeps of each, and what all of them share.

use super::keepalive::Keepalive;
use super::pending::{Ended, Sends};
use super::wire::PeerConn;
use crate::ConnectFailure;
use crate::connection::{Connection, DisconnectReason, Status};
use crate::engine::core::Core;
use crate::limits::CONNECTIONS_MAX;
use crate::loan::Loans;
use cci_memory::slab::{Key, Slab};
use std::num::NonZeroU64;

/// What the transport keeps of a connection. An idle connection costs these bytes and those of the engine's entry.
pub(super) struct Conn {
    pub base: Base,
    pub state: State,
}

/// What a connection has in every state.
pub(super) struct Base {
    /// The engine's handle.
    pub connection: Connection,
    // Counters that change together are not neighbours. Otherwise the compiler changes both by one vector operation, which costs
    // twice as much.
    pub messages_sent: u64,
    pub messages_received: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// How long a send may take; `u32::MAX`: for ever.
    pub send_timeout_us: u32,
    /// How long the peer may be silent; 0: keepalive is off.
    pub keepalive_us: u32,
}

/// The stage of a connection's life, as the transport sees it.
pub(super) enum State {
    /// The handshake that will establish the connection is under way.
    Making {
        handshake: Key,
        is_reliable: bool,
    },
    Established(Established),
    /// The peer closed or died. The connection waits for the program to disconnect.
    Gone,
}

/// The state of a connection on a link.
pub(super) struct Established {
    pub link: Key,
    /// The key, as bits, of the flow that the connection has while remote memory operations are under way.
    flow: Option<NonZeroU64>,
    /// Reliable sends that have not completed.
    pub in_progress: u32,
    /// How many of the sends in progress are not silent.
    pub not_silent: u32,
    /// The index of the connection in the peer's table.
    pub peer_index: u32,
    /// The low bits of its generation there.
    pub peer_generation: u8,
    pub phase: Phase,
    pub is_reliable: bool,
    /// How messages that the peer lends reach the program.
    pub loans: Loans,
}

/// What an established connection can still do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It sends and receives.
    Open,
    /// A send timed out without an answer. Nothing is sent any more, but the peer does not know that.
    Broken,
    /// The program disconnected. CLOSE is queued or sent, and the answer has not come.
    Closing,
}

/// An established connection. It is looked up once at the beginning of each call, and passed on.
pub(super) struct EstablishedConn<'a> {
    pub base: &'a mut Base,
    pub on: &'a mut Established,
}

/// What a slab adds to each entry: a generation and the index of the next free slot.
const SLOT_BYTES: usize = 8;
/// The size of the engine's entry for a connection.
const ENGINE_BYTES: usize = size_of::<crate::engine::core::Conn>() + SLOT_BYTES;
const _: () = assert!(
    size_of::<Option<Conn>>() + SLOT_BYTES + ENGINE_BYTES <= 120,
    "an idle connection takes 120 bytes at most (design: what it must reach)"
);

impl Conn {
    /// The connection, if it rides on a link.
    #[inline]
    pub fn established(&mut self) -> Option<EstablishedConn<'_>> {
        match &mut self.state {
            State::Established(on) => Some(EstablishedConn { base: &mut self.base, on }),
            State::Making { .. } | State::Gone => None,
        }
    }

    /// The connection's state on its link; `None` if it is on no link.
    #[inline]
    pub fn on(&self) -> Option<&Established> {
        match &self.state {
            State::Established(on) => Some(on),
            State::Making { .. } | State::Gone => None,
        }
    }
}

impl Base {
    pub fn send_timeout_ns(&self) -> u64 {
        from_us(self.send_timeout_us)
    }
}

impl Established {
    /// The peer's name of the connection.
    pub fn peer(&self) -> PeerConn {
        PeerConn { index: self.peer_index, generation: u32::from(self.peer_generation) }
    }

    #[inline]
    pub fn flow(&self) -> Option<Key> {
        self.flow.map(|bits| Key::from_bits(bits.get()))
    }

    #[inline]
    pub fn set_flow(&mut self, flow: Option<Key>) {
        self.flow = flow.and_then(|key| NonZeroU64::new(key.to_bits()));
    }
}

/// Converts nanoseconds to microseconds, rounded up so that no timeout becomes 0. Times that are too long become `u32::MAX`,
/// which means for ever.
pub(super) fn to_us(ns: u64) -> u32 {
    u32::try_from(ns.div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// Converts microseconds to nanoseconds; `u32::MAX` becomes `u64::MAX`: for ever.
pub(super) fn from_us(us: u32) -> u64 {
    if us == u32::MAX { u64::MAX } else { u64::from(us) * 1_000 }
}

/// Counts since the endpoint was opened.
#[derive(Default)]
pub(super) struct Counts {
    pub wakes_sent: u64,
    pub wakes_received: u64,
    /// Offers of memory for loans that were not mapped.
    pub loan_offers_refused: u64,
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

/// The table of connections.
pub(super) struct Conns(Slab<Conn>);

impl Conns {
    pub const fn new() -> Conns {
        Conns(Slab::new(CONNECTIONS_MAX))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }

    pub fn get(&self, key: Key) -> Option<&Conn> {
        self.0.get(key)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Conn> {
        self.0.get_mut(key)
    }

    /// Removes a connection without informing the engine.
    pub fn remove(&mut self, key: Key) -> Option<Conn> {
        self.0.remove(key)
    }

    /// How long a send of the connection at an index may take.
    pub fn send_timeout_ns(&self, index: u32) -> u64 {
        self.0.at(index).map_or(0, |(_, conn)| from_us(conn.base.send_timeout_us))
    }

    /// The connection with this index. A send stores only the index of its connection, which outlives it.
    #[inline]
    pub fn at(&mut self, index: u32) -> Option<(Key, &mut Conn)> {
        self.0.at_mut(index)
    }

    /// The connection with this key, if it rides on a link.
    #[inline]
    pub fn established(&mut self, key: Key) -> Option<EstablishedConn<'_>> {
        self.0.get_mut(key)?.established()
    }

    /// The connection with this key, if it is [`Phase::Open`].
    #[inline]
    pub fn open(&mut self, key: Key) -> Option<EstablishedConn<'_>> {
        self.established(key).filter(|conn| conn.on.phase == Phase::Open)
    }

    /// The connection with this key, if it has this flow.
    pub fn with_flow(&mut self, key: Key, flow: Key) -> Option<EstablishedConn<'_>> {
        self.established(key).filter(|conn| conn.on.flow() == Some(flow))
    }

    /// The connection to which a peer refers by its index and the low bits of its generation.
    #[inline]
    pub fn named(&mut self, index: u32, generation: u8) -> Option<(Key, &mut Conn)> {
        self.at(index).filter(|(key, _)| key.generation as u8 == generation)
    }

    /// The connection to which a peer on `link` refers. `None` if it is not on that link.
    #[inline]
    pub fn named_on(&mut self, link: Key, index: u32, generation: u8) -> Option<(Key, EstablishedConn<'_>)> {
        let (key, conn) = self.named(index, generation)?;
        conn.established().filter(|conn| conn.on.link == link).map(|conn| (key, conn))
    }
}

/// The connections of an endpoint with their sends, settings and clock. It knows no link.
pub(super) struct Connections {
    pub conns: Conns,
    pub sends: Sends,
    pub counts: Counts,
    /// Connections whose CLOSE the peer has not answered yet, each with the time until which this side waits.
    pub closing: Vec<(Key, u64)>,
    pub keepalive: Keepalive,
    /// The last reading of the clock.
    pub now_ns: u64,
    pub mss: u32,
    pub send_timeout_us: u32,
    pub keepalive_us: u32,
}

impl Connections {
    /// The size of one entry of the table.
    const CONN_BYTES: usize = size_of::<Option<Conn>>() + SLOT_BYTES;

    /// How many bytes the next connection will add to the table, which doubles when it is full.
    pub fn growth_bytes(&self) -> u64 {
        let is_full = self.conns.0.len() as usize * Self::CONN_BYTES >= self.conns.bytes();
        if is_full { self.conns.bytes() as u64 } else { 0 }
    }

    /// Enters a new connection, and begins its handshake. Returns the keys of both, or `None` if a table is full or the system
    /// has no memory for it.
    pub fn insert(
        &mut self,
        connection: Connection,
        is_reliable: bool,
        begin: impl FnOnce(Key) -> Option<Key>,
    ) -> Option<(Key, Key)> {
        let base = Base {
            connection,
            messages_sent: 0,
            bytes_sent: 0,
            messages_received: 0,
            bytes_received: 0,
            send_timeout_us: self.send_timeout_us,
            keepalive_us: self.keepalive_us,
        };
        let mut handshake = None;
        let key = self.conns.0.insert_with(base, |base, key| {
            handshake = begin(key);
            let making = |handshake| State::Making { handshake, is_reliable };
            Conn { base, state: handshake.map_or(State::Gone, making) }
        });
        let key = key.ok()?;
        if handshake.is_none() {
            self.conns.0.remove(key);
        }
        handshake.map(|handshake| (key, handshake))
    }

    /// Notes that a connection is closing and is given up at `until_ns`. Before the list grows, those that have closed since are
    /// removed. With a long send timeout they would otherwise stay for long.
    pub fn closes_by(&mut self, key: Key, until_ns: u64) {
        if self.closing.len() == self.closing.capacity() {
            let conns = &self.conns;
            self.closing.retain(|(key, _)| conns.get(*key).is_some());
            self.closing.reserve(self.closing.len().max(16));
        }
        self.closing.push((key, until_ns));
    }

    /// Takes the connections off the list that have waited too long for the peer's answer.
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

    /// When the next closing connection is given up; `u64::MAX`: never.
    pub fn closing_deadline_ns(&self) -> u64 {
        self.closing.iter().map(|(_, until_ns)| *until_ns).min().unwrap_or(u64::MAX)
    }

    /// Reports that a connection could not be made.
    pub fn fail(&mut self, core: &mut Core, key: Key, why: ConnectFailure) {
        if let Some(conn) = self.conns.0.remove(key) {
            core.failed(conn.base.connection, why);
        }
    }

    /// Puts a connection whose handshake is complete on `link`.
    pub fn establish(&mut self, core: &mut Core, key: Key, link: Key, peer: PeerConn, mss: u32) {
        let Some(Conn { base, state }) = self.conns.get_mut(key) else { return };
        let State::Making { is_reliable, .. } = *state else { return };
        *state = State::Established(Established {
            link,
            flow: None,
            in_progress: 0,
            not_silent: 0,
            peer_index: peer.index,
            peer_generation: peer.generation as u8,
            phase: Phase::Open,
            is_reliable,
            loans: Loans::Copied,
        });
        core.opened(base.connection, mss.min(self.mss));
        if base.keepalive_us != 0 {
            self.keepalive.set(key, true);
        }
    }

    /// Notes and reports that a connection has no peer any more. Nothing of it may be under way.
    pub fn lose_peer(&mut self, core: &mut Core, key: Key, reason: DisconnectReason) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.state = State::Gone;
            core.ended(conn.base.connection, reason);
        }
    }

    /// Removes a connection that has ended on both sides.
    pub fn remove(&mut self, core: &mut Core, key: Key) {
        if let Some(conn) = self.conns.0.remove(key) {
            core.closed(conn.base.connection);
        }
    }

    /// Ends all connections on `link`, which has ended.
    pub fn end_all_on(&mut self, core: &mut Core, link: Key, reason: DisconnectReason) {
        let on_it = |(key, conn): (Key, &Conn)| {
            conn.on().filter(|on| on.link == link).map(|on| (key, on.phase == Phase::Closing))
        };
        let over: Vec<(Key, bool)> = self.conns.0.iter().filter_map(on_it).collect();
        for (key, is_closing) in over {
            if is_closing {
                self.remove(core, key);
            } else {
                self.lose_peer(core, key, reason);
            }
        }
    }
}

/// Reports that messages of a connection have ended.
#[inline(always)]
pub(super) fn complete(conns: &mut Conns, core: &mut Core, ended: &Ended, status: Status) {
    let Ended { conn, messages, op, .. } = *ended;
    let Some(EstablishedConn { base, on }) = conns.at(conn).and_then(|(_, conn)| conn.established()) else {
        return;
    };
    on.in_progress = on.in_progress.saturating_sub(messages);
    if !op.silent {
        on.not_silent = on.not_silent.saturating_sub(messages);
    }
    core.complete_run(base.connection, op, status, messages);
}
