//! A connection: 96 bytes while idle, and what it borrows while active.

pub(crate) mod cut;
pub(crate) mod path;
pub(crate) mod size;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod unended;

use crate::congestion::Window;
use crate::limits::message_bytes_max;
use crate::reliable::rtt::Rtt;
use crate::reliable::rx::{Rx, RxRing};
use crate::reliable::tx::{Tx, TxRing};
use crate::timers::TimerId;
use crate::transfers::state::Rma;
use crate::wire::Accept;
use crate::{
    Address, Attribute, Blocked, ConnKey, ConnState, ConnectionCounters, DisconnectReason, Seq, Time,
};
use cut::Rest;
use path::{Bond, FIRST, Path};
use size::SizeSearch;
use unended::Unended;

/// A connection as the table holds it: all that an idle one needs.
pub(crate) struct Conn {
    pub peer: Address,
    /// What proves that a datagram to us belongs to this connection.
    pub nonce: u64,
    /// What proves it to the peer.
    pub peer_nonce: u64,
    pub token: u64,
    pub active: Option<Box<Active>>,
    pub peer_index: u32,
    pub peer_generation: u32,
    pub generation: u32,
    /// Next bundle to send, while idle.
    pub idle_tx: Seq,
    /// Next bundle to come, while idle.
    pub idle_rx: Seq,
    /// Smoothed round trip while idle.
    pub idle_rtt: IdleRtt,
    /// 0: the endpoint's default.
    pub send_timeout_ms: u32,
    /// The largest datagram that the way is known to take.
    pub datagram_bytes: u16,
    /// The longest bundle, as a datagram: the smaller of the two sides'.
    pub bundle_bytes: u16,
    /// The receiver-not-ready epoch in which we send.
    pub tx_epoch: u16,
    /// The epoch in which we take data.
    pub rx_epoch: u16,
    /// What the peer lets be in flight.
    pub peer_window_kib: u16,
    /// Congestion window while idle, and whether the peer was heard of.
    pub idle_window: IdleWindow,
    pub state: ConnState,
    pub attribute: Attribute,
}

/// The congestion window of an idle connection, in KiB, in 15 bits: more than one is ever restored to. In the last: whether
/// something has come from the peer since the connection was last looked at.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleWindow(u16);

impl IdleWindow {
    const HEARD: u16 = 1 << 15;

    pub fn kib(self) -> u16 {
        self.0 & !IdleWindow::HEARD
    }

    pub fn set_kib(&mut self, kib: u16) {
        self.0 = self.0 & IdleWindow::HEARD | kib.min(!IdleWindow::HEARD);
    }

    #[inline]
    pub fn note_heard(&mut self) {
        self.0 |= IdleWindow::HEARD;
    }

    pub fn is_heard(self) -> bool {
        self.0 & IdleWindow::HEARD != 0
    }

    /// The same, and from now on it is counted anew.
    pub fn take_heard(&mut self) -> bool {
        let heard = self.is_heard();
        self.0 &= !IdleWindow::HEARD;
        heard
    }
}

/// A round trip in two bytes, to a thousandth: 11 bits shifted left by the upper 5, in units of 64 ns. 0: not measured.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdleRtt(u16);

impl IdleRtt {
    pub fn new(rtt_ns: u64) -> IdleRtt {
        let units = (rtt_ns >> 6).min(u64::from(u32::MAX));
        let shift = (64 - units.leading_zeros()).saturating_sub(11);
        IdleRtt((shift << 11) as u16 | (units >> shift) as u16)
    }

    pub fn ns(self) -> u64 {
        (u64::from(self.0 & 0x7ff) << (self.0 >> 11)) << 6
    }
}

const _: () = {
    assert!(size_of::<Conn>() <= 96, "an idle connection, all told");
    assert!(size_of::<Active>() <= 768, "an active one without its windows");
};

/// What a connection has to send besides data.
pub(crate) mod want {
    /// An acknowledgement, now.
    pub const ACK: u8 = 1;
    /// The next step of asking for a connection.
    pub const DIAL: u8 = 2;
    pub const ACCEPT: u8 = 4;
    /// A question that asks for an answer: keepalive, receiver-not-ready probe, confirmation.
    pub const PING: u8 = 8;
    pub const CLOSE: u8 = 16;
    /// A question or an answer about a way to the peer.
    pub const PATH: u8 = 32;
}

