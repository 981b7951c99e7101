//! What a thread is at: whether handlers may run on it.

use super::status::{Code, Result};
use libc::c_int;
use std::cell::Cell;

/// What a thread is at.
#[derive(Copy, Clone, Default)]
pub(super) struct Here {
    /// A handler or a callback of the program's runs.
    pub is_called: bool,
    /// So often has it held interrupts, or taken a lock.
    pub held: u32,
    /// `Live::ran` at its last return from a wait.
    pub seen: u64,
    /// How the operation has ended whose callback runs.
    pub status: Option<c_int>,
}

thread_local! {
    static HERE: Cell<Here> = const { Cell::new(Here { is_called: false, held: 0, seen: 0, status: None }) };
}

impl Here {
    #[inline]
    pub fn get() -> Here {
        HERE.get()
    }

    #[inline]
    pub fn change(change: impl FnOnce(&mut Here)) {
        let mut here = HERE.get();
        change(&mut here);
        HERE.set(here);
    }

    /// No handler or callback may run on this thread now.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.is_called || self.held > 0
    }
}

/// Runs a piece of the program, in which nothing waits and no other handler runs.
pub(super) fn called(run: impl FnOnce()) {
    Here::change(|here| here.is_called = true);
    run();
    Here::change(|here| here.is_called = false);
}

/// A handler or callback may not wait.
pub(super) fn check_may_wait() -> Result<()> {
    if Here::get().is_called { Err(Code::STATE) } else { Ok(()) }
}
