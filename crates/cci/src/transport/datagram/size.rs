//! From the MTU to the largest datagram and message.

use crate::limits::MESSAGE_BYTES_MAX;
use cci_proto::limits as proto;
use cci_sys::ethernet::{ETHERNET_BYTES, HEADER_BYTES, PAYLOAD_OFFSET};

/// Least MTU of an interface or configuration, bytes: every datagram of the handshake must fit.
pub(crate) const MTU_BYTES_MIN: u32 = proto::DATAGRAM_BYTES_MIN as u32 + IPV6_UDP_BYTES;
/// Least MTU where datagrams travel in Ethernet frames of their own, bytes.
pub(crate) const FRAME_MTU_BYTES_MIN: u32 = proto::DATAGRAM_BYTES_MIN as u32 + HEADER_BYTES as u32;
/// Largest MTU that means something: an IP packet is no longer.
pub(crate) const MTU_BYTES_MAX: u32 = 65_536;
/// Where an interface does not say.
pub(crate) const MTU_BYTES_DEFAULT: u32 = 1500;
/// Larger datagrams would carry no longer message and make losses dearer: what a 9,000-byte jumbo frame takes, rounded
/// down to 8.
pub(crate) const DATAGRAM_BYTES_MAX: u16 = 8952;

const IPV4_UDP_BYTES: u32 = 20 + 8;
const IPV6_UDP_BYTES: u32 = 40 + 8;

const _: () = {
    assert!(DATAGRAM_BYTES_MAX.is_multiple_of(8) && DATAGRAM_BYTES_MAX >= proto::DATAGRAM_BYTES_MIN);
    assert!(
        proto::message_bytes_max(DATAGRAM_BYTES_MAX) >= MESSAGE_BYTES_MAX as usize,
        "the largest message fits the largest datagram"
    );
};

/// The largest datagram of an endpoint whose IP packets are `mtu_bytes` at most: a multiple of 8, as the protocol
/// wants it.
pub(crate) fn datagram_bytes_max(mtu_bytes: u32, ipv6: bool) -> u16 {
    let space = mtu_bytes.saturating_sub(if ipv6 { IPV6_UDP_BYTES } else { IPV4_UDP_BYTES });
    let space = space.clamp(proto::DATAGRAM_BYTES_MIN.into(), DATAGRAM_BYTES_MAX.into());
    // The clamp above makes it fit.
    u16::try_from(space).unwrap_or(DATAGRAM_BYTES_MAX) & !7
}

/// The largest datagram in an Ethernet frame of `frame_bytes_max`, with all headers.
//= wire.md R-ETH-4
pub(crate) fn datagram_bytes_in_frame(frame_bytes_max: usize) -> u16 {
    let space = frame_bytes_max.saturating_sub(PAYLOAD_OFFSET);
    let space = space.clamp(proto::DATAGRAM_BYTES_MIN.into(), DATAGRAM_BYTES_MAX.into());
    u16::try_from(space).unwrap_or(DATAGRAM_BYTES_MAX) & !7
}

/// The longest message on an interface of that MTU, without IP, bytes.
pub(crate) fn message_bytes_max_in_frame(mtu_bytes: u32) -> u32 {
    let frame_bytes = ETHERNET_BYTES.saturating_add(mtu_bytes as usize);
    let bytes = proto::message_bytes_max(datagram_bytes_in_frame(frame_bytes));
    u32::try_from(bytes).map_or(MESSAGE_BYTES_MAX, |bytes| bytes.min(MESSAGE_BYTES_MAX))
}

/// The longest message there (CCI-047), bytes.
pub(crate) fn message_bytes_max(mtu_bytes: u32, ipv6: bool) -> u32 {
    let bytes = proto::message_bytes_max(datagram_bytes_max(mtu_bytes, ipv6));
    u32::try_from(bytes).map_or(MESSAGE_BYTES_MAX, |bytes| bytes.min(MESSAGE_BYTES_MAX))
}

/// What to send after a datagram of `len` bytes proved too big for the interface: what that takes now, if that is less; else the
/// next of the usual sizes.
pub(super) fn smaller_than(len: usize, mtu_bytes: Option<usize>, ipv6: bool) -> u16 {
    let known = mtu_bytes.and_then(|bytes| u32::try_from(bytes).ok());
    let usual = [9000, 1500, 1400, 1280, 0];
    let sizes = known.into_iter().chain(usual).map(|mtu_bytes| datagram_bytes_max(mtu_bytes, ipv6));
    sizes.into_iter().find(|bytes| usize::from(*bytes) < len).unwrap_or(proto::DATAGRAM_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_known_links() {
        assert_eq!(datagram_bytes_max(1500, false), 1472);
        assert_eq!(datagram_bytes_max(1500, true), 1448);
        assert_eq!(datagram_bytes_max(9000, false), 8952);
        assert_eq!(datagram_bytes_max(65_536, false), DATAGRAM_BYTES_MAX);
        assert_eq!(datagram_bytes_max(0, false), proto::DATAGRAM_BYTES_MIN);
        assert_eq!(smaller_than(8952, Some(1500), false), 1472);
        assert_eq!(smaller_than(1472, Some(1500), false), 1368);
        assert_eq!(smaller_than(1472, None, false), 1368);
        assert_eq!(smaller_than(0, None, true), proto::DATAGRAM_BYTES_MIN);
        assert_eq!(message_bytes_max(65_536, true), MESSAGE_BYTES_MAX);
        assert_eq!(datagram_bytes_in_frame(1514), 1480);
        assert_eq!(datagram_bytes_in_frame(9014), DATAGRAM_BYTES_MAX);
        assert_eq!(message_bytes_max_in_frame(FRAME_MTU_BYTES_MIN), 1152 - 56);
        assert_eq!(message_bytes_max_in_frame(9000), MESSAGE_BYTES_MAX);
    }
}
