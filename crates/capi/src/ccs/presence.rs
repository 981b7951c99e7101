//! Whether this process takes part in a job now.

use super::status::{Code, Result};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_LIVE: AtomicBool = AtomicBool::new(false);

/// From now on it does, or no more.
pub(super) fn set(is_live: bool) {
    IS_LIVE.store(is_live, Ordering::Relaxed);
}

/// Whether it does.
#[inline]
pub(super) fn is_live() -> bool {
    IS_LIVE.load(Ordering::Relaxed)
}

/// Descriptions and locks need no job, but are for programs in one only, as all else is.
#[inline]
pub(super) fn check_live() -> Result<()> {
    if is_live() { Ok(()) } else { Err(Code::STATE) }
}
