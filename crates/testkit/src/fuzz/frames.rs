//! Ethernet frames, and their header.

use cci_sys::ethernet::{FrameHeader, PAYLOAD_OFFSET};

/// What is understood is written back the same.
pub fn eth_frames(data: &[u8]) {
    let Ok((header, payload)) = FrameHeader::parse(data) else { return };
    let len = u16::try_from(payload.len()).expect("the field has 16 bits");
    assert_eq!(header.emit(len)[..], data[..PAYLOAD_OFFSET]);
    assert_eq!(payload, &data[PAYLOAD_OFFSET..PAYLOAD_OFFSET + payload.len()]);
}
