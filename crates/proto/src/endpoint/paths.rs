//! Two ways to one peer: proving them, choosing between them, giving one up and taking it back.

use super::Endpoint;
use super::shared::Shared;
use super::transmit::{clear, count_on_path, head};
use crate::congestion::Window;
use crate::conn::path::{Bond, FIRST, Path, SECOND, Way, other};
use crate::conn::{Active, ActiveConn, Conn, want};
use crate::limits::{
    HEADER_BYTES, PATH_MEASURE_NS, PATH_PROBES_TRUSTED, PATH_SILENCE_NS, WINDOW_BUNDLES_MAX,
};
use crate::reliable::rtt::Rtt;
use crate::reliable::tx::TxRing;
use crate::wire::{Head, Kind, PathBody, flags, timestamp, timestamp_ns_between};
use crate::{Address, Blocked, ConnKey, PathInfo, PathState, PeerFault, Seq, Time, Transmit};

impl Endpoint {
    /// The two ways of a bonded connection; `None` if it has only the one that
    /// [`crate::ConnectionInfo`] describes, or if the key names none.
    #[must_use]
    pub fn paths(&self, key: ConnKey) -> Option<[PathInfo; 2]> {
        let conn = self.table.get(key)?;
        let active = conn.active.as_deref()?;
        let bond = active.bond.as_deref()?;
        let info = |to: Option<Address>, path: &Path, way: &Way| PathInfo {
            to,
            state: way.state,
            rtt_ns: path.rtt.smoothed_ns_or_zero(),
            congestion_window_bytes: path.window.bytes().into(),
            in_flight_bytes: path.in_flight_bytes.into(),
            datagrams_sent: way.datagrams_sent,
            bytes_sent: way.bytes_sent,
            retransmissions: way.retransmissions,
            downs: way.downs,
        };
        let [first, second] = &bond.ways;
        Some([info(Some(conn.base.peer), &active.path, first), info(bond.to, &bond.second, second)])
    }
}

/// By which way a datagram of this connection came from there; `None`: it is none of them.
#[inline]
pub(super) fn way_from(conn: &Conn, from: Address) -> Option<u8> {
    if conn.base.peer == from {
        return Some(FIRST);
    }
    let bond = conn.active.as_deref()?.bond.as_deref()?;
    (bond.to == Some(from)).then_some(SECOND)
}

/// A peer asks from an address that is not known: is it the second way of a bonded connection that has none yet?
///
/// A proved way never moves: whoever repeats a datagram from elsewhere changes nothing. One that is not proved gives way
/// to whoever asks later, or someone could take its place for good by a question that he never answers for.
//= wire.md R-PATH-3
pub(super) fn learn_way(
    conn: &mut Conn,
    from: Address,
    body: &[u8],
    now: Time,
    draw: impl FnOnce() -> u64,
) -> Result<u8, PeerFault> {
    let bond = conn.active.as_deref_mut().and_then(|active| active.bond.as_deref_mut());
    let alike = conn.base.peer.is_secured() == from.is_secured();
    let bond = bond.filter(|bond| alike && !bond.dialed && bond.ways[1].state == PathState::Unproved);
    match (bond, PathBody::parse(body)) {
        (Some(bond), Ok(asked)) if asked.challenge != 0 => {
            bond.learn(from, draw(), now);
            Ok(SECOND)
        }
        _ => Err(PeerFault::Source),
    }
}

impl Shared {
    /// Makes the connection a bonded one, if there is memory for it.
    pub(super) fn bond(
        &mut self,
        conn: &mut ActiveConn<'_>,
        second: (Option<Address>, bool),
        challenges: [u64; 2],
        now: Time,
    ) {
        let fits = self.fits(Bond::COST_BYTES);
        if !fits {
            return;
        }
        let active = &mut *conn.active;
        self.bonds += 1;
        let newest = active.rx.next;
        active.bond = Some(Box::new(Bond::new(second, challenges, newest, conn.base.datagram_bytes, now)));
        if second.1 {
            active.wants |= want::PATH;
        }
    }

    /// Only the first way is left, and nothing is under way on the other.
    pub(super) fn unbond(&mut self, active: &mut Active) {
        self.bonds -= u64::from(active.bond.take().is_some());
        active.wants &= !want::PATH;
    }

