//! What a turn yields: one line of JSON on a contestant's standard output.

use cci_measure::failure::{Failure, Outcome};
use serde::{Deserialize, Serialize};

/// One turn's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// In the unit of the work: a mean over the turn, or what the work says.
    pub value: f64,
    /// Where the work shows how values are spread: nanoseconds at 0.5, 0.99 and 0.999.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantiles_ns: Option<[f64; 3]>,
    /// Where messages may be lost: the part of them that arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrived: Option<f64>,
    /// Where messages left by the clock: how many a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_s: Option<f64>,
    /// The unit that a peer's program printed with its value; `None` in results.
    #[serde(default, skip_serializing)]
    pub unit: Option<Unit>,
}

impl Reading {
    /// A mean alone.
    pub const fn of(value: f64) -> Reading {
        Reading { value, quantiles_ns: None, arrived: None, per_s: None, unit: None }
    }

    /// So many of something, a second.
    pub fn of_rate(count: u64, took_ns: u64) -> Reading {
        Reading::of(count as f64 * 1e9 / took_ns.max(1) as f64)
    }

    /// The bytes of messages of `len` bytes each, a second, where this is how many messages.
    pub fn of_messages(self, len: u32) -> Reading {
        Reading { value: self.value * f64::from(len), ..self }
    }

    /// Takes what a peer's program printed, if it is in the unit that is expected of its work.
    pub fn in_unit(self, expected: Unit) -> Outcome<Reading> {
        match self.unit {
            Some(unit) if unit != expected => {
                Err(Failure::new(format!("a figure in {unit:?}, where {expected:?} are expected")))
            }
            _ => Ok(Reading { unit: None, ..self }),
        }
    }

    /// The bytes of transfers of `len` bytes each, a second.
    pub fn of_bytes(len: u32, count: u64, took_ns: u64) -> Reading {
        Reading::of_rate(count * u64::from(len), took_ns)
    }
}

/// What values are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Unit {
    /// Time; less is better.
    #[serde(rename = "ns")]
    Nanoseconds,
    /// Messages or connections a second; more is better.
    #[serde(rename = "1/s")]
    PerSecond,
    /// Bandwidth; more is better.
    #[serde(rename = "B/s")]
    BytesPerSecond,
    /// Memory; less is better.
    #[serde(rename = "B")]
    Bytes,
}

impl Unit {
    /// Whether more is better.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Unit::PerSecond | Unit::BytesPerSecond)
    }
}
