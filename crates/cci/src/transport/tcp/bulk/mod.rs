//! Remote memory over TCP: a second stream beside the connection's, made when it is first needed, carries the records of
//! [`ordered_rma`](crate::transport::ordered_rma). So no message stands behind a long transfer.
//!
//! `docs/adr/0008-tcp.md` has the reasons.

mod care;
mod places;
mod report;
#[cfg(test)]
mod tests;
mod work;

use self::places::{Places, Turn};
use super::Tcp;
use super::conn::State;
use super::pipe::{self, Pipe};
use super::second_stream::{Admitted, Bulk};
use super::watched::Watched;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::Core;
use crate::engine::regions::Region;
use crate::error::SendError;
use crate::transport::ordered_rma::stream::{ByteStream, Ended, scratch_bytes};
use crate::transport::ordered_rma::{Flow, Flows, Start, What};
use crate::transport::quota::Host;
use crate::transport::token;
use crate::transport::{AtomicRequest, RmaRequest};
use cci_memory::bytes::Bytes;
use cci_memory::fallible;
use cci_memory::slab::Key;
use cci_proto::RmaSegment;
use cci_sys::clock;
use cci_sys::event::Interest;
use std::collections::VecDeque;
use std::io::ErrorKind;

/// What may wait in the kernel without having been sent: as much as one record, so that a short one behind it waits for little.
const UNSENT_BYTES_MAX: u32 = 256 << 10;
/// A second stream that has ended may be the first sign that the peer's program disconnects: so long its CLOSE, and what it
/// said before, are waited for.
const GRACE_NS: u64 = 200_000_000;

/// What all connections share.
pub(super) struct Bulks {
    flows: Flows,
    /// What is read goes through here, unless it goes straight into place.
    scratch: Vec<u8>,
    message_bytes_max: usize,
    /// Connections with something under way, or of late; and those for which there was no room, in order.
    active: Vec<Key>,
    waiting: VecDeque<Key>,
    places: Places,
    /// One of the active ones had too little to go on; for so many turns others give way to it.
    short_turns: usize,
    /// Where the last of them is.
    short_host: Option<Host>,
    /// When the first of them is to be looked after.
    due_ns: u64,
    looked_ns: u64,
    /// How long this side's program has not polled while something was under way: that is not the peers' fault.
    absent_ns: u64,
    /// The kernel was to wake this side since the last look.
    slept: bool,
    /// Something is to be done that waits for nobody.
    at_once: bool,
    /// Turns in a row in which nothing moved.
    still_turns: usize,
    /// Messages of the endpoint so far, and when there last was one.
    messages: u64,
    messages_ns: u64,
    counts: Counts,
}

/// Counted since the endpoint was opened.
#[derive(Default)]
struct Counts {
    operations: u64,
    streams: u64,
    /// Times that a stream had to wait for its turn.
    waited: u64,
    /// Connections that had to make room for those.
    crowded: u64,
    reads: u64,
    writes: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Of these, straight into place, and through a buffer.
    bytes_placed: u64,
    bytes_copied: u64,
    held: u64,
}

impl Bulks {
    pub fn new(operations_max: u32, message_bytes_max: u32, memory_bytes_max: u64) -> Bulks {
        Bulks {
            flows: Flows::new(operations_max),
            scratch: Vec::new(),
            message_bytes_max: message_bytes_max as usize,
            active: Vec::new(),
            waiting: VecDeque::new(),
            places: Places::new(memory_bytes_max),
            short_turns: 0,
            short_host: None,
            due_ns: u64::MAX,
            looked_ns: 0,
            absent_ns: 0,
            slept: false,
            at_once: false,
            still_turns: 0,
            messages: 0,
            messages_ns: 0,
            counts: Counts::default(),
        }
    }

    /// The clock by which operations are judged: it stands still while this side's program does not poll.
    fn clock_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.absent_ns)
    }
}

/// The second stream as [`ordered_rma`](crate::transport::ordered_rma) wants it.
struct Wire<'a> {
    stream: &'a mut Pipe,
    /// Something came that the peer has not sealed.
    forged: bool,
}

impl ByteStream for Wire<'_> {
    fn write(&mut self, head: &[u8], data: Option<&Bytes>) -> Result<usize, Ended> {
        match self.stream.send_memory(head, data) {
            Ok(taken) => Ok(taken),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(Ended),
        }
    }

    fn read(&mut self, to: Option<&Bytes>, rest: &mut [u8]) -> Result<usize, Ended> {
        match self.stream.recv_memory(to, rest) {
            Ok(0) => Err(Ended),
            Ok(got) => Ok(got),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => {
                self.forged = pipe::is_forgery(&error);
                Err(Ended)
            }
        }
    }
}

