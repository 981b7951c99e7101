//! Receive buffers that one thread hands out and any thread gives back, in any order.
//!
//! A [`SlotPool`] belongs to one thread, which [`take`](SlotPool::take)s slots, fills them and freezes them. A frozen
//! [`Slot`] reads as `&[u8]`, goes to any thread, and returns to the pool when it is dropped. The memory lives until
//! both the pool and its last slot are gone.
//!
//! # How it works
//!
//! Slots come back on a stack ([`returns`](crate::returns)), of which the owner takes the whole, and keeps a list of its
//! own, the slot returned last first, as that is the one in its cache. No reference count is touched per message.
//!
//! A locked instruction waits until all stores before it are done, also the one to a line that the peer has just now, so
//! the thread that takes slots returns them without one: that thread, the pool's *home*, puts them on a queue that only
//! it writes and only the pool's owner reads. As a rule these two are one thread. Where the pool has moved on, or is
//! used by several threads in turn, they are not, and the queue is still right: the home stays what it was until all
//! slots are in and none waits on its queue, when the next to take one may become the home.
//!
//! Once the pool is gone nobody takes slots any more; returns only count, and the one that makes the count full frees
//! the memory. A pool that goes on another thread than its home, with slots out, can't make that thread count: it is
//! kept for later (`abandoned`).

use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use std::alloc::{self, Layout};

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::returns::{ITEMS_MAX, NIL, Returns};
use crate::thread;

mod abandoned;

/// The most slots of a pool.
pub const SLOTS_MAX: u32 = ITEMS_MAX;
/// Slots start on lines of their own: no two threads that read neighbours share one.
const SLOT_ALIGN_BYTES: usize = 64;
/// The owner collects what was returned once there is this much of it (or when it has no slot): few enough slots
/// that they stay in the cache, enough that the swap is paid seldom.
const COLLECT_SLOTS: u32 = 8;

/// In `below` of a slot that is out: this, and for whom it is out in the bits of [`HOLDER_MAX`]. No slot has this number.
const OUT: u32 = 1 << 31;
/// In `below` of a slot that is out and parked: this, and for whom it is out.
const PARKED: u32 = OUT | 1 << 30;
/// The highest number that may stand for whoever a slot is out for.
pub const HOLDER_MAX: u32 = (1 << 29) - 1;

const _: () = assert!(SLOTS_MAX <= OUT, "no slot has the number of one that is out");
const _: () = assert!(PARKED | HOLDER_MAX < NIL, "the end of a list is no slot that is out");

const fn is_parked(below: u32) -> bool {
    below & PARKED == PARKED && below != NIL
}

/// On lines of its own: pools of several threads that were made by one lie side by side.
#[repr(align(128))]
struct Shared {
    returns: Returns,
    /// Per slot, the one below it in the list that it is on; of one that is out, [`OUT`] or [`PARKED`].
    below: Box<[AtomicU32]>,
    /// The number of the only thread that may put slots on `returned`; [`thread::NONE`]: none.
    home: AtomicU64,
    /// Slots that the home returned, a queue; where it ends is `returned_end`, where it begins the pool knows. A power of
    /// two of entries, at least as many as slots.
    returned: Box<[AtomicU32]>,
    returned_end: AtomicU32,
    data: NonNull<u8>,
    layout: Layout,
    /// Stands for the memory: read by whoever uses it, written by the free, so that loom sees whether one follows the
    /// other.
    #[cfg(loom)]
    memory: loom::cell::UnsafeCell<()>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        #[cfg(loom)]
        self.memory.with_mut(|_| ());
        // SAFETY: `data` was allocated with this layout by `SlotPool::new`, and a `Shared` is dropped once.
        unsafe { alloc::dealloc(self.data.as_ptr(), self.layout) };
    }
}

/// Why a pool was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolError {
    /// No slots, slots of no bytes, or more of either than there can be: the caller's fault.
    Size,
    /// The system has not that much memory.
    NoMemory,
}

impl core::fmt::Display for PoolError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            PoolError::Size => {
                "a pool has at least one slot of one byte, and not more than memory has addresses"
            }
            PoolError::NoMemory => "no memory for the buffers",
        })
    }
}

impl core::error::Error for PoolError {}

