//! A copy within one process, between mappings of the kind that remote memory access copies between.

use crate::failure::Outcome;
use cci_sys::memory::PrivateMemory;

/// Two mappings that nobody else can reach.
#[derive(Debug)]
pub struct Mappings {
    source: PrivateMemory,
    target: PrivateMemory,
}

impl Mappings {
    /// Both have at least `len_bytes`, above 0.
    pub fn create(len_bytes: usize) -> Outcome<Mappings> {
        let (source, target) = (PrivateMemory::create(len_bytes)?, PrivateMemory::create(len_bytes)?);
        Ok(Mappings { source, target })
    }

    /// What is copied from.
    pub fn source(&mut self) -> &mut [u8] {
        &mut self.source
    }

    /// What is copied to.
    pub fn target(&self) -> &[u8] {
        &self.target
    }

    /// Copies `len_bytes` at `offset` to the same offset of the target by `memcpy`. False: the range is not within both.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn copy(&mut self, offset: usize, len_bytes: usize) -> bool {
        let Some(end) = offset.checked_add(len_bytes) else { return false };
        let (Some(source), Some(target)) = (self.source.get(offset..end), self.target.get_mut(offset..end))
        else {
            return false;
        };
        target.copy_from_slice(source);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_copy_within_their_bounds() {
        let mut mappings = Mappings::create(10_000).unwrap();
        let len = mappings.target().len();
        assert!(len >= 10_000);
        for (index, byte) in mappings.source().iter_mut().enumerate() {
            *byte = index as u8;
        }
        assert!(mappings.copy(3, 1000) && !mappings.copy(len - 1, 2) && !mappings.copy(usize::MAX, 2));
        assert!(mappings.target()[..3] == [0; 3] && mappings.target()[1003..].iter().all(|&byte| byte == 0));
        assert!((3..1003).all(|at| mappings.target()[at] == at as u8));
    }
}
