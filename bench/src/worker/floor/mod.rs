//! The exchanges by hand: nothing above the primitive.

pub mod cache_line;
pub mod tcp;
pub mod udp;

use cci_measure::trouble::Trouble;
use std::io;

/// A system call's error as trouble of the benchmark.
pub fn failed(what: &str) -> impl Fn(io::Error) -> Trouble + '_ {
    move |error| Trouble::new(format!("{what}: {error}"))
}
