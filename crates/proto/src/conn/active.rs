//! What a connection borrows while something is going on.

use crate::congestion::Window;
use crate::conn::path::{Bond, FIRST, Path, SECOND, other};
use crate::conn::paths::Paths;
use crate::conn::size::SizeSearch;
use crate::conn::split::{Split, UnsentParts};
use crate::conn::unended::Unended;
use crate::conn::{Base, Dial, want};
use crate::limits::{
    PATH_MEASURE_NS, PATH_PROBES_TRUSTED, PATH_SILENCE_NS, PROGRESS_BYTES_PER_SECOND_MIN,
    SIZE_SUSPECT_COPIES, WINDOW_BUNDLES_MAX,
};
use crate::operations::state::Rma;
use crate::operations::table::Ops;
use crate::pool::Pool;
use crate::reliable::rtt::Rtt;
use crate::reliable::rx::{Rx, RxRing};
use crate::reliable::sends::Sends;
use crate::reliable::tx::{Tx, TxRing, TxSlot, holds, mark, weight};
use crate::time::ns_since;
use crate::timers::TimerId;
use crate::wire::{Head, timestamp, timestamp_ns_between};
use crate::{Blocked, ConnState, ConnectionCounters, Counters, DisconnectReason, PathState, Seq, Time};

/// Probe time-outs without an answer before the congestion window is made smaller.
const PROBES_BEFORE_SHRINKING: u32 = 3;

/// What a connection borrows while something is going on.
pub(crate) struct Active {
    /// Where in the table its connection is.
    pub index: u32,
    pub timer: TimerId,
    /// Whether it is in the queue of connections that have something to send.
    pub queued: bool,
    /// Things to send besides data, from [`want`].
    pub wants: u8,
    /// True while this side has accepted and the client has not confirmed.
    pub unconfirmed: bool,
    /// The peer refuses data.
    pub rnr: bool,
    /// We refuse data.
    pub refusing: bool,
    /// Whether it is in the queue of connections that hold messages for the program.
    pub holding: bool,
    /// Why the connection is broken, if the program is to get that event only when it has taken what is held.
    pub unreported: Option<DisconnectReason>,
    /// Whether it is in the queue of connections whose peers are refused.
    pub listed: bool,
    pub blocked: Option<Blocked>,

    pub tx: Tx,
    pub tx_ring: Option<TxRing>,
    pub rx: Rx,
    pub rx_ring: Option<RxRing>,
    /// Remote memory access, while there is any.
    pub rma: Option<Box<Rma>>,

    /// The paths to the peer.
    pub paths: Paths,
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
    /// When something was sent or came last.
    pub used_at: Time,
    pub keepalive_ns: u64,
    /// When the next keepalive question or its time-out is due, or the answer to the last of `asks`.
    pub keepalive_due: Time,
    /// Questions without an answer whether the peer of this idle connection lives. 0: it is not asked.
    pub asks: u8,
    /// How long a send may take, in milliseconds; 0: the endpoint's default.
    pub send_timeout_ms: u32,
    /// No send can be late before this.
    pub send_due: Time,
    /// When the next handshake step, receiver-not-ready probe or close is due, as the state requires.
    pub step_due: Time,
    pub step_ns: u64,
    pub steps: u32,
    /// Of a peer that is closing: what had come of it when it was last looked at, and when more of it came.
    pub closing_progress: (Seq, Time),
    /// What the peer has begun and must end.
    pub unended: Unended,
    pub dial: Option<Box<Dial>>,
    pub counters: ConnectionCounters,
    /// The search for the largest datagram.
    pub size: SizeSearch,
    /// A bundle of which the last parts have not left.
    pub unsent_parts: Option<UnsentParts>,
}

/// Writes of the peer's of which something was refused and whose end has not come.
#[derive(PartialEq)]
pub(crate) enum Write {
    None,
    Begun,
    Late,
}