/// A connection being asked for.
pub(crate) struct Dial {
    pub request: Box<[u8]>,
    pub cookie: Option<(u32, u64)>,
    pub give_up_at: Time,
    /// The peer's other address, if it has one: asked in turn with the first until one answers.
    pub other: Option<Address>,
    /// An acceptance that came from elsewhere.
    pub unproved: Option<Unproved>,
}

/// An acceptance from where nothing was asked, until whoever is there has answered.
#[derive(Copy, Clone)]
pub(crate) struct Unproved {
    pub from: Address,
    pub accept: Accept,
    pub challenge: u64,
    /// No question goes out before this.
    pub ask_due: Time,
    pub ask_ns: u64,
}

/// What a connection borrows while something is going on.
pub(crate) struct Active {
    pub timer: TimerId,
    /// In the queue of those that have something to send.
    pub queued: bool,
    /// Things to send besides data, from [`want`].
    pub wants: u8,
    /// Accepted here, and not confirmed by the client.
    pub unconfirmed: bool,
    /// The peer refuses data.
    pub rnr: bool,
    /// We refuse data.
    pub refusing: bool,
    /// In the queue of those that hold messages for the program.
    pub holding: bool,
    /// The connection is broken for this reason, and the program hears of it when it has taken what is held.
    pub untold: Option<DisconnectReason>,
    /// In the list of those that are refused.
    pub listed: bool,
    pub blocked: Option<Blocked>,

    pub tx: Tx,
    pub tx_ring: Option<TxRing>,
    pub rx: Rx,
    pub rx_ring: Option<RxRing>,
    /// Remote memory access, while there is any.
    pub rma: Option<Box<Rma>>,

    /// The way to the peer.
    pub path: Path,
    /// The second way, and what goes by which.
    pub bond: Option<Box<Bond>>,
    /// When a bundle must be declared lost unless it is acknowledged first.
    pub rack_due: Time,
    /// When the wait for a refusing receiver ended last.
    pub rnr_end: Time,
    /// When the first bundle left in the current epoch; [`Time::FAR`]: none has.
    pub epoch_sent_at: Time,

    /// Bundles not acknowledged yet.
    pub ack_pending: u32,
    pub ack_due: Time,

    pub heard_at: Time,
    /// Something was sent or came: not idle yet.
    pub used_at: Time,
    pub keepalive_ns: u64,
    /// The next keepalive question, or its time-out; or that of the last of `asks`.
    pub keepalive_due: Time,
    /// Questions in vain whether the peer of this idle connection lives. 0: it is not asked.
    pub asks: u8,
    /// No send is older than its time-out before this.
    pub send_due: Time,
    /// Next handshake step, receiver-not-ready probe or close: what the state calls for.
    pub step_due: Time,
    pub step_ns: u64,
    pub steps: u32,
    /// Of a peer that is closing: what had come of it when it was last looked at, and when more of it came.
    pub last_words: (Seq, Time),
    /// What the peer must end.
    pub unended: Unended,
    pub dial: Option<Box<Dial>>,
    pub counters: ConnectionCounters,
    /// The search for the largest datagram.
    pub size: SizeSearch,
    /// What is left of a bundle in parts.
    pub rest: Option<Rest>,
}

impl Conn {
    pub fn key(&self, index: u32) -> ConnKey {
        ConnKey { index, generation: self.generation }
    }

    /// The longest message: stays what it was when the connection opened, whatever the way takes.
    //= wire.md R-MTU-1
    pub fn message_bytes_max(&self) -> usize {
        message_bytes_max(self.bundle_bytes)
    }

    /// This side has closed, and nothing of its own is still to be answered.
    pub fn takes_no_more(&self) -> bool {
        match self.state {
            ConnState::Closing => true,
            ConnState::Lingering => self.active.as_deref().is_none_or(|active| active.operations() == 0),
            _ => false,
        }
    }

    /// Where the ways lead.
    pub fn address(&self, which: u8) -> Address {
        let second = || self.active.as_deref().and_then(|active| active.bond.as_deref()?.to);
        if which == FIRST { self.peer } else { second().unwrap_or(self.peer) }
    }

    /// Datagrams for this connection are expected and answered.
    pub fn is_established(&self) -> bool {
        use ConnState::{Accepting, Closing, Lingering, PeerClosed, Up};
        matches!(self.state, Accepting | Up | PeerClosed | Lingering | Closing)
    }
}

