//! Fences in the threads of other processes: a side that seldom sleeps makes them, and then the fences of the side that
//! sends cost nothing.
//!
//! A *heavy fence* has the kernel put a full fence into every running thread of the processes that have registered for it
//! (`membarrier`, GLOBAL_EXPEDITED); a thread that is not running went through one when it stopped. It takes microseconds, and
//! interrupts the processors that such threads run on. In return the fence that pairs with it in such a thread can be a *light* one,
//! which only keeps the compiler from reordering. The terms are those of the proposal for C++ (P1202, "Asymmetric thread fences").

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{MembarrierCommand, membarrier};

use crate::process;

/// The process that has registered; 0: none. A fork child finds the number of its parent.
static REGISTERED: AtomicU32 = AtomicU32::new(0);

/// Registers this process, so that heavy fences of any process on this host reach its threads. False: the kernel has none, or forbids
/// them to this process, so that it can't make any, either.
pub fn register() -> bool {
    #[cfg(feature = "simulated")]
    if crate::simulated::fault("membarrier").is_err() {
        return false;
    }
    let pid = process::pid();
    if REGISTERED.load(Ordering::Acquire) == pid {
        return true;
    }
    let is_registered =
        command(MembarrierCommand::RegisterGlobalExpedited) && command(MembarrierCommand::GlobalExpedited);
    if is_registered {
        REGISTERED.store(pid, Ordering::Release);
    }
    is_registered
}

/// Makes a heavy fence. False: the kernel refused, and there was none.
pub fn make() -> bool {
    #[cfg(feature = "simulated")]
    if crate::simulated::is_entered() {
        if crate::simulated::fault("membarrier").is_err() {
            return false;
        }
        cci_memory::simulated::heavy_fence();
        return true;
    }
    command(MembarrierCommand::GlobalExpedited)
}

fn command(command: MembarrierCommand) -> bool {
    membarrier(command).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_registered_can_make_heavy_fences() {
        let is_registered = register();
        assert_eq!(is_registered, register());
        assert!(!is_registered || make());
    }
}
