//! How long what the program started may take, whatever its peer says.

use crate::Time;
use crate::limits::progress_ns;
use crate::time::{ns_between, ticks};

/// The time that every send and every remote operation of a connection has.
//= wire.md R-DUE-1
#[derive(Copy, Clone, Debug)]
pub(crate) struct Deadline {
    pub timeout_ns: u64,
    /// For how long the receiver has taken data again; very long if it always did, or refuses now.
    ready_ns: u64,
}

impl Deadline {
    /// `ready_since`: when the receiver's last refusal ended; `None` if it refuses now.
    pub fn new(timeout_ns: u64, ready_since: Option<Time>, now: Time) -> Deadline {
        Deadline { timeout_ns, ready_ns: ready_since.map_or(u64::MAX, |since| now.since(since)) }
    }

    /// What counts of the time that something has waited. A refusal that is over does not count, up to one send timeout:
    /// however often the peer refuses, nothing waits for more than two.
    //= wire.md R-DUE-2, R-LOSS-6
    pub fn counted_ns(self, waited_ns: u64) -> u64 {
        waited_ns.min(self.ready_ns.max(waited_ns.saturating_sub(self.timeout_ns)))
    }

    /// What counts of the time that something has waited of which our program knows nothing: no refusal does.
    pub fn refused_ns(self, waited_ns: Option<u64>) -> u64 {
        waited_ns.unwrap_or(0).min(self.ready_ns)
    }

    /// Whether something has waited for so long that it ends although the receiver refuses it or has just done so.
    pub fn is_far_past(self, waited_ns: u64) -> bool {
        waited_ns >= self.timeout_ns.saturating_mul(2)
    }
}

/// Up to when the peer has done what it must: remote operations count their time from there. It moves on with what the peer
/// does, no faster than the least rate allows and never beyond now. So whoever keeps to the rate is not hurried, and
/// whoever does not can gain no more time than there are bytes to be moved.
//= wire.md R-DUE-3
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Progress {
    at_ticks: u32,
    /// Progress that is less than a tick, in nanoseconds.
    remainder_ns: u32,
}

impl Progress {
    /// Nothing was under way until now.
    pub fn restart(&mut self, now_ticks: u32) {
        *self = Progress { at_ticks: now_ticks, remainder_ns: 0 };
    }

    /// Notes that `bytes` bytes were sent or have come.
    #[inline]
    pub fn note(&mut self, bytes: u64, now_ticks: u32) {
        let moved_ns = progress_ns(bytes) + u64::from(self.remainder_ns);
        if moved_ns >= self.behind_ns(now_ticks) {
            return self.restart(now_ticks);
        }
        let moved_ticks = ticks(moved_ns);
        self.at_ticks = self.at_ticks.wrapping_add(moved_ticks);
        self.remainder_ns = (moved_ns - ns_between(0, moved_ticks)) as u32;
    }

    /// How far it is behind.
    pub fn behind_ns(self, now_ticks: u32) -> u64 {
        ns_between(self.at_ticks, now_ticks)
    }

    /// What began more than `timeout_ns` ago has ended: nothing is counted from before that any more.
    pub fn forget_before(&mut self, timeout_ns: u64, now_ticks: u32) {
        if self.behind_ns(now_ticks) > timeout_ns {
            self.restart(now_ticks.wrapping_sub(ticks(timeout_ns)));
        }
    }
}
