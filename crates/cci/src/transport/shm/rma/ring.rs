//! The path through the ring: one end of the channel that [`ordered_rma`] wants.

use super::asker::Asker;
use super::pull::Pull;
use super::state::{LinkRma, Notify};
use crate::connection::{Connection, Status};
use crate::engine::core::Core;
use crate::transport::ordered_rma::{self, Arrived, Channel, Fault, Pulled, Pushed, Turn};
use crate::transport::shm::RING_BYTES_MIN;
use crate::transport::shm::link::{Life, Link};
use crate::transport::shm::out::Out;
use crate::transport::shm::table::{State, Table};
use crate::transport::shm::wire::kind;
use cci_memory::bytes::Bytes;
use cci_memory::ring::{Corrupt, PushError, Record, RecordHeader, Span, payload_bytes_limit, record_bytes};
use cci_memory::slab::Key;
use cci_proto::{Atomic, RemoteAddress, RmaKind, RmaSegment};
use cci_sys::clock;
use cci_sys::segment::Segment;
use std::collections::VecDeque;

/// The longest payload of any record: what the smallest ring takes.
pub(in crate::transport::shm) const RECORD_BYTES_MAX: u32 =
    payload_bytes_limit(RING_BYTES_MIN as usize) as u32;
/// The most data in a record: whole lines.
const DATA_BYTES_MAX: u32 = 15 << 10;
/// A ring holds so many records of data: fewer, and one side would wait while the other copies.
const RECORDS_PER_RING: u32 = 16;
/// This part of a ring is left to messages.
const MESSAGES_SHARE: u32 = 4;

const _: () = assert!(DATA_BYTES_MAX + 64 <= RECORD_BYTES_MAX);

/// The way to the peer for one connection.
struct RingChannel<'a> {
    out: &'a mut Out,
    notifies: &'a mut VecDeque<Notify>,
    flow: Key,
    conn: Key,
    header: RecordHeader,
    asker: Option<&'a mut Asker>,
    pull: Option<&'a mut Pull>,
}

impl RingChannel<'_> {
    fn pushed(result: Result<Span, PushError>) -> Result<Span, Pushed> {
        result.map_err(|error| match error {
            PushError::Full => Pushed::Full,
            // Ours are never too long; the peer's word that is nonsense is the end of the link.
            PushError::TooLong | PushError::Corrupt(_) => Pushed::Broken,
        })
    }
}

impl Channel for RingChannel<'_> {
    fn push(&mut self, head: &[u8], rest: &[u8]) -> Pushed {
        Self::pushed(self.out.producer.push(self.header, &[head, rest]))
            .map_or_else(|why| why, |_| Pushed::Yes)
    }

    fn push_notify(&mut self, head: &[u8], message: &[u8], slot: u16) -> Pushed {
        match Self::pushed(self.out.producer.push(self.header, &[head, message])) {
            Ok(span) => {
                while self.notifies.front().is_some_and(|oldest| oldest.span.end() <= self.out.consumed) {
                    self.notifies.pop_front();
                }
                self.notifies.push_back(Notify { span, flow: self.flow, slot });
                Pushed::Yes
            }
            Err(why) => why,
        }
    }

    fn push_memory(&mut self, head: &[u8], data: &Bytes) -> Pushed {
        Self::pushed(self.out.producer.push_memory(self.header, head, data))
            .map_or_else(|why| why, |_| Pushed::Yes)
    }

    fn data_bytes_max(&self) -> usize {
        (self.out.ring_bytes / RECORDS_PER_RING).min(DATA_BYTES_MAX) as usize
    }

    fn has_room_for_bulk(&mut self) -> bool {
        let record = record_bytes(self.data_bytes_max() + 64) as u64;
        let enough = u64::from(self.out.ring_bytes / MESSAGES_SHARE) + record;
        // What is wrong with the peer's word is found at the next push.
        self.out.producer.free_bytes(enough).is_ok_and(|free| free >= enough)
    }

    fn is_taken(&mut self, position: u64) -> bool {
        self.out.consumed >= position || self.out.producer.consumed().is_ok_and(|at| at >= position)
    }

    fn direct(
        &mut self,
        core: &mut Core,
        _: Connection,
        kind: RmaKind,
        first: &RmaSegment,
        more: &[RmaSegment],
    ) -> Option<Status> {
        self.asker.as_mut()?.copy(core, self.out, self.conn, kind, first, more)
    }

    fn direct_atomic(
        &mut self,
        core: &mut Core,
        _: Connection,
        atomic: Atomic,
        target: RemoteAddress,
        result: Option<RemoteAddress>,
    ) -> Option<Status> {
        self.asker.as_mut()?.atomic(core, self.out, self.conn, atomic, target, result)
    }

    fn try_channel(&mut self, kind: RmaKind, len_bytes: u64) -> bool {
        self.pull.as_mut().is_some_and(|pull| pull.is_ring_to_be_tried(kind, len_bytes))
    }

    fn pull_from_bytes(&self, kind: RmaKind) -> u64 {
        self.pull.as_ref().map_or(u64::MAX, |pull| pull.pays_from_bytes(kind))
    }

    fn pull(&mut self, from: u64, to: &Bytes) -> Pulled {
        self.pull.as_mut().map_or(Pulled::Unreadable, |pull| pull.pull(from, to))
    }
}

