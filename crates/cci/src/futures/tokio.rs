//! Messengers in tokio's tasks.

use super::driver::{Driver, Reactor};
use super::messenger::Messenger;
use crate::messages;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;

/// tokio's reactor.
struct Tokio {
    descriptor: AsyncFd<OwnedFd>,
}

impl Reactor for Tokio {
    fn poll_readable(
        &mut self,
        context: &mut Context<'_>,
        look: &mut dyn FnMut() -> bool,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.descriptor.poll_read_ready(context))?;
            if look() {
                return Poll::Ready(Ok(()));
            }
            ready.clear_ready();
        }
    }
}

impl Messenger {
    /// Makes a messenger for the tasks of the tokio runtime that this is called in, and spawns its driver there.
    ///
    /// # Errors
    /// The descriptor could not be registered with the runtime.
    pub fn spawn(messenger: messages::Messenger) -> io::Result<Messenger> {
        let (messenger, driver) = Messenger::with_tokio(messenger)?;
        tokio::spawn(driver);
        Ok(messenger)
    }

    /// Makes a messenger for the tasks of the tokio runtime that this is called in. The program polls the driver, by `tokio::spawn` or
    /// in a task set.
    ///
    /// # Errors
    /// The descriptor could not be registered with the runtime.
    pub fn with_tokio(messenger: messages::Messenger) -> io::Result<(Messenger, Driver<impl Reactor>)> {
        let descriptor = messenger.os_handle().try_clone_to_owned()?;
        #[expect(
            deprecated,
            reason = "`register` is unsafe; a descriptor that is owned stays open as long as it lives"
        )]
        let descriptor = AsyncFd::new(descriptor)?;
        Ok(Messenger::new(messenger, Tokio { descriptor }))
    }
}
