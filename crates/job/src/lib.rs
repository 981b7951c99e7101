//! Jobs: processes that start together, know each other by rank, and end together.
//!
//! A program calls [`Job::join`]. Its launcher is `cci run`, which has a [`coordinator`] for it and a [`server`] on
//! each host, or one that speaks PMIx or PMI-1.
//!
//! **Invariant:** nothing here moves data of programs: that is what connections of `cci` are for.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bootstrap;
pub mod coordinator;
mod error;
pub mod frames;
mod job;
mod key;
pub mod limits;
mod relayed;
pub mod server;
mod wire;

pub use error::{JobError, Result};
pub use job::Job;
pub use key::JobKey;
pub use relayed::{FromHost, ToHost};
