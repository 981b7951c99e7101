//! What a language binding offers the suite: the endpoint's calls in neutral words.

use cci::{
    Access, Atomic, Attribute, ConnectFailure, DisconnectReason, RegionAddress, RegionHandle, Rma, RmaFlags,
    Status,
};
use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A language binding.
pub trait Driver: Copy + Send + Sync + 'static {
    /// Its endpoint.
    type Port: Port;

    /// What the report and the table in docs/devices.md call it.
    const LANGUAGE: &'static str;

    /// The handle of a connection that has ended goes with the event that says so. False where the program disconnects it still.
    const DISCONNECTED_HANDLES_GO: bool;

    /// A handle of a closed connection is refused. False where using one is outside the language's contract,
    /// as it is with pointers.
    const STALE_HANDLES_ARE_REFUSED: bool;

    /// Memory lives as long as anything of the language or the library needs it. False where the program must keep it.
    const MEMORY_IS_COUNTED: bool;

    /// A message of no bytes can come with data. False where no bytes mean no message.
    const EMPTY_MESSAGES_WITH_DATA: bool;

    /// A handler may panic, and the panic goes on to who polls. False where there is no such thing.
    const HANDLERS_MAY_PANIC: bool;

    /// Opens an endpoint on the device that this section of [`super::config`] describes.
    fn open(&self, device: &str, setup: &Setup) -> Self::Port;
}

/// How an endpoint is opened. Less than a program may choose: what the cases need.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Receive buffers, shared by all peers.
    pub recv_buffers: u32,
    /// Sends that may be in progress at once.
    pub send_buffers: u32,
    /// How long a reliable send may take.
    pub send_timeout: Duration,
    /// None: off.
    pub keepalive: Option<Duration>,
    /// The program wants to hear of connections that end, where the language has to be asked for that.
    pub reports_disconnected: bool,
    /// Cap on every byte the endpoint holds. None: the library's default.
    pub memory_bytes_max: Option<u64>,
}

impl Default for Setup {
    /// Small, so that hundreds of endpoints are opened in a moment; patient, so that a busy machine fails nothing.
    fn default() -> Self {
        Setup {
            recv_buffers: 256,
            send_buffers: 1024,
            send_timeout: Duration::from_secs(20),
            keepalive: None,
            reports_disconnected: false,
            memory_bytes_max: None,
        }
    }
}

/// How a send is made.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// No completion event on success.
    pub silent: bool,
    /// The message stays as it is until completion: it need not be copied. A binding that can't promise that for a
    /// borrowed message copies it.
    pub no_copy: bool,
}

/// Whose memory peers are to read and write.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// From the library's allocator.
    Library,
    /// The program's own, from elsewhere.
    Foreign,
}

impl Whose {
    /// Both.
    pub const ALL: [Whose; 2] = [Whose::Library, Whose::Foreign];
}

/// What is registered.
#[derive(Clone, Debug)]
pub struct Grant<C> {
    /// Which part of the memory.
    pub range: Range<usize>,
    /// What peers may do.
    pub access: Access,
    /// Over which connection only; None: over any.
    pub only: Option<C>,
}

/// Why a call was refused. Nothing was started and no event will come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The message is longer than the connection takes.
    TooLong,
    /// All send buffers are in use, or the peer is behind.
    WouldBlock,
    /// The connection is closed, or the handle is stale.
    Closed,
    /// An argument makes no sense: a payload too long, a URI that can't be understood, a local handle that names nothing,
    /// remote memory on an unreliable connection.
    BadArgument,
    /// Anything else, in the binding's words.
    Other(String),
}

/// What happened.
pub enum Happening<P: Port + ?Sized> {
    /// A message came. Dropping it gives its buffer back.
    Received(P::Connection, P::Message),
    /// A send ended.
    Sent(P::Connection, u64, Status),
    /// An attempt to connect ended, with the context it was given.
    Connected(u64, Result<P::Connection, ConnectFailure>),
    /// Somebody wants to connect.
    Requested(P::Request),
    /// An accept ended, with the context it was given.
    Accepted(u64, Result<P::Connection, ConnectFailure>),
    /// A peer was silent for longer than the keepalive time.
    Silent(P::Connection),
    /// A connection ended that this side did not disconnect, made with this context, for this reason.
    Disconnected(P::Connection, u64, DisconnectReason),
    /// The device failed.
    DeviceFailed,
}

