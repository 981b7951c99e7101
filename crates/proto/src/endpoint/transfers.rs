//! Remote memory operations: what all connections share of them, their start, their data, and their end before their time.

use super::pump::Pump;
use super::shared::Shared;
use crate::conn::{Active, ActiveConn};
use crate::limits::{HEADER_BYTES, RECORD_BYTES, RMA_SHARE};
use crate::operations::deadline::Deadline;
use crate::operations::exchange::Exchange;
use crate::operations::state::{Bulk, Rma, Use};
use crate::operations::table::{NewOp, NodeId, Ops};
use crate::reliable::rx::RxRing;
use crate::reliable::tx::{TxRing, TxSlot, holds, weight};
use crate::rma::{DATA_HEAD_BYTES, Record, WRITE_HEAD_BYTES, emit_data_head, emit_write_head};
use crate::time::{ns_since, ticks};
use crate::wire::{Content, Records, set_bare_at};
use crate::{Blocked, ConnKey, ConnState, RemoteAddress, Seq, Sink, Status, Time};

/// The least time between two looks at operations that may be late.
const LOOK_NS_MIN: u64 = 1_000_000;

/// The remote memory operations of an endpoint, and the states that connections borrow for them.
pub(crate) struct Transfers {
    pub operations: Ops,
    /// States that no connection has borrowed, and how many there are with those that are borrowed.
    pub spare: Vec<Box<Rma>>,
    pub made: u64,
    /// Bundles of bulk data are made and sent one by one.
    #[cfg(test)]
    pub only_long: bool,
}

impl Transfers {
    pub fn new(operations_max: u32) -> Transfers {
        Transfers {
            operations: Ops::new(operations_max),
            spare: Vec::new(),
            made: 0,
            #[cfg(test)]
            only_long: false,
        }
    }

    /// Begins an operation. `is_alone`: there is no other connection that needs memory for its own. `None`: there is no memory.
    pub fn start(
        &mut self,
        shared: &mut Shared,
        conn: &mut ActiveConn<'_>,
        new: &NewOp<'_>,
        is_alone: bool,
        now: Time,
    ) -> Option<()> {
        let ActiveConn { active, .. } = conn;
        let nodes =
            Ops::nodes_for(new.segments.len(), new.atomic.is_some(), new.message.map_or(0, <[u8]>::len));
        if !self.has_rma(shared, active) {
            return None;
        }
        let rma = active.rma.as_deref_mut()?;
        let held = (!is_alone).then_some((rma.held_ops, rma.held_nodes));
        if !self.reserve(shared, nodes, held) {
            return None;
        }
        let id = self.operations.add(new)?;
        rma.held_ops += 1;
        rma.held_nodes += nodes;
        if let Some(op) = self.operations.get_mut(id).filter(|_| rma.fence_owed) {
            (op.fence, rma.fence_owed) = (true, false);
        }
        rma.queue.push(&mut self.operations, id);
        if rma.ops == 0 {
            rma.progress.restart(new.now_ticks);
        }
        rma.ops += 1;
        active.used_at = now;
        if active.send_due == Time::FAR {
            active.send_due = now.plus(shared.send_timeout_ns(active.send_timeout_ms));
            shared.arm(active);
        }
        shared.enqueue(active);
        Some(())
    }

    //= wire.md R-RMA-5
    /// Writes the body of bundle `seq`; returns its length, which is less than was planned if the memory has gone or
    /// the operation is over.
    #[expect(clippy::too_many_arguments, reason = "two places in one call")]
    pub fn write_bulk(
        &mut self,
        shared: &mut Shared,
        active: &mut Active,
        key: ConnKey,
        token: u64,
        seq: Seq,
        now: Time,
        body: &mut [u8],
        sink: &mut impl Sink,
    ) -> usize {
        let Some(rma) = active.rma.as_deref_mut() else { return 0 };
        let written = match rma.bulk(seq) {
            Bulk::Write { slot, last, bytes, node, offset, op } => {
                let over = self.operations.get(op).is_none_or(|op| op.over);
                let written = if over {
                    None
                } else {
                    self.write_from(node, offset, (slot, last), bytes.into(), body, sink)
                };
                if written.is_none() && !over {
                    let now_ticks = ticks(now.0);
                    let (ops, counters) = (&mut self.operations, &mut shared.counters);
                    let mut exchange = Exchange { ops, counters, rma, key, token, now_ticks, serve: true };
                    exchange.end(op, Status::RmaHandle, sink);
                }
                // The target must learn of the end in any case, since it has to report the operation's outcome; and that
                // something is missing, since it may have the message already.
                let slot = u16::from(slot);
                match written {
                    None if last => Record::Notify { slot, message: None }.emit(body),
                    None => Record::Write { slot, at: RemoteAddress::default(), last, data: &[] }.emit(body),
                    written => written,
                }
            }
            Bulk::Data { slot, bytes, offset, at } => {
                let len = usize::from(bytes);
                let total = emit_data_head(slot.into(), offset.into(), len, body);
                let read = body
                    .get_mut(DATA_HEAD_BYTES..DATA_HEAD_BYTES + len)
                    .is_some_and(|data| sink.peer_read(key, token, at, data).is_ok());
                if read {
                    total
                } else {
                    shared.counters.rma_refused += 1;
                    let (offset, len_bytes) = (offset.into(), bytes.into());
                    Record::Gone { slot: slot.into(), offset, len_bytes }.emit(body)
                }
            }
            Bulk::None => write_nothing(body),
        };
        let written = written.unwrap_or(0);
        if let Some(slot) = active.tx_ring.as_mut().map(|ring| ring.at(seq)) {
            slot.body_bytes = written as u16;
        }
        written
    }

