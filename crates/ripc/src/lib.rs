//! libRIPC: services that are found by name, wherever they are, between partners that do not trust each other (RIPC, 2013).
#![forbid(unsafe_code)]
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod buffers;
mod content;
pub mod directory;
mod error;
mod event;
#[cfg(feature = "futures")]
pub mod futures;
mod handles;
pub mod limits;
mod name;
mod node;
mod options;
mod policy;
mod wire;

pub use content::{Content, LongItem, Message, Part};
pub use error::{CallError, ClaimError, DirectoryError, OpenError, ReachError, RecordError, SendError};
pub use event::{Event, Request, Ticket};
pub use handles::{CallId, Partner, Service};
pub use name::{NameError, ServiceName};
pub use node::{CallOptions, Counters, Node};
pub use options::Options;
pub use policy::Policy;
pub use wire::Items;
