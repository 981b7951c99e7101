//! Shares what all connections use: receive buffers and remote operations. While they are scarce, a connection gets one more only if it
//! holds fewer than are free (Choudhury and Hahne's dynamic threshold). So neither a peer that floods, nor one whose messages the program
//! keeps, locks others out; see ADR 0019.
//!
//! While more than half are free, nobody can hold more than are free, and nothing is counted. Below that, who holds how many is counted by
//! a look at each, so seldom that it adds a few nanoseconds to a message. Between two counts it is known how many were taken and returned,
//! but not who had those that were returned.

use crate::connection::Connection;
use cci_memory::fallible;

/// Bits of a holder's number that are its connection's index; the others are of its generation.
const INDEX_BITS: u32 = 22;
const _: () = assert!(crate::limits::CONNECTIONS_MAX <= 1 << INDEX_BITS && INDEX_BITS < 29);
const _: () = assert!(cci_memory::pool::HOLDER_MAX == (1 << 29) - 1);

/// The number of no holder.
const NOBODY: u32 = u32::MAX;
/// Counts may be wrong by one in this many of the buffers that are free, since buffers are returned, or taken without a note.
const SLACK: u32 = 4;

/// The number by which the buffers of a connection are known. Buffers of one that ended before, in the same slot of the
/// table, are nobody's: the program has them, and no connection can be blamed for it.
#[inline]
pub(crate) fn holder(connection: Connection) -> u32 {
    (connection.generation << INDEX_BITS | connection.index) & cci_memory::pool::HOLDER_MAX
}

/// How many buffers each connection holds, as far as it was counted.
pub(super) struct Quotas {
    /// A table with open addressing, at most three quarters full.
    held: Box<[(u32, u32)]>,
    holders: usize,
    /// Buffers ever taken, and those free, at the last count.
    counted_at: u64,
    free_then: u32,
    /// Taken since, by those whom the table knows of.
    noted: u64,
}