impl Tcp {
    /// Enters an operation, and does of it what can be done now.
    pub(super) fn start_rma(
        &mut self,
        core: &mut Core,
        key: Key,
        request: &RmaRequest<'_>,
        name: u64,
    ) -> Result<(), SendError> {
        let (pieces, message, fence) = (request.pieces, request.message, request.fence);
        self.start_operation(core, key, What::Move(request.kind), pieces, message, fence, name)
    }

    /// The same for an atomic operation.
    pub(super) fn start_atomic(
        &mut self,
        core: &mut Core,
        key: Key,
        request: &AtomicRequest,
        name: u64,
    ) -> Result<(), SendError> {
        let AtomicRequest { atomic, target, result, fence } = *request;
        self.start_operation(core, key, What::Atomic { atomic, target, result }, &[], None, fence, name)
    }

    #[allow(clippy::too_many_arguments, reason = "the two above in one")]
    fn start_operation(
        &mut self,
        core: &mut Core,
        key: Key,
        what: What,
        pieces: &[RmaSegment],
        message: Option<&[u8]>,
        fence: bool,
        name: u64,
    ) -> Result<(), SendError> {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.state == State::Open) else {
            return Err(SendError::Disconnected);
        };
        // What a fence waits for: all sends before it have ended.
        let (connection, position) = (conn.connection, conn.messages_sent);
        let bulk = conn.bulk.get_or_insert_with(Bulk::new);
        if bulk.ended_until_ns > 0 {
            return Err(SendError::Disconnected);
        }
        self.shared.now_ns = clock::now_ns();
        if !self.admit(key, Admitted::Own) {
            return Err(SendError::WouldBlock);
        }
        let now_ns = self.bulks.clock_ns(self.shared.now_ns);
        let Some(conn) = self.conns.get_mut(key) else { return Err(SendError::Disconnected) };
        let host = conn.host();
        let Some(bulk) = conn.bulk.as_mut() else { return Err(SendError::Disconnected) };
        let Bulks { flows, places, counts, .. } = &mut self.bulks;
        if bulk.is_slim && !places.fill(host, bulk) || !bulk.lend(flows, connection, now_ns) {
            return Err(SendError::WouldBlock);
        }
        let Some((flow, ops)) = flows.get_mut(bulk.flow) else { return Err(SendError::WouldBlock) };
        let is_alone = core.counters.connections_open < 2;
        if !flow.start(ops, &Start { name, what, pieces, message, fence, position, now_ns, is_alone }) {
            return Err(SendError::WouldBlock);
        }
        counts.operations += 1;
        // Looked after from now on.
        self.bulks.due_ns = 0;
        if bulk.stream.is_some() {
            self.work_bulk(core, key, Turn::Serve);
        } else {
            self.want_bulk(core, key);
        }
        Ok(())
    }

    /// The second stream of a connection is there.
    pub(super) fn bulk_came(&mut self, core: &mut Core, key: Key, mut stream: Pipe) {
        if self.conns.get(key).is_some_and(|conn| conn.state == State::Accepting) {
            // Nobody else knows the ticket: its CONFIRM is on the way.
            self.open_conn(core, key);
        }
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.bulk_may_come()) else { return };
        let bulk = conn.bulk.get_or_insert_with(Bulk::new);
        // Without it a short record may have to wait for longer; that is all.
        let _ = stream.set_unsent_bytes_max(UNSENT_BYTES_MAX);
        if self.bulks.scratch.is_empty() {
            let Ok(scratch) = fallible::filled(scratch_bytes(self.bulks.message_bytes_max), 0) else {
                self.shared.counts.refused_system += 1;
                return self.end(core, key, DisconnectReason::Refused);
            };
            self.bulks.scratch = scratch.into_vec();
        }
        stream.want();
        bulk.stream = Some(Watched::new(stream, token::make(token::BULK, key)));
        bulk.watch(core, Some(Interest::Read));
        conn.wants_bulk = true;
        self.bulks.counts.streams += 1;
        // What this side waits for can go; of what comes the kernel tells.
        if self.conns.get(key).and_then(|conn| conn.bulk.as_ref()).is_some_and(|bulk| bulk.is_active) {
            self.work_bulk(core, key, Turn::Whole);
        }
    }

    /// The kernel has something to say of a second stream. Answers whether it is one that polls did not look at.
    pub(super) fn bulk_ready(&mut self, core: &mut Core, key: Key, hung_up: bool) -> bool {
        let Some(bulk) = self.conns.get_mut(key).and_then(|conn| conn.bulk.as_mut()) else { return false };
        if bulk.stream.is_none() {
            return false;
        }
        let interest = bulk.stream.as_ref().and_then(Watched::interest);
        if interest.is_some_and(|interest| interest != Interest::Read) {
            bulk.watch(core, Some(Interest::Read));
            bulk.writer.has_room();
        }
        if hung_up {
            // What is left to be read is not much, and its end behind it.
            (bulk.turns, bulk.yields_ns) = (0, None);
        }
        if bulk.is_active {
            // Its turn comes in this poll.
            return false;
        }
        let is_admitted = self.admit(key, Admitted::Peer);
        if !is_admitted {
            self.wait_in_line(core, key);
        }
        is_admitted
    }

    /// No operation of this side's is under way on a connection that closes.
    pub(super) fn bulk_is_over(&mut self, _: &mut Core, key: Key) -> bool {
        let bulk = self.conns.get(key).and_then(|conn| conn.bulk.as_ref());
        bulk.and_then(|bulk| self.bulks.flows.get(bulk.flow)).is_none_or(|flow| flow.operations() == 0)
    }

    /// Operations of this side's are under way, whose answers may still come.
    pub(super) fn bulk_awaits_answers(&self, key: Key) -> bool {
        let bulk = self.conns.get(key).and_then(|conn| conn.bulk.as_ref());
        bulk.filter(|bulk| bulk.stream.is_some())
            .and_then(|bulk| self.bulks.flows.get(bulk.flow))
            .is_some_and(|flow| flow.operations() > 0)
    }

    /// What the peer's operations came to is still to be said.
    pub(super) fn bulk_owes_answers(&self, key: Key) -> bool {
        let Some(bulk) = self.conns.get(key).and_then(|conn| conn.bulk.as_ref()) else { return false };
        let Some(stream) = &bulk.stream else { return false };
        let has_answers = self.bulks.flows.get(bulk.flow).is_some_and(Flow::has_answers);
        has_answers || !bulk.writer.is_empty() || stream.has_unsent()
    }

    /// How long what this side has under way on a connection may take at the least rate.
    pub(super) fn bulk_allowance_ns(&self, key: Key) -> u64 {
        let bulk = self.conns.get(key).and_then(|conn| conn.bulk.as_ref());
        bulk.and_then(|bulk| self.bulks.flows.get(bulk.flow)).map_or(0, Flow::allowance_ns)
    }

    /// A send timeout has changed: operations are looked at anew.
    pub(super) fn bulk_timeout_changed(&mut self) {
        self.bulks.due_ns = 0;
    }

    /// Operations of this side that have not ended, on all connections.
    pub(super) fn bulk_operations(&self) -> u32 {
        self.bulks.flows.ops.len()
    }

    /// Ends all operations of a connection that is over, and its second stream.
    pub(super) fn bulk_end(&mut self, core: &mut Core, key: Key, status: Status) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let host = conn.host();
        let Some(bulk) = conn.bulk.take() else { return };
        self.drop_stream(core, host, bulk, status);
    }

    fn drop_stream(&mut self, core: &mut Core, host: Host, mut bulk: Box<Bulk>, status: Status) {
        bulk.watch(core, None);
        self.bulks.places.release(host, &mut bulk);
        if let Some((flow, ops)) = self.bulks.flows.get_mut(bulk.flow) {
            flow.end(ops, core, status);
            self.bulks.flows.give_back(bulk.flow);
        }
    }

    /// The second stream has ended by itself.
    fn bulk_ended(&mut self, core: &mut Core, key: Key) {
        //= wire.md R-TCP-24
        let until_ns = self.shared.now_ns.saturating_add(GRACE_NS);
        let Some(conn) = self.conns.get_mut(key) else { return };
        let host = conn.host();
        let mut over = Bulk::new();
        (over.ended_until_ns, over.is_active) = (until_ns, true);
        let Some(bulk) = conn.bulk.replace(over) else { return };
        if !bulk.is_active {
            self.bulks.active.push(key);
        }
        self.bulks.due_ns = self.bulks.due_ns.min(until_ns);
        self.drop_stream(core, host, bulk, Status::Disconnected);
        self.go_on_closing(core, key);
    }

    /// A region is taken out of the table: nothing is read from it any more when this returns.
    pub(super) fn bulk_region_removed(&mut self, _: &mut Core, _: u64, region: &Region) {
        for key in &self.bulks.active {
            if let Some(bulk) = self.conns.get_mut(*key).and_then(|conn| conn.bulk.as_mut()) {
                bulk.writer.memory_goes(&region.bytes);
            }
        }
    }
}
