//! Errors by whose fault: one enum per operation for the caller's, [`ConnectFailure`] and [`crate::Status`] for the
//! peer's, [`SysError`] for the system's.

use std::fmt;
use std::path::PathBuf;

pub use cci_sys::SysError;

/// Why no [`crate::Context`] could be made.
#[derive(Debug)]
pub enum ContextError {
    /// The configuration file can't be read.
    Unreadable {
        /// The file named by `CCI_CONFIG`.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The configuration file is wrong at one place.
    Config {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what to write instead.
        reason: String,
    },
    /// No device at all was found.
    NoDevice,
}

/// Why no device leads to a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceForError {
    /// The URI can't be understood.
    BadUri {
        /// As it was given.
        uri: String,
        /// What is wrong with it and what one looks like.
        reason: String,
    },
    /// No device of this machine that is up leads there.
    NoDevice {
        /// As it was given.
        uri: String,
        /// What was looked for, and what there is.
        reason: String,
    },
}

/// Why a URI's host name could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveError {
    /// The URI can't be understood.
    BadUri {
        /// As it was given.
        uri: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system knows no address of the host.
    UnknownHost {
        /// The URI as it was given.
        uri: String,
        /// What the system said of the name.
        reason: String,
    },
}

/// Why an endpoint could not be opened.
#[derive(Debug)]
pub enum CreateError {
    /// An option is out of its range.
    BadOption {
        /// Which one.
        name: &'static str,
        /// What is wrong with it and what would do.
        reason: String,
    },
    /// The service (port, name or path) can't be used.
    BadService {
        /// As it was given.
        service: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another endpoint or program listens at this service.
    InUse {
        /// As it was given.
        service: String,
    },
    /// The buffers asked for do not fit the memory cap, or the system does not have the memory.
    NoMemory {
        /// What they need, bytes.
        needed_bytes: u64,
        /// The cap, bytes.
        cap_bytes: u64,
    },
    /// The device is down or gone.
    DeviceDown,
    /// The system refused something.
    System(SysError),
}

/// Why a connection attempt could not be started. What becomes of a started one is reported by `Event::Connect`.
#[derive(Debug)]
pub enum ConnectError {
    /// The URI can't be understood, or is not of this device.
    BadUri {
        /// As it was given.
        uri: String,
        /// What is wrong with it and what one looks like.
        reason: String,
    },
    /// The request's payload is longer than [`crate::limits::REQUEST_BYTES_MAX`].
    RequestTooLong {
        /// The length of the payload, bytes.
        len_bytes: usize,
    },
    /// A request's payload for a multicast group, where nobody would read it: connect without one.
    RequestToGroup {
        /// The length of the payload, bytes.
        len_bytes: usize,
    },
    /// The device does not offer this kind of connection.
    Unsupported,
    /// The endpoint requires security, and this kind of connection has none: multicast groups.
    Insecure,
    /// Nobody can be expected by that name.
    CannotExpect {
        /// The name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// Out of connections, or of memory under the cap or of the system's; try again when something was closed.
    NoMemory,
    /// The system refused something.
    System(SysError),
}

/// Why an attempt to connect, or to complete an accept, failed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ConnectFailure {
    /// Nobody listens there, or the request was rejected.
    Refused,
    /// No answer in time.
    TimedOut,
    /// The peer speaks another version of the protocol.
    Version {
        /// The one it speaks.
        theirs: u8,
    },
    /// One side does not allow it: another user's process, or a name that is not among those of `allow_connect`.
    NotPermitted,
    /// Somebody else is there than was expected. Nothing of the request was sent to them.
    WrongPeer,
    /// One side had no memory left, under its cap or at all, or no descriptor.
    NoMemory,
    /// The peer closed, died, or the device failed, while the connection was made.
    Disconnected,
}

/// Why a request could not be accepted. The request is lost with it: the peer learns that it was refused.
#[derive(Debug)]
pub enum AcceptError {
    /// The endpoint is of another kind of device than the one the request came to.
    OtherDevice,
    /// The peer has given up meanwhile.
    Gone,
    /// By its name or its user the peer may not connect to this endpoint, or somebody else is at its address now.
    NotPermitted,
    /// The request is this endpoint's own, and it seals what it sends: it can't shake hands with itself.
    Itself,
    /// Out of connections, or of memory under the cap or of the system's.
    NoMemory,
    /// The system refused something.
    System(SysError),
}

/// Why a message was not taken. Nothing was sent and nothing changed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Longer than the connection's maximum.
    TooLong {
        /// The length of the message.
        len_bytes: usize,
        /// The longest this connection takes.
        max_bytes: u32,
    },
    /// As many sends are in progress as there are send buffers, or as this connection may have of them; or the memory cap is
    /// reached. Get events, then try again.
    WouldBlock,
    /// The peer closed or died, or `disconnect` was called.
    Disconnected,
    /// No connection of this endpoint.
    UnknownConnection,
    /// The connection receives what is sent to a multicast group: nothing can be sent on it.
    ReceiveOnly,
    /// Another process opened the endpoint, and this one is its fork child: open your own.
    OtherProcess,
}

