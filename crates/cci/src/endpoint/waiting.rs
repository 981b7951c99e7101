//! Sends that wait for space in the transport: who may have some, and when they are handed to the transport.
//! [`crate::engine::waiting`] keeps them.

use super::{Endpoint, as_ns};
use crate::connection::{Connection, Status};
use crate::engine::core::{ConnState, SendOp};
use crate::engine::waiting::{Arrival, Head, SendQueue};
use crate::error::SendError;
use crate::options::Attribute;
use crate::transport::{Armed, LinkState, PeerState, Report, Setting};

/// The most sends of one connection that are handed over in its turn.
const SENDS_PER_TURN: u32 = 64;
/// The most connections that have their turn in one call of progress.
const QUEUES_PER_PROGRESS: usize = 32;
/// A connection whose sends wait asks the transport for space with every so many of its sends.
const SENDS_PER_TRY: u32 = 8;

/// So many sends of a connection that wait may all be taken while the next one is held for a moment. More can't, and holding each further one for as
/// long would keep the program from receiving what its peer has to send first.
const SOON_EMPTY: u32 = 16;

/// How often in a row space is looked for while the peer is taking what it is sent: for some microseconds in all.
const TRIES_MAX: u32 = 32;
/// A peer that has taken something within this time, in nanoseconds, is believed to go on.
const RECENT_NS: u64 = 50_000;

/// What became of the oldest send of a queue.
enum Moved {
    /// The transport took it, or it ended.
    Yes,
    /// The transport has no space for it yet.
    NotYet,
    /// The connection is over.
    Over,
}

impl Endpoint {
    /// Sends although others wait or the transport has no space. The message goes to the transport once no earlier send of the
    /// connection waits and there is space, otherwise into a send buffer if one is free.
    #[cold]
    #[inline(never)]
    pub(super) fn send_or_wait(
        &mut self,
        connection: Connection,
        link: u64,
        segments: &[&[u8]],
        len_bytes: usize,
        op: SendOp,
    ) -> Result<(), SendError> {
        let now_ns = self.transport.now_ns();
        let len = self.core.waiting.len_of(connection);
        let is_soon = len <= SOON_EMPTY
            && self.core.waiting.moved_since(connection, now_ns.saturating_sub(RECENT_NS))
            && self.transport.link_state(link).is_some_and(|state| state.drains_by_itself);
        if is_soon {
            self.advance_soon(connection, now_ns);
        } else if len.is_multiple_of(SENDS_PER_TRY) {
            self.advance(connection.index, now_ns);
        }
        if self.core.conn(connection).is_none_or(|conn| conn.state != ConnState::Open) {
            return Err(SendError::Disconnected);
        }
        // The state is read only now, as sends that waited may just have been taken.
        let Some(state) = self.transport.link_state(link) else { return Err(SendError::UnknownConnection) };
        if !self.has_send_buffer(connection, &state) {
            return Err(SendError::WouldBlock);
        }
        if !self.core.waiting.holds(connection) {
            let tries = if is_soon { TRIES_MAX } else { 1 };
            for _ in 0..tries {
                match self.transport.send(&mut self.core, connection, link, segments, op) {
                    Err(SendError::WouldBlock) => std::hint::spin_loop(),
                    sent_or_not => return sent_or_not,
                }
            }
        }
        if self.core.waiting.lacks_memory() {
            let mut spare_bytes = 0;
            self.transport.report(&self.core, Report::SpareBytes(&mut spare_bytes));
            self.core.waiting.borrow(spare_bytes);
            self.settle_loan();
        }
        let timeout_ns = state.send_timeout_ns;
        let is_alone = self.is_alone();
        let SendOp { context, silent } = op;
        let arrival =
            Arrival { connection, segments, len_bytes, context, silent, now_ns, timeout_ns, is_alone };
        if self.core.waiting.push(&arrival) { Ok(()) } else { Err(SendError::WouldBlock) }
    }

    /// Waits a moment for a connection's queue to become empty, while the peer takes what it is sent without this side's help. A send that
    /// has to join the queue would cost one more copy of its message.
    fn advance_soon(&mut self, connection: Connection, now_ns: u64) {
        for _ in 0..TRIES_MAX {
            if !self.core.waiting.holds(connection) {
                return;
            }
            if !self.advance(connection.index, now_ns) {
                std::hint::spin_loop();
            }
        }
    }

    /// Whether there is only one connection.
    fn is_alone(&self) -> bool {
        self.core.counters.connections_open < 2
    }

    /// Whether one more send of a connection may be in progress. A connection may have as many sends as remain for all others, or
    /// all of them if it is the only one (ADR 19).
    fn has_send_buffer(&self, connection: Connection, state: &LinkState) -> bool {
        let waiting = &self.core.waiting;
        let mut used = waiting.len();
        self.transport.report(&self.core, Report::SendsHeld(&mut used));
        let remaining = self.core.options.send_buffers.saturating_sub(used);
        let held = state.held.saturating_add(waiting.len_of(connection));
        held < remaining || remaining > 0 && self.is_alone()
    }

    /// Reports to the transport how much of its memory is the engine's: what the waiting sends have borrowed, and loans that are copied.
    pub(super) fn settle_loan(&mut self) {
        let bytes = self.core.waiting.borrowed_bytes() + self.core.own_loans_bytes;
        self.transport.configure(&mut self.core, Setting::Lent { bytes });
    }

