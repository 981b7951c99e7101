//! Barriers among all ranks, by dissemination (Hensgen, Finkel and Manber, 1988): in round `k` each rank tells the one that is `2^k` further
//! on that it has arrived, and waits to hear the same from the one that far behind. After the last round it has heard of all.

/// What came from other ranks may be ahead of this one by one barrier, and by no more: its arrival there needs this one's here.
#[derive(Default)]
pub(crate) struct Barrier {
    /// Which one this process is in, or will be in next.
    number: u32,
    /// Is in one.
    is_inside: bool,
    /// The next round to be heard of.
    round: u8,
    /// Heard of, by bits, and of what not all was idle: of this barrier and the next.
    heard: [u32; 2],
    busy: [u32; 2],
    /// Somebody was not idle: this rank, or one that it has heard of in rounds before.
    is_busy: bool,
}

/// An arrival that is to be told to a rank.
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

    /// This rank is in a barrier, of which this returns the number. How it arrives there is decided next.
    pub fn begin(&mut self) -> u32 {
        self.is_inside = true;
        self.number
    }

    /// Which barrier this rank is in, or will be in next.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// All have arrived, as was found out in another way.
    pub fn pass(&mut self) {
        self.is_inside = false;
        self.number = self.number.wrapping_add(1);
        self.heard = [self.heard[1], 0];
        self.busy = [self.busy[1], 0];
    }

    /// This rank arrives by records. It says of itself whether it has something under way.
    pub fn enter(&mut self, is_busy: bool, rank: u32, size: u32) -> Option<Arrival> {
        self.is_inside = true;
        self.round = 0;
        self.is_busy = is_busy;
        self.arrival(rank, size)
    }

    //= wire.md R-AM-7
    /// What this rank says in the round that it is in. None: there are no more.
    fn arrival(&self, rank: u32, size: u32) -> Option<Arrival> {
        let distance = 1_u32.checked_shl(self.round.into()).filter(|&distance| distance < size)?;
        let to = ((u64::from(rank) + u64::from(distance)) % u64::from(size)) as u32;
        Some(Arrival { to, number: self.number, round: self.round, is_busy: self.is_busy })
    }

    /// A rank says that it has arrived. False: it can't have.
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

    /// Goes on to the next round, if this one's word has come: returns what is to be said there. Ask until there is nothing.
    pub fn next(&mut self, rank: u32, size: u32) -> Option<Arrival> {
        if !self.is_inside || self.rounds_left(size) == 0 || self.heard[0] >> self.round & 1 == 0 {
            return None;
        }
        self.is_busy |= self.busy[0] >> self.round & 1 != 0;
        self.round += 1;
        self.arrival(rank, size)
    }

    /// If all have arrived: leaves, and returns whether all were idle.
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

    /// Ranks enter in an order by `seed`; words arrive late and in any order of senders. Returns what each was told of all.
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
