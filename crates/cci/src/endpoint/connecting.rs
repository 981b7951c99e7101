//! Making connections: asking for them, and accepting what others ask for.

use super::{Endpoint, as_ns};
use crate::engine::core::ConnState;
use crate::engine::event::ConnectRequest;
use crate::engine::requests::Decision;
use crate::error::{AcceptError, ConnectError};
use crate::limits;
use crate::options::Attribute;
use crate::security::NOBODY;
use crate::transport::{self, Dial, any};
use std::sync::Arc;
use std::time::Duration;

impl Endpoint {
    /// Starts connecting to `uri`; never blocks. `request`, of 1,024 bytes at most, is shown to the server's program,
    /// which accepts or rejects. Ends in exactly one [`Event::Connect`](crate::Event::Connect) with `context`. `timeout` None: try for ever.
    ///
    /// # Errors
    /// [`ConnectError`]: nothing was started and no event will come.
    pub fn connect(
        &mut self,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), ConnectError> {
        let expected = self.expected.clone();
        self.connect_with(expected.as_deref(), uri, request, attribute, context, timeout)
    }

    /// Starts connecting to `uri`, where somebody named `peer` must be: one who proves that name by [`crate::Security`], by
    /// a certificate that has it or by the key of that name. With keys, which need be this side's own no longer, that is
    /// the key by which this side asks, so that a peer which does not have it gives no answer. Nobody else is told anything
    /// of the request. Otherwise as [`Endpoint::connect`]; the attempt fails with [`crate::ConnectFailure::WrongPeer`] where
    /// somebody else proves to be there.
    ///
    /// # Errors
    /// Those of [`Endpoint::connect`], and [`ConnectError::CannotExpect`]: this endpoint has no security, or no key of that name, or
    /// its device's configuration expects another one.
    pub fn connect_expecting(
        &mut self,
        peer: &str,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), ConnectError> {
        let cannot = |reason: String| Err(ConnectError::CannotExpect { name: peer.to_owned(), reason });
        if let Some(expected) = self.expected.as_deref().filter(|name| !name.eq_ignore_ascii_case(peer)) {
            return cannot(format!(
                "this endpoint connects to {expected} only, as its device or its options say"
            ));
        }
        if attribute.is_multicast() {
            return cannot(NOBODY.to_owned());
        }
        self.connect_with(Some(peer), uri, request, attribute, context, timeout)
    }

    fn connect_with(
        &mut self,
        expected: Option<&str>,
        uri: &str,
        request: &[u8],
        attribute: Attribute,
        context: u64,
        timeout: Option<Duration>,
    ) -> Result<(), ConnectError> {
        self.check_process().map_err(ConnectError::System)?;
        if request.len() > limits::REQUEST_BYTES_MAX {
            return Err(ConnectError::RequestTooLong { len_bytes: request.len() });
        }
        self.reach_beyond(uri)?;
        if attribute.is_multicast() && !self.transport.about().offers_multicast {
            return Err(ConnectError::Unsupported);
        }
        let (uri, proof) = transport::own_part(&self.device.0, uri)?;
        let connection =
            self.core.insert(context, attribute, ConnState::Connecting).ok_or(ConnectError::NoMemory)?;
        let timeout_ns = timeout.map(as_ns);
        let dial =
            Dial { uri: &uri, request, attribute, timeout_ns, is_one_of_several: false, expected, proof };
        match self.transport.connect(&mut self.core, connection, dial) {
            Ok(link) => {
                self.set_link(connection, link);
                self.touched();
                Ok(())
            }
            Err(error) => {
                self.core.forget(connection);
                Err(error)
            }
        }
    }

    /// Has the endpoint connect by other devices from now on, where its own does not lead to `uri`.
    fn reach_beyond(&mut self, uri: &str) -> Result<(), ConnectError> {
        if !self.beyond.as_ref().map_or(Ok(false), |beyond| beyond.is_needed_for(uri))? {
            return Ok(());
        }
        if let Some(beyond) = self.beyond.take() {
            let own = std::mem::replace(&mut self.transport, any::nothing());
            self.transport = any::around(own, &self.core, beyond);
        }
        Ok(())
    }

    /// Accepts a request that came to this endpoint or to another one of the same kind of device: a broker hands
    /// connections to workers that way (CCI-037). Ends in exactly one [`Event::Accept`](crate::Event::Accept) with `context`, here.
    ///
    /// # Errors
    /// [`AcceptError`]: the peer is told that it was refused; no event will come.
    pub fn accept(&mut self, mut request: ConnectRequest, context: u64) -> Result<(), AcceptError> {
        self.check_process().map_err(AcceptError::System)?;
        let Some(body) = request.body.take() else { return Err(AcceptError::Gone) };
        let body = *body;
        let Some(connection) = self.core.insert(context, body.attribute, ConnState::Accepting) else {
            body.refuse();
            return Err(AcceptError::NoMemory);
        };
        let (inbox, via, ticket) = (body.inbox.clone(), body.via, body.ticket);
        match self.transport.accept(&mut self.core, connection, body) {
            Ok(link) => {
                self.set_link(connection, link);
                self.touched();
                if !Arc::ptr_eq(&inbox, &self.core.requests) {
                    inbox.put(Decision::AcceptedElsewhere { via, ticket });
                }
                Ok(())
            }
            Err(error) => {
                self.core.forget(connection);
                Err(error)
            }
        }
    }
}
