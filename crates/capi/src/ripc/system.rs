//! Descriptors, signals and sleep.

use libc::{c_int, sigset_t, timespec};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// What one thread wakes another by.
pub(super) struct EventFd(OwnedFd);

impl EventFd {
    pub fn new() -> io::Result<EventFd> {
        // SAFETY: makes a descriptor, which is nobody else's.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was made just now.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        let one = 1_u64;
        // SAFETY: the eight bytes are there. It never fills up by ones.
        let _written = unsafe { libc::write(self.raw(), (&raw const one).cast(), 8) };
    }

    /// Makes it unreadable.
    pub fn drain(&self) {
        let mut count = 0_u64;
        // SAFETY: the eight bytes are there. It does not block, and fails where there is nothing to read.
        let _read = unsafe { libc::read(self.raw(), (&raw mut count).cast(), 8) };
    }

    pub fn raw(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A descriptor that is readable when one of these is.
pub(super) fn any_of(fds: &[RawFd]) -> io::Result<OwnedFd> {
    // SAFETY: makes a descriptor, which is nobody else's.
    let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was made just now.
    let set = unsafe { OwnedFd::from_raw_fd(set) };
    for &fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event outlives the call.
        if unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(set)
}

/// Signals are held back on this thread as long as this lives, but for those that the thread's own faults raise.
pub(super) struct Masked {
    before: sigset_t,
}

/// Raised by what the thread itself does wrong.
const FAULTS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];

impl Masked {
    pub fn new() -> Masked {
        // SAFETY: a signal set is plain bits, for which all zeros is a value.
        let (mut held, mut before): (sigset_t, sigset_t) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        // SAFETY: they write the sets that they are given, and change this thread's mask only. They fail for unknown signals only.
        unsafe {
            libc::sigfillset(&raw mut held);
            for fault in FAULTS {
                libc::sigdelset(&raw mut held, fault);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const held, &raw mut before);
        }
        Masked { before }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the set is one that this thread had.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// How a sleep has ended.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Woken {
    Readable,
    TimedOut,
    Interrupted,
}

/// Sleeps until one of these is readable, or a signal was handled, also one that [`Masked`] has held back.
pub(super) fn sleep(fds: &[RawFd], timeout: Duration, masked: Option<&Masked>) -> Woken {
    let mut polled = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 2];
    for (polled, &fd) in polled.iter_mut().zip(fds) {
        polled.fd = fd;
    }
    let timeout = timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mask = masked.map_or(std::ptr::null(), |masked| &raw const masked.before);
    // SAFETY: everything outlives the call; descriptors that are -1 are passed over.
    match unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &raw const timeout, mask) } {
        0 => Woken::TimedOut,
        woken if woken > 0 => Woken::Readable,
        _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Woken::Interrupted,
        // The system can't wait now; who looks again later does no harm.
        _ => Woken::TimedOut,
    }
}

/// Makes a descriptor of the program's own, which it closes.
pub(super) fn duplicate(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    fd.try_clone_to_owned()
}
