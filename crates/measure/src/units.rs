//! How figures look to people.

/// "1 core", "2 cores".
pub fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Three significant digits and the unit that fits, such as "1.28 µs".
pub fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        _ if ns < 1e3 => return format!("{ns:.0} ns"),
        _ if ns < 1e6 => (ns / 1e3, "µs"),
        _ if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A count or rate with the SI prefix that fits, such as "12.3 M".
pub fn si(value: f64) -> String {
    let (value, prefix) = match value {
        _ if value < 1e3 => (value, ""),
        _ if value < 1e6 => (value / 1e3, "k"),
        _ if value < 1e9 => (value / 1e6, "M"),
        _ => (value / 1e9, "G"),
    };
    if prefix.is_empty() { three_digits(value) } else { format!("{} {prefix}", three_digits(value)) }
}

/// "0", "1.28", "12.8" or "128".
pub fn three_digits(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value < 9.995 => format!("{value:.2}"),
        _ if value < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// Bytes in binary units where that is short and exact, such as "8 KiB"; "1368 B" and "23.7 GB" elsewhere.
pub fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in UNITS {
        if count >= unit && count.is_multiple_of(unit) && count / unit < 10_000 {
            return format!("{} {name}", count / unit);
        }
    }
    match count {
        0..1_000_000 => format!("{count} B"),
        _ => format!("{}B", si(count as f64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_three_digits_and_a_unit() {
        assert_eq!(duration(640.4), "640 ns");
        assert_eq!(duration(1_284.0), "1.28 µs");
        assert_eq!(duration(12_840_000.0), "12.8 ms");
        assert_eq!(si(0.0), "0");
        assert_eq!(si(12_340_000.0), "12.3 M");
        assert_eq!(bytes(8192), "8 KiB");
        assert_eq!(bytes(1368), "1368 B");
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(23_737_480 << 10), "24.3 GB");
    }
}
