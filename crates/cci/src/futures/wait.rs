//! How a task starts an operation, and waits for its end.

use super::operations::{Outcome, to_context};
use super::state::Shared;
use crate::connection::Connection as Handle;
use crate::messages::{self, CallId, Offer, ReceiveError};
use cci_memory::slab::Key;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

/// An error that may say that there is no space at the moment.
pub(super) trait MayBlock {
    fn is_would_block(&self) -> bool;
}

impl MayBlock for messages::SendError {
    fn is_would_block(&self) -> bool {
        matches!(self, messages::SendError::WouldBlock)
    }
}

impl MayBlock for ReceiveError {
    fn is_would_block(&self) -> bool {
        false
    }
}

impl MayBlock for crate::ConnectError {
    fn is_would_block(&self) -> bool {
        false
    }
}

impl MayBlock for crate::AcceptError {
    fn is_would_block(&self) -> bool {
        false
    }
}

/// Starts an operation, as soon as there is space on the connection. `None`: the driver has ended.
pub(super) async fn start<T, E: MayBlock>(
    shared: &Shared,
    connection: Option<Handle>,
    mut begin: impl FnMut(&mut messages::Messenger, u64) -> Result<T, E>,
) -> Option<Result<(Key, T), E>> {
    poll_fn(|context| {
        let mut state = shared.lock();
        if state.is_over {
            return Poll::Ready(None);
        }
        let Some(key) = state.operations.begin(context) else { return Poll::Ready(None) };
        let begun = begin(&mut state.messenger, to_context(key));
        state.wake_driver();
        match (begun, connection) {
            (Ok(begun), _) => Poll::Ready(Some(Ok((key, begun)))),
            (Err(error), Some(connection)) if error.is_would_block() => {
                state.operations.forget(key);
                state.wait_for_space(connection, context);
                Poll::Pending
            }
            (Err(error), _) => {
                state.operations.forget(key);
                Poll::Ready(Some(Err(error)))
            }
        }
    })
    .await
}

/// Waits for the end of an operation. What happens when it is dropped before that depends on the operation.
pub(super) struct Wait<'a> {
    shared: &'a Shared,
    /// `None`: it has ended.
    key: Option<Key>,
    call: Option<CallId>,
    offer: Option<Offer>,
    /// It was started by the task that polls it, in this very poll: its end wakes that task.
    is_new: bool,
}

impl<'a> Wait<'a> {
    pub(super) fn new(shared: &'a Shared, key: Key) -> Wait<'a> {
        Wait { shared, key: Some(key), call: None, offer: None, is_new: true }
    }

    pub(super) fn of_call(shared: &'a Shared, key: Key, call: CallId) -> Wait<'a> {
        Wait { shared, key: Some(key), call: Some(call), offer: None, is_new: true }
    }

    pub(super) fn of_offer(shared: &'a Shared, key: Key, offer: Offer) -> Wait<'a> {
        Wait { shared, key: Some(key), call: None, offer: Some(offer), is_new: true }
    }
}

impl Future for Wait<'_> {
    /// `None`: the driver has ended.
    type Output = Option<Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Outcome>> {
        if std::mem::take(&mut self.is_new) {
            return Poll::Pending;
        }
        let Some(key) = self.key else { return Poll::Ready(None) };
        let mut state = self.shared.lock();
        match state.operations.poll(key, context) {
            Poll::Pending if !state.is_over => Poll::Pending,
            polled => {
                drop(state);
                let outcome = if let Poll::Ready(outcome) = polled { outcome } else { None };
                self.key = None;
                Poll::Ready(outcome)
            }
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let mut state = self.shared.lock();
        if let Some(outcome) = state.operations.abandon(key) {
            state.discard(outcome);
            return;
        }
        if let Some(call) = self.call {
            state.messenger.cancel_call(call);
        }
        if let Some(offer) = self.offer
            && state.messenger.refuse(offer, 0).is_ok()
        {
            // Nothing reports the end of what was refused here.
            state.operations.forget(key);
        }
        state.wake_driver();
    }
}
