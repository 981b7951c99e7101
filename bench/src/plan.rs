//! How long and how often is measured.

use crate::work::Work;

/// Rounds of works whose one turn takes many seconds and whose result hardly varies.
const LONG_ROUNDS_MAX: u32 = 3;

/// How long and how often is measured.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Turns of each contestant.
    pub rounds: u32,
    /// About how long one turn measures, milliseconds.
    pub turn_ms: u32,
}

impl Plan {
    /// Rounds of this work.
    pub fn rounds_of(&self, work: Work) -> u32 {
        match work {
            Work::Poll { .. } | Work::IdleMemory { .. } => self.rounds.min(LONG_ROUNDS_MAX),
            _ => self.rounds,
        }
    }
}
