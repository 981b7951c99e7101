//! Bundles come in: they are delivered, kept, or refused.
//!
//! Data of a remote operation that has a bundle of its own is written to its address at once. All other records of
//! remote operations are handled strictly in the order of the bundles, on unordered connections too. A bundle is "passed"
//! when its records have been handled. Messages in such bundles wait for the program if need be, as all messages do;
//! records never wait for messages.

use super::parts::Parts;
use super::shared::Shared;
use super::transfers::Transfers;
use crate::conn::table::Table;
use crate::conn::{Active, ActiveConn};
use crate::limits::{READY_PER_RETURN_MAX, WAITING_PER_RETURN_MAX, WINDOW_BUNDLES_MAX};
use crate::operations::exchange::Exchange;
use crate::operations::state::Rma;
use crate::pool::{Buf, Pool};
use crate::reliable::rx::{Bits, Order};
use crate::rma::Record;
use crate::time::ticks;
use crate::wire::{
    Content, Head, Holds, Messages, Records, Summary, check, flags, set_message_at, set_void_at,
};
use crate::{BundleSummary, ConnKey, ConnState, Event, PeerFault, Seq, Sink, Time};

/// How far the program has taken a bundle.
enum Taken {
    All,
    /// The program has taken it up to this byte of the body; 0: nothing.
    UpTo(usize),
}

/// Gives the records from byte `at` on to the program: how far it took them, how many messages, of how many bytes.
#[inline]
fn pass_on(key: ConnKey, token: u64, body: &[u8], at: usize, sink: &mut impl Sink) -> (Taken, u64, u64) {
    let (mut messages, mut bytes, mut done) = (0, 0, at);
    for (message, end) in Messages::from(body, at) {
        if let Some(payload) = message {
            if !sink.message(key, token, payload) {
                return (Taken::UpTo(done), messages, bytes);
            }
            messages += 1;
            bytes += payload.len() as u64;
        }
        done = end;
    }
    (Taken::All, messages, bytes)
}

/// What has come and does not go to the program at once.
pub(crate) struct Receiving {
    /// Bundles of which only parts have come.
    pub parts: Parts,
    /// Whether some that wait for receive buffers have not been looked at yet.
    is_feeding: bool,
}

impl Receiving {
    pub fn new(parts: Parts) -> Receiving {
        Receiving { parts, is_feeding: false }
    }

