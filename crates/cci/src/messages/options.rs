//! How much a messenger takes, and what it counts.

use crate::error::CreateError;
use crate::limits;

/// Limits of a [`Messenger`](super::Messenger). The defaults suit most programs.
///
/// ```
/// // Every message that is too long for one message of the endpoint is offered first.
/// let limits = cci::messages::Limits::default().whole_bytes_max(0);
/// ```
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest message that comes whole, in memory that the library lends: 1 MiB. Longer ones are offered first. No more than
    /// `lent_bytes_max`.
    pub whole_bytes_max: u64,
    /// The longest message that is taken at all: 1 TiB. Longer ones are refused without asking the program.
    pub message_bytes_max: u64,
    /// Cap on the memory that the library lends for long messages: 64 MiB. When it is reached, messages wait until the program gives
    /// some back. While the incoming messages of one connection hold more of it than they leave, further ones of that connection wait.
    pub lent_bytes_max: u64,
    /// Cap on copies of long messages that are sent from slices: 64 MiB. When it is reached, such sends return `WouldBlock`.
    pub staged_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            whole_bytes_max: limits::WHOLE_BYTES_DEFAULT,
            message_bytes_max: limits::LONG_BYTES_DEFAULT,
            lent_bytes_max: limits::LENT_BYTES_DEFAULT,
            staged_bytes_max: limits::STAGED_BYTES_DEFAULT,
        }
    }
}

impl Limits {
    /// These limits with another [`whole_bytes_max`](field@Limits::whole_bytes_max).
    #[must_use]
    pub fn whole_bytes_max(mut self, bytes: u64) -> Limits {
        self.whole_bytes_max = bytes;
        self
    }

    /// These limits with another [`message_bytes_max`](field@Limits::message_bytes_max).
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: u64) -> Limits {
        self.message_bytes_max = bytes;
        self
    }

    /// These limits with another [`lent_bytes_max`](field@Limits::lent_bytes_max).
    #[must_use]
    pub fn lent_bytes_max(mut self, bytes: u64) -> Limits {
        self.lent_bytes_max = bytes;
        self
    }

    /// These limits with another [`staged_bytes_max`](field@Limits::staged_bytes_max).
    #[must_use]
    pub fn staged_bytes_max(mut self, bytes: u64) -> Limits {
        self.staged_bytes_max = bytes;
        self
    }

    /// The longest reply that is taken: half of [`lent_bytes_max`](field@Limits::lent_bytes_max), so that one server can't have all of it, or
    /// `whole_bytes_max`, if that is more.
    pub fn reply_bytes_max(&self) -> u64 {
        self.whole_bytes_max.max(self.lent_bytes_max / 2)
    }

    /// Checks that the limits fit each other.
    pub(super) fn check(&self) -> Result<(), CreateError> {
        if self.whole_bytes_max <= self.lent_bytes_max {
            return Ok(());
        }
        let reason = format!("{} is more than lent_bytes_max, {}", self.whole_bytes_max, self.lent_bytes_max);
        Err(CreateError::BadOption { name: "whole_bytes_max", reason })
    }
}

/// What a [`Messenger`](super::Messenger) has counted, and the memory that it holds beside its endpoint's.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Long messages that the peers have received.
    pub long_sent: u64,
    /// Long messages that were received here.
    pub long_received: u64,
    /// Long messages, sent or received, that ended otherwise.
    pub long_failed: u64,
    /// Silent sends that failed.
    pub silent_failed: u64,
    /// Times that a peer broke the protocol, which ended its connection.
    pub faults: u64,
    /// Answers and cancellations for messages that had ended already.
    pub late: u64,
    /// Connection requests that were refused because they came from no messenger.
    pub strangers: u64,
    /// Bytes lent to the program, or being received to be lent.
    pub lent_bytes: u64,
    /// Bytes kept to be lent.
    pub idle_lent_bytes: u64,
    /// Bytes of copies of messages that are being sent.
    pub staged_bytes: u64,
    /// Bytes kept for such copies.
    pub idle_staged_bytes: u64,
    /// Regions that stay registered for one peer each until the next message: of such copies, and of the program's own memory that a
    /// peer on the same host maps.
    pub kept_regions: u64,
}
