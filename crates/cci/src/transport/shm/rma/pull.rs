//! Reads the peer's memory by a system call, if that memory can't be mapped. Each side only reads: a write is pulled by its
//! target.
//!
//! The first operation that is long enough makes both sides try it: each sends the other, through the ring, the address and the
//! value of a word to read. So they find out what it costs, and whether it works at all. Containers, Yama, other users or a
//! kernel without the system call may prevent it. Of long segments, a few go through the ring, then a few are pulled. The faster
//! route is used until both are compared again. Shorter segments are pulled if that pays by what was measured with long ones.

use crate::device::Cma;
use crate::transport::ordered_rma::{Pulled, Route, Trial};
use crate::transport::shm::peer::Peer;
use cci_memory::bytes::{Backing, Bytes, Foreign};
use cci_proto::RmaKind;
use cci_sys::cma::{self, Cost, Probe, Process};
use cci_sys::{SysError, clock, process, random};

/// Operations shorter than this do not make the two sides try it.
pub(in crate::transport::shm) const TRY_BYTES: u64 = 2 << 10;
/// The cost of a pull beside its system call: a record to the peer and one back.
const EXTRA_NS: u64 = 400;
/// The unit of the length from which on a pull is used.
const STEP_BYTES: u64 = 4 << 10;
/// The shortest segments with which the ring and pulls are compared. Which is faster depends on the cores of the two processes,
/// and on how many operations the program has under way: while one side fills the ring, the other can empty it.
const TRIAL_BYTES: u64 = 64 << 10;
/// A run on one route ends when this many bytes of it, and enough segments, were timed.
const RUN_BYTES: u64 = 3 << 20;
const RUN_SEGMENTS: u32 = 3;
/// Segments that end before this many bytes have ended are not timed, since segments of the other route are still under way.
const OVERLAP_BYTES: u64 = 1 << 20;
/// A run ends after this many segments were begun, even if they do not end.
const BEGUN_MAX: u32 = 1 << 10;
/// The routes are compared again after this many runs, since processes move to other cores. The number begins low and doubles: in
/// the first comparison, the first route waits for the pages of new memory.
const SETTLED_RUNS_MIN: u32 = 4;
const SETTLED_RUNS_MAX: u32 = 64;

/// What happens to long segments that begin now.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// They are timed through the ring.
    #[default]
    Ring,
    /// They are timed as pulls.
    Pull,
    /// They take the faster route.
    Settled,
}

/// The timed segments of one route.
#[derive(Copy, Clone, Debug, Default)]
struct Run {
    bytes: u64,
    segments: u32,
    busy_ns: u64,
}

impl Run {
    fn is_over(self) -> bool {
        self.bytes >= RUN_BYTES && self.segments >= RUN_SEGMENTS
    }

    /// Returns `None` if too little was timed.
    fn ns_per_kib(self) -> Option<u64> {
        self.is_over().then(|| self.busy_ns / (self.bytes >> 10))
    }
}

/// Which route is faster for long segments, in one direction.
#[derive(Copy, Clone, Debug, Default)]
struct Comparison {
    phase: Phase,
    /// The number of this phase.
    number: u32,
    /// The number of comparisons so far.
    comparisons: u32,
    /// Segments that were begun in this phase.
    segments: u32,
    bytes: u64,
    /// Bytes of this phase that have ended.
    ended_bytes: u64,
    /// When the last segment that could be timed ended.
    ended_ns: u64,
    ring: Run,
    pull: Run,
    /// The times of the ring and of a pull in the last comparison, in ns/KiB.
    found: Option<(u64, u64)>,
}

impl Comparison {
    fn enter(&mut self, phase: Phase) {
        if phase == Phase::Ring {
            (self.ring, self.pull) = (Run::default(), Run::default());
        } else if phase == Phase::Settled {
            self.found = self.ring.ns_per_kib().zip(self.pull.ns_per_kib()).or(self.found);
            self.comparisons = self.comparisons.saturating_add(1);
        }
        (self.phase, self.number) = (phase, self.number.wrapping_add(1));
        (self.segments, self.bytes, self.ended_bytes) = (0, 0, 0);
    }

