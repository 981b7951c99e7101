//! Who waits for one thing.

use std::task::{Context, Waker};

/// Tasks that wait for one thing. All are woken when it is there: one that no longer wants it must not keep it from the others.
#[derive(Default)]
pub(super) struct Wakers(Vec<Waker>);

impl Wakers {
    /// Has a task woken, once however often it asks.
    pub(super) fn add(&mut self, context: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(context.waker())) {
            self.0.push(context.waker().clone());
        }
    }

    /// Wakes all.
    #[inline]
    pub(super) fn wake(&mut self) {
        self.0.drain(..).for_each(Waker::wake);
    }
}
