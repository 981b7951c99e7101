//! Which counters have been seen, in the manner of RFC 6479: a ring of words, of which only whole ones are cleared.

use crate::limits::REPLAY_WINDOW;

const WORD_BITS: u64 = u64::BITS as u64;
/// One word more than the window: the one that is being filled.
const WORDS: usize = (REPLAY_WINDOW / WORD_BITS) as usize + 1;

/// The counters seen, as far as they are not too old.
pub(crate) struct Window {
    /// One more than the highest one seen.
    end: u64,
    words: [u64; WORDS],
}

impl Window {
    pub const fn new() -> Window {
        Window { end: 0, words: [0; WORDS] }
    }

    fn word_and_bit(counter: u64) -> (usize, u64) {
        let word = (counter / WORD_BITS) % WORDS as u64;
        (word as usize, 1 << (counter % WORD_BITS))
    }

    /// It may be new: not seen, and not so old that nobody knows.
    pub fn is_new(&self, counter: u64) -> bool {
        if counter >= self.end {
            return counter != u64::MAX;
        }
        let (word, bit) = Window::word_and_bit(counter);
        self.end - counter <= REPLAY_WINDOW && self.words.get(word).is_some_and(|word| word & bit == 0)
    }

    /// Remembers one that [`Window::is_new`] and whose tag was right.
    pub fn insert(&mut self, counter: u64) {
        if counter >= self.end {
            let (from, to) = (self.end.div_ceil(WORD_BITS), counter / WORD_BITS);
            let words = (to + 1).saturating_sub(from).min(WORDS as u64);
            for word in (0..words).map(|back| to - back) {
                if let Some(word) = self.words.get_mut((word % WORDS as u64) as usize) {
                    *word = 0;
                }
            }
            self.end = counter + 1;
        }
        let (word, bit) = Window::word_and_bit(counter);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Nothing twice; nothing new refused that is within the window.
        #[test]
        fn as_a_set_would(start in 0u64..1 << 40, steps in prop::collection::vec((0u64..5000, 0u64..3), 1..400)) {
            let (mut window, mut seen, mut top) = (Window::new(), BTreeSet::new(), start);
            for (distance, step) in steps {
                let counter = match step {
                    0 => top + distance % 70,
                    1 => top.saturating_sub(distance),
                    _ => top.saturating_sub(distance / 2),
                };
                let expected = seen.last().is_none_or(|last| counter + REPLAY_WINDOW > *last) && !seen.contains(&counter);
                prop_assert_eq!(window.is_new(counter), expected, "{} of {}", counter, top);
                if expected {
                    window.insert(counter);
                    seen.insert(counter);
                    top = top.max(counter);
                }
            }
        }
    }

    #[test]
    fn ends() {
        let mut window = Window::new();
        assert!(!window.is_new(u64::MAX), "there would be none after it");
        window.insert(u64::MAX - 1);
        assert!(!window.is_new(u64::MAX - 1) && !window.is_new(0) && window.is_new(u64::MAX - 2048));
        assert!(!window.is_new(u64::MAX - 2049));
    }
}
