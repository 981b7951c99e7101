//! Medians and spreads of a handful of figures, and quantiles of many times.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer times count as this long, nanoseconds: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// Any number of times, each kept to three digits.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        // The bounds are right, so this can't fail.
        let times = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Times(times.unwrap_or_else(|_| unreachable!("the bounds are right")))
    }
}

impl Times {
    /// Adds one.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// That of which this part is below or equal, nanoseconds.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        self.0.value_at_quantile(part)
    }

    /// The usual quantiles of all of them, or of a part of each.
    pub fn summary(&self, part: f64) -> Summary {
        let at = |quantile: f64| self.quantile_ns(quantile) as f64 * part;
        Summary {
            min: self.0.min() as f64 * part,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 * part,
            mean: self.0.mean() * part,
            samples: self.0.len(),
        }
    }
}

/// How times are spread, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Summary {
    pub min: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    pub mean: f64,
    /// How many there were.
    pub samples: u64,
}

/// The middle of some figures, and how far apart they are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// A quarter of them lies below.
    pub low: f64,
    /// A quarter of them lies above.
    pub high: f64,
    /// How many there are.
    pub rounds: usize,
}

/// The one in the middle; 0 of nothing.
pub fn median(values: Vec<f64>) -> f64 {
    spread(values).map_or(0.0, |spread| spread.median)
}

/// None of nothing.
pub fn spread(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    Some(Spread {
        median: quantile(&values, 0.5)?,
        low: quantile(&values, 0.25)?,
        high: quantile(&values, 0.75)?,
        rounds: values.len(),
    })
}

/// Between the two nearest, in proportion.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let place = part * sorted.len().checked_sub(1)? as f64;
    let below = *sorted.get(place.floor() as usize)?;
    let above = *sorted.get(place.ceil() as usize)?;
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_quantiles() {
        let mut times = Times::default();
        (1..=1000).for_each(|ns| times.record(ns));
        let halves = times.summary(0.5);
        assert_eq!((halves.min, halves.p50, halves.p99, halves.max), (0.5, 250.0, 495.0, 500.0));
        assert_eq!((halves.samples, times.quantile_ns(0.999)), (1000, 999));
        assert_eq!(Times::default().summary(1.0), Summary::default());
    }

    #[test]
    fn of_none_one_and_many() {
        assert_eq!((spread(vec![]), median(vec![])), (None, 0.0));
        assert_eq!(spread(vec![4.0]), Some(Spread { median: 4.0, low: 4.0, high: 4.0, rounds: 1 }));
        let five = spread(vec![5.0, 1.0, 4.0, 2.0, 30.0]).unwrap();
        assert_eq!((five.low, five.median, five.high), (2.0, 4.0, 5.0));
        assert_eq!(spread(vec![1.0, 2.0]).unwrap().median, 1.5);
    }
}
