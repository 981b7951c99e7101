//! Proof of an address without remembering anything: a MAC of it, and of the time.

use super::wire::Cookie;
use ring::hmac;
use ring::rand::SystemRandom;
use std::hash::{Hash, Hasher};

/// A cookie is good for its slot and the next, each of 2^32 ns: 4.3 s.
const SLOT_BITS: u32 = 32;

pub(super) struct Jar {
    key: Option<hmac::Key>,
}

/// Everything that distinguishes one address from another, into the MAC.
struct Into<'c>(&'c mut hmac::Context);

impl Hasher for Into<'_> {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}

impl Jar {
    /// Without randomness there are no cookies, and nobody gets in.
    pub fn new() -> Jar {
        Jar { key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok() }
    }

    fn mac(&self, address: impl Hash, id: u64, slot: u32) -> Option<[u8; 16]> {
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        address.hash(&mut Into(&mut context));
        context.update(&id.to_le_bytes());
        context.update(&slot.to_le_bytes());
        context.sign().as_ref().first_chunk().copied()
    }

    fn slot(now_ns: u64) -> u32 {
        // It wraps; a cookie that old is not around any more.
        (now_ns >> SLOT_BITS) as u32
    }

    pub fn give(&self, address: impl Hash, id: u64, now_ns: u64) -> Option<Cookie> {
        let slot = Jar::slot(now_ns);
        Some(Cookie { slot, mac: self.mac(address, id, slot)? })
    }

    /// It was given to that address for that handshake, not long ago.
    //= wire.md R-SEC-4
    pub fn is_ours(&self, cookie: Cookie, address: impl Hash, id: u64, now_ns: u64) -> bool {
        if Jar::slot(now_ns).wrapping_sub(cookie.slot) > 1 {
            return false;
        }
        self.mac(address, id, cookie.slot).is_some_and(|mac| is_same(&mac, &cookie.mac))
    }
}

/// Compares without telling by the time taken how much of it was right.
pub(super) fn is_same<const N: usize>(one: &[u8; N], other: &[u8; N]) -> bool {
    one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_for_one_address_one_handshake_and_some_seconds() {
        let jar = Jar::new();
        let now = 10 << SLOT_BITS;
        let cookie = jar.give("here", 7, now).unwrap();
        assert!(jar.is_ours(cookie, "here", 7, now) && jar.is_ours(cookie, "here", 7, 11 << SLOT_BITS));
        for wrong in [
            jar.is_ours(cookie, "there", 7, now),
            jar.is_ours(cookie, "here", 8, now),
            jar.is_ours(cookie, "here", 7, 12 << SLOT_BITS),
            jar.is_ours(cookie, "here", 7, 9 << SLOT_BITS),
            Jar::new().is_ours(cookie, "here", 7, now),
        ] {
            assert!(!wrong);
        }
    }
}
