//! The queue of events. Events that come by the million are kept small, in words that are written and read whole. If an event
//! were written in parts, reading it would wait until all parts have left the store buffer.

use super::receive::{Filled, ReceiveBuffers};
use crate::connection::{Connection, DisconnectReason, Status};
use crate::engine::event::{Event, Message};
use cci_memory::fallible;
use cci_memory::pool::Parked;
use std::collections::VecDeque;

/// An event that waits.
enum Queued {
    Recv {
        buffer: Parked,
        connection: Connection,
    },
    Send {
        connection: Connection,
        context: u64,
        status: Status,
    },
    /// Dropped if the program has disconnected it meanwhile.
    Disconnected {
        connection: Connection,
        context: u64,
        reason: DisconnectReason,
    },
    /// The next of `others`.
    Other,
}

const _: () = assert!(size_of::<Queued>() <= 24, "three words");

/// Events, in the order in which they came about.
pub(super) struct Queue {
    queued: VecDeque<Queued>,
    others: VecDeque<Event>,
}

impl Queue {
    /// None: there is no memory.
    pub fn with_capacity(events: usize) -> Option<Queue> {
        Some(Queue { queued: fallible::queue(events).ok()?, others: VecDeque::with_capacity(16) })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// Reserves memory for `more` events beside what was reserved before. False: there is no memory.
    #[must_use]
    pub fn reserve(&mut self, more: usize) -> bool {
        let (queued, others) = (&mut self.queued, &mut self.others);
        queued.try_reserve(queued.capacity() - queued.len() + more).is_ok()
            // Buffers of later pools have no short names.
            && others.try_reserve(others.capacity() - others.len() + more).is_ok()
    }

    /// Makes sure of memory for so many events in all. False: there is no memory.
    #[must_use]
    pub fn has_capacity(&mut self, all: usize) -> bool {
        self.queued.capacity() >= all || self.queued.try_reserve(all - self.queued.len()).is_ok()
    }

    /// Makes sure of memory for `more` events that are not of messages or sends. False: there is no memory.
    #[must_use]
    pub fn has_space_for_others(&mut self, more: usize) -> bool {
        self.others.try_reserve(more).is_ok() && self.queued.try_reserve(more).is_ok()
    }

    pub fn bytes(&self) -> usize {
        self.queued.capacity() * size_of::<Queued>() + self.others.capacity() * size_of::<Event>()
    }

    #[inline]
    pub fn push_recv(&mut self, filled: Filled, connection: Connection) {
        match filled {
            Filled::Parked(buffer) => self.queued.push_back(Queued::Recv { buffer, connection }),
            Filled::Slot(slot) => self.push(Event::Recv(Message::new(slot, connection))),
        }
    }

    #[inline]
    pub fn push_send(&mut self, connection: Connection, context: u64, status: Status) {
        self.queued.push_back(Queued::Send { connection, context, status });
    }

    /// Queues the event that a connection has ended. False: there is no memory for it now.
    #[cold]
    #[must_use]
    pub fn push_disconnected(
        &mut self,
        connection: Connection,
        context: u64,
        reason: DisconnectReason,
    ) -> bool {
        let has_space = self.queued.try_reserve(1).is_ok();
        if has_space {
            self.queued.push_back(Queued::Disconnected { connection, context, reason });
        }
        has_space
    }

    /// Queues any other event.
    #[cold]
    pub fn push(&mut self, event: Event) {
        self.others.push_back(event);
        self.queued.push_back(Queued::Other);
    }

    /// The next event. That a connection has ended is left out unless the connection `is_reported`.
    #[inline]
    pub fn pop(
        &mut self,
        buffers: &mut ReceiveBuffers,
        is_reported: impl FnMut(Connection) -> bool,
    ) -> Option<Event> {
        let is_frequent = matches!(self.queued.front(), Some(Queued::Recv { .. } | Queued::Send { .. }));
        if is_frequent { self.pop_frequent(buffers) } else { self.pop_rare(buffers, is_reported) }
    }

    /// The next event if it is a message or the end of a send.
    #[inline(always)]
    fn pop_frequent(&mut self, buffers: &mut ReceiveBuffers) -> Option<Event> {
        let queued = self.queued.pop_front()?;
        if self.queued.is_empty() {
            // The queue has space for thousands. An empty one starts again at its beginning, which is in the cache.
            self.queued.clear();
        }
        match queued {
            Queued::Recv { buffer, connection } => {
                let slot = buffers.unpark(buffer);
                debug_assert!(slot.is_some(), "parked by us, and taken once");
                slot.map(|slot| Event::Recv(Message::new(slot, connection)))
            }
            Queued::Send { connection, context, status } => Some(Event::Send { connection, context, status }),
            Queued::Disconnected { .. } | Queued::Other => None,
        }
    }

    /// The next event, of whatever kind.
    #[cold]
    #[inline(never)]
    fn pop_rare(
        &mut self,
        buffers: &mut ReceiveBuffers,
        mut is_reported: impl FnMut(Connection) -> bool,
    ) -> Option<Event> {
        loop {
            match *self.queued.front()? {
                Queued::Recv { .. } | Queued::Send { .. } => return self.pop_frequent(buffers),
                Queued::Disconnected { connection, context, reason } => {
                    self.queued.pop_front();
                    if is_reported(connection) {
                        return Some(Event::Disconnected { connection, context, reason });
                    }
                }
                Queued::Other => {
                    self.queued.pop_front();
                    return self.others.pop_front();
                }
            }
        }
    }
}
