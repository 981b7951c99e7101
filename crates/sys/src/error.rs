//! The one error type of set-up calls: what was tried, on what, and the errno.

use rustix::process::{Resource, getrlimit};
use std::{error, fmt, io};

/// `Result` of a set-up call.
pub type Result<T> = std::result::Result<T, SysError>;

/// A system call that failed (or an answer of the system that cannot be used).
#[derive(Debug)]
pub struct SysError {
    /// What was tried, e.g. `"create shared memory (memfd_create)"`.
    pub what: &'static str,
    /// On what, when that is not obvious: a name, an address, a length.
    pub detail: Option<String>,
    /// The errno, or a described reason.
    pub source: io::Error,
}

impl SysError {
    /// `what` failed because of `source`.
    pub fn new(what: &'static str, source: impl Into<io::Error>) -> SysError {
        SysError { what, detail: None, source: source.into() }
    }

    /// `what` failed because of the errno of the call just made.
    pub(crate) fn last(what: &'static str) -> SysError {
        SysError::new(what, io::Error::last_os_error())
    }

    /// `what` gave an answer that must not be used: somebody (usually a peer) sent something else than it should.
    pub(crate) fn refused(what: &'static str, reason: &'static str) -> SysError {
        SysError::new(what, io::Error::new(io::ErrorKind::InvalidData, reason))
    }

    /// Adds on what it was tried.
    #[must_use]
    pub fn on(mut self, detail: impl fmt::Display) -> SysError {
        self.detail = Some(detail.to_string());
        self
    }

    /// The errno, when the system gave one.
    pub fn errno(&self) -> Option<i32> {
        self.source.raw_os_error()
    }

    /// Whether something ran out: descriptors, memory, or what a limit of the process's grants. The same call may succeed
    /// once there is more.
    pub fn is_exhaustion(&self) -> bool {
        self.remedy().is_some()
    }

    /// Where something ran out, what to do about it.
    fn remedy(&self) -> Option<String> {
        let now = |limit: Option<u64>| limit.map_or("none now".to_owned(), |limit| format!("{limit} now"));
        Some(match self.errno() {
            Some(libc::EMFILE) => {
                let limit = now(getrlimit(Resource::Nofile).current);
                format!("close descriptors, or raise this process's limit of them (ulimit -n, {limit})")
            }
            Some(libc::ENFILE) => {
                "the whole system is out of descriptors: raise fs.file-max (sysctl)".to_owned()
            }
            Some(libc::EFBIG) => {
                let limit = now(getrlimit(Resource::Fsize).current);
                format!(
                    "raise the limit of file sizes, which shared memory counts as (ulimit -f, {limit} in bytes)"
                )
            }
            Some(libc::ENOMEM) => {
                "free memory, or raise what limits it (ulimit -v, a cgroup's memory.max)".to_owned()
            }
            Some(libc::ENOSPC) => {
                "memory for files (/dev/shm), a cgroup's memory.max or fs.epoll.max_user_watches is used up"
                    .to_owned()
            }
            None if self.kind() == io::ErrorKind::OutOfMemory => {
                "free memory, or raise what limits it (ulimit -v, a cgroup's memory.max)".to_owned()
            }
            _ => return None,
        })
    }

    /// The kind of error, as [`io::Error`] sorts them.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

impl fmt::Display for SysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.detail {
            Some(detail) => write!(f, "{} ({detail}): {}", self.what, self.source)?,
            None => write!(f, "{}: {}", self.what, self.source)?,
        }
        match self.remedy() {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl error::Error for SysError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<SysError> for io::Error {
    fn from(error: SysError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// Shortens `call().map_err(|e| SysError::new(what, e))`.
pub(crate) trait Tried<T> {
    /// Names what was tried, for the case that it failed.
    fn tried(self, what: &'static str) -> Result<T>;
}

impl<T, E: Into<io::Error>> Tried<T> for std::result::Result<T, E> {
    fn tried(self, what: &'static str) -> Result<T> {
        self.map_err(|error| SysError::new(what, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_was_tried_on_what_and_why() {
        let error = SysError::new("bind", io::Error::from_raw_os_error(libc::EADDRINUSE)).on("127.0.0.1:1");
        assert_eq!(error.to_string(), "bind (127.0.0.1:1): Address already in use (os error 98)");
        assert_eq!(error.errno(), Some(libc::EADDRINUSE));
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::AddrInUse);
    }
}
