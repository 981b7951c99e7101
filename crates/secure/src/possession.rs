//! Proof that both ends of a stream know one secret, which neither shows.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Of a nonce, bytes.
pub const NONCE_BYTES: usize = 16;
/// Of a proof, bytes.
pub const PROOF_BYTES: usize = 32;

/// Who proves something.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The side that dialled the stream.
    Dialler,
    /// The side that was dialled.
    Acceptor,
}

/// What is proved about: which secret is meant, and what each side has drawn for this stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Names the secret to the side that was dialled.
    pub key: u64,
    /// Drawn by the side that dialled.
    pub dialler: [u8; NONCE_BYTES],
    /// Drawn by the side that was dialled.
    pub acceptor: [u8; NONCE_BYTES],
}

impl Challenge {
    fn context(&self, secret: &[u8], by: Prover) -> Hmac<Sha256> {
        let Ok(mut context) = Hmac::new_from_slice(secret) else {
            unreachable!("HMAC takes keys of any length");
        };
        context.update(match by {
            Prover::Dialler => b"CCI TCP dialler\0",
            Prover::Acceptor => b"CCI TCP acceptor",
        });
        context.update(&self.key.to_le_bytes());
        context.update(&self.dialler);
        context.update(&self.acceptor);
        context
    }

    /// What shows that `by` knows the secret.
    //= wire.md R-TCP-18
    pub fn prove(&self, secret: &[u8], by: Prover) -> [u8; PROOF_BYTES] {
        self.context(secret, by).finalize().into_bytes().into()
    }

    /// Whether this shows that `by` knows the secret. Takes the same time whatever is wrong.
    //= wire.md R-TCP-18
    pub fn is_proved(&self, secret: &[u8], by: Prover, proof: &[u8; PROOF_BYTES]) -> bool {
        let differing = self.prove(secret, by).iter().zip(proof).fold(0, |bits, (a, b)| bits | (a ^ b));
        differing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: Challenge = Challenge { key: 7, dialler: [1; 16], acceptor: [2; 16] };

    #[test]
    fn only_who_knows_the_secret_proves_it_and_only_once() {
        let secret = [9; 16];
        for by in [Prover::Dialler, Prover::Acceptor] {
            let proof = CHALLENGE.prove(&secret, by);
            assert!(CHALLENGE.is_proved(&secret, by, &proof));
            assert!(!CHALLENGE.is_proved(&[8; 16], by, &proof));
            let other = if by == Prover::Dialler { Prover::Acceptor } else { Prover::Dialler };
            assert!(!CHALLENGE.is_proved(&secret, other, &proof), "it is not given back to who gave it");
            let others = [
                Challenge { key: 8, ..CHALLENGE },
                Challenge { dialler: [3; 16], ..CHALLENGE },
                Challenge { acceptor: [3; 16], ..CHALLENGE },
            ];
            assert!(others.iter().all(|other| !other.is_proved(&secret, by, &proof)));
            for bit in 0..8 * PROOF_BYTES {
                let mut wrong = proof;
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert!(!CHALLENGE.is_proved(&secret, by, &wrong));
            }
        }
    }

    /// As another implementation computes it: HMAC-SHA256 with 16 times 9 as the key, of `CCI TCP dialler`, a zero, the key 7 as
    /// 8 bytes, 16 times 1, 16 times 2.
    #[test]
    fn the_proof_is_that_of_the_wire_format() {
        let proof = CHALLENGE.prove(&[9; 16], Prover::Dialler);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "e6e1db94fb0919d617f5b963827fcca6b373435cb856fb8cd8687efb56315bf5");
    }
}