    /// Whether the last [`Receiving::feed`] left some connections out, with which the next one goes on.
    pub fn is_feeding(&self) -> bool {
        self.is_feeding
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one datagram or message, and the parts of the protocol it touches"
    )]
    pub(super) fn on_data(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        by: u8,
        (holds, body): (Holds, &[u8]),
        now: Time,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        if body.len() > usize::from(shared.config.datagram_bytes_max) {
            return Err(PeerFault::Length);
        }
        let active = &mut *conn.active;
        active.paths.get_mut(by).came(head.timestamp, now);
        if !conn.base.attribute.is_reliable() {
            if holds == Holds::Part {
                return self.on_part(shared, transfers, conn, head, by, body, now, sink);
            }
            let Holds::Messages(sum) = holds else { return Err(PeerFault::Unexpected) };
            on_unreliable(shared, conn, head, (sum, body), sink);
            return Ok(());
        }
        //= wire.md R-CLOSE-2
        // A closing side takes no more; its flag in the answer says so.
        if conn.takes_no_more() {
            let active = &mut *conn.active;
            active.paths.ack_by(by, head);
            shared.ack_now(active);
            return Ok(());
        }
        let active = &mut *conn.active;
        //= wire.md R-ORD-3
        let offset = head.seq.since(active.rx.next);
        // What is held for the program narrows our window, but not the sender's: its bundle is in order, and late is
        // our program.
        let behind = (active.rx.window()..WINDOW_BUNDLES_MAX).contains(&offset);
        if !behind && (offset >= WINDOW_BUNDLES_MAX || active.rx.has(head.seq)) {
            active.paths.ack_by(by, head);
            return shared.on_odd_bundle(active, offset);
        }
        //= wire.md R-RNR-2
        if head.epoch != conn.base.rx_epoch || active.refusing {
            shared.ack_now(active);
            return if head.epoch.wrapping_sub(conn.base.rx_epoch) > u16::MAX / 2
                || head.epoch == conn.base.rx_epoch
            {
                Ok(())
            } else {
                Err(PeerFault::Field)
            };
        }
        if behind {
            shared.counters.no_buffer_drops += 1;
            // A gap must never be refused (R-RNR-7).
            if !active.has_gap(conn.base.is_ordered()) {
                refuse(shared, conn);
            }
            return Ok(());
        }
        // Nothing is kept of a bundle that would not be taken if it were whole.
        if holds == Holds::Part {
            return self.on_part(shared, transfers, conn, head, by, body, now, sink);
        }
        let expected = active.is_expected(by, head.seq, offset);
        if offset != 0 && !expected {
            shared.counters.reordered_received += 1;
        }
        let taken = if let Holds::Messages(sum) = holds {
            // A program that has disconnected takes no messages; its operations still go on.
            conn.base.state == ConnState::Lingering || take_in(shared, conn, head, (sum, body), offset, sink)
        } else {
            take_in_rma(shared, transfers, conn, head, holds, body, offset, now, sink)
        };
        if !taken {
            return Ok(());
        }
        came(shared, transfers, conn, head, by, (offset, expected), now, sink);
        Ok(())
    }

    /// Takes in a part of a bundle; a bundle that is complete with it is handled as if it had come whole.
    #[cold]
    #[expect(
        clippy::too_many_arguments,
        reason = "one datagram or message, and the parts of the protocol it touches"
    )]
    fn on_part(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
        conn: &mut ActiveConn<'_>,
        head: &Head,
        by: u8,
        body: &[u8],
        now: Time,
        sink: &mut impl Sink,
    ) -> Result<(), PeerFault> {
        let added = self.parts.add(head, body);
        shared.parts_bytes = self.parts.bytes();
        let Some((at, bytes)) = added? else { return Ok(()) };
        let whole = self.parts.take(at);
        let body = whole.get(..bytes).unwrap_or_default();
        // These messages are in no datagram, so they can't be handed over once it has been handled.
        let one_by_one = |holds| match holds {
            Holds::Messages(_) => Holds::Messages(Summary::default()),
            other => other,
        };
        let outcome = check(body).and_then(|holds| {
            self.on_data(shared, transfers, conn, head, by, (one_by_one(holds), body), now, sink)
        });
        self.parts.give_back(at, whole);
        outcome
    }

    /// Receive buffers came back: delivers what is held, and lets refused senders go on.
    pub fn feed(&mut self, table: &mut Table, shared: &mut Shared, now: Time, sink: &mut impl Sink) {
        self.is_feeding = !feed_all(table, shared, now, sink);
    }
}

/// A bundle has come, and is delivered or stored: it is acknowledged, and those behind it may have their turn.
#[expect(
    clippy::too_many_arguments,
    reason = "one datagram or message, and the parts of the protocol it touches"
)]
#[inline]
pub(super) fn came(
    shared: &mut Shared,
    transfers: &mut Transfers,
    conn: &mut ActiveConn<'_>,
    head: &Head,
    by: u8,
    (offset, expected): (u32, bool),
    now: Time,
    sink: &mut impl Sink,
) {
    let active = &mut *conn.active;
    active.rx.arrived(head.seq);
    active.counters.bundles_received += 1;
    shared.counters.bundles_received += 1;
    shared.counters.count_useful();
    if expected && head.flags & flags::PROBE == 0 {
        shared.ack_soon(active, by, now);
    } else {
        active.paths.ack_by(by, head);
        shared.ack_now(active);
    }
    // On unordered connections only what has just been passed can be delivered: all else was, when it came.
    let mut passed = conn.base.is_ordered();
    if active.rx.unpassed != 0 && offset == 0 {
        passed |= pass_stored(shared, transfers, conn, head.seq.next(), now, sink);
    }
    let active = &mut *conn.active;
    if active.rx.held != 0 && !active.holding && passed {
        deliver_held(shared, conn, sink);
    } else if active.rx.held == 0 || !active.holding {
        active.rx.deliver = active.rx.next;
    }
    if conn.active.owes() {
        shared.watch(conn, now);
    }
}