impl Active {
    #[inline]
    pub fn path(&self, which: u8) -> &Path {
        match &self.bond {
            Some(bond) if which != FIRST => &bond.second,
            _ => &self.path,
        }
    }

    #[inline]
    pub fn path_mut(&mut self, which: u8) -> &mut Path {
        match &mut self.bond {
            Some(bond) if which != FIRST => &mut bond.second,
            _ => &mut self.path,
        }
    }

    /// The ways there are.
    #[inline]
    pub fn ways(&self) -> std::ops::Range<u8> {
        FIRST..if self.bond.is_some() { 2 } else { 1 }
    }

    /// What the bundles in flight weigh, on all ways.
    #[inline]
    pub fn in_flight_bytes(&self) -> u32 {
        self.path.in_flight_bytes + self.bond.as_deref().map_or(0, |bond| bond.second.in_flight_bytes)
    }

    /// The active state of a connection that wakes up.
    pub fn wake(conn: &Conn, timer: TimerId, now: Time) -> Active {
        let rtt = match conn.idle_rtt.ns() {
            0 => Rtt::default(),
            rtt_ns => Rtt::restored(rtt_ns, now),
        };
        Active {
            timer,
            queued: false,
            wants: 0,
            unconfirmed: false,
            rnr: false,
            refusing: false,
            holding: false,
            untold: None,
            listed: false,
            blocked: None,
            tx: Tx::new(conn.idle_tx),
            tx_ring: None,
            rx: Rx::new(conn.idle_rx),
            rx_ring: None,
            rma: None,
            path: Path::new(rtt, Window::restored(conn.datagram_bytes, conn.idle_window.kib()), now),
            bond: None,
            rack_due: Time::FAR,
            rnr_end: Time(0),
            epoch_sent_at: Time::FAR,
            ack_pending: 0,
            ack_due: Time::FAR,
            heard_at: now,
            used_at: now,
            keepalive_ns: 0,
            keepalive_due: Time::FAR,
            asks: 0,
            send_due: Time::FAR,
            step_due: Time::FAR,
            step_ns: 0,
            steps: 0,
            last_words: (conn.idle_rx, now),
            unended: Unended::NONE,
            dial: None,
            counters: ConnectionCounters::default(),
            size: SizeSearch::new(now),
            rest: None,
        }
    }

    /// True if nothing is going on: the connection may go to sleep.
    pub fn is_quiet(&self) -> bool {
        self.tx.is_empty()
            && self.rx.held == 0
            && self.rx.end == self.rx.next
            && self.ack_pending == 0
            && self.wants == 0
            && !self.queued
            && !self.rnr
            && !self.refusing
            && self.keepalive_ns == 0
            && self.asks == 0
            && self.step_due == Time::FAR
            && self.dial.is_none()
            && self.bond.is_none()
            && self.rma.as_deref().is_none_or(Rma::is_idle)
    }

    /// What was set before the connection was up, or the endpoint's default.
    pub fn keepalive_or(&self, default_ns: u64) -> u64 {
        if self.keepalive_ns != 0 { self.keepalive_ns } else { default_ns }
    }

    /// Turns keepalive on, or off with 0. Counts from now, or from when the connection is up.
    pub fn start_keepalive(&mut self, now: Time, keepalive_ns: u64, state: ConnState) {
        (self.keepalive_ns, self.asks) = (keepalive_ns, 0);
        self.heard_at = self.heard_at.max(now);
        let on = keepalive_ns != 0 && state == ConnState::Up;
        self.keepalive_due = if on { now.plus(keepalive_ns / 2) } else { Time::FAR };
    }
}

#[cfg(test)]
mod tests {
    use super::IdleRtt;

    #[test]
    fn an_idle_round_trip_is_kept_to_a_thousandth() {
        for rtt_ns in [0, 64, 1_000, 131_008, 131_072, 20_000_000, 3_000_000_000, 200_000_000_000] {
            let kept_ns = IdleRtt::new(rtt_ns).ns();
            assert!(kept_ns <= rtt_ns && rtt_ns - kept_ns <= 64 + rtt_ns / 1_000, "{rtt_ns}: {kept_ns}");
        }
        assert!(IdleRtt::new(u64::MAX).ns() > 200_000_000_000);
    }
}
