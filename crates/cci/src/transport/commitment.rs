//! What an endpoint's URI says of its secret, which the endpoint has to show to who asks for a connection.

use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

/// The length of a secret.
pub(in crate::transport) const SECRET_BYTES: usize = 16;
const COMMITMENT_BYTES: usize = 16;
/// So that the hash is of no use to anything else that hashes 16 bytes.
const PURPOSE: &[u8] = b"CCI endpoint secret, version 1";

/// What an endpoint's secret hashes to: 128 bits of SHA-256, for its URI as 32 hexadecimal digits. To find another
/// secret for it takes 2^128 tries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Commitment([u8; COMMITMENT_BYTES]);

impl Commitment {
    /// The commitment to this secret.
    pub(in crate::transport) fn to(secret: &[u8; SECRET_BYTES]) -> Commitment {
        let hash = Sha256::new().chain_update(PURPOSE).chain_update(secret).finalize();
        let mut bytes = [0; COMMITMENT_BYTES];
        bytes.iter_mut().zip(hash).for_each(|(byte, hashed)| *byte = hashed);
        Commitment(bytes)
    }
}

impl fmt::Display for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl FromStr for Commitment {
    type Err = ();

    fn from_str(text: &str) -> Result<Commitment, ()> {
        let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if text.len() != 2 * COMMITMENT_BYTES || !digits {
            return Err(());
        }
        u128::from_str_radix(text, 16).map(|number| Commitment(number.to_be_bytes())).map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "dc5da411f5e9831b5dff54f1688ac354";

    #[test]
    fn the_hash_is_what_other_versions_compute() {
        // printf 'CCI endpoint secret, version 1\0\1\2…\17' | sha256sum | cut -c1-32
        let secret = std::array::from_fn(|at| at as u8);
        assert_eq!(Commitment::to(&secret).to_string(), KNOWN);
    }
}
