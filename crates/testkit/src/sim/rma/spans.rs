//! Sets of bytes, as spans.

use std::collections::BTreeMap;

/// Which bytes of something have been seen.
#[derive(Clone, Debug, Default)]
pub(in crate::sim) struct Spans {
    /// Start to end; no two touch.
    spans: BTreeMap<u64, u64>,
    len_bytes: u64,
}

impl Spans {
    /// How many bytes.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether any byte of `from..to` is in.
    pub fn touches(&self, from: u64, to: u64) -> bool {
        self.spans.range(..to).next_back().is_some_and(|(_, end)| *end > from)
    }

    /// Adds `from..to`, unless some of it is in.
    pub fn add(&mut self, from: u64, to: u64) {
        if self.touches(from, to) {
            return;
        }
        self.len_bytes += to - from;
        let before = self.spans.range(..=from).next_back().map(|(start, end)| (*start, *end));
        let start = match before {
            Some((start, end)) if end == from => start,
            _ => from,
        };
        let end = self.spans.remove(&to).unwrap_or(to);
        self.spans.insert(start, end);
    }

    /// The first bytes of `0..to` that are not in.
    pub fn gap(&self, to: u64) -> Option<(u64, u64)> {
        let mut at = 0;
        for (start, end) in &self.spans {
            if *start > at {
                return Some((at, *start));
            }
            at = *end;
        }
        (at < to).then_some((at, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_what_was_added() {
        let mut spans = Spans::default();
        for from in [10u64, 30, 20, 0, 40] {
            assert!(!spans.touches(from, from + 10));
            spans.add(from, from + 10);
            assert!(spans.touches(from, from + 1) && spans.touches(from + 9, from + 30));
        }
        assert_eq!((spans.len_bytes(), spans.gap(50), spans.gap(60)), (50, None, Some((50, 60))));
        assert!(!spans.touches(50, 60));
    }
}
