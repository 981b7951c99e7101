//! Whether reading a peer's memory works, that it is the right peer's, and what it costs.

use std::fmt;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use cci_memory::bytes::Bytes;

use super::{RemoteRange, read_from, read_list};

/// The smallest page there is: what is readable at one byte of it is readable at all of it.
const PAGE_BYTES: usize = 4096;
/// How often the page is read in one call, to separate the cost of bytes from that of the call.
const PAGES: usize = 16;
/// Measurements of each kind; the best counts, as whatever disturbs makes it longer.
const ROUNDS: usize = 12;

/// What [`probe`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// The process's memory can be read, and it is the right process.
    Works(Cost),
    /// It can't, or must not.
    Refused(Refusal),
}

/// What a read of `n` KiB takes: `ns_per_call + n * ns_per_kib`, with the bytes in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds of a read of a word.
    pub ns_per_call: u32,
    /// Nanoseconds for each KiB of a longer one; pages of 4 KiB have to be looked up one by one.
    pub ns_per_kib: u32,
}

/// Why a process's memory is not to be read. [`Display`](fmt::Display) puts it in words, for `explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// `EPERM`: another user's process, one that may not be traced (Yama, no `CAP_SYS_PTRACE`), or a seccomp filter.
    NotPermitted,
    /// `ENOSYS`: a kernel, or a sandbox, without the system call.
    NotSupported,
    /// `ESRCH`: no process that is visible has this number: it is dead, or in another PID namespace.
    NoSuchProcess,
    /// Another value is there than the peer sent: for this process, the number is another process's (another PID namespace).
    WrongValue,
    /// `EFAULT`: nothing is mapped at the address that the peer sent.
    BadAddress,
    /// Another errno.
    Other(i32),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NotPermitted => "not permitted (another user, Yama's ptrace_scope, or a sandbox)",
            Refusal::NotSupported => "the system has no process_vm_readv",
            Refusal::NoSuchProcess => "no such process here (dead, or in another PID namespace)",
            Refusal::WrongValue => "the process with that number is another one (PID namespace?)",
            Refusal::BadAddress => "nothing is mapped where the peer said",
            Refusal::Other(errno) => return write!(f, "{}", std::io::Error::from_raw_os_error(*errno)),
        })
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Refusal::NotPermitted,
            Some(libc::ENOSYS) => Refusal::NotSupported,
            Some(libc::ESRCH) => Refusal::NoSuchProcess,
            Some(libc::EFAULT) => Refusal::BadAddress,
            other => Refusal::Other(other.unwrap_or(libc::EIO)),
        }
    }
}

/// Reads the word at `remote_addr` of process `pid`, which must be `expected` (a random number that the peer has sent
/// us, with the address, over its socket), and measures what reads cost. Takes some 100 µs. The page that
/// the word lies in is read, but for the word not looked at.
pub fn probe(pid: u32, remote_addr: u64, expected: u64) -> Probe {
    match measure(pid, remote_addr, expected) {
        Ok(cost) => Probe::Works(cost),
        Err(refusal) => Probe::Refused(refusal),
    }
}

fn measure(pid: u32, remote_addr: u64, expected: u64) -> Result<Cost, Refusal> {
    let mut space =
        cci_memory::fallible::zeroed::<u8>(PAGES * PAGE_BYTES).ok_or(Refusal::Other(libc::ENOMEM))?;
    // SAFETY: the vector outlives the value, and nothing else reaches it meanwhile.
    let local = unsafe { Bytes::new(NonNull::from(&mut *space).cast(), PAGES * PAGE_BYTES) };
    let word = || -> Result<bool, Refusal> {
        let mut word = [0; 8];
        let whole =
            read_from(pid, remote_addr, &local, 0, word.len())? == word.len() && local.read(0, &mut word);
        Ok(whole && u64::from_ne_bytes(word) == expected)
    };
    if !word()? {
        return Err(Refusal::WrongValue);
    }
    let page = RemoteRange { addr: remote_addr - remote_addr % PAGE_BYTES as u64, len: PAGE_BYTES };
    let pages = [page; PAGES];
    let (mut call, mut long) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let right = word()?;
        call = call.min(start.elapsed());
        if !right {
            return Err(Refusal::WrongValue);
        }
        let start = Instant::now();
        if read_list(pid, &pages, &[local], 0)? != PAGES * PAGE_BYTES {
            return Err(Refusal::BadAddress);
        }
        long = long.min(start.elapsed());
    }
    let ns = |time: Duration| u32::try_from(time.as_nanos()).unwrap_or(u32::MAX).max(1);
    let ns_per_kib = ns(long.saturating_sub(call)) / (PAGES * PAGE_BYTES / 1024) as u32;
    Ok(Cost { ns_per_call: ns(call), ns_per_kib: ns_per_kib.max(1) })
}
