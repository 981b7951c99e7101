//! The description of a key of a configuration file: where it has a meaning, and which values it takes.

use crate::device::TransportKind;

/// A key for some transports. A key whose values differ between transports has a row for each.
pub(super) struct Key {
    pub name: &'static str,
    pub transports: &'static [TransportKind],
    pub values: Values,
    /// What the key means, in one line. It completes the sentence "it is …".
    pub meaning: &'static str,
    /// The key that this one narrows. It is an error without that key.
    pub needs: Option<Needs>,
    /// Why the other transports do not have it, if that is not obvious.
    pub why_not_others: Option<&'static str>,
}

/// The values that may be written.
pub(super) enum Values {
    /// A whole number in this range.
    Number { min: u64, max: u64 },
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Text that the transport's own code parses: an address, a name, a path, a list.
    Text,
}

/// Another key of the section, which must have one of these values.
pub(super) struct Needs {
    pub key: &'static str,
    pub values: &'static [&'static str],
}

/// A key of CCI 2.x that has no effect here. It is accepted, and `cci info` reports it.
pub(super) struct Inert {
    pub name: &'static str,
    /// The transports for which it is accepted.
    pub transports: &'static [TransportKind],
    /// What the library does instead.
    pub instead: &'static str,
}

/// A key under its old name, which is read for one more release.
pub(super) struct Renamed {
    pub old: &'static str,
    pub new: &'static str,
    /// The last version that reads the old name.
    pub until: &'static str,
}
