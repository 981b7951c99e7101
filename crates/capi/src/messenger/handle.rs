//! A messenger behind a C pointer.

use super::pool::Pool;
use super::types::cci_messenger_t;
use crate::guard::Failure;
use crate::types::*;
use cci::messages::Messenger;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// What `cci_messenger_t *` leads to: it points to an `Arc` of it in a box. Events that the program has keep it, also after it was closed.
pub(crate) struct CMessenger {
    /// `None`: it was closed.
    messenger: Mutex<Option<Messenger>>,
    pub pool: Mutex<Pool<CMessenger>>,
    pub uri: String,
    pub fd: RawFd,
    /// The process that opened it.
    process: u32,
    /// A call has answered that no receive buffer is free.
    starved: AtomicBool,
}

impl CMessenger {
    /// `events_max` limits the events that the program has at once.
    pub fn new(messenger: Messenger, events_max: u32) -> Arc<CMessenger> {
        Arc::new(CMessenger {
            pool: Mutex::new(Pool::new(events_max)),
            uri: messenger.endpoint().uri().to_owned(),
            fd: messenger.os_handle().as_raw_fd(),
            messenger: Mutex::new(Some(messenger)),
            process: std::process::id(),
            starved: AtomicBool::new(false),
        })
    }

    /// The messenger that a program's pointer leads to.
    ///
    /// # Safety
    /// `messenger` is NULL or one that is open, and stays so for `'a`.
    #[inline]
    pub unsafe fn of<'a>(messenger: *const cci_messenger_t) -> Result<&'a Arc<CMessenger>, Failure> {
        // SAFETY: made by `Box::into_raw` in `cci_messenger_open`, and the caller promises that it is open.
        unsafe { messenger.cast::<Arc<CMessenger>>().as_ref() }
            .ok_or_else(|| Failure::with_text(CCI_EINVAL, "the messenger is NULL"))
    }

    /// Runs `f` with the messenger, locked. `f` must not call into the C interface.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut Messenger) -> Result<R, Failure>) -> Result<R, Failure> {
        let mut locked = self.lock()?;
        let messenger = locked.as_mut().ok_or_else(closed)?;
        messenger.endpoint().check_process()?;
        f(messenger)
    }

    /// Ends it. What events of it show stays until they are returned.
    pub fn close(&self) {
        // In a fork child, where nobody will ever give back a lock that a thread of the parent's had, it is left as it is.
        let messenger = self.lock().ok().and_then(|mut locked| locked.take());
        // Without the lock: messages that were sent are still delivered, which takes time.
        drop(messenger);
    }

    #[inline]
    fn lock(&self) -> Result<MutexGuard<'_, Option<Messenger>>, Failure> {
        match self.messenger.try_lock() {
            Ok(locked) => Ok(locked),
            Err(TryLockError::Poisoned(locked)) => Ok(locked.into_inner()),
            Err(TryLockError::WouldBlock) if std::process::id() == self.process => {
                Ok(self.messenger.lock().unwrap_or_else(PoisonError::into_inner))
            }
            Err(TryLockError::WouldBlock) => {
                Err(Failure::with_text(CCI_ERROR, "another process opened the messenger: open your own"))
            }
        }
    }

    /// Sleeps until there may be an event, for `timeout` at most.
    pub fn sleep(&self, timeout: Option<Duration>) -> Result<(), Failure> {
        let mut descriptor = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(null(), std::ptr::from_ref);
        // SAFETY: one descriptor, a time that is NULL or there, and no signal mask.
        if unsafe { libc::ppoll(&mut descriptor, 1, timeout, null()) } >= 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match error.kind() {
            std::io::ErrorKind::Interrupted => Ok(()),
            _ => Err(Failure::with_text(CCI_ERROR, format!("waiting for a messenger: {error}"))),
        }
    }

    /// Notes that the program hears of no free receive buffer, so that the return of one is worth a look. Returns whether one came back
    /// meanwhile.
    pub fn starve(&self, messenger: &mut Messenger) -> bool {
        // SeqCst here and in `fed`: either this thread sees the buffer, or the one that gave it back sees the flag.
        self.starved.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        messenger.recv_buffers_free() > 0
    }

    /// A receive buffer came back. Messages that may be waiting for one are taken in now, so that the descriptor says so even to a
    /// program that sleeps on it without asking for events first.
    #[inline]
    pub fn fed(&self) {
        fence(Ordering::SeqCst);
        if self.starved.load(Ordering::Relaxed) && self.starved.swap(false, Ordering::SeqCst) {
            // A messenger that was closed has nobody to report to.
            let _ = self.with(|messenger| {
                messenger.arm();
                Ok(())
            });
        }
    }
}

#[cold]
fn closed() -> Failure {
    Failure::with_text(CCI_EINVAL, "the messenger is closed")
}
