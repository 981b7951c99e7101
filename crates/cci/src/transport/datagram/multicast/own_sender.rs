//! Recognises the datagrams of a group that the endpoint has sent itself.

use crate::error::SysError;
use cci_proto::limits::GROUP_SENDER_COUNT_BITS;
use cci_sys::random;

/// The number that identifies an endpoint's own datagrams.
#[derive(Copy, Clone, Debug)]
pub(super) struct OwnSender {
    /// It is random, except for the lowest bits, which are for a count and are zero.
    sender: u64,
    /// Whether the endpoint receives what it sends itself to a group that it has joined.
    pub receives_own: bool,
}

impl OwnSender {
    /// Draws a number that nobody else has.
    pub fn new(receives_own: bool) -> Result<OwnSender, SysError> {
        Ok(OwnSender { sender: random::u64()? << GROUP_SENDER_COUNT_BITS, receives_own })
    }

    /// Whether a sender is this endpoint.
    //= wire.md R-MC-3
    pub fn is(self, sender: u64) -> bool {
        (sender ^ self.sender) >> GROUP_SENDER_COUNT_BITS == 0
    }

    /// The sender number of outlet number `count` of this endpoint.
    pub fn sender(self, count: u16) -> u64 {
        self.sender | u64::from(count)
    }
}
