//! Messages that come alone, as those of an exchange do. They are handled in the place to which they were copied, without an
//! inbox.

use super::{Delivery, Process};
use cci::{Line, ShortMessage};

/// The result of a short check.
pub(crate) enum Alone<'a> {
    /// A message whose handler is to be called. The caller must call [`Process::end`] afterwards.
    Message(Delivery<'a>),
    /// Nothing has come, and nothing else is to be done now.
    Nothing,
    /// There is something else, for [`Process::progress`] and [`Process::next`].
    Other,
}

impl Process {
    /// Takes the next message, if it is a short one and nothing else is to be done. Its bytes are in `line`. The call counts as
    /// progress, unless it returns [`Alone::Other`].
    #[inline(always)]
    pub(crate) fn next_alone<'a>(&mut self, line: &'a mut Line) -> Alone<'a> {
        if !self.links.takes_short() || !self.only_receives() {
            return Alone::Other;
        }
        let short = self.links.take_short(line);
        let record = line.bytes();
        let connection = match short {
            ShortMessage::Message(connection) => connection,
            ShortMessage::Nothing => return Alone::Nothing,
            ShortMessage::Other => return Alone::Other,
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

    /// Whether there is nothing to do but to receive.
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
