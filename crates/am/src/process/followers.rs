//! Messages that follow operations which have ended, until there is space for them.

#[cfg(test)]
mod tests;

use super::content::check;
use super::{Context, Process};
use crate::error::Result;
use std::collections::{BTreeMap, VecDeque};

/// A message without data that follows an operation: it is sent when what the operation has written is at the target.
#[derive(Clone, Debug)]
pub struct Following {
    /// The context of the handler.
    pub context: Context,
    /// The rank it goes to.
    pub rank: u32,
    /// The number of the handler.
    pub handler: u16,
    /// The arguments of the handler.
    pub args: Vec<i64>,
}

impl Following {
    /// Checks a message before its operation is started.
    ///
    /// # Errors
    /// There is no such rank, the context was freed, or there are more than 16 arguments.
    pub(crate) fn check(&self, process: &Process) -> Result<()> {
        check(&self.args, &[])?;
        process.check_rank(self.rank)?;
        process.dispatcher.contexts.check(self.context)
    }
}

/// Messages for each rank that wait for space, in the order in which their operations have ended. `T` is what the owner keeps with a message.
#[derive(Debug)]
pub struct Followers<T> {
    by_rank: BTreeMap<u32, VecDeque<(Following, T)>>,
    count: usize,
}

impl<T> Default for Followers<T> {
    fn default() -> Followers<T> {
        Followers { by_rank: BTreeMap::new(), count: 0 }
    }
}

impl<T> Followers<T> {
    /// Adds a message, which is sent behind all others for its rank.
    pub fn push(&mut self, message: Following, kept: T) {
        self.by_rank.entry(message.rank).or_default().push_back((message, kept));
        self.count += 1;
    }

    /// How many messages wait.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many messages wait for a rank.
    pub fn count_for(&self, rank: u32) -> usize {
        self.by_rank.get(&rank).map_or(0, VecDeque::len)
    }

    /// Whether no message waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Passes messages to `send` until it returns none, which means that there is no space for more to that rank. Ranks do not wait for
    /// each other. Returns what `send` has made of each message, with what was kept with it.
    pub fn send<R>(&mut self, mut send: impl FnMut(&Following) -> Option<R>) -> Vec<(R, T)> {
        let mut sent = Vec::new();
        for messages in self.by_rank.values_mut() {
            while let Some((message, kept)) = messages.pop_front() {
                let Some(result) = send(&message) else {
                    messages.push_front((message, kept));
                    break;
                };
                sent.push((result, kept));
                self.count -= 1;
            }
        }
        self.by_rank.retain(|_, messages| !messages.is_empty());
        sent
    }
}
