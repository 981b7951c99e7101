//! Operations of this side that have not ended: in one table of the endpoint, whose room is kept for the next ones. Their messages
//! and segments lie in memory that all connections share, by the threshold rule of ADR 19.

use crate::connection::Status;
use cci_memory::slab::{Key, Slab};
use cci_proto::{Atomic, RemoteAddress, RmaKind, RmaSegment};

pub(super) const NIL: u32 = u32::MAX;

/// How the bytes of a segment get to the other side.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Through the channel.
    Push,
    /// One side fetches from the other's memory.
    Fetch,
}

/// A segment that takes part in a comparison of the two routes.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Trial {
    pub route: Route,
    pub kind: RmaKind,
    pub len_bytes: u64,
    /// By the transport's clock.
    pub began_ns: u64,
    /// Which part of the comparison it is for.
    pub number: u32,
}

/// Bytes of messages behind operations that wait to be pushed, all connections together.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Pieces beyond the first of each operation, all connections together.
const SEGMENTS_MAX: usize = 64 << 10;
/// Lists kept for the next operation that needs one.
const SPARE_MAX: usize = 64;

/// What an operation does.
#[derive(Copy, Clone, Debug)]
pub(crate) enum What {
    /// Its segments are in the list.
    Move(RmaKind),
    Atomic {
        atomic: Atomic,
        target: RemoteAddress,
        result: Option<RemoteAddress>,
    },
}

/// An operation to be started.
pub(crate) struct Start<'a> {
    /// What the engine knows it by.
    pub name: u64,
    pub what: What,
    pub segments: &'a [RmaSegment],
    pub message: Option<&'a [u8]>,
    pub fence: bool,
    /// Up to where the channel has to be taken before a fenced one may begin.
    pub position: u64,
    /// The transport's clock.
    pub now_ns: u64,
    /// No other connection is open: this one may use all that connections share.
    pub is_alone: bool,
}

/// What the operations of one connection hold of what all connections share.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    message_bytes: usize,
    segments: usize,
}

/// Where it stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In line.
    Waiting,
    /// At the head of the queue, being split into records.
    Sending,
    /// All records are pushed; answers are awaited.
    Sent,
    /// All data is there; the message is to be pushed.
    Message,
}

pub(super) struct Op {
    pub name: u64,
    pub what: What,
    first: RmaSegment,
    more: Vec<RmaSegment>,
    pub message: Option<Vec<u8>>,
    pub fence: bool,
    pub position: u64,
    /// The segment that is next to be split.
    pub segment: u32,
    pub offset: u64,
    /// The slot of its writes through the channel.
    pub write_slot: Option<u16>,
    /// Requests not answered.
    pub unanswered: u32,
    /// How it goes, if it is one segment that the channel was asked about.
    pub route: Option<Route>,
    /// Its time is taken.
    pub trial: Option<Trial>,
    /// Since when its message is held here for want of a buffer at the peer; 0: it is not, or was not looked at since.
    pub held_ns: u64,
    /// What it counts for in [`Flow::pending_bytes`](super::flow::Flow).
    pub cost_bytes: u64,
    /// When its send timeout begins: see [`Flow::deadline_ns`](super::flow::Flow::deadline_ns).
    pub from_ns: u64,
    pub status: Status,
    pub stage: Stage,
    /// The one behind it in the queue.
    pub next: u32,
}

impl Op {
    pub fn segment(&self) -> Option<RmaSegment> {
        match self.segment {
            0 => Some(self.first),
            at => self.more.get(at as usize - 1).copied(),
        }
    }

    /// The first segment, and those behind it.
    pub fn segments(&self) -> (&RmaSegment, &[RmaSegment]) {
        (&self.first, &self.more)
    }

    /// What it moves, its message included.
    pub fn len_bytes(&self) -> u64 {
        let message = self.message.as_ref().map_or(0, Vec::len) as u64;
        let more = self.more.iter().map(|segment| segment.len_bytes);
        more.fold(self.first.len_bytes.saturating_add(message), u64::saturating_add)
    }

