//! Values of keys. The [registry](super::registry) has their ranges, which are checked before.

use super::syntax::{Pair, Section, Wrong};
use std::str::FromStr;

impl<'a> Section<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&Pair<'a>> {
        self.pairs.iter().find(|pair| pair.key == key)
    }

    /// The value of a key that is a number.
    pub(super) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, Wrong> {
        let Some(pair) = self.get(key) else { return Ok(None) };
        let number = pair.value.parse().ok();
        number.map(Some).ok_or_else(|| pair.wrong(format!("{key} = {:?} is no such number", pair.value)))
    }

    /// Whether a key with the values `on` and `off` is on.
    pub(super) fn is_on(&self, key: &str) -> Option<bool> {
        self.get(key).map(|pair| pair.value == "on")
    }
}

impl Pair<'_> {
    pub(super) fn wrong(&self, reason: String) -> Wrong {
        Wrong { line: self.line, reason }
    }
}