    /// Hands sends that wait to the transport, or ends those that are overdue, for up to `queues_max` connections. Returns whether any
    /// moved.
    #[cold]
    fn advance_all(&mut self, queues_max: usize, now_ns: u64) -> bool {
        let mut moved = false;
        for _ in 0..self.core.waiting.queues().min(queues_max) {
            let Some(index) = self.core.waiting.next_turn() else { break };
            moved |= self.advance(index, now_ns);
        }
        moved
    }

    /// Hands over sends of as many connections as one call of progress has time for.
    #[cold]
    pub(super) fn advance_some(&mut self) {
        self.advance_all(QUEUES_PER_PROGRESS, self.transport.now_ns());
    }

    /// Arms the transport while sends wait for it.
    #[cold]
    pub(super) fn arm_with_waiting(&mut self) -> Armed {
        let armed = self.transport.arm(&mut self.core);
        // The clock is read once, for what is overdue and for what will be. Between two readings a send could fall due that would be
        // neither ended nor waited for.
        let now_ns = self.transport.now_ns();
        // Arming may have made space, and nothing would wake us for it afterwards.
        if self.advance_all(usize::MAX, now_ns) {
            return Armed::Pending;
        }
        match armed {
            Armed::Pending => Armed::Pending,
            Armed::Sleep { deadline_ns } => {
                let due_ns = self.core.waiting.next_due_ns(now_ns);
                Armed::Sleep { deadline_ns: [deadline_ns, due_ns].into_iter().flatten().min() }
            }
        }
    }

    /// Hands sends of one connection to the transport, the oldest first. Returns whether any moved.
    fn advance(&mut self, index: u32, now_ns: u64) -> bool {
        let Some(mut queue) = self.core.waiting.take_out(index) else { return false };
        let connection = queue.connection;
        let conn = self.core.conn(connection).map(|conn| (conn.link, conn.attribute));
        let mut moved = false;
        for _ in 0..SENDS_PER_TURN {
            let (Some(head), Some((link, attribute))) = (queue.head(), conn) else { break };
            match self.advance_one(&mut queue, &head, link, attribute, now_ns) {
                Moved::Yes => moved = true,
                Moved::NotYet => break,
                Moved::Over => {
                    self.core.end_queue(&mut queue);
                    moved = true;
                }
            }
        }
        if !self.core.waiting.holds(connection) {
            // The connection has ended while the transport was asked.
            self.core.end_queue(&mut queue);
        }
        let is_closing = queue.is_closing;
        if self.core.waiting.put_back(queue) {
            return moved;
        }
        if let (true, Some((link, _))) = (is_closing, conn) {
            self.transport.disconnect(&mut self.core, connection, link);
        }
        if self.core.waiting.settle() {
            self.settle_loan();
        }
        true
    }

    /// Hands the oldest send of a connection to the transport, or ends it if it is overdue.
    fn advance_one(
        &mut self,
        queue: &mut SendQueue,
        head: &Head,
        link: u64,
        attribute: Attribute,
        now_ns: u64,
    ) -> Moved {
        let connection = queue.connection;
        if queue.is_overdue(head, now_ns) {
            if attribute == Attribute::ReliableOrdered && self.has_sends_in_progress(link) {
                // Sends before it have not ended yet, and completions come in order.
                return Moved::NotYet;
            }
            let is_refused = queue.failed == Some(Status::ReceiverNotReady) || self.is_refused(link);
            let status = if is_refused { Status::ReceiverNotReady } else { Status::TimedOut };
            self.core.waiting.drop_head(queue);
            self.core.complete(connection, SendOp::of(head), status);
            return Moved::Yes;
        }
        let sent =
            self.transport.send(&mut self.core, connection, link, &queue.message(head), SendOp::of(head));
        match sent {
            Ok(()) => {
                self.core.waiting.drop_head(queue);
                queue.moves(now_ns);
                Moved::Yes
            }
            Err(SendError::WouldBlock) => Moved::NotYet,
            Err(SendError::TooLong { .. }) => {
                // The path takes less than was agreed when the connection was made. This send can't be taken, but others may be.
                self.core.waiting.drop_head(queue);
                self.core.complete(connection, SendOp::of(head), Status::TimedOut);
                Moved::Yes
            }
            Err(_) => Moved::Over,
        }
    }

    /// Whether sends of a connection are in progress in the transport.
    fn has_sends_in_progress(&self, link: u64) -> bool {
        self.transport.unreported(link).is_some_and(|sends| sends > 0)
    }

    /// Whether the peer's program has no receive buffer free.
    fn is_refused(&self, link: u64) -> bool {
        let mut peer = PeerState::default();
        self.transport.report(&self.core, Report::Peer { link, into: &mut peer });
        peer.refuses
    }

    /// Changes the send timeout of the sends that wait, so that they do not outlive later ones.
    pub(super) fn timeout_changed(&mut self, connection: Connection, timeout: std::time::Duration) {
        let now_ns = self.transport.now_ns();
        self.core.waiting.change_timeout(connection, now_ns, as_ns(timeout));
    }
}
