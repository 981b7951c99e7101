//! Operations of this side that have not ended: in one table of the endpoint, whose room is kept for the next ones.

use crate::event::Status;
use cci_proto::{Atomic, RmaKind, RmaPiece, RmaPlace};
use cci_ring::slab::{Key, Slab};

pub(super) const NIL: u32 = u32::MAX;

/// Bytes of messages behind operations that wait to be pushed, all connections together.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Pieces beyond the first of each operation, all connections together.
const PIECES_MAX: usize = 64 << 10;
/// Lists kept for the next operation that needs one.
const SPARE_MAX: usize = 64;

/// What an operation does.
#[derive(Copy, Clone, Debug)]
pub(crate) enum What {
    /// Its pieces are in the list.
    Move(RmaKind),
    Atomic {
        atomic: Atomic,
        target: RmaPlace,
        result: Option<RmaPlace>,
    },
}

/// An operation to be started.
pub(crate) struct Start<'a> {
    /// What the engine knows it by.
    pub name: u64,
    pub what: What,
    pub pieces: &'a [RmaPiece],
    pub message: Option<&'a [u8]>,
    pub fence: bool,
    /// Up to where the channel has to be taken before a fenced one may begin.
    pub position: u64,
    /// The transport's clock.
    pub now_ns: u64,
}

/// Where it stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In line.
    Waiting,
    /// At the head of the line, being cut into records.
    Cutting,
    /// Cut; answers are awaited.
    Cut,
    /// All data is there; the message is to be pushed.
    Message,
}

pub(super) struct Op {
    pub name: u64,
    pub what: What,
    first: RmaPiece,
    more: Vec<RmaPiece>,
    pub message: Option<Vec<u8>>,
    pub fence: bool,
    pub position: u64,
    /// Next to be cut.
    pub piece: u32,
    pub offset: u64,
    /// The slot of its writes through the channel.
    pub write_slot: Option<u16>,
    /// Requests not answered.
    pub unanswered: u32,
    /// Goes through the channel to see how long that takes.
    pub is_trial: bool,
    /// Since when its message is held here for want of a buffer at the peer; 0: it is not, or was not looked at since.
    pub held_ns: u64,
    /// What it counts for in [`Flow::pending_bytes`](super::flow::Flow).
    pub cost_bytes: u64,
    /// When its send timeout begins: see [`Flow::deadline_ns`](super::flow::Flow::deadline_ns).
    pub from_ns: u64,
    pub status: Status,
    pub stage: Stage,
    /// The one behind it in line.
    pub next: u32,
}

impl Op {
    pub fn piece(&self) -> Option<RmaPiece> {
        match self.piece {
            0 => Some(self.first),
            at => self.more.get(at as usize - 1).copied(),
        }
    }

    /// The first piece, and those behind it.
    pub fn pieces(&self) -> (&RmaPiece, &[RmaPiece]) {
        (&self.first, &self.more)
    }

    /// What it moves, its message included.
    pub fn len_bytes(&self) -> u64 {
        let message = self.message.as_ref().map_or(0, Vec::len) as u64;
        let more = self.more.iter().map(|piece| piece.len_bytes);
        more.fold(self.first.len_bytes.saturating_add(message), u64::saturating_add)
    }

    /// It is one piece, not begun, without a message.
    pub fn is_alone(&self) -> bool {
        self.more.is_empty() && self.piece == 0 && self.offset == 0 && self.message.is_none()
    }

    pub fn is_last_piece(&self) -> bool {
        self.piece as usize == self.more.len()
    }

    pub fn next_piece(&mut self) {
        self.piece += 1;
        self.offset = 0;
    }
}

/// See the module.
pub(crate) struct Ops {
    table: Slab<Op>,
    spare_pieces: Vec<Vec<RmaPiece>>,
    spare_messages: Vec<Vec<u8>>,
    message_bytes: usize,
    pieces: usize,
}

impl Ops {
    pub fn new(max: u32) -> Ops {
        Ops {
            table: Slab::new(max),
            spare_pieces: Vec::new(),
            spare_messages: Vec::new(),
            message_bytes: 0,
            pieces: 0,
        }
    }

    /// Enters an operation; None: there is no room.
    pub(super) fn insert(&mut self, start: &Start<'_>) -> Option<u32> {
        let (first, rest) = match start.pieces.split_first() {
            Some((first, rest)) => (*first, rest),
            None => (RmaPiece::default(), &[][..]),
        };
        let message_bytes = start.message.map_or(0, <[u8]>::len);
        if self.table.len() >= self.table.max()
            || self.message_bytes + message_bytes > MESSAGE_BYTES_MAX
            || self.pieces + rest.len() > PIECES_MAX
        {
            return None;
        }
        let mut more = Vec::new();
        if !rest.is_empty() {
            more = self.spare_pieces.pop().unwrap_or_default();
            more.extend_from_slice(rest);
        }
        let message = start.message.map(|message| {
            let mut kept = self.spare_messages.pop().unwrap_or_default();
            kept.extend_from_slice(message);
            kept
        });
        self.message_bytes += message_bytes;
        self.pieces += rest.len();
        let op = Op {
            name: start.name,
            what: start.what,
            first,
            more,
            message,
            fence: start.fence,
            position: start.position,
            piece: 0,
            offset: 0,
            write_slot: None,
            unanswered: 0,
            is_trial: false,
            held_ns: 0,
            cost_bytes: 0,
            from_ns: start.now_ns,
            status: Status::Success,
            stage: Stage::Waiting,
            next: NIL,
        };
        self.table.insert(op).ok().map(|key| key.index)
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

    /// The message of an operation has left.
    pub(super) fn drop_message(&mut self, at: u32) {
        if let Some(message) = self.get_mut(at).and_then(|op| op.message.take()) {
            self.keep_message(message);
        }
    }

    fn keep_message(&mut self, mut message: Vec<u8>) {
        self.message_bytes -= message.len();
        if self.spare_messages.len() < SPARE_MAX {
            message.clear();
            self.spare_messages.push(message);
        }
    }

    /// Takes one out; what the engine knows it by, and how it ended.
    pub(super) fn remove(&mut self, at: u32) -> Option<(u64, Status)> {
        let key = self.key(at)?;
        let mut op = self.table.remove(key)?;
        self.pieces -= op.more.len();
        if op.more.capacity() > 0 && self.spare_pieces.len() < SPARE_MAX {
            op.more.clear();
            self.spare_pieces.push(op.more);
        }
        if let Some(message) = op.message.take() {
            self.keep_message(message);
        }
        Some((op.name, op.status))
    }

    pub fn len(&self) -> u32 {
        self.table.len()
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        let pieces = self.spare_pieces.iter().map(Vec::capacity).sum::<usize>() + self.pieces;
        let messages = self.spare_messages.iter().map(Vec::capacity).sum::<usize>() + self.message_bytes;
        (self.table.bytes() + pieces * size_of::<RmaPiece>() + messages) as u64
    }
}