/// A fixed number of buffers of one size. Owned by one thread (it may move between threads).
pub struct SlotPool {
    shared: NonNull<Shared>,
    /// The owner's list: its top, and how many are on it.
    free_top: u32,
    free: u32,
    /// Slots that are out and [parked](SlotPool::take_parked).
    parked: u32,
    /// Where `returned` begins.
    returned_begin: u32,
    count: u32,
    slot_bytes: u32,
    stride_bytes: usize,
}

// SAFETY: the owner's fields move with it; what is shared is reached through atomics.
unsafe impl Send for SlotPool {}

impl SlotPool {
    /// Makes `count` slots of `slot_bytes` bytes each, of zeros. The system gives the pages when they are first used.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if either number is 0 or too large, or if there is no memory.
    pub fn new(count: u32, slot_bytes: u32) -> Result<Self, PoolError> {
        if count == 0 || count > SLOTS_MAX || slot_bytes == 0 {
            return Err(PoolError::Size);
        }
        let stride_bytes = (slot_bytes as usize).next_multiple_of(SLOT_ALIGN_BYTES);
        let bytes = stride_bytes.checked_mul(count as usize).ok_or(PoolError::Size)?;
        let layout = Layout::from_size_align(bytes, SLOT_ALIGN_BYTES).map_err(|_| PoolError::Size)?;
        let mut below = Vec::new();
        below.try_reserve_exact(count as usize).map_err(|_| PoolError::NoMemory)?;
        below.extend((1..count).map(AtomicU32::new));
        below.push(AtomicU32::new(NIL));
        let mut returned = Vec::new();
        let entries = count.next_power_of_two() as usize;
        returned.try_reserve_exact(entries).map_err(|_| PoolError::NoMemory)?;
        returned.resize_with(entries, || AtomicU32::new(NIL));
        abandoned::sweep();
        // SAFETY: the layout is not empty: both factors were checked.
        let data = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or(PoolError::NoMemory)?;
        let shared = Box::new(Shared {
            returns: Returns::new(),
            below: below.into_boxed_slice(),
            home: AtomicU64::new(thread::NONE),
            returned: returned.into_boxed_slice(),
            returned_end: AtomicU32::new(0),
            data,
            layout,
            #[cfg(loom)]
            memory: loom::cell::UnsafeCell::new(()),
        });
        let shared = NonNull::from(Box::leak(shared));
        let (parked, returned_begin) = (0, 0);
        Ok(SlotPool {
            shared,
            free_top: 0,
            free: count,
            parked,
            returned_begin,
            count,
            slot_bytes,
            stride_bytes,
        })
    }

    #[inline]
    fn shared(&self) -> &Shared {
        // SAFETY: freed only after `drop` of this pool has left, at the earliest.
        unsafe { self.shared.as_ref() }
    }

    /// Takes a free slot; `None` when all are out.
    #[inline]
    pub fn take(&mut self) -> Option<SlotMut> {
        self.take_for(0)
    }

    /// Takes a free slot for `holder`, which [`each_out`](Self::each_out) reports; at most [`HOLDER_MAX`].
    #[inline(always)]
    pub fn take_for(&mut self, holder: u32) -> Option<SlotMut> {
        let index = self.take_index()?;
        self.shared().below.get(index as usize)?.store(OUT | holder & HOLDER_MAX, Ordering::Relaxed);
        Some(SlotMut { slot: self.slot(index, self.slot_bytes) })
    }

    /// Takes a free slot for a message of `len_bytes` bytes, which is to be written to the bytes given, and parks it: it can
    /// wait in some queue of the owner's under a name of half its size, which needs no dropping. It is out, for `holder` (at
    /// most [`HOLDER_MAX`]), also after [`unpark`](Self::unpark), until it is returned. `None`: all slots are out, or none is so
    /// long.
    #[inline(always)]
    pub fn take_parked(&mut self, holder: u32, len_bytes: usize) -> Option<(Parked, &mut [u8])> {
        if len_bytes > self.slot_bytes as usize {
            return None;
        }
        let index = self.take_index()?;
        self.parked += 1;
        let shared = self.shared();
        shared.below.get(index as usize)?.store(PARKED | holder & HOLDER_MAX, Ordering::Relaxed);
        // SAFETY: the slot was free, so its index is less than `count`, it has so many bytes, and nobody has a reference to
        // them. The one made here borrows the pool, without which the slot can't be had back.
        let buffer = unsafe {
            let data = shared.data.add(index as usize * self.stride_bytes);
            core::slice::from_raw_parts_mut(data.as_ptr(), len_bytes)
        };
        Some((Parked { index, len_bytes: len_bytes as u32 }, buffer))
    }

