//! Messages of any length, on every device.
//!
//! A [`Messenger`] owns an endpoint; everything on the endpoint's connections goes through it, and its peers are messengers, too. A message that fits
//! one of the endpoint's is sent as one (*eager*). A longer one is offered, and fetched by the receiver from where it is, by reads of remote memory
//! (*rendezvous*): the receiver decides about its memory, and the sender's is open to that receiver alone, for that message.
//!
//! - Messages up to [`Limits::whole_bytes_max`] come whole, as [`Event::Message`]. Longer ones come as [`Event::Offer`] first: the program
//!   takes them by [`Messenger::receive_into`] or [`Messenger::receive`], refuses them, or leaves them for later.
//! - Each send ends in one [`Event::Sent`], when the receiver has all of the message.
//! - On a reliable ordered connection the program gets everything in the order in which it was sent: what follows a long message waits
//!   for its end. The sender sends at most [`HELD_MESSAGES_MAX`](crate::limits::HELD_MESSAGES_MAX) short messages after one, and then
//!   gets `WouldBlock`. On a reliable unordered connection each message comes once, when it is there. Unreliable connections take only
//!   what fits one message of the endpoint.
//! - [`Messenger::call`] sends a request to the peer's program, which gets an [`Event::Request`] and answers it once, in any order and on
//!   any thread. Each call ends in one [`Event::Reply`].
//!
//! ```
//! use cci::messages::{Event, Limits, Messenger};
//! use cci::{Attribute, Context, Endpoint, Options, SendFlags};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::new()?;
//! let device = context.default_device();
//! let mut server = Messenger::new(Endpoint::create(device, Options::default())?, Limits::default())?;
//! let mut client = Messenger::new(Endpoint::create(device, Options::default())?, Limits::default())?;
//! client.connect(server.endpoint().uri(), b"", Attribute::ReliableOrdered, 0, None)?;
//! let picture = vec![7; 300_000];
//! let message = loop {
//!     match server.next_event() {
//!         Some(Event::ConnectRequest(request)) => server.accept(request, 0)?,
//!         Some(Event::Message(message)) => break message,
//!         _ => {}
//!     }
//!     if let Some(Event::Connect { result, .. }) = client.next_event() {
//!         client.send(result?, &picture, 0, SendFlags::NONE)?;
//!     }
//! };
//! assert_eq!(message[..], picture[..]);
//! # Ok(())
//! # }
//! ```

mod answer;
mod base;
mod by_connection;
mod call;
mod calls;
mod event;
mod incoming;
mod kept;
mod lent;
mod message;
mod messenger;
mod options;
mod order;
mod outgoing;
mod own;
mod peer;
mod pieces;
mod receiving;
mod request;
mod send;
mod sending;
mod serving;
mod staging;
#[cfg(test)]
mod tests;
mod wire;

#[cfg(feature = "futures")]
pub(crate) use by_connection::ByConnection;

pub use answer::{ReceiveFailure, SendFailure};
pub use call::{CallFailure, CallId};
pub use event::{Event, Offer};
pub use message::Message;
pub use messenger::Messenger;
pub use options::{Counters, Limits};
pub use request::{ReplyError, Request, RequestId};
pub use send::{Payload, Progress, ReceiveError, SendError, SendId};
