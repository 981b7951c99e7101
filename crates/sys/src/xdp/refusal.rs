//! Why AF_XDP cannot be had on an interface.

use std::borrow::Cow;
use std::{error, fmt};

use crate::error::SysError;

/// Why there is no AF_XDP on this host, or none for this endpoint. Packet sockets ([`crate::packet`]) may still do.
#[derive(Debug)]
pub enum Refusal {
    /// The process lacks rights; the error says what was tried.
    Rights {
        /// The capabilities that it takes and that the process has not, by name. Empty: it has them all, but in a user
        /// namespace only, or a security module refuses.
        missing: Vec<&'static str>,
        /// What was refused.
        error: SysError,
    },
    /// Every queue of the interface is taken: there is one AF_XDP socket a queue.
    NoQueue {
        /// How many queues there are.
        queues: u32,
    },
    /// Another XDP program is on the interface.
    Foreign {
        /// The program's name, where the kernel reports it.
        program: String,
    },
    /// The memory for frames may not be locked (`RLIMIT_MEMLOCK`).
    Locked {
        /// How much was wanted.
        bytes: usize,
    },
    /// The kernel, or the interface's driver in both modes, does not offer it.
    Unsupported(SysError),
    /// This build was made without the feature `xdp`.
    NotBuilt,
    /// Others kept attaching and detaching their programs.
    Busy,
    /// Something else failed.
    System(SysError),
}

impl Refusal {
    /// What somebody could do about it.
    pub fn remedy(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Refusal::Rights { missing, .. } if missing.is_empty() => {
                "run outside of a user namespace (bpf() takes rights in the first one)"
            }
            Refusal::Rights { missing, .. } => {
                let names = missing.join(",").to_lowercase();
                return Cow::Owned(format!("run as root, or: setcap {names}+ep PROGRAM"));
            }
            Refusal::NoQueue { .. } => {
                "give the interface more queues (ethtool -L INTERFACE combined N), or share less"
            }
            Refusal::Foreign { .. } => "detach it (ip link set dev INTERFACE xdp off)",
            Refusal::Locked { .. } => "raise the limit (ulimit -l), or grant CAP_IPC_LOCK",
            Refusal::Unsupported(_) => {
                "use Linux 5.18 or later with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL"
            }
            Refusal::NotBuilt => {
                "build CCI with the feature `xdp`, which is on unless default features are off"
            }
            Refusal::Busy => "try again",
            Refusal::System(_) => "see the error",
        })
    }

    /// Sorts an error of the calls that set AF_XDP up, each of which takes `needs`.
    pub(super) fn from_error(error: SysError, needs: &[&'static str]) -> Refusal {
        match error.errno() {
            Some(libc::EPERM | libc::EACCES) => {
                Refusal::Rights { missing: super::rights::missing(needs), error }
            }
            Some(libc::ENOSYS | libc::EAFNOSUPPORT | libc::EOPNOTSUPP | libc::ENOPROTOOPT) => {
                Refusal::Unsupported(error)
            }
            _ => Refusal::System(error),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Rights { missing, error } if missing.is_empty() => {
                write!(f, "{error}, although the process has the capabilities in its own user namespace")
            }
            Refusal::Rights { missing, error } => write!(f, "missing {}: {error}", missing.join(", ")),
            Refusal::NoQueue { queues: 1 } => f.write_str("the interface's only queue is taken"),
            Refusal::NoQueue { queues } => write!(f, "all {queues} queues of the interface are taken"),
            Refusal::Foreign { program } if program.is_empty() => {
                f.write_str("another XDP program is on the interface")
            }
            Refusal::Foreign { program } => write!(f, "another XDP program, {program}, is on the interface"),
            Refusal::Locked { bytes } => {
                write!(f, "{bytes} bytes of memory cannot be locked (RLIMIT_MEMLOCK)")
            }
            Refusal::Unsupported(error) => write!(f, "not offered here: {error}"),
            Refusal::NotBuilt => f.write_str("this build of CCI was made without AF_XDP"),
            Refusal::Busy => f.write_str("other processes keep changing the interface's XDP program"),
            Refusal::System(error) => error.fmt(f),
        }
    }
}

impl error::Error for Refusal {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Refusal::Rights { error, .. } | Refusal::Unsupported(error) | Refusal::System(error) => {
                Some(error)
            }
            Refusal::NoQueue { .. } | Refusal::Foreign { .. } | Refusal::Locked { .. } => None,
            Refusal::NotBuilt | Refusal::Busy => None,
        }
    }
}
