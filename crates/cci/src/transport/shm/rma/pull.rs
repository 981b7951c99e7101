//! Reading the peer's memory by a system call, for memory that can't be mapped. Each side only ever reads: a write is
//! pulled by its target.
//!
//! The first operation that is long enough makes the two sides try it: each sends the other, through the ring, the address and
//! the value of a word to read. So they find out what it costs, and whether it works at all: containers, Yama, other users or a
//! kernel without the system call may be in the way. The first long segments go through the ring and are timed, and from then on
//! segments are pulled if they are so long that a pull is faster. All others go through the ring.

use crate::device::Cma;
use crate::transport::ordered_rma::{Pulled, Trial};
use crate::transport::shm::peer::Peer;
use cci_memory::bytes::{Backing, Bytes, Foreign};
use cci_proto::RmaKind;
use cci_sys::cma::{self, Cost, Probe, Process};
use cci_sys::{SysError, process, random};

/// Shorter operations never make the two sides try it.
pub(in crate::transport::shm) const TRY_BYTES: u64 = 2 << 10;
/// What a pull costs beside its system call: a record to the peer and one back.
const EXTRA_NS: u64 = 400;
/// The unit of the length from which on a pull is used.
const STEP_BYTES: u64 = 4 << 10;
/// The shortest segments whose way through the ring is timed. How fast it is depends on the cores on which the two processes run,
/// by a factor of five on one machine.
const TRIAL_BYTES: u64 = 64 << 10;
/// The longest segments that are timed again later: longer ones would take long, and show nothing more.
const TRIAL_BYTES_MAX: u64 = 4 << 20;
/// How many segments are timed at first. The fastest counts, as any disturbance makes one slower.
const TRIALS: u32 = 3;
/// Later, one segment in so many is timed again, as processes move to other cores.
const TRIAL_EVERY: u32 = 64;

/// How fast data goes through the ring, in one direction.
#[derive(Copy, Clone, Debug, Default)]
struct RingPace {
    trials: u32,
    segments: u32,
    ns_per_kib: u64,
}

/// A word of ours that peers try to read, to find out whether they can read our memory.
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

