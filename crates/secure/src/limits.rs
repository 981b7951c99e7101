//! Every limit, and the proof that they fit each other.

/// The version of the handshakes, of datagrams and of streams. Version 1 did not say which endpoint is which.
pub const HANDSHAKE_VERSION: u8 = 2;

/// Bytes of the tag that ends whatever is sealed.
pub const TAG_BYTES: usize = 16;

/// Bytes of a sealed datagram before its body.
pub const HEADER_BYTES: usize = 16;

/// What sealing adds to a datagram, bytes.
pub const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;

/// A sender steps to the next epoch after so many records. AES-GCM's bound for records of 64 KiB (2^12 blocks) is about 2^24.5 of them
/// (RFC 8446 5.5: 2^24.5 records of 2^14 bytes at most for an advantage of 2^-57).
pub const UPDATE_AFTER_RECORDS: u64 = 1 << 22;

/// And after so long: what a stolen key opens later is at most this much and what follows it.
pub const UPDATE_AFTER_NS: u64 = 60_000_000_000;

/// Counters of datagrams below the highest one that are remembered: what is older counts as a repeat.
pub const REPLAY_WINDOW: u64 = 2048;

/// Bytes of a handshake that one side may say, datagrams' or streams': a chain of some five certificates, or ten small ones.
/// A stranger can make a responder keep so many.
pub const HANDSHAKE_BYTES_MAX: usize = 16 << 10;

/// Parts of a stream's in which one side may say them. An honest one needs four: each costs whoever listens a look, and a stranger
/// would say a byte in each.
pub const HANDSHAKE_PARTS_MAX: usize = 16;

/// The longest datagram of a handshake: what every network takes.
pub const HANDSHAKE_DATAGRAM_BYTES: usize = 1152;

/// Fragments of a handshake that came early and wait for those before them. The others are repeated.
pub const HANDSHAKE_FRAGMENTS_MAX: usize = 8;

/// What one handshake of datagrams with certificates takes at most, bytes, about: what TLS keeps for itself (8 KiB), what it
/// keeps of the peer's stream, early fragments, and as much as a few certificates for its own stream.
pub const HANDSHAKE_MEMORY_BYTES: usize =
    HANDSHAKE_BYTES_MAX + HANDSHAKE_FRAGMENTS_MAX * HANDSHAKE_DATAGRAM_BYTES + (16 << 10);

/// Bytes of a record's header in a stream.
pub const RECORD_HEADER_BYTES: usize = 4;

/// What sealing adds to a record in a stream, bytes.
pub const RECORD_OVERHEAD_BYTES: usize = RECORD_HEADER_BYTES + TAG_BYTES;

/// The longest body of a record in a stream.
pub const RECORD_BODY_BYTES_MAX: usize = 16 << 10;

const _: () = {
    assert!(OVERHEAD_BYTES.is_multiple_of(8), "wire.md R-GEN-2: lengths are multiples of 8");
    assert!(HANDSHAKE_BYTES_MAX <= u16::MAX as usize, "offsets in a handshake are 16 bits");
    assert!(RECORD_BODY_BYTES_MAX + TAG_BYTES <= u16::MAX as usize, "a record's length is 16 bits");
};

/// When a sender steps to the next epoch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct UpdateLimits {
    /// After so many records of one epoch.
    pub records: u64,
    /// After so long, in nanoseconds.
    pub age_ns: u64,
}

impl Default for UpdateLimits {
    fn default() -> UpdateLimits {
        UpdateLimits { records: UPDATE_AFTER_RECORDS, age_ns: UPDATE_AFTER_NS }
    }
}
