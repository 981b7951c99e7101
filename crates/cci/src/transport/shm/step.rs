//! The arguments of a step of a handshake.

use super::budget::Budget;
use super::common::Common;
use super::links::Links;
use crate::engine::core::Core;

/// What a step of a handshake needs beside its client or server: the links, what they share, and the available memory.
pub(super) struct Step<'a> {
    pub links: &'a mut Links,
    pub common: &'a mut Common,
    pub core: &'a mut Core,
    pub budget: Budget,
}
