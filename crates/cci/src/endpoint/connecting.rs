//! Making connections: asking others for them, and accepting requests.

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
    /// Starts to connect to `uri`; never blocks. The server's program gets `request`, of 1,024 bytes at most, and accepts or rejects
    /// it. Each attempt ends in exactly one [`Event::Connect`](crate::Event::Connect) with `context`. Without a `timeout` it goes on for
    /// ever.
    ///
    /// # Errors
    /// After any [`ConnectError`], nothing was started and no event will come.
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

    /// Starts to connect to `uri`, where somebody named `peer` must be. The peer proves the name by [`crate::Security`]: by a
    /// certificate that has the name, or by the pre-shared key of that name, which this side then uses instead of its own, so that a
    /// peer without the key gives no answer. Nobody else sees anything of the request. The attempt fails with
    /// [`crate::ConnectFailure::WrongPeer`] if somebody else turns out to be there. In all else it does what [`Endpoint::connect`] does.
    ///
    /// # Errors
    /// Those of [`Endpoint::connect`]; and [`ConnectError::CannotExpect`] if this endpoint has no security, or no key of that name, or
    /// if its device's configuration expects another name.
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

    /// Has the endpoint use other devices, too, from now on, if its own does not lead to `uri`.
    fn reach_beyond(&mut self, uri: &str) -> Result<(), ConnectError> {
        if !self.on_demand.as_ref().map_or(Ok(false), |on_demand| on_demand.is_needed_for(uri))? {
            return Ok(());
        }
        if let Some(on_demand) = self.on_demand.take() {
            let own = std::mem::replace(&mut self.transport, any::nothing());
            self.transport = any::around(own, &self.core, on_demand);
        }
        Ok(())
    }

    /// Accepts a request that came to this endpoint, or to another one of the same kind of device: so a broker can give connections to
    /// workers (CCI-037). It ends in exactly one [`Event::Accept`](crate::Event::Accept) with `context`, on this endpoint.
    ///
    /// # Errors
    /// After any [`AcceptError`], the request was refused, the peer learns of it, and no event will come.
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