impl Active {
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
            unreported: None,
            listed: false,
            blocked: None,
            tx: Tx::new(base.idle_tx),
            tx_ring: None,
            rx: Rx::new(base.idle_rx),
            rx_ring: None,
            rma: None,
            paths: Paths {
                first: Path::new(rtt, Window::restored(base.datagram_bytes, base.idle_window.kib()), now),
                bond: None,
            },
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
            send_timeout_ms: 0,
            send_due: Time::FAR,
            step_due: Time::FAR,
            step_ns: 0,
            steps: 0,
            closing_progress: (base.idle_rx, now),
            unended: Unended::NONE,
            dial: None,
            counters: ConnectionCounters::default(),
            size: SizeSearch::new(now),
            unsent_parts: None,
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
            && self.paths.bond.is_none()
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

    /// Whether the peer can have refused something in the current epoch: a bundle has left in it, and had the time to get there
    /// and its refusal to come back. The shortest round trip follows from the peer's echoes, which may be wrong, so half of it is taken.
    pub fn may_be_refused(&self, now: Time) -> bool {
        let trips_ns = self.paths.all().map(|which| self.paths.get(which).rtt.min_ns());
        self.epoch_sent_at <= now && now.since(self.epoch_sent_at) >= trips_ns.min().unwrap_or(0) / 2
    }

    /// Nothing is under way that an acknowledgement could be asked for.
    pub fn stop_probing(&mut self) {
        self.rack_due = Time::FAR;
        for which in self.paths.all() {
            let path = self.paths.get_mut(which);
            (path.probe_due, path.pinged_at) = (Time::FAR, Time::FAR);
        }
    }

    /// Bundles that went by this path, and weigh so much, have been acknowledged. `rtt_ns` 0: by another path.
    pub fn path_acked(&mut self, which: u8, now: Time, acked_bytes: u32, limited: bool, rtt_ns: u64) {
        let limited = limited || self.blocked == Some(Blocked::Congestion);
        let alive = match self.paths.bond.as_deref_mut() {
            Some(bond) => bond.path(which).note_delivered(),
            None => true,
        };
        let path = self.paths.get_mut(which);
        if rtt_ns != 0 {
            path.rtt.sample(now, rtt_ns);
        }
        if alive {
            (path.probes, path.pinged_at) = (0, Time::FAR);
        }
        path.window.on_ack(now, acked_bytes, limited, &path.rtt);
    }

    /// Notes that a bundle is acknowledged for the first time; returns what it weighs.
    pub fn acked(
        &mut self,
        (counters, pool, ops): (&mut Counters, &mut Pool, &mut Ops),
        seq: Seq,
        slot: &mut TxSlot,
        by: u8,
        now: Time,
    ) -> u32 {
        let bytes = weight(slot.body_bytes);
        let light_ns = self.paths.light_ns(slot.path, by);
        let path = self.paths.get_mut(slot.path);
        if slot.has(mark::IN_FLIGHT) {
            path.in_flight_bytes -= bytes;
        }
        //= wire.md R-LOSS-2
        // Sooner than a round trip can be: the acknowledgement is for the first copy, and sending the second was needless.
        let needless = slot.has(mark::RESENT) && now.since(slot.sent_at) < light_ns;
        if needless {
            path.reorder_steps = (path.reorder_steps + 1).min(16);
        } else if slot.sent_at >= path.rack_at {
            path.rack_at = slot.sent_at;
            path.rack_rtt_ns = now.since(slot.sent_at);
        }
        if needless {
            self.counters.retransmissions_spurious += 1;
            counters.retransmissions_spurious += 1;
        }
        if slot.has(mark::RESEND) {
            self.tx.resend -= 1;
        }
        if slot.has(mark::SIZE) {
            self.size.succeeded();
        } else if !needless && (slot.is_large() || slot.has(mark::PARTS) && slot.resends == 0) {
            self.size.large_arrived(slot.sent_at);
        }
        slot.marks = mark::ACKED;
        if slot.buf.is_some() {
            pool.give_back(slot.buf);
            slot.buf = crate::pool::Buf::NONE;
            self.tx.bufs -= 1;
        } else if let Some(rma) = self.rma.as_deref_mut() {
            rma.release(ops, seq);
        }
        bytes
    }