    /// A question about the way it came, an answer to ours, or both.
    pub(super) fn on_path(
        &mut self,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        which: u8,
        body: &[u8],
        now: Time,
    ) -> Result<(), PeerFault> {
        let body = PathBody::parse(body)?;
        let active = &mut *conn.active;
        let Some(bond) = active.bond.as_deref_mut() else { return Err(PeerFault::Unexpected) };
        let way = bond.way(which);
        //= wire.md R-PATH-5
        if body.answer != 0 && !way.is_answer(body.answer) {
            return Err(if way.asks() { PeerFault::Nonce } else { PeerFault::Unexpected });
        }
        active.path_mut(which).came(head.timestamp, now);
        if body.answer != 0 {
            active.path_proved(which, head, body.challenge == 0, conn.base.datagram_bytes, now);
        }
        let Some(bond) = active.bond.as_deref_mut() else { return Ok(()) };
        //= wire.md R-PATH-2
        if body.challenge != 0 {
            let way = bond.way(which);
            way.answer = body.challenge;
            way.wanted = true;
            active.wants |= want::PATH;
        }
        self.enqueue(active);
        Ok(())
    }

    /// Every question and answer about the ways that waits; false: the carrier is full.
    pub(super) fn send_paths(
        &mut self,
        conn: &mut ActiveConn<'_>,
        now: Time,
        out: &mut impl Transmit,
    ) -> bool {
        for which in [FIRST, SECOND] {
            let active = &*conn.active;
            let Some(bond) = active.bond.as_deref() else { break };
            let way = &bond.ways[usize::from(which)];
            if !way.wanted || (which == SECOND && bond.to.is_none()) {
                continue;
            }
            let body = PathBody { challenge: way.question(), answer: way.answer };
            let seq = active.tx.unsent;
            let head = head(conn, Kind::Path, seq, self.window_kib(), which, now);
            let Some(buffer) = out.begin(conn.address(which), HEADER_BYTES + PathBody::BYTES, false) else {
                return false;
            };
            let len = head.emit_path(body, buffer);
            self.committed(len, out);
            count_on_path(conn, which, len);
            if let Some(bond) = conn.active.bond.as_deref_mut() {
                (bond.way(which).wanted, bond.way(which).answer) = (false, 0);
            }
        }
        clear(conn, want::PATH);
        true
    }

    /// Questions about ways whose time has come.
    pub(super) fn ask_due(&mut self, active: &mut Active, now: Time) {
        active.give_up_silent(now, self);
        let Some(bond) = active.bond.as_deref_mut() else { return };
        for way in bond.ways.iter_mut().filter(|way| way.step_due <= now) {
            way.ask_again(now);
            active.wants |= want::PATH;
        }
        if active.wants & want::PATH != 0 {
            self.enqueue(active);
        }
    }
}

impl Active {
    /// The answer to our question has come: this way leads to the peer and back.
    //= wire.md R-PATH-4
    fn path_proved(&mut self, which: u8, head: &Head, peer_has_it: bool, datagram_bytes: u16, now: Time) {
        let Some(bond) = self.bond.as_deref_mut() else { return };
        let way = bond.way(which);
        way.peer_has_it |= peer_has_it;
        way.asking = false;
        if way.peer_has_it {
            way.step_due = Time::FAR;
        }
        let was_up = std::mem::replace(&mut way.state, PathState::Up) == PathState::Up;
        let path = self.path_mut(which);
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
    }

    /// A probe of this way was in vain: it is asked, and so is the other, for a sign of life. While it is in doubt, new
    /// bundles go by the other.
    //= wire.md R-PATH-7
    pub(super) fn doubt(&mut self, which: u8, now: Time) {
        let first = self.path(which).probes <= 1;
        let Some(bond) = self.bond.as_deref_mut() else { return };
        bond.way(which).doubt();
        if !bond.is_up(which) || !bond.is_up(other(which)) {
            return;
        }
        if first {
            bond.way(other(which)).vouches = false;
            bond.way(which).down_due = now.plus(PATH_SILENCE_NS);
            bond.way(which).ask(now);
            self.wants |= want::PATH;
        }
        bond.turn = which;
        self.wants |= want::PING;
    }