    #[inline(always)]
    fn take_index(&mut self) -> Option<u32> {
        let shared = self.shared();
        // Acquire pairs with the Release in `give_back`: the home's reads are over. For the home itself it costs nothing.
        if shared.returned_end.load(Ordering::Acquire) == self.returned_begin {
            return self.take_from_list();
        }
        // The slot that the home returned first of those that wait. As a rule there is one.
        let entry = shared.returned.get(self.returned_begin as usize & (shared.returned.len() - 1))?;
        let index = entry.load(Ordering::Relaxed);
        self.returned_begin = self.returned_begin.wrapping_add(1);
        Some(index)
    }

    /// Takes the slot on top of the owner's list.
    #[inline(never)]
    fn take_from_list(&mut self) -> Option<u32> {
        // Only hints when to look; who collects synchronises.
        let returned = self.shared().returns.count();
        if self.free == 0 || returned >= COLLECT_SLOTS {
            self.collect();
        }
        if self.free == self.count {
            self.settle();
        }
        let index = self.free_top;
        // Relaxed: written by us, or before a return that was acquired. (There is none below NIL: none are free.)
        self.free_top = self.shared().below.get(index as usize)?.load(Ordering::Relaxed);
        self.free -= 1;
        Some(index)
    }

    /// The slot `index`, which is less than `count`.
    #[inline]
    fn slot(&self, index: u32, len_bytes: u32) -> Slot {
        debug_assert!(index < self.count);
        // SAFETY: `index < count`, so the slot lies in the allocation.
        let data = unsafe { self.shared().data.add(index as usize * self.stride_bytes) };
        Slot { data, len_bytes, index, shared: self.shared }
    }

    /// This thread becomes the home. All slots are in, so nobody is about to return one on behalf of the last home.
    #[inline]
    fn settle(&self) {
        let thread = thread::number();
        let home = &self.shared().home;
        if home.load(Ordering::Relaxed) != thread {
            home.store(thread, Ordering::Relaxed);
        }
    }

    /// Makes a parked slot one that can be read. `None`: it was parked elsewhere.
    #[inline]
    pub fn unpark(&mut self, parked: Parked) -> Option<Slot> {
        let below = self.shared().below.get(parked.index as usize)?;
        let was = below.load(Ordering::Relaxed);
        if !is_parked(was) {
            return None;
        }
        below.store(was & !(PARKED ^ OUT), Ordering::Relaxed);
        self.parked -= 1;
        Some(self.slot(parked.index, parked.len_bytes.min(self.slot_bytes)))
    }

    /// Puts what the home has returned on top of the owner's list.
    fn collect_returned(&mut self) {
        let shared = self.shared();
        // Acquire pairs with the Release in `give_back`: the home's reads are over. For the home itself it costs nothing.
        let end = shared.returned_end.load(Ordering::Acquire);
        let (mut top, mut begin) = (self.free_top, self.returned_begin);
        while begin != end {
            let index = shared.returned[begin as usize & (shared.returned.len() - 1)].load(Ordering::Relaxed);
            shared.below[index as usize].store(top, Ordering::Relaxed);
            top = index;
            begin = begin.wrapping_add(1);
        }
        self.free += end.wrapping_sub(self.returned_begin);
        self.free_top = top;
        self.returned_begin = end;
    }

    /// Puts all that was returned by others on top of the owner's list.
    #[cold]
    fn collect(&mut self) {
        let shared = self.shared();
        let Some(taken) = shared.returns.take_all() else { return };
        let mut last = taken.top;
        for _ in 1..taken.count {
            last = shared.below[last as usize].load(Ordering::Relaxed);
        }
        shared.below[last as usize].store(self.free_top, Ordering::Relaxed);
        self.free_top = taken.top;
        self.free += taken.count;
    }

    /// Slots in `returned`.
    #[inline]
    fn returned_count(&self) -> u32 {
        self.shared().returned_end.load(Ordering::Acquire).wrapping_sub(self.returned_begin)
    }

