//! The plainest code for the same work, for benchmarks to compare with. The library uses none of it.

mod sleep;

pub use sleep::{SharedWord, eventfd};

use crate::error::Result;
use crate::memory::RmaSegment;
use cci_ring::memory::Backing;
use std::io;

/// Two mappings of the kind that remote memory access copies between, which nobody else knows.
#[derive(Debug)]
pub struct Mappings {
    from: RmaSegment,
    to: RmaSegment,
}

impl Mappings {
    /// Of at least `len_bytes` each, above 0.
    pub fn create(len_bytes: usize) -> Result<Mappings> {
        Ok(Mappings { from: RmaSegment::create(len_bytes)?, to: RmaSegment::create(len_bytes)? })
    }

    /// What is copied from.
    pub fn source(&mut self) -> &mut [u8] {
        let bytes = self.from.bytes();
        // SAFETY: mapped as long as `self`, and only we know it: `&mut self` makes this the one reference.
        unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr().as_ptr(), bytes.len()) }
    }

    /// What is copied to.
    pub fn target(&self) -> &[u8] {
        let bytes = self.to.bytes();
        // SAFETY: as above; `copy`, which writes, needs `&mut self`.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().as_ptr(), bytes.len()) }
    }

    /// `len` bytes at `offset` of one to the same place of the other, by the C library's `memcpy`. False: they are not
    /// all there.
    #[inline]
    #[must_use = "`false` means that nothing was copied"]
    pub fn copy(&mut self, offset: usize, len: usize) -> bool {
        let (from, to) = (self.from.bytes(), self.to.bytes());
        let (Some(from), Some(to)) = (from.part(offset, len), to.part(offset, len)) else { return false };
        // SAFETY: both are good for `len` bytes by `part`; they are different mappings, and only we know them.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().as_ptr(), to.as_ptr().as_ptr(), len) };
        true
    }
}

/// Another process, whose memory this one may be allowed to reach.
#[derive(Debug)]
pub struct Process(libc::pid_t);

impl Process {
    /// The one of this number.
    ///
    /// # Errors
    /// `InvalidInput` for this process and its threads: safe code may not change what lies there.
    pub fn of(pid: u32) -> io::Result<Process> {
        let own_thread = std::path::Path::new("/proc/self/task").join(pid.to_string());
        match libc::pid_t::try_from(pid) {
            Ok(number) if number > 0 && pid != std::process::id() && !own_thread.exists() => {
                Ok(Process(number))
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// `process_vm_writev` of one piece: writes all of `data` at `address`, where it replaces whatever is there.
    ///
    /// # Errors
    /// The errno; `WriteZero` where only a part could be written.
    pub fn write(&self, address: u64, data: &[u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
        let remote = remote(address, data.len())?;
        // SAFETY: the kernel reads `data`, which is ours, and checks the addresses of the process, which is another.
        let done = unsafe { libc::process_vm_writev(self.0, &local, 1, &remote, 1, 0) };
        all(done, data.len())
    }

    /// `process_vm_readv` of one piece: fills `out` from `address` on.
    ///
    /// # Errors
    /// As [`Process::write`].
    pub fn read(&self, address: u64, out: &mut [u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
        let remote = remote(address, out.len())?;
        // SAFETY: the kernel writes to `out`, which is ours alone, and checks the addresses of the process.
        let done = unsafe { libc::process_vm_readv(self.0, &local, 1, &remote, 1, 0) };
        all(done, out.len())
    }
}

fn remote(address: u64, len: usize) -> io::Result<libc::iovec> {
    let address = usize::try_from(address).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: len })
}

fn all(done: libc::ssize_t, len: usize) -> io::Result<()> {
    match usize::try_from(done) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(done) if done == len => Ok(()),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_copy_within_their_bounds() {
        let mut mappings = Mappings::create(10_000).unwrap();
        let len = mappings.target().len();
        assert!(len >= 10_000);
        for (index, byte) in mappings.source().iter_mut().enumerate() {
            *byte = index as u8;
        }
        assert!(mappings.copy(3, 1000) && !mappings.copy(len - 1, 2) && !mappings.copy(usize::MAX, 2));
        assert!(mappings.target()[..3] == [0; 3] && mappings.target()[1003..].iter().all(|&byte| byte == 0));
        assert!((3..1003).all(|at| mappings.target()[at] == at as u8));
    }

    #[test]
    fn own_memory_is_not_reached_this_way() {
        let here = std::process::id();
        for pid in [here, 0, u32::MAX] {
            assert_eq!(Process::of(pid).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{pid}");
        }
        // SAFETY: asks for the number of this thread.
        assert!(Process::of(unsafe { libc::gettid() } as u32).is_err());
    }

    #[test]
    fn a_childs_memory_is_read_and_written() {
        let word = Box::new(7u64);
        let address = std::ptr::from_ref(&*word) as u64;
        // SAFETY: the child only sleeps and leaves by _exit.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: both are async-signal-safe.
            unsafe {
                libc::usleep(5_000_000);
                libc::_exit(0)
            };
        }
        let (process, mut found) = (Process::of(child as u32).unwrap(), [0; 8]);
        let read = process.read(address, &mut found);
        let written = process.write(address, &9u64.to_ne_bytes());
        let mut again = [0; 8];
        let reread = process.read(address, &mut again);
        let beyond = process.write(0, &[1]);
        // SAFETY: the child made above, which is ended and waited for.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        if read.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EPERM)) {
            println!("skipped: this system forbids it");
            return;
        }
        read.and(written).and(reread).unwrap();
        assert_eq!((u64::from_ne_bytes(found), u64::from_ne_bytes(again), *word), (7, 9, 7));
        assert!(beyond.is_err());
    }
}
