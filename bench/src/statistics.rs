//! Medians and spreads of a handful of figures.

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
    fn of_none_one_and_many() {
        assert_eq!(spread(vec![]), None);
        assert_eq!(spread(vec![4.0]), Some(Spread { median: 4.0, low: 4.0, high: 4.0, rounds: 1 }));
        let five = spread(vec![5.0, 1.0, 4.0, 2.0, 30.0]).unwrap();
        assert_eq!((five.low, five.median, five.high), (2.0, 4.0, 5.0));
        assert_eq!(spread(vec![1.0, 2.0]).unwrap().median, 1.5);
    }
}
