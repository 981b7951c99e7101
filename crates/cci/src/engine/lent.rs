//! What a handler is given: messages that are lent to it for the length of a call, and events.

use super::core::Core;
use super::event::{Event, Message};
use super::receive::ReceiveBuffers;
use crate::connection::Connection;
use crate::limits;
use cci_memory::ring::Line;
use cci_proto::BundleMessages;
use std::fmt;
use std::ops::Deref;

/// The longest message that a transport lends from the buffer for that.
const BUFFER_BYTES: usize = limits::MESSAGE_BYTES_MAX as usize;

/// The most messages that are lent in one go.
const LINES: usize = 32;

/// Where messages are copied to that are lent to a handler without receive buffers of their own.
#[repr(align(64))]
pub(crate) struct LentBuffer {
    /// For one of any length.
    any: [u8; BUFFER_BYTES],
    /// For short ones.
    lines: [Line; LINES],
}

impl LentBuffer {
    pub fn new() -> Box<LentBuffer> {
        Box::new(LentBuffer { any: [0; BUFFER_BYTES], lines: [const { Line::EMPTY }; LINES] })
    }
}

/// Calls a handler with all of what it is given. It is made where the type of the handler is known, so that the handler can be compiled
/// into its loop.
pub(crate) type Caller<'a> = dyn FnMut(&mut Calls<'_, '_>) + 'a;

/// What a handler is to be called with, one after the other.
pub(crate) enum Calls<'a, 'b> {
    Many(&'b mut Unlent<'a>),
    One(Option<Polled<'b>>),
}

impl Calls<'_, '_> {
    #[inline(always)]
    pub fn next(&mut self) -> Option<Polled<'_>> {
        match self {
            Calls::Many(unlent) => unlent.lend().map(Polled::Message),
            Calls::One(polled) => polled.take(),
        }
    }

    /// [`Calls::next`] for a handler that takes messages alone, and the last one behind another event. Nothing is dropped for most.
    #[inline(always)]
    pub fn next_message(&mut self) -> Option<LentMessage<'_>> {
        match self {
            Calls::Many(unlent) => unlent.lend(),
            Calls::One(polled) => match polled.take() {
                Some(Polled::Message(message)) => Some(message),
                _ => None,
            },
        }
    }
}

/// What [`Endpoint::take_short`](crate::Endpoint::take_short) has found.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ShortMessage {
    /// A message of this connection was taken. Its bytes are in the line.
    Message(Connection),
    /// Nothing has come, and nothing else is to be done now.
    Nothing,
    /// Nothing was done. There may be something else, which [`Endpoint::poll_messages`](crate::Endpoint::poll_messages) and
    /// [`Endpoint::next_event`](crate::Endpoint::next_event) find.
    Other,
}

/// What a transport lends messages by, in one turn of progress.
pub struct Lender<'a> {
    buffer: &'a mut LentBuffer,
    /// The most messages that may still be lent.
    left: u32,
    /// A transport may leave messages for which there are buffers, to lend them with the next call: nobody else takes buffers meanwhile.
    may_leave: bool,
    calls: &'a mut Caller<'a>,
}

impl<'a> Lender<'a> {
    pub(crate) fn new(buffer: &'a mut LentBuffer, max: u32, calls: &'a mut Caller<'a>) -> Lender<'a> {
        Lender { buffer, left: max, may_leave: true, calls }
    }

    /// How many messages may still be lent.
    pub(crate) fn left(&self) -> u32 {
        self.left
    }

    /// Whether a transport may leave messages for the next call.
    pub(crate) fn may_leave(&self) -> bool {
        self.may_leave
    }

    /// Has transports leave nothing, as others take receive buffers, too.
    pub(crate) fn leave_nothing(&mut self) {
        self.may_leave = false;
    }

    /// How many messages may be lent now: none while events wait, which come first, and no more than there are buffers to keep them in
    /// without a look at quotas.
    #[inline]
    pub(crate) fn may_lend(&self, core: &Core) -> u32 {
        if core.has_events() { 0 } else { self.left.min(core.keepable_before_events()) }
    }

    /// Notes that `messages` were lent.
    #[inline]
    pub(crate) fn lent(&mut self, messages: u32) {
        self.left = self.left.saturating_sub(messages);
    }

    /// Where up to `max` short messages are copied to, to be lent in one go.
    #[inline]
    pub(crate) fn lines(&mut self, max: u32) -> &mut [Line] {
        let lines = LINES.min(max as usize);
        self.buffer.lines.get_mut(..lines).unwrap_or_default()
    }

    /// Lends the first `count` messages that were copied to [`Lender::lines`], `bytes` in all, when the transport is done with them. If
    /// the handler panics, those that it was not given are delivered.
    #[inline(never)]
    pub(crate) fn lend_lines(&mut self, core: &mut Core, connection: Connection, count: usize, bytes: u64) {
        core.counters.messages_received += count as u64;
        core.counters.bytes_received += bytes;
        core.receive.lent_on = connection;
        let lines = self.buffer.lines.get(..count).unwrap_or_default().iter();
        let bundle = BundleMessages::default();
        (self.calls)(&mut Calls::Many(&mut Unlent { core, connection, lines, bundle, left: 0 }));
    }

    /// Lends aligned messages of a bundle that were counted, when the transport is done with its datagram, as far as more may be lent.
    /// Returns how many bytes the records of the others take. If the handler panics, those that it was not given are delivered.
    #[inline(never)]
    pub(crate) fn lend_bundle(
        &mut self,
        core: &mut Core,
        connection: Connection,
        messages: BundleMessages<'_>,
    ) -> usize {
        core.receive.lent_on = connection;
        let lines = [].iter();
        let mut unlent = Unlent { core, connection, lines, bundle: messages, left: self.left };
        (self.calls)(&mut Calls::Many(&mut unlent));
        self.left = unlent.left;
        std::mem::take(&mut unlent.bundle).as_bytes().len()
    }

    /// Where a message of `len` bytes is to be copied to. `None`: it is longer than any message is.
    #[inline]
    pub(crate) fn buffer(&mut self, len: usize) -> Option<&mut [u8]> {
        self.buffer.any.get_mut(..len)
    }

    /// Lends the message of `len` bytes that was copied to the buffer, when the transport is done with it: the handler may panic.
    #[inline]
    pub(crate) fn lend(&mut self, core: &mut Core, connection: Connection, len: usize) {
        core.counters.messages_received += 1;
        core.counters.bytes_received += len as u64;
        if let Some(message) = self.buffer.any.get(..len) {
            core.receive.lent_on = connection;
            let lent = Lent::Copy { bytes: message, buffers: &mut core.receive };
            (self.calls)(&mut Calls::One(Some(Polled::Message(LentMessage(lent)))));
        }
    }
}

/// Messages that are about to be lent.
pub(crate) struct Unlent<'a> {
    core: &'a mut Core,
    connection: Connection,
    /// Short ones, which were copied.
    lines: std::slice::Iter<'a, Line>,
    /// Those of a bundle, where they lie: its datagram is in memory that only this process writes.
    bundle: BundleMessages<'a>,
    /// How many of the bundle may still be lent.
    left: u32,
}

