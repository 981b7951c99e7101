//! The turns of global memory, which take events and start waiting operations.

use super::GlobalMemory;
use crate::buffers;
use crate::channels::End;
use crate::error::{AcpError, Result};
use crate::limits::{COLORS, LOOK_BYTES, LOOKS, TURN_EVENTS, TURN_MESSAGES};
use crate::links::{Lane, News};
use crate::wire::Record;
use cci::{Connection, Line, ShortMessage};

impl GlobalMemory {
    /// Makes progress. Returns the result of a barrier, if one has ended.
    pub(super) fn turn(&mut self) -> Option<Result<()>> {
        self.take_events(TURN_MESSAGES, |_| false);
        self.advance();
        self.barrier_end.take()
    }

    /// Makes progress until `is_done`, and no further: to find out that nothing else has come costs as much as to take a message.
    /// Returns whether it is done.
    pub(crate) fn turn_until(&mut self, is_done: impl Fn(&GlobalMemory) -> bool) -> bool {
        let is_enough = self.take_events(self.channels.batch_max(), &is_done);
        self.advance();
        is_enough || is_done(self)
    }

    /// Takes what has come before a long message is sent on a channel, if it is not known yet where the message goes.
    #[inline]
    pub(crate) fn look_before(&mut self, end: End, len_bytes: usize) {
        if len_bytes >= LOOK_BYTES {
            self.look_for_request(end);
        }
    }

    #[inline(never)]
    fn look_for_request(&mut self, end: End) {
        if self.channels.lacks_request(end) {
            self.take_events(TURN_MESSAGES, |global| !global.channels.lacks_request(end));
        }
    }

    /// Takes the events that are there, or those until `is_enough`, with up to `messages_max` messages at a time. Returns whether
    /// it is enough.
    #[inline]
    fn take_events(&mut self, messages_max: usize, mut is_enough: impl FnMut(&GlobalMemory) -> bool) -> bool {
        let mut line = Line::EMPTY;
        let (messages, has_events) = match self.links.take_short(&mut line) {
            ShortMessage::Nothing => return false,
            ShortMessage::Message(connection) => {
                self.take_alone(connection, line.bytes());
                (1, false)
            }
            ShortMessage::Other => self.take_messages(messages_max),
        };
        if messages > 0 && is_enough(self) {
            return true;
        }
        if messages == 0 && !has_events {
            return false;
        }
        self.take_more_events(has_events, (messages, messages_max), &mut is_enough)
    }

    /// Takes a short message that has come alone.
    #[inline]
    fn take_alone(&mut self, connection: Connection, message: &[u8]) {
        let rank = self.links.rank_of_channels(connection);
        if !rank.is_some_and(|rank| self.channels.take_short(rank, message)) {
            self.take_record(connection, message);
        }
    }

    /// Takes a record that is no short message of an open channel.
    #[inline(never)]
    fn take_record(&mut self, connection: Connection, record: &[u8]) {
        let Some(lane) = self.links.lane_of(connection, record) else { return };
        match Record::decode(record) {
            _ if lane.color == COLORS => self.take_of_channels(lane.rank, record),
            Some(said) => self.engine.on(&mut self.links, &self.regions, News::Said(lane, said)),
            None => self.links.faults += 1,
        }
    }

    /// Takes a record of channels or segmented buffers.
    fn take_of_channels(&mut self, rank: u32, record: &[u8]) {
        let is_right = if buffers::is_record(record) {
            self.buffers.said(&mut self.links, rank, record)
        } else {
            self.channels.said(&mut self.links, rank, record)
        };
        self.links.faults += u64::from(!is_right);
    }

    /// Does the work of [`GlobalMemory::take_events`] after the first messages.
    #[inline(never)]
    fn take_more_events(
        &mut self,
        mut has_events: bool,
        (mut messages, messages_max): (usize, usize),
        is_enough: &mut impl FnMut(&GlobalMemory) -> bool,
    ) -> bool {
        let mut events_left = TURN_EVENTS;
        loop {
            events_left = events_left.saturating_sub(messages);
            if has_events {
                if !self.take_event(&mut events_left) {
                    return false;
                }
                if is_enough(self) {
                    return true;
                }
            }
            if events_left == 0 {
                return false;
            }
            (messages, has_events) = self.take_messages(messages_max);
            if messages > 0 && is_enough(self) {
                return true;
            }
            if messages == 0 && !has_events {
                return false;
            }
        }
    }

    /// Takes up to `max` short messages. Returns how many there were, and whether events wait.
    #[inline]
    fn take_messages(&mut self, max: usize) -> (usize, bool) {
        let GlobalMemory { links, channels, .. } = self;
        links.poll_messages(max, |rank, message| channels.take_short(rank, message))
    }

    /// Takes one event that is no short message. Returns false if there was none.
    #[inline(never)]
    fn take_event(&mut self, events_left: &mut usize) -> bool {
        let Some(news) = self.links.next(events_left) else { return false };
        match news {
            News::Barrier(barrier) => self.barrier_end = Some(barrier.map_err(AcpError::from)),
            News::OfChannels(rank, message) => self.take_of_channels(rank, &message),
            News::Ended { context, status }
                if self.buffers.write_ended(context, status)
                    || self.channels.write_ended(context, status) => {}
            News::Gone(Lane { rank, color: COLORS }) => {
                self.channels.lose(&mut self.links, rank);
                self.buffers.lose(rank);
            }
            news => self.engine.on(&mut self.links, &self.regions, news),
        }
        true
    }

    /// Starts operations and sends records, as far as possible now.
    #[inline]
    fn advance(&mut self) {
        self.engine.begin_turn();
        self.channels.waits_for_space = false;
        self.buffers.waits_for_space = false;
        // There is no branch for each, since most turns have nothing to do.
        let is_idle =
            self.links.is_idle() & self.engine.is_idle() & self.channels.is_idle() & self.buffers.is_idle();
        if !is_idle {
            self.advance_all();
        }
    }

    #[inline(never)]
    fn advance_all(&mut self) {
        self.links.send();
        self.engine.advance(&mut self.links, &self.regions);
        self.channels.advance(&mut self.links);
        self.buffers.advance(&mut self.links);
    }

    /// Makes progress until there is a result, and sleeps if that takes long. A wait of the endpoint gives messages as events,
    /// which takes longer than to take them where they are lent. So it comes after a few checks.
    pub(crate) fn wait_until<T>(
        &mut self,
        mut result: impl FnMut(&mut GlobalMemory) -> Option<T>,
    ) -> Result<T> {
        let (mut has_come, mut looks_left) = (true, LOOKS);
        loop {
            if let Some(result) = result(self) {
                return Ok(result);
            }
            if has_come {
                looks_left = LOOKS;
            } else if looks_left > 0 {
                looks_left -= 1;
                std::hint::spin_loop();
            } else {
                self.wait()?;
            }
            // Each event may be the one that is waited for.
            has_come = false;
            self.take_events(self.channels.batch_max(), |_| {
                has_come = true;
                true
            });
            self.advance();
        }
    }

    pub(super) fn wait(&mut self) -> Result<()> {
        let for_space = self.channels.waits_for_space || self.buffers.waits_for_space;
        self.links.wait(self.engine.waits_for_space || for_space)
    }
}