    /// It is one segment, not begun, without a message.
    pub fn is_alone(&self) -> bool {
        self.more.is_empty() && self.segment == 0 && self.offset == 0 && self.message.is_none()
    }

    pub fn is_last_segment(&self) -> bool {
        self.segment as usize == self.more.len()
    }

    pub fn next_segment(&mut self) {
        self.segment += 1;
        self.offset = 0;
    }
}

/// The operations of all connections of an endpoint that have not ended.
pub(crate) struct Ops {
    table: Slab<Op>,
    spare_segments: Vec<Vec<RmaSegment>>,
    spare_messages: Vec<Vec<u8>>,
    /// Of all connections.
    used: Usage,
}

impl Ops {
    pub fn new(max: u32) -> Ops {
        Ops {
            table: Slab::new(max),
            spare_segments: Vec::new(),
            spare_messages: Vec::new(),
            used: Usage::default(),
        }
    }

    /// Enters an operation of a connection that holds `usage`. None: there is no space, or none within its quota.
    pub(super) fn insert(&mut self, start: &Start<'_>, usage: &mut Usage) -> Option<u32> {
        let (first, tail) = match start.segments.split_first() {
            Some((first, tail)) => (*first, tail),
            None => (RmaSegment::default(), &[][..]),
        };
        let message_bytes = start.message.map_or(0, <[u8]>::len);
        if self.table.len() >= self.table.max()
            || !is_within_quota(
                usage.message_bytes,
                message_bytes,
                MESSAGE_BYTES_MAX - self.used.message_bytes,
                start,
            )
            || !is_within_quota(usage.segments, tail.len(), SEGMENTS_MAX - self.used.segments, start)
        {
            return None;
        }
        let (more, message) = (self.keep_segments(tail)?, self.keep_message(start.message)?);
        for used in [&mut self.used, usage] {
            used.message_bytes += message_bytes;
            used.segments += tail.len();
        }
        let op = Op {
            name: start.name,
            what: start.what,
            first,
            more,
            message,
            fence: start.fence,
            position: start.position,
            segment: 0,
            offset: 0,
            write_slot: None,
            unanswered: 0,
            route: None,
            trial: None,
            held_ns: 0,
            cost_bytes: 0,
            from_ns: start.now_ns,
            status: Status::Success,
            stage: Stage::Waiting,
            next: NIL,
        };
        self.table.insert(op).ok().map(|key| key.index)
    }

    /// A copy of the segments, in a list that was used before if there is one. None: there is no memory.
    fn keep_segments(&mut self, segments: &[RmaSegment]) -> Option<Vec<RmaSegment>> {
        let mut kept = Vec::new();
        if !segments.is_empty() {
            kept = self.spare_segments.pop().unwrap_or_default();
            kept.try_reserve(segments.len()).ok()?;
            kept.extend_from_slice(segments);
        }
        Some(kept)
    }

    /// A copy of the message, if there is one. None: there is no memory.
    #[expect(clippy::option_option, reason = "whether there is memory, and whether there is a message")]
    fn keep_message(&mut self, message: Option<&[u8]>) -> Option<Option<Vec<u8>>> {
        let Some(message) = message else { return Some(None) };
        let mut kept = self.spare_messages.pop().unwrap_or_default();
        kept.try_reserve(message.len()).ok()?;
        kept.extend_from_slice(message);
        Some(Some(kept))
    }

    fn key(&self, at: u32) -> Option<Key> {
        self.table.key_at(at)
    }

    pub(super) fn get(&self, at: u32) -> Option<&Op> {
        self.table.get(self.key(at)?)
    }

    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut Op> {
        let key = self.key(at)?;
        self.table.get_mut(key)
    }

    /// The message of an operation has left. `usage` is its connection's.
    pub(super) fn drop_message(&mut self, at: u32, usage: &mut Usage) {
        if let Some(message) = self.get_mut(at).and_then(|op| op.message.take()) {
            self.spare_message(message, usage);
        }
    }