/// What came may have to be answered, or may allow more to be sent.
fn after_records(shared: &mut Shared, active: &mut Active, rma: Box<Rma>) {
    if rma.has_work() {
        shared.enqueue(active);
    }
    active.rma = Some(rma);
}

/// True if a stored body has records of remote memory access that are still to be handled.
fn is_unpassed(pool: &Pool, buf: Buf) -> bool {
    let (body, at) = pool.stored(buf);
    Records::from(body, at).any(|(content, _)| matches!(content, Content::Rma(_)))
}

/// Takes the records of remote memory access out of a stored body: they will never be handled.
fn strip(pool: &mut Pool, buf: Buf) {
    let (body, mut at) = pool.stored_mut(buf);
    while let Some((content, end)) = Records::from(body, at).next() {
        if let Content::Rma(_) = content {
            set_void_at(body, at);
        }
        at = end;
    }
}

/// No bundle will fill the gaps any more: what order keeps behind them can never be delivered.
//= wire.md R-CLOSE-5
pub(super) fn forget_gaps(active: &mut Active, shared: &mut Shared, ordered: bool) {
    if !ordered && active.rx.unpassed != 0 {
        // Messages were acknowledged one by one; what is around them will never be complete.
        let mut seq = active.rx.next;
        while seq != active.rx.end {
            let buf = active.rx_ring.as_ref().map_or(Buf::NONE, |ring| ring.get(seq));
            if buf.is_some() {
                strip(&mut shared.pool, buf);
            }
            seq = seq.next();
        }
    }
    active.rx.unpassed = 0;
    if let Some(ring) = active.rx_ring.as_mut().filter(|_| ordered) {
        let mut seq = active.rx.next;
        while seq != active.rx.end {
            let buf = std::mem::replace(ring.at(seq), Buf::NONE);
            if buf.is_some() {
                shared.pool.give_back(buf);
                active.rx.held -= 1;
            }
            seq = seq.next();
        }
    } else {
        active.rx.next = active.rx.end;
    }
    active.rx.end = active.rx.next;
    active.rx.bits = Bits::default();
    if active.rx.held == 0 {
        active.rx.deliver = active.rx.next;
        shared.spare_rx_ring(active.rx_ring.take());
    }
}

/// Looks at connections that wait for receive buffers; true if at all of them.
fn feed_all(table: &mut Table, shared: &mut Shared, now: Time, sink: &mut impl Sink) -> bool {
    let (holding, refused) = (shared.holding.len(), shared.refused.len());
    for _ in 0..holding.min(WAITING_PER_RETURN_MAX) {
        let Some(index) = shared.holding.pop_front() else { break };
        let Some(conn) = table.at_mut(index) else { continue };
        let Some(mut conn) = conn.awake().filter(|conn| conn.active.holding) else { continue };
        let (key, token) = (conn.key(), conn.base.token);
        if !sink.has_buffer_for(key, token) {
            // It has its quota of them already; others may still get some.
            shared.holding.push_back(index);
            continue;
        }
        conn.active.holding = false;
        conn.active.used_at = now;
        let took_all = deliver_held(shared, &mut conn, sink);
        shared.arm(conn.active);
        if !took_all && sink.has_buffer_for(key, token) {
            return false; // no more buffers, and nobody knows whose; the one that waits goes to the end of the queue
        }
    }
    //= wire.md R-RNR-4
    let mut reported = 0;
    for _ in 0..refused.min(WAITING_PER_RETURN_MAX) {
        if reported == READY_PER_RETURN_MAX {
            return false;
        }
        let Some(index) = shared.refused.pop_front() else { break };
        let Some(conn) = table.at_mut(index) else { continue };
        let Some(conn) = conn.awake().filter(|conn| conn.active.listed) else { continue };
        let (key, token) = (conn.key(), conn.base.token);
        let active = conn.active;
        if active.refusing && !sink.has_buffer_for(key, token) {
            shared.refused.push_back(index);
            continue;
        }
        active.listed = false;
        if active.refusing {
            active.refusing = false;
            active.used_at = now;
            shared.ack_now(active);
            reported += 1;
        }
    }
    holding.max(refused) <= WAITING_PER_RETURN_MAX
}

