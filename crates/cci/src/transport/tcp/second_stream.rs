//! The second stream of a connection, and the connection's state of remote memory.

use super::watched::Watched;
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::transport::ordered_rma::stream::{Reader, Writer};
use crate::transport::ordered_rma::{Flow, Flows, Ops, Suspended};
use cci_memory::slab::Key;
use cci_sys::event::Interest;

/// A connection's state of remote memory.
pub(super) enum Second {
    /// No operation has needed the second stream yet.
    None,
    Open(Box<SecondStream>),
    /// The stream has ended by itself. Until this time the peer may report why.
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

    /// The second stream, created if there was none. `None` if it has ended.
    #[inline]
    pub fn get_or_make(&mut self) -> Option<&mut SecondStream> {
        if matches!(self, Second::None) {
            *self = Second::Open(SecondStream::new());
        }
        self.get_mut()
    }

    /// Whether there is or was a stream.
    pub fn was_made(&self) -> bool {
        match self {
            Second::None => false,
            Second::Open(second) => second.stream.is_some(),
            Second::Ended { .. } => true,
        }
    }
}

/// The account that is charged for a connection's memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// The peer has sent something.
    Peer,
    /// This side's program has begun an operation.
    Own,
}

/// Whether a connection has the memory to move data.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing is under way.
    Idle,
    /// The connection has its turn in the next polls.
    Active(Share),
    /// The connection waits for memory. Its stream is not read meanwhile.
    Waiting { since_ns: u64 },
}

/// What an active connection takes of the resources that all connections share.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    /// Turns that it had while others waited.
    pub turns: u32,
    /// When it began to give way to others. Nothing more is read of it since.
    pub yields_ns: Option<u64>,
    /// Whether it holds only what is on its way, and has no memory for more.
    pub is_trimmed: bool,
    /// Whether something has moved in its last turn.
    pub has_moved: bool,
}

/// What a turn of a connection does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Everything,
    /// Nothing is read, since the connection gives way to others.
    Serve,
    /// Only what has not left yet is written, since there is no memory for more.
    Flush,
}

impl Share {
    /// What the next turn does.
    #[inline]
    pub fn work(&self) -> Work {
        match (self.is_trimmed, self.yields_ns) {
            (true, _) => Work::Flush,
            (false, Some(_)) => Work::Serve,
            (false, None) => Work::Everything,
        }
    }
}

/// Where the state of a connection's operations is kept.
#[derive(Copy, Clone, Debug)]
enum FlowOf {
    /// In a flow, which is lent while an operation is under way.
    Lent(Key),
    /// Here, since it is so little that no flow is needed.
    Kept(Suspended),
}

/// A second stream with its reader and writer, and the connection's share of the common memory.
pub(super) struct SecondStream {
    /// `None` while the stream is being made.
    pub stream: Option<Watched>,
    flow: FlowOf,
    pub writer: Writer,
    pub reader: Reader,
    pub standing: Standing,
    /// How much of the common memory the connection is charged with, and on which account.
    pub charged_bytes: u64,
    pub account: Account,
    /// When the first part of an incomplete record came, by the transport's clock.
    pub record_ns: Option<u64>,
    /// When data last came or went.
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

    /// Ensures that the connection has a flow. Returns false if there is no memory for one.
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

    /// The key of its flow, if it has one.
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

    /// When the first part of an incomplete record came. Time in which the connection waits for this side does not count.
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

    /// Since when the connection holds memory that its peer could free, by reading what has not left or by sending the rest of a
    /// record.
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

    /// Whether an operation of this side's program is under way. Such an operation has its own deadline.
    #[inline]
    pub fn has_own(&self, flows: &Flows) -> bool {
        self.flow(flows).is_some_and(|flow| flow.operations() > 0)
    }

    /// Has the kernel report this and nothing else; `None`: nothing at all.
    pub fn watch(&mut self, core: &Core, interest: Option<Interest>) {
        if let Some(stream) = &mut self.stream {
            stream.watch(&core.poller, interest);
        }
    }
}
