//! The send window: bundles from the oldest unacknowledged to the one still open.

use crate::limits::{DATAGRAM_BYTES_MIN, HEADER_BYTES, WINDOW_BUNDLES_MAX};
use crate::pool::Buf;
use crate::reliable::sends::SendId;
use crate::{Seq, Time};

/// Bits that say what has happened to a bundle.
pub(crate) mod mark {
    /// Counted as in flight.
    pub const IN_FLIGHT: u8 = 1;
    /// Must be sent again.
    pub const RESEND: u8 = 2;
    /// The peer has it.
    pub const ACKED: u8 = 4;
    /// Has been sent more than once.
    pub const RESENT: u8 = 8;
    /// Was sent in parts the last time.
    pub const PARTS: u8 = 16;
    /// Was sent as large as a size that is being tried.
    pub const SIZE: u8 = 32;
}

/// Bits that say what a bundle holds besides messages.
pub(crate) mod holds {
    /// Records of remote memory access.
    pub const RMA: u8 = 1;
    /// No packet buffer: it is made anew from memory each time it is sent.
    pub const BULK: u8 = 2;
    /// Begun for remote memory access.
    pub const PUMPED: u8 = 4;
}

//= wire.md R-REC-2
/// One bundle that was queued or sent.
#[derive(Copy, Clone, Debug)]
pub(crate) struct TxSlot {
    pub sent_at: Time,
    pub buf: Buf,
    pub first: SendId,
    pub last: SendId,
    /// Bytes of the body so far.
    pub body_bytes: u16,
    pub records: u16,
    /// The receiver-not-ready epoch it was sent in last.
    pub epoch: u16,
    pub marks: u8,
    /// Times it was sent again, up to 255.
    pub resends: u8,
    /// Bits of [`holds`].
    pub holds: u8,
    /// The path that it went by last.
    pub path: u8,
}

const _: () = assert!(size_of::<TxSlot>() <= 32, "two to a cache line");

impl TxSlot {
    pub const EMPTY: TxSlot = TxSlot {
        sent_at: Time(0),
        buf: Buf::NONE,
        first: SendId::NONE,
        last: SendId::NONE,
        body_bytes: 0,
        records: 0,
        epoch: 0,
        marks: 0,
        resends: 0,
        holds: 0,
        path: 0,
    };

    pub fn has(&self, mark: u8) -> bool {
        self.marks & mark != 0
    }

    /// Sent as one datagram that is longer than what every path takes.
    #[inline]
    pub fn is_large(&self) -> bool {
        usize::from(self.body_bytes) + HEADER_BYTES > DATAGRAM_BYTES_MIN as usize && !self.has(mark::PARTS)
    }

    /// Sent in datagrams, of which one may be longer than what every path takes.
    #[inline]
    pub fn depends_on_size(&self) -> bool {
        self.is_large() || self.has(mark::PARTS)
    }

    /// Sent by this path, and neither acknowledged nor taken for lost.
    pub fn is_in_progress(&self, which: u8) -> bool {
        self.has(mark::IN_FLIGHT) && self.path == which
    }
}

/// Room for a full window; borrowed while something is unacknowledged.
pub(crate) struct TxRing(Box<[TxSlot; WINDOW_BUNDLES_MAX as usize]>);

impl TxRing {
    pub const COST_BYTES: u64 = (WINDOW_BUNDLES_MAX as usize * size_of::<TxSlot>()) as u64;

    pub fn new() -> TxRing {
        TxRing(Box::new([TxSlot::EMPTY; WINDOW_BUNDLES_MAX as usize]))
    }

    #[inline]
    pub fn at(&mut self, seq: Seq) -> &mut TxSlot {
        &mut self.0[(seq.0 % WINDOW_BUNDLES_MAX) as usize]
    }

    #[inline]
    pub fn get(&self, seq: Seq) -> &TxSlot {
        &self.0[(seq.0 % WINDOW_BUNDLES_MAX) as usize]
    }
}

/// The numbers of the send side; the bundles themselves are in a [`TxRing`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct Tx {
    /// The oldest that is not acknowledged.
    pub unacked: Seq,
    /// The first that was never sent.
    pub unsent: Seq,
    /// The next to be made.
    pub next: Seq,
    /// The bundle before `next` takes more records.
    pub open: bool,
    /// Bundles marked to be sent again.
    pub resend: u32,
    /// Bundles acknowledged selectively, or sent again and unacknowledged: while there are any, the order of
    /// sending is not the order of numbers and losses must be looked for.
    pub irregular: bool,
    /// Packet buffers held.
    pub bufs: u32,
    /// Sends that have not completed.
    pub sends: u32,
}

impl Tx {
    pub fn new(first: Seq) -> Tx {
        Tx {
            unacked: first,
            unsent: first,
            next: first,
            open: false,
            resend: 0,
            irregular: false,
            bufs: 0,
            sends: 0,
        }
    }

    /// Bundles queued or unacknowledged.
    #[inline]
    pub fn len(&self) -> u32 {
        self.next.since(self.unacked)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.next == self.unacked
    }

    /// True if something waits to be sent, for the first time or again.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.unsent != self.next || self.resend != 0
    }
}

/// What a datagram weighs in windows: its bytes, and what a socket buffer spends on it beyond them.
#[inline]
pub(crate) const fn weight(body_bytes: u16) -> u32 {
    body_bytes as u32 + crate::limits::HEADER_BYTES as u32 + crate::limits::DATAGRAM_OVERHEAD_BYTES
}
