//! What a step of a handshake works with.

use super::budget::Budget;
use super::common::Common;
use super::links::Links;
use crate::engine::core::Core;

/// What the steps of a handshake need beside the client or the server: the links, what rides on them, and how much memory there is.
pub(super) struct Step<'a> {
    pub links: &'a mut Links,
    pub common: &'a mut Common,
    pub core: &'a mut Core,
    pub budget: Budget,
}
