//! Certificates: TLS 1.3, whose handshake is used and whose records are not.

use super::{Established, Failure, of_direction};
use crate::credentials::{Certificates, names_of};
use crate::endpoint_id::{ENDPOINT_ID_BYTES, EndpointId};
use crate::keys::{SECRET_BYTES, Secret};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, Error, ServerConnection};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

const EXPORTER: &[u8] = b"EXPORTER-cci-secret";

pub(crate) struct Tls {
    connection: Connection,
    is_initiator: bool,
    prologue: Vec<u8>,
    own: EndpointId,
    /// The own endpoint's id has been sent, which goes before all of TLS.
    has_sent_own: bool,
    /// The bytes of the peer's endpoint id that have come so far.
    received: Vec<u8>,
    peer: Option<EndpointId>,
}

impl Tls {
    pub fn initiate(certificates: &Certificates, own: EndpointId, prologue: &[u8]) -> Result<Tls, Failure> {
        // Names are checked elsewhere (credentials/certificates.rs), and none is sent.
        let nobody = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let connection = ClientConnection::new(Arc::clone(&certificates.client), nobody);
        Ok(Tls::new(Connection::Client(connection.map_err(|why| internal(&why))?), own, prologue))
    }

    pub fn respond(certificates: &Certificates, own: EndpointId, prologue: &[u8]) -> Result<Tls, Failure> {
        let connection = ServerConnection::new(Arc::clone(&certificates.server));
        Ok(Tls::new(Connection::Server(connection.map_err(|why| internal(&why))?), own, prologue))
    }

    fn new(connection: Connection, own: EndpointId, prologue: &[u8]) -> Tls {
        Tls {
            is_initiator: matches!(connection, Connection::Client(_)),
            connection,
            prologue: prologue.to_vec(),
            own,
            has_sent_own: false,
            received: Vec::new(),
            peer: None,
        }
    }

    pub fn is_done(&self) -> bool {
        self.peer.is_some() && !self.connection.is_handshaking()
    }

    pub fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut bytes = self.read_endpoint(bytes)?;
        while !bytes.is_empty() {
            let before = bytes.len();
            self.connection.read_tls(&mut bytes).map_err(|_| Failure::Malformed)?;
            let state = self.connection.process_new_packets().map_err(|why| failure(&why))?;
            if bytes.len() == before || state.plaintext_bytes_to_read() > 0 {
                return Err(Failure::Malformed);
            }
        }
        Ok(())
    }

    /// Takes what goes before TLS, the peer's endpoint id, and gives the remainder. Whoever changes the id gets two sides that can't open
    /// anything of each other's.
    //= wire.md R-SEC-15
    fn read_endpoint<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Failure> {
        if self.peer.is_some() {
            return Ok(bytes);
        }
        let missing = ENDPOINT_ID_BYTES.saturating_sub(self.received.len()).min(bytes.len());
        let (of_endpoint, remainder) = bytes.split_at(missing);
        self.received.extend_from_slice(of_endpoint);
        if let Ok(endpoint) = <[u8; ENDPOINT_ID_BYTES]>::try_from(&self.received[..]) {
            let endpoint = EndpointId::from_bytes(endpoint);
            if endpoint == self.own {
                return Err(Failure::Own);
            }
            self.peer = Some(endpoint);
        }
        Ok(remainder)
    }

    pub fn write(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        while self.connection.wants_write() {
            if !std::mem::replace(&mut self.has_sent_own, true) {
                out.extend_from_slice(self.own.bytes());
            }
            self.connection.write_tls(out).map_err(|_| Failure::Internal("TLS"))?;
        }
        Ok(())
    }

    pub fn finish(&mut self, context: &[u8]) -> Result<Established, Failure> {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        let peer = chain.first().and_then(names_of).ok_or(Failure::NoName)?;
        let endpoint = self.peer.ok_or(Failure::Internal("not done"))?;
        let (initiator, responder) =
            if self.is_initiator { (self.own, endpoint) } else { (endpoint, self.own) };
        let context = [&self.prologue[..], initiator.bytes(), responder.bytes(), context].concat();
        let shared = self
            .connection
            .export_keying_material(Secret::new([0; SECRET_BYTES]), EXPORTER, Some(&context))
            .map_err(|why| internal(&why))?;
        let send = of_direction(&shared, self.is_initiator, &[]);
        let receive = of_direction(&shared, !self.is_initiator, &[]);
        Ok(Established { peer, endpoint, send, receive })
    }
}

fn internal(_: &Error) -> Failure {
    Failure::Internal("TLS")
}

fn failure(why: &Error) -> Failure {
    match why {
        Error::InvalidMessage(_) | Error::InappropriateMessage { .. } | Error::DecryptError => {
            Failure::Malformed
        }
        Error::AlertReceived(alert) => {
            Failure::Certificate(format!("the peer refuses this side's: {alert:?}"))
        }
        other => Failure::Certificate(other.to_string()),
    }
}