    /// Whether no slot is out but parked ones, which nobody can come for once the pool is gone.
    fn is_full(&mut self) -> bool {
        self.collect_returned();
        self.shared().returns.count() + self.free + self.parked == self.count
    }

    /// Reports the holder of each slot that is out. Looks at every slot of the pool.
    pub fn each_out(&mut self, mut report: impl FnMut(u32)) {
        self.collect_returned();
        self.collect();
        for below in &self.shared().below {
            // Relaxed: written by this thread, or by one that has just returned the slot.
            let below = below.load(Ordering::Relaxed);
            if below & OUT != 0 && below != NIL {
                report(below & HOLDER_MAX);
            }
        }
    }

    /// Slots that are free, but for those that other threads than the home have returned of late.
    #[inline]
    pub fn free_count_cached(&self) -> u32 {
        self.free + self.returned_count()
    }

    /// Slots that [`take`](Self::take) can give now.
    pub fn free_count(&self) -> u32 {
        self.free + self.returned_count() + self.shared().returns.count()
    }

    /// Slots of the pool, free or not.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Bytes that a slot can hold.
    pub fn slot_bytes(&self) -> u32 {
        self.slot_bytes
    }

    /// Bytes of memory that the pool takes, all counted.
    pub fn bytes(&self) -> usize {
        self.shared().layout.size()
            + (self.count as usize + self.shared().returned.len()) * size_of::<u32>()
            + size_of::<Shared>()
            + size_of::<Self>()
    }
}

impl Drop for SlotPool {
    fn drop(&mut self) {
        #[cfg(loom)]
        self.shared().memory.with(|_| ());
        if self.is_full() {
            // SAFETY: all slots are at home and the pool is here: no one else has the pointer.
            return drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
        let home_thread = self.shared().home.load(Ordering::Relaxed);
        if home_thread != thread::NONE && home_thread != thread::number() {
            // That thread may be about to put a slot on `returned`, and would not count it.
            return abandoned::keep(Abandoned(ManuallyDrop::new(SlotPool { ..*self })));
        }
        // This thread returns slots like any other from now on.
        self.shared().home.store(thread::NONE, Ordering::Relaxed);
        // From here on nobody uses the lists: what is on ours is in, like what is on the stack.
        if self.shared().returns.leave(self.free + self.parked, self.count) {
            // SAFETY: all slots are at home and the pool is here: no one else has the pointer.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}

/// A pool that was dropped elsewhere than at its home while slots were out.
struct Abandoned(ManuallyDrop<SlotPool>);

impl Abandoned {
    /// Frees it, if its slots are in.
    fn try_free(&mut self) -> bool {
        let full = self.0.is_full();
        if full {
            // SAFETY: all slots are at home, and this pool is reached through `self` alone, which is dropped now.
            drop(unsafe { Box::from_raw(self.0.shared.as_ptr()) });
        }
        full
    }
}

impl core::fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SlotPool")
            .field("count", &self.count)
            .field("free_count", &self.free_count())
            .field("slot_bytes", &self.slot_bytes)
            .finish()
    }
}

/// Returns slot `index`; frees the memory if the pool is gone and this was the last.
///
/// # Safety
///
/// The caller owns the slot and gives it up. `shared` is not used by it after this.
#[inline]
unsafe fn give_back(shared: NonNull<Shared>, index: u32) {
    // A raw pointer, and no reference that outlives the exchange: another thread may free the memory right after it.
    let shared = shared.as_ptr();
    #[cfg(loom)]
    // SAFETY: the slot is out, so the memory lives.
    unsafe {
        (&(*shared).memory).with(|_| ())
    };
    // SAFETY: the slot is out, so the memory lives until it is on the queue.
    unsafe {
        // Relaxed: only this thread writes its own number there, or takes it away.
        if (*shared).home.load(Ordering::Relaxed) == thread::number() {
            let (returned, end) = (&(*shared).returned, (*shared).returned_end.load(Ordering::Relaxed));
            if let Some(entry) = returned.get(end as usize & (returned.len() - 1)) {
                entry.store(index, Ordering::Relaxed);
                // Release pairs with the Acquire in `collect_returned`: our reads of the slot come before its next use.
                (*shared).returned_end.store(end.wrapping_add(1), Ordering::Release);
                return;
            }
        }
    }
    // SAFETY: the slot is out, so the memory lives until `Returns::give_back` has returned it. That call holds a reference to
    // an atomic word alone, which another thread may free meanwhile.
    let is_last = unsafe {
        // It captures the pointer and no reference, which must not outlive the return.
        let link = |top| {
            let all_below = &(*shared).below;
            if let Some(below) = all_below.get(index as usize) {
                below.store(top, Ordering::Relaxed);
            }
        };
        (*shared).returns.give_back(index, link)
    };
    if is_last {
        // SAFETY: the pool is gone and all slots are in: we are the last.
        drop(unsafe { Box::from_raw(shared) });
    }
}

/// A slot that waits in a queue of its pool's owner. It names the slot and does not hold it: one that is dropped is out
/// until the pool is gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Parked {
    index: u32,
    len_bytes: u32,
}

/// A slot to be filled. Dropping it returns it to the pool.
pub struct SlotMut {
    slot: Slot,
}

impl SlotMut {
    /// All bytes of the slot; they hold what earlier messages had, or zeros.
    #[inline]
    pub fn fill(&mut self) -> &mut [u8] {
        // SAFETY: the bytes were initialised (zeroed) at allocation, and a slot that is out has one owner: us.
        unsafe { core::slice::from_raw_parts_mut(self.slot.data.as_ptr(), self.slot.len_bytes as usize) }
    }