/// The outcome of asking for an event.
pub enum Polled<P: Port + ?Sized> {
    /// There was one.
    Event(Happening<P>),
    /// There is nothing.
    Nothing,
    /// There is nothing, and every receive buffer is out with the program.
    NoBuffers,
}

/// What was counted, as far as the binding shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages taken for sending.
    pub messages_sent: u64,
    /// Bytes in them.
    pub bytes_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Bytes in them.
    pub bytes_received: u64,
    /// Sends that ended with an error.
    pub sends_failed: u64,
    /// Times a message found no receive buffer.
    pub receiver_not_ready: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Memory held now, all kinds, bytes.
    pub memory_bytes: u64,
    /// The cap on it, bytes.
    pub memory_bytes_max: u64,
    /// Writes to peers' memory that were started.
    pub rma_writes: u64,
    /// Reads of it.
    pub rma_reads: u64,
    /// Bytes in both.
    pub rma_bytes: u64,
    /// Atomic operations that were started.
    pub atomics: u64,
    /// Accesses of peers that were refused.
    pub rma_refused: u64,
    /// Regions registered now.
    pub regions: u64,
}

/// Memory that peers may change at any time, as its owner sees it. Clones are the same memory.
pub trait Shared: Clone + Send + Sync + 'static {
    /// Bytes.
    fn len_bytes(&self) -> usize;

    /// Copies out. Must be in range.
    fn read(&self, offset: usize, out: &mut [u8]);

    /// Copies in. Must be in range.
    fn write(&self, offset: usize, data: &[u8]);

    /// An atomic operation of the owner's own; returns the value before. Must be in range and aligned.
    fn own_atomic(&self, offset: usize, atomic: Atomic) -> u64;
}

