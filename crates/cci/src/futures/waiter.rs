//! A task that waits for something again and again.

use std::task::Waker;

/// The task that waits, and whether it does at the moment. Its waker is kept when it is woken: to clone one for each wait costs more than
/// to compare.
#[derive(Default)]
pub(super) struct Waiter {
    waker: Option<Waker>,
    is_waiting: bool,
}

impl Waiter {
    /// This task waits from now on, in the place of any other.
    #[inline]
    pub(super) fn wait(&mut self, waker: &Waker) {
        match &mut self.waker {
            // Clones only the waker of another task.
            Some(known) => known.clone_from(waker),
            None => self.waker = Some(waker.clone()),
        }
        self.is_waiting = true;
    }

    /// Wakes the task, once for each wait.
    #[inline]
    pub(super) fn wake(&mut self) {
        if std::mem::take(&mut self.is_waiting)
            && let Some(waker) = &self.waker
        {
            waker.wake_by_ref();
        }
    }

    /// Wakes the task for the last time.
    pub(super) fn end(&mut self) {
        self.wake();
        self.waker = None;
    }
}
