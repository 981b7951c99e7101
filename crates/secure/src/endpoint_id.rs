//! Which endpoint somebody is, apart from who it is: so that none shakes hands with itself.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Bytes of an [`EndpointId`].
pub(crate) const ENDPOINT_ID_BYTES: usize = 16;

/// Apart from whatever else the same secret is used for.
const LABEL: &[u8] = b"cci endpoint id";

/// Names one endpoint among all there are, from its start to its end. Both sides send theirs in a handshake, and bind the
/// secrets to them: an endpoint that is given back its own words, from whatever address, knows them.
///
/// It is no secret, and proves nothing by itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct EndpointId([u8; ENDPOINT_ID_BYTES]);

impl EndpointId {
    /// By the system's random numbers; `None`: it has none.
    #[must_use]
    pub fn random() -> Option<EndpointId> {
        let mut bytes = [0; ENDPOINT_ID_BYTES];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(EndpointId(bytes))
    }

    /// That of the endpoint with this secret.
    #[must_use]
    pub fn of_secret(secret: &[u8; 32]) -> EndpointId {
        let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), LABEL);
        EndpointId(mac.as_ref().first_chunk().copied().unwrap_or([0; ENDPOINT_ID_BYTES]))
    }

    pub(crate) fn from_bytes(bytes: [u8; ENDPOINT_ID_BYTES]) -> EndpointId {
        EndpointId(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; ENDPOINT_ID_BYTES] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        assert_ne!(EndpointId::random(), EndpointId::random());
        assert_eq!(EndpointId::of_secret(&[1; 32]), EndpointId::of_secret(&[1; 32]));
        assert_ne!(EndpointId::of_secret(&[1; 32]), EndpointId::of_secret(&[2; 32]));
    }
}
