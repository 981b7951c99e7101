//! Which of a group's datagrams an endpoint has sent itself.

use crate::error::SysError;
use cci_proto::limits::GROUP_SENDER_COUNT_BITS;
use cci_sys::random;

/// Whose datagrams are ours.
#[derive(Copy, Clone, Debug)]
pub(super) struct OwnSender {
    /// Random, but for the count in the lowest bits, which is zero.
    sender: u64,
    /// What we send to a group that we have joined is for us, too.
    pub receives_own: bool,
}

impl OwnSender {
    /// With a number that nobody else has drawn.
    pub fn new(receives_own: bool) -> Result<OwnSender, SysError> {
        Ok(OwnSender { sender: random::u64()? << GROUP_SENDER_COUNT_BITS, receives_own })
    }

    //= wire.md R-MC-3
    pub fn is(self, sender: u64) -> bool {
        (sender ^ self.sender) >> GROUP_SENDER_COUNT_BITS == 0
    }

    /// The sender that begins to number its datagrams for the `count`th time.
    pub fn sender(self, count: u16) -> u64 {
        self.sender | u64::from(count)
    }
}
