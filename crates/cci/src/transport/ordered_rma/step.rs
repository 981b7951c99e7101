//! What a turn of a flow comes to, and each step of it.

use super::Pushed;

/// What a turn came to.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Something was pushed or moved.
    pub moved: bool,
    /// There is more to do: when there is space, when the peer has taken more, or at once.
    pub more: bool,
    /// There is more to do, and nothing to wait for.
    pub at_once: bool,
    /// The channel is broken.
    pub broken: bool,
}

/// What one step of a turn came to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Moved,
    /// Nothing to do, or no room.
    Blocked,
    Broken,
}

impl From<Pushed> for Step {
    fn from(pushed: Pushed) -> Step {
        match pushed {
            Pushed::Yes => Step::Moved,
            Pushed::Full => Step::Blocked,
            Pushed::Broken => Step::Broken,
        }
    }
}