//= wire.md R-ACK-7
/// Delivers or stores a new bundle; false: neither, it has not come as far as the sender is concerned.
fn take_in(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    head: &Head,
    (sum, body): (Summary, &[u8]),
    offset: u32,
    sink: &mut impl Sink,
) -> bool {
    let (key, token, ordered) = (conn.key(), conn.base.token, conn.base.is_ordered());
    let active = &mut *conn.active;
    let deliverable = if ordered { offset == 0 && active.rx.deliver == active.rx.next } else { true };
    let mut at = 0;
    if deliverable && !active.holding {
        // What is held may be delivered now, and must not take the buffers that the program counts on.
        if active.rx.held == 0 && hand_over(shared, active, (key, token), sum, sink) {
            return true;
        }
        // Once the program has taken a part, what remains must be kept. A bundle of several records for which there
        // would be no buffer then is not begun; of one record nothing remains.
        let single = Messages::from(body, 0).nth(1).is_none();
        if single || (shared.pool.any() && shared.has_rx_ring(active)) {
            match deliver(shared, active, key, token, body, 0, sink) {
                Taken::All => return true,
                Taken::UpTo(part) => at = part,
            }
        }
    }
    keep(shared, conn, head.seq, (body, at), (offset, deliverable))
}

/// Stores a new bundle of which the program has taken what is before byte `at`. False: it is not stored, and has not come as far as the
/// sender is concerned.
pub(super) fn keep(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    seq: Seq,
    (body, at): (&[u8], usize),
    (offset, deliverable): (u32, bool),
) -> bool {
    let ordered = conn.base.is_ordered();
    let active = &mut *conn.active;
    let held_back = active.holding;
    // What is sent does not count: a connection that sends in bulk must still take in what comes out of order.
    let fair = shared.pool.fair(active.rx.held);
    //= wire.md R-RNR-7
    // What is stored behind a gap has been acknowledged for good. So the gap must not be refused: its sends could end
    // as not ready, and what is behind it would never be delivered.
    let gap = active.has_gap(ordered);
    if (at != 0 || fair || (gap && offset == 0))
        && shared.has_rx_ring(active)
        && let Some(buf) = shared.pool.take_reserved()
    {
        shared.pool.store(buf, body, at);
        if let Some(ring) = active.rx_ring.as_mut() {
            *ring.at(seq) = buf;
        }
        active.rx.held += 1;
        if deliverable {
            shared.hold(active);
        }
        return true;
    }
    shared.counters.no_buffer_drops += 1;
    // Behind a gap there is no harm in a drop: the sender repeats it anyhow. Only a program that does not take
    // what could be delivered makes a receiver not ready.
    if (deliverable || held_back) && !gap {
        refuse(shared, conn);
    }
    false
}

/// Whether the program takes all messages of a bundle once its datagram has been handled.
#[inline]
fn hand_over(
    shared: &mut Shared,
    active: &mut Active,
    (key, token): (ConnKey, u64),
    sum: Summary,
    sink: &mut impl Sink,
) -> bool {
    let Summary { messages, bytes, len_bound } = sum;
    let summary =
        BundleSummary { messages: messages.into(), bytes: bytes.into(), len_bound: len_bound.into() };
    if messages == 0 || !sink.takes_bundle(key, token, summary) {
        return false;
    }
    shared.is_handed_over = true;
    shared.count_messages(active, messages.into(), bytes.into());
    true
}

/// Gives the records from byte `at` on to the program, as far as it takes them.
#[inline]
fn deliver(
    shared: &mut Shared,
    active: &mut Active,
    key: ConnKey,
    token: u64,
    body: &[u8],
    at: usize,
    sink: &mut impl Sink,
) -> Taken {
    let (taken, messages, bytes) = pass_on(key, token, body, at, sink);
    shared.count_messages(active, messages, bytes);
    taken
}

