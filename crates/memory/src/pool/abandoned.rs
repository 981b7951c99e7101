//! Pools that were dropped on another thread than their home while slots were out. Nobody counts the slots that come in since
//! then, so they are looked at when a pool is made, and when another one is abandoned.

use super::Abandoned;

#[cfg(not(loom))]
static ABANDONED: std::sync::Mutex<Vec<Abandoned>> = std::sync::Mutex::new(Vec::new());

/// How often to try before memory is rather lost than waited for.
#[cfg(not(loom))]
const TRIES: u32 = 10_000;

/// The list. Not by waiting: in a fork child whoever held it may not exist. `None`: it is taken.
#[cfg(not(loom))]
fn list() -> Option<std::sync::MutexGuard<'static, Vec<Abandoned>>> {
    use std::sync::TryLockError::{Poisoned, WouldBlock};
    match ABANDONED.try_lock() {
        Ok(list) => Some(list),
        Err(Poisoned(list)) => Some(list.into_inner()),
        Err(WouldBlock) => None,
    }
}

/// Frees those whose slots are in.
#[cfg(not(loom))]
pub(super) fn sweep() {
    if let Some(mut pools) = list() {
        pools.retain_mut(|pools| !pools.try_free());
    }
}

/// Leaves a pool for later.
#[cfg(not(loom))]
pub(super) fn keep(pool: Abandoned) {
    for _ in 0..TRIES {
        if let Some(mut pools) = list() {
            pools.retain_mut(|pools| !pools.try_free());
            return pools.push(pool);
        }
        std::thread::yield_now();
    }
}

#[cfg(all(test, not(loom)))]
pub(super) fn count() -> usize {
    list().map_or(0, |pools| pools.len())
}

/// Executions of a model share no statics.
#[cfg(loom)]
pub(super) fn sweep() {}

/// Looked at once: what is not in by then is the model's to forget.
#[cfg(loom)]
pub(super) fn keep(mut pool: Abandoned) {
    pool.try_free();
}
