//! System calls as the processes of a simulation make them, all in one thread.
//!
//! A simulated process lives on [`Memory`]; while one is entered, [`clock`](crate::clock) shows the time that the simulation has set,
//! random numbers follow from a seed, and timers never go off: the simulation knows when they would. UNIX sockets, shared memory and
//! eventfds are the kernel's own, which does what they ask before it returns; TCP goes over simulated [`streams`], and there is no UDP.
//! What a process that has died would do to others is not done. A simulation may make calls fail.

use std::cell::{Cell, RefCell};

use rustix::io::Errno;

pub mod streams;

use cci_memory::simulated::pass;
pub use cci_memory::simulated::{Memory, is_dead, is_entered, leave, settle};

/// Looks at the clock in one turn, after which the process is taken to wait.
const LOOKS_MAX: u32 = 1_000;

/// Given what a call is for: the error with which it fails, if it is to.
type Fault = Box<dyn FnMut(&'static str) -> Option<i32>>;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
    /// Looks at the clock since it was set.
    static LOOKS: Cell<u32> = const { Cell::new(0) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
    static FAULT: RefCell<Option<Fault>> = const { RefCell::new(None) };
}

/// Sets the time of the process that is entered, nanoseconds.
pub fn set_clock(now_ns: u64) {
    NOW_NS.set(now_ns);
    LOOKS.set(0);
}

/// Begins the sequence of random numbers anew.
pub fn set_seed(seed: u64) {
    RANDOM.set(seed);
}

/// Says from now on which calls of this thread's processes fail: a number that the system has for an error (`errno`), or None.
pub fn set_fault(fault: impl FnMut(&'static str) -> Option<i32> + 'static) {
    FAULT.set(Some(Box::new(fault)));
}

/// No call is made to fail any more.
pub fn clear_fault() {
    FAULT.set(None);
}

/// What the clock shows; None: the calling thread is no simulated process. Each look takes a nanosecond, and after many a
/// microsecond, so that who waits for a time to pass does not wait for ever.
pub fn now_ns() -> Option<u64> {
    is_entered().then(|| {
        LOOKS.set(LOOKS.get().saturating_add(1));
        let step_ns = if LOOKS.get() < LOOKS_MAX { 1 } else { 1_000 };
        NOW_NS.replace(NOW_NS.get() + step_ns)
    })
}

/// The next random number; None: the calling thread is no simulated process.
pub(crate) fn random() -> Option<u64> {
    // SplitMix64 (Steele, Lea and Flood, 2014).
    is_entered().then(|| {
        let state = RANDOM.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        RANDOM.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

/// Whether a call is made to fail now.
pub(crate) fn fault(call: &'static str) -> std::result::Result<(), Errno> {
    if !is_entered() {
        return Ok(());
    }
    let errno = FAULT.with_borrow_mut(|fault| fault.as_mut().and_then(|fault| fault(call)));
    errno.map_or(Ok(()), |errno| Err(Errno::from_raw_os_error(errno)))
}

/// Before a call that another process will see: whether the calling process is alive to make it. Its stores are seen first, as the
/// kernel's locks order memory.
pub(crate) fn reaches_others() -> bool {
    if is_dead() {
        return false;
    }
    settle();
    !is_dead()
}
