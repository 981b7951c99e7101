//! The memory of events: structs that the endpoint hands out and any thread gives back, in any order.
//!
//! One word, `state`, holds the top of a stack of returned events, how many are on it, and whether the endpoint is
//! gone. Giving back is one compare-and-swap loop; the endpoint never pops from the stack but takes the whole of it
//! by one swap, so there is no ABA. Once the endpoint is gone returns only count, and the last one frees the memory: a
//! program may return its events after it has destroyed the endpoint.

pub(crate) mod event;

use event::{BLOCK, CEvent, Home};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const NIL: u32 = u32::MAX;
const ORPHAN: u64 = 1 << 63;
const ONE_HOME: u64 = 1 << 32;

const fn top(state: u64) -> u32 {
    state as u32
}

/// Events on the stack, or, once the endpoint is gone, events at home.
const fn home(state: u64) -> u32 {
    ((state & !ORPHAN) >> 32) as u32
}

/// The owner's side; one per endpoint, under its lock.
pub(crate) struct Pool {
    home: NonNull<Home>,
    free_top: u32,
    free: u32,
    count_max: u32,
}

// SAFETY: the owner's fields move with it; what is shared is reached through atomics.
unsafe impl Send for Pool {}

impl Pool {
    /// At most `count_max` events will be out at once, rounded up to blocks.
    pub fn new(count_max: u32) -> Pool {
        let home =
            Home { state: AtomicU64::new(u64::from(NIL)), count: AtomicU32::new(0), blocks: Vec::new() };
        let home = NonNull::from(Box::leak(Box::new(home)));
        Pool { home, free_top: NIL, free: 0, count_max: count_max.min(1 << 30) }
    }

    /// The limit on events that are out.
    pub fn set_max(&mut self, count_max: u32) {
        self.count_max = count_max.min(1 << 30);
    }

    fn state(&self) -> &AtomicU64 {
        // SAFETY: the home lives at least as long as the owner.
        unsafe { &(*self.home.as_ptr()).state }
    }

    fn event(&self, index: u32) -> NonNull<CEvent> {
        // SAFETY: `blocks` is the owner's while it is there, and an index that we hold was made by `grow`.
        let block = unsafe { (&(*self.home.as_ptr()).blocks)[index as usize / BLOCK] };
        // SAFETY: within the block.
        unsafe { block.cast::<CEvent>().add(index as usize % BLOCK) }
    }

    /// Takes a free event; None when as many as may be are out.
    #[inline]
    pub fn take(&mut self) -> Option<NonNull<CEvent>> {
        if self.free_top == NIL {
            self.collect();
        }
        if self.free_top == NIL {
            self.grow();
        }
        if self.free_top == NIL {
            return None;
        }
        let event = self.event(self.free_top);
        // SAFETY: it is at home, so ours. Relaxed: `collect` has acquired what its returner wrote.
        self.free_top = unsafe { (*event.as_ptr()).below.load(Ordering::Relaxed) };
        self.free -= 1;
        Some(event)
    }

    /// Puts back an event just taken and not given out.
    #[inline]
    pub fn put_back(&mut self, event: NonNull<CEvent>) {
        // SAFETY: taken and not given out: ours.
        unsafe {
            (*event.as_ptr()).below.store(self.free_top, Ordering::Relaxed);
            self.free_top = (*event.as_ptr()).index;
        }
        self.free += 1;
    }

    /// Takes over what was returned, when nothing is left.
    fn collect(&mut self) {
        debug_assert_eq!((self.free_top, self.free), (NIL, 0), "what is on the owner's stack would be lost");
        if top(self.state().load(Ordering::Relaxed)) == NIL {
            return;
        }
        // Acquire pairs with the Release in `give_back`: the returners are done with the events, the links are visible.
        let state = self.state().swap(u64::from(NIL), Ordering::Acquire);
        // The first that was returned to an empty stack has `NIL` below it: the stack is ours as it is, no need to walk it.
        self.free_top = top(state);
        self.free = home(state);
    }

    #[cold]
    fn grow(&mut self) {
        // SAFETY: the owner's, see `event`.
        let (blocks, count) = unsafe { (&mut (*self.home.as_ptr()).blocks, &(*self.home.as_ptr()).count) };
        let made = count.load(Ordering::Relaxed);
        if made >= self.count_max {
            return;
        }
        let home = self.home;
        let block: Box<[CEvent; BLOCK]> = Box::new(std::array::from_fn(|at| {
            let index = made + at as u32;
            let below = if at + 1 < BLOCK { index + 1 } else { NIL };
            CEvent::new(home, index, below)
        }));
        blocks.push(NonNull::from(Box::leak(block)));
        count.store(made + BLOCK as u32, Ordering::Relaxed);
        self.free_top = made;
        self.free += BLOCK as u32;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        // SAFETY: the home lives at least as long as the owner.
        let count = unsafe { (*self.home.as_ptr()).count.load(Ordering::Relaxed) };
        count as usize * size_of::<CEvent>() + size_of::<Home>()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let ours = ORPHAN | u64::from(self.free) << 32;
        // SAFETY: the home lives at least as long as the owner.
        let count = unsafe { (*self.home.as_ptr()).count.load(Ordering::Relaxed) };
        // Release: our uses of events come before the free, whoever does it; Acquire: theirs before ours.
        let before = self.state().fetch_add(ours, Ordering::AcqRel);
        if home(before) + self.free == count {
            // SAFETY: all events are at home and the owner is here: no one else has the pointer.
            unsafe { free(self.home) };
        }
    }
}

