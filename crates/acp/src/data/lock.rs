//! Locks in global memory. The word of a lock says which rank has it. A rank that dies with a lock does not keep it for ever.

use crate::address::GlobalAddress;
use crate::error::Result;
use crate::space::Space;

/// The word of a free lock.
pub(crate) const FREE: u64 = 0;
/// After this many attempts, a rank asks whether the rank that has the lock is gone.
const TRIES_PATIENT: u32 = 128;

/// How the previous holder of the lock gave it up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Its holder gave it back.
    Released,
    /// Its holder has died. The data that the lock protects may be half changed.
    Died,
}

/// Waits until this rank has the lock.
pub(crate) fn acquire(space: &mut impl Space, at: GlobalAddress) -> Result<Before> {
    let own = u64::from(space.rank()) + 1;
    let mut tries = 0_u32;
    loop {
        let holder = space.compare_swap(at, FREE, own)?;
        if holder == FREE {
            return Ok(Before::Released);
        }
        tries = tries.wrapping_add(1);
        let is_lost = tries.is_multiple_of(TRIES_PATIENT) && has_lost(space, holder)?;
        if is_lost && space.compare_swap(at, holder, own)? == holder {
            return Ok(Before::Died);
        }
        space.pause(tries)?;
    }
}

/// Whether the holder of a lock is gone. A number that no rank has counts as gone.
fn has_lost(space: &mut impl Space, holder: u64) -> Result<bool> {
    match u32::try_from(holder - 1) {
        Ok(rank) if rank < space.size() => space.has_died(rank),
        _ => Ok(true),
    }
}

/// Gives a lock back.
pub(crate) fn release(space: &mut impl Space, at: GlobalAddress) -> Result<()> {
    space.write_words(at, [FREE])
}

/// Runs a function while this rank has the lock, and releases the lock, also after a failure.
pub(crate) fn with<S: Space, T>(
    space: &mut S,
    at: GlobalAddress,
    act: impl FnOnce(&mut S, Before) -> Result<T>,
) -> Result<T> {
    let before = acquire(space, at)?;
    let done = act(space, before);
    let back = release(space, at);
    let done = done?;
    back.map(|()| done)
}
