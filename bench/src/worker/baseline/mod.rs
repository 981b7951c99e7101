//! The baselines: the plainest code for each exchange, on the operating system's calls alone.

pub mod asleep;
pub mod cache_line;
pub mod connect;
pub mod memory;
pub mod stream;
pub mod tcp;
pub mod udp;
pub mod xdp;

use cci_measure::trouble::Trouble;
use std::io;

/// A system call's error as trouble of the benchmark.
pub fn failed(what: &str) -> impl Fn(io::Error) -> Trouble + '_ {
    move |error| Trouble::new(format!("{what}: {error}"))
}
