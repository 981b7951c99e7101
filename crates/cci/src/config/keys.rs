//! Values of keys, and what to say of those that make no sense.

use super::syntax::{Pair, Section, Wrong};
use std::str::FromStr;

/// A number of the type asked for that `fits`; `what` tells what to write.
pub(super) fn number<T: FromStr>(pair: &Pair<'_>, what: &str, fits: impl Fn(&T) -> bool) -> Result<T, Wrong> {
    match pair.value.parse() {
        Ok(number) if fits(&number) => Ok(number),
        _ => Err(pair.wrong(format!("{} = {:?}: write {what}", pair.key, pair.value))),
    }
}

impl Section<'_> {
    pub(super) fn get(&self, key: &str) -> Option<&Pair<'_>> {
        self.pairs.iter().find(|pair| pair.key == key)
    }
}

impl Pair<'_> {
    pub(super) fn wrong(&self, reason: String) -> Wrong {
        Wrong { line: self.line, reason }
    }
}

/// `on` or `off`.
pub(super) fn on_off(pair: &Pair<'_>) -> Result<bool, Wrong> {
    match pair.value {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(pair.wrong(format!("{} = {other:?}: write on or off", pair.key))),
    }
}