    /// RACK (RFC 8985): a bundle is lost if one sent later by the same path is acknowledged and a reordering window has
    /// passed.
    //= wire.md R-LOSS-1
    pub fn find_losses(&mut self, now: Time) {
        let Some(mut ring) = self.tx_ring.take() else { return };
        let patience = |path: &Path| (path.rack_at, path.rack_rtt_ns + path.reorder_ns());
        let patience = [patience(self.paths.get(FIRST)), patience(self.paths.get(SECOND))];
        self.rack_due = Time::FAR;
        self.tx.irregular = self.paths.all().any(|which| self.paths.get(which).pinged_at != Time::FAR);
        let mut seq = self.tx.unacked;
        let mut lost: [(Option<Time>, u32); 2] = [(None, 0); 2];
        while seq != self.tx.unsent {
            let slot = ring.at(seq);
            seq = seq.next();
            self.tx.irregular |= slot.has(mark::ACKED | mark::RESENT | mark::RESEND);
            let which = usize::from(slot.path & 1);
            let (rack_at, patience_ns) = patience[which];
            if !slot.has(mark::IN_FLIGHT) || slot.sent_at > rack_at {
                continue;
            }
            let due = slot.sent_at.plus(patience_ns);
            if due <= now {
                // Where nothing is acknowledged, its size may be to blame. A PING with the next copy shows at once what has become
                // of that, and that the peer lives; where more copies are lost than a narrow path explains, only probes ask.
                let in_doubt = self.paths.get(slot.path).probes != 0;
                if in_doubt && slot.depends_on_size() && slot.resends <= SIZE_SUSPECT_COPIES {
                    self.wants |= want::PING;
                }
                self.take_back(slot);
                let (sent_at, bytes) = &mut lost[which];
                *bytes += weight(slot.body_bytes);
                *sent_at = (*sent_at).max(Some(slot.sent_at));
            } else {
                self.rack_due = self.rack_due.min(due);
            }
        }
        self.tx_ring = Some(ring);
        for (which, (sent_at, bytes)) in (FIRST..).zip(lost) {
            if let Some(sent_at) = sent_at {
                let path = self.paths.get_mut(which);
                path.window.on_loss(now, sent_at, bytes, &path.rtt);
            }
        }
    }

    /// This bundle is not under way any more, and must be sent again.
    pub fn take_back(&mut self, slot: &mut TxSlot) {
        if slot.has(mark::SIZE) {
            self.size.failed(slot.sent_at);
        } else if slot.depends_on_size() {
            self.size.large_lost(slot.sent_at);
        }
        slot.marks = slot.marks & !(mark::IN_FLIGHT | mark::SIZE) | mark::RESEND;
        self.paths.get_mut(slot.path).in_flight_bytes -= weight(slot.body_bytes);
        self.tx.resend += 1;
    }

    /// Everything sent and not acknowledged must be sent again, through no fault of the network's.
    pub fn resend_all(&mut self) {
        let Some(mut ring) = self.tx_ring.take() else { return };
        let mut seq: Seq = self.tx.unacked;
        while seq != self.tx.unsent {
            let slot = ring.at(seq);
            seq = seq.next();
            if slot.has(mark::IN_FLIGHT) {
                self.take_back(slot);
                slot.resends = 0;
            }
        }
        self.size.none_lost();
        self.tx_ring = Some(ring);
        self.tx.irregular = true;
        self.stop_probing();
    }

