//! Keys that seal and open, and how they follow each other.

use crate::limits::{TAG_BYTES, UpdateLimits};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk};
use std::hint::black_box;
use zeroize::Zeroizing;

/// Bytes of a direction's secret.
pub(crate) const SECRET_BYTES: usize = 32;
const IV_BYTES: usize = 12;
const KEY_BYTES: usize = 32;

/// A direction's secret, wiped when it is dropped.
pub(crate) type Secret = Zeroizing<[u8; SECRET_BYTES]>;

struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label of TLS 1.3 (RFC 8446 7.1) with SHA-256. `out` is at most 255 bytes, `label` and `context` at most
/// 200 each.
pub(crate) fn expand_label(secret: &[u8; SECRET_BYTES], label: &[u8], context: &[u8], out: &mut [u8]) {
    assert!(
        out.len() < 256 && label.len() <= 200 && context.len() <= 200,
        "lengths are constants of this crate"
    );
    let prefix = b"tls13 ";
    let label_len = u8::try_from(prefix.len() + label.len()).unwrap_or(u8::MAX);
    let context_len = u8::try_from(context.len()).unwrap_or(u8::MAX);
    let out_len = u16::try_from(out.len()).unwrap_or(u16::MAX).to_be_bytes();
    let info: [&[u8]; 6] = [&out_len, &[label_len], prefix, label, &[context_len], context];
    let filled =
        Prk::new_less_safe(HKDF_SHA256, secret).expand(&info, Len(out.len())).and_then(|okm| okm.fill(out));
    assert!(filled.is_ok(), "255 bytes are less than HKDF-SHA256 can give");
}

//= wire.md R-SEC-9
/// One epoch of one direction.
struct Epoch {
    key: LessSafeKey,
    iv: Zeroizing<[u8; IV_BYTES]>,
}

/// `ring` leaves a key where it was: another one is put in its place.
impl Drop for Epoch {
    fn drop(&mut self) {
        if let Ok(blank) = UnboundKey::new(&AES_256_GCM, &[0; KEY_BYTES]) {
            self.key = LessSafeKey::new(blank);
        }
        // So that nobody finds that what is overwritten is not read any more.
        black_box(&mut self.key);
    }
}

impl Epoch {
    fn new(secret: &Secret) -> Epoch {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let mut iv = Zeroizing::new([0; IV_BYTES]);
        expand_label(secret, b"cci key", b"", &mut key[..]);
        expand_label(secret, b"cci iv", b"", &mut iv[..]);
        let key = match UnboundKey::new(&AES_256_GCM, &key[..]) {
            Ok(key) => LessSafeKey::new(key),
            Err(_) => unreachable!("AES-256-GCM takes keys of {KEY_BYTES} bytes"),
        };
        Epoch { key, iv }
    }

    fn nonce(&self, counter: u64) -> Nonce {
        let mut nonce = *self.iv;
        let (_, low) = nonce.split_at_mut(IV_BYTES - size_of::<u64>());
        for (byte, of_counter) in low.iter_mut().zip(counter.to_be_bytes()) {
            *byte ^= of_counter;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// What was sealed, or nothing: then `sealed` holds no plaintext.
    fn open<'d>(&self, counter: u64, head: &[u8], sealed: &'d mut [u8]) -> Option<&'d mut [u8]> {
        self.key.open_in_place(self.nonce(counter), Aad::from(head), sealed).ok()
    }
}

/// The secret of the epoch after that of `secret`, from which the one before can't be had.
fn next_secret(secret: &Secret) -> Secret {
    let mut next = Secret::new([0; SECRET_BYTES]);
    expand_label(secret, b"cci ku", b"", &mut next[..]);
    next
}

/// Seals what this side sends. Each record has a counter that never comes again under the same key.
pub(crate) struct Sealer {
    secret: Secret,
    epoch: Epoch,
    number: u64,
    counter: u64,
    step_at_counter: u64,
    step_at_ns: u64,
    /// The peer has sent something since the last step, so it follows.
    is_answered: bool,
    limits: UpdateLimits,
}

