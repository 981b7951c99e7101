//! What senders of other ranks are to learn: that segments have left their slots.
//!
//! News of the channel that was used last travels with the next short message to its rank, once a quarter of its slots was emptied. Other news is a record
//! of its own, once half of the slots were emptied since the last one, so that a sender never waits for what is not said.

use super::wire::taken;
use super::{End, lane};
use crate::links::Links;

/// How many segments have left their slots of which the sender is still to learn.
#[derive(Default)]
pub(super) struct Unsaid(u32);

impl Unsaid {
    /// One more segment has left its slot, of which there are `count`. Returns whether that is to be said now.
    #[inline]
    pub fn took(&mut self, count: u32) -> bool {
        self.0 += 1;
        let is_due = self.0 >= count / 2;
        if is_due {
            self.0 = 0;
        }
        is_due
    }

    /// How many more segments leave their slots before that is to be said; at least 1.
    #[inline]
    pub fn until_due(&self, count: u32) -> usize {
        (count / 2).saturating_sub(self.0).max(1) as usize
    }

    /// Whether it is worth a place in a message.
    #[inline]
    pub fn is_to_carry(&self, count: u32) -> bool {
        self.0 > 0 && self.0 >= count / 4
    }

    /// A message has taken it along.
    #[inline]
    pub fn was_carried(&mut self) {
        self.0 = 0;
    }
}

/// What is to be said now, in records of its own.
#[derive(Default)]
pub(super) struct Owed {
    due: Vec<(End, u64)>,
}

impl Owed {
    /// So many segments of a channel have left their slots.
    #[cold]
    pub fn owe(&mut self, end: End, segments: u64) {
        self.due.push((end, segments));
    }

    /// Whether nothing is to be said now.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Says what is to be said now.
    #[inline]
    pub fn say_due(&mut self, links: &mut Links) {
        if !self.is_empty() {
            self.say(links);
        }
    }

    fn say(&mut self, links: &mut Links) {
        for (end, segments) in self.due.drain(..) {
            links.say_bytes(lane(end.rank), &taken(end.channel, segments));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes segments one by one, and has a message take the news along where `carries` says so. Checks that the sender, which knows only of such news,
    /// always has a slot for the next segment. Returns how many records there were.
    fn take_all(count: u32, mut carries: impl FnMut(u64) -> bool) -> usize {
        let (mut unsaid, mut known, mut said) = (Unsaid::default(), 0, 0);
        for segments in 1..=1000 {
            assert!(segments <= known + u64::from(count), "it was sent before {count} others were taken");
            let is_due = unsaid.until_due(count) == 1;
            assert_eq!(unsaid.took(count), is_due, "batches end where this is due");
            if is_due {
                (known, said) = (segments, said + 1);
            }
            if carries(segments) && unsaid.is_to_carry(count) {
                assert!(segments > known, "it was known");
                unsaid.was_carried();
                known = segments;
            }
        }
        said
    }

    #[test]
    fn no_sender_waits_for_what_is_not_said() {
        for count in [1, 2, 3, 4, 5, 7, 8, 9, 64, 100] {
            let half = (count / 2).max(1) as usize;
            assert_eq!(take_all(count, |_| false), 1000 / half, "{count} slots");
            for period in 1..40 {
                for first in 0..period.min(7) {
                    take_all(count, |segments| segments % period == first);
                }
            }
            for seed in 1..50_u64 {
                let mut state = seed;
                take_all(count, |_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    state >> 62 == 0
                });
            }
        }
        assert_eq!(take_all(8, |_| true), 0, "all news travels with messages");
    }

    #[test]
    fn news_is_carried_once() {
        let mut unsaid = Unsaid::default();
        assert!(!unsaid.is_to_carry(4));
        assert!(!unsaid.took(4) && unsaid.is_to_carry(4));
        unsaid.was_carried();
        assert!(!unsaid.is_to_carry(4));
    }
}
