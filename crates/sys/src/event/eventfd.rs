//! A counter in the kernel that wakes whoever waits on it.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::error::{Result, SysError, Tried};

/// The offset that stands for none in `preadv2(2)`: -1.
const STREAM_POSITION: u64 = u64::MAX;

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
        #[cfg(feature = "simulated")]
        crate::simulated::fault("eventfd").tried("make a wake-up counter (eventfd)")?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = rustix::event::eventfd(0, flags).tried("make a wake-up counter (eventfd)")?;
        Ok(EventFd { fd, foreign: false })
    }

    /// One that a peer sent; `InvalidData`, and it is closed, when it is not an eventfd.
    ///
    /// It is set to non-blocking here, and looked at before each signal; a hostile peer can still change that, and fill the
    /// counter, in the nanoseconds between look and use. Signal only those of peers that could stop this process anyway.
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
        #[cfg(feature = "simulated")]
        if !crate::simulated::reaches_others() {
            return Ok(());
        }
        if self.foreign {
            self.refuse_if_blocking()?;
        }
        loop {
            match rustix::io::write(&self.fd, &1_u64.to_ne_bytes()) {
                // Again: the counter is full, so it is signalled.
                Ok(_) | Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the signal back; says whether there was one. It never blocks, whatever a peer that holds the same open file
    /// has made of its flags.
    pub fn drain(&self) -> io::Result<bool> {
        let mut count = [0; 8];
        loop {
            let mut buffers = [IoSliceMut::new(&mut count)];
            match rustix::io::preadv2(&self.fd, &mut buffers, STREAM_POSITION, ReadWriteFlags::NOWAIT) {
                Ok(_) => return Ok(true),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                // Kernels before 5.8, and what stands between us and the kernel (valgrind).
                Err(Errno::NOSYS | Errno::OPNOTSUPP) => return self.drain_by_flag(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the signal back by a read that trusts the flag of the open file, where the kernel knows no other.
    fn drain_by_flag(&self) -> io::Result<bool> {
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
        if !rustix::fs::fcntl_getfl(&self.fd)?.contains(OFlags::NONBLOCK) {
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

    /// A peer has the descriptor of ours, too, and clears a flag of the open file that both share.
    #[test]
    fn one_that_was_made_blocking_does_not_block_who_drains_it() {
        let event = EventFd::new().unwrap();
        rustix::fs::fcntl_setfl(event.fd.try_clone().unwrap(), OFlags::empty()).unwrap();
        let (done, drained) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send((event.drain().unwrap(), event)));
        let (was_signalled, event) =
            drained.recv_timeout(std::time::Duration::from_secs(20)).expect("drain blocks");
        assert!(!was_signalled);
        rustix::io::write(&event.fd, &3_u64.to_ne_bytes()).unwrap();
        assert!(event.drain().unwrap() && !event.drain().unwrap());
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

        let (read_end, _write_end) = rustix::pipe::pipe().unwrap();
        assert_eq!(EventFd::from_peer(read_end).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