impl Sealer {
    pub fn new(secret: Secret, now_ns: u64, limits: UpdateLimits) -> Sealer {
        let epoch = Epoch::new(&secret);
        let mut sealer = Sealer {
            secret,
            epoch,
            number: 0,
            counter: 0,
            step_at_counter: 0,
            step_at_ns: 0,
            is_answered: false,
            limits,
        };
        sealer.set_limits(now_ns);
        sealer
    }

    fn set_limits(&mut self, now_ns: u64) {
        self.step_at_counter = self.counter.saturating_add(self.limits.records.max(1));
        self.step_at_ns = now_ns.saturating_add(self.limits.age_ns);
        self.is_answered = false;
    }

    /// Something came that the peer has sealed, or nothing can be lost on the way to it: the age of a key counts. Otherwise this
    /// side might be two keys ahead of a peer that has got nothing for a while, and that could then open nothing any more.
    #[inline]
    pub fn answered(&mut self) {
        self.is_answered = true;
    }

    /// Which epoch and counter the next record has; steps to the next epoch if it is time.
    pub fn next(&mut self, now_ns: u64) -> (u64, u64) {
        if self.counter >= self.step_at_counter || self.is_answered && now_ns >= self.step_at_ns {
            self.secret = next_secret(&self.secret);
            self.epoch = Epoch::new(&self.secret);
            self.number += 1;
            self.set_limits(now_ns);
        }
        (self.number, self.counter)
    }

    /// Seals `body` in place as the record that [`Sealer::next`] named, and gives its tag.
    pub fn seal(&mut self, head: &[u8], body: &mut [u8]) -> [u8; TAG_BYTES] {
        let nonce = self.epoch.nonce(self.counter);
        self.counter += 1;
        match self.epoch.key.seal_in_place_separate_tag(nonce, Aad::from(head), body) {
            Ok(tag) => {
                let mut out = [0; TAG_BYTES];
                out.copy_from_slice(tag.as_ref());
                out
            }
            Err(_) => unreachable!("a record is far shorter than what AES-GCM takes"),
        }
    }
}

/// Opens what the peer sealed: this epoch, the one before, and the next, to which it goes once something was sealed so.
pub(crate) struct Opener {
    /// Of the next epoch.
    next_secret: Secret,
    before: Option<Epoch>,
    current: Epoch,
    next: Epoch,
    number: u64,
}

impl Opener {
    pub fn new(secret: &Secret) -> Opener {
        let next_secret = next_secret(secret);
        let (current, next) = (Epoch::new(secret), Epoch::new(&next_secret));
        Opener { next_secret, before: None, current, next, number: 0 }
    }

    /// The number of the current epoch.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Opens `sealed` (body and tag) in place. `epoch` is the low bits of its number, of which `mask` says how many.
    /// Nothing: not sealed by the peer in one of these epochs.
    pub fn open<'d>(
        &mut self,
        epoch: u64,
        mask: u64,
        counter: u64,
        head: &[u8],
        sealed: &'d mut [u8],
    ) -> Option<&'d mut [u8]> {
        let ahead = epoch.wrapping_sub(self.number) & mask;
        if ahead == 0 {
            return self.current.open(counter, head, sealed);
        }
        if ahead == mask {
            return self.before.as_ref()?.open(counter, head, sealed);
        }
        if ahead != 1 {
            return None;
        }
        let body = self.next.open(counter, head, sealed)?;
        self.next_secret = next_secret(&self.next_secret);
        let after = Epoch::new(&self.next_secret);
        self.before = Some(std::mem::replace(&mut self.current, std::mem::replace(&mut self.next, after)));
        self.number += 1;
        Some(body)
    }

    /// What was sealed by the key of the epoch before can still be opened.
    pub fn has_before(&self) -> bool {
        self.before.is_some()
    }

    /// Drops the key of the epoch before: whatever was sealed by it has come, or is lost.
    pub fn forget_before(&mut self) {
        self.before = None;
    }
}

#[cfg(test)]
mod tests;
