//! What messengers of a soak send: bytes that say which letter they are, and whose every other byte follows from that.

/// The shortest letter in bytes: a number, a context and a seed.
const HEAD_BYTES: usize = 24;

/// What a letter says of itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Which it is of those on its connection and in its direction; of a reply, the context of what was asked.
    pub number: u64,
    /// What the answer is to name.
    pub context: u64,
    /// Makes the rest.
    pub seed: u64,
}

impl Letter {
    /// The letter with this length, which is that of a head at least.
    pub fn write(self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len.next_multiple_of(8));
        [self.number, self.context, self.seed]
            .iter()
            .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        let mut word = self.seed ^ len as u64;
        while bytes.len() < len {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.truncate(len.max(HEAD_BYTES));
        bytes
    }

    /// Reads a letter. `None` if a byte of it is not as it was written.
    pub fn read(bytes: &[u8]) -> Option<Letter> {
        let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let ([number, context, seed], []) = head.as_chunks::<8>() else { return None };
        let letter = Letter {
            number: u64::from_le_bytes(*number),
            context: u64::from_le_bytes(*context),
            seed: u64::from_le_bytes(*seed),
        };
        (letter.write(bytes.len()) == bytes).then_some(letter)
    }
}

#[cfg(test)]
mod tests {
    use super::Letter;

    #[test]
    fn every_byte_counts() {
        let letter = Letter { number: 7, context: 1 << 40, seed: 99 };
        for len in [24, 25, 31, 32, 1_000] {
            let bytes = letter.write(len);
            assert_eq!((bytes.len(), Letter::read(&bytes)), (len, Some(letter)));
            let mut damaged = bytes;
            *damaged.last_mut().unwrap() ^= 1;
            assert_ne!(Letter::read(&damaged), Some(letter));
        }
    }
}
