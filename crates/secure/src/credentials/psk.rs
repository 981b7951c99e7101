//! Pre-shared keys.

use crate::credentials_error::{CredentialsError, Wrong};
use crate::keys::expand_label;
use ring::hmac;
use std::collections::HashMap;
use zeroize::Zeroizing;

/// Bytes by which one side shows the other which key it means. Somebody who sees them learns that two handshakes use
/// the same key, and nothing else.
pub(crate) const KEY_ID_BYTES: usize = 8;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

/// Bytes of [`Key::cookie_tag`].
pub(crate) const COOKIE_TAG_BYTES: usize = 16;

const NAME_BYTES_MAX: usize = 63;

/// One key. Where it is moved to, its secret is not: the only copy is wiped with the last that uses it.
pub(crate) struct Key {
    pub name: Box<str>,
    pub secret: Box<Zeroizing<[u8; KEY_BYTES]>>,
    pub id: [u8; KEY_ID_BYTES],
}

impl Key {
    /// Shows that whoever gives that cookie for that handshake has the key.
    pub fn cookie_tag(&self, handshake_id: u64, cookie: &[u8]) -> [u8; COOKIE_TAG_BYTES] {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        expand_label(&self.secret, b"cci cookie", b"", &mut key[..]);
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &key[..]));
        context.update(&handshake_id.to_le_bytes());
        context.update(cookie);
        context.sign().as_ref().first_chunk().copied().unwrap_or([0; COOKIE_TAG_BYTES])
    }
}

/// All that this side has, in the order of the file; never none.
pub(crate) struct Keys {
    own: Key,
    others: Vec<Key>,
    /// Where each key is: 0 for the own one, one more than its place among the others. Strangers have keys looked up.
    by_id: HashMap<[u8; KEY_ID_BYTES], usize>,
}

impl Keys {
    pub fn own(&self) -> &Key {
        &self.own
    }

    /// The key a peer means.
    pub fn find(&self, id: &[u8; KEY_ID_BYTES]) -> Option<&Key> {
        match self.by_id.get(id)?.checked_sub(1) {
            None => Some(&self.own),
            Some(entry) => self.others.get(entry),
        }
    }

    /// The key of that name.
    pub fn named(&self, name: &str) -> Option<&Key> {
        std::iter::once(&self.own).chain(&self.others).find(|key| key.name.eq_ignore_ascii_case(name))
    }

    pub fn parse(text: &[u8]) -> Result<Keys, CredentialsError> {
        let mut keys = Vec::new();
        let (mut by_id, mut lines) = (HashMap::new(), Vec::new());
        let mut by_name: HashMap<String, usize> = HashMap::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line_number = at + 1;
            let Some(key) =
                parse_line(line).map_err(|wrong| CredentialsError::in_line(line_number, wrong))?
            else {
                continue;
            };
            let entry = keys.len();
            let same = by_id.insert(key.id, entry).or(by_name.insert(key.name.to_ascii_lowercase(), entry));
            if let Some(first) = same.and_then(|first| lines.get(first)) {
                return Err(CredentialsError::in_line(line_number, Wrong::Repeated(*first)));
            }
            keys.push(key);
            lines.push(line_number);
        }
        let mut keys = keys.into_iter();
        let Some(own) = keys.next() else { return Err(Wrong::NoKey.into()) };
        Ok(Keys { own, others: keys.collect(), by_id })
    }
}

/// `None`: nothing but a comment.
fn parse_line(line: &[u8]) -> Result<Option<Key>, Wrong> {
    let line = line.split(|byte| *byte == b'#').next().unwrap_or_default().trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let mut parts = line.splitn(2, |byte| *byte == b'=');
    let (Some(name), Some(digits)) = (parts.next(), parts.next()) else { return Err(Wrong::NotAKeyLine) };
    let name = std::str::from_utf8(name.trim_ascii()).map_err(|_| Wrong::BadName)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
        return Err(Wrong::BadName);
    }
    // In its last place from the beginning.
    let mut secret = Box::new(Zeroizing::new([0; KEY_BYTES]));
    let read = base16ct::mixed::decode(digits.trim_ascii(), &mut secret[..]).map_err(|_| Wrong::BadKey)?;
    if read.len() != KEY_BYTES {
        return Err(Wrong::BadKey);
    }
    if secret.windows(2).all(|pair| matches!(pair, [a, b] if a == b)) {
        return Err(Wrong::WeakKey);
    }
    let mut id = [0; KEY_ID_BYTES];
    expand_label(&secret, b"cci key id", b"", &mut id);
    Ok(Some(Key { name: name.into(), secret, id }))
}
