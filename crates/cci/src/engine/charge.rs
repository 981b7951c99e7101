//! Sums of memory under an endpoint's cap, in which each part counts for as long as it exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A sum, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChargedBytes(Arc<AtomicU64>);

/// One part of a sum, which is taken off again when this value is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    sum: ChargedBytes,
    bytes: u64,
}

impl ChargedBytes {
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn charge(&self, bytes: u64) -> Charge {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Charge { sum: self.clone(), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sum.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_come_and_go() {
        let sum = ChargedBytes::default();
        let (one, other) = (sum.charge(5), sum.charge(7));
        assert_eq!(sum.total(), 12);
        drop(one);
        assert_eq!(sum.total(), 7);
        drop(other);
        assert_eq!(sum.total(), 0);
    }
}
