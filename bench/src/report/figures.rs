//! Figures with their spread, for tables.

use crate::reading::Unit;
use crate::rows::Bound;
use cci_measure::statistics::Spread;
use cci_measure::units::three_digits;

/// Divisor and suffix that make it short.
fn scale(unit: Unit, value: f64) -> (f64, &'static str) {
    let steps: [(f64, &'static str); 4] = match unit {
        Unit::Nanoseconds => [(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")],
        Unit::PerSecond => [(1e9, " G/s"), (1e6, " M/s"), (1e3, " k/s"), (1.0, "/s")],
        Unit::BytesPerSecond => [(1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1.0, " B/s")],
        Unit::Bytes => [(1e9, " GB"), (1e6, " MB"), (1e4, " kB"), (1.0, " B")],
    };
    // Kilobytes as a thousand bytes, but only from ten on: 1368 B is exact.
    let divisor = |step: f64| if step == 1e4 { 1e3 } else { step };
    let found = steps.into_iter().find(|step| value >= step.0).unwrap_or(steps[3]);
    (divisor(found.0), found.1)
}

/// One figure, such as `1.28 µs`.
pub fn value(unit: Unit, value: f64) -> String {
    let (divisor, suffix) = scale(unit, value);
    format!("{}{suffix}", three_digits(value / divisor))
}

/// With the middle half of the rounds: `1.28 µs (1.20–1.40)`.
pub fn spread(unit: Unit, spread: &Spread) -> String {
    let (divisor, suffix) = scale(unit, spread.median);
    let part = |value: f64| three_digits(value / divisor);
    with_range(&format!("{}{suffix}", part(spread.median)), part(spread.low), part(spread.high))
}

/// A ratio with the middle half of the rounds: `1.42 (1.38–1.47)`.
pub fn ratio(spread: &Spread) -> String {
    with_range(&digits(spread.median), digits(spread.low), digits(spread.high))
}

/// Small ones must not look like nothing.
fn digits(ratio: f64) -> String {
    match ratio {
        0.01..0.0995 => format!("{ratio:.3}"),
        _ if ratio < 0.01 => format!("{ratio:.4}"),
        _ => three_digits(ratio),
    }
}

fn with_range(middle: &str, low: String, high: String) -> String {
    if low == high { middle.to_owned() } else { format!("{middle} ({low}–{high})") }
}

/// A bound on a ratio, or on a value of this unit.
pub fn bound(bound: Bound, unit: Option<Unit>) -> String {
    let number = |limit: f64| match unit {
        Some(unit) => value(unit, limit).replace(".00", "").replace(".0 ", " "),
        None => {
            let digits = format!("{limit:.2}");
            format!("{} ×", digits.trim_end_matches('0').trim_end_matches('.'))
        }
    };
    match bound {
        Bound::AtMost(limit) => format!("≤ {}", number(limit)),
        Bound::AtLeast(limit) => format!("≥ {}", number(limit)),
    }
}

/// "1,000,000": digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_measure::statistics;

    #[test]
    fn figures_share_a_unit() {
        let three = statistics::spread(vec![900.0, 1_280.0, 1_400.0]).unwrap();
        assert_eq!(spread(Unit::Nanoseconds, &three), "1.28 µs (1.09–1.34)");
        assert_eq!(spread(Unit::PerSecond, &statistics::spread(vec![2e6]).unwrap()), "2.00 M/s");
        assert_eq!(
            (digits(0.0042), digits(0.042), digits(0.42)),
            ("0.0042".into(), "0.042".into(), "0.42".into())
        );
        assert_eq!(ratio(&three).split(' ').next(), Some("1280"));
        assert_eq!((value(Unit::Bytes, 117.0), value(Unit::Bytes, 0.5)), ("117 B".into(), "0.50 B".into()));
        assert_eq!(value(Unit::BytesPerSecond, 12.34e9), "12.3 GB/s");
    }

    #[test]
    fn bounds_and_large_numbers_are_short() {
        assert_eq!(bound(Bound::AtMost(1.5), None), "≤ 1.5 ×");
        assert_eq!(bound(Bound::AtLeast(10.0), None), "≥ 10 ×");
        assert_eq!(bound(Bound::AtMost(120.0), Some(Unit::Bytes)), "≤ 120 B");
        assert_eq!(bound(Bound::AtMost(60.0), Some(Unit::Nanoseconds)), "≤ 60 ns");
        assert_eq!((grouped(7), grouped(1_000_000)), ("7".into(), "1,000,000".into()));
    }
}
