//! What the messages contain: a sequence number, then bytes that depend on it. A message that is damaged, cut, mixed
//! with another, left over from before or in the wrong place differs from what is expected.

/// Bytes of the sequence number; shorter messages have none.
pub const SEQ_BYTES: usize = 8;
/// Messages with neighbouring numbers differ in where in the bytes below they begin.
const PHASES: usize = 256;

/// The bytes that messages are cut from. Made once: a message is two slices, and neither making nor checking one
/// computes anything.
pub struct Pattern {
    bytes: Vec<u8>,
}

impl Pattern {
    /// For messages up to the longest there can be.
    pub fn new() -> Pattern {
        let mut state = 0x0cc1_2011_u64;
        let bytes = (0..PHASES + cci::limits::MESSAGE_BYTES_MAX as usize).map(|index| match index {
            // A permutation: the first byte of a message shows where it begins.
            0..PHASES => (index * 167 + 13) as u8,
            _ => {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            }
        });
        Pattern { bytes: bytes.collect() }
    }

    /// What follows the number in message `seq` of `len` bytes: all of it where there is no room for a number.
    pub fn body(&self, seq: u64, len: usize) -> &[u8] {
        let start = (seq % PHASES as u64) as usize;
        let end = start + if len < SEQ_BYTES { len } else { len - SEQ_BYTES };
        self.bytes.get(start..end).unwrap_or_default()
    }

    /// Compares a message with what message `seq` of `len` bytes must be.
    pub fn check(&self, message: &[u8], seq: u64, len: usize) -> Result<(), String> {
        if message.len() != len {
            return Err(format!("message {seq} has {} bytes instead of {len}", message.len()));
        }
        let body = match message.split_first_chunk() {
            Some((&number, body)) if u64::from_le_bytes(number) == seq => body,
            Some((&number, _)) => {
                return Err(format!("message {} came where {seq} was due", u64::from_le_bytes(number)));
            }
            None => message,
        };
        let wanted = self.body(seq, len);
        if body == wanted {
            return Ok(());
        }
        let at = body.iter().zip(wanted).take_while(|(got, want)| got == want).count();
        let (got, want) = (body.get(at).copied().unwrap_or(0), wanted.get(at).copied().unwrap_or(0));
        let at = at + len - body.len();
        Err(format!("message {seq} of {len} bytes differs at byte {at}: {got:#04x} instead of {want:#04x}"))
    }

    /// The number of a message, if it has room for one.
    pub fn seq_of(message: &[u8]) -> Option<u64> {
        message.first_chunk().map(|&number| u64::from_le_bytes(number))
    }

    /// A number whose message begins like this one, for messages too short to carry their own.
    pub fn seq_like(&self, message: &[u8]) -> u64 {
        let Some(first) = message.first() else { return 0 };
        self.bytes.iter().take(PHASES).position(|byte| byte == first).unwrap_or(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(pattern: &Pattern, seq: u64, len: usize) -> Vec<u8> {
        let number = seq.to_le_bytes();
        let head: &[u8] = if len < SEQ_BYTES { &[] } else { &number };
        [head, pattern.body(seq, len)].concat()
    }

    #[test]
    fn what_is_made_is_accepted_and_nothing_else() {
        let pattern = Pattern::new();
        for len in [0, 1, 7, 8, 9, 64, 1368, 8192] {
            for seq in [0, 1, 255, 256, 1 << 40] {
                let good = message(&pattern, seq, len);
                assert_eq!(good.len(), len);
                assert_eq!(pattern.check(&good, seq, len), Ok(()));
                assert!(pattern.check(&good, seq, len + 1).is_err());
                if len > 0 {
                    assert!(pattern.check(&good, seq + 1, len).is_err());
                    let mut bad = good.clone();
                    bad[len - 1] ^= 1;
                    assert!(pattern.check(&bad, seq, len).is_err());
                }
            }
        }
    }

    #[test]
    fn a_difference_is_told_by_its_place() {
        let pattern = Pattern::new();
        let mut bad = message(&pattern, 3, 64);
        bad[20] ^= 0xff;
        let error = pattern.check(&bad, 3, 64).unwrap_err();
        assert!(error.contains("differs at byte 20"), "{error}");
    }

    #[test]
    fn short_messages_find_their_phase() {
        let pattern = Pattern::new();
        for seq in 0..PHASES as u64 {
            assert_eq!(pattern.seq_like(pattern.body(seq, 3)), seq);
        }
    }
}