impl Drop for Unlent<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.lines.as_slice().is_empty() || !self.bundle.is_empty() {
            self.deliver();
        }
    }
}

impl<'a> Unlent<'a> {
    /// Lends the next message.
    #[inline(always)]
    fn lend(&mut self) -> Option<LentMessage<'_>> {
        let bytes = self.next()?;
        Some(LentMessage(Lent::Copy { bytes, buffers: &mut self.core.receive }))
    }

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(line) = self.lines.next() {
            return Some(line.bytes());
        }
        let left = self.left.checked_sub(1)?;
        let message = self.bundle.next()?;
        self.left = left;
        Some(message)
    }

    /// Delivers what is left. There are buffers for it, as all of it could have been kept.
    #[cold]
    fn deliver(&mut self) {
        let messages = self.lines.by_ref().map(Line::bytes).chain(self.bundle.by_ref());
        deliver_counted(self.core, self.connection, messages);
    }
}

/// Delivers messages that were counted, and for each of which there is a buffer.
#[cold]
pub(crate) fn deliver_counted<'a>(
    core: &mut Core,
    connection: Connection,
    messages: impl Iterator<Item = &'a [u8]>,
) {
    for message in messages {
        core.counters.messages_received -= 1;
        core.counters.bytes_received -= message.len() as u64;
        let is_delivered = core.deliver(connection, message);
        debug_assert!(is_delivered, "no message is lent without a buffer to keep it in");
    }
}

/// A received message that is lent to a handler for the length of its call: see [`Endpoint::poll`](crate::Endpoint::poll). It is
/// readable in place and 8-byte aligned; what was checked stays as it is, whatever the peer does meanwhile. A handler that wants the
/// message for longer [keeps](LentMessage::keep) it, or copies what it needs.
pub struct LentMessage<'a>(Lent<'a>);

enum Lent<'a> {
    /// In a receive buffer, until it is kept.
    Message(&'a mut Option<Message>),
    /// In the buffer for that.
    Copy { bytes: &'a [u8], buffers: &'a mut ReceiveBuffers },
}

impl<'a> LentMessage<'a> {
    #[inline]
    pub(crate) fn new(message: &'a mut Option<Message>) -> Self {
        LentMessage(Lent::Message(message))
    }

    /// The connection that the message came on.
    #[inline]
    pub fn connection(&self) -> Connection {
        match &self.0 {
            Lent::Message(Some(message)) => message.connection(),
            Lent::Message(None) => kept(),
            Lent::Copy { buffers, .. } => buffers.lent_on,
        }
    }

    /// Makes it an ordinary message, which holds one of the endpoint's receive buffers until it is dropped, as those of
    /// [`Event::Recv`] do. A buffer is there for it: without one the message would not have been lent yet.
    #[inline]
    pub fn keep(self) -> Message {
        match self.0 {
            Lent::Message(message) => message.take().unwrap_or_else(|| kept()),
            Lent::Copy { bytes, buffers } => buffers.keep(bytes),
        }
    }
}

/// What is kept is lent no more.
#[cold]
fn kept() -> ! {
    unreachable!("`keep` takes what was lent")
}

impl Deref for LentMessage<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Lent::Message(Some(message)) => message,
            Lent::Message(None) => kept(),
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
