//! Errors in descriptions, and in data that are to be packed. All of them are the caller's fault.

use std::fmt;

/// Why a description was not made. Nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The size, a displacement or a bound does not fit into `isize`.
    Overflow,
    /// The loops that remain after unrolling are nested more than 32 deep.
    TooDeep,
    /// Lists that must have one entry for each block have different lengths.
    ListsDiffer,
}

impl fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Overflow => "the description's size, a displacement or a bound exceeds the address space",
            Self::TooDeep => "the description is nested too deeply, even after unrolling; describe the data with fewer levels",
            Self::ListsDiffer => "the lists of the description have different lengths; each block needs one entry in each",
        })
    }
}

impl std::error::Error for DescriptionError {}

/// Why nothing was packed or unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackError {
    /// Described bytes lie outside of the memory.
    OutOfRange,
    /// The first byte lies behind the end of the packed row.
    BehindEnd,
    /// All elements together exceed the address space.
    Overflow,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => {
                "described bytes lie outside of the memory; check count, origin and description"
            }
            Self::BehindEnd => "the first byte lies behind the end of the packed data",
            Self::Overflow => "that many elements exceed the address space",
        })
    }
}

impl std::error::Error for PackError {}
