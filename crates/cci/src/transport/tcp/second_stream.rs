//! The second stream of a connection, and what the connection has for remote memory beside it.

use super::watched::Watched;
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::transport::ordered_rma::stream::{Reader, Writer};
use crate::transport::ordered_rma::{Flow, Flows, Suspended};
use crate::transport::token::NOWHERE;
use cci_memory::slab::Key;
use cci_sys::event::Interest;

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
    Active,
    /// It waits for memory, and its stream is not read meanwhile.
    Waiting { since_ns: u64 },
}

/// A second stream with its reader and writer, and the connection's share of the memory of all.
pub(super) struct SecondStream {
    /// None: it is being made, or has ended.
    pub stream: Option<Watched>,
    /// Until when the peer may still say why the stream has ended; `None`: it has not.
    pub ended_until_ns: Option<u64>,
    /// Lent while something is under way.
    pub flow: Key,
    pub writer: Writer,
    pub reader: Reader,
    /// What of its flow is kept while it has none.
    pub suspended: Suspended,
    pub standing: Standing,
    /// What of the memory of all it is charged with, and on whose account.
    pub charged_bytes: u64,
    pub account: Account,
    /// It holds what is on its way, and nothing more.
    pub is_trimmed: bool,
    /// Turns while others waited, and since when it gives way to them.
    pub turns: u32,
    pub yields_ns: Option<u64>,
    /// Something has moved in its last turn.
    pub has_moved: bool,
    /// Since when a part of a record is here, by the transport's clock.
    pub record_ns: Option<u64>,
    /// When something last came or went.
    pub moved_ns: u64,
}

impl SecondStream {
    pub fn new() -> Box<SecondStream> {
        Box::new(SecondStream {
            stream: None,
            ended_until_ns: None,
            flow: NOWHERE,
            writer: Writer::default(),
            reader: Reader::default(),
            suspended: Suspended::default(),
            standing: Standing::Idle,
            charged_bytes: 0,
            account: Account::Peer,
            is_trimmed: false,
            turns: 0,
            yields_ns: None,
            has_moved: false,
            record_ns: None,
            moved_ns: 0,
        })
    }

    /// Sees to it that it has a flow. False: there is no memory for one.
    pub fn lend(&mut self, flows: &mut Flows, connection: Connection, clock_ns: u64) -> bool {
        if flows.get(self.flow).is_none() {
            let Some(lent) = flows.lend(connection, clock_ns) else { return false };
            if let Some((flow, _)) = flows.get_mut(lent) {
                flow.resume(std::mem::take(&mut self.suspended));
            }
            self.flow = lent;
        }
        true
    }

    /// The second stream is there, or was.
    pub fn was_made(&self) -> bool {
        self.stream.is_some() || self.ended_until_ns.is_some()
    }

    /// Since when a part of a record is here; while it waits for this side, its time stands still.
    pub fn part_since_ns(&self, now_ns: u64) -> Option<u64> {
        let waits_ns = match self.standing {
            Standing::Waiting { since_ns } => now_ns.saturating_sub(since_ns),
            Standing::Idle | Standing::Active => 0,
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
            Standing::Idle => return self.record_ns.filter(|_| self.charged_bytes > 0),
            Standing::Waiting { .. } => return None,
            Standing::Active => {}
        }
        let waits_for_us = flows.get(self.flow).is_some_and(Flow::waits_for_buffers);
        let is_held_up = self.is_trimmed && !self.writer.is_empty() && !waits_for_us;
        self.yields_ns.filter(|_| is_held_up).map(|since_ns| since_ns.max(self.moved_ns))
    }

    /// Something that this side's program has begun is under way: it has a deadline of its own.
    pub fn has_own(&self, flows: &Flows) -> bool {
        flows.get(self.flow).is_some_and(|flow| flow.operations() > 0)
    }

    /// Has the kernel tell of this, and of nothing else. `None`: of nothing at all.
    pub fn watch(&mut self, core: &Core, interest: Option<Interest>) {
        if let Some(stream) = &mut self.stream {
            stream.watch(&core.poller, interest);
        }
    }
}