    /// Runs for which the last comparison holds.
    fn settled_runs(&self) -> u32 {
        let doublings = self.comparisons.saturating_sub(1).min(SETTLED_RUNS_MAX.ilog2());
        (SETTLED_RUNS_MIN << doublings).min(SETTLED_RUNS_MAX)
    }

    /// The route of the next segment, and whether it is timed.
    fn next(&mut self, len_bytes: u64) -> (Route, bool) {
        match self.phase {
            Phase::Ring if self.segments >= BEGUN_MAX => self.enter(Phase::Pull),
            Phase::Pull if self.segments >= BEGUN_MAX => self.enter(Phase::Settled),
            Phase::Settled
                if self.segments >= self.settled_runs() * RUN_SEGMENTS
                    && self.bytes >= u64::from(self.settled_runs()) * RUN_BYTES =>
            {
                self.enter(Phase::Ring);
            }
            _ => {}
        }
        self.segments = self.segments.saturating_add(1);
        self.bytes = self.bytes.saturating_add(len_bytes);
        match self.phase {
            Phase::Ring => (Route::Push, true),
            Phase::Pull => (Route::Fetch, true),
            Phase::Settled if self.found.is_some_and(|(ring, pull)| pull < ring) => (Route::Fetch, false),
            Phase::Settled => (Route::Push, false),
        }
    }

    /// Notes the end of a timed segment. If several are under way, the time since the one before ended counts: all that end
    /// within one poll do so at once.
    fn ended(&mut self, trial: &Trial, now_ns: u64) {
        let since_ns = trial.began_ns.max(std::mem::replace(&mut self.ended_ns, now_ns));
        // After a run, segments of both routes are under way.
        if trial.number != self.number {
            return;
        }
        let overlaps = self.ended_bytes < OVERLAP_BYTES;
        self.ended_bytes = self.ended_bytes.saturating_add(trial.len_bytes);
        if overlaps {
            return;
        }
        let (run, next) = match trial.route {
            Route::Push => (&mut self.ring, Phase::Pull),
            Route::Fetch => (&mut self.pull, Phase::Settled),
        };
        run.bytes = run.bytes.saturating_add(trial.len_bytes);
        run.segments = run.segments.saturating_add(1);
        run.busy_ns = run.busy_ns.saturating_add(now_ns.saturating_sub(since_ns));
        if run.is_over() {
            self.enter(next);
        }
    }
}

/// A word of this process that peers try to read, to find out whether they can read its memory.
pub(in crate::transport::shm) struct Word {
    memory: Foreign,
    pub value: u64,
}

impl Word {
    pub fn new() -> Result<Word, SysError> {
        let memory = Foreign::owned(vec![0; 64].into_boxed_slice());
        let value = random::u64()?;
        let written = memory.bytes().write(0, &value.to_ne_bytes());
        debug_assert!(written, "8 bytes of 64");
        Ok(Word { memory, value })
    }

    pub fn address(&self) -> u64 {
        self.memory.bytes().as_ptr().addr().get() as u64
    }
}

/// What is known about reading the peer's memory, and about the peer's reading ours.
pub(in crate::transport::shm) struct Pull {
    process: Option<Process>,
    /// Whether the peer was asked to try it.
    pub asked: bool,
    /// The cost of reading the peer's memory, if it works.
    ours: Option<Cost>,
    /// The peer's cost of reading ours.
    pub theirs: Option<Cost>,
    reads: Comparison,
    writes: Comparison,
    /// The result of our own try, in words.
    found: String,
    tried: bool,
    /// Whether pulls are used even if they are not faster.
    always: bool,
    pub pulled: u64,
}

