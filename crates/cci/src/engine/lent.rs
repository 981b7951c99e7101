//! What a handler is given: messages that are lent to it for the length of a call, and events.

use super::event::{Event, Message};
use crate::connection::Connection;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// A received message that is lent to a handler for the length of its call: see [`Endpoint::poll`](crate::Endpoint::poll). It is
/// readable in place and 8-byte aligned; what was checked stays as it is, whatever the peer does meanwhile. A handler that wants the
/// message for longer [keeps](LentMessage::keep) it, or copies what it needs.
pub struct LentMessage<'a> {
    message: Message,
    lent: PhantomData<&'a Message>,
}

impl LentMessage<'_> {
    #[inline]
    pub(crate) fn new(message: Message) -> Self {
        LentMessage { message, lent: PhantomData }
    }

    /// The connection that the message came on.
    #[inline]
    pub fn connection(&self) -> Connection {
        self.message.connection()
    }

    /// Makes it an ordinary message, which holds one of the endpoint's receive buffers until it is dropped, as those of
    /// [`Event::Recv`] do. A buffer is there for it: without one the message would not have been lent yet.
    #[inline]
    pub fn keep(self) -> Message {
        self.message
    }
}

impl Deref for LentMessage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.message
    }
}

impl fmt::Debug for LentMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LentMessage({} bytes from {:?})", self.len(), self.connection())
    }
}

/// What [`Endpoint::poll`](crate::Endpoint::poll) gives its handler.
#[derive(Debug)]
pub enum Polled<'a> {
    /// A message came. It goes back to the endpoint when it is dropped, at the end of the call at the latest.
    Message(LentMessage<'a>),
    /// Anything else happened. It is never [`Event::Recv`].
    Event(Event),
}
