//! How a bundle is cut that is larger than what the way takes.

use crate::Seq;

/// How a bundle is cut.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Of each datagram.
    pub size: u16,
    /// To find out whether that size passes: the last datagram is filled up to it.
    pub is_trial: bool,
}

/// A bundle for whose last parts the carrier had no room.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Rest {
    pub seq: Seq,
    pub cut: Cut,
    /// The first part that has not left.
    pub next: u16,
}
