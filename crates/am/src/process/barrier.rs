//! Barriers of all ranks, by dissemination (Hensgen, Finkel and Manber, 1988). In round `k` each rank informs the one that is
//! `2^k` further on that it has arrived, and waits for the same from the one that far behind. After the last round it has heard
//! from all.

/// The state of this rank's barriers. Records of other ranks may be ahead by one barrier, and no more: their arrival there needs
/// this rank's arrival here.
#[derive(Default)]
pub(crate) struct Barrier {
    /// The barrier that this process is in, or will be in next.
    number: u32,
    /// Whether it is in a barrier.
    is_inside: bool,
    /// The round of which the next record is expected.
    round: u8,
    /// Bits of the rounds that were heard of, and of those in which not all was idle: for this barrier and the next.
    heard: [u32; 2],
    busy: [u32; 2],
    /// Whether a rank was not idle: this one, or one that it has heard of in earlier rounds.
    is_busy: bool,
}

/// A record of an arrival for a rank.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub to: u32,
    pub number: u32,
    pub round: u8,
    pub is_busy: bool,
}

impl Barrier {
    pub fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// Begins a barrier, and returns its number. How this rank arrives there is decided next.
    pub fn begin(&mut self) -> u32 {
        self.is_inside = true;
        self.number
    }

    /// The barrier that this rank is in, or will be in next.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Ends the barrier, since all are known to have arrived in another way.
    pub fn pass(&mut self) {
        self.is_inside = false;
        self.number = self.number.wrapping_add(1);
        self.heard = [self.heard[1], 0];
        self.busy = [self.busy[1], 0];
    }

    /// Arrives by records. `is_busy` says whether this rank has something under way.
    pub fn enter(&mut self, is_busy: bool, rank: u32, size: u32) -> Option<Arrival> {
        self.is_inside = true;
        self.round = 0;
        self.is_busy = is_busy;
        self.arrival(rank, size)
    }

    //= wire.md R-AM-7
    /// The record that this rank sends in its round. `None` if there are no more rounds.
    fn arrival(&self, rank: u32, size: u32) -> Option<Arrival> {
        let distance = 1_u32.checked_shl(self.round.into()).filter(|&distance| distance < size)?;
        let to = ((u64::from(rank) + u64::from(distance)) % u64::from(size)) as u32;
        Some(Arrival { to, number: self.number, round: self.round, is_busy: self.is_busy })
    }

    /// Handles a record that a rank has arrived. Returns false if it can't have arrived.
    pub fn hear(&mut self, number: u32, round: u8, is_busy: bool) -> bool {
        let ahead = number.wrapping_sub(self.number);
        let Some(bit) = 1_u32.checked_shl(round.into()) else { return false };
        let (Some(heard), Some(busy)) =
            (self.heard.get_mut(ahead as usize), self.busy.get_mut(ahead as usize))
        else {
            return false;
        };
        let is_new = *heard & bit == 0;
        *heard |= bit;
        if is_busy {
            *busy |= bit;
        }
        is_new
    }

    /// Moves on to the next round, if this one's record has come. Returns the record to send there. Call it until it returns
    /// `None`.
    pub fn next(&mut self, rank: u32, size: u32) -> Option<Arrival> {
        if !self.is_inside || self.rounds_left(size) == 0 || self.heard[0] >> self.round & 1 == 0 {
            return None;
        }
        self.is_busy |= self.busy[0] >> self.round & 1 != 0;
        self.round += 1;
        self.arrival(rank, size)
    }

    /// If all have arrived, leaves the barrier and returns whether all were idle.
    pub fn leave(&mut self, size: u32) -> Option<bool> {
        if !self.is_inside || self.rounds_left(size) > 0 {
            return None;
        }
        self.pass();
        Some(!self.is_busy)
    }

    fn rounds_left(&self, size: u32) -> u32 {
        let rounds = u32::BITS - size.saturating_sub(1).leading_zeros();
        rounds.saturating_sub(self.round.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Ranks enter in an order that `seed` gives. Records arrive late, and in any order of senders. Returns what each rank learns
    /// of all.
    fn run(size: u32, barriers: u32, busy: Option<u32>, seed: u64) -> Vec<Vec<bool>> {
        let mut all: Vec<Barrier> = (0..size).map(|_| Barrier::default()).collect();
        let mut wires: Vec<VecDeque<Arrival>> = (0..size * size).map(|_| VecDeque::new()).collect();
        let mut left = vec![Vec::new(); size as usize];
        let mut random = seed;
        for _ in 0..2_000_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let rank = (random >> 33) as u32 % size;
            let barrier = &mut all[rank as usize];
            let done = &mut left[rank as usize];
            let mut said = Vec::new();
            if !barrier.is_inside() && done.len() < barriers as usize {
                said.extend(barrier.enter(busy == Some(rank), rank, size));
            }
            let from = (random >> 45) as u32 % size;
            if let Some(heard) = wires[(from * size + rank) as usize].pop_front() {
                assert!(barrier.hear(heard.number, heard.round, heard.is_busy));
            }
            while let Some(arrival) = barrier.next(rank, size) {
                said.push(arrival);
            }
            if let Some(idle) = barrier.leave(size) {
                done.push(idle);
            }
            for arrival in said {
                wires[(rank * size + arrival.to) as usize].push_back(arrival);
            }
            if left.iter().all(|done| done.len() == barriers as usize) {
                return left;
            }
            let (least, most) = (left.iter().map(Vec::len).min(), left.iter().map(Vec::len).max());
            assert!(most <= least.map(|least| least + 1), "nobody leaves before all have entered");
        }
        panic!("it does not end: {size} ranks, seed {seed}");
    }

    #[test]
    fn all_leave_and_know_whether_all_were_idle() {
        for size in [1, 2, 3, 4, 5, 8, 13] {
            for seed in 0..20 {
                assert!(run(size, 3, None, seed).iter().flatten().all(|&idle| idle), "{size}, seed {seed}");
                let busy = run(size, 2, Some(seed as u32 % size), seed);
                assert!(busy.iter().flatten().all(|&idle| !idle), "{size}, seed {seed}");
            }
        }
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let mut barrier = Barrier::default();
        assert!(barrier.hear(0, 0, false) && barrier.hear(1, 0, false));
        assert!(!barrier.hear(0, 0, false), "twice");
        assert!(!barrier.hear(2, 0, false) && !barrier.hear(u32::MAX, 0, false), "too far ahead, long past");
        assert!(!barrier.hear(0, 32, false), "a round that no job has");
    }
}
