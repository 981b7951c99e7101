//! Shared memory as several processes of a simulation see it, all in one thread.
//!
//! A real processor shows one processor's stores to another late, and, where it may, in another order. Here each simulated
//! process has a *store buffer*: what it stores waits there, the process itself reads its own stores at once, and the others see
//! them when they leave the buffer. When that is follows from a source of chance that the simulation gives. A store leaves the
//! buffer before an older one only where the rules of the C++ memory model let it: never if it is a Release, never past one to the
//! same bytes. A fence empties the buffer, which is stricter than some processors are. Loads happen in program order; loom
//! checks the reordering of loads for [`ring`](crate::ring).
//!
//! Between any two accesses of one process, others may take whole [turns](Memory::set_turn): the simulation then runs one of
//! theirs in the middle of the first one's.
//!
//! A process can be made to die between any two of its stores: later ones have no effect. What was in its buffer still becomes
//! visible, as it does when a kernel ends a process.
//!
//! The words of rings and [`Bytes`](crate::bytes::Bytes) come here while a process is [entered](Memory::enter) on the
//! calling thread; other memory, and other threads, are untouched.

use core::cell::{Cell, RefCell};
use core::ptr;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use crate::raw_atomic::{self, AtomicU64, Ordering};

/// Stores that wait in one buffer at most; beyond, the oldest becomes visible.
const BUFFER_STORES_MAX: usize = 1 << 12;
/// How many of the oldest stores one that leaves early may pass.
const WINDOW: usize = 16;
/// A copy becomes visible in parts of this size, bytes, counted from its start: where memory from the heap lies differs from run to run, and what
/// follows from a seed must not.
const PART_BYTES: usize = 64;

/// Of so many accesses, before one another process takes a turn, and before one a store leaves the buffer early.
const TURN_PER_ACCESSES: u64 = 16;
const SHOW_PER_ACCESSES: u64 = 4;

/// A number below the one given, which is not 0.
type Chance = Box<dyn FnMut(u64) -> u64>;
/// Lets another process take a turn.
type Turn = Box<dyn FnMut()>;

/// Bytes on their way to memory.
struct Store {
    at: usize,
    bytes: Box<[u8]>,
    is_release: bool,
}

impl Store {
    fn overlaps(&self, at: usize, len_bytes: usize) -> bool {
        self.at < at + len_bytes && at < self.at + self.bytes.len()
    }

    /// Writes the bytes to memory.
    fn show(&self) {
        // SAFETY: who stored promised that the memory is writable, and `unmap` takes out what lies in memory that goes.
        unsafe { ptr::copy(self.bytes.as_ptr(), self.at as *mut u8, self.bytes.len()) };
    }
}

/// One simulated process, as its memory is concerned.
#[derive(Default)]
struct Process {
    buffer: VecDeque<Store>,
    /// Stores so far.
    stores: u64,
    /// After how many stores it dies.
    dies_after: Option<u64>,
    /// It is stopped: what it has stored and others do not see yet happens once it goes on.
    is_stopped: bool,
}

impl Process {
    fn is_dead(&self) -> bool {
        self.dies_after.is_some_and(|limit| self.stores >= limit)
    }

    /// Whether the store at `index` may leave the buffer before all that are older.
    fn may_leave(&self, index: usize) -> bool {
        let Some(store) = self.buffer.get(index) else { return false };
        let older = self.buffer.iter().take(index);
        index == 0
            || !store.is_release && older.clone().all(|older| !older.overlaps(store.at, store.bytes.len()))
    }

    fn show_one(&mut self, index: usize) {
        if let Some(store) = self.buffer.remove(index) {
            store.show();
        }
    }

    fn show_all(&mut self) {
        self.buffer.drain(..).for_each(|store| store.show());
    }

    /// Shows everything up to the youngest store that overlaps the range.
    fn show_range(&mut self, at: usize, len_bytes: usize) {
        let end =
            self.buffer.iter().rposition(|store| store.overlaps(at, len_bytes)).map_or(0, |last| last + 1);
        self.buffer.drain(..end).for_each(|store| store.show());
    }
}

struct State {
    processes: Vec<Process>,
    /// Only stores that are Release stay behind older ones; without it every store does, as on x86-64.
    is_weak: bool,
    chance: Chance,
    /// None also while somebody takes one.
    turn: Option<Turn>,
}

