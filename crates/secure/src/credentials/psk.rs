//! Pre-shared keys.

use super::error::{CredentialsError, Wrong};
use crate::keys::expand_label;
use zeroize::Zeroizing;

/// Bytes by which one side tells the other which key it means. Somebody who sees them learns that two handshakes use
/// the same key, and nothing else.
pub(crate) const KEY_ID_BYTES: usize = 8;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

const NAME_BYTES_MAX: usize = 63;

/// One key.
pub(crate) struct Key {
    pub name: Box<str>,
    pub secret: Zeroizing<[u8; KEY_BYTES]>,
    pub id: [u8; KEY_ID_BYTES],
}

/// All that this side has, in the order of the file; never none.
pub(crate) struct Keys {
    own: Key,
    others: Vec<Key>,
}

impl Keys {
    pub fn own(&self) -> &Key {
        &self.own
    }

    /// The key a peer means.
    pub fn find(&self, id: &[u8; KEY_ID_BYTES]) -> Option<&Key> {
        self.all().find(|key| key.id == *id)
    }

    /// The key of that name.
    pub fn named(&self, name: &str) -> Option<&Key> {
        self.all().find(|key| *key.name == *name)
    }

    fn all(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.own).chain(&self.others)
    }

    pub fn parse(text: &[u8]) -> Result<Keys, CredentialsError> {
        let mut keys: Vec<(usize, Key)> = Vec::new();
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line_number = at + 1;
            let Some(key) =
                parse_line(line).map_err(|wrong| CredentialsError::in_line(line_number, wrong))?
            else {
                continue;
            };
            let same = |other: &Key| other.id == key.id || other.name.eq_ignore_ascii_case(&key.name);
            if let Some((first, _)) = keys.iter().find(|(_, other)| same(other)) {
                return Err(CredentialsError::in_line(line_number, Wrong::Repeated(*first)));
            }
            keys.push((line_number, key));
        }
        let mut keys = keys.into_iter().map(|(_, key)| key);
        let Some(own) = keys.next() else { return Err(Wrong::NoKey.into()) };
        Ok(Keys { own, others: keys.collect() })
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
    let mut secret = Zeroizing::new([0; KEY_BYTES]);
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
