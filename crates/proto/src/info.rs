//! What an endpoint reports about itself.

use crate::{Address, Attribute, ConnectionCounters};

/// Where a connection is in its life. The arrows are in `docs/conn.dot`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnState {
    /// No connection has this place.
    Free,
    /// Asked for; no answer yet.
    Dialing,
    /// Accepted by this side; the client has not confirmed yet.
    Accepting,
    /// Messages flow.
    Up,
    /// The peer has closed: it may still send what it had, and takes no more.
    PeerClosed,
    /// Closed locally; what was sent before is still being delivered.
    Lingering,
    /// Closed locally, everything is delivered or given up; the peer is being notified.
    Closing,
    /// The peer has died; waits for the local disconnect.
    Broken,
    /// Over; only its last event is still to be raised.
    Done,
}

/// The state of one of a bonded connection's paths to its peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PathState {
    /// Not used yet: nothing has shown that it leads to the peer and back.
    Unproved,
    /// In use.
    Up,
    /// Out of use: nothing came back for several probe time-outs. It is tried again and again.
    Down,
}

impl PathState {
    /// A short name, for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PathState::Unproved => "unproved",
            PathState::Up => "up",
            PathState::Down => "down",
        }
    }
}

/// One of a bonded connection's paths to its peer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PathInfo {
    /// Where it leads; its `via` says by which of this endpoint's carriers. `None`: the peer has not named it yet.
    pub to: Option<Address>,
    /// Whether it is in use.
    pub state: PathState,
    /// Smoothed round-trip time in nanoseconds; 0 before the first measurement.
    pub rtt_ns: u64,
    /// What the congestion controller allows in flight on this path.
    pub congestion_window_bytes: u64,
    /// What is in flight on this path.
    pub in_flight_bytes: u64,
    /// Datagrams sent by this path since the connection was made.
    pub datagrams_sent: u64,
    /// Bytes of the datagrams sent by this path since the connection was made.
    pub bytes_sent: u64,
    /// Bundles sent again by this path.
    pub retransmissions: u64,
    /// Times it went down.
    pub downs: u64,
}

impl PathInfo {
    /// Whether the path carries data.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == PathState::Up
    }
}

/// What keeps a connection from sending although it has something to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Blocked {
    /// As much is in flight as the congestion controller allows.
    Congestion,
    /// As much is in flight as the peer's receive buffer takes.
    PeerWindow,
    /// [`crate::limits::WINDOW_BUNDLES_MAX`] bundles are unacknowledged.
    Window,
    /// The peer has sent receiver-not-ready.
    ReceiverNotReady,
    /// The pacer holds the next bundle back for a moment.
    Pacing,
    /// The endpoint's packet buffers are in use, or this connection has its fair share of them.
    Pool,
    /// As many operations on the peer's memory are unanswered as may be at a time.
    Answers,
    /// An operation with a fence waits for those before it.
    Fence,
}

/// A connection, seen from outside.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct ConnectionInfo {
    /// The service asked for.
    pub attribute: Attribute,
    /// Where it is in its life.
    pub state: ConnState,
    /// The peer's library has answered: its program may have heard of the request.
    pub heard: bool,
    /// The peer.
    pub peer: Address,
    /// What the caller named it by.
    pub token: u64,
    /// The longest message, in bytes. Stays what it was when the connection opened (CCI-048): once the path turns out
    /// narrower than that, longer ones go in parts.
    pub message_bytes_max: usize,
    /// The largest datagram that is sent, in bytes.
    pub datagram_bytes_max: u16,
    /// Smoothed round-trip time; 0 before the first measurement.
    pub rtt_ns: u64,
    /// The least round-trip time lately; 0 when idle or before the first measurement.
    pub rtt_ns_min: u64,
    /// What the congestion controller allows in flight.
    pub congestion_window_bytes: u64,
    /// What the peer allows in flight.
    pub peer_window_bytes: u64,
    /// What is in flight.
    pub in_flight_bytes: u64,
    /// Bundles sent or queued and not yet acknowledged.
    pub bundles_unacked: u32,
    /// Messages that arrived and wait for a receive buffer: packet buffers they hold.
    pub bundles_held: u32,
    /// How long a send may take, in nanoseconds.
    pub send_timeout_ns: u64,
    /// Silence before the peer is asked whether it lives; 0: never.
    pub keepalive_ns: u64,
    /// Why nothing leaves although something is queued; `None` if nothing is queued or it may leave.
    pub blocked: Option<Blocked>,
    /// Counted since the connection last woke from idleness; all zero while it is idle.
    pub counters: ConnectionCounters,
}

/// What an endpoint holds, in bytes by kind.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// The packet buffers, used or not: allocated once.
    pub pool_bytes: u64,
    /// The part of `pool_bytes` that is in use.
    pub pool_used_bytes: u64,
    /// Room for the contexts of sends not yet completed: allocated once.
    pub sends_bytes: u64,
    /// Remote memory operations and their segments, and the states of connections that use them: grow with use.
    pub rma_bytes: u64,
    /// The connection table.
    pub connections_bytes: u64,
    /// States of connections that are not idle, and their windows.
    pub actives_bytes: u64,
    /// Handshakes, with the request payloads the program has not answered yet.
    pub handshakes_bytes: u64,
    /// Timers and queues.
    pub queues_bytes: u64,
    /// What the sum of the above (without `pool_used_bytes`) never exceeds.
    pub cap_bytes: u64,
}

impl MemoryUse {
    /// Everything held.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.pool_bytes
            + self.sends_bytes
            + self.rma_bytes
            + self.connections_bytes
            + self.actives_bytes
            + self.handshakes_bytes
            + self.queues_bytes
    }
}
