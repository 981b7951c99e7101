//! Services in tasks: messages, requests and calls as futures and streams.
//!
//! A [`Node`] and its [`Driver`] are made of a [`cci_ripc::Node`](crate::Node). The program spawns the driver as a task of its own; it
//! makes progress, wakes others, sleeps until something comes or is due, and ends when the node and all its services are gone. There is no
//! thread. Everything else may be used from any task, on any thread.
//!
//! With tokio (feature `tokio`), [`Node::spawn`] does both. For another executor, give [`Node::new`] a [`Reactor`], which is one function.
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use cci_ripc::{CallOptions, Event, Options, ServiceName, directory, futures};
//!
//! # let folder = tempfile::tempdir()?;
//! # let directory = || directory::open(&format!("host:{}", folder.path().display()));
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let open = || Ok::<_, Box<dyn std::error::Error>>(cci_ripc::Node::open(Options::default().directory(directory()?))?);
//! let clock = futures::Node::spawn(open()?)?.register(&ServiceName::new("clock")?)?;
//! tokio::spawn(async move {
//!     while let Some(event) = clock.next().await {
//!         if let Event::Request(request) = event {
//!             let _gone = clock.answer(request.ticket(), b"noon");
//!         }
//!     }
//! });
//! let me = futures::Node::spawn(open()?)?.client()?;
//! let answer = me.partner(&ServiceName::new("clock")?)?.call(b"time?", CallOptions::default()).await?;
//! assert_eq!(answer.item(0), b"noon");
//! # Ok(())
//! # })
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! # What happens to a future that is dropped
//!
//! | future | dropped before it is ready |
//! |---|---|
//! | [`Service::next`] | nothing is lost: the next one gets it |
//! | [`Partner::call`] | nothing was sent if it had not been polled, or had found no space; else the call is given up: it may have been carried out |
//! | [`Partner::reach`] | the search goes on |
//!
//! # Back-pressure
//!
//! What has come waits in the node until a task takes it; what exceeds its limits is dropped or refused there, as without tasks.
//! [`Partner::call`] waits while the service has as many calls in progress as it may have.

mod driver;
mod node;
mod partner;
mod service;
mod state;
#[cfg(feature = "tokio")]
mod tokio;

pub use driver::{Driver, Reactor};
pub use node::Node;
pub use partner::Partner;
pub use service::Service;
