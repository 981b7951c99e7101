//! What registered memory contains: words that depend on their place and on a seed. Bytes that are damaged, missing,
//! in the wrong place or left over from before differ from what is expected.

use cci::Memory;

/// Bytes made or compared at once: they stay in the cache of the first level.
const CHUNK: usize = 16 << 10;
const WORD: usize = 8;

/// Fills the first `len` bytes (less where the memory is shorter).
pub fn fill(memory: &Memory, seed: u64, len: usize) {
    let mut chunk = [0; CHUNK];
    for (at, part) in chunks(len.min(memory.len())) {
        let made = make(seed, at, &mut chunk[..part]);
        // Within the memory by the line above.
        let _ = memory.write(at, made);
    }
}

/// Fills ordinary memory with the pattern of a seed.
pub fn fill_slice(bytes: &mut [u8], seed: u64) {
    for (index, chunk) in bytes.chunks_mut(CHUNK).enumerate() {
        make(seed, index * CHUNK, chunk);
    }
}

/// Compares the first `len` bytes with what [`fill`] puts there.
pub fn check(memory: &Memory, seed: u64, len: usize) -> Result<(), String> {
    if len > memory.len() {
        return Err(format!("{len} bytes of {}", memory.len()));
    }
    let (mut wanted, mut found) = ([0; CHUNK], [0; CHUNK]);
    for (at, part) in chunks(len) {
        let wanted = make(seed, at, &mut wanted[..part]);
        let found = &mut found[..part];
        if !memory.read(at, found) || found != wanted {
            return Err(differs(at, found, wanted));
        }
    }
    Ok(())
}

/// Compares ordinary memory with the pattern of a seed.
pub fn check_slice(bytes: &[u8], seed: u64) -> Result<(), String> {
    let mut wanted = [0; CHUNK];
    for (index, found) in bytes.chunks(CHUNK).enumerate() {
        let wanted = make(seed, index * CHUNK, &mut wanted[..found.len()]);
        if found != wanted {
            return Err(differs(index * CHUNK, found, wanted));
        }
    }
    Ok(())
}

fn differs(at: usize, found: &[u8], wanted: &[u8]) -> String {
    let first = found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
    let of = |bytes: &[u8]| bytes.get(first).copied().unwrap_or(0);
    format!("byte {} of the memory is {:#04x} instead of {:#04x}", at + first, of(found), of(wanted))
}

/// Start and length of each chunk of `len` bytes.
fn chunks(len: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..len).step_by(CHUNK).map(move |at| (at, CHUNK.min(len - at)))
}

/// The bytes from `at` on, which is a multiple of [`WORD`].
fn make(seed: u64, at: usize, into: &mut [u8]) -> &[u8] {
    let mut state = mix(seed).wrapping_add((at / WORD) as u64);
    for word in into.chunks_mut(WORD) {
        let bytes = mix(state).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
        state = state.wrapping_add(1);
    }
    into
}

/// Neighbours come out unlike each other (the finaliser of SplitMix64).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci::Foreign;

    #[test]
    fn what_is_filled_is_right_and_nothing_else() {
        for len in [1, 7, 8, 9, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 3] {
            let memory = Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice()));
            fill(&memory, 3, len);
            assert_eq!(check(&memory, 3, len), Ok(()));
            assert!(check(&memory, 4, len).is_err() && check(&memory, 3, len + 1).is_err());
            let mut same = vec![0; len];
            fill_slice(&mut same, 3);
            assert_eq!(check_slice(&same, 3), Ok(()));
            let mut read = vec![0; len];
            assert!(memory.read(0, &mut read) && read == same);
            same[len - 1] ^= 1;
            let reason = check_slice(&same, 3).unwrap_err();
            assert!(reason.contains(&format!("byte {}", len - 1)), "{reason}");
            assert!(memory.write(len / 2, &[!same[len / 2]]));
            assert!(check(&memory, 3, len).is_err());
        }
    }

    #[test]
    fn bytes_shifted_by_a_word_are_wrong() {
        let mut bytes = vec![0; 64];
        fill_slice(&mut bytes, 1);
        bytes.copy_within(8.., 0);
        assert!(check_slice(&bytes[..56], 1).is_err());
    }
}
