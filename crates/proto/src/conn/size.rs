//! How large a datagram the path to the peer takes, where nobody says so: packets that are too large may vanish without a
//! word (RFC 8899). Why it is done so: `docs/adr/0020`.

use crate::Time;
use crate::limits::{DATAGRAM_BYTES_MIN, SIZE_RAISE_NS, SIZE_SUSPECT_COPIES, SIZE_TRIES_MAX};

/// Datagrams that the usual links carry: MTU 1,280, 1,400 and 1,500, less the headers of IPv6 and UDP.
const USUAL: [u16; 3] = [1232, 1352, 1448];

/// A connection's search for the largest datagram.
#[derive(Copy, Clone, Debug)]
pub(crate) struct SizeSearch {
    /// When a larger one may be tried; meaningless while nothing larger is wanted.
    due: Time,
    /// When the latest bundle was sent that was larger than what every path takes, and has been acknowledged.
    large_sent_at: Time,
    /// Large bundles sent since then and taken for lost.
    lost: u8,
    /// The size that is being tried; 0: none.
    trying: u16,
    /// How often the size was tried without success.
    tries: u8,
    /// A size that has just proved good; 0: none.
    good: u16,
}

impl SizeSearch {
    /// Nothing larger is tried for a while: a connection that wakes up for a message should not lose it.
    pub fn new(now: Time) -> SizeSearch {
        let due = now.plus(SIZE_RAISE_NS);
        SizeSearch { due, large_sent_at: Time(0), lost: 0, trying: 0, tries: 0, good: 0 }
    }

    /// A bundle larger than every path takes, sent at `sent_at` as one datagram, has arrived.
    #[inline]
    pub fn large_arrived(&mut self, sent_at: Time) {
        if sent_at > self.large_sent_at {
            (self.large_sent_at, self.lost) = (sent_at, 0);
        }
    }

    /// A large bundle that was sent at `sent_at` is taken for lost.
    pub fn large_lost(&mut self, sent_at: Time) {
        self.lost = (self.lost + u8::from(sent_at > self.large_sent_at)).min(SIZE_SUSPECT_COPIES);
    }

    /// No large bundle was lost: the peer has asked for them again.
    pub fn none_lost(&mut self) {
        self.lost = 0;
    }

    /// Whether it looks as if large datagrams vanished: the last of several copies of one was sent after every large one
    /// that arrived, as were several others or its other copies, and the peer has been heard of since.
    pub fn is_black_hole(&self, sent_at: Time, heard_at: Time) -> bool {
        self.lost >= SIZE_SUSPECT_COPIES && self.large_sent_at < sent_at && heard_at > sent_at
    }

    /// Large datagrams vanish: the smallest size is used from now on, and larger ones are tried at once.
    pub fn fell(&mut self, now: Time) {
        *self = SizeSearch { due: now, ..SizeSearch::new(now) };
    }

    /// The path says itself what it takes: no reason to try more for a while.
    pub fn was_limited(&mut self, now: Time) {
        *self = SizeSearch { large_sent_at: self.large_sent_at, ..SizeSearch::new(now) };
    }

    /// The size to try now, above `current`, up to `max`.
    //= wire.md R-MTU-4
    pub fn candidate(&self, current: u16, max: u16, now: Time) -> Option<u16> {
        if current >= max || self.trying != 0 || now < self.due {
            return None;
        }
        Some(USUAL.into_iter().find(|&size| size > current && size < max).unwrap_or(max))
    }

    /// A bundle leaves that is as large as the size to try.
    pub fn try_size(&mut self, size: u16) {
        self.trying = size;
    }

    /// The bundle of the size that is being tried has arrived.
    pub fn succeeded(&mut self) {
        (self.good, self.trying, self.tries) = (self.trying, 0, 0);
    }

    /// The bundle of the size that is being tried is taken for lost; it was sent at `sent_at`.
    pub fn failed(&mut self, sent_at: Time) {
        self.trying = 0;
        self.tries += 1;
        if self.tries >= SIZE_TRIES_MAX {
            self.tries = 0;
            self.due = sent_at.plus(SIZE_RAISE_NS);
        }
    }

    /// The size that has proved good since this was asked last.
    #[inline]
    pub fn take_good(&mut self) -> Option<u16> {
        if self.good == 0 { None } else { Some(std::mem::take(&mut self.good)) }
    }
}

const _: () = assert!(USUAL[0] > DATAGRAM_BYTES_MIN, "the smallest is what is left");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_up_by_usual_sizes_until_one_fails_twice() {
        let now = Time(1_000);
        let mut size = SizeSearch::new(now);
        size.fell(now);
        for expected in [1232, 1352] {
            let current = if expected == 1232 { 1152 } else { 1232 };
            assert_eq!(size.candidate(current, 1472, now), Some(expected));
            size.try_size(expected);
            assert_eq!(size.candidate(current, 1472, now), None, "one at a time");
            size.succeeded();
            assert_eq!(size.take_good(), Some(expected));
        }
        for _ in 0..SIZE_TRIES_MAX {
            assert_eq!(size.candidate(1352, 1472, now), Some(1448));
            size.try_size(1448);
            size.failed(now);
        }
        assert_eq!(size.candidate(1352, 1472, now), None);
        assert_eq!(size.candidate(1352, 1472, now.plus(SIZE_RAISE_NS)), Some(1448));
        assert_eq!(size.candidate(1448, 1472, now.plus(SIZE_RAISE_NS)), Some(1472));
        assert_eq!(size.candidate(1472, 1472, now.plus(SIZE_RAISE_NS)), None);
    }

    #[test]
    fn silence_and_loss_are_no_black_hole() {
        let mut size = SizeSearch::new(Time(0));
        (6..10).for_each(|at| size.large_lost(Time(at)));
        assert!(!size.is_black_hole(Time(10), Time(5)), "nothing is heard");
        assert!(size.is_black_hole(Time(10), Time(15)));
        size.large_arrived(Time(11));
        assert!(!size.is_black_hole(Time(10), Time(15)), "another one arrived");
        assert!(!size.is_black_hole(Time(12), Time(15)), "nothing was lost since");
        (12..16).for_each(|at| size.large_lost(Time(at)));
        assert!(size.is_black_hole(Time(12), Time(15)));
        size.none_lost();
        assert!(!size.is_black_hole(Time(12), Time(15)), "the peer asked for it again");
    }
}