impl Arrived for Record<'_, Segment> {
    fn len_bytes(&self) -> usize {
        Record::len_bytes(self) as usize
    }

    fn read(&self, skip_bytes: usize, out: &mut [u8]) -> usize {
        self.copy_from(skip_bytes, out)
    }

    fn read_to(&self, skip_bytes: usize, to: &Bytes) -> bool {
        let len_bytes = (Record::len_bytes(self) as usize).saturating_sub(skip_bytes);
        self.copy_to_memory(skip_bytes, to, 0, len_bytes)
    }
}

/// Gives a flow its turn.
pub(super) fn turn_flow(
    link: &mut Link,
    table: &mut Table,
    core: &mut Core,
    flow_key: Key,
    conn_key: Key,
    budget_bytes: &mut u64,
) -> Turn {
    let ack = link.ack();
    let Some(conn) = table.conns.get(conn_key).filter(|conn| conn.rma == flow_key) else {
        return Turn::default();
    };
    let header = RecordHeader { kind: kind::RMA, flags: conn.peer_generation, conn: conn.peer_index, ack };
    let Some((flow, ops)) = table.rma.flows.get_mut(flow_key) else { return Turn::default() };
    let notifies = &mut link.rma.notifies;
    let asker = link.asker.as_deref_mut().filter(|_| link.life == Life::Up);
    let pull = link.pull.as_deref_mut();
    let (out, conn) = (&mut link.out, conn_key);
    let mut channel = RingChannel { out, notifies, flow: flow_key, conn, header, asker, pull };
    // Where a trial may begin: one look at the clock more is nothing beside it.
    let may_begin = channel.pull.as_ref().is_some_and(|pull| pull.is_usable()) && flow.trial().is_none();
    let began_ns = if may_begin { clock::now_ns() } else { 0 };
    let turn = flow.turn(ops, core, &mut channel, budget_bytes);
    if let Some(trial) = flow.trial().as_mut().filter(|trial| trial.began_ns == 0) {
        trial.began_ns = began_ns;
    }
    turn
}

/// What became of a record that came.
pub(in crate::transport::shm) enum TakenRma {
    Yes,
    /// It has a message, and there is no receive buffer.
    NoBuffer,
    /// Its connection has nothing under way, and can't have: its process has its share, or there is no memory.
    NoFlow(Key),
}

