//! Jobs: processes that start together, know each other by rank, and end together.
//!
//! A program calls [`Job::join`], and [`Ranks::open`] for connections by rank. Its launcher is `cci run`, which has a [`coordinator`] for it and a [`server`] on
//! each host, or one that speaks PMIx or PMI-1.
//!
//! **Invariant:** launchers move no data of programs: connections of `cci` do.
#![forbid(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod bootstrap;
pub mod coordinator;
mod ended;
mod error;
#[cfg(test)]
mod frame_properties;
pub mod frames;
mod job;
mod key;
pub mod limits;
#[doc(hidden)]
pub mod numbered;
mod published;
mod ranks;
mod relayed;
pub mod server;
mod status;
mod wire;

pub use error::{JobError, Result};
pub use job::Job;
pub use key::JobKey;
#[doc(hidden)]
pub use ranks::Connections;
pub use ranks::{Peer, RankEvent, Ranks};
pub use relayed::{FromHost, ToHost};
pub use status::RankStatus;