impl State {
    /// Lets some stores of `process` become visible.
    fn show_some(&mut self, process: usize) {
        let Some(Process { buffer, is_stopped, .. }) = self.processes.get(process) else { return };
        if buffer.is_empty() || *is_stopped {
            return;
        }
        for _ in 0..=(self.chance)(buffer.len() as u64) {
            let Some(process) = self.processes.get_mut(process) else { return };
            let window = process.buffer.len().clamp(1, WINDOW);
            let index = if self.is_weak { (self.chance)(window as u64) as usize } else { 0 };
            process.show_one(if process.may_leave(index) { index } else { 0 });
        }
    }

    /// Before an access: perhaps something of somebody's becomes visible just now, and perhaps another process takes a turn, which
    /// is the answer.
    fn goes_on(&mut self) -> Option<Turn> {
        let count = self.processes.len() as u64;
        if count > 0 && (self.chance)(SHOW_PER_ACCESSES) == 0 {
            let process = (self.chance)(count) as usize;
            self.show_some(process);
        }
        if self.turn.is_none() || (self.chance)(TURN_PER_ACCESSES) > 0 { None } else { self.turn.take() }
    }

    fn store(&mut self, process: usize, at: usize, bytes: &[u8], is_release: bool) {
        let Some(process) = self.processes.get_mut(process) else { return };
        if process.is_dead() {
            return;
        }
        process.stores += 1;
        process.buffer.push_back(Store { at, bytes: bytes.into(), is_release });
        if process.buffer.len() > BUFFER_STORES_MAX {
            process.show_one(0);
        }
    }

    /// Reads `to.len()` bytes as `process` sees them.
    ///
    /// # Safety
    ///
    /// They are readable.
    unsafe fn load(&mut self, process: usize, at: usize, to: &mut [u8]) {
        // SAFETY: the caller's promise; `to` is a unique reference.
        unsafe { ptr::copy(at as *const u8, to.as_mut_ptr(), to.len()) };
        let Some(process) = self.processes.get(process) else { return };
        let len_bytes = to.len();
        for store in process.buffer.iter().filter(|store| store.overlaps(at, len_bytes)) {
            for (offset, byte) in store.bytes.iter().enumerate() {
                if let Some(to) = (store.at + offset).checked_sub(at).and_then(|index| to.get_mut(index)) {
                    *to = *byte;
                }
            }
        }
    }
}

thread_local! {
    /// The memories of this thread's simulations: mappings may go while no process is entered.
    static MEMORIES: RefCell<Vec<Weak<RefCell<State>>>> = const { RefCell::new(Vec::new()) };
    /// Read first, so that threads without a simulation pay for one load.
    static IS_ENTERED: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<(Rc<RefCell<State>>, usize)>> = const { RefCell::new(None) };
}

/// The memory of a simulated host.
pub struct Memory(Rc<RefCell<State>>);

/// While it lives, what the calling thread does to shared memory is one simulated process's.
pub struct Entered {
    before: Option<(Rc<RefCell<State>>, usize)>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        IS_ENTERED.set(self.before.is_some());
        CURRENT.set(self.before.take());
    }
}

impl Memory {
    /// One without processes. `chance` answers with a number below the one that it is given. `is_weak`: stores become visible in
    /// any order that C++ allows; otherwise in the order of the program, as on x86-64.
    pub fn new(is_weak: bool, chance: impl FnMut(u64) -> u64 + 'static) -> Memory {
        let state = State { processes: Vec::new(), is_weak, chance: Box::new(chance), turn: None };
        let state = Rc::new(RefCell::new(state));
        MEMORIES.with_borrow_mut(|memories| {
            memories.retain(|memory| memory.strong_count() > 0);
            memories.push(Rc::downgrade(&state));
        });
        Memory(state)
    }

    /// Adds a process, and answers its number.
    pub fn add_process(&self) -> usize {
        let mut state = self.0.borrow_mut();
        state.processes.push(Process::default());
        state.processes.len() - 1
    }

    /// From now on the calling thread is that process, until what this returns is dropped.
    pub fn enter(&self, process: usize) -> Entered {
        IS_ENTERED.set(true);
        Entered { before: CURRENT.replace(Some((Rc::clone(&self.0), process))) }
    }

