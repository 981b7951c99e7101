//! Datagrams to one destination that lie side by side, and how they are given to the kernel.

use std::net::SocketAddr;

use super::call::Entry;
use crate::net::addr::RawAddr;

/// Datagrams to one destination, side by side, all of one length except that the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) to: SocketAddr,
    addr: RawAddr,
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) segment_len: usize,
    pub(super) segments: usize,
    /// Ends with a shorter datagram, so that none can follow.
    pub(super) closed: bool,
    pub(super) how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Handed to the kernel as one.
    Whole,
    /// One by one.
    Split,
    /// One by one, because the kernel refused it in one piece; should every one go, then GSO was at fault.
    SplitOnRefusal,
}

impl Message {
    /// One datagram.
    #[inline]
    pub(super) fn new(to: &SocketAddr, start: usize, len: usize) -> Message {
        Message {
            to: *to,
            addr: RawAddr::new(to),
            start,
            len,
            segment_len: len,
            segments: 1,
            closed: false,
            how: How::Whole,
        }
    }

    /// One datagram more, which lies behind the last and is no longer than it.
    #[inline]
    pub(super) fn extend(&mut self, len: usize) {
        self.len += len;
        self.segments += 1;
        self.closed = len < self.segment_len;
    }

    /// How many [`entries`](Message::entries) there are.
    pub(super) fn entry_count(&self) -> usize {
        match self.how {
            How::Whole => 1,
            How::Split | How::SplitOnRefusal => self.segments,
        }
    }

    /// What to give the kernel for this message: one thing, or each of its datagrams.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let step = match self.how {
            How::Whole => self.len,
            How::Split | How::SplitOnRefusal => self.segment_len,
        };
        (0..self.entry_count()).map(move |at| {
            let from = at * step;
            let len = step.min(self.len - from);
            Entry { addr: &self.addr, start: self.start + from, len, segment_len: self.segment_len }
        })
    }

    /// Takes off what one entry stood for: datagrams and bytes.
    pub(super) fn advance(&mut self) -> (usize, usize) {
        let (segments, bytes) = match self.how {
            How::Whole => (self.segments, self.len),
            How::Split | How::SplitOnRefusal => (1, self.segment_len.min(self.len)),
        };
        self.start += bytes;
        self.len -= bytes;
        self.segments -= segments;
        (segments, bytes)
    }
}
