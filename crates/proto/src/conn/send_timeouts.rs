//! How long sends may take on the connections whose program has said so.
//!
//! Few connections have a timeout of their own, so an idle one has no field for it.

/// Connections whose timeouts are kept together.
const BLOCK: usize = 64;

/// The timeouts of their own that connections have, by the index of the connection.
#[derive(Default)]
pub(crate) struct SendTimeouts {
    /// Milliseconds; 0: none of its own.
    blocks: Vec<Option<Box<[u32; BLOCK]>>>,
}

impl SendTimeouts {
    /// Bytes a connection, if there is one with a timeout of its own in each block.
    pub const BYTES_MAX: usize =
        (size_of::<[u32; BLOCK]>() + size_of::<Option<Box<[u32; BLOCK]>>>()).div_ceil(BLOCK);

    /// In milliseconds; 0: none of its own.
    pub fn get(&self, index: u32) -> u32 {
        let block = self.blocks.get(index as usize / BLOCK).and_then(Option::as_deref);
        block.map_or(0, |block| block[index as usize % BLOCK])
    }

    /// 0 milliseconds: the connection has none of its own, or no longer.
    pub fn set(&mut self, index: u32, timeout_ms: u32) {
        let (block, place) = (index as usize / BLOCK, index as usize % BLOCK);
        if timeout_ms == 0 {
            if let Some(block) = self.blocks.get_mut(block).and_then(Option::as_deref_mut) {
                block[place] = 0;
            }
            return;
        }
        if self.blocks.len() <= block {
            self.blocks.resize_with(block + 1, || None);
        }
        self.blocks[block].get_or_insert_with(|| Box::new([0; BLOCK]))[place] = timeout_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_with_timeouts_take_memory() {
        let mut timeouts = SendTimeouts::default();
        assert_eq!(timeouts.get(7), 0);
        timeouts.set(1_000, 0);
        assert!(timeouts.blocks.is_empty());
        timeouts.set(1_000, 5);
        timeouts.set(1_001, 6);
        assert_eq!((timeouts.get(999), timeouts.get(1_000), timeouts.get(1_001)), (0, 5, 6));
        assert_eq!(timeouts.blocks.iter().flatten().count(), 1);
        timeouts.set(1_000, 0);
        assert_eq!((timeouts.get(1_000), timeouts.get(1_001)), (0, 6));
    }
}
