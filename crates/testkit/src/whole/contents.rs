//! Messages that say who sent them and which they are, and whose every byte follows from that.

use crate::rng::mix;

/// From this length on a message says which it is.
pub const NAMED_BYTES_MIN: usize = 8;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn base(side: u32, index: u32) -> u64 {
    mix((u64::from(side) << 32) | u64::from(index))
}

/// Writes message `index` of `side` (below 2²⁴) into `bytes`, whatever its length.
pub fn fill(side: u32, index: u32, bytes: &mut [u8]) {
    let base = base(side, index);
    if bytes.len() < NAMED_BYTES_MIN {
        let word = base.to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
        return;
    }
    let (name, rest) = bytes.split_at_mut(NAMED_BYTES_MIN);
    name.copy_from_slice(&name_of(side, index, base).to_le_bytes());
    let mut word = base;
    for chunk in rest.chunks_mut(8) {
        word = word.wrapping_add(STEP);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
}

fn name_of(side: u32, index: u32, base: u64) -> u64 {
    u64::from(index) | (u64::from(side & 0xff_ffff) << 32) | (base & 0xff00_0000_0000_0000)
}

/// Side and index of a message of at least [`NAMED_BYTES_MIN`] bytes, if every byte of it is as it was sent.
pub fn identify(bytes: &[u8]) -> Option<(u32, u32)> {
    let (name, rest) = bytes.split_first_chunk::<NAMED_BYTES_MIN>()?;
    let name = u64::from_le_bytes(*name);
    let (index, side) = (name as u32, (name >> 32) as u32 & 0xff_ffff);
    let base = base(side, index);
    if name != name_of(side, index, base) {
        return None;
    }
    let mut word = base;
    for chunk in rest.chunks(8) {
        word = word.wrapping_add(STEP);
        if chunk != &word.to_le_bytes()[..chunk.len()] {
            return None;
        }
    }
    Some((side, index))
}

/// Whether a message too short to say which it is may be this one.
pub fn is_short(side: u32, index: u32, bytes: &[u8]) -> bool {
    bytes.len() < NAMED_BYTES_MIN && bytes == &base(side, index).to_le_bytes()[..bytes.len()]
}

/// The bytes from place `at` on of the endless pattern that `base` names.
pub fn fill_pattern(base: u64, mut at: u64, mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        let skip = (at % 8) as usize;
        let (now, later) = bytes.split_at_mut((8 - skip).min(bytes.len()));
        now.copy_from_slice(&pattern_word(base, at)[skip..skip + now.len()]);
        at += now.len() as u64;
        bytes = later;
    }
}

/// Whether these are those bytes; if not, the first place that differs.
pub fn is_pattern(base: u64, mut at: u64, mut bytes: &[u8]) -> Result<(), u64> {
    while !bytes.is_empty() {
        let skip = (at % 8) as usize;
        let (now, later) = bytes.split_at((8 - skip).min(bytes.len()));
        let wanted = &pattern_word(base, at)[skip..skip + now.len()];
        if now != wanted {
            let same = now.iter().zip(wanted).take_while(|(is, wanted)| is == wanted).count();
            return Err(at + same as u64);
        }
        at += now.len() as u64;
        bytes = later;
    }
    Ok(())
}

fn pattern_word(base: u64, at: u64) -> [u8; 8] {
    base.wrapping_add(STEP.wrapping_mul(at / 8 + 1)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_the_same_from_wherever_it_is_looked_at() {
        let mut whole = [0; 100];
        fill_pattern(5, 3, &mut whole);
        for from in 0..100 {
            assert_eq!(is_pattern(5, 3 + from as u64, &whole[from..]), Ok(()));
        }
        whole[77] ^= 1;
        assert_eq!(is_pattern(5, 3, &whole), Err(80));
        assert!(is_pattern(6, 3, &whole[..8]).is_err() && is_pattern(5, 11, &whole[..8]).is_err());
    }

    #[test]
    fn a_message_names_itself_and_no_changed_bit_passes() {
        for len in [8usize, 9, 15, 16, 100] {
            let mut bytes = vec![0; len];
            fill(77, 123_456, &mut bytes);
            assert_eq!(identify(&bytes), Some((77, 123_456)));
            for bit in 0..len * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(identify(&bytes), Some((77, 123_456)), "bit {bit} of {len} bytes");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
