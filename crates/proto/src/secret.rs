//! What is derived from the endpoint's secret: nonces, cookies, first sequence numbers.
//!
//! SipHash is a keyed function that someone who does not see our packets cannot foretell. Against someone who
//! does see them, only the authenticated encryption of a later version helps.

use std::hash::{BuildHasher, Hasher};

use siphasher::sip::{SipHasher13, SipHasher24};

use crate::{Address, Seq, Time};

/// The length of a cookie's time slot, as a power of two nanoseconds (4.3 s): a cookie is good for one to two.
const BUCKET_SHIFT: u32 = 32;

/// How long a cookie can be good at most, in nanoseconds.
pub(crate) const COOKIE_NS_MAX: u64 = 2 << BUCKET_SHIFT;

/// The time slot of a cookie made now.
pub(crate) const fn bucket(now: Time) -> u32 {
    (now.0 >> BUCKET_SHIFT) as u32
}

/// The secret, split into keys for its uses.
pub(crate) struct Secret {
    cookie_key: [u8; 16],
    nonce_key: [u8; 16],
    drawn: u64,
}

impl Secret {
    pub fn new(secret: &[u8; 32]) -> Secret {
        let [mut cookie_key, mut nonce_key] = [[0; 16]; 2];
        cookie_key.copy_from_slice(&secret[..16]);
        nonce_key.copy_from_slice(&secret[16..]);
        Secret { cookie_key, nonce_key, drawn: 0 }
    }

    //= wire.md R-HS-1
    /// A number nobody outside can guess, different every time.
    pub fn draw(&mut self) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.nonce_key);
        hasher.write_u64(self.drawn);
        self.drawn += 1;
        hasher.finish()
    }

    /// A first sequence number.
    pub fn draw_seq(&mut self) -> Seq {
        Seq(self.draw() as u32)
    }

    /// The cookie for a client.
    //= wire.md R-HS-3
    pub fn cookie(&self, from: Address, nonce: u64, bucket: u32) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.cookie_key);
        hasher.write(&from.mac_bytes());
        hasher.write(&nonce.to_le_bytes());
        hasher.write(&bucket.to_le_bytes());
        hasher.finish()
    }

    /// True if the cookie is ours, for this client, and of this time slot or the last.
    pub fn cookie_is_good(
        &self,
        from: Address,
        nonce: u64,
        bucket_named: u32,
        cookie: u64,
        now: Time,
    ) -> bool {
        bucket(now).wrapping_sub(bucket_named) <= 1 && self.cookie(from, nonce, bucket_named) == cookie
    }

    /// Hashes for tables whose keys strangers choose.
    pub fn table_hash(&mut self) -> KeyedHash {
        KeyedHash(self.draw(), self.draw())
    }
}

/// SipHash-1-3 with a secret key, and the same on every run with the same secret.
#[derive(Clone, Debug)]
pub(crate) struct KeyedHash(u64, u64);

impl KeyedHash {
    pub fn new(key: u64, more: u64) -> KeyedHash {
        KeyedHash(key, more)
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn a_cookie_is_for_one_client_and_a_while() {
        let secret = Secret::new(&[7; 32]);
        let from = Address::from("10.0.0.1:5".parse::<SocketAddr>().unwrap());
        let other = Address::from("10.0.0.1:6".parse::<SocketAddr>().unwrap());
        let now = Time(50_000_000_000);
        let cookie = secret.cookie(from, 3, bucket(now));
        assert!(secret.cookie_is_good(from, 3, bucket(now), cookie, now.plus(COOKIE_NS_MAX / 2)));
        assert!(!secret.cookie_is_good(from, 3, bucket(now), cookie, now.plus(COOKIE_NS_MAX)));
        assert!(!secret.cookie_is_good(other, 3, bucket(now), cookie, now));
        assert!(!secret.cookie_is_good(from, 4, bucket(now), cookie, now));
        assert!(!secret.cookie_is_good(from, 3, bucket(now) + 1, cookie, now));
    }
}
