//! Remote memory access: what operations are, how their addresses and atomics are written as words, and the records in which
//! they travel over datagrams.
//!
//! [`Record`] is the one reader and writer of the records in datagrams. Rings and streams, which keep records in order, have
//! records of their own (ADR 31), made of the same words. The operations of a datagram connection are in `endpoint/rma`.

mod record;
#[cfg(test)]
mod tests;

pub(crate) use record::{BulkRecord, flag, is_bulk_kind, kind};
pub use record::{DATA_HEAD_BYTES, Record, WRITE_HEAD_BYTES, emit_data_head, emit_write_head};

/// An address in registered memory, of this side or of a peer: the region, the key that proves the right to it, and the
/// offset in it. Says nothing about whether there is such a region.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RemoteAddress {
    /// The region's number at the side that registered it.
    pub region: u64,
    /// The secret that only those know to whom the handle was given.
    pub key: u64,
    /// Bytes from the region's start.
    pub offset: u64,
}

impl RemoteAddress {
    /// As words of a record.
    #[inline]
    #[must_use]
    pub const fn words(self) -> [u64; 3] {
        [self.region, self.key, self.offset]
    }

    /// Makes an address from the words of a record.
    #[inline]
    #[must_use]
    pub const fn from_words([region, key, offset]: [u64; 3]) -> RemoteAddress {
        RemoteAddress { region, key, offset }
    }

    /// The place `bytes` further on; wraps where no range that was checked can.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> RemoteAddress {
        RemoteAddress { offset: self.offset.wrapping_add(bytes), ..self }
    }
}

/// A part of an operation that is contiguous on both sides.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RmaSegment {
    /// The address on this side.
    pub local: RemoteAddress,
    /// The address at the peer.
    pub remote: RemoteAddress,
    /// The length; not 0.
    pub len_bytes: u64,
}

/// The direction in which an operation moves bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum RmaKind {
    /// From this side to the peer.
    Write,
    /// From the peer to this side.
    Read,
}

/// What an atomic operation does with the word it finds (CCS-062).
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AtomicKind {
    /// Adds the operand, wrapping; the result is what was there.
    FetchAdd = 0,
    /// Puts the operand there; the result is what was there.
    Swap = 1,
    /// Puts the operand there if `compare` is there; the result is what was there.
    CompareSwap = 2,
    /// Adds the operand, wrapping.
    Add = 3,
    /// Bitwise and.
    And = 4,
    /// Bitwise or.
    Or = 5,
    /// Bitwise exclusive or.
    Xor = 6,
}

impl AtomicKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [AtomicKind; 7] = [
        AtomicKind::FetchAdd,
        AtomicKind::Swap,
        AtomicKind::CompareSwap,
        AtomicKind::Add,
        AtomicKind::And,
        AtomicKind::Or,
        AtomicKind::Xor,
    ];
}

/// How wide the word is. It must lie at a multiple of its width.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AtomicWidth {
    /// 4 bytes: the low halves of operand and compare count, and results have zeros above.
    Four = 4,
    /// 8 bytes.
    Eight = 8,
}

impl AtomicWidth {
    /// The width in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self as usize
    }
}

/// One atomic operation, without its place.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    /// What is done to the word.
    pub kind: AtomicKind,
    /// How wide the word is.
    pub width: AtomicWidth,
    /// The operand.
    pub operand: u64,
    /// The value to compare with; only [`AtomicKind::CompareSwap`] looks at it.
    pub compare: u64,
}

impl Atomic {
    /// As words of a record: the kind in bits 0 to 7 of the first and the width in bits 8 to 15, the operand, what to compare with.
    #[inline]
    #[must_use]
    pub const fn words(self) -> [u64; 3] {
        [self.kind as u64 | (self.width as u64) << 8, self.operand, self.compare]
    }

    /// From the words of a record; `None`: there is no such operation.
    #[inline]
    #[must_use]
    pub fn from_words([what, operand, compare]: [u64; 3]) -> Option<Atomic> {
        let kind = *AtomicKind::ALL.get((what & 0xff) as usize)?;
        let width = match what >> 8 {
            4 => AtomicWidth::Four,
            8 => AtomicWidth::Eight,
            _ => return None,
        };
        Some(Atomic { kind, width, operand, compare })
    }
}

/// Why a target refuses an access; nothing has been touched.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum RmaRefusal {
    /// No such region or no longer, the wrong key, outside the range, or not a right that was given.
    Handle,
    /// What was asked cannot be done there: a misaligned atomic and the like.
    Operation,
}

/// Why [`crate::Endpoint::rma`] or [`crate::Endpoint::atomic`] refused; nothing was queued.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum RmaError {
    /// `operations_max` operations are in progress, or the memory cap is reached: try again after completions.
    WouldBlock,
    /// The message is longer than the connection's largest, `max` bytes.
    TooLong {
        /// The limit, in bytes.
        max: usize,
    },
    /// The connection is not a reliable one (CCI-054).
    Unreliable,
    /// No segments, more than [`crate::limits::RMA_SEGMENTS_MAX`], or one that is empty or wraps.
    Segments,
    /// The peer has closed or died, or this side is closing.
    Disconnected,
    /// The connection is not there yet.
    NotConnected,
    /// No such connection, or no longer.
    Unknown,
}
