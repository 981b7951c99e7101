//! Errors of active messages. Each shows who caused it.

use crate::description::PackError;
use cci::RegisterError;
use cci_job::JobError;
use std::fmt;

/// The result of a call.
pub type Result<T, E = AmError> = std::result::Result<T, E>;

/// Why a call failed. Unless a variant says otherwise, nothing was done.
#[derive(Debug)]
#[non_exhaustive]
pub enum AmError {
    /// An argument can never be valid; this says why.
    Argument(&'static str),
    /// The call is not allowed here: inside a handler, for a token whose handler has returned, or for a context that was freed.
    State(&'static str),
    /// There is no space now. Make progress, and try again.
    WouldBlock,
    /// A limit is reached; this says which.
    Full(&'static str),
    /// The data is longer than any active message may have.
    TooLong {
        /// Length of the data, bytes.
        len_bytes: usize,
    },
    /// The receiver of a large message has provided space for more bytes, or for fewer.
    Differs {
        /// Length of the message, bytes.
        len_bytes: u64,
    },
    /// The receiver of a large message did not want it.
    Aborted,
    /// The data do not fit their description.
    Described(PackError),
    /// The handler's number is taken in this context.
    Exists,
    /// There is no such rank or handler's number; this says which.
    Range(&'static str),
    /// The memory at these addresses of a rank was not registered there, or no longer is. None of it was accessed.
    NotRegistered {
        /// The rank.
        rank: u32,
        /// The first address.
        address: u64,
    },
    /// Memory of this process could not be registered, or a registration could not be ended.
    Register(RegisterError),
    /// A rank is gone.
    Gone {
        /// The rank.
        rank: u32,
        /// The reason.
        why: String,
    },
    /// An error of the job or its endpoint.
    Job(JobError),
}

impl AmError {
    /// A reduction combines bits, and its elements are floats.
    pub(crate) const NO_BITS: AmError = AmError::Argument(
        "and, or and exclusive or combine the bits of integers: choose another reduction for floats",
    );

    /// Members of a team call different collectives.
    pub(crate) const DIFFER: AmError = AmError::Argument(
        "the members of a team differ in how much data a collective has, or in which one they call",
    );
}

impl fmt::Display for AmError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AmError::Argument(what) | AmError::State(what) | AmError::Full(what) | AmError::Range(what) => {
                out.write_str(what)
            }
            AmError::WouldBlock => out.write_str("no credit or no space now: poll, so that messages are handled and sends complete, and try again"),
            AmError::TooLong { len_bytes } => {
                let max = crate::limits::DATA_BYTES_MAX;
                write!(out, "{len_bytes} bytes of data are too long for an active message, which has {max} at most: send a large message")
            }
            AmError::Differs { len_bytes } => {
                write!(out, "the receiver of a message of {len_bytes} bytes had space for more, or for less")
            }
            AmError::Aborted => out.write_str("the receiver has ended the message"),
            AmError::Described(error) => error.fmt(out),
            AmError::Exists => out.write_str("this context has a handler of that number"),
            AmError::NotRegistered { rank, address } => {
                write!(out, "rank {rank} has not registered the memory at {address:#x}")
            }
            AmError::Register(error) => error.fmt(out),
            AmError::Gone { rank, why } => write!(out, "rank {rank} is gone: {why}"),
            AmError::Job(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for AmError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AmError::Job(error) => Some(error),
            AmError::Register(error) => Some(error),
            AmError::Described(error) => Some(error),
            _ => None,
        }
    }
}

impl From<JobError> for AmError {
    fn from(error: JobError) -> AmError {
        AmError::Job(error)
    }
}

impl From<RegisterError> for AmError {
    fn from(error: RegisterError) -> AmError {
        AmError::Register(error)
    }
}

impl From<PackError> for AmError {
    fn from(error: PackError) -> AmError {
        AmError::Described(error)
    }
}
