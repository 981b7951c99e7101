//! A connection while something is going on: what it borrows then, and the connection with it.

use super::cut::Rest;
use super::path::{Bond, FIRST, Path};
use super::size::SizeSearch;
use super::unended::Unended;
use super::{Base, Dial};
use crate::congestion::Window;
use crate::reliable::rtt::Rtt;
use crate::reliable::rx::{Rx, RxRing};
use crate::reliable::tx::{Tx, TxRing};
use crate::timers::TimerId;
use crate::transfers::state::Rma;
use crate::{Address, Blocked, ConnKey, ConnState, ConnectionCounters, DisconnectReason, Seq, Time};

/// What a connection borrows while something is going on.
pub(crate) struct Active {
    /// Where in the table its connection is.
    pub index: u32,
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

/// An active connection: found once in each call, where the call begins, and passed to whatever needs one.
pub(crate) struct ActiveConn<'a> {
    pub base: &'a mut Base,
    pub active: &'a mut Active,
}

impl ActiveConn<'_> {
    #[inline]
    pub fn key(&self) -> ConnKey {
        self.base.key(self.active.index)
    }

    /// This side has closed, and nothing of its own is still to be answered.
    #[inline]
    pub fn takes_no_more(&self) -> bool {
        match self.base.state {
            ConnState::Closing => true,
            ConnState::Lingering => self.active.operations() == 0,
            _ => false,
        }
    }

    /// Where a path leads.
    #[inline]
    pub fn address(&self, which: u8) -> Address {
        let second = || self.active.bond.as_deref().and_then(|bond| bond.to);
        if which == FIRST { self.base.peer } else { second().unwrap_or(self.base.peer) }
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
    pub fn wake(base: &Base, index: u32, timer: TimerId, now: Time) -> Active {
        let rtt = match base.idle_rtt.ns() {
            0 => Rtt::default(),
            rtt_ns => Rtt::restored(rtt_ns, now),
        };
        Active {
            index,
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
            tx: Tx::new(base.idle_tx),
            tx_ring: None,
            rx: Rx::new(base.idle_rx),
            rx_ring: None,
            rma: None,
            path: Path::new(rtt, Window::restored(base.datagram_bytes, base.idle_window.kib()), now),
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
            last_words: (base.idle_rx, now),
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
