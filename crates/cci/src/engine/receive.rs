//! The receive buffers of an endpoint: one pool as a rule, more where the program has asked for more buffers since.

use super::event::Message;
use super::quotas::holder;
use crate::connection::Connection;
use cci_memory::pool::{Parked, PoolError, Slot, SlotMut, SlotPool};

/// A buffer with a message in it.
pub(crate) enum Filled {
    /// As a rule.
    Parked(Parked),
    /// One of a later pool.
    Slot(Slot),
}

/// Pools of buffers of one size.
pub(crate) struct ReceiveBuffers {
    first: SlotPool,
    /// Empty unless the number was raised; each raise adds one, so there are few.
    more: Vec<SlotPool>,
    /// The connection of what is lent to a handler just now, which may keep it in a buffer.
    pub lent_on: Connection,
}

impl ReceiveBuffers {
    pub fn new(count: u32, slot_bytes: u32) -> Result<ReceiveBuffers, PoolError> {
        let lent_on = Connection { index: u32::MAX, generation: 0 };
        Ok(ReceiveBuffers { first: SlotPool::new(count, slot_bytes)?, more: Vec::new(), lent_on })
    }

    /// Takes a free buffer for `holder` and has it filled; it is parked then. None: all are out.
    // Always: it is in the way of every message, and the compiler makes a call of it where the loop around it is long.
    #[inline(always)]
    pub fn take(&mut self, holder: u32, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Filled> {
        // `fill` is called in one place, where it can be inlined.
        let (parked, mut slot);
        let buffer = match self.first.take_parked(holder, len) {
            Some((taken, buffer)) => {
                (parked, slot) = (Some(taken), None);
                buffer
            }
            None => {
                (parked, slot) = (None, Some(self.take_of_more(holder)?));
                slot.as_mut()?.fill().get_mut(..len)?
            }
        };
        fill(buffer);
        match parked {
            Some(parked) => Some(Filled::Parked(parked)),
            None => slot.map(|slot| Filled::Slot(slot.freeze(len))),
        }
    }

    /// Takes a free buffer of the first pool. None: all are out.
    #[inline(always)]
    pub fn take_first(&mut self, holder: u32) -> Option<SlotMut> {
        self.first.take_for(holder)
    }

    #[cold]
    fn take_of_more(&mut self, holder: u32) -> Option<SlotMut> {
        self.more.iter_mut().find_map(|pool| pool.take_for(holder))
    }

    /// The buffer that was put aside.
    #[inline]
    pub fn unpark(&mut self, parked: Parked) -> Option<Slot> {
        self.first.unpark(parked)
    }

    /// Copies a message that is lent into a buffer, for as long as the program keeps it. Whoever lent the message has seen that one is free.
    #[cold]
    pub fn keep(&mut self, bytes: &[u8]) -> Message {
        let connection = self.lent_on;
        let filled = self.take(holder(connection), bytes.len(), |buffer| buffer.copy_from_slice(bytes));
        let slot = match filled {
            Some(Filled::Parked(parked)) => self.unpark(parked),
            Some(Filled::Slot(slot)) => Some(slot),
            None => None,
        };
        let Some(slot) = slot else { unreachable!("no message is lent without a buffer to keep it in") };
        Message::new(slot, connection)
    }

    /// Adds buffers of the same size.
    pub fn add(&mut self, count: u32) -> Result<(), PoolError> {
        self.more.push(SlotPool::new(count, self.first.slot_bytes())?);
        Ok(())
    }

    /// Buffers that can be taken now.
    #[inline]
    pub fn free_count(&self) -> u32 {
        self.first.free_count() + self.more.iter().map(SlotPool::free_count).sum::<u32>()
    }

    /// Of the first pool, buffers that are free without a look at what was returned: a cheap lower bound.
    #[inline]
    pub fn free_count_cached(&self) -> u32 {
        self.first.free_count_cached()
    }

    /// All of them, free or not.
    #[cfg(test)]
    pub fn count(&self) -> u32 {
        self.first.count() + self.more.iter().map(SlotPool::count).sum::<u32>()
    }

    /// Tells for whom each buffer is out that is. Takes a look at every buffer.
    pub fn each_out(&mut self, mut visit: impl FnMut(u32)) {
        std::iter::once(&mut self.first).chain(&mut self.more).for_each(|pool| pool.each_out(&mut visit));
    }

    /// Bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        self.first.bytes() + self.more.iter().map(SlotPool::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_buffers_are_used_and_come_back() {
        let mut buffers = ReceiveBuffers::new(2, 64).unwrap();
        let take = |buffers: &mut ReceiveBuffers| {
            let filled = buffers.take(9, 3, |buffer| buffer.copy_from_slice(b"abc"))?;
            match filled {
                Filled::Parked(parked) => buffers.unpark(parked),
                Filled::Slot(slot) => Some(slot),
            }
        };
        let mut out: Vec<_> = std::iter::from_fn(|| take(&mut buffers)).collect();
        assert_eq!((out.len(), buffers.free_count()), (2, 0));
        let before = buffers.bytes();
        buffers.add(3).unwrap();
        assert!(buffers.bytes() >= before + 3 * 64);
        out.extend(std::iter::from_fn(|| take(&mut buffers)));
        assert_eq!((out.len(), buffers.free_count()), (5, 0));
        assert!(out.iter().all(|slot| **slot == *b"abc"));
        out.clear();
        assert_eq!(buffers.free_count(), 5);
    }
}
