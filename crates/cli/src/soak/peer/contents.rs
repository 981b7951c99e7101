//! What memory that a peer works on may contain, at any instant and whatever became of the peer.
//!
//! The upper half of each byte in a slot follows from its offset, and the lower half from the write: after a write that
//! was cut short, each byte is still 0 or one that belongs to its offset.

use crate::memory;
use cci::Memory;
use std::ops::Range;

/// Bytes on each side of a region, which nobody may touch.
pub const GUARD_BYTES: usize = 4096;
const GUARD: u8 = 0x5a;
/// Lower halves of the bytes that alternating writes of the whole slots leave.
const ALTERNATING: [u8; 2] = [0x5, 0xa];

/// The upper half of the byte at an offset. It is not 0.
fn upper(offset: usize) -> u8 {
    ((offset as u8).wrapping_mul(31) ^ (offset >> 8) as u8 | 0x80) & 0xf0
}

/// Fills `bytes`, which are for `offset` of a region, with what a seed makes.
pub fn fill(bytes: &mut [u8], offset: usize, seed: u64) {
    memory::fill_slice(bytes, seed);
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = *byte & 0x0f | upper(offset + at);
    }
}

/// Fills `bytes`, which are for `offset` of a region, as the write of a number does that alternates with its neighbours.
pub fn fill_alternating(bytes: &mut [u8], offset: usize, number: u64) {
    let lower = ALTERNATING[number as usize % 2];
    bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = lower | upper(offset + at));
}

/// Compares `len` bytes of memory from `at` on with what a seed makes for `offset`.
pub fn compare(memory: &Memory, at: usize, len: usize, offset: usize, seed: u64) -> Result<(), String> {
    if at.checked_add(len).is_none_or(|end| end > memory.len()) {
        return Err(format!("{len} bytes at {at} of {}", memory.len()));
    }
    let (mut found, mut wanted) = (vec![0; len], vec![0; len]);
    if !memory.read(at, &mut found) {
        return Err(format!("{len} bytes at {at} can't be read"));
    }
    fill(&mut wanted, offset, seed);
    match found.iter().zip(&wanted).position(|(found, wanted)| found != wanted) {
        None => Ok(()),
        Some(first) => Err(format!(
            "{len} bytes at {at}: byte {first} of the memory is {:#04x} instead of {:#04x}",
            found[first], wanted[first]
        )),
    }
}

/// Memory with guards around a region of `len` bytes, all 0.
pub fn guard(memory: &Memory) -> Range<usize> {
    let region = GUARD_BYTES..memory.len().saturating_sub(GUARD_BYTES);
    let guards = [memory.write(0, &[GUARD; GUARD_BYTES]), memory.write(region.end, &[GUARD; GUARD_BYTES])];
    debug_assert_eq!(guards, [true, true], "the memory has room for both guards");
    region
}

/// All bytes of guarded memory as they were at one moment.
#[derive(PartialEq, Eq)]
pub struct Snapshot(Vec<u8>);

impl Snapshot {
    /// Of the memory as it is now.
    pub fn of(memory: &Memory) -> Snapshot {
        let mut bytes = vec![0; memory.len()];
        let read = memory.read(0, &mut bytes);
        debug_assert!(read, "all of it is read");
        Snapshot(bytes)
    }

    /// Checks that nothing is there that nobody wrote: `words` bytes at the front of the region are for atomics, of which
    /// `used` are, and slots are behind them.
    pub fn check(&self, used: usize, words: usize) -> Result<(), String> {
        let len = self.0.len();
        let region = GUARD_BYTES..len.saturating_sub(GUARD_BYTES);
        for (at, &byte) in self.0.iter().enumerate() {
            let is_right = match at.checked_sub(region.start) {
                Some(offset) if offset < used && region.contains(&at) => true,
                Some(offset) if offset < words && region.contains(&at) => byte == 0,
                Some(offset) if region.contains(&at) => byte == 0 || byte & 0xf0 == upper(offset),
                _ => byte == GUARD,
            };
            if !is_right {
                return Err(format!("byte {at} of {len} in lent memory is {byte:#04x}, which nobody wrote"));
            }
        }
        Ok(())
    }

