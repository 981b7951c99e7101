//! How much of its peers' memory an endpoint maps. The pages belong to the peers. But if a peer removes them from the file, this
//! process pays for those that it touches then. So everything that is mapped counts under the endpoint's cap, and a single
//! process can't use up what may be mapped.

use crate::engine::charge::{Charge, ChargedBytes};
use std::collections::HashMap;

/// The part of an endpoint's cap that mapped memory of peers may take.
const MAPPED_SHARE: u64 = 2;

/// The mapped memory of an endpoint's peers, by the process that it came from: granted memory, and what loans are in. A mapping
/// counts until it ends, which may be later than the end of its link.
#[derive(Default)]
pub(in crate::transport::shm) struct MappedBytes {
    all: ChargedBytes,
    by_process: HashMap<u64, ChargedBytes>,
    /// The part of all that loans are in.
    loans: ChargedBytes,
}

impl MappedBytes {
    pub fn total(&self) -> u64 {
        self.all.total()
    }

    /// What loans are in.
    pub fn of_loans(&self) -> u64 {
        self.loans.total()
    }

    /// How much is mapped of a process.
    pub fn of_process(&self, process: u64) -> u64 {
        self.by_process.get(&process).map_or(0, ChargedBytes::total)
    }

    /// The sum for a process, which is a part of that of all.
    pub fn account(&mut self, process: u64) -> ChargedBytes {
        if let Some(known) = self.by_process.get(&process) {
            return known.clone();
        }
        self.by_process.retain(|_, sum| !sum.is_unused());
        if self.by_process.try_reserve(1).is_err() {
            // It counts under the cap all the same.
            return self.all.clone();
        }
        self.by_process.entry(process).or_insert(self.all.part()).clone()
    }

    /// Counts memory that a process lends messages in.
    pub fn charge_loans(&mut self, process: u64, bytes: u64) -> [Charge; 2] {
        [self.account(process).charge(bytes), self.loans.charge(bytes)]
    }
}

/// How much memory an endpoint holds when a peer wants some mapped, in bytes.
pub(in crate::transport::shm) struct Held {
    pub cap_bytes: u64,
    /// Memory of all kinds, including mapped memory.
    pub total_bytes: u64,
    /// Mapped memory of all peers.
    pub mapped_bytes: u64,
    /// Mapped memory of the process that wants more mapped.
    pub of_process_bytes: u64,
    /// Whether no other process has a link, and nothing is mapped without a link.
    pub is_alone: bool,
}

impl Held {
    /// The longest mapping that may be added for the process. Unless it is alone, no more is mapped of it than is left for others
    /// (ADR 19).
    pub fn space_bytes(&self) -> u64 {
        let mapped_remaining = (self.cap_bytes / MAPPED_SHARE).saturating_sub(self.mapped_bytes);
        let remaining = mapped_remaining.min(self.cap_bytes.saturating_sub(self.total_bytes));
        if self.is_alone { remaining } else { remaining.saturating_sub(self.of_process_bytes) / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_cap_is_for_mappings_and_nobody_has_all_of_it() {
        let held = |mapped_bytes, of_process_bytes, is_alone| Held {
            cap_bytes: 1000,
            total_bytes: 300 + mapped_bytes,
            mapped_bytes,
            of_process_bytes,
            is_alone,
        };
        assert_eq!(held(0, 0, true).space_bytes(), 500);
        assert_eq!(held(400, 400, true).space_bytes(), 100);
        assert_eq!(held(500, 500, true).space_bytes(), 0);
        // One after the other: the first process leaves as much as it has.
        assert_eq!(held(0, 0, false).space_bytes(), 250);
        assert_eq!(held(250, 250, false).space_bytes(), 0);
        assert_eq!(held(250, 0, false).space_bytes(), 125);
        // If other kinds have most of the cap, less may be mapped.
        let full =
            Held { cap_bytes: 1000, total_bytes: 950, mapped_bytes: 0, of_process_bytes: 0, is_alone: true };
        assert_eq!(full.space_bytes(), 50);
        assert_eq!(Held { total_bytes: 2000, ..full }.space_bytes(), 0);
    }

    #[test]
    fn what_is_mapped_counts_for_its_process_and_processes_without_any_are_forgotten() {
        let mut mapped = MappedBytes::default();
        let kept = mapped.charge_loans(1, 10);
        let granted = mapped.account(1).charge(5);
        let of_other = mapped.account(2).charge(7);
        assert_eq!((mapped.of_process(1), mapped.of_process(2), mapped.of_process(3)), (15, 7, 0));
        assert_eq!((mapped.total(), mapped.of_loans()), (22, 10));
        drop((granted, of_other));
        assert_eq!((mapped.of_process(1), mapped.of_process(2), mapped.total()), (10, 0, 10));
        for process in 3..1000 {
            mapped.account(process);
        }
        assert_eq!(mapped.by_process.len(), 2, "the one with a loan, and the last");
        drop(kept);
        assert_eq!((mapped.of_process(1), mapped.total(), mapped.of_loans()), (0, 0, 0));
    }
}