/// Why memory was not registered, or a registration not ended. Nothing changed.
#[derive(Debug)]
pub enum RegisterError {
    /// The memory, or the part of it, has no bytes.
    Length,
    /// The part ends behind the end of the memory.
    Range {
        /// Where the part ends, bytes from the start of the memory.
        end: usize,
        /// How long the memory is.
        len_bytes: usize,
    },
    /// Not all of the range is mapped in this process, or peers may write and it is read-only.
    NotMapped(SysError),
    /// The memory is a file: peers may read it, and nobody can write to it or use it as the local side of an operation.
    ReadOnly,
    /// The one connection that is to have access is none of this endpoint's.
    UnknownConnection,
    /// As many regions are registered as can be.
    TooMany,
    /// The handle names no region of this endpoint, or none any more.
    Unknown,
    /// The system refused.
    System(SysError),
}

/// Why a remote memory operation was not started. No event will come.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RmaError {
    /// The connection is unreliable: remote memory needs a reliable one (CCI-054).
    Unreliable,
    /// The local and the remote segments are not equally long in total, the total is 0, or an offset is beyond counting.
    Lengths,
    /// A local handle names no region of this endpoint, the segment is not within it, or it is to be written and its
    /// memory is read-only.
    LocalHandle,
    /// The lists of segments make more contiguous runs than one operation takes.
    TooManySegments {
        /// Runs that are contiguous on both sides, at most.
        max: usize,
    },
    /// The message that goes with it is longer than the connection takes.
    TooLong {
        /// The length of the message.
        len_bytes: usize,
        /// The longest this connection takes.
        max_bytes: u32,
    },
    /// As many operations are in progress as may be, on the endpoint or on this connection; or sends of the connection wait for room,
    /// and this operation is fenced. Get events, then try again.
    WouldBlock,
    /// The peer closed or died, or `disconnect` was called.
    Disconnected,
    /// No connection of this endpoint.
    UnknownConnection,
    /// Another process opened the endpoint, and this one is its fork child: open your own.
    OtherProcess,
}

/// Why an option was not set.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OptionError {
    /// No connection of this endpoint.
    UnknownConnection,
    /// The value is out of range.
    OutOfRange,
    /// It can only be chosen when the endpoint is opened.
    Fixed,
    /// This device has no such thing.
    Unsupported,
    /// The system has no memory for it.
    NoMemory,
    /// Another process opened the endpoint, and this one is its fork child: open your own.
    OtherProcess,
}

/// Why waiting failed: only the system's doing.
pub type WaitError = SysError;

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContextError::Unreadable { path, source } => {
                write!(f, "{}: {source}; CCI_CONFIG must name a readable file, or be unset", path.display())
            }
            ContextError::Config { path, line, reason } => write!(f, "{}:{line}: {reason}", path.display()),
            ContextError::NoDevice => {
                write!(
                    f,
                    "no device found: neither shared memory nor a network interface, \
                     or no section of the configuration file gives one"
                )
            }
        }
    }
}

