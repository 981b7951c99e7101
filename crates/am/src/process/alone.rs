//! Messages that come by themselves, as those of an exchange do: they are handled where they were copied to, without an inbox.

use super::{Delivery, Process};
use cci::{Line, Short};

/// What a short look has found.
pub(crate) enum Alone<'a> {
    /// A message whose handler is to be called. [`Process::end`] is to follow.
    Message(Delivery<'a>),
    /// Nothing has come, and nothing else is to be done now.
    Nothing,
    /// There is something else: [`Process::progress`] and [`Process::next`] find it.
    Other,
}

impl Process {
    /// Takes the next message, if it is a short one and all that there is to do. Its bytes are in `line`. It counts as progress, unless it
    /// finds [`Alone::Other`].
    #[inline(always)]
    pub(crate) fn next_alone<'a>(&mut self, line: &'a mut Line) -> Alone<'a> {
        if !self.links.takes_short() || !self.only_receives() {
            return Alone::Other;
        }
        let short = self.links.take_short(line);
        let record = line.bytes();
        let connection = match short {
            Short::Message(connection) => connection,
            Short::Nothing => return Alone::Nothing,
            Short::Other => return Alone::Other,
        };
        if let Some(rank) = self.links.last_rank(connection)
            && let Some(delivery) = self.dispatcher.begin_alone(&mut self.links, rank, record)
        {
            return Alone::Message(delivery);
        }
        self.links.take_record(connection, record);
        Alone::Other
    }

    /// Ends the message whose handler runs, if any does.
    #[inline(always)]
    pub(crate) fn end_running(&mut self) {
        if let Some(token) = self.dispatcher.running_token() {
            self.end(token);
        }
    }

    /// Whether there is nothing to do but to take what comes.
    #[inline(always)]
    fn only_receives(&mut self) -> bool {
        let is_due = self.has_ends() || self.dispatcher.has_new_handlers || self.dispatcher.is_holding();
        !is_due
            && self.memory.is_at_rest()
            && self.collectives.are_idle()
            && self.counted.is_at_rest()
            && !self.barrier.is_inside()
            && self.links.only_receives()
    }
}
