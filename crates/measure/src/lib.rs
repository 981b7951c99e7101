//! What measuring takes, whatever is measured: cores, sites, the machine and its noise, baselines, figures for people.
//!
//! The command `cci perf` and the benchmark share it.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::print_stdout))]

pub mod baseline;
pub mod cache_line;
pub mod channel;
pub mod cores;
pub mod failure;
pub mod half_trip;
pub mod held;
pub mod iproute;
pub mod machine;
pub mod noise;
pub mod plot;
pub mod site;
pub mod statistics;
pub mod table;
pub mod transfer;
pub mod units;