impl fmt::Display for DeviceForError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (DeviceForError::BadUri { uri, reason } | DeviceForError::NoDevice { uri, reason }) = self;
        write!(f, "URI {uri:?}: {reason}")
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ResolveError::BadUri { uri, reason } | ResolveError::UnknownHost { uri, reason }) = self;
        write!(f, "URI {uri:?}: {reason}")
    }
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::BadOption { name, reason } => write!(f, "option {name}: {reason}"),
            CreateError::BadService { service, reason } => write!(f, "service {service:?}: {reason}"),
            CreateError::InUse { service } => {
                write!(f, "service {service:?} is in use by another endpoint; choose another or none")
            }
            CreateError::NoMemory { needed_bytes, cap_bytes } if needed_bytes <= cap_bytes => write!(
                f,
                "the system does not have the {needed_bytes} bytes of memory that the buffers need: lower their \
                 counts, or raise what limits it (ulimit -v, a cgroup's memory.max)"
            ),
            CreateError::NoMemory { needed_bytes, cap_bytes } => write!(
                f,
                "the buffers need {needed_bytes} bytes and memory_bytes_max is {cap_bytes}; lower the counts or raise the cap"
            ),
            CreateError::DeviceDown => {
                write!(f, "the device is down, or this process may not use it; `cci info` says why")
            }
            CreateError::System(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::BadUri { uri, reason } => write!(f, "URI {uri:?}: {reason}"),
            ConnectError::RequestTooLong { len_bytes } => write!(
                f,
                "a connection request carries {} bytes at most, not {len_bytes}",
                crate::limits::REQUEST_BYTES_MAX
            ),
            ConnectError::RequestToGroup { len_bytes } => write!(
                f,
                "nobody answers for a multicast group: connect without a request, not with one of {len_bytes} bytes"
            ),
            ConnectError::Unsupported => {
                write!(
                    f,
                    "this device does not offer this kind of connection: `cci info` says what each one offers"
                )
            }
            ConnectError::Insecure => write!(
                f,
                "this endpoint requires security, which multicast groups do not have: use an endpoint of a device without it"
            ),
            ConnectError::CannotExpect { name, reason } => write!(f, "expecting {name:?}: {reason}"),
            ConnectError::NoMemory => write!(f, "{EXHAUSTED}"),
            ConnectError::System(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for ConnectFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectFailure::Refused => {
                write!(f, "refused: nobody listens there, or the request was rejected")
            }
            ConnectFailure::TimedOut => write!(
                f,
                "timed out: nobody answered; check that the peer runs, that the address is right and that nothing on the \
                 path filters it, or allow more time"
            ),
            ConnectFailure::Version { theirs } => {
                write!(
                    f,
                    "the peer speaks version {theirs} of the protocol, or of the handshake: update the older side"
                )
            }
            ConnectFailure::NotPermitted => write!(
                f,
                "not permitted: the peer is another user's process (all_users = on in the section of a shm device admits \
                 them), or allow_connect does not name it"
            ),
            ConnectFailure::WrongPeer => write!(
                f,
                "the peer is not the one that was expected: its key or its certificate has another name"
            ),
            ConnectFailure::NoMemory => write!(
                f,
                "one side has no capacity for it: no memory under its memory_bytes_max or of the system, no descriptor \
                 (ulimit -n), or shared memory above the limit of file sizes (ulimit -f)"
            ),
            ConnectFailure::Disconnected => write!(f, "the peer closed or died while connecting"),
        }
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcceptError::OtherDevice => {
                write!(f, "the request came to another kind of device than this endpoint's")
            }
            AcceptError::Gone => write!(f, "the peer has given up meanwhile"),
            AcceptError::NotPermitted => {
                write!(
                    f,
                    "the peer is not among those that allow_connect names for this endpoint, or is another user's process"
                )
            }
            AcceptError::Itself => write!(
                f,
                "the request is this endpoint's own, and with security on it can't connect to itself: accept it on \
                 another one"
            ),
            AcceptError::NoMemory => write!(f, "{EXHAUSTED}"),
            AcceptError::System(error) => write!(f, "{error}"),
        }
    }
}

const EXHAUSTED: &str = "out of connections or of memory: the endpoint's memory_bytes_max is used up, or the system has none left";

