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

/// What `VecDeque` is, for which the compiler makes a call wherever an event is queued.
struct Ring {
    /// As many entries as were ever used at once, or some more. They grow within the memory that was reserved.
    slots: Vec<Queued>,
    begin: usize,
    len: usize,
}

impl Ring {
    #[inline(always)]
    fn push(&mut self, queued: Queued) {
        if self.len == self.slots.len() {
            self.grow();
        }
        let at = self.begin + self.len;
        let at = if at < self.slots.len() { at } else { at - self.slots.len() };
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = queued;
            self.len += 1;
        }
    }

    /// Does what [`Ring::push`] does, where its code would keep that around it from being inlined.
    #[inline(never)]
    fn push_apart(&mut self, queued: Queued) {
        self.push(queued);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        const FIRST: usize = 64;
        self.slots.rotate_left(self.begin);
        self.begin = 0;
        let reserved = self.slots.capacity() - self.slots.len();
        let more = self.slots.len().max(FIRST);
        let more = if reserved == 0 { more } else { more.min(reserved) };
        self.slots.resize_with(self.slots.len() + more, || Queued::Other);
    }

    #[inline(always)]
    fn front(&self) -> Option<&Queued> {
        if self.len == 0 { None } else { self.slots.get(self.begin) }
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<Queued> {
        if self.len == 0 {
            return None;
        }
        let queued = std::mem::replace(self.slots.get_mut(self.begin)?, Queued::Other);
        self.len -= 1;
        self.begin += 1;
        // The queue has space for thousands. An empty one starts again at its beginning, which is in the cache.
        if self.len == 0 || self.begin == self.slots.len() {
            self.begin = 0;
        }
        Some(queued)
    }

    /// Makes sure of memory for `all` events in all. False: there is no memory.
    #[must_use]
    fn reserve(&mut self, all: usize) -> bool {
        self.slots.capacity() >= all || self.slots.try_reserve(all - self.slots.len()).is_ok()
    }
}

/// Events, in the order in which they came about.
pub(super) struct Queue {
    queued: Ring,
    others: VecDeque<Event>,
}

impl Queue {
    /// None: there is no memory.
    pub fn with_capacity(events: usize) -> Option<Queue> {
        let queued = Ring { slots: fallible::vec(events).ok()?, begin: 0, len: 0 };
        Some(Queue { queued, others: VecDeque::with_capacity(16) })
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.queued.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queued.len == 0
    }

    /// Reserves memory for `more` events beside what was reserved before. False: there is no memory.
    #[must_use]
    pub fn reserve(&mut self, more: usize) -> bool {
        let (queued, others) = (&mut self.queued, &mut self.others);
        queued.reserve(queued.slots.capacity() + more)
            // Buffers of later pools have no short names.
            && others.try_reserve(others.capacity() - others.len() + more).is_ok()
    }

    /// Makes sure of memory for so many events in all. False: there is no memory.
    #[must_use]
    pub fn has_capacity(&mut self, all: usize) -> bool {
        self.queued.reserve(all)
    }

    /// Makes sure of memory for `more` events that are not of messages or sends. False: there is no memory.
    #[must_use]
    pub fn has_space_for_others(&mut self, more: usize) -> bool {
        self.others.try_reserve(more).is_ok() && self.queued.reserve(self.queued.len + more)
    }

    pub fn bytes(&self) -> usize {
        self.queued.slots.capacity() * size_of::<Queued>() + self.others.capacity() * size_of::<Event>()
    }

    #[inline(always)]
    pub fn push_recv(&mut self, filled: Filled, connection: Connection) {
        match filled {
            Filled::Parked(buffer) => self.queued.push(Queued::Recv { buffer, connection }),
            Filled::Slot(slot) => self.push(Event::Recv(Message::new(slot, connection))),
        }
    }

    /// Does what [`Queue::push_recv`] does, by a call.
    #[inline(always)]
    pub fn push_recv_apart(&mut self, filled: Filled, connection: Connection) {
        match filled {
            Filled::Parked(buffer) => self.queued.push_apart(Queued::Recv { buffer, connection }),
            Filled::Slot(slot) => self.push(Event::Recv(Message::new(slot, connection))),
        }
    }

    #[inline(always)]
    pub fn push_send(&mut self, connection: Connection, context: u64, status: Status) {
        self.queued.push(Queued::Send { connection, context, status });
    }

    /// Does what [`Queue::push_send`] does, by a call.
    #[inline(always)]
    pub fn push_send_apart(&mut self, connection: Connection, context: u64, status: Status) {
        self.queued.push_apart(Queued::Send { connection, context, status });
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
        let has_space = self.queued.reserve(self.queued.len + 1);
        if has_space {
            self.queued.push_apart(Queued::Disconnected { connection, context, reason });
        }
        has_space
    }

    /// Queues any other event.
    #[cold]
    pub fn push(&mut self, event: Event) {
        self.others.push_back(event);
        self.queued.push_apart(Queued::Other);
    }

    /// The next event. That a connection has ended is left out unless the connection `is_reported`.
    #[inline(always)]
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
        match self.queued.pop()? {
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
                    self.queued.pop();
                    if is_reported(connection) {
                        return Some(Event::Disconnected { connection, context, reason });
                    }
                }
                Queued::Other => {
                    self.queued.pop();
                    return self.others.pop_front();
                }
            }
        }
    }
}
