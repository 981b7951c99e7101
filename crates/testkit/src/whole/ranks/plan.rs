//! What the ranks of a simulated job do: a list that follows from a seed, and gets shorter where it fails.

use super::super::scenario::Fabric;
use crate::rng::Rng;

/// Handlers of each context.
pub(super) const HANDLERS: u16 = 3;
const DEATH_PCT: f64 = 40.0;
/// Longest data of a message that is sent once, bytes; a flood has short ones.
const DATA_BYTES_MAX: u64 = 8_000;
const ACTS_MAX: u64 = 60;

/// What a rank does, or all of them. Each does what is its own in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Sends so many messages; each is answered, and the answer again, so many times.
    Send { from: usize, to: usize, is_named: bool, handler: u16, len: usize, count: u32, answers: u32 },
    /// Registers a handler, for which messages may have waited.
    Register { rank: usize, is_named: bool, handler: u16 },
    /// Adds one to a word of all and to one of its own, in one operation.
    Accumulate { from: usize, to: usize },
    /// Adds one to a word of all, and gets what that was.
    FetchAdd { from: usize, to: usize },
    /// Appends to what all append to.
    IndexedPut { from: usize, to: usize, len: usize },
    /// Writes to a place of its own, which has gaps or not.
    Put { from: usize, to: usize, has_gaps: bool },
    /// Reads what nobody changes.
    Get { from: usize, to: usize },
    /// What all members of a team do together.
    Collect { team: usize, together: Together, root: u32, len: usize },
    /// All wait for all.
    Barrier,
    /// Runs no handlers for so many turns, as whoever has a lock.
    Hold { rank: usize, turns: u32 },
}

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    Barrier,
    Broadcast,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
    Reduce,
    Allreduce,
    Scan,
}

const TOGETHER: [Together; 9] = [
    Together::Barrier,
    Together::Broadcast,
    Together::Gather,
    Together::Scatter,
    Together::Allgather,
    Together::Alltoall,
    Together::Reduce,
    Together::Allreduce,
    Together::Scan,
];

/// What happens in a run of the ranks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlan {
    pub(super) fabric: Fabric,
    /// Everything else follows from it: who has a turn when, what arrives when.
    pub(super) seed: u64,
    pub(super) ranks: usize,
    pub(super) acts: Vec<Act>,
    /// After so many turns this rank dies.
    pub(super) death: Option<(u64, usize)>,
}

impl RankPlan {
    /// Draws one.
    pub fn draw(fabric: Fabric, seed: u64) -> RankPlan {
        let mut rng = Rng::new(seed ^ 0x7261_6e6b);
        let ranks = rng.range(2, 5) as usize;
        let count = rng.range(1, ACTS_MAX);
        let acts = (0..count).map(|_| draw(&mut rng, ranks)).collect();
        let death = rng.pct(DEATH_PCT).then(|| (rng.below(1_500), rng.below(ranks as u64) as usize));
        RankPlan { fabric, seed, ranks, acts, death }
    }

    /// What everything else follows from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Leaves out whatever it fails without.
    #[must_use]
    pub fn shrink(mut self, fails: impl Fn(&RankPlan) -> bool) -> RankPlan {
        let alive = RankPlan { death: None, ..self.clone() };
        if self.death.is_some() && fails(&alive) {
            self = alive;
        }
        let mut chunk = self.acts.len().div_ceil(2);
        while chunk > 0 {
            let (mut at, mut is_shorter) = (0, false);
            while at < self.acts.len() {
                let mut candidate = self.clone();
                candidate.acts.drain(at..(at + chunk).min(self.acts.len()));
                if fails(&candidate) {
                    (self, is_shorter) = (candidate, true);
                } else {
                    at += chunk;
                }
            }
            chunk = match (chunk, is_shorter) {
                (1, false) => 0,
                (_, true) => chunk,
                _ => chunk.div_ceil(2),
            };
        }
        self
    }
}

fn draw(rng: &mut Rng, ranks: usize) -> Act {
    let [from, to, rank] = [(); 3].map(|()| rng.below(ranks as u64) as usize);
    let (is_named, handler) = (rng.pct(40.0), rng.below(HANDLERS.into()) as u16);
    match rng.below(100) {
        0..22 => {
            let len = if rng.pct(20.0) { rng.below(DATA_BYTES_MAX) } else { rng.below(100) } as usize;
            Act::Send { from, to, is_named, handler, len, count: 1, answers: rng.below(6) as u32 }
        }
        22..34 => {
            let (len, count) = (rng.below(40) as usize, rng.range(2, 500) as u32);
            Act::Send { from, to, is_named, handler, len, count, answers: rng.below(2) as u32 }
        }
        34..42 => Act::Register { rank, is_named, handler },
        42..52 => Act::Accumulate { from, to },
        52..58 => Act::FetchAdd { from, to },
        58..66 => {
            let max = rng.pick(&[40, 1_000, 30_000]);
            Act::IndexedPut { from, to, len: rng.range(8, max) as usize }
        }
        66..72 => Act::Put { from, to, has_gaps: rng.pct(60.0) },
        72..75 => Act::Get { from, to },
        75..90 => {
            let max = rng.pick(&[2, 20, 400]);
            let (team, together) = (rng.below(3) as usize, rng.pick(&TOGETHER));
            Act::Collect { team, together, root: rng.next_u64() as u32, len: 8 * rng.range(1, max) as usize }
        }
        90..94 => Act::Barrier,
        _ => Act::Hold { rank, turns: rng.range(1, 40) as u32 },
    }
}
