//! What a connection has for remote memory; what is done with it is beside this file.

use super::super::pipe::Pipe;
use crate::event::Connection;
use crate::transport::ordered_rma::stream::{Reader, Writer};
use crate::transport::ordered_rma::{Flows, Parked};
use crate::transport::token::NOWHERE;
use cci_memory::slab::Key;
use cci_sys::event::Interest;

/// On whose account a connection has its memory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Admitted {
    /// The peer has sent something.
    Peer,
    /// This side's program has begun an operation.
    Own,
}

/// What a connection has for remote memory.
pub(in crate::transport::tcp) struct Bulk {
    /// None: it is being made, or has ended.
    pub(super) stream: Option<Pipe>,
    /// Lent while something is under way.
    pub(super) flow: Key,
    pub(super) writer: Writer,
    pub(super) reader: Reader,
    /// What of its flow is kept while it has none.
    pub(super) parked: Parked,
    /// What the kernel tells of it; None: nothing.
    pub(super) watched: Option<Interest>,
    /// In [`Bulks::active`](super::Bulks::active), or in [`Bulks::waiting`](super::Bulks::waiting) since then.
    pub(super) is_active: bool,
    pub(super) is_waiting: bool,
    pub(super) waiting_ns: u64,
    /// What of the memory of all it is charged with, and on whose account.
    pub(super) charged_bytes: u64,
    pub(super) admitted: Admitted,
    /// It holds what is on its way, and nothing more.
    pub(super) is_slim: bool,
    /// Turns while others waited, and since when it gives way to them.
    pub(super) turns: u32,
    pub(super) yields_ns: Option<u64>,
    /// Something has moved in its last turn.
    pub(super) has_moved: bool,
    /// Since when a part of a record is here, by the transport's clock.
    pub(super) record_ns: Option<u64>,
    /// When something last came or went.
    pub(super) moved_ns: u64,
    /// It has ended; until when the peer may still say why. 0: it has not.
    pub(super) ended_until_ns: u64,
}

impl Bulk {
    pub(super) fn new() -> Box<Bulk> {
        Box::new(Bulk {
            stream: None,
            flow: NOWHERE,
            writer: Writer::default(),
            reader: Reader::default(),
            parked: Parked::default(),
            watched: None,
            is_active: false,
            is_waiting: false,
            waiting_ns: 0,
            charged_bytes: 0,
            admitted: Admitted::Peer,
            is_slim: false,
            turns: 0,
            yields_ns: None,
            has_moved: false,
            record_ns: None,
            moved_ns: 0,
            ended_until_ns: 0,
        })
    }

    /// Sees to it that it has a flow. False: there is no memory for one.
    pub(super) fn lend(&mut self, flows: &mut Flows, connection: Connection, clock_ns: u64) -> bool {
        if flows.get(self.flow).is_none() {
            let Some(lent) = flows.lend(connection, clock_ns) else { return false };
            if let Some((flow, _)) = flows.get_mut(lent) {
                flow.resume(std::mem::take(&mut self.parked));
            }
            self.flow = lent;
        }
        true
    }

    /// The second stream is there, or was.
    pub(in crate::transport::tcp) fn was_made(&self) -> bool {
        self.stream.is_some() || self.ended_until_ns > 0
    }

    /// Since when a part of a record is here; while this side leaves it in line, its time stands still.
    pub(in crate::transport::tcp) fn part_since_ns(&self, now_ns: u64) -> Option<u64> {
        let waits_ns = if self.is_waiting { now_ns.saturating_sub(self.waiting_ns) } else { 0 };
        Some(self.record_ns?.saturating_add(waits_ns))
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> u64 {
        size_of::<Bulk>() as u64 + self.writer.held_bytes() + self.reader.held_bytes()
    }
}
