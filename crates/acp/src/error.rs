//! Errors of the global address space. Each shows who caused it.

use crate::GlobalAddress;
use cci::RegisterError;
use cci_job::JobError;
use std::fmt;

/// The result of a call.
pub type Result<T, E = AcpError> = std::result::Result<T, E>;

/// Why a call failed. Unless a variant says otherwise, nothing was done.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcpError {
    /// An argument can never be valid; this says why.
    Argument(&'static str),
    /// A limit is reached; this says which.
    Full(&'static str),
    /// There is no such rank.
    Rank {
        /// The number that was given.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// No memory is registered at this address, or not as many bytes, or no longer.
    NotRegistered(GlobalAddress),
    /// A message was longer than the memory for it. The rest is lost.
    Truncated {
        /// Length of the message.
        len_bytes: u64,
        /// Length of the memory, which has the message's beginning.
        space_bytes: usize,
    },
    /// Memory of a container or of a heap has content that neither writes; this says which. A program has written there, or has
    /// used a handle of something else.
    Corrupt(&'static str),
    /// A rank is gone.
    Gone {
        /// The rank.
        rank: u32,
        /// The reason.
        why: String,
    },
    /// An operation has failed: the first one up to the handle that was waited for. Operations that were ordered after it were
    /// not started.
    Failed {
        /// The number of the operation's handle.
        operation: u64,
        /// The reason.
        why: String,
    },
    /// The memory could not be registered, or a registration could not be ended.
    Register(RegisterError),
    /// An error of the job or its endpoint.
    Job(JobError),
}

impl fmt::Display for AcpError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcpError::Argument(what) | AcpError::Full(what) | AcpError::Corrupt(what) => out.write_str(what),
            AcpError::Rank { rank, size } => write!(out, "there is no rank {rank} in a job of {size}"),
            AcpError::NotRegistered(address) => {
                write!(out, "rank {} has not registered the memory at {address}", address.rank())
            }
            AcpError::Truncated { len_bytes, space_bytes } => {
                write!(
                    out,
                    "a message of {len_bytes} bytes came to memory of {space_bytes}: the rest is lost"
                )
            }
            AcpError::Gone { rank, why } => write!(out, "rank {rank} is gone: {why}"),
            AcpError::Failed { operation, why } => write!(out, "operation {operation} has failed: {why}"),
            AcpError::Register(error) => error.fmt(out),
            AcpError::Job(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for AcpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AcpError::Register(error) => Some(error),
            AcpError::Job(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RegisterError> for AcpError {
    fn from(error: RegisterError) -> AcpError {
        AcpError::Register(error)
    }
}

impl From<JobError> for AcpError {
    fn from(error: JobError) -> AcpError {
        AcpError::Job(error)
    }
}
