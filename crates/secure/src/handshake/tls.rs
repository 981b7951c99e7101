//! Certificates: TLS 1.3, whose handshake is used and whose records are not.

use super::{Established, Failure, of_direction};
use crate::credentials::{Certificates, names_of};
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
}

impl Tls {
    pub fn initiate(certificates: &Certificates, prologue: &[u8]) -> Result<Tls, Failure> {
        // Names are checked elsewhere (credentials/certificates.rs), and none is sent.
        let nobody = ServerName::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let connection = ClientConnection::new(Arc::clone(&certificates.client), nobody);
        let connection = Connection::Client(connection.map_err(|why| internal(&why))?);
        Ok(Tls { connection, is_initiator: true, prologue: prologue.to_vec() })
    }

    pub fn respond(certificates: &Certificates, prologue: &[u8]) -> Result<Tls, Failure> {
        let connection = ServerConnection::new(Arc::clone(&certificates.server));
        let connection = Connection::Server(connection.map_err(|why| internal(&why))?);
        Ok(Tls { connection, is_initiator: false, prologue: prologue.to_vec() })
    }

    pub fn is_done(&self) -> bool {
        !self.connection.is_handshaking()
    }

    pub fn read(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
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

    pub fn write(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        while self.connection.wants_write() {
            self.connection.write_tls(out).map_err(|_| Failure::Internal("TLS"))?;
        }
        Ok(())
    }

    pub fn finish(&mut self, context: &[u8]) -> Result<Established, Failure> {
        let chain = self.connection.peer_certificates().unwrap_or_default();
        let peer = chain.first().and_then(names_of).ok_or(Failure::NoName)?;
        let context = [&self.prologue, context].concat();
        let shared = self
            .connection
            .export_keying_material(Secret::new([0; SECRET_BYTES]), EXPORTER, Some(&context))
            .map_err(|why| internal(&why))?;
        let send = of_direction(&shared, self.is_initiator, &[]);
        let receive = of_direction(&shared, !self.is_initiator, &[]);
        Ok(Established { peer, send, receive })
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
