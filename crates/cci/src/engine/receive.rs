//! The receive buffers of an endpoint: one pool as a rule, more where the program has asked for more buffers since.

use cci_ring::pool::{PoolError, SlotMut, SlotPool};

/// Pools of buffers of one size.
pub(crate) struct ReceiveBuffers {
    first: SlotPool,
    /// Empty unless the number was raised; each raise adds one, so there are few.
    more: Vec<SlotPool>,
}

impl ReceiveBuffers {
    pub fn new(count: u32, slot_bytes: u32) -> Result<ReceiveBuffers, PoolError> {
        Ok(ReceiveBuffers { first: SlotPool::new(count, slot_bytes)?, more: Vec::new() })
    }

    /// Takes a free buffer; None when all are out.
    #[inline]
    pub fn take(&mut self) -> Option<SlotMut> {
        match self.first.take() {
            None if !self.more.is_empty() => self.more.iter_mut().find_map(SlotPool::take),
            slot => slot,
        }
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
        let mut out: Vec<_> = std::iter::from_fn(|| buffers.take()).collect();
        assert_eq!((out.len(), buffers.free_count()), (2, 0));
        let before = buffers.bytes();
        buffers.add(3).unwrap();
        assert!(buffers.bytes() >= before + 3 * 64);
        out.extend(std::iter::from_fn(|| buffers.take()));
        assert_eq!((out.len(), buffers.free_count()), (5, 0));
        out.clear();
        assert_eq!(buffers.free_count(), 5);
    }
}
