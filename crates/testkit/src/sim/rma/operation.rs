//! One operation, as its program and the judge know it.

use cci_proto::{Atomic, RemoteAddress, RmaSegment, Status};

use super::spans::Spans;
use crate::rng::mix;

/// Results of atomics, of any width, have zeros above.
pub(in crate::sim) const RESULT_BYTES: u64 = 8;

/// What an operation does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Writes its pattern.
    Write,
    /// Reads what the owner put there.
    Read,
    /// Reads, fenced, what an earlier write of the same side left there.
    ReadBack(u32),
    /// Does this to one word.
    Atomic(Atomic, Option<RemoteAddress>),
}

/// One operation.
#[derive(Debug)]
pub struct Operation {
    /// What it does.
    pub what: What,
    /// What is moved where; of an atomic only the remote address and the width.
    pub segments: Vec<RmaSegment>,
    /// Length of the message that comes behind the data.
    pub message: Option<usize>,
    /// Nothing of it may happen before all before it is complete.
    pub fence: bool,
    /// When it was started.
    pub started_ns: u64,
    /// What refuses it for sure.
    pub bad: Option<Status>,
    /// Nobody can say whether it is refused: it may be meant for a peer that has been restarted.
    pub unsure: bool,
    /// How it ended.
    pub status: Option<Status>,
    /// Times its message was delivered.
    pub delivered: u8,
    /// What an atomic found: it has been carried out.
    pub(in crate::sim) old: Option<u64>,
    /// A byte or two came that another operation could have sent as well: which bytes are placed is not sure any more.
    pub(in crate::sim) blurred: bool,
    /// Bytes where they belong: of writes at the peer, of reads here.
    pub(in crate::sim) placed: Spans,
    pub(in crate::sim) len_bytes: u64,
    /// Lowest and highest remote offset, to look no further when it can't be this one.
    pub(in crate::sim) remote: (u64, u64),
    /// Operations, and messages, before the last fence up to here.
    pub(in crate::sim) operations_before: u32,
    pub(in crate::sim) messages_before: u32,
}

impl Operation {
    pub(in crate::sim) fn new(
        now_ns: u64,
        what: What,
        segments: Vec<RmaSegment>,
        message: Option<usize>,
        fence: bool,
    ) -> Operation {
        let ends = segments.iter().map(|segment| segment.remote.offset.saturating_add(segment.len_bytes));
        let starts = segments.iter().map(|segment| segment.remote.offset);
        Operation {
            what,
            message,
            fence,
            started_ns: now_ns,
            bad: None,
            unsure: false,
            status: None,
            delivered: 0,
            old: None,
            blurred: false,
            placed: Spans::default(),
            len_bytes: segments.iter().map(|segment| segment.len_bytes).sum(),
            remote: (starts.min().unwrap_or(0), ends.max().unwrap_or(0)),
            operations_before: 0,
            messages_before: 0,
            segments,
        }
    }

    pub(in crate::sim) fn is_atomic(&self) -> bool {
        matches!(self.what, What::Atomic(..))
    }

    /// Everything it does to memory has been done.
    pub(in crate::sim) fn is_done(&self) -> bool {
        match self.what {
            What::Atomic(..) => self.old.is_some(),
            _ => self.blurred || self.placed.len_bytes() == self.len_bytes,
        }
    }

    /// Offset in the operation of the bytes at a remote address, if they are its own.
    pub(in crate::sim) fn at_remote(&self, at: RemoteAddress, len_bytes: u64) -> Option<u64> {
        if at.offset < self.remote.0 || at.offset >= self.remote.1 {
            return None;
        }
        find(self.segments.iter().map(|segment| (segment.remote, segment.len_bytes)), at, len_bytes)
    }

    /// Where in the operation the bytes at a local address are, if it has them.
    pub(in crate::sim) fn at_local(&self, at: RemoteAddress, len_bytes: u64) -> Option<u64> {
        if let What::Atomic(_, result) = self.what {
            return (result == Some(at) && len_bytes == RESULT_BYTES).then_some(0);
        }
        find(self.segments.iter().map(|segment| (segment.local, segment.len_bytes)), at, len_bytes)
    }

    /// The remote address of its byte number `at`.
    pub(in crate::sim) fn to_remote(&self, mut at: u64) -> RemoteAddress {
        for segment in &self.segments {
            if at < segment.len_bytes {
                return segment.remote.plus(at);
            }
            at -= segment.len_bytes;
        }
        RemoteAddress::default()
    }
}

fn find(
    mut segments: impl Iterator<Item = (RemoteAddress, u64)>,
    at: RemoteAddress,
    len_bytes: u64,
) -> Option<u64> {
    let mut before = 0;
    segments.find_map(|(address, len_of_segment)| {
        let start = before;
        before += len_of_segment;
        let into = at.offset.checked_sub(address.offset)?;
        let inside = (at.region, at.key) == (address.region, address.key)
            && into.checked_add(len_bytes).is_some_and(|end| end <= len_of_segment);
        inside.then_some(start + into)
    })
}

/// Names the pattern that a side's operation writes.
pub(in crate::sim) fn base_of(side: usize, index: u32) -> u64 {
    mix((side as u64) << 32 | u64::from(index) | 1 << 63)
}
