//! Every limit, and the proof that they fit each other.

/// The version of the wire format that this endpoint speaks.
pub const VERSION: u8 = 1;

/// Bytes of a message or request record's header.
pub const RECORD_BYTES: usize = 8;

/// Bytes of the header of every datagram of an established connection.
pub const HEADER_BYTES: usize = 48;

/// The smallest datagram an endpoint may be limited to: every handshake datagram fits.
pub const DATAGRAM_BYTES_MIN: u16 = 1152;

/// The largest datagram: what UDP can carry, rounded down to a multiple of 8.
pub const DATAGRAM_BYTES_MAX: u16 = 65_504;

/// The longest connection request payload (CCI-036).
pub const REQUEST_BYTES_MAX: usize = 1024;

/// Bundles of a connection that may be queued or unacknowledged at once.
pub const WINDOW_BUNDLES_MAX: u32 = 256;

/// Bundles that one selective acknowledgement describes.
pub const SACK_BITS: u32 = 256;

/// 64-bit words of a full selective acknowledgement.
pub const SACK_WORDS_MAX: usize = (SACK_BITS / 64) as usize;

/// Messages in one bundle at most: bounds the work one datagram can cause.
pub const RECORDS_MAX: u16 = 256;

/// The largest table index: the top bit of an index is used as a mark.
pub const INDEX_MAX: u32 = (1 << 31) - 2;

/// How long a send may take if nobody said otherwise.
pub const SEND_TIMEOUT_NS_DEFAULT: u64 = 30_000_000_000;

/// How long an acknowledgement waits for company at most.
pub const ACK_DELAY_NS_MAX: u64 = 200_000;

/// A second datagram is acknowledged at once; a single one waits for [`ACK_DELAY_NS_MAX`] or a quarter of the
/// round trip.
pub const ACK_BUNDLES: u32 = 2;

/// The longest message that fits a datagram of this size, in bytes.
#[must_use]
pub const fn message_bytes_max(datagram_bytes: u16) -> usize {
    (datagram_bytes as usize).saturating_sub(HEADER_BYTES + RECORD_BYTES)
}

const _: () = {
    assert!(WINDOW_BUNDLES_MAX.is_power_of_two(), "the slot index is seq & (window - 1)");
    assert!(WINDOW_BUNDLES_MAX <= SACK_BITS, "one SACK must describe a full window");
    assert!(DATAGRAM_BYTES_MIN.is_multiple_of(8) && DATAGRAM_BYTES_MAX.is_multiple_of(8));
    assert!(HEADER_BYTES.is_multiple_of(8) && RECORD_BYTES.is_multiple_of(8));
};