    /// Takes ways for dead that have been silent for too long, if something has come by the other meanwhile. (If nothing
    /// has, it may be the peer's process that says nothing.)
    pub(super) fn give_up_silent(&mut self, now: Time, shared: &mut Shared) {
        for which in [FIRST, SECOND] {
            let in_doubt = self.path(which).probes != 0;
            let Some(bond) = self.bond.as_deref_mut() else { return };
            if bond.way(which).down_due > now {
                continue;
            }
            bond.way(which).down_due = Time::FAR;
            if !in_doubt || !bond.is_up(which) || !bond.is_up(other(which)) {
                continue;
            }
            if bond.way(other(which)).vouches {
                self.path_down(which, now, shared);
            } else {
                bond.way(which).down_due = now.plus(PATH_SILENCE_NS);
            }
        }
    }

    /// This way is dead: what is under way there goes again by the other.
    fn path_down(&mut self, which: u8, now: Time, shared: &mut Shared) {
        if let Some(mut ring) = self.tx_ring.take() {
            let mut seq = self.tx.unacked;
            while seq != self.tx.unsent {
                let slot = ring.at(seq);
                seq = seq.next();
                if slot.is_under_way(which) {
                    self.take_back(slot);
                }
            }
            self.tx_ring = Some(ring);
            self.size.none_lost();
        }
        self.tx.irregular = true;
        let path = self.path_mut(which);
        (path.probe_due, path.probe_credit) = (Time::FAR, 0);
        let Some(bond) = self.bond.as_deref_mut() else { return };
        let way = bond.way(which);
        way.state = PathState::Down;
        way.downs += 1;
        if !way.asking {
            way.ask(now);
        }
        self.wants |= want::PATH;
        shared.counters.paths_lost += 1;
    }

    /// The newest bundle that a probe of this way sends again: of connections with one way, the newest of all.
    pub(super) fn newest_on(&self, which: u8, ring: &TxRing) -> Seq {
        let mut newest = self.tx.unsent.plus(u32::MAX);
        if self.bond.is_some() {
            while newest != self.tx.unacked && !ring.get(newest).is_under_way(which) {
                newest = newest.plus(u32::MAX);
            }
        }
        newest
    }

    /// By which way a bundle that weighs `bytes` goes now, or why by none.
    ///
    /// The way with the shorter round trip that has room; the other one only if it is not so slow that the first
    /// would fill the window of numbers meanwhile and then have to wait for it.
    #[inline]
    pub(super) fn choose_path(&mut self, bytes: u32, peer_window_kib: u16, now: Time) -> Result<u8, Blocked> {
        let Some(bond) = self.bond.as_deref() else {
            return self.held_back(FIRST, bytes, peer_window_kib, now).map_or(Ok(FIRST), Err);
        };
        let choice = self.choose_of_two(bond, bytes, peer_window_kib, now);
        self.measure_idle(now);
        if choice == Err(Blocked::Pacing) {
            let paced =
                [self.path(FIRST).pace_due, self.path(SECOND).pace_due].into_iter().filter(|due| *due > now);
            let pace_due = paced.min().unwrap_or(now);
            if let Some(bond) = self.bond.as_deref_mut() {
                bond.pace_due = pace_due;
            }
        }
        choice
    }

    /// Asks about a way that nothing has come by for a while, although the connection is in use: the other may be chosen
    /// only because of a round trip that was long once.
    fn measure_idle(&mut self, now: Time) {
        for which in [FIRST, SECOND] {
            let path = self.path(which);
            let idle = path.in_flight_bytes == 0 && now.since(path.echo_at) > PATH_MEASURE_NS;
            let Some(bond) = self.bond.as_deref_mut().filter(|_| idle) else { continue };
            if bond.is_up(which) && !bond.way(which).asks() {
                bond.way(which).ask(now);
                self.wants |= want::PATH;
            }
        }
    }