    /// Writes data of one segment; `None`: the memory is gone.
    fn write_from(
        &self,
        node: NodeId,
        offset: u64,
        (slot, last): (u8, bool),
        len: usize,
        body: &mut [u8],
        sink: &mut impl Sink,
    ) -> Option<usize> {
        let segment = self.operations.segment(node)?;
        let total = emit_write_head(slot.into(), segment.remote.plus(offset), last, len, body)?;
        let data = body.get_mut(WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + len)?;
        sink.local_read(segment.local.plus(offset), data).then_some(total)
    }

    /// A state for a connection's remote memory access; `None`: there is no memory.
    pub fn take(&mut self, shared: &mut Shared) -> Option<Box<Rma>> {
        self.spare.pop().or_else(|| {
            // The memory that remains must be enough for the windows that carry it, or all wait for one another.
            let fits = shared.fits(Rma::COST_BYTES + TxRing::COST_BYTES + RxRing::COST_BYTES);
            self.made += u64::from(fits);
            shared.rma_bytes += u64::from(fits) * Rma::COST_BYTES;
            fits.then(|| Box::new(Rma::new()))
        })
    }

    /// Gives the connection a state for remote memory access if it has none. False: there is no memory.
    pub fn has_rma(&mut self, shared: &mut Shared, active: &mut Active) -> bool {
        if active.rma.is_none() {
            active.rma = self.take(shared);
        }
        active.rma.is_some()
    }

    /// Takes a connection's state back; whatever is in it is forgotten.
    pub fn give_back(&mut self, rma: Option<Box<Rma>>) {
        if let Some(mut rma) = rma {
            debug_assert_eq!((rma.held_ops, rma.held_nodes), (0, 0), "forgotten with the window");
            if rma.is_idle() {
                (rma.unsent, rma.fence, rma.retry_due) = (0, None, Time::FAR);
                rma.fence_owed = false;
            } else {
                *rma = Rma::new();
            }
            self.spare.push(rma);
        }
    }

    /// Makes sure that one more operation with `nodes` segments and parts of a message can be remembered. `held`: what its connection
    /// holds already, if there are others: then it gets no more than remain for those.
    pub fn reserve(&mut self, shared: &mut Shared, nodes: usize, held: Option<(u32, usize)>) -> bool {
        // What is kept for operations must leave memory for what carries them, on both sides of every connection.
        let share_bytes =
            (shared.config.memory_bytes_max / RMA_SHARE).saturating_sub(self.operations.bytes());
        let space_bytes = shared.available_bytes().min(share_bytes);
        if held.is_some_and(|(ops, held_nodes)| !self.operations.is_fair(ops, held_nodes, nodes, space_bytes))
        {
            return false;
        }
        let before = self.operations.bytes();
        let is_reserved = self.operations.reserve(nodes, space_bytes);
        shared.rma_bytes += self.operations.bytes() - before;
        is_reserved
    }

    /// Ends all operations of a connection whose window is being emptied, and takes back what it borrowed for them.
    pub fn fail_operations(
        &mut self,
        shared: &mut Shared,
        conn: &mut ActiveConn<'_>,
        status: Status,
        sink: &mut impl Sink,
    ) {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(mut rma) = active.rma.take() else { return };
        let (ops, counters) = (&mut self.operations, &mut shared.counters);
        Exchange { ops, counters, rma: &mut rma, key, token, now_ticks: 0, serve: false }
            .end_all(status, sink);
        self.give_back(Some(rma));
    }

