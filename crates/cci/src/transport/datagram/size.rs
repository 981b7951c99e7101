//! How large datagrams and messages may be, by the MTU.

use crate::limits::MESSAGE_BYTES_MAX;
use cci_proto::limits as proto;
use cci_sys::ethernet::{ETHERNET_BYTES, HEADER_BYTES, PAYLOAD_OFFSET};

/// The least MTU of an interface or configuration, bytes. Every datagram of the handshake must fit.
pub(crate) const MTU_BYTES_MIN: u32 = proto::DATAGRAM_BYTES_MIN as u32 + IPV6_UDP_BYTES;
/// The least MTU where datagrams travel in Ethernet frames without IP, bytes.
pub(crate) const FRAME_MTU_BYTES_MIN: u32 = proto::DATAGRAM_BYTES_MIN as u32 + HEADER_BYTES as u32;
/// The largest MTU that makes sense, bytes: no IP packet is longer.
pub(crate) const MTU_BYTES_MAX: u32 = 65_536;
/// The MTU to be assumed where the interface is not known, bytes.
pub(crate) const MTU_BYTES_DEFAULT: u32 = 1500;
/// The largest datagram, bytes: the content of a jumbo frame of 9,000 bytes, rounded down to a multiple of 8. The longest message
/// fits into it. With larger datagrams each loss would cost more.
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

/// The largest datagram in an IP packet of `mtu_bytes`, bytes: a multiple of 8, as the protocol wants it.
pub(crate) fn datagram_bytes_max(mtu_bytes: u32, ipv6: bool) -> u16 {
    let space = mtu_bytes.saturating_sub(if ipv6 { IPV6_UDP_BYTES } else { IPV4_UDP_BYTES });
    let space = space.clamp(proto::DATAGRAM_BYTES_MIN.into(), DATAGRAM_BYTES_MAX.into());
    // The clamp above makes it fit.
    u16::try_from(space).unwrap_or(DATAGRAM_BYTES_MAX) & !7
}

/// The largest datagram in an Ethernet frame of `frame_bytes_max` (with all headers), bytes: a multiple of 8.
//= wire.md R-ETH-4
pub(crate) fn datagram_bytes_in_frame(frame_bytes_max: usize) -> u16 {
    let space = frame_bytes_max.saturating_sub(PAYLOAD_OFFSET);
    let space = space.clamp(proto::DATAGRAM_BYTES_MIN.into(), DATAGRAM_BYTES_MAX.into());
    u16::try_from(space).unwrap_or(DATAGRAM_BYTES_MAX) & !7
}

/// The longest message in Ethernet frames without IP, on an interface of that MTU, bytes.
pub(crate) fn message_bytes_max_in_frame(mtu_bytes: u32) -> u32 {
    let frame_bytes = ETHERNET_BYTES.saturating_add(mtu_bytes as usize);
    let bytes = proto::message_bytes_max(datagram_bytes_in_frame(frame_bytes));
    u32::try_from(bytes).map_or(MESSAGE_BYTES_MAX, |bytes| bytes.min(MESSAGE_BYTES_MAX))
}

/// The longest message in UDP datagrams, on an interface of that MTU (CCI-047), bytes.
pub(crate) fn message_bytes_max(mtu_bytes: u32, ipv6: bool) -> u32 {
    let bytes = proto::message_bytes_max(datagram_bytes_max(mtu_bytes, ipv6));
    u32::try_from(bytes).map_or(MESSAGE_BYTES_MAX, |bytes| bytes.min(MESSAGE_BYTES_MAX))
}

/// The largest datagram to send after one of `len` bytes turned out to be too big, bytes: what the interface takes now, if that is
/// less than `len`, otherwise the next smaller of the usual sizes.
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
