//! A stack that any thread returns items to, and from which one owner takes them all: the shared part of every pool.
//!
//! Items are numbers. One word holds the top of the stack (32 bits), how many items are on it (31 bits), and whether the
//! owner is gone (1 bit). A return is one compare-and-swap loop. The owner never pops a single item: it takes the whole
//! stack by one swap, so there is no ABA. Once the owner is gone nobody takes items any more: the count is then of items
//! that are still out, below zero, and whoever brings it to zero is the last user of the pool's memory and frees it.
//!
//! The link from an item to the one below it lies with the pool, which knows what an item is.

use crate::atomic::{AtomicU64, Ordering};

/// The number that no item has: the end of a list.
pub const NIL: u32 = u32::MAX;
/// The most items of one pool.
pub const ITEMS_MAX: u32 = (1 << 31) - 1;

const OWNER_GONE: u64 = 1 << 63;
const ONE_ITEM: u64 = 1 << 32;
/// The count, where it is in the word.
const COUNT: u64 = (ITEMS_MAX as u64) << 32;

const _: () =
    assert!(COUNT & OWNER_GONE == 0 && COUNT & ONE_ITEM != 0 && COUNT as u32 == 0, "no part overlaps");

const fn top(word: u64) -> u32 {
    word as u32
}

const fn count(word: u64) -> u32 {
    ((word & COUNT) >> 32) as u32
}

/// The stack of items that were returned and that the owner has not taken.
#[derive(Debug)]
pub struct Returns(AtomicU64);

/// All that was on the stack.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The item returned last. The pool's links lead from it to the others, and end with [`NIL`].
    pub top: u32,
    /// How many they are, at least one.
    pub count: u32,
}

impl Default for Returns {
    fn default() -> Self {
        Returns::new()
    }
}

impl Returns {
    /// An empty stack, whose owner is there.
    pub fn new() -> Returns {
        Returns(AtomicU64::new(u64::from(NIL)))
    }

    /// Items returned and not taken. Only the owner calls it. What was done to them before they were returned comes before
    /// what follows this call.
    #[inline]
    pub fn count(&self) -> u32 {
        // Acquire pairs with the Release in `give_back`.
        count(self.0.load(Ordering::Acquire))
    }

    /// Takes all items. Only the owner calls it.
    #[inline]
    pub fn take_all(&self) -> Option<Taken> {
        // Relaxed: only a hint; who takes synchronises.
        if top(self.0.load(Ordering::Relaxed)) == NIL {
            return None;
        }
        // Acquire pairs with the Release in `give_back`: the last user's accesses are over, and the links are visible.
        let word = self.0.swap(u64::from(NIL), Ordering::Acquire);
        Some(Taken { top: top(word), count: count(word) })
    }

    /// The owner goes. Of all `total` items it has `own`, which are not out. True: no item is out, so that the caller is the
    /// last user of the memory.
    #[must_use = "the last one frees the memory"]
    pub fn leave(&self, own: u32, total: u32) -> bool {
        let out = u64::from(total.wrapping_sub(own)) << 32 & COUNT;
        // The count's own bits, modulo their number, of zero less `out`. Only where that makes zero again does the sum carry
        // into the topmost bit, and then nobody else looks at it.
        let change = OWNER_GONE | (COUNT + ONE_ITEM - out) & COUNT;
        // Release: the owner's accesses come before the free, whoever does it. Acquire: the others' come before ours.
        let before = self.0.fetch_add(change, Ordering::AcqRel);
        u64::from(count(before)) << 32 == out
    }

    /// True once the owner has gone.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Acquire) & OWNER_GONE != 0
    }

    /// Returns an item that is out. `link` is called with the item that is to be below it, possibly several times, before
    /// the item is returned. True: the owner is gone and no other item is out, so that the caller is the last user of the
    /// memory. Otherwise the memory may be gone when this returns.
    #[inline]
    #[must_use = "the last one frees the memory"]
    pub fn give_back(&self, item: u32, link: impl Fn(u32)) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let is_owned = word & OWNER_GONE == 0;
            let next = if is_owned {
                link(top(word));
                (word & !u64::from(u32::MAX) | u64::from(item)) + ONE_ITEM
            } else {
                word & !COUNT | word.wrapping_add(ONE_ITEM) & COUNT
            };
            // Release: our accesses to the item come before its next use, or its end; the link is visible with it.
            // Acquire: if we are the last, all the others' accesses come before the free.
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return !is_owned && count(next) == 0,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn items_are_taken_together_the_last_one_first() {
        let (returns, below) = (Returns::new(), Cell::new(0));
        assert_eq!((returns.take_all(), returns.count()), (None, 0));
        assert!(!returns.give_back(4, |top| below.set(top)));
        assert_eq!(below.get(), NIL);
        assert!(!returns.give_back(2, |top| below.set(top)));
        assert_eq!((below.get(), returns.count()), (4, 2));
        assert_eq!(returns.take_all(), Some(Taken { top: 2, count: 2 }));
        assert_eq!((returns.take_all(), returns.count()), (None, 0));
    }

    #[test]
    fn the_last_one_knows_it_whatever_was_in_before() {
        for total in [1, 2, 7, ITEMS_MAX] {
            for (own, in_before) in (0..total.min(7)).flat_map(|own| (0..3).map(move |before| (own, before)))
            {
                if own + in_before > total || total - own - in_before > 20 {
                    continue;
                }
                let returns = Returns::new();
                assert!(
                    (0..in_before).all(|item| !returns.give_back(item, |_| ()) && !returns.is_abandoned())
                );
                let out = total - own - in_before;
                assert_eq!(returns.leave(own, total), out == 0, "{total} {own} {in_before}");
                assert!(returns.is_abandoned() || out == 0);
                for remaining in (0..out).rev() {
                    let is_last = returns.give_back(6, |_| panic!("nobody follows links any more"));
                    assert_eq!(is_last, remaining == 0, "{total} {own} {in_before}");
                }
            }
        }
        let returns = Returns::new();
        assert!(returns.leave(ITEMS_MAX, ITEMS_MAX), "the largest pool");
    }
}
