//! Why something of a job failed, by whose fault.

use std::fmt;
use std::io;

/// What operations of a job return.
pub type Result<T, E = JobError> = std::result::Result<T, E>;

/// Why an operation of a job failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobError {
    /// The caller's fault: an argument. Nothing has changed.
    Argument(String),
    /// The launcher's variables are set, and it does not answer, or it answers nonsense.
    Launcher(String),
    /// The launcher, or another rank, refuses: another version of CCI, a wrong key, a rank that is there already.
    Refused(String),
    /// A rank has ended or left, so that the others can't do this together.
    Gone {
        /// Which one.
        rank: u32,
    },
    /// An endpoint of the job can't do something.
    Endpoint {
        /// What was tried.
        what: String,
        /// What `cci` says.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The system's fault.
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        error: io::Error,
    },
}

impl JobError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> JobError {
        move |error| JobError::System { what, error }
    }

    pub(crate) fn endpoint(
        what: impl Into<String>,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> JobError {
        JobError::Endpoint { what: what.into(), error: Box::new(error) }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobError::Argument(why) | JobError::Launcher(why) | JobError::Refused(why) => out.write_str(why),
            JobError::Gone { rank } => {
                write!(out, "rank {rank} has left the job or ended, while the others wait for it")
            }
            JobError::Endpoint { what, error } => write!(out, "{what}: {error}"),
            JobError::System { what, error } => write!(out, "{what}: {error}"),
        }
    }
}

impl std::error::Error for JobError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            JobError::Endpoint { error, .. } => Some(error.as_ref()),
            JobError::System { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<cci_sys::SysError> for JobError {
    fn from(error: cci_sys::SysError) -> JobError {
        JobError::System { what: "a system call of the job", error: io::Error::other(error) }
    }
}
