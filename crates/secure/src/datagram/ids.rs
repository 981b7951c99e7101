//! Ids of the handshakes that this side begins: nobody can foresee them, and the same secret gives the same ones.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Apart from whatever else the same secret is used for.
const LABEL: &[u8] = b"cci handshake id";

/// Makes one id after the other.
pub(super) struct Ids {
    key: Option<hmac::Key>,
    made: u64,
}

impl Ids {
    pub fn new(secret: &[u8; 32]) -> Ids {
        Ids { key: Some(hmac::Key::new(hmac::HMAC_SHA256, secret)), made: 0 }
    }

    /// By the system's random numbers. Without them there are no ids, and nobody is asked.
    pub fn random() -> Ids {
        let mut secret = [0; 32];
        match SystemRandom::new().fill(&mut secret) {
            Ok(()) => Ids::new(&secret),
            Err(_) => Ids { key: None, made: 0 },
        }
    }

    /// One that was not given before.
    pub fn next(&mut self) -> Option<u64> {
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        context.update(LABEL);
        context.update(&self.made.to_le_bytes());
        self.made += 1;
        context.sign().as_ref().first_chunk().copied().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_the_secret_alone() {
        let ids = |mut made: Ids| [made.next().unwrap(), made.next().unwrap()];
        let once = ids(Ids::new(&[1; 32]));
        assert_eq!(once, ids(Ids::new(&[1; 32])));
        assert_ne!(once, ids(Ids::new(&[2; 32])));
        assert_ne!(once[0], once[1]);
        assert_ne!(ids(Ids::random()), ids(Ids::random()));
    }
}
