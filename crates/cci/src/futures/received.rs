//! What comes on a connection, as tasks get it.

use crate::messages::{Message, Offer, Request, RequestId};

/// What comes on a connection.
#[derive(Debug)]
#[non_exhaustive]
pub enum Received {
    /// A message, whole.
    Message(Message),
    /// A request, to be answered by [`Request::reply`].
    Request(Request),
    /// The peer does not wait for the answer to this request any more.
    RequestCancelled(RequestId),
    /// A message that is too long to come whole: [`Connection::receive_into`](super::Connection::receive_into),
    /// [`receive_lent`](super::Connection::receive_lent) or [`refuse`](super::Connection::refuse).
    Offer(Offer),
}
