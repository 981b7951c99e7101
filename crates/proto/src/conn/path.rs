//! The paths to a peer: one for every connection, a second one for bonded ones. Why it is part of the protocol: `docs/adr/0010`.

use crate::congestion::Window;
use crate::limits::{
    ACK_BUNDLES, PACING_BURST_NS, PACING_BURST_SHARE, PACING_RTT_NS_MIN, PATH_RETRY_NS_MAX,
    PATH_RETRY_NS_MIN, SIZE_SUSPECT_COPIES,
};
use crate::reliable::rtt::Rtt;
use crate::wire::TIMESTAMP_NS;
use crate::{Address, PathState, Seq, Time};

/// The path that every connection has.
pub(crate) const FIRST: u8 = 0;
/// The path that bonded ones have besides.
pub(crate) const SECOND: u8 = 1;

/// What is known of one path to the peer, and what is on it.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub rtt: Rtt,
    pub window: Window,
    /// What the bundles in flight on this path weigh.
    pub in_flight_bytes: u32,
    /// Probes without an answer.
    pub probes: u32,
    /// Of the acknowledged bundles that went by this path, when the one sent last was sent, and how long its acknowledgement took.
    pub rack_at: Time,
    pub rack_rtt_ns: u64,
    /// When to probe if nothing is acknowledged.
    pub probe_due: Time,
    /// When the PING behind a probe left that has had no answer; [`Time::FAR`]: there is none.
    pub pinged_at: Time,
    /// When the next paced bundle may leave.
    pub pace_due: Time,
    /// The timestamp that came last by this path, and when.
    pub echo_at: Time,
    pub echo: u32,
    /// How tolerant of reordering; grows when a resend proves needless.
    pub reorder_steps: u8,
    /// Bundles that must leave now, whatever the window says.
    pub probe_credit: u8,
    /// PINGs answered since the first of the probes that were not.
    pub answers: u8,
}

impl Path {
    pub fn new(rtt: Rtt, window: Window, now: Time) -> Path {
        Path {
            rtt,
            window,
            in_flight_bytes: 0,
            probes: 0,
            rack_at: Time(0),
            rack_rtt_ns: 0,
            probe_due: Time::FAR,
            pinged_at: Time::FAR,
            pace_due: Time(0),
            echo_at: now,
            echo: 0,
            reorder_steps: 1,
            probe_credit: 0,
            answers: 0,
        }
    }

    /// The peer's last timestamp, moved on by the time since: what remains is the network's.
    //= wire.md R-ACK-6
    #[inline]
    pub fn echo_now(&self, now: Time) -> u32 {
        self.echo.wrapping_add((now.since(self.echo_at) >> 6) as u32)
    }

    #[inline]
    pub fn came(&mut self, timestamp: u32, now: Time) {
        (self.echo, self.echo_at) = (timestamp, now);
    }

    /// A PING has left by this path. True: it goes with a probe, and its answer can show what is lost.
    pub fn note_ping(&mut self, now: Time) -> bool {
        let follows_probe = self.probes != 0 && self.in_flight_bytes != 0;
        if follows_probe {
            self.pinged_at = now;
        }
        follows_probe
    }

    /// An ACK that acknowledges nothing new came by this path, with a round trip of `rtt_ns`. It may answer the PING that went
    /// there: then bundles that left before the PING are overtaken, as by an acknowledged bundle. True: so they are.
    //= wire.md R-LOSS-1
    pub fn take_answer(&mut self, rtt_ns: u64, now: Time) -> bool {
        // An echo that is not older than the PING is of the PING, or of what left later. Both timestamps are exact to their unit.
        let rtt_ns_min = rtt_ns.saturating_sub(2 * TIMESTAMP_NS);
        if rtt_ns == 0 || self.pinged_at == Time::FAR || now.since(self.pinged_at) < rtt_ns_min {
            return false;
        }
        let pinged_at = std::mem::replace(&mut self.pinged_at, Time::FAR);
        if self.in_flight_bytes == 0 || pinged_at < self.rack_at {
            return false;
        }
        self.answers = self.answers.saturating_add(1);
        (self.rack_at, self.rack_rtt_ns) = (pinged_at, rtt_ns);
        self.rtt.sample(now, rtt_ns);
        true
    }

    /// Whether what was lost was lost often enough, while nothing is acknowledged, not to be chance: small datagrams passed beside it.
    pub fn is_no_chance(&self) -> bool {
        let often = u32::from(SIZE_SUSPECT_COPIES);
        self.probes == 0 || u32::from(self.answers) + 1 >= often || self.probes >= often
    }

    /// When to ask for an acknowledgement that does not come.
    pub fn set_probe(&mut self, now: Time) {
        self.probe_due =
            if self.in_flight_bytes == 0 { Time::FAR } else { now.plus(self.rtt.probe_ns(self.probes)) };
    }

