//! libRIPC: services that are found by name, wherever they are, between partners that do not trust each other (RIPC, 2013).
//!
//! A process opens a [`Node`], [registers](Node::register) services in it, and reaches those of others as [partners](Node::partner):
//!
//! - A *message* ([`Content`]) has short items, which travel in it, and long items, which stay in the sender's memory until the receiver
//!   fetches them into a [window](Node::give_window). The receiver may also write long items to return buffers of the sender.
//! - A [*call*](Node::call) is a request that wants one answer before its deadline. It goes to wherever the service is, now or until
//!   then: a service may be killed, started anew or [handed over](Node::hand_over) meanwhile.
//! - What is lent to a partner is lent to nobody else, and for a time only ([`Options::lease`](field@Options::lease)).
//! - A [directory] knows where services are, and a [`Policy`] says which identity may have which name.
//!
//! The module `futures`, behind the features `futures` and `tokio`, has services in tasks. The C interface of this crate is `ripc.h`.
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
