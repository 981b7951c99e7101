//! A stream, and what the kernel reports of it.

use super::pipe::Pipe;
use crate::engine::poller::Poller;
use cci_sys::event::Interest;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;

/// A stream with its entry in the endpoint's epoll set.
pub(super) struct Watched {
    pipe: Pipe,
    /// The kernel's token of the stream.
    token: u64,
    /// What the kernel reports; `None`: nothing.
    interest: Option<Interest>,
}

impl Watched {
    /// Wraps a stream that the kernel does not report yet.
    pub fn new(pipe: Pipe, token: u64) -> Watched {
        Watched { pipe, token, interest: None }
    }

    /// What the kernel reports of it; `None`: nothing.
    #[inline]
    pub fn interest(&self) -> Option<Interest> {
        self.interest
    }

    /// Whether the kernel reports when the stream can be written.
    #[inline]
    pub fn is_watched_for_space(&self) -> bool {
        self.interest == Some(Interest::Both)
    }

    /// Has the kernel report this and nothing else; `None`: nothing at all. If the system refuses, the next call tries again.
    pub fn watch(&mut self, poller: &Poller, wanted: Option<Interest>) {
        match (self.interest, wanted) {
            (None, Some(wanted)) if poller.watch(self.pipe.as_fd(), self.token).is_ok() => {
                self.interest = Some(Interest::Read);
                self.watch(poller, Some(wanted));
            }
            (Some(_), None) => {
                poller.unwatch(self.pipe.as_fd());
                self.interest = None;
            }
            (Some(is), Some(wanted)) if is != wanted => {
                poller.rewatch(self.pipe.as_fd(), self.token, wanted);
                self.interest = Some(wanted);
            }
            _ => {}
        }
    }
}

impl Deref for Watched {
    type Target = Pipe;

    fn deref(&self) -> &Pipe {
        &self.pipe
    }
}

impl DerefMut for Watched {
    fn deref_mut(&mut self) -> &mut Pipe {
        &mut self.pipe
    }
}
