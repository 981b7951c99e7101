//! The socket that an endpoint listens on.

use crate::engine::poller::Poller;
use crate::transport::token;
use cci_sys::SysError;
use cci_sys::unix::{Listener, Stream};
use std::os::fd::AsFd;

/// How long the endpoint does not listen when it can't admit more clients.
const LISTEN_AGAIN_NS: u64 = 5_000_000;

/// A listening socket, which is ignored while no more clients can be admitted.
pub(super) struct Listening {
    /// The socket; `None` if the endpoint only connects to others.
    listener: Option<Listener>,
    /// Until when the socket is ignored, because there are too many clients or no descriptors.
    again_ns: Option<u64>,
}

impl Listening {
    /// Begins to listen, if there is a listener.
    pub fn new(listener: Option<Listener>, poller: &Poller) -> Result<Listening, SysError> {
        if let Some(listener) = &listener {
            poller.watch(listener.as_fd(), token::make(token::LISTENER, token::NOWHERE))?;
        }
        Ok(Listening { listener, again_ns: None })
    }

    /// Accepts the next client. Returns `None` if none waits.
    pub fn accept(&self) -> std::io::Result<Option<Stream>> {
        self.listener.as_ref().map_or(Ok(None), Listener::accept)
    }

    /// Ignores the socket for a while. Clients that come meanwhile wait in the kernel's queue.
    pub fn pause(&mut self, poller: &Poller, now_ns: u64) {
        if let Some(listener) = self.listener.as_ref().filter(|_| self.again_ns.is_none()) {
            poller.unwatch(listener.as_fd());
        }
        self.again_ns = Some(now_ns + LISTEN_AGAIN_NS);
    }

    /// When the pause ends; `u64::MAX`: there is none.
    pub fn deadline_ns(&self) -> u64 {
        self.again_ns.unwrap_or(u64::MAX)
    }

    /// Ends a pause that is over. Returns whether clients can be admitted.
    #[inline]
    pub fn resume(&mut self, poller: &Poller, now_ns: u64) -> bool {
        let Some(listener) = self.listener.as_ref().filter(|_| now_ns >= self.deadline_ns()) else {
            return false;
        };
        let is_watched = poller.watch(listener.as_fd(), token::make(token::LISTENER, token::NOWHERE)).is_ok();
        self.again_ns = if is_watched { None } else { Some(now_ns + LISTEN_AGAIN_NS) };
        is_watched
    }
}
