//! Whether a quantity of a process that lives long grows: its memory, its descriptors.

/// Samples kept. When there are more, every other one goes, and half as many are taken from then on.
const SAMPLES_MAX: usize = 512;
/// Fewer say nothing.
const SAMPLES_MIN: usize = 8;

/// Samples over the whole time, evenly.
pub struct Series {
    samples: Vec<u64>,
    every: u64,
    seen: u64,
}

impl Series {
    /// Empty.
    pub const fn new() -> Series {
        Series { samples: Vec::new(), every: 1, seen: 0 }
    }

    /// The value now; to be called at regular times.
    pub fn add(&mut self, value: u64) {
        if self.seen.is_multiple_of(self.every) {
            self.samples.push(value);
            if self.samples.len() == SAMPLES_MAX {
                let mut keep = false;
                self.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.every *= 2;
            }
        }
        self.seen += 1;
    }

    /// What there is.
    pub fn samples(&self) -> &[u64] {
        &self.samples
    }

    /// From the second quarter of the time to the last: the median of each. The first is for warming up.
    pub fn growth(&self) -> Option<(u64, u64)> {
        let count = self.samples.len();
        if count < SAMPLES_MIN {
            return None;
        }
        let median = |part: &[u64]| {
            let mut sorted = part.to_vec();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied()
        };
        let early = median(self.samples.get(count / 4..count / 2)?)?;
        let late = median(self.samples.get(count / 4 * 3..)?)?;
        Some((early, late))
    }

    /// Grown by more than a share and an amount.
    pub fn has_grown(&self, percent: u64, more: u64) -> Option<(u64, u64)> {
        self.growth().filter(|(early, late)| *late > early + early * percent / 100 + more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl Iterator<Item = u64>) -> Series {
        let mut series = Series::new();
        values.for_each(|value| series.add(value));
        series
    }

    #[test]
    fn what_grows_is_told_from_what_only_varies() {
        assert!(series((0..10_000).map(|at| 100 + at % 7)).has_grown(10, 0).is_none());
        assert!(series((0..10_000).map(|at| 100 + at / 50)).has_grown(10, 0).is_some());
        assert!(series((0..10_000).map(|at| if at < 2_000 { at } else { 2_000 })).has_grown(10, 0).is_none());
        assert!(series((0..10_000).map(|at| at % 3)).samples().len() < SAMPLES_MAX);
    }
}