    /// Whether an alternating write ended half way: its bytes are there beside those of the one before, or beside none.
    pub fn is_torn(&self, words: usize) -> Result<bool, String> {
        let slots = GUARD_BYTES + words..self.0.len().saturating_sub(GUARD_BYTES);
        let mut kinds = [false; 3];
        for &byte in self.0.get(slots).unwrap_or_default() {
            match ALTERNATING.iter().position(|lower| byte & 0x0f == *lower) {
                Some(which) => kinds[which] = true,
                None if byte == 0 => kinds[2] = true,
                None => return Err(format!("a byte is {byte:#04x}, which neither of two writes wrote")),
            }
        }
        Ok(kinds.iter().filter(|seen| **seen).count() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci::Foreign;

    const WORDS: usize = 64;
    const LEN: usize = 3000;

    fn memory() -> Memory {
        let memory = Memory::foreign(Foreign::owned(vec![0; LEN + 2 * GUARD_BYTES].into_boxed_slice()));
        assert_eq!(guard(&memory), GUARD_BYTES..GUARD_BYTES + LEN);
        memory
    }

    fn check(memory: &Memory) -> Result<(), String> {
        Snapshot::of(memory).check(16, WORDS)
    }

    #[test]
    fn what_belongs_there_is_told_from_garbage_at_every_offset() {
        let memory = memory();
        let mut bytes = vec![0; 700];
        fill(&mut bytes, WORDS + 100, 9);
        assert!(memory.write(GUARD_BYTES + WORDS + 100, &bytes));
        assert_eq!(compare(&memory, GUARD_BYTES + WORDS + 100, 700, WORDS + 100, 9), Ok(()));
        assert!(compare(&memory, GUARD_BYTES + WORDS + 100, 700, WORDS + 100, 8).is_err());
        assert_eq!(check(&memory), Ok(()));
        // A write of other bytes that is cut short leaves both, and both are right.
        fill(&mut bytes, WORDS + 100, 10);
        assert!(memory.write(GUARD_BYTES + WORDS + 100, &bytes[..333]));
        assert_eq!(check(&memory), Ok(()));
        let before = Snapshot::of(&memory);
        for at in [0, GUARD_BYTES - 1, GUARD_BYTES + 16, GUARD_BYTES + WORDS, GUARD_BYTES + LEN] {
            let mut old = [0];
            assert!(memory.read(at, &mut old) && memory.write(at, &[0x33]));
            assert!(check(&memory).is_err() && before != Snapshot::of(&memory), "garbage at {at}");
            assert!(memory.write(at, &old));
        }
        assert!(memory.write(GUARD_BYTES + WORDS + 2000, &bytes[..8]), "bytes in the wrong place");
        assert!(check(&memory).is_err());
    }

    #[test]
    fn a_write_that_ended_half_way_is_seen() {
        let memory = memory();
        let mut bytes = vec![0; LEN - WORDS];
        let torn = |memory: &Memory| Snapshot::of(memory).is_torn(WORDS);
        assert_eq!(torn(&memory), Ok(false));
        fill_alternating(&mut bytes, WORDS, 0);
        assert!(memory.write(GUARD_BYTES + WORDS, &bytes[..100]));
        assert_eq!((torn(&memory), check(&memory)), (Ok(true), Ok(())));
        assert!(memory.write(GUARD_BYTES + WORDS, &bytes));
        assert_eq!(torn(&memory), Ok(false));
        fill_alternating(&mut bytes, WORDS, 1);
        assert!(memory.write(GUARD_BYTES + WORDS, &bytes[..1]));
        assert_eq!((torn(&memory), check(&memory)), (Ok(true), Ok(())));
        assert!(memory.write(GUARD_BYTES + WORDS, &[0x81]));
        assert!(torn(&memory).is_err());
    }
}
