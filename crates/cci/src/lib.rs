//! The Common Communication Interface: messages and memory between processes.
//!
//! One small interface over whatever connects two processes: shared memory on one host; UDP, TCP and raw Ethernet between
//! hosts. The names are those of the CCI paper (2011):
//!
//! - a [`Context`] finds the [`Device`]s of the machine, or reads them from a configuration file, and knows which of them leads to
//!   a URI ([`Context::device_for`]);
//! - an [`Endpoint`] is opened on a device and owns every buffer, queue and descriptor; its memory has a cap;
//! - a [`Connection`] leads from one endpoint to another and is a small handle: it holds no buffers;
//! - an [`Event`] says what happened: a message came ([`Message`]), a send completed, somebody wants to connect, a peer has gone
//!   ([`Event::Disconnected`]);
//! - [`Memory`], or memory of the program's own, is registered for remote access: a peer that has its [`RegionHandle`] reads,
//!   writes and changes it ([`Rma`]);
//! - [`Security`] has peers prove who they are, and everything between them encrypted.
//!
//! These block: calls with `wait` or `blocking` in their names, [`resolve()`], [`Endpoint::close`] and dropping an endpoint (a second at
//! most). [`Endpoint::deregister`] waits for a peer that was stopped in the middle of a copy, 0.1 s at most for each process. Nothing
//! else blocks. Only [`SharedEndpoint::with_progress_thread`] starts a thread; no signal handler is installed, and nothing is printed.
//! An endpoint makes progress when its owner calls it; in an event loop it is registered by its descriptor ([`Endpoint::os_handle`],
//! `AsFd`).
//!
//! Two features are on by default: `sealing` (encryption, by rustls, snow and ring) and `xdp` (AF_XDP for raw Ethernet). `docs/guide.md`
//! begins with CCI in ten minutes.
//!
//! ```no_run
//! use cci::{Context, Endpoint, Event, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::new()?;
//! let mut endpoint = Endpoint::create(context.default_device(), Options::default())?;
//! println!("listening on {}", endpoint.uri());
//! loop {
//!     match endpoint.wait(None)? {
//!         Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0)?,
//!         Some(Event::Recv(message)) => endpoint.send(message.connection(), &message, 0, cci::SendFlags::SILENT)?,
//!         _ => {}
//!     }
//! }
//! # }
//! ```
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]
// With the seam open, what is the crate's own has public names; the types of it that transports do not use stay private.
#![cfg_attr(
    feature = "seam",
    allow(missing_docs, private_interfaces, clippy::new_without_default, clippy::len_without_is_empty)
)]

mod config;
mod connection;
mod context;
mod counters;
mod device;
mod endpoint;
mod engine;
mod error;
mod explain;
#[cfg(feature = "futures")]
pub mod futures;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
/// The syntax of configuration files, for files of other layers that look alike.
pub mod ini {
    pub use crate::config::syntax::{Pair, Section, Wrong, sections};
}
pub mod limits;
mod loan;
pub mod messages;
mod options;
mod resolve;
mod rma;
mod sealing;
#[cfg(feature = "seam")]
#[doc(hidden)]
pub mod seam;
mod security;
mod shared;
#[cfg(feature = "simulated")]
#[doc(hidden)]
pub mod simulated;
mod transport;

pub use config::ConfigNote;
pub use connection::{Connection, DisconnectReason, Status};
pub use context::Context;
pub use counters::{ConnectionCounters, DropReason, EndpointCounters, MemoryUse};
pub use device::{Device, PciAddress, TransportKind, Unavailable};
pub use endpoint::Endpoint;
pub use endpoint::mapped::MappedTarget;
pub use endpoint::sleeper::Sleeper;
pub use engine::borrowed::MappedMessage;
pub use engine::core::DisconnectPolicy;
pub use engine::event::{ConnectRequest, Event, Message, RawMessage};
pub use engine::lent::{LentMessage, Polled, ShortMessage};
pub use error::{
    AcceptError, ConnectError, ConnectFailure, ContextError, CreateError, DeviceForError, OptionError,
    RegisterError, ResolveError, RmaError, SendError, SysError, WaitError,
};
pub use explain::{Explanation, Fact, PathOption};
pub use loan::{Loan, Loans, RefusedLoan};
pub use options::{Attribute, Options, SendFlags};
pub use resolve::resolve;
pub use rma::{Access, BlockRun, Memory, RegionAddress, RegionHandle, Registration, Rma, RmaFlags, Segment};
pub use security::Security;
pub use shared::{LockedEndpoint, SharedEndpoint};
pub use transport::any::network_uri;

pub use cci_memory::bytes::{AtomicRefusal, Foreign, Trust};
pub use cci_memory::ring::Line;
pub use cci_proto::{Atomic, AtomicKind, AtomicWidth, RmaKind};
pub use cci_secure::{CredentialsError, Identity, Method, Names, NamesError, Wrong as WrongCredentials};
