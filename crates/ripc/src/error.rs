//! Errors. Each says what failed, where, what to do, and who caused it.

use crate::name::ServiceName;
use std::error::Error;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// A directory has a record that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordError {
    /// What is wrong with the record.
    pub reason: String,
    /// The record's text, cut after 120 characters.
    pub text: String,
}

/// A directory can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryError {
    /// The directory, as the program named it.
    pub directory: String,
    /// Why it can't be used, and what to do.
    pub reason: String,
}

/// A service can't have its name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// Somebody else has it.
    Taken {
        /// The name.
        service: ServiceName,
        /// Who has it, as a text for people.
        by: String,
        /// Where it was claimed.
        directory: String,
    },
    /// This process's identity may not have it.
    NotPermitted {
        /// The name.
        service: ServiceName,
        /// The rule that forbids it.
        reason: String,
    },
    /// The directory could not enter the name.
    Directory {
        /// The name.
        service: ServiceName,
        /// Where it was claimed.
        directory: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// This node has as many services as it may have.
    TooMany,
}

/// A node can't be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// No device can be used.
    Context(cci::ContextError),
    /// The endpoint can't be opened.
    Endpoint(cci::CreateError),
    /// The directory can't be used.
    Directory(DirectoryError),
    /// The system has no random numbers.
    System(cci::SysError),
}

/// A message, a call or an answer was not taken. Nothing was sent, and no event will come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The service or partner does not exist, or no longer exists.
    Unknown,
    /// The short items and what describes the rest do not fit into one message. They are never divided (RIPC-006, RIPC-014).
    TooLong {
        /// The bytes of all of them.
        len_bytes: usize,
        /// The most bytes of one message to this partner.
        max_bytes: usize,
    },
    /// The message has more items than it may have.
    TooManyItems {
        /// The number of items.
        items: usize,
        /// The largest number of items.
        max: usize,
    },
    /// A long item or a return buffer is empty or reaches beyond its memory.
    Range,
    /// The partner takes less than it is sent, or is still being looked for. Get events, and try again.
    WouldBlock,
    /// The peer that the request came from is gone.
    Gone,
    /// The system refused.
    System(String),
}

/// Why a partner could not be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReachError {
    /// The directory has no service of this name.
    Unknown {
        /// The service that was looked for.
        service: ServiceName,
        /// The directory that was asked.
        directory: String,
        /// How long the search took.
        waited: Duration,
    },
    /// The directory did not answer.
    Directory {
        /// The service that was looked for.
        service: ServiceName,
        /// The directory that was asked.
        directory: String,
        /// What the directory reports.
        reason: String,
    },
    /// No connection could be made to the place that the directory gives.
    NotThere {
        /// The service that was looked for.
        service: ServiceName,
        /// The last place that was tried.
        uri: String,
        /// How the last attempt ended.
        reason: String,
        /// How long the search took.
        waited: Duration,
    },
    /// The process at the place has an identity that may not have this name.
    WrongIdentity {
        /// The service that was looked for.
        service: ServiceName,
        /// The identity that was found.
        identity: String,
    },
}

/// How a call ended without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// No answer came in time. If `reached`, the service had the request, and may have carried it out.
    TimedOut {
        /// Whether the service had the request.
        reached: bool,
        /// What prevented it, if that is known.
        reason: Option<ReachError>,
    },
    /// The service answered that it could not carry out the request.
    Refused(Vec<u8>),
    /// The service's process ended after it had the request, and the call may not be repeated. The request may have been carried
    /// out.
    Lost,
    /// The answer came, but its long items could not be fetched.
    Fetch(String),
    /// The node, or the service that made the call, was closed.
    Closed,
}

impl DirectoryError {
    pub(crate) fn bad_text(text: &str, reason: &str) -> DirectoryError {
        DirectoryError { directory: text.chars().take(200).collect(), reason: reason.to_owned() }
    }

