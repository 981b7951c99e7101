//! The processor's own atomics on shared memory: atomic against every other process and thread that uses them there.

use super::Bytes;
use crate::raw_atomic::{AtomicU32, AtomicU64, Ordering};
use core::ptr::NonNull;

/// One operation on an atomic of either width.
macro_rules! apply {
    ($word:expr, $kind:expr, $operand:expr, $compare:expr) => {
        match $kind {
            AtomicKind::Load => $word.load(Ordering::SeqCst),
            AtomicKind::Add => $word.fetch_add($operand, Ordering::SeqCst),
            AtomicKind::Swap => $word.swap($operand, Ordering::SeqCst),
            AtomicKind::CompareSwap => {
                match $word.compare_exchange($compare, $operand, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(before) | Err(before) => before,
                }
            }
            AtomicKind::And => $word.fetch_and($operand, Ordering::SeqCst),
            AtomicKind::Or => $word.fetch_or($operand, Ordering::SeqCst),
            AtomicKind::Xor => $word.fetch_xor($operand, Ordering::SeqCst),
        }
    };
}

/// What an atomic operation does with the word. All wrap; all are sequentially consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicKind {
    /// Only reads it.
    Load,
    /// Adds the operand.
    Add,
    /// Replaces the value by the operand.
    Swap,
    /// Replaces the value by the operand if it equals [`AtomicOp::compare`].
    CompareSwap,
    /// Keeps the bits that are set in the operand.
    And,
    /// Sets the bits that are set in the operand.
    Or,
    /// Flips the bits that are set in the operand.
    Xor,
}

/// How many bytes an atomic operation is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicWidth {
    /// 4 bytes: the low halves of operand and comparison count.
    Four,
    /// 8 bytes.
    Eight,
}

impl AtomicWidth {
    /// In bytes.
    pub const fn bytes(self) -> usize {
        match self {
            AtomicWidth::Four => 4,
            AtomicWidth::Eight => 8,
        }
    }
}

/// An atomic operation, on words in the byte order of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AtomicOp {
    /// What it does.
    pub kind: AtomicKind,
    /// On how many bytes.
    pub width: AtomicWidth,
    /// The operand; not looked at by [`AtomicKind::Load`].
    pub operand: u64,
    /// For [`AtomicKind::CompareSwap`]: what the word must be.
    pub compare: u64,
}

/// Why an atomic operation was not done. The word is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AtomicRefusal {
    /// The word's address, in this process, is not a multiple of its width.
    Misaligned,
    /// The word does not lie inside of the memory.
    OutOfRange,
}

impl core::fmt::Display for AtomicRefusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            AtomicRefusal::Misaligned => "the word's address is not a multiple of its width",
            AtomicRefusal::OutOfRange => "the word does not lie inside of the memory",
        })
    }
}

impl core::error::Error for AtomicRefusal {}

/// An aligned word of 8 bytes of some [`Bytes`], whose place was checked when this was made. It is used as those are.
#[derive(Debug, Clone, Copy)]
pub struct Word(NonNull<u8>);

// SAFETY: an address; the word is reached by atomics only, from any thread, by the promise of `Bytes::new`.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    /// Loads the word, sequentially consistent.
    #[inline(always)]
    pub fn load(self) -> u64 {
        #[cfg(all(feature = "simulated", not(loom)))]
        if crate::simulated::is_entered() {
            let load = AtomicOp { kind: AtomicKind::Load, width: AtomicWidth::Eight, operand: 0, compare: 0 };
            // SAFETY: in range, as was checked.
            return unsafe { simulated(self.0.as_ptr(), load) };
        }
        // SAFETY: in range and aligned, as was checked; whoever else is at it uses atomics too or assembly.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().cast()) }.load(Ordering::SeqCst)
    }
}

impl Bytes {
    /// The word of 8 bytes at `offset`.
    ///
    /// # Errors
    ///
    /// [`AtomicRefusal`]: there is none. Range comes before alignment.
    pub fn word(&self, offset: usize) -> Result<Word, AtomicRefusal> {
        let at = self.at(offset, AtomicWidth::Eight.bytes()).ok_or(AtomicRefusal::OutOfRange)?;
        let is_aligned = at.addr().get().is_multiple_of(AtomicWidth::Eight.bytes());
        if is_aligned { Ok(Word(at)) } else { Err(AtomicRefusal::Misaligned) }
    }

    /// Does `op` on the word at `offset`; answers what the word was before (4 bytes: zero-extended).
    ///
    /// # Errors
    ///
    /// [`AtomicRefusal`]: nothing was done. Range comes before alignment.
    pub fn atomic(&self, offset: usize, op: AtomicOp) -> Result<u64, AtomicRefusal> {
        let width = op.width.bytes();
        let at = self.at(offset, width).ok_or(AtomicRefusal::OutOfRange)?;
        if !at.addr().get().is_multiple_of(width) {
            return Err(AtomicRefusal::Misaligned);
        }
        #[cfg(all(feature = "simulated", not(loom)))]
        if crate::simulated::is_entered() {
            // SAFETY: in range, as just checked.
            return Ok(unsafe { simulated(at.as_ptr(), op) });
        }
        match op.width {
            AtomicWidth::Four => {
                // SAFETY: in range and aligned, as just checked; whoever else is at it uses atomics too or assembly.
                let word = unsafe { AtomicU32::from_ptr(at.as_ptr().cast()) };
                let (operand, compare) = (op.operand as u32, op.compare as u32);
                Ok(u64::from(apply!(word, op.kind, operand, compare)))
            }
            AtomicWidth::Eight => {
                // SAFETY: as above.
                let word = unsafe { AtomicU64::from_ptr(at.as_ptr().cast()) };
                Ok(apply!(word, op.kind, op.operand, op.compare))
            }
        }
    }
}

/// Does `op` on the word at `at` in the name of a simulated process.
///
/// # Safety
///
/// The word is readable and, unless it is only loaded, writable.
#[cfg(all(feature = "simulated", not(loom)))]
unsafe fn simulated(at: *mut u8, op: AtomicOp) -> u64 {
    use crate::simulated::exchange;
    let after = |before: u64, mask: u64| match op.kind {
        AtomicKind::Load => None,
        AtomicKind::Add => Some(before.wrapping_add(op.operand)),
        AtomicKind::Swap => Some(op.operand),
        AtomicKind::CompareSwap => (before == op.compare & mask).then_some(op.operand),
        AtomicKind::And => Some(before & op.operand),
        AtomicKind::Or => Some(before | op.operand),
        AtomicKind::Xor => Some(before ^ op.operand),
    };
    match op.width {
        AtomicWidth::Four => {
            let replace = |before| {
                let before = u64::from(u32::from_ne_bytes(before));
                after(before, u64::from(u32::MAX)).map(|after| (after as u32).to_ne_bytes())
            };
            // SAFETY: the caller's promise.
            u64::from(u32::from_ne_bytes(unsafe { exchange(at, Ordering::SeqCst, replace) }))
        }
        AtomicWidth::Eight => {
            let replace = |before| after(u64::from_ne_bytes(before), u64::MAX).map(u64::to_ne_bytes);
            // SAFETY: the caller's promise.
            u64::from_ne_bytes(unsafe { exchange(at, Ordering::SeqCst, replace) })
        }
    }
}
