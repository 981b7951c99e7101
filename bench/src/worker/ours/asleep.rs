//! CCI's messages where both sides sleep until there is one.

use super::dial;
use super::messages::{Messages, received};
use cci_measure::channel::Channel;
use cci_measure::failure::{Failure, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::time::Duration;

/// Between two looks whether all is well.
const LOOK: Duration = Duration::from_secs(1);

/// In `Endpoint::wait`, which spins for a while first where that has paid.
pub struct Waiting(Messages);

/// In `poll`, on the descriptor that the endpoint gives: it always sleeps.
pub struct OnHandle(Messages);

impl From<Messages> for Waiting {
    fn from(messages: Messages) -> Waiting {
        Waiting(messages)
    }
}

impl Channel for Waiting {
    const POLLS_PER_LOOK: u32 = 1;

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        self.0.try_send(message)
    }

    fn linger(&mut self) {
        self.0.linger();
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        match self.0.endpoint.wait(Some(LOOK)) {
            Ok(None) => Ok(None),
            Ok(Some(event)) => received(&event),
            Err(error) => Err(dial::failed("waiting")(&error)),
        }
    }
}

impl From<Messages> for OnHandle {
    fn from(messages: Messages) -> OnHandle {
        OnHandle(messages)
    }
}

impl Channel for OnHandle {
    const POLLS_PER_LOOK: u32 = 1;

    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        self.0.try_send(message)
    }

    fn linger(&mut self) {
        self.0.linger();
    }

    /// Sleeps only where there was nothing, as an event loop would.
    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        if let Some(event) = self.0.endpoint.next_event() {
            return received(&event);
        }
        let handle = self.0.endpoint.os_handle();
        let timeout = Timespec { tv_sec: LOOK.as_secs() as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(None),
            Err(error) => Err(Failure::new(format!("poll: {error}"))),
        }
    }
}