    /// The answer to our question has come: this path leads to the peer and back.
    //= wire.md R-PATH-4
    pub fn path_proved(&mut self, which: u8, head: &Head, peer_has_it: bool, datagram_bytes: u16, now: Time) {
        let Some(bond) = self.paths.bond.as_deref_mut() else { return };
        let bonded = bond.path(which);
        bonded.peer_has_it |= peer_has_it;
        bonded.asking = false;
        if bonded.peer_has_it {
            bonded.step_due = Time::FAR;
        }
        let was_up = std::mem::replace(&mut bonded.state, PathState::Up) == PathState::Up;
        let path = self.paths.get_mut(which);
        path.probes = 0;
        let rtt_ns = timestamp_ns_between(head.echo, timestamp(now));
        if rtt_ns != 0 && 2 * rtt_ns < path.rtt.smoothed_ns() {
            // What was measured once, perhaps while a program was busy, is not so any more.
            path.rtt = Rtt::restored(rtt_ns, now);
        } else if rtt_ns != 0 {
            path.rtt.sample(now, rtt_ns);
        }
        if was_up {
            return;
        }
        // What it carried before it went down, nobody knows that it still carries.
        path.window = Window::new(datagram_bytes);
        (path.probe_credit, path.pace_due) = (0, now);
        if self.paths.get(other(which)).probes != 0 {
            self.question(other(which), false, now);
        }
    }

    /// A probe of this path had no answer: the path is asked for a sign of life, and so is the other one. While it is in
    /// doubt, new bundles go by the other.
    //= wire.md R-PATH-7
    pub fn doubt(&mut self, which: u8, now: Time) {
        let first = self.paths.get(which).probes <= 1;
        let Some(bond) = self.paths.bond.as_deref_mut() else { return };
        bond.path(which).doubt();
        self.question(which, first, now);
    }

    /// If both paths are in use, asks both for a sign of life: this one, which is in doubt, goes down if it shows none and the
    /// other one does. A doubt that began while the other path was down counts from the time when that one is up.
    fn question(&mut self, which: u8, first: bool, now: Time) {
        let Some(bond) = self.paths.bond.as_deref_mut() else { return };
        if !bond.is_up(which) || !bond.is_up(other(which)) {
            return;
        }
        if first || bond.path(which).down_due == Time::FAR {
            bond.path(other(which)).vouches = false;
            bond.path(which).down_due = now.plus(PATH_SILENCE_NS);
            bond.path(which).ask(now);
            self.wants |= want::PATH;
        }
        bond.turn = which;
        self.wants |= want::PING;
    }

    /// Takes paths for dead that have been silent for too long, if something has come by the other meanwhile. (If nothing
    /// has, it may be the peer's process that says nothing.)
    pub fn give_up_silent(&mut self, now: Time, counters: &mut Counters) {
        for which in [FIRST, SECOND] {
            let in_doubt = self.paths.get(which).probes != 0;
            let Some(bond) = self.paths.bond.as_deref_mut() else { return };
            if bond.path(which).down_due > now {
                continue;
            }
            bond.path(which).down_due = Time::FAR;
            if !in_doubt || !bond.is_up(which) || !bond.is_up(other(which)) {
                continue;
            }
            if bond.path(other(which)).vouches {
                self.path_down(which, now, counters);
            } else {
                bond.path(which).down_due = now.plus(PATH_SILENCE_NS);
            }
        }
    }

    /// This path is dead: what is under way there goes again by the other.
    pub fn path_down(&mut self, which: u8, now: Time, counters: &mut Counters) {
        if let Some(mut ring) = self.tx_ring.take() {
            let mut seq = self.tx.unacked;
            while seq != self.tx.unsent {
                let slot = ring.at(seq);
                seq = seq.next();
                if slot.is_in_progress(which) {
                    self.take_back(slot);
                }
            }
            self.tx_ring = Some(ring);
            self.size.none_lost();
        }
        self.tx.irregular = true;
        let path = self.paths.get_mut(which);
        (path.probe_due, path.pinged_at, path.probe_credit) = (Time::FAR, Time::FAR, 0);
        let Some(bond) = self.paths.bond.as_deref_mut() else { return };
        let bonded = bond.path(which);
        bonded.state = PathState::Down;
        bonded.downs += 1;
        if !bonded.asking {
            bonded.ask(now);
        }
        self.wants |= want::PATH;
        counters.paths_lost += 1;
    }

