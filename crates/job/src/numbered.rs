//! Maps by numbers that this process has given, and by ranks that were checked: nobody else chooses them, so that a hash need not resist anybody.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers, or by what has numbers.
pub type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Multiplies by 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, 6.4), which spreads numbers that follow each other.
#[derive(Default)]
pub struct NumberHasher(u64);

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_mul(MULTIPLIER);
        // The table takes the place from the low bits, which only the low bits of the number have reached.
        self.0 = product ^ product >> 32;
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    /// A table of 1,024 places: numbers in any usual distance are in most of them.
    #[test]
    fn numbers_are_spread() {
        let hasher = BuildHasherDefault::<NumberHasher>::default();
        for shift in [0, 1, 4, 12, 32] {
            let mut places = [false; 1024];
            for number in 0..1024_u64 {
                places[(hasher.hash_one(number << shift) & 1023) as usize] = true;
            }
            let used = places.iter().filter(|used| **used).count();
            assert!(used > 500, "{used} places for numbers times 2^{shift}");
        }
    }
}
