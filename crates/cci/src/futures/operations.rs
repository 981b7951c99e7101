//! What tasks have started and wait for.

use crate::connection::Connection;
use crate::error::ConnectFailure;
use crate::messages::{CallFailure, Message, ReceiveFailure, SendFailure};
use cci_memory::slab::{Key, Slab};
use std::task::{Context, Poll, Waker};

/// The most operations that wait in one messenger.
const OPERATIONS_MAX: u32 = 1 << 24;

/// The context of messages that were posted, for which no task waits alone. It is no operation's, since no key has the generation 0.
pub(super) const POSTED: u64 = 1 << 32;

/// How an operation has ended.
#[derive(Debug)]
pub(super) enum Outcome {
    Sent(Result<(), SendFailure>),
    Replied(Result<Message, CallFailure>),
    Received(Result<(), ReceiveFailure>),
    Opened(Result<Connection, ConnectFailure>),
}

enum Operation {
    /// It wakes the task that waits for it.
    Pending(Waker),
    Ended(Outcome),
    /// Its future was dropped. A connection that opens is closed.
    Abandoned,
}

/// What becomes of an outcome.
pub(super) enum Entered {
    /// A task will take it.
    Kept,
    /// Nobody wants it.
    Unwanted(Outcome),
}

/// All operations of a messenger. Their keys are the contexts of events.
pub(super) struct Operations {
    all: Slab<Operation>,
}

impl Operations {
    pub(super) fn new() -> Operations {
        Operations { all: Slab::new(OPERATIONS_MAX) }
    }

    /// Enters an operation whose end wakes a task. `None`: there are too many.
    #[inline]
    pub(super) fn begin(&mut self, context: &Context<'_>) -> Option<Key> {
        self.all.insert(Operation::Pending(context.waker().clone())).ok()
    }

    /// Takes back what could not be started.
    pub(super) fn forget(&mut self, key: Key) {
        self.all.remove(key);
    }

    /// An operation has ended.
    pub(super) fn end(&mut self, context: u64, outcome: Outcome) -> Entered {
        let key = from_context(context);
        match self.all.get_mut(key) {
            Some(operation @ Operation::Pending(_)) => {
                if let Operation::Pending(waker) = std::mem::replace(operation, Operation::Ended(outcome)) {
                    waker.wake();
                }
                Entered::Kept
            }
            _ => {
                self.all.remove(key);
                Entered::Unwanted(outcome)
            }
        }
    }

    /// Wakes everybody who waits: nothing more will end.
    pub(super) fn wake_all(&mut self) {
        for (_, operation) in self.all.iter_mut() {
            if let Operation::Pending(waker) = operation {
                waker.wake_by_ref();
            }
        }
    }

    /// Takes the outcome, or has the task woken when there is one.
    pub(super) fn poll(&mut self, key: Key, context: &mut Context<'_>) -> Poll<Option<Outcome>> {
        match self.all.get_mut(key) {
            Some(Operation::Pending(waker)) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            _ => Poll::Ready(match self.all.remove(key) {
                Some(Operation::Ended(outcome)) => Some(outcome),
                _ => None,
            }),
        }
    }

    /// The future of an operation is dropped. Returns the outcome, if there is one already.
    pub(super) fn abandon(&mut self, key: Key) -> Option<Outcome> {
        match self.all.get_mut(key)? {
            operation @ Operation::Pending(_) => {
                *operation = Operation::Abandoned;
                None
            }
            _ => match self.all.remove(key) {
                Some(Operation::Ended(outcome)) => Some(outcome),
                _ => None,
            },
        }
    }
}

/// The context of an operation's event.
pub(super) fn to_context(key: Key) -> u64 {
    u64::from(key.index) << 32 | u64::from(key.generation)
}

fn from_context(context: u64) -> Key {
    Key { index: (context >> 32) as u32, generation: context as u32 }
}