impl Quotas {
    /// For so many buffers. None: there is no memory.
    pub fn new(buffers: u32) -> Option<Quotas> {
        let slots = 2 * buffers.next_power_of_two() as usize;
        let held = fallible::filled(slots, (NOBODY, 0)).ok()?;
        Some(Quotas { held, holders: 0, counted_at: 0, free_then: 0, noted: 0 })
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.held)
    }

    /// Whether `holder` may have one of those that are `free`. `taken`: how many were ever taken; `each_out` calls its argument with the holder of
    /// each that is not free.
    pub fn may_take(
        &mut self,
        holder: u32,
        free: u32,
        taken: u64,
        each_out: impl FnOnce(&mut dyn FnMut(u32)),
    ) -> bool {
        let unnoted = taken.wrapping_sub(self.counted_at).saturating_sub(self.noted);
        let held = self.held_by(holder);
        if self.counted_at != 0 && u64::from(held) + unnoted < u64::from(free) {
            return true;
        }
        let returned = u64::from(free) + unnoted + self.noted;
        let changed = returned.saturating_sub(u64::from(self.free_then)) + unnoted;
        let full = self.holders * 4 > self.held.len() * 3;
        if self.counted_at != 0 && changed < u64::from(free / SLACK).max(1) && !full {
            return held < free;
        }
        self.count(free, taken, each_out);
        self.held_by(holder) < free
    }

    /// It has taken one.
    pub fn took(&mut self, holder: u32) {
        self.noted += 1;
        self.add(holder);
    }

    fn count(&mut self, free: u32, taken: u64, each_out: impl FnOnce(&mut dyn FnMut(u32))) {
        self.held.fill((NOBODY, 0));
        (self.holders, self.noted, self.counted_at) = (0, 0, taken);
        each_out(&mut |holder| self.add(holder));
        self.free_then = free;
    }

    fn add(&mut self, holder: u32) {
        let (at, slots) = (self.slot_of(holder), self.held.len());
        let Some((who, count)) = self.held.get_mut(at) else { return };
        if *who == NOBODY {
            if (self.holders + 1) * 8 > slots * 7 {
                // Kept from filling up, as lookups end at a free slot. It is counted anew before long.
                return;
            }
            *who = holder;
            self.holders += 1;
        }
        *count += 1;
    }

    fn held_by(&self, holder: u32) -> u32 {
        self.held.get(self.slot_of(holder)).map_or(0, |(_, count)| *count)
    }

    /// Where it is in the table, or would be.
    fn slot_of(&self, holder: u32) -> usize {
        let mask = self.held.len() - 1;
        // Fibonacci hashing: neighbours in the table of connections come to lie far apart.
        let mut at = (u64::from(holder).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.held.get(at).is_some_and(|(who, _)| *who != holder && *who != NOBODY) {
            at = (at + 1) & mask;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::receive::{Filled, ReceiveBuffers};

    fn connection(index: u32) -> Connection {
        Connection { index, generation: 1 }
    }

    /// What the engine does for a message.
    struct Receiver {
        buffers: ReceiveBuffers,
        quotas: Quotas,
        taken: u64,
        out: Vec<(u32, cci_memory::pool::Slot)>,
    }

    impl Receiver {
        fn new(buffers: u32) -> Receiver {
            let quotas = Quotas::new(buffers).unwrap();
            Receiver { buffers: ReceiveBuffers::new(buffers, 64).unwrap(), quotas, taken: 1, out: Vec::new() }
        }

        fn message(&mut self, index: u32, noted: bool) -> bool {
            let holder = holder(connection(index));
            let (free, count) = (self.buffers.free_count(), self.buffers.count());
            let scarce = free * 2 <= count;
            let each_out = |visit: &mut dyn FnMut(u32)| self.buffers.each_out(visit);
            if free == 0 || scarce && !self.quotas.may_take(holder, free, self.taken, each_out) {
                return false;
            }
            if scarce && noted {
                self.quotas.took(holder);
            }
            self.taken += 1;
            match self.buffers.take(holder, 1, |_| {}).unwrap() {
                Filled::Parked(parked) => {
                    let slot = self.buffers.unpark(parked).unwrap();
                    self.out.push((index, slot));
                }
                Filled::Slot(slot) => self.out.push((index, slot)),
            }
            true
        }

        fn held_by(&self, index: u32) -> usize {
            self.out.iter().filter(|(who, _)| *who == index).count()
        }
    }

    #[test]
    fn one_that_floods_leaves_half_and_two_leave_a_third() {
        for buffers in [2, 7, 64, 1000] {
            let mut receiver = Receiver::new(buffers);
            while receiver.message(1, true) {}
            assert_eq!(receiver.held_by(1), buffers.div_ceil(2) as usize);
            while receiver.message(2, true) {}
            assert!(receiver.held_by(2) >= buffers as usize / 4, "{}", receiver.held_by(2));
            assert!(receiver.message(3, true) || receiver.buffers.free_count() == 0, "a third finds room");
        }
    }

    #[test]
    fn what_comes_back_may_be_taken_again() {
        let mut receiver = Receiver::new(64);
        while receiver.message(1, true) {}
        assert!(!receiver.message(1, true));
        receiver.out.clear();
        let mut again = 0;
        while receiver.message(1, true) {
            again += 1;
        }
        assert_eq!(again, 32);
    }

    /// Against a simple count of everything, for a long time, with and without notes.
    #[test]
    fn decisions_are_right_but_for_the_slack() {
        let mut state = 0x1234_5678_9abc_def1_u64;
        let mut next = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for buffers in [4, 33, 256] {
            let mut receiver = Receiver::new(buffers);
            for _ in 0..20_000 {
                if next(5) < 2 && !receiver.out.is_empty() {
                    let at = next(receiver.out.len() as u64) as usize;
                    receiver.out.swap_remove(at);
                    continue;
                }
                // Three that flood, and many that say a word now and then.
                let index = if next(4) > 0 { next(3) as u32 } else { 10 + next(90) as u32 };
                let (held, free) = (receiver.held_by(index), receiver.buffers.free_count() as usize);
                let noted = next(3) > 0;
                let took = receiver.message(index, noted);
                let slack = free / SLACK as usize;
                assert!(took || held + slack >= free, "{held} held, {free} free: refused");
                assert!(!took || held < free + slack.max(1) || free * 2 > buffers as usize);
            }
        }
    }
}