    /// All bytes of the slot, as they are now.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.slot
    }

    /// Ends filling: the first `len_bytes` bytes (at most those of the slot) are the message.
    #[inline]
    pub fn freeze(self, len_bytes: usize) -> Slot {
        let mut slot = self.slot;
        slot.len_bytes = len_bytes.min(slot.len_bytes as usize) as u32;
        slot
    }
}

/// A received message in its buffer, 8-byte aligned. Dropping it, on any thread, returns the buffer.
pub struct Slot {
    data: NonNull<u8>,
    len_bytes: u32,
    index: u32,
    shared: NonNull<Shared>,
}

// SAFETY: a slot is the unique owner of its bytes and only lends them for reading; giving it back is atomic.
unsafe impl Send for Slot {}
// SAFETY: `&Slot` only gives `&[u8]` to bytes that nobody writes while the slot is out and frozen. `SlotMut` holds a
// `Slot` but lends it to no one.
unsafe impl Sync for Slot {}

impl Slot {
    /// Which slot of its pool this is: less than the pool's count.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Takes the slot apart, for C: its bytes, how many, and what returns it.
    ///
    /// The buffer is out until [`from_raw`](Self::from_raw) has made a slot of the same parts again.
    pub fn into_raw(self) -> (NonNull<u8>, u32, SlotToken) {
        let slot = ManuallyDrop::new(self);
        (slot.data, slot.len_bytes, SlotToken { shared: slot.shared, index: slot.index })
    }

    /// Puts a slot together again.
    ///
    /// # Safety
    ///
    /// The three come from one call of [`into_raw`](Self::into_raw) and are used for this once. (A smaller length is
    /// fine.)
    pub unsafe fn from_raw(data: NonNull<u8>, len_bytes: u32, token: SlotToken) -> Self {
        Slot { data, len_bytes, index: token.index, shared: token.shared }
    }
}

impl Deref for Slot {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len_bytes` is at most the slot's, all of it initialised, and nobody writes while it is out.
        unsafe { core::slice::from_raw_parts(self.data.as_ptr(), self.len_bytes as usize) }
    }
}

impl AsRef<[u8]> for Slot {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl core::fmt::Debug for Slot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Slot").field("index", &self.index).field("len_bytes", &self.len_bytes).finish()
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: we own the slot, and this is the end of us.
        unsafe { give_back(self.shared, self.index) };
    }
}

/// What returns a slot that was taken apart. Plain bits: copying it gives no right to return the slot twice.
#[derive(Debug, Clone, Copy)]
pub struct SlotToken {
    shared: NonNull<Shared>,
    index: u32,
}

// SAFETY: it is only an address and a number; using them is `unsafe` and has a contract.
unsafe impl Send for SlotToken {}
// SAFETY: as above.
unsafe impl Sync for SlotToken {}

const _: () = assert!(size_of::<Slot>() <= 24, "a slot is three words: it is moved for every message");
#[cfg(all(test, not(loom)))]
mod tests;
