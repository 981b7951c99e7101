//! How much one process may have of what an endpoint has for all: requests that wait for the program, memory of rings, and memory
//! of connections with remote operations under way.

use crate::limits::REQUESTS_MAX;
use std::collections::HashMap;

/// One process may have this many times what it leaves to others. The number is high because a process that wants more is
/// refused, and a process that is alone may connect many times at once.
const SHARE: u32 = 8;

/// Requests that the program holds, counted by the process of each.
#[derive(Default)]
pub(super) struct Requests {
    by_process: HashMap<u64, u32>,
    total: u32,
}

impl Requests {
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Counts a request of this process. Returns false if it has too many already.
    pub fn enter(&mut self, process: u64) -> bool {
        let own = self.by_process.get(&process).copied().unwrap_or(0);
        let remaining = REQUESTS_MAX.saturating_sub(self.total);
        if own >= SHARE * remaining || self.by_process.try_reserve(1).is_err() {
            return false;
        }
        self.by_process.insert(process, own + 1);
        self.total += 1;
        true
    }

    /// Stops counting a request of this process, since the program has answered it.
    pub fn leave(&mut self, process: u64) {
        let Some(own) = self.by_process.get_mut(&process) else { return };
        *own -= 1;
        if *own == 0 {
            self.by_process.remove(&process);
        }
        self.total = self.total.saturating_sub(1);
    }
}

/// The memory of an endpoint's rings when another is to be made, in bytes.
pub(super) struct RingMemory {
    /// Memory that is left under the cap.
    pub remaining: u64,
    /// Memory of the rings for the process of the new one.
    pub of_process: u64,
}

impl RingMemory {
    /// Whether a ring of this size may be made.
    pub fn has_space_for(&self, bytes: u64) -> bool {
        let remaining_for_others = self.remaining.saturating_sub(bytes).saturating_mul(SHARE.into());
        bytes <= self.remaining && self.of_process.saturating_add(bytes) <= remaining_for_others
    }
}

/// The flows of an endpoint, by process. A connection has a flow while remote operations are under way on it, in either
/// direction. All flows together may take a part of the memory cap.
pub(super) struct Flows {
    max: u32,
    used: u32,
    by_process: HashMap<u64, u32>,
}

impl Flows {
    /// Allows as many flows of `bytes` each as fit into `bytes_max`, but at least one.
    pub fn new(bytes_max: u64, bytes: u64) -> Flows {
        let max = u32::try_from(bytes_max / bytes).unwrap_or(u32::MAX).max(1);
        Flows { max, used: 0, by_process: HashMap::new() }
    }

    pub fn max(&self) -> u32 {
        self.max
    }

    /// Counts a flow for this process. Returns false if there are too many, or this process has too many already.
    pub fn enter(&mut self, process: u64) -> bool {
        let own = self.by_process.get(&process).copied().unwrap_or(0);
        let remaining = self.max - self.used;
        if remaining == 0 || own >= SHARE.saturating_mul(remaining) || self.by_process.try_reserve(1).is_err()
        {
            return false;
        }
        self.by_process.insert(process, own + 1);
        self.used += 1;
        true
    }

    /// Stops counting a flow of this process.
    pub fn leave(&mut self, process: u64) {
        let Some(own) = self.by_process.get_mut(&process) else { return };
        *own -= 1;
        if *own == 0 {
            self.by_process.remove(&process);
        }
        self.used = self.used.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_has_all_requests_and_what_was_answered_counts_no_more() {
        let mut requests = Requests::default();
        let fill =
            |requests: &mut Requests, process| (0..).take_while(|_| requests.enter(process)).count() as u32;
        let first = fill(&mut requests, 1);
        assert_eq!(first, REQUESTS_MAX * SHARE / (SHARE + 1) + 1);
        let second = fill(&mut requests, 2);
        assert!(second > 100 && fill(&mut requests, 3) > 10, "{second}");
        assert!(requests.total() < REQUESTS_MAX);
        for _ in 0..first {
            requests.leave(1);
        }
        assert!(fill(&mut requests, 1) > 700);
        // One that is not known, or was answered twice.
        let total = requests.total();
        requests.leave(77);
        assert_eq!(requests.total(), total);
    }

    #[test]
    fn flows_of_one_process_leave_some_to_others() {
        let mut flows = Flows::new(100 * 4096 + 1, 4096);
        let fill = |flows: &mut Flows, process| (0..).take_while(|_| flows.enter(process)).count();
        assert_eq!((flows.max(), fill(&mut flows, 1), fill(&mut flows, 2)), (100, 89, 10));
        assert!(flows.enter(3) && !flows.enter(4));
        flows.leave(1);
        assert!(flows.enter(4));
        flows.leave(77);
        assert_eq!(flows.used, 100);
        assert_eq!(Flows::new(1, 4096).max(), 1, "one works with any cap");
    }

    #[test]
    fn rings_of_one_process_leave_as_much_to_others() {
        let memory = |remaining, of_process| RingMemory { remaining, of_process };
        assert!(memory(100, 0).has_space_for(88) && !memory(100, 0).has_space_for(89));
        assert!(memory(100, 720).has_space_for(8) && !memory(100, 740).has_space_for(8));
        assert!(!memory(100, u64::MAX).has_space_for(1) && !memory(0, 0).has_space_for(1));
    }
}