    /// Ends the operations whose time is over. Returns when to look again.
    //= wire.md R-RMA-9
    pub fn end_late(
        &mut self,
        shared: &mut Shared,
        conn: &mut ActiveConn<'_>,
        deadline: Deadline,
        now: Time,
        sink: &mut impl Sink,
    ) -> Time {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(mut rma) = active.rma.take() else { return Time::FAR };
        if rma.ops == 0 {
            active.rma = Some(rma);
            return Time::FAR;
        }
        let (ops, counters) = (&mut self.operations, &mut shared.counters);
        let now_ticks = ticks(now.0);
        let mut exchange = Exchange { ops, counters, rma: &mut rma, key, token, now_ticks, serve: true };
        let longest_ns = exchange.end_late(deadline, sink);
        let has_work = rma.has_work();
        active.rma = Some(rma);
        if has_work {
            shared.enqueue(active);
        }
        match longest_ns {
            Some(counted_ns) => now.plus(deadline.timeout_ns.saturating_sub(counted_ns).max(LOOK_NS_MIN)),
            None => Time::FAR,
        }
    }

    /// A bundle that was refused will be sent again: notifications in it that are too old deliver nothing any more,
    /// and their operations end.
    //= wire.md R-RNR-6
    #[expect(
        clippy::too_many_arguments,
        reason = "one datagram or message, and the parts of the protocol it touches"
    )]
    pub fn give_up_notifications(
        &mut self,
        shared: &mut Shared,
        active: &mut Active,
        (key, token): (ConnKey, u64),
        slot: &TxSlot,
        timeout_ns: u64,
        now: Time,
        sink: &mut impl Sink,
    ) {
        if slot.holds & holds::RMA == 0 {
            return;
        }
        let Some(rma) = active.rma.as_deref_mut() else { return };
        let ops = &mut self.operations;
        let Shared { counters, pool, .. } = &mut *shared;
        let mut exchange = Exchange { ops, counters, rma, key, token, now_ticks: ticks(now.0), serve: true };
        let body = &mut pool.get_mut(slot.buf)[..usize::from(slot.body_bytes)];
        let mut at = 0;
        while let Some((content, end)) = Records::from(body, at).next() {
            if let Content::Rma(Record::Notify { slot, message: Some(_) }) = content
                && let Some(slot) = exchange.rma.slots.get(usize::from(slot)).copied()
                && slot.waits == Use::Ended
                && ns_since(slot.issued_ticks, now.0) >= timeout_ns
            {
                exchange.end(slot.op, Status::ReceiverNotReady, sink);
                set_bare_at(body, at);
            }
            at = end;
        }
    }

    /// Makes records as far as one bundle takes them. Says what keeps it from making more, if that is not for lack
    /// of work.
    #[inline]
    pub fn pump(
        &mut self,
        shared: &mut Shared,
        conn: &mut ActiveConn<'_>,
        now: Time,
        sink: &mut impl Sink,
    ) -> Option<Blocked> {
        let has_work = conn.active.has_rma_work();
        if has_work { self.pump_some(shared, conn, now, sink) } else { None }
    }

    fn pump_some(
        &mut self,
        shared: &mut Shared,
        conn: &mut ActiveConn<'_>,
        now: Time,
        sink: &mut impl Sink,
    ) -> Option<Blocked> {
        let (key, token) = (conn.key(), conn.base.token);
        let body_bytes_max = usize::from(conn.base.datagram_bytes) - HEADER_BYTES;
        let (closing, peer_window_kib) = (conn.base.state == ConnState::Lingering, conn.base.peer_window_kib);
        let timeout_ns = shared.send_timeout_ns(conn.active.send_timeout_ms);
        let active = &mut *conn.active;
        if active.tx.resend != 0 {
            return None; // what was lost goes first
        }
        // Nothing is made before it can leave: a message that comes meanwhile must not find itself behind it.
        let blocked = active.choose_path(weight(RECORD_BYTES as u16), peer_window_kib, now).err();
        if blocked.is_some() {
            return blocked;
        }
        let mut rma = active.rma.take()?;
        if closing && rma.ops == 0 {
            rma.drop_answers(); // the peer learns that we take no more, and waits for nothing
            active.rma = Some(rma);
            return None;
        }
        let mut pump = Pump {
            shared,
            ops: &mut self.operations,
            active,
            rma: &mut rma,
            key,
            token,
            now,
            body_bytes_max,
            begun: false,
        };
        let blocked = pump.fill(sink);
        active.rma = Some(rma);
        //= wire.md R-LOSS-5
        // Answers are no sends, but a peer that does not acknowledge them is as dead.
        if active.send_due == Time::FAR && !active.tx.is_empty() {
            active.send_due = now.plus(timeout_ns);
        }
        blocked
    }
}

/// Writes a record that means nothing.
fn write_nothing(body: &mut [u8]) -> Option<usize> {
    body.get_mut(..RECORD_BYTES)?.fill(0);
    Some(RECORD_BYTES)
}