/// # Safety
/// Every event is at home, the owner is gone, and this is called once.
unsafe fn free(home: NonNull<Home>) {
    // SAFETY: made by `Box::leak` in `Pool::new`.
    let home = unsafe { Box::from_raw(home.as_ptr()) };
    for block in &home.blocks {
        // SAFETY: made by `Box::leak` in `grow`.
        drop(unsafe { Box::from_raw(block.as_ptr()) });
    }
}

/// True once the endpoint of the event is gone.
///
/// # Safety
/// The event that `home` is of is out.
#[inline]
pub(crate) unsafe fn is_orphan(home: NonNull<Home>) -> bool {
    // SAFETY: an event that is out keeps the home.
    unsafe { (*home.as_ptr()).state.load(Ordering::Acquire) & ORPHAN != 0 }
}

/// Returns an event; frees the memory if the endpoint is gone and this was the last.
///
/// # Safety
/// `event` is out, the caller's, and not used by it after this.
#[inline]
pub(crate) unsafe fn give_back(event: NonNull<CEvent>) {
    let event = event.as_ptr();
    // SAFETY: the event is out, so it and its home live until the exchange below succeeds.
    let (home_at, index) = unsafe { ((*event).home, (*event).index) };
    let shared = home_at.as_ptr();
    // SAFETY: as above.
    let mut state = unsafe { (*shared).state.load(Ordering::Relaxed) };
    loop {
        let next = if state & ORPHAN == 0 {
            // SAFETY: as above.
            unsafe { (*event).below.store(top(state), Ordering::Relaxed) };
            (state & !u64::from(u32::MAX) | u64::from(index)) + ONE_HOME
        } else {
            state + ONE_HOME
        };
        // SAFETY: as above; no one frees before the exchange, since one event, ours, is not at home.
        let (result, count) = unsafe {
            let count = (*shared).count.load(Ordering::Relaxed);
            // Release: what we did to the event comes before its next use. Acquire: if we are the last, all the
            // others' uses come before the free.
            ((*shared).state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Relaxed), count)
        };
        match result {
            Ok(_) => {
                // `count` cannot change any more once the owner is gone.
                if next & ORPHAN != 0 && home(next) == count {
                    // SAFETY: the owner is gone and all events are at home: we are the last.
                    unsafe { free(home_at) };
                }
                return;
            }
            Err(now) => state = now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::mpsc;

    /// An event on its way to another thread.
    struct Out(NonNull<CEvent>);

    // SAFETY: events may be returned by any thread.
    unsafe impl Send for Out {}

    impl Out {
        fn give_back(self) {
            // SAFETY: out, and not used after this.
            unsafe { give_back(self.0) };
        }
    }

    #[test]
    fn events_come_back_in_any_order_up_to_the_limit() {
        let mut pool = Pool::new(100);
        let mut out: Vec<_> = std::iter::from_fn(|| pool.take().map(Out)).collect();
        assert_eq!(out.len(), 128, "the limit, rounded up to blocks");
        let places: HashSet<_> = out.iter().map(|event| event.0).collect();
        assert_eq!(places.len(), 128, "each is there once");
        let bytes = pool.bytes();
        for round in 0..5 {
            for _ in 0..50 {
                out.swap_remove((round * 7) % out.len()).give_back();
            }
            out.extend(std::iter::from_fn(|| pool.take().map(Out)));
            assert_eq!((out.len(), pool.bytes()), (128, bytes));
        }
        let one = out.pop().unwrap();
        one.give_back();
        let again = pool.take().unwrap();
        pool.put_back(again);
        assert_eq!(pool.take(), Some(again));
        out.push(Out(again));
        out.into_iter().for_each(Out::give_back);
    }

    /// Others return while the owner takes, and go on after the owner is gone: the last one frees.
    #[test]
    fn events_outlive_their_pool_on_other_threads() {
        let rounds = if cfg!(miri) { 200 } else { 20_000 };
        let mut pool = Pool::new(64);
        let (senders, returners): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (sender, receiver) = mpsc::channel::<Out>();
                (sender, std::thread::spawn(move || receiver.into_iter().for_each(Out::give_back)))
            })
            .unzip();
        let mut given = 0;
        while given < rounds {
            match pool.take() {
                Some(event) => {
                    senders[given % 2].send(Out(event)).unwrap();
                    given += 1;
                }
                None => std::thread::yield_now(),
            }
        }
        drop(pool);
        drop(senders);
        for returner in returners {
            returner.join().unwrap();
        }
    }
}