    /// How much later than a bundle sent after it a bundle may be acknowledged without being taken for lost.
    pub fn reorder_ns(&self) -> u64 {
        let steps = u64::from(self.reorder_steps);
        (self.rtt.min_ns() / 4 + steps * self.rtt.variation_ns())
            .min(self.rtt.smoothed_ns() + 4 * self.rtt.variation_ns())
    }

    /// On long paths a window's worth is spread over the round trip, a little faster than it will be acknowledged.
    pub fn pace(&mut self, bytes: u32, now: Time) {
        let rtt_ns = self.rtt.smoothed_ns_or_zero();
        if rtt_ns < PACING_RTT_NS_MIN {
            return;
        }
        let (gain_num, gain_den) = if self.window.in_slow_start() { (1, 2) } else { (4, 5) };
        let gap_ns = rtt_ns * u64::from(bytes) / u64::from(self.window.bytes().max(1)) * gain_num / gain_den;
        // Who wakes up late, on a busy machine or by a coarse timer, makes up for it: else a datagram or two would go for
        // each time that it wakes up.
        let earliest = Time(now.0.saturating_sub(PACING_BURST_NS.max(rtt_ns / PACING_BURST_SHARE)));
        self.pace_due = self.pace_due.max(earliest).plus(gap_ns);
    }
}

/// What only a bonded connection knows of a path: whether it works, and what it carried.
#[derive(Clone, Debug)]
pub(crate) struct BondedPath {
    pub state: PathState,
    /// The peer can use this path, as far as we know: it need not be asked any more.
    pub peer_has_it: bool,
    /// We wait for an answer that shows that it is alive.
    pub asking: bool,
    /// A PATH datagram is to be sent.
    pub wanted: bool,
    /// What the peer must answer with; changes with every time that we begin to ask.
    challenge: u64,
    /// What the peer asked; 0: nothing.
    pub answer: u64,
    /// When the next question is due, while there is one.
    pub step_due: Time,
    step_ns: u64,
    /// Since the last probe without an answer, something came by this path, and bundles sent by this path were
    /// acknowledged.
    heard: bool,
    delivered: bool,
    /// Something came by this path since the other one came into doubt.
    pub vouches: bool,
    /// When it is taken for dead unless it shows a sign of life before.
    pub down_due: Time,
    /// Bundles that came by this path and are not acknowledged by this path yet.
    pub ack_pending: u32,
    /// The latest bundle that came by this path; meaningless before the first.
    pub newest: Seq,
    /// The timestamp of the latest acknowledgement that came by this path.
    stamp: Option<u32>,
    pub datagrams_sent: u64,
    pub bytes_sent: u64,
    pub retransmissions: u64,
    /// Times it went down.
    pub downs: u64,
}

impl BondedPath {
    fn new(state: PathState, challenge: u64, newest: Seq) -> BondedPath {
        BondedPath {
            state,
            peer_has_it: true,
            asking: false,
            wanted: false,
            challenge: challenge | 1,
            answer: 0,
            step_due: Time::FAR,
            step_ns: PATH_RETRY_NS_MIN,
            heard: false,
            delivered: false,
            vouches: false,
            down_due: Time::FAR,
            ack_pending: 0,
            newest,
            stamp: None,
            datagrams_sent: 0,
            bytes_sent: 0,
            retransmissions: 0,
            downs: 0,
        }
    }

    /// Asks the peer to show that this path leads to it and back, now and until it answers.
    //= wire.md R-PATH-6
    pub fn ask(&mut self, now: Time) {
        // Answers to what was asked before prove nothing any more; two apart, so that it is never 0.
        self.challenge = self.challenge.wrapping_add(2);
        (self.asking, self.wanted) = (true, true);
        self.step_ns = PATH_RETRY_NS_MIN;
        self.step_due = now.plus(self.step_ns);
    }

    /// Asks again, after longer and longer waits.
    pub fn ask_again(&mut self, now: Time) {
        self.wanted = true;
        self.step_ns = (2 * self.step_ns).min(PATH_RETRY_NS_MAX);
        self.step_due = now.plus(self.step_ns);
    }

    /// Bundles that went by this path were acknowledged, by either path; true if that shows that it is alive in both directions.
    pub fn note_delivered(&mut self) -> bool {
        self.delivered = true;
        self.heard
    }

    /// Something came by this path; true if that shows that it is alive in both directions.
    pub fn note_heard(&mut self) -> bool {
        (self.heard, self.vouches) = (true, true);
        self.delivered
    }

    /// An acknowledgement came by this path; true if sent later than all before it.
    pub fn note_stamp(&mut self, stamp: u32) -> bool {
        let later = self.stamp.is_none_or(|last| Seq(last).precedes(Seq(stamp)));
        if later {
            self.stamp = Some(stamp);
        }
        later
    }

    /// Nothing shows any more that it is alive.
    pub fn doubt(&mut self) {
        (self.heard, self.delivered) = (false, false);
    }

    /// A bundle came by this path; true if later in number than all before it.
    pub fn note_came(&mut self, seq: Seq) -> bool {
        let later = self.newest.precedes(seq);
        if later {
            self.newest = seq;
        }
        later
    }

