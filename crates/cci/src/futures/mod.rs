//! Messengers in tasks: connections, messages and calls as futures, streams and sinks.
//!
//! A [`Messenger`] and its [`Driver`] are made of a [`messages::Messenger`](crate::messages::Messenger). The program spawns the driver as a
//! task of its own; it is what gets events and wakes others, sleeps on the descriptor, and ends when the messenger and all its connections
//! are gone. There is no thread. Everything else may be used from any task, on any thread.
//!
//! With tokio (feature `tokio`), [`Messenger::spawn`] does both. For another executor, give [`Messenger::new`] a [`Reactor`], which is
//! one function.
//!
//! ```
//! # #[cfg(feature = "tokio")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use cci::futures::{Messenger, Received};
//! use cci::{Attribute, Context, Options, messages};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let context = Context::new()?;
//! let open = || messages::Messenger::open(context.default_device(), Options::default());
//! let server = Messenger::spawn(open()?)?;
//! let uri = server.uri().to_owned();
//! tokio::spawn(async move {
//!     while let Some(client) = server.incoming().await {
//!         let Ok(client) = client.accept().await else { continue };
//!         tokio::spawn(async move {
//!             while let Some(received) = client.receive().await {
//!                 if let Received::Request(request) = received {
//!                     let answer = request.to_ascii_uppercase();
//!                     request.reply(answer);
//!                 }
//!             }
//!         });
//!     }
//! });
//! let client = Messenger::spawn(open()?)?;
//! let connection = client.connect(&uri, b"", Attribute::ReliableOrdered, None).await?;
//! let reply = connection.call(b"hello", None).await?;
//! assert_eq!(reply[..], *b"HELLO");
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
//! | [`Messenger::connect`], [`Incoming::accept`] | the connection is closed as soon as it is open |
//! | [`Messenger::incoming`], [`Connection::receive`] | nothing is lost: the next one gets it |
//! | [`Connection::send`] | nothing was sent if it had not been polled, or had found no space; else the message goes on its way |
//! | [`Connection::post`] | nothing was sent |
//! | [`Connection::flush`] | nothing is lost: the next one waits for the same messages |
//! | [`Connection::call`] | the call is given up, and the server is notified |
//! | [`Connection::receive_into`] | the message is refused, with code 0, and the memory is the program's at once |
//!
//! # Peers that are silent
//!
//! A connection whose peer was silent for longer than [`Options::keepalive`](field@crate::Options::keepalive) is closed, and everything
//! in progress on it ends. Without that option, a call waits for its deadline, and a message that was offered waits for its receiver.
//!
//! # Back-pressure
//!
//! What a peer has sent waits in the endpoint's receive buffers until a task takes it. A connection whose task takes nothing
//! holds no more of them than its quota, and its peer's sends wait. [`Connection::send`], [`Connection::post`],
//! [`Connection::call`] and the sink wait while the limits of what may be in progress are reached.

mod connection;
mod driver;
mod error;
mod incoming;
mod messenger;
mod operations;
mod received;
mod state;
#[cfg(feature = "tokio")]
mod tokio;
mod wait;
mod wakers;

pub use connection::Connection;
pub use driver::{Driver, Reactor};
pub use error::{CallError, ConnectError, SendError};
pub use incoming::Incoming;
pub use messenger::Messenger;
pub use received::Received;