    pub(crate) fn unusable(folder: &Path, reason: &str) -> DirectoryError {
        DirectoryError { directory: folder.display().to_string(), reason: reason.to_owned() }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no record of a service: {}", self.text, self.reason)
    }
}

impl fmt::Display for DirectoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the directory of services {:?} can't be used: {}", self.directory, self.reason)
    }
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::Taken { service, by, directory } => {
                write!(
                    f,
                    "the name {service} is taken in {directory}, by {by}: end that one, or choose another name"
                )
            }
            ClaimError::NotPermitted { service, reason } => {
                write!(f, "the name {service} is not permitted: {reason}")
            }
            ClaimError::Directory { service, directory, reason } => {
                write!(f, "the name {service} could not be entered in {directory}: {reason}")
            }
            ClaimError::TooMany => f.write_str("this node has 1,024 services, and may not have more"),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Context(error) => error.fmt(f),
            OpenError::Endpoint(error) => error.fmt(f),
            OpenError::Directory(error) => error.fmt(f),
            OpenError::System(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Unknown => f.write_str("no such service here, or no such partner any more"),
            SendError::TooLong { len_bytes, max_bytes } => {
                write!(
                    f,
                    "{len_bytes} bytes do not fit into one message of {max_bytes}: send the data as a long item"
                )
            }
            SendError::TooManyItems { items, max } => {
                write!(f, "{items} items are too many for one message, which has {max} at most")
            }
            SendError::Range => f.write_str("an item is empty, or reaches beyond its memory"),
            SendError::WouldBlock => {
                f.write_str("the partner takes less than it is sent: get events, and try again")
            }
            SendError::Gone => f.write_str("the partner that asked is gone"),
            SendError::System(reason) => f.write_str(reason),
        }
    }
}

impl ReachError {
    /// Sets how long the service was looked for.
    pub(crate) fn after(mut self, looked: Duration) -> ReachError {
        if let ReachError::Unknown { waited, .. } | ReachError::NotThere { waited, .. } = &mut self {
            *waited = looked;
        }
        self
    }
}

impl fmt::Display for ReachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReachError::Unknown { service, directory, waited } => {
                write!(f, "no service {service} in {directory}, after {} ms", waited.as_millis())
            }
            ReachError::Directory { service, directory, reason } => {
                write!(f, "{directory} could not be asked for the service {service}: {reason}")
            }
            ReachError::NotThere { service, uri, reason, waited } => {
                write!(f, "the service {service} is not at {uri}, after {} ms: {reason}", waited.as_millis())
            }
            ReachError::WrongIdentity { service, identity } => {
                write!(f, "{identity} is where the service {service} should be, and may not have that name")
            }
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::TimedOut { reached: true, .. } => {
                f.write_str("no answer in time; the service had the request, and may have carried it out")
            }
            CallError::TimedOut { reached: false, reason: Some(reason) } => {
                write!(f, "not carried out: {reason}")
            }
            CallError::TimedOut { reached: false, reason: None } => {
                f.write_str("not carried out: the service did not take the request in time")
            }
            CallError::Refused(answer) => write!(f, "refused: {}", String::from_utf8_lossy(answer)),
            CallError::Lost => {
                f.write_str("the service ended meanwhile; the request may have been carried out")
            }
            CallError::Fetch(reason) => write!(f, "the answer's data could not be fetched: {reason}"),
            CallError::Closed => {
                f.write_str("the call was given up before an answer came, since this node was closed")
            }
        }
    }
}

impl Error for RecordError {}
impl Error for DirectoryError {}
impl Error for ClaimError {}
impl Error for SendError {}
impl Error for ReachError {}
impl Error for CallError {}
impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            OpenError::Context(error) => Some(error),
            OpenError::Endpoint(error) => Some(error),
            OpenError::Directory(error) => Some(error),
            OpenError::System(error) => Some(error),
        }
    }
}
