//! A counter in the kernel that wakes whoever waits on it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Result, SysError, Tried};

/// An eventfd, non-blocking. Readable from [`signal`](EventFd::signal) until [`drain`](EventFd::drain).
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
    /// Came from a peer, which holds the same open file and can change its flags at any time.
    foreign: bool,
}

impl EventFd {
    /// A new one, not signalled.
    pub fn new() -> Result<EventFd> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = rustix::event::eventfd(0, flags).tried("make a wake-up counter (eventfd)")?;
        Ok(EventFd { fd, foreign: false })
    }

    /// One that a peer sent; `InvalidData`, and it is closed, when it is not an eventfd.
    ///
    /// It is set to non-blocking here, and looked at before each use; a hostile peer can still change that in the
    /// nanoseconds between look and use. Take descriptors only from peers whose credentials were checked.
    pub fn from_peer(fd: OwnedFd) -> Result<EventFd> {
        const WHAT: &str = "open a peer's wake-up counter";
        let target = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).tried(WHAT)?;
        // A file of that name has a '/' in front; only the kernel's own anonymous inodes have none.
        if target.as_os_str() != "anon_inode:[eventfd]" {
            return Err(SysError::refused(WHAT, "not an eventfd"));
        }
        let flags = rustix::fs::fcntl_getfl(&fd).tried(WHAT)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK).tried(WHAT)?;
        Ok(EventFd { fd, foreign: true })
    }

    /// Wakes whoever waits on it. One that is signalled already stays so.
    ///
    /// `InvalidData`: the peer that sent it made it blocking; do not use it, or the peer, any more.
    pub fn signal(&self) -> io::Result<()> {
        self.refuse_if_blocking()?;
        loop {
            match rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {
                // Again: the counter is full, so it is signalled.
                Ok(_) | Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the signal back; says whether there was one. Errors as [`signal`](EventFd::signal).
    pub fn drain(&self) -> io::Result<bool> {
        self.refuse_if_blocking()?;
        let mut count = [0; 8];
        loop {
            match rustix::io::read(&self.fd, &mut count) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn refuse_if_blocking(&self) -> io::Result<()> {
        if self.foreign && !rustix::fs::fcntl_getfl(&self.fd)?.contains(OFlags::NONBLOCK) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer made its eventfd blocking"));
        }
        Ok(())
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_add_up_to_one_wake_up() {
        let event = EventFd::new().unwrap();
        assert!(!event.drain().unwrap());
        event.signal().unwrap();
        event.signal().unwrap();
        assert!(event.drain().unwrap());
        assert!(!event.drain().unwrap());
    }

    #[test]
    fn a_full_counter_does_not_block() {
        let event = EventFd::new().unwrap();
        rustix::io::write(&event.fd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        event.signal().unwrap();
        assert!(event.drain().unwrap());
    }

    #[test]
    fn a_peers_is_checked_and_made_non_blocking() {
        let blocking = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let theirs = blocking.try_clone().unwrap();
        let event = EventFd::from_peer(blocking).unwrap();
        assert!(!event.drain().unwrap(), "must not block");
        event.signal().unwrap();
        assert!(event.drain().unwrap());
        rustix::fs::fcntl_setfl(&theirs, OFlags::empty()).unwrap();
        assert_eq!(event.signal().unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(event.drain().unwrap_err().kind(), io::ErrorKind::InvalidData);

        let (read_end, _write_end) = rustix::pipe::pipe().unwrap();
        assert_eq!(EventFd::from_peer(read_end).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