/// What is known about reading the peer's memory, and its reading ours.
pub(in crate::transport::shm) struct Pull {
    process: Option<Process>,
    /// The peer was asked to try it.
    pub asked: bool,
    /// What reading the peer's memory costs, if it works.
    ours: Option<Cost>,
    /// What reading ours costs the peer.
    pub theirs: Option<Cost>,
    reads: RingPace,
    writes: RingPace,
    /// What came of our own try, in words.
    found: String,
    tried: bool,
    /// Pulls are used even where they are not faster.
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
            reads: RingPace::default(),
            writes: RingPace::default(),
            found: "not tried yet: no operation was long enough".to_owned(),
            tried: false,
            always: false,
            pulled: 0,
        }
    }

    /// Tries to read the peer's word, but only once, so that a peer can't keep us busy with it.
    ///
    /// A peer of another user is not read, since it chooses the address and we lend our rights. A process keeps its number when it
    /// begins a program with more rights than its user has; whoever still holds the socket could read that program through us.
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
        // The process is opened before the probe, so that it is the one which passes it.
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

    pub fn is_usable(&self) -> bool {
        self.ours.is_some() || self.theirs.is_some()
    }

    fn cost(&self, kind: RmaKind) -> Option<Cost> {
        match kind {
            RmaKind::Write => self.theirs,
            RmaKind::Read => self.ours,
        }
    }

    fn pace(&self, kind: RmaKind) -> RingPace {
        match kind {
            RmaKind::Write => self.writes,
            RmaKind::Read => self.reads,
        }
    }

    fn pace_mut(&mut self, kind: RmaKind) -> &mut RingPace {
        match kind {
            RmaKind::Write => &mut self.writes,
            RmaKind::Read => &mut self.reads,
        }
    }

    /// Whether a segment of this length can be timed on its way through the ring, to be compared with a pull.
    fn can_be_timed(&self, kind: RmaKind, len_bytes: u64) -> bool {
        !self.always && len_bytes >= TRIAL_BYTES && self.cost(kind).is_some()
    }

    /// Whether it is not known yet how fast the ring is, and a segment of this length can tell.
    pub fn lacks_trials(&self, kind: RmaKind, len_bytes: u64) -> bool {
        self.pace(kind).trials < TRIALS && self.can_be_timed(kind, len_bytes)
    }

    /// Whether a segment is to go through the ring and be timed.
    pub fn is_ring_to_be_tried(&mut self, kind: RmaKind, len_bytes: u64) -> bool {
        if !self.can_be_timed(kind, len_bytes) {
            return false;
        }
        let pace = self.pace_mut(kind);
        pace.segments = pace.segments.wrapping_add(1);
        pace.trials < TRIALS || len_bytes <= TRIAL_BYTES_MAX && pace.segments.is_multiple_of(TRIAL_EVERY)
    }

    /// Notes how long a segment took that went through the ring to be timed.
    pub fn ring_tried(&mut self, trial: &Trial, now_ns: u64) {
        let ns_per_kib = (now_ns.saturating_sub(trial.began_ns) / (trial.len_bytes >> 10).max(1)).max(1);
        let pace = self.pace_mut(trial.kind);
        pace.ns_per_kib = match pace.trials {
            0 => ns_per_kib,
            // Processes may have moved to cores further apart, so a slower time is believed little by little.
            TRIALS.. if ns_per_kib > pace.ns_per_kib => (3 * pace.ns_per_kib + ns_per_kib) / 4,
            _ => pace.ns_per_kib.min(ns_per_kib),
        };
        pace.trials = pace.trials.saturating_add(1);
    }

    /// The length from which on a pull, which is one copy by the system in steps of a page, is faster than the ring. `u64::MAX`: none
    /// is, or that is not known yet.
    pub fn pays_from_bytes(&self, kind: RmaKind) -> u64 {
        let pace = self.pace(kind);
        if self.always && self.cost(kind).is_some() {
            return TRY_BYTES;
        }
        let Some(cost) = self.cost(kind).filter(|_| pace.trials >= TRIALS) else { return u64::MAX };
        let pull = u64::from(cost.ns_per_kib);
        if pace.ns_per_kib <= pull {
            return u64::MAX;
        }
        let kib = (u64::from(cost.ns_per_call) + EXTRA_NS).div_ceil(pace.ns_per_kib - pull);
        (kib << 10).next_multiple_of(STEP_BYTES).max(TRY_BYTES)
    }

    /// What is known, in words.
    pub fn describe(&self) -> String {
        let direction = |what: &str, kind, who: &str, pace: RingPace| {
            let Some(Cost { ns_per_call, ns_per_kib }) = self.cost(kind) else {
                return format!("; {what}: {who} does not");
            };
            let costs = format!("{ns_per_call} ns + {ns_per_kib} ns/KiB");
            match (pace.trials >= TRIALS, self.pays_from_bytes(kind)) {
                _ if self.always => format!("; {what}: {costs}, the device says cma = always"),
                (false, _) => format!("; {what}: {costs}, the ring is being timed"),
                (true, u64::MAX) => {
                    format!("; {what}: {costs}, not faster than the ring's {} ns/KiB", pace.ns_per_kib)
                }
                (true, bytes) => {
                    let (kib, ring) = (bytes >> 10, pace.ns_per_kib);
                    format!("; {what}: used from {kib} KiB on, {costs} against the ring's {ring} ns/KiB")
                }
            }
        };
        let reads = direction("reads", RmaKind::Read, "this side", self.reads);
        let writes = direction("writes", RmaKind::Write, "the peer", self.writes);
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
        // The number may belong to another process by now, and what that has must not be taken for the peer's.
        if process.is_alive() { Pulled::All } else { Pulled::PeerGone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
