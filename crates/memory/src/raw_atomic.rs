//! The processor's atomics, also under loom: for [`bytes`](crate::bytes), where loom can't follow. It models values that it made
//! itself, not words at an address that a stranger shares, and nothing there waits for anything.

#[cfg(any(not(target_arch = "x86_64"), miri, loom, test))]
pub(crate) use core::sync::atomic::AtomicU8;
#[cfg(all(feature = "simulated", not(loom)))]
pub(crate) use core::sync::atomic::fence;
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
