//! How a thread sleeps that serves an endpoint beside the program's threads.

use super::Endpoint;
use crate::engine::poller::Poller;
use crate::error::{SysError, WaitError};
use cci_sys::event::{Epoll, EventFd, Events, Interest, Trigger};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

const TOKEN_ENDPOINT: u64 = 0;
const TOKEN_WAKE: u64 = 1;

/// How a thread sleeps, without having the endpoint, until the endpoint has something to do: [`Endpoint::sleeper`].
pub struct Sleeper {
    epoll: Epoll,
    wake: EventFd,
    woken: Mutex<Events>,
    /// Kept open, since its descriptor is in `epoll`.
    _poller: Arc<Poller>,
}

impl Sleeper {
    /// Sleeps until something comes for the endpoint, or until [`Sleeper::wake`] is called; one from before counts, too. The
    /// endpoint's owner must call [`Endpoint::arm`] immediately before; sleep only if that returns false. One thread at a time.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn sleep(&self) -> Result<(), WaitError> {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        self.epoll.wait(&mut woken, None).map_err(|source| SysError::new("epoll_wait", source))?;
        if woken.iter().any(|event| event.token == TOKEN_WAKE) {
            // An eventfd of our own is never closed and has been written to.
            let _ = self.wake.drain();
        }
        Ok(())
    }

    /// Ends the present sleep, or the next one if there is none. From any thread.
    pub fn wake(&self) {
        // It can't fail: it is never closed, and ones do not fill it up.
        let _ = self.wake.signal();
    }
}

/// For threads that sleep on several descriptors: it is readable when [`Sleeper::sleep`] would return. What holds for that holds here, but
/// any number of threads may sleep so at once.
impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Endpoint {
    /// What a thread sleeps on without having the endpoint: for a layer that has the endpoint behind a lock, and a thread that serves it
    /// while the program makes no calls. Unlike [`Endpoint::os_handle`], it costs the endpoint nothing while nobody sleeps.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn sleeper(&self) -> Result<Sleeper, SysError> {
        let poller = self.poller();
        let (epoll, wake) = (Epoll::new()?, EventFd::new()?);
        epoll.add(poller.fd(), TOKEN_ENDPOINT, Interest::Read, Trigger::Level)?;
        epoll.add(wake.as_fd(), TOKEN_WAKE, Interest::Read, Trigger::Level)?;
        Ok(Sleeper { epoll, wake, woken: Mutex::new(Events::with_capacity(2)), _poller: poller })
    }
}