impl Pull {
    pub fn new() -> Pull {
        Pull {
            process: None,
            asked: false,
            ours: None,
            theirs: None,
            reads: Comparison::default(),
            writes: Comparison::default(),
            found: "not tried yet: no operation was long enough".to_owned(),
            tried: false,
            always: false,
            pulled: 0,
        }
    }

    /// Tries to read the peer's word, but only once, so that a peer can't keep this process busy with it.
    ///
    /// The memory of another user's process is never read: the peer chooses the address, and it would be read with our rights. A
    /// process keeps its number when it starts a program with more rights than its user has. Another process that still holds the
    /// socket could then read that program through us.
    pub fn try_it(&mut self, cma: Cma, peer: &Peer, address: u64, value: u64) {
        if std::mem::replace(&mut self.tried, true) {
            return;
        }
        self.always = cma == Cma::Always;
        let is_ours = peer.uid == process::uid();
        let Some(pid) = peer.pid.filter(|_| cma != Cma::Off && is_ours) else {
            let why = match cma {
                Cma::Off => "this device says cma = off",
                Cma::On | Cma::Always if !is_ours => "the peer is of another user",
                Cma::On | Cma::Always => "the peer's process is not visible here",
            };
            self.found = why.to_owned();
            return;
        };
        // The process is opened before the probe, so that the probe shows that it is the right one.
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(error) => {
                self.found = error.to_string();
                return;
            }
        };
        match cma::probe(pid, address, value) {
            Probe::Works(cost) if process.is_alive() => {
                self.ours = Some(cost);
                "process_vm_readv works".clone_into(&mut self.found);
                self.process = Some(process);
            }
            Probe::Works(_) => "the peer's process has ended".clone_into(&mut self.found),
            Probe::Refused(why) => self.found = format!("refused by the system: {why}"),
        }
    }

    /// What reading the peer's memory costs us, as one word for the peer; 0: it does not work.
    pub fn to_word(&self) -> u64 {
        self.ours.map_or(0, |cost| u64::from(cost.ns_per_call) << 32 | u64::from(cost.ns_per_kib))
    }

    /// Notes what reading our memory costs the peer, from the word that it sent.
    pub fn peer_reports(&mut self, word: u64) {
        let (ns_per_call, ns_per_kib) = ((word >> 32) as u32, word as u32);
        self.theirs = (word != 0).then_some(Cost { ns_per_call, ns_per_kib });
    }

    #[cfg(test)]
    fn is_usable(&self) -> bool {
        self.ours.is_some() || self.theirs.is_some()
    }

    fn cost(&self, kind: RmaKind) -> Option<Cost> {
        match kind {
            RmaKind::Write => self.theirs,
            RmaKind::Read => self.ours,
        }
    }

    fn compared(&self, kind: RmaKind) -> Comparison {
        match kind {
            RmaKind::Write => self.writes,
            RmaKind::Read => self.reads,
        }
    }

    /// The route of a segment. The clock is read only for those that are timed.
    pub fn route(&mut self, kind: RmaKind, len_bytes: u64) -> (Route, Option<Trial>) {
        if self.always || len_bytes < TRIAL_BYTES || self.cost(kind).is_none() {
            let fetches = len_bytes >= self.pays_from_bytes(kind);
            return (if fetches { Route::Fetch } else { Route::Push }, None);
        }
        let comparison = match kind {
            RmaKind::Write => &mut self.writes,
            RmaKind::Read => &mut self.reads,
        };
        let (route, is_timed) = comparison.next(len_bytes);
        let number = comparison.number;
        let trial = is_timed.then(|| Trial { route, kind, len_bytes, began_ns: clock::now_ns(), number });
        (route, trial)
    }

    /// Notes the end of a segment of a comparison.
    pub fn tried(&mut self, trial: &Trial, now_ns: u64) {
        match trial.kind {
            RmaKind::Write => self.writes.ended(trial, now_ns),
            RmaKind::Read => self.reads.ended(trial, now_ns),
        }
    }

    /// The least length at which a pull, which is one copy by the system in steps of a page, is faster than the ring. `u64::MAX`
    /// if there is none, or it is not known yet.
    pub fn pays_from_bytes(&self, kind: RmaKind) -> u64 {
        let Some(cost) = self.cost(kind) else { return u64::MAX };
        if self.always {
            return TRY_BYTES;
        }
        match self.compared(kind).found {
            Some((ring, pull)) if pull < ring => {
                let kib = (u64::from(cost.ns_per_call) + EXTRA_NS).div_ceil(ring - pull);
                (kib << 10).next_multiple_of(STEP_BYTES).clamp(TRY_BYTES, TRIAL_BYTES)
            }
            _ => u64::MAX,
        }
    }

    /// What is known, in words.
    pub fn describe(&self) -> String {
        let direction = |what: &str, kind, who: &str| {
            let Some(Cost { ns_per_call, .. }) = self.cost(kind) else {
                return format!("; {what}: {who} does not");
            };
            match (self.compared(kind).found, self.pays_from_bytes(kind)) {
                _ if self.always => format!("; {what}: the device says cma = always"),
                (None, _) => format!("; {what}: {ns_per_call} ns a call, not compared with the ring yet"),
                (Some((ring, pull)), u64::MAX) => {
                    format!("; {what}: {pull} ns/KiB, not faster than the ring's {ring} ns/KiB")
                }
                (Some((ring, pull)), bytes) => {
                    let kib = bytes >> 10;
                    format!(
                        "; {what}: used from {kib} KiB on, {pull} ns/KiB against the ring's {ring} ns/KiB"
                    )
                }
            }
        };
        let reads = direction("reads", RmaKind::Read, "this side");
        let writes = direction("writes", RmaKind::Write, "the peer");
        format!("{}{reads}{writes}", self.found)
    }

    pub fn is_chosen(&self) -> bool {
        self.pays_from_bytes(RmaKind::Read) != u64::MAX || self.pays_from_bytes(RmaKind::Write) != u64::MAX
    }

    /// Reads all of `to` from the peer's memory.
    pub fn pull(&mut self, from: u64, to: &Bytes) -> Pulled {
        let Some(process) = &self.process else { return Pulled::Unreadable };
        let mut done = 0;
        while done < to.len() {
            let at = from.wrapping_add(done as u64);
            match cma::read_from(process.pid(), at, to, done, to.len() - done) {
                Ok(count) => done += count,
                Err(error) if cma::is_gone(&error) || !process.is_alive() => return Pulled::PeerGone,
                Err(_) => return Pulled::Unreadable,
            }
        }
        self.pulled += 1;
        // The number may belong to another process by now, whose memory must not be taken for the peer's.
        if process.is_alive() { Pulled::All } else { Pulled::PeerGone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    #[test]
    fn only_processes_of_our_own_user_are_read() {
        let word = Word::new().unwrap();
        for (uid, works) in [(process::uid(), true), (process::uid().wrapping_add(1), false)] {
            let peer = Peer { endpoint: 1, pid: Some(std::process::id()), uid };
            let mut pull = Pull::new();
            pull.try_it(Cma::On, &peer, word.address(), word.value);
            assert_eq!(pull.is_usable(), works, "{}", pull.describe());
        }
    }

    /// A program with segments of one length, of which so many are under way and so many end at once.
    struct Program {
        len_bytes: u64,
        under_way: usize,
        at_once: usize,
    }

    impl Program {
        /// The comparison after this many segments, if 64 KiB take so many ns by their route.
        fn compare(&self, segments: usize, pace_ns: impl Fn(usize, Route) -> u64) -> Comparison {
            let (mut comparison, mut under_way) = (Comparison::default(), VecDeque::new());
            let (mut now_ns, kind, len_bytes) = (1_000_000, RmaKind::Write, self.len_bytes);
            for at in 0..segments {
                let (route, is_timed) = comparison.next(len_bytes);
                let number = comparison.number;
                under_way.push_back((
                    pace_ns(at, route) * (len_bytes >> 16),
                    is_timed.then_some(Trial { route, kind, len_bytes, began_ns: now_ns, number }),
                ));
                if under_way.len() < self.under_way + self.at_once {
                    continue;
                }
                let ended: Vec<_> = under_way.drain(..self.at_once).collect();
                now_ns += ended.iter().map(|(takes_ns, _)| takes_ns).sum::<u64>();
                ended.iter().filter_map(|(_, trial)| *trial).for_each(|trial| {
                    comparison.ended(&trial, now_ns);
                });
            }
            comparison
        }
    }

    /// The faster route, by the last comparison.
    fn found(comparison: Comparison) -> Option<Route> {
        comparison.found.map(|(ring, pull)| if pull < ring { Route::Fetch } else { Route::Push })
    }

    const KIB_64: u64 = 64 << 10;
    const PROGRAMS: [Program; 6] = [
        Program { len_bytes: KIB_64, under_way: 0, at_once: 1 },
        Program { len_bytes: KIB_64, under_way: 8, at_once: 8 },
        Program { len_bytes: KIB_64, under_way: 32, at_once: 8 },
        Program { len_bytes: KIB_64, under_way: 256, at_once: 1 },
        Program { len_bytes: 1 << 20, under_way: 4, at_once: 1 },
        Program { len_bytes: 16 << 20, under_way: 2, at_once: 1 },
    ];

    impl Program {
        /// The number of segments until both routes were compared.
        fn settles_behind(&self) -> usize {
            let run = (RUN_BYTES + OVERLAP_BYTES).div_ceil(self.len_bytes).max(4) as usize;
            2 * (run + self.under_way + self.at_once) + 2
        }
    }

    #[test]
    fn the_faster_route_is_used_however_many_are_under_way() {
        for program in PROGRAMS {
            let behind = program.settles_behind();
            let pull = |_, route| if route == Route::Fetch { 4_000 } else { 6_000 };
            assert_eq!(found(program.compare(behind, pull)), Some(Route::Fetch));
            let ring = |_, route| if route == Route::Fetch { 6_000 } else { 4_000 };
            assert_eq!(found(program.compare(behind, ring)), Some(Route::Push));
        }
    }

    #[test]
    fn what_has_become_faster_is_found() {
        for program in PROGRAMS {
            let behind = program.settles_behind();
            let run = RUN_BYTES.div_ceil(program.len_bytes).max(3) as usize;
            // This is longer than until the next comparison, however many there were.
            let again = 3 * behind + SETTLED_RUNS_MAX as usize * run;
            let turns = |at, route| if (route == Route::Fetch) == (at < again) { 4_000 } else { 6_000 };
            assert_eq!(found(program.compare(again, turns)), Some(Route::Fetch));
            assert_eq!(found(program.compare(2 * again, turns)), Some(Route::Push));
        }
    }

    #[test]
    fn the_first_comparisons_hold_for_short() {
        let mut comparison = Comparison::default();
        let settled_runs = [(); 6].map(|()| {
            comparison.enter(Phase::Settled);
            comparison.settled_runs()
        });
        assert_eq!(settled_runs, [4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn nothing_is_pulled_before_the_ring_was_timed() {
        for program in PROGRAMS {
            let mut comparison = program.compare(3, |_, _| 1_000);
            assert_eq!(comparison.next(program.len_bytes), (Route::Push, true));
        }
    }

    #[test]
    fn segments_that_never_end_end_a_run() {
        let never = Program { len_bytes: KIB_64, under_way: usize::MAX / 2, at_once: 1 };
        let routes = [0, 1, 2].map(|runs| never.compare(runs * BEGUN_MAX as usize, |_, _| 1).next(KIB_64).0);
        assert_eq!(routes, [Route::Push, Route::Fetch, Route::Push]);
    }
}
