//! Who wants to connect.

use super::connection::Connection;
use super::error::ConnectError;
use super::operations::Outcome;
use super::state::Shared;
use super::wait::{Wait, start};
use crate::engine::event::ConnectRequest;
use crate::options::Attribute;
use std::sync::Arc;

/// Another messenger that wants to connect. One that is dropped is refused.
#[must_use = "a request that is dropped is refused"]
pub struct Incoming {
    shared: Arc<Shared>,
    request: ConnectRequest,
}

impl Incoming {
    pub(super) fn new(shared: &Arc<Shared>, request: ConnectRequest) -> Incoming {
        Incoming { shared: shared.clone(), request }
    }

    /// What the client has sent with its request.
    pub fn data(&self) -> &[u8] {
        self.request.data()
    }

    /// What the connection would promise.
    pub fn attribute(&self) -> Attribute {
        self.request.attribute()
    }

    /// Accepts, and waits until the connection is open.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn accept(self) -> Result<Connection, ConnectError> {
        let Incoming { shared, request } = self;
        let mut request = Some(request);
        let begin = |messenger: &mut crate::messages::Messenger, context| match request.take() {
            Some(request) => messenger.accept(request, context),
            None => Ok(()),
        };
        let (key, ()) = start(&shared, None, begin)
            .await
            .ok_or(ConnectError::Over)?
            .map_err(ConnectError::NotAccepted)?;
        match Wait::new(&shared, key).await {
            Some(Outcome::Opened(Ok(connection))) => Ok(Connection::new(&shared, connection)),
            Some(Outcome::Opened(Err(failure))) => Err(ConnectError::Failed(failure)),
            _ => Err(ConnectError::Over),
        }
    }
}
