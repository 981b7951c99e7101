//! The receiver's account of one measurement: how many messages came, and that each was the right one.

use crate::pattern::{Pattern, SEQ_BYTES};
use cci::Attribute;

/// Longest description of a difference: it has to fit a message.
const REASON_BYTES_MAX: usize = 300;
/// Numbers remembered on connections that do not keep the order. Far more than can be under way at once.
const WINDOW: u64 = 1 << 20;
const WORDS: usize = (WINDOW / 64) as usize;

/// What came so far.
pub struct Tally {
    attribute: Attribute,
    len: usize,
    /// One more than the highest number seen, or than the number of messages where they carry none.
    next_seq: u64,
    /// A bit for each of the last [`WINDOW`] numbers below `next_seq`: whether it came.
    seen: Vec<u64>,
    /// Messages that came, right or wrong.
    pub received: u64,
    /// Messages that were what they had to be.
    pub verified: u64,
    /// What was wrong with the first that was not.
    pub first_wrong: Option<String>,
}

impl Tally {
    /// For messages of `len` bytes on a connection of this kind.
    pub fn new(attribute: Attribute, len: usize) -> Tally {
        let numbered = attribute != Attribute::ReliableOrdered && len >= SEQ_BYTES;
        Tally {
            attribute,
            len,
            next_seq: 0,
            seen: if numbered { vec![0; WORDS] } else { Vec::new() },
            received: 0,
            verified: 0,
            first_wrong: None,
        }
    }

    /// Counts and checks one message.
    pub fn take(&mut self, message: &[u8], pattern: &Pattern) {
        self.received += 1;
        let checked = if self.attribute == Attribute::ReliableOrdered {
            let due = self.next_seq;
            self.next_seq += 1;
            pattern.check(message, due, self.len)
        } else {
            self.in_any_order(message, pattern)
        };
        match checked {
            Ok(()) => self.verified += 1,
            Err(reason) if self.first_wrong.is_none() => {
                self.first_wrong = Some(reason.chars().take(REASON_BYTES_MAX).collect());
            }
            Err(_) => {}
        }
    }

    fn in_any_order(&mut self, message: &[u8], pattern: &Pattern) -> Result<(), String> {
        if self.seen.is_empty() {
            return pattern.check(message, pattern.seq_like(message), self.len);
        }
        let Some(seq) = Pattern::seq_of(message) else {
            return Err(format!("a message has {} bytes instead of {}", message.len(), self.len));
        };
        pattern.check(message, seq, self.len)?;
        if seq >= self.next_seq {
            self.advance(seq)?;
        } else if self.next_seq - seq > WINDOW - 64 {
            return Err(format!("message {seq} came {} messages late", self.next_seq - seq));
        }
        let Some(word) = self.seen.get_mut((seq / 64) as usize % WORDS) else { return Ok(()) };
        let bit = 1 << (seq % 64);
        if *word & bit != 0 {
            return Err(format!("message {seq} came twice"));
        }
        *word |= bit;
        Ok(())
    }

    /// Makes `seq` the highest number; what lies a window below it is forgotten.
    fn advance(&mut self, seq: u64) -> Result<(), String> {
        if seq - self.next_seq >= WINDOW {
            return Err(format!("message {seq} came when about {} was due", self.next_seq));
        }
        for word in self.next_seq.div_ceil(64)..=seq / 64 {
            if let Some(word) = self.seen.get_mut(word as usize % WORDS) {
                *word = 0;
            }
        }
        self.next_seq = seq + 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(pattern: &Pattern, seq: u64, len: usize) -> Vec<u8> {
        [&seq.to_le_bytes(), pattern.body(seq, len)].concat()
    }

    fn tally_of(attribute: Attribute, seqs: impl IntoIterator<Item = u64>) -> Tally {
        let (pattern, mut tally) = (Pattern::new(), Tally::new(attribute, 64));
        for seq in seqs {
            tally.take(&message(&pattern, seq, 64), &pattern);
        }
        tally
    }

    #[test]
    fn ordered_means_in_order() {
        assert_eq!(tally_of(Attribute::ReliableOrdered, 0..1000).verified, 1000);
        let swapped = tally_of(Attribute::ReliableOrdered, [0, 2, 1, 3]);
        assert_eq!((swapped.received, swapped.verified), (4, 2));
        assert_eq!(swapped.first_wrong.as_deref(), Some("message 2 came where 1 was due"));
    }

    #[test]
    fn unordered_takes_any_order_and_nothing_twice() {
        let shuffled = (0..5000_u64).map(|at| at * 1237 % 5000);
        assert_eq!(tally_of(Attribute::ReliableUnordered, shuffled).verified, 5000);
        let twice = tally_of(Attribute::Unreliable, [5, 4, 9, 4]);
        assert_eq!(twice.first_wrong.as_deref(), Some("message 4 came twice"));
    }

    #[test]
    fn the_window_moves_on() {
        let seqs = (0..3 * WINDOW).step_by(50_000).flat_map(|seq| [seq + 7, seq]);
        let tally = tally_of(Attribute::Unreliable, seqs);
        assert_eq!(tally.first_wrong, None);
        assert!(tally_of(Attribute::Unreliable, [0, 2 * WINDOW]).first_wrong.is_some());
    }

    #[test]
    fn messages_without_a_number_are_checked_too() {
        let (pattern, mut tally) = (Pattern::new(), Tally::new(Attribute::Unreliable, 4));
        tally.take(pattern.body(77, 4), &pattern);
        tally.take(&[0; 4], &pattern);
        assert_eq!((tally.received, tally.verified), (2, 1));
    }
}