/// Takes in an unreliable bundle: delivers it at most once, and only if its number is recent enough to know that.
//= wire.md R-UU-1
fn on_unreliable(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    head: &Head,
    (sum, body): (Summary, &[u8]),
    sink: &mut impl Sink,
) {
    let (key, token) = (conn.key(), conn.base.token);
    let active = &mut *conn.active;
    match active.rx.came_unreliable(head.seq) {
        Order::Next => {}
        Order::Late => shared.counters.reordered_received += 1,
        Order::Repeated => {
            shared.counters.duplicates_received += 1;
            return;
        }
    }
    active.counters.bundles_received += 1;
    shared.counters.bundles_received += 1;
    if hand_over(shared, active, (key, token), sum, sink) {
        return shared.counters.count_useful();
    }
    let (mut messages, mut bytes) = (0, 0);
    for (message, _) in Messages::from(body, 0) {
        let Some(payload) = message else { continue };
        if sink.message(key, token, payload) {
            messages += 1;
            bytes += payload.len() as u64;
        } else {
            shared.counters.unreliable_drops += 1;
        }
    }
    if messages != 0 {
        shared.counters.count_useful();
    }
    shared.count_messages(active, messages, bytes);
}

/// Refuses this sender: sends it receiver-not-ready.
//= wire.md R-RNR-1
pub(super) fn refuse(shared: &mut Shared, conn: &mut ActiveConn<'_>) {
    let active = &mut *conn.active;
    active.refusing = true;
    conn.base.rx_epoch = conn.base.rx_epoch.wrapping_add(1);
    if !active.listed {
        active.listed = true;
        shared.refused.push_back(active.index);
    }
    active.counters.rnr_sent += 1;
    shared.counters.rnr_sent += 1;
    shared.ack_now(active);
}

//= wire.md R-ORD-1
/// Delivers what is held, as far as order and the program allow; true if the program took all it was offered.
pub(super) fn deliver_held(shared: &mut Shared, conn: &mut ActiveConn<'_>, sink: &mut impl Sink) -> bool {
    let (key, token, ordered) = (conn.key(), conn.base.token, conn.base.is_ordered());
    let active = &mut *conn.active;
    let Some(mut ring) = active.rx_ring.take() else { return true };
    let mut took_all = true;
    let mut seq = active.rx.deliver;
    let stop = if ordered { active.rx.next } else { active.rx.end };
    while seq != stop && active.rx.held != 0 {
        let buf = *ring.at(seq);
        // On unordered connections one may still wait for those before it.
        if buf.is_some() && (ordered || active.rx.unpassed == 0 || !is_unpassed(&shared.pool, buf)) {
            let (body, at) = shared.pool.stored(buf);
            let (taken, messages, bytes) = pass_on(key, token, body, at, sink);
            shared.count_messages(active, messages, bytes);
            if let Taken::UpTo(at) = taken {
                shared.pool.delivered_to(buf, at);
                took_all = false;
                break;
            }
            *ring.at(seq) = Buf::NONE;
            shared.pool.give_back(buf);
            active.rx.held -= 1;
        }
        seq = seq.next();
    }
    active.rx.settle(&ring);
    if active.rx.held == 0 {
        shared.spare_rx_ring(Some(ring));
    } else {
        active.rx_ring = Some(ring);
    }
    if !took_all {
        shared.hold(active);
    } else if let Some(reason) = active.unreported.take() {
        sink.event(Event::Disconnected { conn: key, token, reason });
    }
    took_all
}

/// Throws away what the connection holds for the program. Records of remote memory access that are still to be
/// dealt with stay while the connection has operations that wait for them.
pub(super) fn drop_held(shared: &mut Shared, active: &mut Active) {
    let Some(mut ring) = active.rx_ring.take() else { return };
    let keep = active.operations() != 0 && active.rx.unpassed != 0;
    let mut seq = active.rx.deliver;
    while seq != active.rx.end {
        let buf = ring.get(seq);
        if buf.is_some() && !(keep && is_unpassed(&shared.pool, buf)) {
            *ring.at(seq) = Buf::NONE;
            shared.pool.give_back(buf);
            active.rx.held -= 1;
        }
        seq = seq.next();
    }
    // What has come stays acknowledged, and what has not stays unacknowledged.
    active.rx.deliver = active.rx.next;
    if active.rx.held == 0 {
        active.rx.unpassed = 0;
        shared.spare_rx_ring(Some(ring));
    } else {
        active.rx_ring = Some(ring);
    }
}

