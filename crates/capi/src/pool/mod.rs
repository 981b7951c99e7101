//! The memory of events: structs that the endpoint hands out and any thread gives back, in any order.
//!
//! They come back on a stack ([`cci_memory::returns`]). Once the endpoint is gone, the last one that is returned frees the
//! memory: a program may return its events after it has destroyed the endpoint.

pub(crate) mod event;

use cci_memory::returns::{NIL, Returns};
use event::{BLOCK, CEvent, Home};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// The owner's side; one per endpoint, under its lock.
pub(crate) struct Pool {
    home: NonNull<Home>,
    free_top: u32,
    free: u32,
    /// Events made, out or not.
    made: u32,
    count_max: u32,
}

// SAFETY: the owner's fields move with it; what is shared is reached through atomics.
unsafe impl Send for Pool {}

impl Pool {
    /// At most `count_max` events will be out at once, rounded up to blocks.
    pub fn new(count_max: u32) -> Pool {
        let home = Home { returns: Returns::new(), blocks: Vec::new() };
        let home = NonNull::from(Box::leak(Box::new(home)));
        Pool { home, free_top: NIL, free: 0, made: 0, count_max: count_max.min(1 << 30) }
    }

    /// The limit on events that are out.
    pub fn set_max(&mut self, count_max: u32) {
        self.count_max = count_max.min(1 << 30);
    }

    fn returns(&self) -> &Returns {
        // SAFETY: the home lives at least as long as the owner.
        unsafe { &(*self.home.as_ptr()).returns }
    }

    fn event(&self, index: u32) -> NonNull<CEvent> {
        // SAFETY: `blocks` is the owner's while it is there, and an index that we hold was made by `grow`.
        let block = unsafe { (&(*self.home.as_ptr()).blocks)[index as usize / BLOCK] };
        // SAFETY: within the block.
        unsafe { block.cast::<CEvent>().add(index as usize % BLOCK) }
    }

    /// Whether there is a free event, which [`take`](Self::take) will give.
    #[inline]
    pub fn has_one(&mut self) -> bool {
        if self.free_top == NIL {
            self.collect();
        }
        if self.free_top == NIL {
            self.grow();
        }
        self.free_top != NIL
    }

    /// How many events can be taken now, at least: 0 only if as many as may be are out.
    #[inline]
    pub fn spare(&mut self) -> u32 {
        if self.free == 0 {
            self.collect();
        }
        self.free + self.count_max.saturating_sub(self.made)
    }

    /// What its events point back to.
    pub fn home(&self) -> NonNull<Home> {
        self.home
    }

    /// Takes a free event; None when as many as may be are out.
    #[inline]
    pub fn take(&mut self) -> Option<NonNull<CEvent>> {
        if !self.has_one() {
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
        // The first that was returned to an empty stack has `NIL` below it: the stack is ours as it is, no need to walk it.
        if let Some(taken) = self.returns().take_all() {
            self.free_top = taken.top;
            self.free = taken.count;
        }
    }

    #[cold]
    fn grow(&mut self) {
        // SAFETY: the owner's, see `event`.
        let blocks = unsafe { &mut (*self.home.as_ptr()).blocks };
        let made = self.made;
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
        self.made += BLOCK as u32;
        self.free_top = made;
        self.free += BLOCK as u32;
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.made as usize * size_of::<CEvent>() + size_of::<Home>()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.returns().leave(self.free, self.made) {
            // SAFETY: all events are in and the owner is here: no one else has the pointer.
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
    unsafe { (*home.as_ptr()).returns.is_abandoned() }
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
    // SAFETY: the event is out, so the memory lives until `Returns::give_back` has returned it. That call holds a reference to
    // an atomic word alone, which another thread may free meanwhile.
    let is_last = unsafe {
        let link = |top| (*event).below.store(top, Ordering::Relaxed);
        (*shared).returns.give_back(index, link)
    };
    if is_last {
        // SAFETY: the endpoint is gone and all events are in: we are the last.
        unsafe { free(home_at) };
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
        let slots: HashSet<_> = out.iter().map(|event| event.0).collect();
        assert_eq!(slots.len(), 128, "each is there once");
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
