//! What a peer has begun here and must end itself.

use crate::{Seq, Time};

/// What the peer owed when it was looked at last.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Unended {
    /// The next look; `FAR` while nothing was seen to be owed.
    pub due: Time,
    /// The bundle that was missing before others that had come, and our epoch then.
    pub missing: Option<(Seq, u16)>,
    /// The peer had announced that it closes.
    pub closing: bool,
}

impl Unended {
    pub const NONE: Unended = Unended { due: Time::FAR, missing: None, closing: false };
}
