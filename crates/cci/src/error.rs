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
    /// Somebody else listens there.
    InUse {
        /// As it was given.
        service: String,
    },
    /// The buffers asked for do not fit the memory cap.
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

/// Why a connection attempt could not be started. What becomes of a started one is told by `Event::Connect`.
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
        /// Its length.
        len_bytes: usize,
    },
    /// The device does not offer this kind of connection.
    Unsupported,
    /// Out of connections or of memory under the cap; try again when something was closed.
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
    /// The peer may not connect: another user's process.
    NotPermitted,
    /// One side had no memory left under its cap.
    NoMemory,
    /// The peer closed, died, or the device failed, while the connection was made.
    Disconnected,
}

/// Why a request could not be accepted. The request is lost with it: the peer is told that it was refused.
#[derive(Debug)]
pub enum AcceptError {
    /// The endpoint is of another device than the one the request came to.
    OtherDevice,
    /// The peer has given up meanwhile.
    Gone,
    /// Out of connections or of memory under the cap.
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
    /// All send buffers are in use, or the peer is behind: get events, then try again.
    WouldBlock,
    /// The peer closed or died, or `disconnect` was called.
    Disconnected,
    /// No connection of this endpoint.
    UnknownConnection,
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
                write!(f, "no device found: neither shared memory nor a network interface")
            }
        }
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
            CreateError::NoMemory { needed_bytes, cap_bytes } => write!(
                f,
                "the buffers need {needed_bytes} bytes and memory_bytes_max is {cap_bytes}; lower the counts or raise the cap"
            ),
            CreateError::DeviceDown => write!(f, "the device is down"),
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
            ConnectError::Unsupported => write!(f, "this device does not offer this kind of connection"),
            ConnectError::NoMemory => write!(f, "out of connections or of memory under the endpoint's cap"),
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
            ConnectFailure::TimedOut => write!(f, "timed out"),
            ConnectFailure::Version { theirs } => write!(f, "the peer speaks protocol version {theirs}"),
            ConnectFailure::NotPermitted => write!(f, "not permitted: the peer belongs to another user"),
            ConnectFailure::NoMemory => write!(f, "out of memory under one side's cap"),
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
            AcceptError::NoMemory => write!(f, "out of connections or of memory under the endpoint's cap"),
            AcceptError::System(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::TooLong { len_bytes, max_bytes } => {
                write!(f, "message of {len_bytes} bytes on a connection that takes {max_bytes}")
            }
            SendError::WouldBlock => write!(f, "no send buffer free now: get events, then try again"),
            SendError::Disconnected => write!(f, "the connection is closed"),
            SendError::UnknownConnection => write!(f, "no such connection on this endpoint"),
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
            OptionError::NoMemory => "no memory for it",
        })
    }
}

impl std::error::Error for ContextError {}
impl std::error::Error for CreateError {}
impl std::error::Error for ConnectError {}
impl std::error::Error for ConnectFailure {}
impl std::error::Error for AcceptError {}
impl std::error::Error for SendError {}
impl std::error::Error for OptionError {}

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
