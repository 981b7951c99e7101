//! What a handler is given: messages that are lent to it for the length of a call, and events.

use super::core::Core;
use super::event::{Event, Message};
use super::receive::ReceiveBuffers;
use crate::connection::Connection;
use crate::limits;
use std::fmt;
use std::ops::Deref;

/// The longest message that a transport lends from the buffer for that.
const BUFFER_BYTES: usize = limits::MESSAGE_BYTES_MAX as usize;

/// Where a message is copied to that is lent to a handler without a receive buffer of its own.
#[repr(align(64))]
pub(crate) struct LentBuffer([u8; BUFFER_BYTES]);

impl LentBuffer {
    pub fn new() -> Box<LentBuffer> {
        Box::new(LentBuffer([0; BUFFER_BYTES]))
    }
}

/// What a transport lends messages by, in one turn of progress.
pub struct Lender<'a> {
    buffer: &'a mut LentBuffer,
    /// The most messages that may still be lent.
    left: u32,
    handler: &'a mut dyn FnMut(&mut ReceiveBuffers, Connection, &[u8]),
}

impl<'a> Lender<'a> {
    pub(crate) fn new(
        buffer: &'a mut LentBuffer,
        max: u32,
        handler: &'a mut dyn FnMut(&mut ReceiveBuffers, Connection, &[u8]),
    ) -> Lender<'a> {
        Lender { buffer, left: max, handler }
    }

    /// How many messages may still be lent.
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// How many messages may be lent now: none while events wait, which come first, and no more than there are buffers to keep them in
    /// without a look at quotas.
    #[inline]
    pub(crate) fn may_lend(&self, core: &Core) -> u32 {
        self.left.min(core.keepable())
    }

    /// Where a message of `len` bytes is to be copied to. `None`: it is longer than any message is.
    #[inline]
    pub(crate) fn buffer(&mut self, len: usize) -> Option<&mut [u8]> {
        self.buffer.0.get_mut(..len)
    }

    /// Lends the message of `len` bytes that was copied to the buffer, when the transport is done with it: the handler may panic.
    #[inline]
    pub(crate) fn lend(&mut self, core: &mut Core, connection: Connection, len: usize) {
        self.left = self.left.saturating_sub(1);
        core.counters.messages_received += 1;
        core.counters.bytes_received += len as u64;
        if let Some(message) = self.buffer.0.get(..len) {
            (self.handler)(&mut core.receive, connection, message);
        }
    }
}

/// A received message that is lent to a handler for the length of its call: see [`Endpoint::poll`](crate::Endpoint::poll). It is
/// readable in place and 8-byte aligned; what was checked stays as it is, whatever the peer does meanwhile. A handler that wants the
/// message for longer [keeps](LentMessage::keep) it, or copies what it needs.
pub struct LentMessage<'a>(Lent<'a>);

enum Lent<'a> {
    /// In a receive buffer.
    Message(Message),
    /// In the buffer for that.
    Copy { bytes: &'a [u8], connection: Connection, buffers: &'a mut ReceiveBuffers },
}

impl<'a> LentMessage<'a> {
    #[inline]
    pub(crate) fn new(message: Message) -> Self {
        LentMessage(Lent::Message(message))
    }

    #[inline]
    pub(crate) fn of_copy(bytes: &'a [u8], connection: Connection, buffers: &'a mut ReceiveBuffers) -> Self {
        LentMessage(Lent::Copy { bytes, connection, buffers })
    }

    /// The connection that the message came on.
    #[inline]
    pub fn connection(&self) -> Connection {
        match &self.0 {
            Lent::Message(message) => message.connection(),
            Lent::Copy { connection, .. } => *connection,
        }
    }

    /// Makes it an ordinary message, which holds one of the endpoint's receive buffers until it is dropped, as those of
    /// [`Event::Recv`] do. A buffer is there for it: without one the message would not have been lent yet.
    #[inline]
    pub fn keep(self) -> Message {
        match self.0 {
            Lent::Message(message) => message,
            Lent::Copy { bytes, connection, buffers } => buffers.keep(connection, bytes),
        }
    }
}

impl Deref for LentMessage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Lent::Message(message) => message,
            Lent::Copy { bytes, .. } => bytes,
        }
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