    /// From now on the calling thread is that process, until it is another or [leaves](leave).
    pub fn switch_to(&self, process: usize) {
        IS_ENTERED.set(true);
        CURRENT.set(Some((Rc::clone(&self.0), process)));
    }

    /// Sets how another process takes a turn. `turn` chooses one, [enters](Self::enter) it, and runs it; it is called between two
    /// accesses of the process that is entered, and never from within itself.
    pub fn set_turn(&self, turn: impl FnMut() + 'static) {
        self.0.borrow_mut().turn = Some(Box::new(turn));
    }

    /// The process dies once it has made so many more stores.
    pub fn die_after(&self, process: usize, stores: u64) {
        if let Some(process) = self.0.borrow_mut().processes.get_mut(process) {
            process.dies_after = Some(process.stores + stores);
        }
    }

    /// The process is stopped, perhaps between two stores, or goes on.
    pub fn stop(&self, process: usize, is_stopped: bool) {
        if let Some(process) = self.0.borrow_mut().processes.get_mut(process) {
            process.is_stopped = is_stopped;
        }
    }

    /// Whether the process has died.
    pub fn is_dead(&self, process: usize) -> bool {
        self.0.borrow().processes.get(process).is_some_and(Process::is_dead)
    }

    /// How many stores others do not see yet.
    pub fn hidden(&self, process: usize) -> usize {
        self.0.borrow().processes.get(process).map_or(0, |process| process.buffer.len())
    }

    /// Some of its stores become visible.
    pub fn show_some(&self, process: usize) {
        self.0.borrow_mut().show_some(process);
    }

    /// All of its stores become visible.
    pub fn show_all(&self, process: usize) {
        if let Some(process) = self.0.borrow_mut().processes.get_mut(process) {
            process.show_all();
        }
    }
}

/// From now on the calling thread is no simulated process.
pub fn leave() {
    IS_ENTERED.set(false);
    CURRENT.set(None);
}

/// Does something in the name of the process that the calling thread is; None: it is none.
fn current<T>(what: impl FnOnce(&mut State, usize) -> T) -> Option<T> {
    if !IS_ENTERED.get() {
        return None;
    }
    CURRENT.with_borrow(|current| {
        let (state, process) = current.as_ref()?;
        Some(what(&mut state.borrow_mut(), *process))
    })
}

/// What the calling process does to memory, in which others may come before it.
fn access<T>(what: impl FnOnce(&mut State, usize) -> T) -> Option<T> {
    if let Some(mut turn) = current(|state, _| state.goes_on()).flatten() {
        turn();
        // Who set another one meanwhile means that.
        current(|state, _| {
            state.turn.get_or_insert(turn);
        });
    }
    current(what)
}

/// Whether the calling thread is a simulated process that has died: nothing that it does may reach another any more.
#[inline]
pub fn is_dead() -> bool {
    current(|state, process| state.processes.get(process).is_some_and(Process::is_dead)).unwrap_or(false)
}

/// Counts something that the calling process does to others as a store, before or behind which it may die.
pub fn pass() {
    current(|state, process| {
        state.processes.get_mut(process).into_iter().for_each(|process| process.stores += 1);
    });
}

/// Makes the calling process's stores visible: for system calls that other processes see, which order memory as a Release does.
#[inline]
pub fn settle() {
    access(|state, process| state.processes.get_mut(process).map(Process::show_all));
}

/// Makes the stores of every process visible, as a fence in each running thread does.
pub fn heavy_fence() {
    access(|state, _| state.processes.iter_mut().for_each(Process::show_all));
}

/// Makes the stores to a range visible, whoever made them: before it is unmapped, replaced or freed.
pub fn unmap(base: *const u8, len_bytes: usize) {
    // A thread that is ending has no simulation any more.
    let _ = MEMORIES.try_with(|memories| {
        for state in memories.borrow().iter().filter_map(Weak::upgrade) {
            let mut state = state.borrow_mut();
            state.processes.iter_mut().for_each(|process| process.show_range(base as usize, len_bytes));
        }
    });
}

/// Whether the calling thread is a simulated process.
#[inline]
pub fn is_entered() -> bool {
    IS_ENTERED.get()
}