    fn choose_of_two(&self, bond: &Bond, bytes: u32, peer_window_kib: u16, now: Time) -> Result<u8, Blocked> {
        let held = |which: u8| self.held_back(which, bytes, peer_window_kib, now);
        let probed = [FIRST, SECOND].into_iter().find(|&which| self.path(which).probe_credit != 0);
        if let Some(which) = probed.filter(|&which| bond.is_up(which) && !self.rnr) {
            return Ok(which);
        }
        let swift = self.swifter();
        let slow = other(swift);
        // A way in doubt gets probes only, if the other is not in doubt.
        let fit = |which: u8| bond.is_up(which) && self.path(which).probes < PATH_PROBES_TRUSTED;
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

    /// Whether a bundle sent by the slow way would keep the swift one waiting: numbers may be no further apart than a
    /// window (R-ORD-3), and the swift way uses up so many of them in one round trip of the slow one.
    fn would_block(&self, swift: u8, slow: u8, bytes: u32) -> bool {
        let (swift, slow) = (self.path(swift), self.path(slow));
        let per_trip = u64::from(swift.window.bytes() / bytes.max(1));
        let trip_ns = swift.rtt.smoothed_ns().max(1);
        let meanwhile = per_trip.saturating_mul(slow.rtt.smoothed_ns()) / trip_ns;
        let used = u64::from(self.tx.unsent.since(self.tx.unacked));
        slow.rtt.smoothed_ns() > 2 * trip_ns && used + meanwhile > u64::from(WINDOW_BUNDLES_MAX)
    }

    /// The way with the shorter round trip.
    fn swifter(&self) -> u8 {
        let second = self.path(SECOND).rtt.smoothed_ns() < self.path(FIRST).rtt.smoothed_ns();
        if second { SECOND } else { FIRST }
    }

    /// The way that describes the connection: the first, unless it is down.
    pub(super) fn best_path(&self) -> &Path {
        self.path(self.bond.as_deref().map_or(FIRST, |bond| bond.usable(FIRST)))
    }

    /// What the ways in use let be in flight, together.
    pub(super) fn window_bytes(&self) -> u32 {
        let second = self.bond.as_deref().filter(|bond| bond.is_up(SECOND));
        self.path.window.bytes() + second.map_or(0, |bond| bond.second.window.bytes())
    }

    /// When the next paced bundle may leave.
    #[inline]
    pub(super) fn pace_due(&self) -> Time {
        match self.bond.as_deref() {
            None => self.path.pace_due,
            Some(bond) => bond.pace_due,
        }
    }

    /// Something of this connection came this way.
    #[inline]
    pub(super) fn heard_by(&mut self, by: u8) {
        let Some(bond) = self.bond.as_deref_mut() else { return };
        if bond.way(by).note_heard() {
            self.path_mut(by).probes = 0;
        }
    }

    /// An acknowledgement that came this way for what went this way tells how long that takes, even if all that it
    /// acknowledges is known by the other way already: of two ways one may always be the first. True: it was counted.
    pub(super) fn sample_way(&mut self, by: u8, head: &Head, rtt_ns: u64, now: Time) -> bool {
        let Some(bond) = self.bond.as_deref_mut() else { return false };
        // Not one that was overtaken, or repeated: how long it was under way is not how long the way is.
        if head.kind != Kind::Ack || !bond.way(by).note_stamp(head.timestamp) || rtt_ns == 0 {
            return false;
        }
        self.path_mut(by).rtt.sample(now, rtt_ns);
        true
    }

    /// What came this way is acknowledged this way; what asks for an answer, by both: it is sent when one of them may be
    /// dead.
    //= wire.md R-PATH-9
    #[inline]
    pub(super) fn ack_by(&mut self, by: u8, head: &Head) {
        if let Some(bond) = self.bond.as_deref_mut() {
            bond.ack_by |= if head.flags & flags::PROBE == 0 { 1 << by } else { 1 << FIRST | 1 << SECOND };
        }
    }

    /// Whether nothing sent before this bundle is missing, as far as can be told: of two ways, each keeps its own order.
    #[inline]
    pub(super) fn is_expected(&mut self, by: u8, seq: Seq, offset: u32) -> bool {
        match self.bond.as_deref_mut() {
            None => offset == 0 && self.rx.end == self.rx.next,
            Some(bond) => bond.way(by).note_came(seq),
        }
    }

    /// The ways, as bits, by which an acknowledgement leaves now.
    pub(super) fn acks_by(&self) -> u8 {
        self.bond.as_deref().map_or(1 << FIRST, Bond::acks_by)
    }
}

impl Bond {
    /// Those ways by which an acknowledgement is due that can be used, or another that can.
    fn acks_by(&self) -> u8 {
        let asked = if self.ack_by == 0 { 1 << self.usable(FIRST) } else { self.ack_by };
        let mut by = 0;
        for which in [FIRST, SECOND] {
            if asked >> which & 1 != 0 {
                by |= 1 << self.usable(which);
            }
        }
        by
    }
}

impl PathInfo {
    /// Whether the way carries data.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.state == PathState::Up
    }
}

// Only for the bound of what one datagram may cause.
const _: () = assert!(PathBody::BYTES == 16, "R-PATH-2: an answer is as long as its question");
