//! Handshakes: two sides prove to each other who they are, and have secrets that nobody else has.
//!
//! With pre-shared keys it is Noise `NNpsk0_25519_AESGCM_SHA256`, with certificates TLS 1.3. Either is two streams of bytes,
//! one in each direction; how they travel is the caller's matter.

mod noise;
#[cfg(test)]
mod tests;
mod tls;
mod wiped;

use crate::credentials::{Credentials, Kind};
use crate::endpoint_id::EndpointId;
use crate::failure::Failure;
use crate::identity::Identity;
use crate::keys::{Secret, expand_label};

/// What a handshake leaves.
pub(crate) struct Established {
    pub peer: Identity,
    /// Which endpoint of the peer's it is.
    pub endpoint: EndpointId,
    /// Secret of what this side sends.
    pub send: Secret,
    /// Secret of what this side receives.
    pub receive: Secret,
}

/// One side of a handshake under way.
pub(crate) enum Handshake {
    Noise(noise::Noise),
    Tls(Box<tls::Tls>),
}

impl Handshake {
    /// Makes the initiator, which is the endpoint `own`. Both sides must give the same `prologue`, at most 64 bytes.
    /// `with_key`: the name of the key to prove who this side is, if it is not the own one.
    pub fn initiate(
        credentials: &Credentials,
        own: EndpointId,
        prologue: &[u8],
        with_key: Option<&str>,
    ) -> Result<Handshake, Failure> {
        match &*credentials.0 {
            Kind::Psk(keys) => {
                let key = with_key.and_then(|name| keys.named(name)).unwrap_or_else(|| keys.own());
                noise::Noise::initiate(key, own, prologue).map(Handshake::Noise)
            }
            Kind::Certificates(certificates) => {
                let tls = tls::Tls::initiate(certificates, own, prologue)?;
                Ok(Handshake::Tls(Box::new(tls)))
            }
        }
    }

    /// Makes the responder, which is the endpoint `own`.
    pub fn respond(
        credentials: &Credentials,
        own: EndpointId,
        prologue: &[u8],
    ) -> Result<Handshake, Failure> {
        match &*credentials.0 {
            Kind::Psk(_) => Ok(Handshake::Noise(noise::Noise::respond(credentials, own, prologue))),
            Kind::Certificates(certificates) => {
                let tls = tls::Tls::respond(certificates, own, prologue)?;
                Ok(Handshake::Tls(Box::new(tls)))
            }
        }
    }

    /// Whether a handshake by certificates that begins with these bytes was begun by the endpoint `own`. By keys, only
    /// [`Handshake::read`] can know.
    pub fn is_own_certificates(own: EndpointId, first: &[u8]) -> bool {
        first.starts_with(own.bytes())
    }

    /// Takes the next bytes of the peer's. After an error there may still be something to be written that says why.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Handshake::Noise(noise) => noise.read(bytes),
            Handshake::Tls(tls) => tls.read(bytes),
        }
    }

    /// With keys, takes the peer's next message, whole. One that does not verify changes nothing.
    pub fn read_whole(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Handshake::Noise(noise) => noise.read_whole(bytes),
            Handshake::Tls(_) => Err(Failure::Internal("TLS has no whole")),
        }
    }

    /// Appends what the peer is to get.
    pub fn write(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        match self {
            Handshake::Noise(noise) => noise.write(out),
            Handshake::Tls(tls) => tls.write(out),
        }
    }

    /// Who the peer is, once that is proved: for the answering side of Noise, before it answers.
    pub fn peer(&self) -> Option<&Identity> {
        match self {
            Handshake::Noise(noise) => noise.peer(),
            Handshake::Tls(_) => None,
        }
    }

    /// Both streams are complete: [`Handshake::finish`] will succeed.
    pub fn is_done(&self) -> bool {
        match self {
            Handshake::Noise(noise) => noise.is_done(),
            Handshake::Tls(tls) => tls.is_done(),
        }
    }

    /// The secrets, bound to both endpoints and to `context`, at most 100 bytes: others at the other side give other
    /// secrets.
    pub fn finish(&mut self, context: &[u8]) -> Result<Established, Failure> {
        match self {
            Handshake::Noise(noise) => noise.finish(context),
            Handshake::Tls(tls) => tls.finish(context),
        }
    }
}

/// Derives the secret of one direction: of what the initiator sends if `initiator`, of what the responder sends otherwise.
pub(crate) fn of_direction(shared: &Secret, initiator: bool, context: &[u8]) -> Secret {
    let mut secret = Secret::new([0; 32]);
    let label: &[u8] = if initiator { b"cci initiator" } else { b"cci responder" };
    expand_label(shared, label, context, &mut secret[..]);
    secret
}
