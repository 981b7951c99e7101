//! The second stream of a connection, and what the connection has for remote memory beside it.

use super::watched::Watched;
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::transport::ordered_rma::stream::{Reader, Writer};
use crate::transport::ordered_rma::{Flow, Flows, Ops, Suspended};
use cci_memory::slab::Key;
use cci_sys::event::Interest;

/// What a connection has for remote memory.
pub(super) enum Second {
    /// Nothing: no operation has needed it.
    None,
    Open(Box<SecondStream>),
    /// The stream has ended by itself. Until then the peer may say why.
    Ended {
        until_ns: u64,
    },
}

impl Second {
    #[inline]
    pub fn get(&self) -> Option<&SecondStream> {
        if let Second::Open(second) = self { Some(second) } else { None }
    }

    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut SecondStream> {
        if let Second::Open(second) = self { Some(second) } else { None }
    }

    /// What there is, made if there was nothing yet. `None`: it has ended.
    #[inline]
    pub fn get_or_make(&mut self) -> Option<&mut SecondStream> {
        if matches!(self, Second::None) {
            *self = Second::Open(SecondStream::new());
        }
        self.get_mut()
    }

    /// Whether the stream is there, or was.
    pub fn was_made(&self) -> bool {
        match self {
            Second::None => false,
            Second::Open(second) => second.stream.is_some(),
            Second::Ended { .. } => true,
        }
    }
}

/// On whose account a connection has its memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// The peer has sent something.
    Peer,
    /// This side's program has begun an operation.
    Own,
}

/// Whether a connection has what it takes to move data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing is under way.
    Idle,
    /// It has its turn in the next polls.
    Active(Share),
    /// It waits for memory, and its stream is not read meanwhile.
    Waiting { since_ns: u64 },
}

/// What an active connection takes of what all connections share.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Turns while others waited.
    pub turns: u32,
    /// Since when it gives way to others: nothing more is read of it.
    pub yields_ns: Option<u64>,
    /// It holds what is on its way, and has no memory for more.
    pub is_trimmed: bool,
    /// Something has moved in its last turn.
    pub has_moved: bool,
}

/// What a turn of a connection is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Everything,
    /// Nothing is read: the connection gives way to others.
    Serve,
    /// What has not left is written, and nothing else: there is no memory for more.
    Flush,
}

impl Share {
    /// What its next turn is for.
    #[inline]
    pub fn work(&self) -> Work {
        match (self.is_trimmed, self.yields_ns) {
            (true, _) => Work::Flush,
            (false, Some(_)) => Work::Serve,
            (false, None) => Work::Everything,
        }
    }
}

/// Where a connection's part in operations is kept.
#[derive(Copy, Clone, Debug)]
enum FlowOf {
    /// In a flow, which is lent while something is under way.
    Lent(Key),
    /// Here: so little that no flow is needed.
    Kept(Suspended),
}

/// A second stream with its reader and writer, and the connection's share of the memory of all.
pub(super) struct SecondStream {
    /// None: it is being made.
    pub stream: Option<Watched>,
    flow: FlowOf,
    pub writer: Writer,
    pub reader: Reader,
    pub standing: Standing,
    /// What of the memory of all it is charged with, and on whose account.
    pub charged_bytes: u64,
    pub account: Account,
    /// Since when a part of a record is here, by the transport's clock.
    pub record_ns: Option<u64>,
    /// When something last came or went.
    pub moved_ns: u64,
}

impl SecondStream {
    fn new() -> Box<SecondStream> {
        Box::new(SecondStream {
            stream: None,
            flow: FlowOf::Kept(Suspended::default()),
            writer: Writer::default(),
            reader: Reader::default(),
            standing: Standing::Idle,
            charged_bytes: 0,
            account: Account::Peer,
            record_ns: None,
            moved_ns: 0,
        })
    }

    /// Sees to it that it has a flow. False: there is no memory for one.
    #[inline]
    pub fn lend(&mut self, flows: &mut Flows, connection: Connection, clock_ns: u64) -> bool {
        let FlowOf::Kept(suspended) = self.flow else { return true };
        let Some(lent) = flows.lend(connection, clock_ns) else { return false };
        if let Some((flow, _)) = flows.get_mut(lent) {
            flow.resume(suspended);
        }
        self.flow = FlowOf::Lent(lent);
        true
    }

    /// Gives its flow back, and keeps what the peer still relies on.
    pub fn suspend(&mut self, flows: &mut Flows, suspended: Suspended) {
        if let FlowOf::Lent(lent) = std::mem::replace(&mut self.flow, FlowOf::Kept(suspended)) {
            flows.give_back(lent);
        }
    }

    /// The name of its flow, if it has one.
    #[inline]
    pub fn flow_key(&self) -> Option<Key> {
        if let FlowOf::Lent(lent) = self.flow { Some(lent) } else { None }
    }

    #[inline]
    pub fn flow<'a>(&self, flows: &'a Flows) -> Option<&'a Flow> {
        flows.get(self.flow_key()?)
    }

    #[inline]
    pub fn flow_mut<'a>(&self, flows: &'a mut Flows) -> Option<(&'a mut Flow, &'a mut Ops)> {
        flows.get_mut(self.flow_key()?)
    }

    #[inline]
    pub fn share(&self) -> Option<&Share> {
        if let Standing::Active(share) = &self.standing { Some(share) } else { None }
    }

    #[inline]
    pub fn share_mut(&mut self) -> Option<&mut Share> {
        if let Standing::Active(share) = &mut self.standing { Some(share) } else { None }
    }

    pub fn is_active(&self) -> bool {
        self.share().is_some()
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.standing, Standing::Waiting { .. })
    }

    /// Since when a part of a record is here; while it waits for this side, its time stands still.
    pub fn part_since_ns(&self, now_ns: u64) -> Option<u64> {
        let waits_ns = match self.standing {
            Standing::Waiting { since_ns } => now_ns.saturating_sub(since_ns),
            Standing::Idle | Standing::Active(_) => 0,
        };
        Some(self.record_ns?.saturating_add(waits_ns))
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        size_of::<SecondStream>() as u64 + self.writer.held_bytes() + self.reader.held_bytes()
    }

    /// Since when it holds memory that its peer could have it let go of: by taking what has not left, or by sending the rest
    /// of a record.
    pub fn stands_since_ns(&self, flows: &Flows) -> Option<u64> {
        match self.standing {
            // A part of a message is kept.
            Standing::Idle => self.record_ns.filter(|_| self.charged_bytes > 0),
            Standing::Waiting { .. } => None,
            Standing::Active(share) => {
                let waits_for_us = self.flow(flows).is_some_and(Flow::waits_for_buffers);
                let is_held_up = share.is_trimmed && !self.writer.is_empty() && !waits_for_us;
                share.yields_ns.filter(|_| is_held_up).map(|since_ns| since_ns.max(self.moved_ns))
            }
        }
    }

    /// Something that this side's program has begun is under way: it has a deadline of its own.
    #[inline]
    pub fn has_own(&self, flows: &Flows) -> bool {
        self.flow(flows).is_some_and(|flow| flow.operations() > 0)
    }

    /// Has the kernel tell of this, and of nothing else. `None`: of nothing at all.
    pub fn watch(&mut self, core: &Core, interest: Option<Interest>) {
        if let Some(stream) = &mut self.stream {
            stream.watch(&core.poller, interest);
        }
    }
}
