//! Sums of memory under an endpoint's cap, in which each part counts for as long as it exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A sum, in bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChargedBytes(Arc<Sum>);

#[derive(Debug, Default)]
struct Sum {
    bytes: AtomicU64,
    /// The sum to which all of this one is added as well.
    whole: Option<ChargedBytes>,
}

/// One part of a sum, which is taken off again when this value is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    sum: ChargedBytes,
    bytes: u64,
}

impl ChargedBytes {
    /// A sum that is a part of this one.
    pub fn part(&self) -> ChargedBytes {
        ChargedBytes(Arc::new(Sum { bytes: AtomicU64::new(0), whole: Some(self.clone()) }))
    }

    /// The sum of which this one is a part; this one if it is no part.
    pub fn whole(&self) -> &ChargedBytes {
        self.0.whole.as_ref().unwrap_or(self)
    }

    /// Whether nobody else can add to this sum or take off from it.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub fn total(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    pub fn charge(&self, bytes: u64) -> Charge {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.0.whole {
            whole.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        Charge { sum: self.clone(), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sum.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(whole) = &self.sum.0.whole {
            whole.0.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
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

    #[test]
    fn what_is_charged_to_a_part_is_charged_to_the_whole() {
        let all = ChargedBytes::default();
        let (one, other) = (all.part(), all.part());
        let (of_one, of_other, of_all) = (one.charge(5), other.charge(7), all.charge(1));
        assert_eq!((one.total(), other.total(), all.total(), one.whole().total()), (5, 7, 13, 13));
        assert!(!one.is_unused());
        drop((of_one, of_all));
        assert_eq!((one.total(), other.total(), all.total()), (0, 7, 7));
        assert!(one.is_unused() && !other.is_unused());
        drop((other, of_other));
        assert_eq!(all.total(), 0);
    }
}