/// Reads bytes as the calling process sees them.
///
/// # Safety
///
/// `from` is readable and `to` writable for `len_bytes` bytes.
pub(crate) unsafe fn load(from: *const u8, to: *mut u8, len_bytes: usize) {
    let mut bytes = vec![0; len_bytes];
    // SAFETY: the caller's promise.
    access(|state, process| unsafe { state.load(process, from as usize, &mut bytes) });
    // SAFETY: the caller's promise.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, len_bytes) };
}

/// Stores bytes in the name of the calling process, part by part.
///
/// # Safety
///
/// `to` is writable for so many bytes, until it is unmapped.
pub(crate) unsafe fn store(to: *mut u8, bytes: &[u8]) {
    let mut at = to as usize;
    let mut remaining = bytes;
    while !remaining.is_empty() {
        let (part, behind) = remaining.split_at(remaining.len().min(PART_BYTES));
        access(|state, process| state.store(process, at, part, false));
        at += part.len();
        remaining = behind;
    }
}

/// Reads and replaces a word, all at once, for operations that nobody comes between. Answers what `replace` was given.
///
/// # Safety
///
/// `at` is readable and writable for `N` bytes.
pub(crate) unsafe fn exchange<const N: usize>(
    at: *mut u8,
    order: Ordering,
    replace: impl FnOnce([u8; N]) -> Option<[u8; N]>,
) -> [u8; N] {
    let mut before = [0; N];
    access(|state, process| {
        if let Some(process) = state.processes.get_mut(process) {
            if matches!(order, Ordering::Release | Ordering::AcqRel | Ordering::SeqCst) {
                process.show_all();
            }
            process.show_range(at as usize, N);
        }
        // SAFETY: the caller's promise.
        unsafe { state.load(process, at as usize, &mut before) };
        if let Some(after) = replace(before) {
            state.store(process, at as usize, &after, false);
            if let Some(process) = state.processes.get_mut(process) {
                process.show_range(at as usize, N);
            }
        }
    });
    before
}

/// The processor's fence. For a simulated process one that is more than Acquire also makes its stores visible.
#[inline]
pub fn fence(order: Ordering) {
    match order {
        Ordering::Acquire => {}
        _ => settle(),
    }
    raw_atomic::fence(order);
}

/// A word of shared memory: an atomic of the processor's, but for simulated processes.
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    fn at(&self) -> *mut u8 {
        self.0.as_ptr().cast()
    }

    /// Loads the word.
    #[inline]
    pub fn load(&self, order: Ordering) -> u64 {
        if !is_entered() {
            return self.0.load(order);
        }
        let mut bytes = [0; 8];
        // SAFETY: the word itself.
        unsafe { load(self.at(), bytes.as_mut_ptr(), 8) };
        u64::from_ne_bytes(bytes)
    }

    /// Stores the word.
    #[inline]
    pub fn store(&self, value: u64, order: Ordering) {
        if !is_entered() {
            return self.0.store(value, order);
        }
        let is_release = order != Ordering::Relaxed;
        access(|state, process| {
            state.store(process, self.at() as usize, &value.to_ne_bytes(), is_release);
            if order == Ordering::SeqCst {
                state.processes.get_mut(process).map(Process::show_all);
            }
        });
    }

    /// Replaces the word, and answers what it was.
    #[inline]
    pub fn swap(&self, value: u64, order: Ordering) -> u64 {
        if !is_entered() {
            return self.0.swap(value, order);
        }
        self.exchange(order, |_| Some(value))
    }

    /// Sets bits of the word, and answers what it was.
    #[inline]
    pub fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        if !is_entered() {
            return self.0.fetch_or(bits, order);
        }
        self.exchange(order, |before| Some(before | bits))
    }

    /// Replaces the word if it is `expected`.
    ///
    /// # Errors
    ///
    /// What it is instead.
    #[inline]
    pub fn compare_exchange(
        &self,
        expected: u64,
        value: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        if !is_entered() {
            return self.0.compare_exchange(expected, value, success, failure);
        }
        let before = self.exchange(success, |before| (before == expected).then_some(value));
        if before == expected { Ok(before) } else { Err(before) }
    }

    fn exchange(&self, order: Ordering, replace: impl FnOnce(u64) -> Option<u64>) -> u64 {
        let replace = |before| replace(u64::from_ne_bytes(before)).map(u64::to_ne_bytes);
        // SAFETY: the word itself.
        u64::from_ne_bytes(unsafe { exchange(self.at(), order, replace) })
    }
}

#[cfg(test)]
mod tests;
