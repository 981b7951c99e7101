//! The receive window: which bundles have come, and those that cannot be delivered yet.

use crate::Seq;
use crate::limits::{SACK_BITS, SACK_WORDS_MAX, WINDOW_BUNDLES_MAX};
use crate::pool::Buf;
use crate::wire::Sack;

/// Which bundles have come: a bit for each number, in a ring.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Bits([u64; SACK_WORDS_MAX]);

impl Bits {
    #[inline]
    fn word_and_bit(seq: Seq) -> (usize, u64) {
        let bit = seq.0 % SACK_BITS;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    #[inline]
    pub fn has(&self, seq: Seq) -> bool {
        let (word, bit) = Bits::word_and_bit(seq);
        self.0[word] & bit != 0
    }

    #[inline]
    pub fn set(&mut self, seq: Seq) {
        let (word, bit) = Bits::word_and_bit(seq);
        self.0[word] |= bit;
    }

    #[inline]
    pub fn clear(&mut self, seq: Seq) {
        let (word, bit) = Bits::word_and_bit(seq);
        self.0[word] &= !bit;
    }

    /// The ring from `ack` on: bit `i` of the result says that `ack + i` has come.
    //= wire.md R-ACK-2
    pub fn sack(&self, ack: Seq, end: Seq) -> Sack {
        let bits = end.since(ack).min(SACK_BITS);
        let len = bits.div_ceil(64);
        let (first, shift) = (((ack.0 % SACK_BITS) / 64) as usize, ack.0 % 64);
        let mut sack = Sack { words: [0; SACK_WORDS_MAX], len: len as u8 };
        for (index, word) in sack.words.iter_mut().enumerate().take(len as usize) {
            let low = self.0[(first + index) % SACK_WORDS_MAX] >> shift;
            let high = match shift {
                0 => 0,
                shift => self.0[(first + index + 1) % SACK_WORDS_MAX] << (64 - shift),
            };
            *word = low | high;
        }
        // A full ring shows its first bits again behind its last.
        if let Some(last) = sack.words.get_mut((len as usize).wrapping_sub(1)) {
            let used = bits - (len - 1) * 64;
            *last &= u64::MAX >> (64 - used);
        }
        sack
    }
}

/// Buffers of bundles that wait to be delivered; borrowed while there are any.
pub(crate) struct RxRing(Box<[Buf; WINDOW_BUNDLES_MAX as usize]>);

impl RxRing {
    pub const COST_BYTES: u64 = (WINDOW_BUNDLES_MAX as usize * size_of::<Buf>()) as u64;

    pub fn new() -> RxRing {
        RxRing(Box::new([Buf::NONE; WINDOW_BUNDLES_MAX as usize]))
    }

    pub fn at(&mut self, seq: Seq) -> &mut Buf {
        &mut self.0[(seq.0 % WINDOW_BUNDLES_MAX) as usize]
    }

    pub fn get(&self, seq: Seq) -> Buf {
        self.0[(seq.0 % WINDOW_BUNDLES_MAX) as usize]
    }
}

/// When a bundle of an unreliable connection comes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// After all that have come.
    Next,
    /// After one that was sent later.
    Late,
    /// Again, as far as can be known.
    Repeated,
}

/// The numbers of the receive side; stored bundles are in an [`RxRing`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rx {
    /// The first that has not come.
    pub next: Seq,
    /// The first that has not been delivered; before or at `next`.
    pub deliver: Seq,
    /// Behind the last that has come.
    pub end: Seq,
    pub bits: Bits,
    /// Bundles stored.
    pub held: u32,
    /// Stored bundles behind a gap whose records must be handled in the order of the bundles.
    pub unpassed: u32,
}

impl Rx {
    pub fn new(next: Seq) -> Rx {
        Rx { next, deliver: next, end: next, bits: Bits::default(), held: 0, unpassed: 0 }
    }

    /// How many numbers from `next` on may come now.
    #[inline]
    pub fn window(&self) -> u32 {
        WINDOW_BUNDLES_MAX - self.next.since(self.deliver)
    }

    /// Bundle `seq`, inside the window, has come and is stored or delivered.
    #[inline]
    pub fn arrived(&mut self, seq: Seq) {
        if seq == self.next && self.end == self.next {
            self.next = seq.next();
            self.end = self.next;
            return;
        }
        self.bits.set(seq);
        if !seq.precedes(self.end) {
            self.end = seq.next();
        }
        while self.next != self.end && self.bits.has(self.next) {
            self.bits.clear(self.next);
            self.next = self.next.next();
        }
    }

    /// Bundle `seq` of an unreliable connection has come. Those whose numbers are too old to know are taken for repeats.
    pub fn came_unreliable(&mut self, seq: Seq) -> Order {
        let is_late = seq.precedes(self.end);
        if is_late && (seq.precedes(self.deliver) || self.has(seq)) {
            return Order::Repeated;
        }
        if !is_late {
            let skipped = seq.since(self.end);
            if skipped >= SACK_BITS {
                self.bits = Bits::default();
            } else {
                (0..skipped).for_each(|step| self.bits.clear(self.end.plus(step)));
            }
            self.end = seq.next();
            self.next = self.end;
            if self.end.since(self.deliver) > SACK_BITS {
                self.deliver = self.end.plus(SACK_BITS.wrapping_neg());
            }
        }
        self.bits.set(seq);
        if is_late { Order::Late } else { Order::Next }
    }

    #[inline]
    pub fn has(&self, seq: Seq) -> bool {
        self.bits.has(seq)
    }

    /// Moves `deliver` over what has been delivered.
    pub fn settle(&mut self, ring: &RxRing) {
        while self.deliver != self.next && !ring.get(self.deliver).is_some() {
            self.deliver = self.deliver.next();
        }
    }

    pub fn sack(&self) -> Sack {
        if self.end == self.next { Sack::default() } else { self.bits.sack(self.next, self.end) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_bitmap_shows_what_has_come(
            start in prop_oneof![any::<u32>(), u32::MAX - 300..=u32::MAX], offsets in prop::collection::vec(0u32..256, 0..300),
        ) {
            let start = Seq(start);
            let mut rx = Rx::new(start);
            let mut come = std::collections::BTreeSet::new();
            for offset in offsets {
                let seq = start.plus(offset);
                let fresh = come.insert(offset);
                if seq.precedes(rx.next) {
                    prop_assert!(!fresh);
                    continue;
                }
                prop_assert_eq!(rx.has(seq), !fresh);
                rx.arrived(seq);
            }
            let gap = (0..).find(|offset| !come.contains(offset)).unwrap();
            prop_assert_eq!(rx.next, start.plus(gap));
            let sack = rx.sack();
            for bit in 0..256u32 {
                let reported = sack.words[(bit / 64) as usize] >> (bit % 64) & 1 == 1;
                prop_assert_eq!(reported, come.contains(&(gap + bit)), "bit {}", bit);
            }
        }
    }
}
