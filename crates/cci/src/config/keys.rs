//! Values of keys. Their ranges are in the [registry](super::registry), and were checked.

use super::syntax::{Pair, Section, Wrong};
use std::str::FromStr;

impl<'a> Section<'a> {
    pub(super) fn get(&self, key: &str) -> Option<&Pair<'a>> {
        self.pairs.iter().find(|pair| pair.key == key)
    }

    /// The number that a key has.
    pub(super) fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>, Wrong> {
        let Some(pair) = self.get(key) else { return Ok(None) };
        let number = pair.value.parse().ok();
        number.map(Some).ok_or_else(|| pair.wrong(format!("{key} = {:?} is no such number", pair.value)))
    }

    /// Whether a key of the values `on` and `off` is on.
    pub(super) fn is_on(&self, key: &str) -> Option<bool> {
        self.get(key).map(|pair| pair.value == "on")
    }
}

impl Pair<'_> {
    pub(super) fn wrong(&self, reason: String) -> Wrong {
        Wrong { line: self.line, reason }
    }
}
