//! libRIPC: services that are found by name, wherever they are, between partners that do not trust each other (RIPC, 2013).
#![forbid(unsafe_code)]
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod directory;
mod error;
pub mod limits;
mod name;

pub use error::{
    CallError, ClaimError, DirectoryError, NameError, OpenError, ReachError, RecordError, SendError,
};
pub use name::ServiceName;