    /// Whether a PATH sent now asks something.
    pub fn asks(&self) -> bool {
        self.asking || self.state != PathState::Up || !self.peer_has_it
    }

    /// The question of a PATH sent now; 0: none.
    pub fn question(&self) -> u64 {
        if self.asks() { self.challenge } else { 0 }
    }

    /// Whether this answers what we ask, or asked last.
    pub fn is_answer(&self, answer: u64) -> bool {
        self.challenge == answer
    }
}

/// What makes a connection a bonded one: its second path, and the choice between the two.
pub(crate) struct Bond {
    /// Where the second path leads; the side that accepted learns it by and by.
    pub to: Option<Address>,
    pub second: Path,
    pub paths: [BondedPath; 2],
    /// Whether this side asked for the connection: only that one asks for the second path.
    pub dialed: bool,
    /// Paths, as bits, by which an acknowledgement is due.
    pub ack_by: u8,
    /// The path by which the last question to the peer went.
    pub turn: u8,
    /// When one of the paths may send again, while both are held back and one of them by its pace.
    pub pace_due: Time,
}

impl Bond {
    pub const COST_BYTES: u64 = size_of::<Bond>() as u64;

    /// The bond of a connection whose second path is not proved. `challenges`: unforeseeable.
    pub fn new(
        (to, dialed): (Option<Address>, bool),
        challenges: [u64; 2],
        newest: Seq,
        datagram_bytes: u16,
        now: Time,
    ) -> Bond {
        let newest = newest.plus(u32::MAX);
        let mut paths = [
            BondedPath::new(PathState::Up, challenges[0], newest),
            BondedPath::new(PathState::Unproved, challenges[1], newest),
        ];
        if dialed {
            paths[1].peer_has_it = false;
            paths[1].ask(now);
        }
        Bond {
            to,
            second: Path::new(Rtt::default(), Window::new(datagram_bytes), now),
            paths,
            dialed,
            ack_by: 0,
            turn: FIRST,
            pace_due: Time(0),
        }
    }

    #[inline]
    pub fn path(&mut self, which: u8) -> &mut BondedPath {
        &mut self.paths[usize::from(which & 1)]
    }

    #[inline]
    pub fn is_up(&self, which: u8) -> bool {
        self.paths[usize::from(which & 1)].state == PathState::Up
    }

    /// A path that can be used: the preferred one if it can.
    pub fn usable(&self, preferred: u8) -> u8 {
        if self.is_up(preferred) || !self.is_up(other(preferred)) { preferred } else { other(preferred) }
    }

    /// The path by which the next question to the peer goes: they take turns, so that one gets an answer if either works.
    pub fn take_turn(&mut self) -> u8 {
        self.turn = self.usable(other(self.turn));
        self.turn
    }

    /// What was just sent by this path acknowledges everything; returns how many bundles are still to be acknowledged by
    /// the path that they came by.
    #[inline]
    pub fn acked_by(&mut self, which: u8) -> u32 {
        self.ack_by &= !(1 << which);
        self.path(which).ack_pending = 0;
        self.paths[0].ack_pending + self.paths[1].ack_pending
    }

    /// Every path by which an acknowledgement was due has had one, or its stand-in has; what is still pending, see
    /// [`Bond::acked_by`].
    pub fn acked(&mut self) -> u32 {
        for which in [FIRST, SECOND] {
            if self.ack_by >> which & 1 != 0 {
                self.acked_by(which);
            }
        }
        self.paths[0].ack_pending + self.paths[1].ack_pending
    }

    /// One more bundle came by this path that is not acknowledged; returns how many there are.
    #[inline]
    pub fn one_pending(&mut self, by: u8) -> u32 {
        let path = self.path(by);
        path.ack_pending += 1;
        let pending = path.ack_pending;
        if pending >= ACK_BUNDLES {
            self.ack_by |= 1 << by;
        }
        pending
    }

    /// What waits for company to be acknowledged has waited long enough.
    pub fn ack_all_pending(&mut self) {
        for which in [FIRST, SECOND] {
            if self.path(which).ack_pending != 0 {
                self.ack_by |= 1 << which;
            }
        }
    }

    /// Another address asks for the second path, which is not proved yet.
    pub fn learn(&mut self, to: Address, challenge: u64, now: Time) {
        let newest = self.paths[1].newest;
        self.to = Some(to);
        self.second.came(0, now);
        self.paths[1] = BondedPath::new(PathState::Unproved, challenge, newest);
    }

    /// When something is due on either path.
    pub fn due(&self) -> Time {
        let [first, second] = &self.paths;
        let asked = first.step_due.min(second.step_due);
        self.second.probe_due.min(asked).min(first.down_due).min(second.down_due)
    }

    /// The paths, as bits, by which acknowledgements leave: each by which one is due if it can be used, else the other.
    pub fn acks_by(&self) -> u8 {
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

/// The path that is not this one.
pub(crate) const fn other(which: u8) -> u8 {
    which ^ 1
}
