//! What senders of other ranks are to learn: that segments have left their slots.
//!
//! The news of one channel, the last one of which segments were taken, travels with the next short message to its rank. Other news is a record of its own,
//! once half of the slots were emptied since, so that a sender never waits for what is not said.

use super::wire::{Taken, taken};
use super::{End, lane};
use crate::links::Links;

#[derive(Default)]
pub(super) struct Owed {
    /// How far the receiver of this channel has come, since a quarter of its slots was emptied.
    last: Option<(End, u64)>,
    /// A message has taken it along.
    is_carried: bool,
    /// What is to be said now.
    due: Vec<(End, u64)>,
}

impl Owed {
    /// So many segments have left their slots, of which there are `count`: one more than before.
    #[inline]
    pub fn took(&mut self, end: End, segments: u64, count: u32) {
        let half = u64::from(count / 2).max(1);
        if segments.is_multiple_of(half) {
            // A sender that learned of a later segment than the half before has space until the next half.
            let knows = matches!(self.last, Some((last, carried))
                if self.is_carried && last == end && carried > segments - half);
            if !knows {
                self.due.push((end, segments));
                return;
            }
        }
        if segments.is_multiple_of(u64::from(count / 4).max(1)) {
            (self.last, self.is_carried) = (Some((end, segments)), false);
        }
    }

    /// What a message to this rank may take along; of channel 0: nothing.
    #[inline]
    pub fn for_rank(&self, rank: u32) -> Taken {
        match self.last {
            Some((end, segments)) if end.rank == rank && !self.is_carried => {
                Taken { channel: end.channel, segments }
            }
            _ => Taken::default(),
        }
    }

    /// A message has taken along what there was for its rank.
    #[inline]
    pub fn was_carried(&mut self, taken: Taken) {
        self.is_carried |= taken.channel != 0;
    }

    /// Says what is to be said now.
    #[inline]
    pub fn say_due(&mut self, links: &mut Links) {
        if !self.due.is_empty() {
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

    const END: End = End { rank: 1, channel: 1 };

    /// Takes segments one by one, and has a message take the news along where `carries` says so. Checks that the sender, which knows only of such news,
    /// always has a slot for the next segment. Returns how many records there were.
    fn take_all(count: u32, mut carries: impl FnMut(u64) -> bool) -> usize {
        let (mut owed, mut known, mut said) = (Owed::default(), 0, 0);
        for segments in 1..=1000 {
            assert!(segments <= known + u64::from(count), "it was sent before {count} others were taken");
            owed.took(END, segments, count);
            for (_, segments) in owed.due.drain(..) {
                assert!(segments > known, "it was known");
                (known, said) = (segments, said + 1);
            }
            if carries(segments) {
                let taken = owed.for_rank(END.rank);
                owed.was_carried(taken);
                known = known.max(taken.segments);
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
    fn news_is_for_its_rank_and_once() {
        let mut owed = Owed::default();
        assert_eq!(owed.for_rank(1), Taken::default());
        owed.took(END, 1, 4);
        assert_eq!(owed.for_rank(2), Taken::default());
        owed.was_carried(owed.for_rank(2));
        let taken = owed.for_rank(1);
        assert_eq!(taken, Taken { channel: 1, segments: 1 });
        owed.was_carried(taken);
        assert_eq!(owed.for_rank(1), Taken::default());
    }
}
