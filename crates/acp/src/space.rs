//! What containers need of the global address space: calls that return when they are done.

use crate::address::GlobalAddress;
use crate::error::{AcpError, Result};
use crate::reserve::Reserves;
use std::time::Duration;

/// Bytes of a word of a container. Words are addresses, lengths and locks.
pub(crate) const WORD_BYTES: u64 = 8;

/// Bytes that are moved at a time.
const MOVE_BYTES: u64 = 16 << 10;
/// Attempts to get what another rank has, before this rank sleeps between them.
const TRIES_AWAKE: u32 = 64;
/// How long a rank sleeps between two attempts.
const TRY_PAUSE: Duration = Duration::from_micros(200);

/// Bytes that are aligned as a word is. So words in them are copied whole on every processor.
#[repr(align(8))]
pub(crate) struct Aligned<T>(pub T);

/// Memory with global addresses, accessed by calls that return when they are done. [`GlobalMemory`](crate::GlobalMemory) is such a space, and
/// tests have simulated ones. Containers and the heap take the space as an argument of each call, since all of them share it.
///
/// Addresses of words are multiples of 8 bytes. A word is read and written whole.
pub trait Space {
    /// The number of this rank.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn size(&self) -> u32;

    /// The address at which the heap of a rank begins.
    ///
    /// # Errors
    /// There is no such rank, or heaps have no bytes.
    fn heap(&self, rank: u32) -> Result<GlobalAddress>;

    /// How many bytes the heap of each rank has.
    fn heap_bytes(&self) -> u64;

    /// The memory of heaps that this rank has reserved. It is empty in a new space.
    fn reserves(&mut self) -> &mut Reserves;

    /// Reads bytes of any rank's registered memory.
    ///
    /// # Errors
    /// Not all of them are registered. The rank is gone.
    fn read(&mut self, at: GlobalAddress, bytes: &mut [u8]) -> Result<()>;

    /// Writes bytes to any rank's registered memory.
    ///
    /// # Errors
    /// Those of [`Space::read`].
    fn write(&mut self, at: GlobalAddress, bytes: &[u8]) -> Result<()>;

    /// Writes `new` to a word if the word is `expected`, atomically. Returns the previous value.
    ///
    /// # Errors
    /// Those of [`Space::read`].
    fn compare_swap(&mut self, at: GlobalAddress, expected: u64, new: u64) -> Result<u64>;

    /// Serves other ranks while this one waits for what another has. Sleeps for at most `pause`; does not sleep if that is zero.
    ///
    /// # Errors
    /// The system refuses to wait.
    fn serve(&mut self, pause: Duration) -> Result<()>;

    /// Whether a rank is gone. One that computes for long is not.
    ///
    /// # Errors
    /// There is no such rank.
    fn has_died(&mut self, rank: u32) -> Result<bool>;

    /// Reads a word.
    ///
    /// # Errors
    /// Those of [`Space::read`].
    fn read_word(&mut self, at: GlobalAddress) -> Result<u64> {
        let [word] = self.read_words(at)?;
        Ok(word)
    }

    /// Reads as many words as there is space for.
    ///
    /// # Errors
    /// Those of [`Space::read`].
    fn read_words<const N: usize>(&mut self, at: GlobalAddress) -> Result<[u64; N]> {
        let mut bytes = Aligned([[0; WORD_BYTES as usize]; N]);
        self.read(at, bytes.0.as_flattened_mut())?;
        Ok(bytes.0.map(u64::from_ne_bytes))
    }

    /// Writes words.
    ///
    /// # Errors
    /// Those of [`Space::read`].
    fn write_words<const N: usize>(&mut self, at: GlobalAddress, words: [u64; N]) -> Result<()> {
        self.write(at, Aligned(words.map(u64::to_ne_bytes)).0.as_flattened())
    }

    /// Waits a moment before another attempt.
    ///
    /// # Errors
    /// The system refuses to wait.
    fn pause(&mut self, tries: u32) -> Result<()> {
        self.serve(if tries < TRIES_AWAKE { Duration::ZERO } else { TRY_PAUSE })
    }
}

/// Copies bytes within one rank's memory or between two, also if both overlap, through this rank. The ranks that have the memory
/// take no part.
pub(crate) fn move_bytes(
    space: &mut impl Space,
    dst: GlobalAddress,
    src: GlobalAddress,
    len_bytes: u64,
) -> Result<()> {
    let mut buffer = vec![0; len_bytes.min(MOVE_BYTES) as usize];
    let parts = len_bytes.div_ceil(MOVE_BYTES);
    // Towards higher addresses the last part comes first, so that nothing is read after it was overwritten.
    let is_upward = dst > src;
    for part in 0..parts {
        let from = MOVE_BYTES * if is_upward { parts - 1 - part } else { part };
        let bytes = buffer.get_mut(..MOVE_BYTES.min(len_bytes - from) as usize).unwrap_or_default();
        space.read(behind(src, from)?, bytes)?;
        space.write(behind(dst, from)?, bytes)?;
    }
    Ok(())
}

/// The address `offset_bytes` behind another one.
pub(crate) fn behind(at: GlobalAddress, offset_bytes: u64) -> Result<GlobalAddress> {
    at.checked_add(offset_bytes)
        .ok_or_else(|| AcpError::Argument("the address is behind all places that a rank has"))
}

/// The word in place of an address after a container was destroyed. It names no rank, so a handle that somebody still has is
/// refused.
pub(crate) const GONE: u64 = 1;

/// The address in a word; `None` if the word is 0.
pub(crate) fn address_in(word: u64) -> Result<Option<GlobalAddress>> {
    match (word, GlobalAddress::from_bits(word)) {
        (0, _) => Ok(None),
        (_, Some(address)) => Ok(Some(address)),
        (_, None) => Err(AcpError::Corrupt("a word that names no rank is where an address should be")),
    }
}

/// The word of an address; 0 if there is none.
pub(crate) fn word_of(address: Option<GlobalAddress>) -> u64 {
    address.map_or(0, GlobalAddress::to_bits)
}