/// The peer asks for an answer: it gets one, and learns whether this side is ready again.
pub(super) fn on_probe(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    head: &Head,
    by: u8,
    now: Time,
    sink: &mut impl Sink,
) {
    let active = &mut *conn.active;
    active.paths.get_mut(by).came(head.timestamp, now);
    active.paths.ack_by(by, head);
    if active.refusing {
        deliver_held(shared, conn, sink);
    }
    let (key, token) = (conn.key(), conn.base.token);
    let active = &mut *conn.active;
    let ready = active.refusing && active.rx.deliver == active.rx.next;
    if ready && sink.has_buffer_for(key, token) {
        active.refusing = false;
    }
    shared.ack_now(active);
}

//= wire.md R-RMA-6
/// Handles a new bundle with records of remote operations, or stores it; false: neither, it has not come as far as the sender is
/// concerned.
#[expect(clippy::too_many_arguments, reason = "a bundle and where it belongs")]
pub(super) fn take_in_rma(
    shared: &mut Shared,
    transfers: &mut Transfers,
    conn: &mut ActiveConn<'_>,
    head: &Head,
    all: Holds,
    body: &[u8],
    offset: u32,
    now: Time,
    sink: &mut impl Sink,
) -> bool {
    let ordered = conn.base.is_ordered();
    let active = &mut *conn.active;
    // Whoever cannot remember a refusal must not take the record.
    if !transfers.has_rma(shared, active) {
        shared.counters.no_buffer_drops += 1;
        return false;
    }
    let ready = offset == 0;
    let messages = all == Holds::Rma { messages: true };
    if all == Holds::Bulk || (ready && !messages) {
        process(shared, transfers, conn, body, now, sink);
        return true;
    }
    let deliverable = ready && !active.holding && (!ordered || active.rx.deliver == active.rx.next);
    let mut at = 0;
    // A message for which there is no buffer must be kept, once what is before it is done.
    let single = Records::from(body, 0).nth(1).is_none();
    if deliverable && (single || (shared.pool.any() && shared.has_rx_ring(active))) {
        match process(shared, transfers, conn, body, now, sink) {
            Taken::All => return true,
            Taken::UpTo(part) => at = part,
        }
    }
    let active = &mut *conn.active;
    let gap = active.has_gap(ordered) && ready;
    if (at != 0 || gap || shared.pool.fair(active.rx.held))
        && shared.has_rx_ring(active)
        && let Some(buf) = shared.pool.take_reserved()
    {
        shared.pool.store(buf, body, at);
        if let Some(ring) = active.rx_ring.as_mut() {
            *ring.at(head.seq) = buf;
        }
        active.rx.held += 1;
        if ready {
            shared.hold(active);
            pass(shared, transfers, conn, buf, now, sink);
        } else {
            active.rx.unpassed += 1;
        }
        return true;
    }
    shared.counters.no_buffer_drops += 1;
    if ready && !gap {
        refuse(shared, conn);
    }
    false
}