    fn spare_message(&mut self, mut message: Vec<u8>, usage: &mut Usage) {
        for used in [&mut self.used, usage] {
            used.message_bytes -= message.len();
        }
        if self.spare_messages.len() < SPARE_MAX {
            message.clear();
            self.spare_messages.push(message);
        }
    }

    /// Takes one out; what the engine knows it by, and how it ended. `usage` is its connection's.
    pub(super) fn remove(&mut self, at: u32, usage: &mut Usage) -> Option<(u64, Status)> {
        let key = self.key(at)?;
        let mut op = self.table.remove(key)?;
        for used in [&mut self.used, &mut *usage] {
            used.segments -= op.more.len();
        }
        if op.more.capacity() > 0 && self.spare_segments.len() < SPARE_MAX {
            op.more.clear();
            self.spare_segments.push(op.more);
        }
        if let Some(message) = op.message.take() {
            self.spare_message(message, usage);
        }
        Some((op.name, op.status))
    }

    pub fn len(&self) -> u32 {
        self.table.len()
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let segments = self.spare_segments.iter().map(Vec::capacity).sum::<usize>() + self.used.segments;
        let messages = self.spare_messages.iter().map(Vec::capacity).sum::<usize>() + self.used.message_bytes;
        (self.table.bytes() + segments * size_of::<RmaSegment>() + messages) as u64
    }
}

/// Whether a connection that holds so much may have `more` of what is `remaining`: no more than stays for all others, unless it is
/// alone. Whoever holds nothing may have what is left.
fn is_within_quota(held: usize, more: usize, remaining: usize, start: &Start<'_>) -> bool {
    more == 0 || more <= remaining && (start.is_alone || held + more <= remaining)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start<'a>(segments: &'a [RmaSegment], message: Option<&'a [u8]>, is_alone: bool) -> Start<'a> {
        let what = What::Move(RmaKind::Write);
        Start { name: 0, what, segments, message, fence: false, position: 0, now_ns: 0, is_alone }
    }

    #[test]
    fn one_whose_messages_are_stuck_leaves_half() {
        let message = [1; 8_192];
        let mut ops = Ops::new(100_000);
        let mut usages = [Usage::default(); 3];
        let mut fill = |ops: &mut Ops, who: usize, is_alone| {
            let start = start(&[], Some(&message), is_alone);
            let all: Vec<u32> = std::iter::from_fn(|| ops.insert(&start, &mut usages[who])).collect();
            (all, usages[who])
        };
        let (stuck, mut usage) = fill(&mut ops, 0, false);
        assert_eq!(stuck.len() * message.len(), MESSAGE_BYTES_MAX / 2);
        let (second, _) = fill(&mut ops, 1, false);
        assert!(second.len() * message.len() >= MESSAGE_BYTES_MAX / 4);
        let (third, _) = fill(&mut ops, 2, false);
        assert!(!third.is_empty() && !fill(&mut ops, 0, true).0.is_empty(), "who is alone may have all");
        assert_eq!(ops.used.message_bytes, MESSAGE_BYTES_MAX);
        for at in stuck {
            ops.drop_message(at, &mut usage);
            ops.remove(at, &mut usage);
        }
        assert_eq!(usage, Usage::default());
    }

    #[test]
    fn one_whose_pieces_are_stuck_leaves_half() {
        let segments = [RmaSegment::default(); 1_024];
        let mut ops = Ops::new(100_000);
        let mut usages = [Usage::default(); 2];
        let start = start(&segments, None, false);
        let stuck: Vec<u32> = std::iter::from_fn(|| ops.insert(&start, &mut usages[0])).collect();
        assert_eq!(stuck.len(), SEGMENTS_MAX / 2 / 1_023);
        assert!(ops.insert(&start, &mut usages[1]).is_some());
        for at in stuck {
            ops.remove(at, &mut usages[0]);
        }
        assert_eq!((usages[0], ops.used), (Usage::default(), usages[1]));
    }
}
