//! Cross-memory attach: reading another process's memory by a system call (`process_vm_readv`).
//!
//! Only ever reading: nobody writes into another process; each side pulls from an address that it was given. So a process
//! answers alone for what changes in its memory.
//!
//! # Whose memory it is
//!
//! The system call takes a process number, and numbers are used again: once the process that we talk to is dead and
//! reaped, another may answer to its number, and what is read is some stranger's. Two things together exclude that:
//!
//! - [`probe()`] finds, at an address that the peer sent over its socket, a random word that it sent too. A number
//!   from another PID namespace, or of another process, doesn't have it.
//! - [`Process`], opened *before* the probe, is a descriptor of one process and never of its successor. As long as
//!   [`Process::is_alive`] answers `true` *after* a read, that read was of the process that passed the probe. **Ask before
//!   believing what was read**: once per batch is enough. (The hang-up of a socket to that process shows its death, too, but only if
//!   no fork of it can hold the socket's other end.)
//!
//! A peer that is alive may unmap or change its memory at any time: the first is `EFAULT`, the second garbage, as with
//! all memory that is not ours.

mod probe;
#[cfg(test)]
mod tests;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use cci_memory::bytes::Bytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::{Result, SysError, Tried};

pub use probe::{Cost, Probe, Refusal, probe};

/// Bytes that one call reads at most, so that no call keeps its caller for longer than some 100 µs.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// Ranges, on either side, that one call takes at most.
pub const CALL_RANGES_MAX: usize = 64;

/// A range of another process's memory: its address in that process and its length in bytes. Any values will do; the kernel checks them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    /// Address in that process.
    pub addr: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Reads up to `len` bytes from `remote_addr` of process `pid` to `local_offset` of `local`; answers how many, at least 1
/// unless `len` is 0: fewer than `len` if that is more than [`CALL_BYTES_MAX`] or if memory ends there, which the next
/// call then reports.
///
/// # Errors
///
/// `InvalidInput`: out of range in `local`. `EFAULT`: not mapped in that process, or in this one. `EPERM`: this process may not read it. `ESRCH`: no such
/// process. `ENOSYS`: not to be had on this system.
pub fn read_from(
    pid: u32,
    remote_addr: u64,
    local: &Bytes,
    local_offset: usize,
    len: usize,
) -> io::Result<usize> {
    let local = local.part(local_offset, len).ok_or(io::ErrorKind::InvalidInput)?;
    read_list(pid, &[RemoteRange { addr: remote_addr, len }], &[local], 0)
}

/// Whether a read failed since there is no such process, or one that is ending: its memory goes before it counts as dead.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ESRCH)
}

/// Reads the remote ranges, one after the other, into the local ranges, one after the other, both without their first
/// `skip_bytes`: what earlier calls have read. Answers how many bytes; 0 only if one of the sides has no more.
///
/// One call reads at most [`CALL_BYTES_MAX`] bytes and [`CALL_RANGES_MAX`] ranges, and may end early anywhere, so
/// that it is called until it answers 0 (or the sum of all is reached). Errors as [`read_from`].
pub fn read_list(pid: u32, remote: &[RemoteRange], local: &[Bytes], skip_bytes: usize) -> io::Result<usize> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    let mut to = [const { MaybeUninit::uninit() }; CALL_RANGES_MAX];
    let mut from = [const { MaybeUninit::uninit() }; CALL_RANGES_MAX];
    let (to, space) =
        gather(local.iter().map(|range| (range.as_ptr().as_ptr().addr(), range.len())), skip_bytes, &mut to);
    let remote = remote.iter().map(|range| (usize::try_from(range.addr).unwrap_or(usize::MAX), range.len));
    let (from, offered) = gather(remote, skip_bytes, &mut from);
    if space == 0 || offered == 0 {
        return Ok(0);
    }
    // SAFETY: the kernel writes to `to` only, which are parts of `Bytes`: mapped for writing as long as those are, and open
    // to system calls by their contract. The lists are as long as is said. Addresses in `from` concern another process,
    // or this one, of which they are only read; the kernel checks them.
    let count =
        unsafe { libc::process_vm_readv(pid, to.as_ptr(), to.len() as _, from.as_ptr(), from.len() as _, 0) };
    match usize::try_from(count) {
        Ok(0) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Ok(count) => Ok(count),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The ranges, given as address and length, behind the first `skip_bytes`, as the kernel takes them and as many as one
/// call may; and the bytes of these.
fn gather(
    ranges: impl Iterator<Item = (usize, usize)>,
    mut skip_bytes: usize,
    into: &mut [MaybeUninit<libc::iovec>; CALL_RANGES_MAX],
) -> (&[libc::iovec], usize) {
    let (mut count, mut bytes) = (0, 0);
    for (addr, len) in ranges {
        if skip_bytes >= len {
            skip_bytes -= len;
            continue;
        }
        let Some(slot) = into.get_mut(count).filter(|_| bytes < CALL_BYTES_MAX) else { break };
        let call_len_bytes = (len - skip_bytes).min(CALL_BYTES_MAX - bytes);
        // An address that wraps is for the kernel to refuse: it is the peer's.
        let iov_base = std::ptr::without_provenance_mut(addr.wrapping_add(skip_bytes));
        slot.write(libc::iovec { iov_base, iov_len: call_len_bytes });
        (count, bytes, skip_bytes) = (count + 1, bytes + call_len_bytes, 0);
    }
    // SAFETY: the first `count` are written.
    let list = unsafe { std::slice::from_raw_parts(into.as_ptr().cast::<libc::iovec>(), count) };
    (list, bytes)
}

/// One process, and not another that gets its number later.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    fd: OwnedFd,
}

impl Process {
    /// The process that has this number now. Whether it is the one that was meant is for [`probe()`], afterwards.
    /// `ESRCH`: there is none, or it is not one that we can see. `ENOSYS`: before Linux 5.3; better not to read then.
    pub fn open(pid: u32) -> Result<Process> {
        const WHAT: &str = "watch a peer's process (pidfd_open)";
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or_else(|| SysError::new(WHAT, io::Error::from_raw_os_error(libc::ESRCH)))?;
        let fd = pidfd_open(number, PidfdFlags::empty()).tried(WHAT).map_err(|error| error.on(pid))?;
        Ok(Process { pid, fd })
    }

    /// The process's number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether it has not ended. One system call, which does not wait. Where that fails, it is `false`: nothing is
    /// believed then.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        loop {
            match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Err(rustix::io::Errno::INTR) => {}
                ended => return ended == Ok(0),
            }
        }
    }
}
