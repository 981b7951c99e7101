//! A connection as the engine keeps it.

use crate::connection::DisconnectReason;
use crate::limits;
use crate::options::Attribute;

/// Life of a connection as the program sees it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConnState {
    /// `connect` was called; no answer yet.
    Connecting,
    /// `accept` was called; the peer has not confirmed yet.
    Accepting,
    /// Messages flow.
    Open,
    /// The peer is gone: sends are refused until the program disconnects.
    PeerGone,
    /// The peer is gone, and nothing more comes from it: the transport is to release the connection.
    Ended,
    /// The transport is releasing it.
    Releasing,
    /// The transport has released it; the event that reports it to the program waits.
    Released,
    /// The program has taken the event, and still has the handle.
    Reported,
    /// The program disconnected; what was sent before is still on its way.
    Closing,
}

/// A connection in the table: what the engine needs. 24 bytes with the table's own, for which it is aligned to 4 bytes only.
#[repr(Rust, packed(4))]
pub(crate) struct Conn {
    /// The program's context, given at connect or accept.
    pub context: u64,
    /// The transport's name for it.
    pub link: u64,
    /// The longest message, in [`MSS_BITS`]; above them, why the connection ended.
    size_and_end: u16,
    pub attribute: Attribute,
    pub state: ConnState,
}

const _: () = assert!(size_of::<Conn>() <= 20, "idle connections are counted in bytes");

const MSS_BITS: u32 = 14;
const MSS_MASK: u16 = (1 << MSS_BITS) - 1;
const _: () = assert!(limits::MESSAGE_BYTES_MAX <= MSS_MASK as u32, "a message's length has 14 bits");

impl Conn {
    /// One that is being made.
    pub(super) const fn new(context: u64, attribute: Attribute, state: ConnState) -> Conn {
        Conn { context, link: u64::MAX, size_and_end: 0, attribute, state }
    }

    /// The longest message, bytes; 0 until the connection is open.
    #[inline]
    pub const fn mss(&self) -> u32 {
        (self.size_and_end & MSS_MASK) as u32
    }

    pub fn set_mss(&mut self, mss: u32) {
        debug_assert!(mss <= limits::MESSAGE_BYTES_MAX);
        self.size_and_end = self.size_and_end & !MSS_MASK | mss.min(u32::from(MSS_MASK)) as u16;
    }

    /// Why it ended, from [`ConnState::Ended`] on.
    pub(super) const fn reason(&self) -> DisconnectReason {
        match self.size_and_end >> MSS_BITS {
            0 => DisconnectReason::Closed,
            1 => DisconnectReason::Died,
            2 => DisconnectReason::TimedOut,
            _ => DisconnectReason::Refused,
        }
    }

    pub(super) const fn set_reason(&mut self, reason: DisconnectReason) {
        let code = match reason {
            DisconnectReason::Closed => 0,
            DisconnectReason::Died => 1,
            DisconnectReason::TimedOut => 2,
            DisconnectReason::Refused => 3,
        };
        self.size_and_end = self.size_and_end & MSS_MASK | code << MSS_BITS;
    }
}