const OTHER_PROCESS: &str =
    "another process opened the endpoint, and this is its fork child: open your own here";

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::TooLong { len_bytes, max_bytes } => {
                write!(
                    f,
                    "message of {len_bytes} bytes on a connection that takes {max_bytes}: send it in parts, or through a \
                     messenger"
                )
            }
            SendError::OtherProcess => f.write_str(OTHER_PROCESS),
            SendError::WouldBlock => write!(
                f,
                "all send buffers are in use, or this connection's share of them: get events, then try again"
            ),
            SendError::Disconnected => write!(f, "the connection is closed"),
            SendError::UnknownConnection => write!(f, "no such connection on this endpoint"),
            SendError::ReceiveOnly => {
                write!(
                    f,
                    "the connection receives a multicast group; to send, connect with the sending attribute"
                )
            }
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegisterError::Length => write!(f, "registered memory has at least one byte"),
            RegisterError::Range { end, len_bytes } => {
                write!(f, "the part ends at byte {end} of memory that has {len_bytes}")
            }
            RegisterError::NotMapped(error) => {
                write!(f, "the memory is not there, or can't be written as peers may: {error}")
            }
            RegisterError::ReadOnly => {
                write!(f, "the bytes of a file can be registered for peers to read, and for nothing else")
            }
            RegisterError::UnknownConnection => {
                write!(f, "the region is for a connection that this endpoint does not have")
            }
            RegisterError::TooMany => write!(f, "as many regions are registered as can be; deregister some"),
            RegisterError::Unknown => write!(f, "the handle names no region of this endpoint"),
            RegisterError::System(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for RmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RmaError::Unreliable => write!(f, "remote memory needs a reliable connection (RO or RU)"),
            RmaError::Lengths => write!(
                f,
                "the local and the remote segments must have the same total length, of one byte at least, and end within 64 bits"
            ),
            RmaError::LocalHandle => {
                write!(
                    f,
                    "a local handle names no region of this endpoint, its segment is not within it, or can't be written"
                )
            }
            RmaError::TooManySegments { max } => {
                write!(f, "the segments make more than {max} contiguous runs: use several operations")
            }
            RmaError::TooLong { len_bytes, max_bytes } => {
                write!(f, "message of {len_bytes} bytes on a connection that takes {max_bytes}")
            }
            RmaError::WouldBlock => write!(f, "too many operations in progress: get events, then try again"),
            RmaError::Disconnected => write!(f, "the connection is closed"),
            RmaError::OtherProcess => f.write_str(OTHER_PROCESS),
            RmaError::UnknownConnection => write!(f, "no such connection on this endpoint"),
        }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OptionError::UnknownConnection => "no such connection on this endpoint",
            OptionError::OutOfRange => "the value is out of range",
            OptionError::Fixed => "this option is fixed when the endpoint is opened",
            OptionError::Unsupported => "this device has no such option",
            OptionError::OtherProcess => OTHER_PROCESS,
            OptionError::NoMemory => "no memory for it",
        })
    }
}

impl std::error::Error for ContextError {}
impl std::error::Error for DeviceForError {}
impl std::error::Error for ResolveError {}
impl std::error::Error for CreateError {}
impl std::error::Error for ConnectError {}
impl std::error::Error for ConnectFailure {}
impl std::error::Error for AcceptError {}
impl std::error::Error for SendError {}
impl std::error::Error for OptionError {}
impl std::error::Error for RegisterError {}
impl std::error::Error for RmaError {}

impl From<SysError> for RegisterError {
    fn from(error: SysError) -> Self {
        RegisterError::System(error)
    }
}

impl From<SendError> for RmaError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::TooLong { len_bytes, max_bytes } => RmaError::TooLong { len_bytes, max_bytes },
            SendError::WouldBlock => RmaError::WouldBlock,
            SendError::Disconnected => RmaError::Disconnected,
            SendError::UnknownConnection => RmaError::UnknownConnection,
            SendError::ReceiveOnly => RmaError::Unreliable,
            SendError::OtherProcess => RmaError::OtherProcess,
        }
    }
}

impl CreateError {
    /// The system does not have so much memory for `what`.
    pub(crate) fn without_memory(what: &'static str, bytes: usize) -> CreateError {
        CreateError::System(without_memory(what, bytes))
    }
}

/// The system does not have so much memory for `what`.
pub(crate) fn without_memory(what: &'static str, bytes: usize) -> SysError {
    SysError::new(what, std::io::ErrorKind::OutOfMemory).on(format_args!("{bytes} bytes"))
}

impl From<SysError> for CreateError {
    fn from(error: SysError) -> Self {
        CreateError::System(error)
    }
}

impl From<SysError> for ConnectError {
    fn from(error: SysError) -> Self {
        ConnectError::System(error)
    }
}

impl From<SysError> for AcceptError {
    fn from(error: SysError) -> Self {
        AcceptError::System(error)
    }
}
