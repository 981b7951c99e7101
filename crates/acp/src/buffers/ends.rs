//! The two ends of a segmented buffer, each as its rank keeps it.

use super::wire::{Record, RemoteSegments, filled};
use super::{Indices, Segments};
use crate::channels::{End, context, lane};
use crate::error::{AcpError, Result};
use crate::links::Links;
use cci::{RegionHandle, Rma, RmaError, RmaFlags, RmaKind, Status};
use cci_job::JobError;
use std::collections::BTreeSet;

/// The stage of a buffer's life.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The other end was not made yet.
    Waiting,
    Connected,
    /// One of the ends has disconnected.
    Closed,
    /// The ends have different segments.
    Unequal,
    /// The other rank is gone.
    Lost,
}

impl Stage {
    /// Whether this end sends nothing more.
    pub fn is_over(self) -> bool {
        !matches!(self, Stage::Waiting | Stage::Connected)
    }

    /// Returns an error if there will never be a connection, or not again.
    pub fn check(self, rank: u32) -> Result<()> {
        match self {
            Stage::Waiting | Stage::Connected => Ok(()),
            Stage::Closed => Err(AcpError::Argument("this segmented buffer was disconnected")),
            Stage::Unequal => {
                Err(AcpError::Argument("the other end of this segmented buffer has other segments"))
            }
            Stage::Lost => Err(AcpError::Gone { rank, why: "its segmented buffer has ended".into() }),
        }
    }
}

/// The state of a source.
pub(super) struct Source {
    pub stage: Stage,
    pub segments: Segments,
    /// The registration of its memory, which the operations under way read.
    pub handle: RegionHandle,
    theirs: Option<RemoteSegments>,
    pub indices: Indices,
    /// How many writes were started.
    started: u64,
}

/// The state of a destination.
pub(super) struct Destination {
    pub stage: Stage,
    pub segments: Segments,
    pub handle: RegionHandle,
    pub indices: Indices,
    /// Segments that came before others that were published earlier.
    early: BTreeSet<u64>,
}

impl Source {
    pub fn new(segments: Segments, handle: RegionHandle) -> Source {
        let indices = Indices::default();
        Source { stage: Stage::Waiting, segments, handle, theirs: None, indices, started: 0 }
    }

    /// Notes that the destination was made. Returns false if no destination sends this.
    pub fn opened(&mut self, theirs: RemoteSegments) -> bool {
        let bytes = theirs.count.checked_mul(theirs.bytes);
        let is_right = self.theirs.is_none() && bytes.is_some_and(|bytes| bytes <= theirs.handle.len_bytes());
        if is_right && self.stage == Stage::Waiting {
            let is_equal = Segments { count: theirs.count, bytes: theirs.bytes } == self.segments;
            self.stage = if is_equal { Stage::Connected } else { Stage::Unequal };
            self.theirs = Some(theirs);
        }
        is_right
    }

    /// The indices of the source. A segment that was released is at the destination, even if the end of its write is reported
    /// later.
    pub fn indices(&self) -> Indices {
        Indices { sent: self.indices.sent.max(self.indices.head), ..self.indices }
    }

    pub fn has_room(&self) -> bool {
        self.indices.tail - self.indices.head < self.segments.count
    }

    /// Notes how many segments the destination has released. Returns false if no destination sends this.
    pub fn released(&mut self, segments: u64) -> bool {
        let is_right = (self.indices.head..=self.started).contains(&segments);
        if is_right {
            self.indices.head = segments;
        }
        is_right
    }

    /// Handles the end of a write. If it was refused, the destination has freed the buffer; its record about that may come later.
    pub fn written(&mut self, status: Status) {
        self.indices.sent += 1;
        if status != Status::Success && !self.stage.is_over() {
            self.stage = if status == Status::RmaHandle { Stage::Closed } else { Stage::Lost };
        }
    }

    /// Whether no operation reads the memory any more.
    pub fn is_idle(&self) -> bool {
        self.started == self.indices.sent
    }

    /// Whether everything that was published was written, or never will be.
    pub fn is_drained(&self) -> bool {
        self.is_idle() && (self.started == self.indices.tail || self.stage.is_over())
    }

    /// Writes published segments. Returns false if there is not enough space; no event will report when there is.
    pub fn advance(&mut self, links: &mut Links, end: End) -> bool {
        let Some(theirs) = self.theirs.filter(|_| self.stage == Stage::Connected) else { return true };
        while self.started < self.indices.tail {
            match self.write(links, end, theirs) {
                Ok(true) => self.started += 1,
                Ok(false) => return false,
                Err(_) => {
                    self.stage = Stage::Lost;
                    return true;
                }
            }
        }
        true
    }

    /// Writes data and their notification in one operation. Returns false if there is no space.
    fn write(&self, links: &mut Links, end: End, theirs: RemoteSegments) -> Result<bool> {
        let Some(connection) = links.connection(lane(end.rank))? else { return Ok(false) };
        let Segments { count, bytes } = self.segments;
        let offset = self.started % count * bytes;
        let local = [cci::Segment::new(self.handle, offset, bytes)];
        let remote = [cci::Segment::new(theirs.handle, offset, bytes)];
        let rma = Rma {
            kind: RmaKind::Write,
            local: &local,
            remote: &remote,
            message: Some(&filled(end.number(), self.started)),
            context: context(end),
            flags: RmaFlags::NONE,
        };
        match links.endpoint().rma(connection, &rma) {
            Ok(()) => Ok(true),
            Err(RmaError::WouldBlock) => Ok(false),
            Err(error) => {
                let what = "a segment of a buffer".into();
                Err(JobError::Endpoint { what, error: Box::new(error) }.into())
            }
        }
    }
}

impl Destination {
    pub fn new(segments: Segments, handle: RegionHandle) -> Destination {
        let (stage, indices) = (Stage::Waiting, Indices::default());
        Destination { stage, segments, handle, indices, early: BTreeSet::new() }
    }

    /// Informs the source where the segments are.
    pub fn open(&mut self, links: &mut Links, end: End) {
        if self.stage == Stage::Waiting {
            self.stage = Stage::Connected;
            let Segments { count, bytes } = self.segments;
            let segments = RemoteSegments { count, bytes, handle: self.handle };
            links.say_bytes(lane(end.rank), &Record::Open { buffer: end.number(), segments }.encode());
        }
    }

    /// Notes that a segment is in its place. Operations end in any order. Returns false if no source sends this.
    pub fn filled(&mut self, segment: u64) -> bool {
        let Indices { head, tail, .. } = self.indices;
        let is_right = segment >= tail
            && segment - head < self.segments.count
            && self.stage != Stage::Waiting
            && self.early.insert(segment);
        while self.early.remove(&self.indices.tail) {
            self.indices.tail += 1;
        }
        self.indices.sent = self.indices.tail;
        is_right
    }

    pub fn has_data(&self) -> bool {
        self.indices.head < self.indices.tail
    }

    /// Releases the first segment, since the program is done with it.
    pub fn release(&mut self, links: &mut Links, end: End) {
        self.indices.head += 1;
        if self.stage == Stage::Connected {
            let record = Record::Released { buffer: end.number(), segments: self.indices.head };
            links.say_bytes(lane(end.rank), &record.encode());
        }
    }
}