/// A record of remote memory access came.
///
/// # Errors
/// No honest peer sends such a record.
pub(in crate::transport::shm) fn take(
    record: &Record<'_, Segment>,
    here: Key,
    rma: &mut LinkRma,
    pull: Option<&mut Pull>,
    process: u64,
    table: &mut Table,
    core: &mut Core,
) -> Result<TakenRma, Corrupt> {
    let header = record.header();
    let mss = table.mss as usize;
    let now_ns = table.now_ns;
    let Some((key, conn)) = table.named(header.conn, header.flags).filter(|(_, conn)| conn.at == here) else {
        table.counts.unknown_connection += 1;
        return Ok(TakenRma::Yes);
    };
    if !conn.is_reliable {
        return Err(Corrupt::Check);
    }
    let delivers = match conn.state {
        State::Open => true,
        // Ours may be answered still; messages are no longer wanted.
        State::Closing => false,
        State::Broken | State::Making | State::Gone => {
            table.counts.after_close += 1;
            return Ok(TakenRma::Yes);
        }
    };
    let connection = conn.connection;
    let mut flow_key = conn.rma;
    if table.rma.flows.get(flow_key).is_none() {
        // Nothing of ours is under way there that it could be an answer to.
        if !delivers {
            table.counts.after_close += 1;
            return Ok(TakenRma::Yes);
        }
        let Some(lent) = table.rma.lend(process, connection, now_ns) else {
            return Ok(TakenRma::NoFlow(key));
        };
        flow_key = lent;
        if let Some(conn) = table.conns.get_mut(key) {
            conn.rma = lent;
        }
        rma.flows.push((lent, key));
    }
    let Some((flow, ops)) = table.rma.flows.get_mut(flow_key) else { return Ok(TakenRma::Yes) };
    let taken = flow.take(ops, core, record, mss, delivers).map_err(|Fault| Corrupt::Check)?;
    if let Some(trial) = flow.trial().take_if(|trial| trial.has_ended)
        && let Some(pull) = pull
    {
        pull.ring_tried(&trial, clock::now_ns());
    }
    // Also one that is to be closed and has no operations any more: its turn does that.
    if (flow.has_work() || flow.closing) && !flow.queued {
        flow.queued = true;
        rma.queue.push_back((flow_key, key));
    }
    Ok(match taken {
        ordered_rma::Taken::Yes => TakenRma::Yes,
        ordered_rma::Taken::NoBuffer => TakenRma::NoBuffer,
    })
}

/// If the peer's program has no buffer for a message behind data, takes such messages of a flow back. Answers whether
/// there were any.
pub(super) fn take_back_notifies(
    link: &mut Link,
    table: &mut Table,
    core: &mut Core,
    flow_key: Key,
) -> Result<bool, Corrupt> {
    let mut taken_back = Vec::new();
    {
        let Some(mut guard) = link.out.producer.try_cancel()? else { return Ok(false) };
        link.rma.notifies.retain(|notify| {
            let mine = notify.flow == flow_key && guard.void(notify.span);
            if mine {
                taken_back.push(notify.slot);
            }
            !mine
        });
    }
    let Some((flow, ops)) = table.rma.flows.get_mut(flow_key) else { return Ok(false) };
    link.rnr += taken_back.len() as u64;
    for slot in &taken_back {
        flow.notify_taken_back(ops, core, *slot);
    }
    if !taken_back.is_empty()
        && let Some((_, conn_key)) = link.rma.flows.iter().find(|(flow, _)| *flow == flow_key).copied()
    {
        queue(link, table, flow_key, conn_key);
    }
    Ok(!taken_back.is_empty())
}

/// Puts a flow into the queue of those with something to do, if it has.
pub(super) fn queue(link: &mut Link, table: &mut Table, flow_key: Key, conn_key: Key) {
    if let Some((flow, _)) = table.rma.flows.get_mut(flow_key)
        && flow.has_work()
        && !flow.queued
    {
        flow.queued = true;
        link.rma.queue.push_back((flow_key, conn_key));
    }
}