    /// The newest bundle that a probe of this path sends again: of connections with one path, the newest of all.
    pub fn newest_on(&self, which: u8, ring: &TxRing) -> Seq {
        let mut newest = self.tx.unsent.plus(u32::MAX);
        if self.paths.bond.is_some() {
            while newest != self.tx.unacked && !ring.get(newest).is_in_progress(which) {
                newest = newest.plus(u32::MAX);
            }
        }
        newest
    }

    /// The path by which a bundle that weighs `bytes` goes now, or why it goes by none.
    ///
    /// The path with the shorter round trip that has space in its window; the other one only if it is not so slow that the first
    /// would fill the window of numbers meanwhile and then have to wait for it.
    #[inline]
    pub fn choose_path(&mut self, bytes: u32, peer_window_kib: u16, now: Time) -> Result<u8, Blocked> {
        let Some(bond) = self.paths.bond.as_deref() else {
            return self.held_back(FIRST, bytes, peer_window_kib, now).map_or(Ok(FIRST), Err);
        };
        let choice = self.choose_of_two(bond, bytes, peer_window_kib, now);
        self.measure_idle(now);
        if choice == Err(Blocked::Pacing) {
            let paced = [self.paths.get(FIRST).pace_due, self.paths.get(SECOND).pace_due]
                .into_iter()
                .filter(|due| *due > now);
            let pace_due = paced.min().unwrap_or(now);
            if let Some(bond) = self.paths.bond.as_deref_mut() {
                bond.pace_due = pace_due;
            }
        }
        choice
    }

    /// Asks about a path that nothing has come by for a while, although the connection is in use: the other may be chosen
    /// only because of a round trip that was long once.
    pub fn measure_idle(&mut self, now: Time) {
        for which in [FIRST, SECOND] {
            let path = self.paths.get(which);
            let idle = path.in_flight_bytes == 0 && now.since(path.echo_at) > PATH_MEASURE_NS;
            let Some(bond) = self.paths.bond.as_deref_mut().filter(|_| idle) else { continue };
            if bond.is_up(which) && !bond.path(which).asks() {
                bond.path(which).ask(now);
                self.wants |= want::PATH;
            }
        }
    }

    pub fn choose_of_two(
        &self,
        bond: &Bond,
        bytes: u32,
        peer_window_kib: u16,
        now: Time,
    ) -> Result<u8, Blocked> {
        let held = |which: u8| self.held_back(which, bytes, peer_window_kib, now);
        let probed = [FIRST, SECOND].into_iter().find(|&which| self.paths.get(which).probe_credit != 0);
        if let Some(which) = probed.filter(|&which| bond.is_up(which) && !self.rnr) {
            return Ok(which);
        }
        let swift = self.paths.swifter();
        let slow = other(swift);
        // A path in doubt gets probes only, if the other is not in doubt.
        let fit = |which: u8| bond.is_up(which) && self.paths.get(which).probes < PATH_PROBES_TRUSTED;
        let any_fit = fit(swift) || fit(slow);
        let fit = |which: u8| if any_fit { fit(which) } else { bond.is_up(which) };
        let why = match fit(swift) {
            true => match held(swift) {
                None => return Ok(swift),
                Some(why) => Some(why),
            },
            false => None,
        };
        if !fit(slow) {
            return Err(why.unwrap_or(Blocked::Congestion));
        }
        match (held(slow), why) {
            (None, None) => Ok(slow),
            (None, Some(_)) if !self.would_block(swift, slow, bytes) => Ok(slow),
            (_, Some(Blocked::Pacing)) => Err(Blocked::Pacing),
            (Some(Blocked::Pacing), _) => Err(Blocked::Pacing),
            (Some(why), _) | (None, Some(why)) => Err(why),
        }
    }

