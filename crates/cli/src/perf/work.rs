//! What is measured of remote memory: whose memory, in which direction, which atomic operations.

use cci::TransportKind;

/// The least number of rounds of each measurement.
pub const ROUNDS_MIN: u64 = 3;

/// Whose memory is read and written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The library's: on the same host it is mapped.
    Library,
    /// The program's own.
    Foreign,
}

impl Kind {
    /// The kinds that differ on a device.
    pub fn of(transport: TransportKind) -> &'static [Kind] {
        match transport {
            TransportKind::Shm => &[Kind::Library, Kind::Foreign],
            _ => &[Kind::Library],
        }
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Library => "library",
            Kind::Foreign => "foreign",
        }
    }
}

/// An atomic operation that is measured.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Every one adds 1 to the same word.
    FetchAdd,
    /// Each on a word of its own, from the number of the round before to that of this one.
    CompareSwap,
}

impl Operation {
    /// What is measured.
    pub const BOTH: [Operation; 2] = [Operation::FetchAdd, Operation::CompareSwap];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Operation::FetchAdd => "fetch-add",
            Operation::CompareSwap => "compare-swap",
        }
    }
}
