//! Messages of a reliable ordered connection that wait behind a long one, so that the program gets all of them in the order in which
//! they were sent.

use crate::limits::{HELD_MESSAGES_MAX, LONG_MESSAGES_MAX};
use std::collections::VecDeque;

/// What came on a connection, from the first long message on that has not ended.
pub struct Order<K, T> {
    held: VecDeque<Held<K, T>>,
    messages: u32,
}

enum Held<K, T> {
    /// An ordinary message.
    Message(T),
    /// A long message that has not ended.
    Pending(K),
    /// The outcome of a long message that has ended.
    Ended(T),
}

/// The peer has sent more than it may.
#[derive(Debug, PartialEq, Eq)]
pub struct BeyondWindow;

impl<K: Copy + PartialEq, T> Order<K, T> {
    pub const fn new() -> Order<K, T> {
        Order { held: VecDeque::new(), messages: 0 }
    }

    /// Whether nothing waits, so that what comes can be given to the program at once.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds a message that came behind a long one.
    pub fn hold(&mut self, message: T) -> Result<(), BeyondWindow> {
        if self.messages >= HELD_MESSAGES_MAX {
            return Err(BeyondWindow);
        }
        self.messages += 1;
        self.held.push_back(Held::Message(message));
        Ok(())
    }

    /// A long message was offered.
    pub fn begin(&mut self, key: K) -> Result<(), BeyondWindow> {
        if self.held.len() >= (HELD_MESSAGES_MAX + LONG_MESSAGES_MAX) as usize {
            return Err(BeyondWindow);
        }
        self.held.push_back(Held::Pending(key));
        Ok(())
    }

    /// A long message has ended; `event` is what the program gets in its place, if anything.
    pub fn end(&mut self, key: K, event: Option<T>) {
        let at = self.held.iter().position(|held| matches!(held, Held::Pending(pending) if *pending == key));
        let Some(at) = at else { return };
        match event {
            Some(event) => {
                if let Some(held) = self.held.get_mut(at) {
                    *held = Held::Ended(event);
                }
            }
            None => drop(self.held.remove(at)),
        }
    }

    /// What the program may get next.
    pub fn pop(&mut self) -> Option<T> {
        match self.held.pop_front()? {
            Held::Message(message) => {
                self.messages = self.messages.saturating_sub(1);
                Some(message)
            }
            Held::Ended(event) => Some(event),
            pending => {
                self.held.push_front(pending);
                None
            }
        }
    }

    /// What the program gets of long messages that have ended, and wait behind others.
    pub fn ended(&self) -> impl Iterator<Item = &T> {
        self.held.iter().filter_map(|held| match held {
            Held::Ended(event) => Some(event),
            Held::Message(_) | Held::Pending(_) => None,
        })
    }

    /// The long messages that have not ended, in order. Once the program has been given what it may get, all others wait for the first.
    pub fn pending(&self) -> impl Iterator<Item = K> {
        self.held.iter().filter_map(|held| match held {
            Held::Pending(key) => Some(*key),
            Held::Message(_) | Held::Ended(_) => None,
        })
    }
}