    /// Whether a bundle sent by the slow path would keep the swift one waiting: numbers may be no further apart than a
    /// window (R-ORD-3), and the swift path uses up so many of them in one round trip of the slow one.
    pub fn would_block(&self, swift: u8, slow: u8, bytes: u32) -> bool {
        let (swift, slow) = (self.paths.get(swift), self.paths.get(slow));
        let per_trip = u64::from(swift.window.bytes() / bytes.max(1));
        let trip_ns = swift.rtt.smoothed_ns().max(1);
        let meanwhile = per_trip.saturating_mul(slow.rtt.smoothed_ns()) / trip_ns;
        let used = u64::from(self.tx.unsent.since(self.tx.unacked));
        slow.rtt.smoothed_ns() > 2 * trip_ns && used + meanwhile > u64::from(WINDOW_BUNDLES_MAX)
    }

    /// Whether nothing sent before this bundle is missing, as far as this side can know: of two paths, each keeps its own order.
    #[inline]
    pub fn is_expected(&mut self, by: u8, seq: Seq, offset: u32) -> bool {
        match self.paths.bond.as_deref_mut() {
            None => offset == 0 && self.rx.end == self.rx.next,
            Some(bond) => bond.path(by).note_came(seq),
        }
    }

    /// The bundle whose turn it is.
    pub fn next_to_send(&self) -> Option<Seq> {
        if self.tx.resend == 0 {
            return Some(self.tx.unsent);
        }
        let ring = self.tx_ring.as_ref()?;
        let mut seq = self.tx.unacked;
        while seq != self.tx.unsent {
            if ring.get(seq).has(mark::RESEND) {
                return Some(seq);
            }
            seq = seq.next();
        }
        debug_assert!(false, "counted bundles to resend that are not there");
        None
    }

    /// What keeps a bundle that weighs `bytes` from leaving by this path, if anything.
    #[inline]
    pub fn held_back(&self, which: u8, bytes: u32, peer_window_kib: u16, now: Time) -> Option<Blocked> {
        if self.rnr {
            return Some(Blocked::ReceiverNotReady);
        }
        let path = self.paths.get(which);
        //= wire.md R-CONN-3
        // With nothing in flight one bundle may always go: windows smaller than that would never open again.
        let in_flight_bytes = self.paths.in_flight_bytes();
        if in_flight_bytes != 0 && path.probe_credit == 0 {
            if in_flight_bytes + bytes > u32::from(peer_window_kib) << 10 {
                return Some(Blocked::PeerWindow);
            }
            if path.in_flight_bytes != 0 && path.in_flight_bytes + bytes > path.window.bytes() {
                return Some(Blocked::Congestion);
            }
        }
        (path.pace_due > now).then_some(Blocked::Pacing)
    }

    /// True if nothing more can be sent by this path before an acknowledgement: then it had better not be delayed.
    #[inline]
    pub fn waits_after(&self, which: u8, body_bytes: u16, peer_window_kib: u16) -> bool {
        let path = self.paths.get(which);
        let twice = 2 * weight(body_bytes);
        path.probe_credit != 0
            || path.in_flight_bytes + twice > path.window.bytes()
            || self.paths.in_flight_bytes() + twice > u32::from(peer_window_kib) << 10
    }