/// Handles the records of a body in order, as far as the program takes the messages among them.
fn process(
    shared: &mut Shared,
    transfers: &mut Transfers,
    conn: &mut ActiveConn<'_>,
    body: &[u8],
    now: Time,
    sink: &mut impl Sink,
) -> Taken {
    let (key, token, serve) = (conn.key(), conn.base.token, conn.base.serves());
    // A program that has disconnected takes no messages; they are as good as delivered.
    let discard = conn.base.state == ConnState::Lingering;
    let active = &mut *conn.active;
    let Some(mut rma) = active.rma.take() else { return Taken::All };
    let (ops, counters) = (&mut transfers.operations, &mut shared.counters);
    let now_ticks = ticks(now.0);
    let mut exchange = Exchange { ops, counters, rma: &mut rma, key, token, now_ticks, serve };
    let (mut messages, mut bytes, mut done) = (0, 0, 0);
    let mut taken = Taken::All;
    for (content, end) in Records::from(body, 0) {
        let message = match content {
            Content::Void => None,
            Content::Message(payload) => Some(payload),
            Content::Rma(Record::Notify { slot, message }) => message.filter(|_| exchange.may_notify(slot)),
            Content::Rma(record) => {
                exchange.take(&record, sink);
                None
            }
        };
        if let Some(payload) = message.filter(|_| !discard) {
            if !sink.message(key, token, payload) {
                taken = Taken::UpTo(done);
                break;
            }
            messages += 1;
            bytes += payload.len() as u64;
        }
        if let Content::Rma(Record::Notify { slot, .. }) = content {
            exchange.notified(slot);
        }
        done = end;
    }
    after_records(shared, active, rma);
    shared.count_messages(active, messages, bytes);
    taken
}

/// Handles the records of a stored body whose turn has come, and leaves the messages. A notification becomes a
/// message like any other. False: it has no messages.
fn pass(
    shared: &mut Shared,
    transfers: &mut Transfers,
    conn: &mut ActiveConn<'_>,
    buf: Buf,
    now: Time,
    sink: &mut impl Sink,
) -> bool {
    let (key, token, serve) = (conn.key(), conn.base.token, conn.base.serves());
    let active = &mut *conn.active;
    let Some(mut rma) = active.rma.take() else { return true };
    let ops = &mut transfers.operations;
    let Shared { counters, pool, .. } = &mut *shared;
    let now_ticks = ticks(now.0);
    let mut exchange = Exchange { ops, counters, rma: &mut rma, key, token, now_ticks, serve };
    let (body, mut at) = pool.stored_mut(buf);
    let mut messages = false;
    while let Some((content, end)) = Records::from(body, at).next() {
        match content {
            Content::Void => {}
            Content::Message(_) => messages = true,
            Content::Rma(Record::Notify { slot, message }) => {
                let deliver = message.is_some() && exchange.may_notify(slot);
                exchange.notified(slot);
                messages |= deliver;
                if deliver { set_message_at(body, at) } else { set_void_at(body, at) }
            }
            Content::Rma(record) => {
                exchange.take(&record, sink);
                set_void_at(body, at);
            }
        }
        at = end;
    }
    after_records(shared, active, rma);
    messages
}

/// Passes the stored bundles from `from` on up to the first gap. True if any were.
#[cold]
pub(super) fn pass_stored(
    shared: &mut Shared,
    transfers: &mut Transfers,
    conn: &mut ActiveConn<'_>,
    from: Seq,
    now: Time,
    sink: &mut impl Sink,
) -> bool {
    let discard = conn.base.state == ConnState::Lingering;
    let mut any = false;
    let mut seq = from;
    loop {
        let active = &mut *conn.active;
        if seq == active.rx.next || active.rx.unpassed == 0 {
            return any;
        }
        let buf = active.rx_ring.as_ref().map_or(Buf::NONE, |ring| ring.get(seq));
        if buf.is_some() && is_unpassed(&shared.pool, buf) {
            any = true;
            let messages = pass(shared, transfers, conn, buf, now, sink);
            let active = &mut *conn.active;
            active.rx.unpassed -= 1;
            if discard || !messages {
                if let Some(ring) = active.rx_ring.as_mut() {
                    *ring.at(seq) = Buf::NONE;
                }
                shared.pool.give_back(buf);
                active.rx.held -= 1;
            }
        }
        seq = seq.next();
    }
}

/// Stops taking messages: the program wants nothing more from this connection.
pub(super) fn stop_receiving(shared: &mut Shared, active: &mut Active, now: Time) {
    drop_held(shared, active);
    active.holding = false;
    active.refusing = false;
    (active.keepalive_ns, active.asks) = (0, 0);
    active.keepalive_due = Time::FAR;
    active.used_at = now;
}
