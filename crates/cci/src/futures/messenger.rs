//! A messenger as tasks see it.

use super::connection::Connection;
use super::driver::{Driver, Reactor};
use super::error::ConnectError;
use super::incoming::Incoming;
use super::operations::Outcome;
use super::state::Shared;
use super::wait::{Wait, start};
use crate::messages;
use crate::options::Attribute;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// A messenger for tasks: see [the module](super). Clones are the same messenger.
pub struct Messenger {
    pub(super) shared: Arc<Shared>,
}

impl Messenger {
    /// Makes a messenger for tasks, and its driver, which the program spawns. The reactor watches the messenger's descriptor
    /// ([`messages::Messenger::os_handle`]), of which it has its own duplicate.
    pub fn new<R: Reactor>(messenger: messages::Messenger, reactor: R) -> (Messenger, Driver<R>) {
        let shared = Arc::new(Shared::new(messenger));
        (Messenger { shared: shared.clone() }, Driver::new(shared, reactor))
    }

    /// Where others connect to.
    pub fn uri(&self) -> &str {
        &self.shared.uri
    }

    /// Connects to another messenger: see [`messages::Messenger::connect`].
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(
        &self,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        timeout: Option<Duration>,
    ) -> Result<Connection, ConnectError> {
        let begin = |messenger: &mut messages::Messenger, context| {
            messenger.connect(uri, request, attribute, context, timeout)
        };
        let started = start(&self.shared, None, begin).await;
        let (key, ()) = started.ok_or(ConnectError::Over)?.map_err(ConnectError::NotStarted)?;
        match Wait::new(&self.shared, key).await {
            Some(Outcome::Opened(Ok(connection))) => Ok(Connection::new(&self.shared, connection)),
            Some(Outcome::Opened(Err(failure))) => Err(ConnectError::Failed(failure)),
            _ => Err(ConnectError::Over),
        }
    }

    /// Who wants to connect next. `None`: the driver has ended, and nobody will.
    pub async fn incoming(&self) -> Option<Incoming> {
        poll_fn(|context| {
            let mut state = self.shared.lock();
            match state.next_request(context) {
                Some(request) => Poll::Ready(Some(Incoming::new(&self.shared, request))),
                None if state.is_over => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Has the messenger beneath do something that needs no waiting: allocate memory, count, explain. Its events go to the tasks that
    /// they concern. If something else is started here, with 0 for its context, nobody gets its events.
    pub fn with<T>(&self, act: impl FnOnce(&mut messages::Messenger) -> T) -> T {
        let mut state = self.shared.lock();
        let done = act(&mut state.messenger);
        state.wake_driver();
        done
    }
}

impl Clone for Messenger {
    fn clone(&self) -> Messenger {
        self.shared.lock().handles += 1;
        Messenger { shared: self.shared.clone() }
    }
}

impl Drop for Messenger {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.handles -= 1;
        state.wake_driver();
    }
}

impl fmt::Debug for Messenger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messenger").field("uri", &self.uri()).finish_non_exhaustive()
    }
}