    pub fn note_sent(&mut self, counters: &mut Counters, seq: Seq, which: u8, epoch: u16, now: Time) {
        let Some(ring) = self.tx_ring.as_mut() else { return };
        let slot = ring.at(seq);
        let bytes = weight(slot.body_bytes);
        if slot.has(mark::RESEND) {
            self.tx.resend -= 1;
            slot.resends = slot.resends.saturating_add(1);
            slot.marks = mark::RESENT;
            self.tx.irregular = true;
            self.counters.retransmissions += 1;
            counters.retransmissions += 1;
            if let Some(bond) = self.paths.bond.as_deref_mut() {
                bond.path(which).retransmissions += 1;
            }
        } else {
            if slot.holds & holds::PUMPED != 0
                && let Some(rma) = self.rma.as_deref_mut()
            {
                rma.unsent = rma.unsent.saturating_sub(1);
            }
            self.tx.unsent = seq.next();
            if self.tx.unsent == self.tx.next {
                self.tx.open = false;
            }
            self.counters.bundles_sent += 1;
            counters.bundles_sent += 1;
        }
        slot.marks |= mark::IN_FLIGHT;
        self.epoch_sent_at = self.epoch_sent_at.min(now);
        slot.sent_at = now;
        slot.epoch = epoch;
        slot.path = which;
        self.used_at = now;
        let path = self.paths.get_mut(which);
        path.in_flight_bytes += bytes;
        path.probe_credit = path.probe_credit.saturating_sub(1);
        if path.probe_due == Time::FAR {
            path.set_probe(now);
        }
        path.pace(bytes, now);
    }

    /// The next try of whatever the state calls for; each waits twice as long as the last.
    pub fn next_step(&mut self, now: Time, want: u8, ns_max: u64) {
        self.steps = self.steps.saturating_add(1);
        self.wants |= want;
        self.step_ns = (self.step_ns * 2).min(ns_max);
        self.step_due = now.plus(self.step_ns);
    }

    /// What keeps it from sending: what its last turn found, or what its next operation waits for.
    pub fn held_up_by(&self, ops: &Ops) -> Option<Blocked> {
        self.blocked.or_else(|| self.rma.as_deref()?.held_up_by(ops))
    }

    /// How long ago the oldest send that has not completed was queued, and the oldest record of remote memory access before
    /// it was made that is not acknowledged.
    pub fn oldest_ns(&self, sends: &Sends, now: Time) -> (Option<u64>, Option<u64>) {
        let Some(ring) = self.tx_ring.as_ref() else { return (None, None) };
        let mut record_ns = None;
        let mut seq = self.tx.unacked;
        while seq != self.tx.next {
            let slot = ring.get(seq);
            if let Some(queued) = sends.queued_ticks(slot.first) {
                return (Some(ns_since(queued, now.0)), record_ns);
            }
            if record_ns.is_none() && !slot.has(mark::ACKED) {
                record_ns = self.rma_age_ns(seq, slot, now);
            }
            seq = seq.next();
        }
        (None, record_ns)
    }

    /// Nothing that went by this path was acknowledged for longer than it should take: send the oldest and the newest of it
    /// again. What else is lost will show when they are acknowledged.
    //= wire.md R-LOSS-3
    pub fn probe(&mut self, which: u8, now: Time, counters: &mut Counters) {
        counters.probe_timeouts += 1;
        let path = self.paths.get_mut(which);
        if path.probes == 0 {
            path.answers = 0;
        }
        path.probes = path.probes.saturating_add(1);
        if path.probes == PROBES_BEFORE_SHRINKING {
            path.window.on_silence(now);
        }
        self.doubt(which, now);
        let Some(mut ring) = self.tx_ring.take() else {
            self.paths.get_mut(which).probe_due = Time::FAR;
            return;
        };
        let newest = self.newest_on(which, &ring);
        let mut oldest = self.tx.unacked;
        while oldest != newest && !ring.get(oldest).is_in_progress(which) {
            oldest = oldest.next();
        }
        self.resend_one(which, &mut ring, oldest);
        self.resend_one(which, &mut ring, newest);
        self.tx_ring = Some(ring);
        let path = self.paths.get_mut(which);
        path.probe_credit = 2;
        path.pace_due = path.pace_due.min(now);
        path.probe_due = now.plus(path.rtt.probe_ns(path.probes));
    }