/// An endpoint, used from one thread at a time.
pub trait Port: Send + 'static {
    /// A handle of a connection.
    type Connection: Copy + Eq + Debug + Send + 'static;
    /// A received message, readable in place. Dropping it returns it, in any order and on any thread.
    type Message: AsRef<[u8]> + Send + 'static;
    /// A connection request, to be accepted or rejected.
    type Request: Send + 'static;
    /// Memory that can be registered.
    type Memory: Shared;

    /// What others connect to.
    fn uri(&self) -> String;

    /// Starts connecting. Ends in one [`Happening::Connected`]. `timeout` None: for ever.
    ///
    /// # Errors
    /// Nothing was started.
    fn connect(
        &mut self,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), Refusal>;

    /// The payload that came with a request.
    fn request_data(request: &Self::Request) -> &[u8];

    /// The attribute that a request asks for.
    fn request_attribute(request: &Self::Request) -> Attribute;

    /// Accepts a request that came here or to another endpoint of the same device.
    ///
    /// # Errors
    /// No event will come.
    fn accept(&mut self, request: Self::Request, context: u64) -> Result<(), Refusal>;

    /// Says no.
    fn reject(&mut self, request: Self::Request);

    /// Closes a connection from this side.
    fn disconnect(&mut self, connection: Self::Connection);

    /// Sends one message. Ends in one [`Happening::Sent`] unless silent.
    ///
    /// # Errors
    /// Nothing was sent.
    fn send(
        &mut self,
        to: Self::Connection,
        message: &[u8],
        context: u64,
        flags: Flags,
    ) -> Result<(), Refusal>;

    /// Sends one message that is gathered from segments.
    ///
    /// # Errors
    /// Nothing was sent.
    fn send_vectored(
        &mut self,
        to: Self::Connection,
        segments: &[&[u8]],
        context: u64,
        flags: Flags,
    ) -> Result<(), Refusal>;

    /// Sends and waits for the completion, which raises no event.
    ///
    /// # Errors
    /// Nothing was sent.
    fn send_blocking(&mut self, to: Self::Connection, message: &[u8]) -> Result<Status, Refusal>;

    /// The next event; never blocks.
    fn poll(&mut self) -> Polled<Self>;

    /// Has each of up to `max` messages and events that came handled: `keeps` is lent a message and answers whether it is to be kept. What
    /// was kept and all other events are appended to `came`, in order. Returns how many messages and events were handled.
    fn poll_by_handler(
        &mut self,
        max: u32,
        keeps: &mut dyn FnMut(Self::Connection, &[u8]) -> bool,
        came: &mut Vec<Happening<Self>>,
    ) -> u32;

    /// Sends several messages. Returns how many of the first of them were taken, which end in one [`Happening::Sent`] together unless
    /// silent.
    ///
    /// # Errors
    /// Nothing was sent.
    fn send_burst(
        &mut self,
        to: Self::Connection,
        messages: &[&[u8]],
        context: u64,
        flags: Flags,
    ) -> Result<usize, Refusal>;

    /// Borrows memory for a message, writes it there, and sends it from there. Ends in one [`Happening::Sent`] unless silent, at the latest
    /// when the receiver has dropped the message.
    ///
    /// # Errors
    /// Nothing was sent.
    fn send_loan(
        &mut self,
        to: Self::Connection,
        message: &[u8],
        context: u64,
        flags: Flags,
    ) -> Result<(), Refusal>;

    /// Borrows memory for a message, writes to it, and gives it back unsent.
    ///
    /// # Errors
    /// None was lent.
    fn return_loan(&mut self, to: Self::Connection, len_bytes: usize) -> Result<(), Refusal>;

    /// Receives messages that the peer lends where they lie, where that is possible.
    fn receive_mapped(&mut self, connection: Self::Connection);

    /// Waits for the next event; None after `timeout`.
    fn wait(&mut self, timeout: Duration) -> Option<Happening<Self>>;

    /// The descriptor that is readable whenever [`Port::poll`] may have something.
    fn descriptor(&mut self) -> BorrowedFd<'_>;

    /// The longest message a connection takes, bytes.
    fn max_send_size(&self, connection: Self::Connection) -> usize;

    /// Changes the send timeout of one connection.
    fn set_send_timeout(&mut self, connection: Self::Connection, timeout: Duration);

    /// Changes the keepalive of one connection.
    fn set_keepalive(&mut self, connection: Self::Connection, timeout: Option<Duration>);

    /// The send timeout and keepalive in force for a connection.
    fn timeouts(&mut self, connection: Self::Connection) -> (Duration, Option<Duration>);

    /// What the connection says of itself, in plain words.
    fn explain(&self, connection: Self::Connection) -> String;

    /// What was counted.
    fn counts(&self) -> Counts;

    /// Zeroed memory, aligned to 8 bytes, that is to be registered.
    fn memory(&mut self, whose: Whose, len_bytes: usize) -> Self::Memory;

    /// Registers a part of memory.
    ///
    /// # Errors
    /// Nothing was registered.
    fn register(
        &mut self,
        memory: &Self::Memory,
        grant: Grant<Self::Connection>,
    ) -> Result<RegionHandle, Refusal>;

    /// Registers a part of a file.
    ///
    /// # Errors
    /// Nothing was registered.
    fn register_file(&mut self, file: &File, grant: Grant<Self::Connection>)
    -> Result<RegionHandle, Refusal>;

    /// Ends a registration.
    ///
    /// # Errors
    /// It names no region of this endpoint.
    fn deregister(&mut self, handle: &RegionHandle) -> Result<(), Refusal>;

    /// Reads or writes a peer's memory. Ends in one [`Happening::Sent`] unless silent.
    ///
    /// # Errors
    /// Nothing was started.
    fn rma(&mut self, to: Self::Connection, rma: &Rma<'_>) -> Result<(), Refusal>;

    /// Starts the operation and waits for its completion, which raises no event.
    ///
    /// # Errors
    /// Nothing was started.
    fn rma_blocking(&mut self, to: Self::Connection, rma: &Rma<'_>) -> Result<Status, Refusal>;

    /// Changes a word of a peer's memory; the value before goes to `result`. Ends in one [`Happening::Sent`] unless
    /// silent.
    ///
    /// # Errors
    /// Nothing was started.
    fn atomic(
        &mut self,
        to: Self::Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), Refusal>;

    /// Starts the operation and waits for its completion, which raises no event.
    ///
    /// # Errors
    /// Nothing was started.
    fn atomic_blocking(
        &mut self,
        to: Self::Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
    ) -> Result<Status, Refusal>;
}
