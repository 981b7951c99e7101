//! What a language binding offers the suite of messengers, in neutral words. Connections, sends, calls, offers and requests are numbers.

use super::super::driver::{Driver, Refusal, Setup};
pub use cci::messages::{Limits, Progress};
use cci::messages::{ReceiveFailure, SendFailure};
use cci::{Attribute, ConnectFailure, DisconnectReason, Status};
use std::thread::JoinHandle;
use std::time::Duration;

/// A language binding that has messengers.
pub trait MessengerDriver: Driver {
    /// Its messenger.
    type Messenger: MessengerPort;

    /// Opens a messenger on the device that this section of [`config`](super::super::config) describes. No limit is 0.
    fn open_messenger(&self, device: &str, setup: &Setup, limits: Limits) -> Self::Messenger;
}

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "as in `cci::messages::CallFailure`")]
pub enum CallEnd {
    Error { code: u32, bytes: Vec<u8> },
    Dropped,
    TimedOut,
    Cancelled,
    NotSent(SendFailure),
    ReplyTooLong { len_bytes: u64 },
    ReplyLost,
    Failed(Status),
}

/// What happened: as in `cci::messages::Event`.
#[expect(missing_docs, reason = "as there")]
pub enum MessengerEvent<M: MessengerPort + ?Sized> {
    Sent { connection: u64, context: u64, result: Result<(), SendFailure> },
    Message { connection: u64, bytes: M::Bytes },
    Offer { connection: u64, offer: u64, len_bytes: u64 },
    Received { offer: u64, context: u64, result: Result<(), ReceiveFailure> },
    Request { connection: u64, id: u64, request: M::Request },
    RequestCancelled { connection: u64, id: u64 },
    Reply { connection: u64, context: u64, result: Result<M::Bytes, CallEnd> },
    Connect { context: u64, result: Result<u64, ConnectFailure> },
    ConnectRequest(M::ConnectRequest),
    Accept { context: u64, result: Result<u64, ConnectFailure> },
    Disconnected { connection: u64, context: u64, reason: DisconnectReason },
}

/// Where the bytes of a message are.
pub enum Parts<'a, Memory> {
    /// In several places, to be copied.
    Copied(&'a [&'a [u8]]),
    /// In one memory, not to be copied, and as it is until the send has ended.
    InPlace(&'a Memory),
}

/// What was counted, as far as the suite asks.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MessengerCounts {
    /// Long messages that were received here.
    pub long_received: u64,
    /// Long messages, sent or received, that ended otherwise.
    pub long_failed: u64,
    /// Peers that did not keep to the protocol.
    pub faults: u64,
    /// Bytes lent to the program, or about to be.
    pub lent_bytes: u64,
    /// Bytes of copies of messages that are being sent.
    pub staged_bytes: u64,
}

/// A messenger, used from one thread at a time except where a method says otherwise.
pub trait MessengerPort: Send + 'static {
    /// A message or a reply, readable in place. Dropping it gives its memory back.
    type Bytes: AsRef<[u8]> + Send + 'static;
    /// A request, readable in place, to be answered once. Dropping it before refuses it.
    type Request: AsRef<[u8]> + Send + 'static;
    /// A connection request.
    type ConnectRequest: Send + 'static;
    /// Memory that the library has allocated. It may be used until the messenger is closed.
    type Memory: Send + 'static;

    /// What others connect to.
    fn uri(&self) -> String;

    /// Starts connecting, with the suite's patience.
    fn connect(&mut self, uri: &str, attribute: Attribute, context: u64);

    /// Accepts a connection request.
    fn accept(&mut self, request: Self::ConnectRequest, context: u64);

    /// Closes a connection from this side.
    fn disconnect(&mut self, connection: u64);

    /// Sends a message of any length. Returns its number, 0 if it is short.
    ///
    /// # Errors
    /// Nothing was sent.
    fn send(
        &mut self,
        to: u64,
        message: Parts<'_, Self::Memory>,
        context: u64,
        silent: bool,
    ) -> Result<u64, Refusal>;

    /// Takes a long message back. False: there is nothing to take back.
    fn cancel(&mut self, send: u64) -> bool;

    /// How much of a long message its receiver has, as far as is known.
    fn send_progress(&mut self, send: u64) -> Option<Progress>;

    /// Accepts an offer into memory that the library lends.
    ///
    /// # Errors
    /// Nothing has changed.
    fn receive(&mut self, offer: u64) -> Result<(), Refusal>;

    /// Accepts an offer into memory.
    ///
    /// # Errors
    /// Nothing has changed.
    fn receive_into(&mut self, offer: u64, memory: &Self::Memory, context: u64) -> Result<(), Refusal>;

    /// Refuses an offer, or stops receiving it. False: it has ended.
    fn refuse(&mut self, offer: u64, code: u32) -> bool;

    /// How much of an offered message is here.
    fn receive_progress(&mut self, offer: u64) -> Option<Progress>;

    /// Asks, with a request that is gathered from segments. Returns the number of the call.
    ///
    /// # Errors
    /// Nothing was sent.
    fn call(
        &mut self,
        to: u64,
        request: &[&[u8]],
        timeout: Option<Duration>,
        context: u64,
    ) -> Result<u64, Refusal>;

    /// Asks with a deadline that lies before now by a second. `None`: the language has no such times.
    fn call_until_the_past(&mut self, to: u64) -> Option<Result<u64, Refusal>>;

    /// Gives a call up. False: it has ended.
    fn cancel_call(&mut self, call: u64) -> bool;

    /// Answers a request, with an error if there is a `code`.
    ///
    /// # Errors
    /// Nothing was sent. After [`Refusal::Closed`] and [`Refusal::BadArgument`] it can't be answered here any more.
    fn answer(&mut self, request: &mut Self::Request, code: Option<u32>, bytes: &[u8])
    -> Result<(), Refusal>;

    /// Answers a request in a thread of its own, which ends before the messenger does.
    fn answer_in_a_thread(&self, request: Self::Request, code: Option<u32>, bytes: Vec<u8>)
    -> JoinHandle<()>;

    /// Memory of the library with these bytes in it.
    fn memory(&mut self, bytes: &[u8]) -> Self::Memory;

    /// What is in memory.
    fn bytes_of(memory: &Self::Memory) -> Vec<u8>;

    /// The next event; never blocks.
    fn poll(&mut self) -> Option<MessengerEvent<Self>>;

    /// What was counted.
    fn counts(&self) -> MessengerCounts;
}