    pub fn resend_one(&mut self, which: u8, ring: &mut TxRing, seq: Seq) {
        let slot = ring.at(seq);
        if seq.precedes(self.tx.unsent) && slot.is_in_progress(which) {
            // Something small: if that is answered and what is sent beside it is not, its size may be to blame.
            if slot.depends_on_size() {
                self.wants |= want::PING;
            }
            self.take_back(slot);
        }
    }

    /// Asks a silent peer whether it lives. True: it has been silent for too long; keepalive is then off.
    //= wire.md R-KEEP-1
    pub fn keepalive(&mut self, now: Time) -> bool {
        let silent_ns = now.since(self.heard_at);
        if silent_ns >= self.keepalive_ns && now.since(self.keepalive_due) >= self.keepalive_ns / 8 {
            // We come late, so the peer was not asked in time: it is asked now, and has time to answer.
            self.wants |= want::PING;
            self.keepalive_due = now.plus((self.keepalive_ns / 2).max(1));
            return false;
        }
        if silent_ns >= self.keepalive_ns {
            (self.keepalive_ns, self.keepalive_due) = (0, Time::FAR);
            return true;
        }
        let half_ns = self.keepalive_ns / 2;
        if silent_ns >= half_ns {
            self.wants |= want::PING;
            let again = now.plus((self.keepalive_ns / 8).max(1));
            self.keepalive_due = again.min(self.heard_at.plus(self.keepalive_ns));
        } else {
            self.keepalive_due = self.heard_at.plus(half_ns);
        }
        false
    }

    pub fn note_split(&mut self, seq: Seq, split: Split) {
        let Some(slot) = self.tx_ring.as_mut().map(|ring| ring.at(seq)) else { return };
        slot.marks |= mark::PARTS;
        if split.is_trial {
            slot.marks |= mark::SIZE;
            self.size.try_size(split.size);
        }
    }

    /// Operations of ours that are not over.
    #[inline]
    pub fn operations(&self) -> u32 {
        self.rma.as_deref().map_or(0, |rma| rma.ops)
    }

    /// Records of remote memory access could be made.
    #[inline]
    pub fn has_rma_work(&self) -> bool {
        self.rma.as_deref().is_some_and(Rma::has_work)
    }

    /// How long ago the first record of remote memory access was put into bundle `seq`; `None`: it holds none.
    pub fn rma_age_ns(&self, seq: Seq, slot: &TxSlot, now: Time) -> Option<u64> {
        let rma = self.rma.as_deref().filter(|_| slot.holds & holds::RMA != 0)?;
        Some(ns_since(rma.since_ticks(seq), now.0))
    }

    /// True if what is stored behind a missing bundle needs that bundle: then it must not be refused.
    //= wire.md R-RNR-7
    #[inline]
    pub fn has_gap(&self, ordered: bool) -> bool {
        (ordered || self.rx.unpassed != 0) && self.rx.end != self.rx.next
    }

    /// Whether the peer must still send a bundle before others that have come, or the end of a write.
    #[inline]
    pub fn owes(&self) -> bool {
        self.rx.end != self.rx.next || self.rma.as_deref().is_some_and(|rma| rma.failed != 0)
    }

    pub fn unended_write(&mut self, look_ns: u64) -> Write {
        let Some(rma) = self.rma.as_deref_mut().filter(|rma| rma.failed != 0) else { return Write::None };
        let bytes = std::mem::take(&mut rma.failed_bytes);
        // A long write goes on although its beginning was refused, because its sender can't know.
        let slow = bytes < (look_ns / 1_000_000).saturating_mul(PROGRESS_BYTES_PER_SECOND_MIN) / 1_000;
        if rma.failed_before != 0 && slow {
            return Write::Late;
        }
        rma.failed_before = rma.failed;
        Write::Begun
    }
}
