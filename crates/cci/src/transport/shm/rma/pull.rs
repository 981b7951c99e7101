//! Reading the peer's memory by a system call, for memory that can't be mapped. Each side only ever reads: a write is
//! pulled by its target.
//!
//! The first operation that is long enough makes the two try it on each other (a word whose place and value they tell
//! each other through the ring): containers, Yama, other users or no such system call are found out that way, and
//! what it costs against the ring. Until then, and where it does not work, bytes go through the ring.

use cci_ring::memory::{Backing, Bytes, Foreign};
use cci_sys::cma::{self, Cost, Probe, Process};
use cci_sys::{SysError, clock, random};

/// Shorter ones never make the two try it.
pub(in crate::transport::shm) const TRY_BYTES: u64 = 2 << 10;
/// What a pull costs beside its system call: a record there and one back, instead of data.
const EXTRA_NS: u64 = 400;
/// What the ring costs for each KiB beside its copies: lines that go from core to core, and back to be written anew. As
/// measured with `examples/rma_paths` (see the ADR); to measure it here would take the peer's help, and its time.
const RING_NS_PER_KIB: u64 = 120;
/// Lengths from which on something pays are rounded to this.
const STEP_BYTES: u64 = 4 << 10;
/// For measuring how fast memory is copied.
const SAMPLE_BYTES: usize = 64 << 10;

/// A word of ours that peers look for, to find out whether they can read our memory.
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
    /// The peer was asked.
    pub asked: bool,
    /// From this length on we pull what we read; u64::MAX: never.
    pub ours_from_bytes: u64,
    /// From this length on the peer pulls what we write.
    pub theirs_from_bytes: u64,
    /// What our own trial came to.
    pub found: String,
    tried: bool,
    pub pulled: u64,
}

impl Pull {
    pub fn new() -> Pull {
        Pull {
            process: None,
            asked: false,
            ours_from_bytes: u64::MAX,
            theirs_from_bytes: u64::MAX,
            found: "not tried yet: no operation was long enough".to_owned(),
            tried: false,
            pulled: 0,
        }
    }

    /// Tries to read the peer's word. Once: a peer can't make us do it again and again.
    pub fn try_it(&mut self, allowed: bool, pid: Option<u32>, address: u64, value: u64) {
        if std::mem::replace(&mut self.tried, true) {
            return;
        }
        let Some(pid) = pid.filter(|_| allowed) else {
            let why =
                if allowed { "the peer's process is not visible here" } else { "this device says cma = off" };
            self.found = why.to_owned();
            return;
        };
        // Opened first: whoever passes the probe is then this process.
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(error) => {
                self.found = error.to_string();
                return;
            }
        };
        match cma::probe(pid, address, value) {
            Probe::Works(cost) if process.is_alive() => {
                self.ours_from_bytes = from_bytes(cost, copy_ns_per_kib());
                self.found = describe(cost, self.ours_from_bytes);
                self.process = Some(process);
            }
            Probe::Works(_) => self.found = "the peer's process has ended".to_owned(),
            Probe::Refused(why) => self.found = format!("refused by the system: {why}"),
        }
    }

    /// Reads all of `to` from the peer's memory. False: it can't be read, or it was not the peer's.
    pub fn pull(&mut self, from: u64, to: &Bytes) -> bool {
        let Some(process) = &self.process else { return false };
        let mut done = 0;
        while done < to.len() {
            let at = from.wrapping_add(done as u64);
            match cma::read_from(process.pid(), at, to, done, to.len() - done) {
                Ok(count) => done += count,
                Err(_) => return false,
            }
        }
        self.pulled += 1;
        // What another process with the same number had is not to be believed.
        process.is_alive()
    }
}

/// From which length on a pull, one copy by the system in page-sized steps, is faster than the ring.
fn from_bytes(cost: Cost, copy_ns_per_kib: u64) -> u64 {
    let ring = ring_ns_per_kib(copy_ns_per_kib);
    let pull = u64::from(cost.ns_per_kib);
    if ring <= pull {
        return u64::MAX;
    }
    let kib = (u64::from(cost.ns_per_call) + EXTRA_NS).div_ceil(ring - pull);
    (kib << 10).next_multiple_of(STEP_BYTES).max(TRY_BYTES)
}

/// Into the ring and out of it; the two copies of a long transfer go on at the same time, but not those of a short one.
fn ring_ns_per_kib(copy_ns_per_kib: u64) -> u64 {
    2 * copy_ns_per_kib + RING_NS_PER_KIB
}

fn describe(cost: Cost, from_bytes: u64) -> String {
    let Cost { ns_per_call, ns_per_kib } = cost;
    let ring = ring_ns_per_kib(copy_ns_per_kib());
    let used = match from_bytes {
        u64::MAX => "never faster than the ring".to_owned(),
        bytes => format!("used from {} KiB on", bytes >> 10),
    };
    format!("process_vm_readv works, {used}: {ns_per_call} ns + {ns_per_kib} ns/KiB against {ring} ns/KiB")
}

/// What a copy of memory costs here.
fn copy_ns_per_kib() -> u64 {
    let (from, to) = (vec![1; SAMPLE_BYTES], vec![0; SAMPLE_BYTES]);
    let (from, to) = (Foreign::owned(from.into_boxed_slice()), Foreign::owned(to.into_boxed_slice()));
    let mut best_ns = u64::MAX;
    for _ in 0..8 {
        let start_ns = clock::now_ns();
        let copied = to.bytes().copy_from(0, &from.bytes(), 0, SAMPLE_BYTES);
        debug_assert!(copied, "of the same length");
        best_ns = best_ns.min(clock::now_ns() - start_ns);
    }
    (best_ns / (SAMPLE_BYTES as u64 >> 10)).max(1)
}
