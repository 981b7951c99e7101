//! Which core each of the two processes runs on.

use crate::failure::{Failure, Outcome};
use cci_sys::cpu;

/// The two cores that both sides of a measurement are pinned to.
#[derive(Debug, Clone, Copy)]
pub struct Cores {
    /// Cores this process could use before it was pinned.
    pub available: usize,
    /// Each process has a core to itself, so both may poll.
    pub can_spin: bool,
    /// Where this process is pinned.
    pub mine: Option<usize>,
    /// Where the other process is to be pinned, if it is ours.
    pub theirs: Option<usize>,
}

impl Cores {
    /// This process on one core, the other one on another, so that neither is moved nor waits for the other. Pins
    /// nothing where there are not two cores, or where that is not wanted.
    pub fn pin(wanted: bool, other_is_ours: bool) -> Outcome<Cores> {
        // To be asked before pinning: afterwards the answer is one.
        let available = cpu::available();
        let can_spin = available >= 2;
        let free = Cores { available, can_spin, mine: None, theirs: None };
        let allowed = cpu::allowed().unwrap_or_default();
        let &[mine, theirs, ..] = allowed.as_slice() else { return Ok(free) };
        if !wanted || !can_spin {
            return Ok(free);
        }
        cpu::pin(mine).map_err(|error| Failure::from(error).remedy("--no-pin"))?;
        Ok(Cores { mine: Some(mine), theirs: other_is_ours.then_some(theirs), ..free })
    }
}
