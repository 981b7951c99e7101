//! What endpoints of every transport have: receive buffers, the queue of events, the connection table, counters.

mod conn;
mod ended;
pub mod mapped;
mod op;

pub(crate) use conn::{Conn, ConnState};
pub use ended::DisconnectPolicy;
pub use op::{OperationOp, SendOp};

use self::ended::EndedConnections;
use super::attempts::{Answer, Attempts};
use super::caught::{Catch, Caught};
use super::operations::{Operation, Operations};
use super::order::Order;
use super::peer::Peer;
use super::peers::Peers;
use super::poller::Poller;
use super::queue::Queue;
use super::quotas::{Quotas, holder};
use super::receive::{Filled, ReceiveBuffers};
use super::regions::Regions;
use super::registrations::Registrations;
use super::requests::{RequestBody, RequestInbox};
use super::waiting::{SendQueue, Waiting};
use crate::connection::{Connection, Status};
use crate::engine::event::{ConnectRequest, Event};
use crate::error::SendError;
use crate::limits;
use crate::{Attribute, ConnectFailure, CreateError, EndpointCounters, OptionError, Options};
use cci_memory::pool::SlotMut;
use cci_memory::slab::{Key, Slab, Within};
use cci_sys::memory;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The connections, in slots of 24 bytes each.
type Conns = Slab<Conn, Within<Conn>>;

/// What an endpoint has whatever its transport is. Transports are its only users beside the endpoint, so its fields are
/// open to them.
pub struct Core {
    pub receive: ReceiveBuffers,
    quotas: Quotas,
    /// Quotas are asked when no more than these are free.
    scarce_buffers: u32,
    /// Records that may still be taken out of rings in this turn of progress; as good as unlimited but where events wait.
    pub records_left: u64,
    /// What peers may access.
    pub regions: Regions,
    /// Who the peers are, where that was proved.
    pub peers: Peers,
    /// Which of the program's memory is known to be there.
    pub registrations: Registrations,
    /// Remote memory operations in progress.
    pub operations: Operations,
    /// Completions that wait for their turn.
    pub order: Order,
    /// Sends that wait for space in the transport.
    pub waiting: Waiting,
    /// Bytes of library memory allocated here and not freed yet.
    pub rma_bill: Arc<AtomicU64>,
    events: Queue,
    /// Sends and operations may begin while fewer events than this wait for the program: as many as there are buffers, and
    /// completions.
    events_max: usize,
    /// Events for which there was memory from the beginning.
    events_reserved: usize,
    /// Completions that may be held behind operations in progress, of all connections together: one may have half, which is as
    /// many as it can have in progress.
    held_max: usize,
    /// Connections being made: each will be an event, for which there is memory.
    owed: u32,
    conns: Conns,
    ended_connections: EndedConnections,
    /// Attempts to connect that a transport follows.
    pub attempts: Attempts,
    pub poller: Arc<Poller>,
    pub requests: Arc<RequestInbox>,
    pub counters: EndpointCounters,
    /// Messages so far for which bulk data make way. `None`: all do. A layer counts its own, and leaves out those that only steer
    /// bulk data.
    pub prompt_messages: Option<u64>,
    pub options: Options,
    /// Completions that raise no event of their own.
    pub caught: Caught,
    /// Memory of loans that can't be handed over. It is the transport's to spare, as that of waiting sends.
    pub own_loans_bytes: u64,
    /// Sends with contexts above this raise an event only if they fail (verbs call them unsignaled). They are those of a layer that owns
    /// the endpoint.
    pub unsignaled_above: u64,
    /// Requests shown to the program are bounded by the transport; counted here for the memory bill.
    slot_bytes: u32,
}

impl Core {
    /// `mss` is the largest message the device takes: the size of a receive buffer.
    pub fn new(options: Options, mss: u32, poller: Arc<Poller>) -> Result<Core, CreateError> {
        let slot_bytes = mss.next_multiple_of(8).max(64);
        let needed_bytes = options.recv_buffers as u64 * slot_bytes as u64;
        if needed_bytes > options.memory_bytes_max {
            return Err(CreateError::NoMemory { needed_bytes, cap_bytes: options.memory_bytes_max });
        }
        // Every receive buffer can be an event, every send a completion, every request an event: reserved now, so
        // that the queue never grows on the data path. (Sends and operations are reserved up to a point: a queue of
        // completions that long grows once and stays.)
        let reserve = options.recv_buffers
            + options.send_buffers.min(limits::SENDS_DEFAULT)
            + options.rma_operations.min(limits::RMA_EVENTS_RESERVED)
            + 64;
        let no_memory = || CreateError::NoMemory { needed_bytes, cap_bytes: options.memory_bytes_max };
        Ok(Core {
            receive: ReceiveBuffers::new(options.recv_buffers, slot_bytes).map_err(|_| no_memory())?,
            quotas: Quotas::new(options.recv_buffers).ok_or_else(no_memory)?,
            scarce_buffers: options.recv_buffers / 2,
            records_left: u64::MAX,
            events_max: events_max(&options),
            events_reserved: reserve as usize,
            held_max: 2 * (options.send_buffers as usize + options.rma_operations as usize) + 64,
            events: Queue::with_capacity(reserve as usize).ok_or_else(no_memory)?,
            owed: 0,
            conns: Slab::of_slots(limits::CONNECTIONS_MAX),
            ended_connections: EndedConnections::new(),
            regions: Regions::new(),
            peers: Peers::default(),
            registrations: Registrations::new(memory::page_bytes(), options.idle_registered_bytes_max),
            operations: Operations::new(options.rma_operations),
            order: Order::default(),
            waiting: Waiting::default(),
            rma_bill: Arc::default(),
            attempts: Attempts::default(),
            requests: Arc::new(RequestInbox::new(&poller)),
            poller,
            counters: EndpointCounters::default(),
            prompt_messages: None,
            caught: Caught::new(),
            own_loans_bytes: 0,
            unsignaled_above: u64::MAX,
            slot_bytes,
            options,
        })
    }

    /// Raises the number of receive buffers to `count`. The program asks for that memory, so the cap rises with it.
    pub fn raise_receive_buffers(&mut self, count: u32) -> Result<(), OptionError> {
        let more = count.saturating_sub(self.options.recv_buffers);
        if more == 0 {
            return Ok(());
        }
        let before_bytes = self.memory_bytes();
        let quotas = Quotas::new(count).ok_or(OptionError::NoMemory)?;
        // Memory for their events, beside what was reserved before.
        if !self.events.reserve(more as usize) {
            return Err(OptionError::NoMemory);
        }
        self.receive.add(more).map_err(|_| OptionError::NoMemory)?;
        self.options.recv_buffers = count;
        self.events_max = events_max(&self.options);
        self.events_reserved += more as usize;
        self.quotas = quotas;
        self.scarce_buffers = count / 2;
        self.options.memory_bytes_max += self.memory_bytes() - before_bytes;
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.memory().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Copies a message into a receive buffer and queues it. False, and counted, when no buffer is free, or none for this
    /// connection, which holds as many as are free for all others.
    // Always: left to itself, the compiler makes a call of it wherever the loop around it has grown.
    #[inline(always)]
    pub fn deliver(&mut self, connection: Connection, payload: &[u8]) -> bool {
        let filled = self.fill_buffer(connection, payload.len(), |buffer| buffer.copy_from_slice(payload));
        let Some(filled) = filled else { return self.is_dropped(connection) };
        self.events.push_recv_apart(filled, connection);
        true
    }

    /// Does what [`Core::deliver`] does, for a message of `len` bytes that `fill` copies into the receive buffer.
    #[inline(always)]
    pub fn deliver_with(&mut self, connection: Connection, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        let Some(filled) = self.fill_buffer(connection, len, fill) else {
            return self.is_dropped(connection);
        };
        self.events.push_recv(filled, connection);
        true
    }

    /// Takes a receive buffer for a message that a transport gives to the program at once. None: the message has to be delivered.
    #[inline(always)]
    pub fn take_buffer(&mut self, connection: Connection, len_bytes: u32) -> Option<SlotMut> {
        if self.keepable_before_events() == 0 {
            return None;
        }
        let buffer = self.receive.take_first(holder(connection))?;
        self.counters.messages_received += 1;
        self.counters.bytes_received += u64::from(len_bytes);
        Some(buffer)
    }

    /// Messages so far for which bulk data make way.
    #[inline]
    pub fn prompt_messages(&self) -> u64 {
        let all = self.counters.messages_received.wrapping_add(self.counters.messages_sent);
        self.prompt_messages.unwrap_or(all)
    }

    /// Whether a message of this connection for which there was no buffer has none to wait for.
    #[inline]
    fn is_dropped(&self, connection: Connection) -> bool {
        self.waiting.has_closing() && self.is_closing(connection)
    }

    #[inline(always)]
    fn fill_buffer(
        &mut self,
        connection: Connection,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Option<Filled> {
        debug_assert!(len <= self.slot_bytes as usize, "checked where it was parsed");
        if self.is_dropped(connection)
            || self.receive.free_count_cached() <= self.scarce_buffers && !self.has_quota(connection, true)
        {
            return None;
        }
        let Some(filled) = self.receive.take(holder(connection), len, fill) else {
            self.counters.receiver_not_ready += 1;
            return None;
        };
        self.counters.messages_received += 1;
        self.counters.bytes_received += len as u64;
        Some(filled)
    }

    /// How many messages may be lent although events wait, which come later. The handler may keep all of them: none may be lent where
    /// quotas have to be asked.
    #[inline]
    pub fn keepable_before_events(&self) -> u32 {
        if self.waiting.has_closing() {
            return 0;
        }
        self.receive.free_count_cached().saturating_sub(self.scarce_buffers)
    }

    /// Whether so many messages may be lent although events wait, which come later. One connection alone may have all buffers.
    #[inline]
    pub fn may_keep(&self, messages: u32) -> bool {
        messages <= self.keepable_before_events()
            || self.counters.connections_open < 2
                && !self.waiting.has_closing()
                && messages <= self.receive.free_count_cached()
    }

    /// Whether progress is made although events wait, for a program that is quick to take them. Only then are records limited, to fewer
    /// than any number of events.
    #[inline]
    pub fn is_between_events(&self) -> bool {
        self.records_left <= u64::from(u32::MAX)
    }

    /// Whether the program has disconnected, and takes nothing from this connection any more.
    #[cold]
    fn is_closing(&self, connection: Connection) -> bool {
        self.conn(connection).is_some_and(|conn| conn.state == ConnState::Closing)
    }

    /// Whether a message of this connection would find a buffer.
    pub fn has_buffer_for(&mut self, connection: Connection) -> bool {
        self.receive.free_count() != 0 && self.has_quota(connection, false)
    }

    /// Whether one more buffer is within this connection's quota. If it `takes` the buffer, that is noted, and a refusal is
    /// counted.
    #[cold]
    fn has_quota(&mut self, connection: Connection, takes: bool) -> bool {
        let free = self.receive.free_count();
        // One connection alone may have them all.
        if free > self.scarce_buffers || free == 0 || self.counters.connections_open < 2 {
            return true;
        }
        let holder = holder(connection);
        let each_out = |visit: &mut dyn FnMut(u32)| self.receive.each_out(visit);
        let has = self.quotas.may_take(holder, free, self.counters.messages_received, each_out);
        if takes && has {
            self.quotas.took(holder);
        } else if takes {
            self.counters.receiver_not_ready += 1;
            self.counters.over_quota += 1;
        }
        has
    }

    /// A number that grows whenever the program returns a buffer.
    pub fn returns(&self) -> u64 {
        self.counters.messages_received.wrapping_add(u64::from(self.receive.free_count()))
    }

    /// Completes a send. All completions become events here.
    #[inline]
    pub fn complete(&mut self, connection: Connection, op: SendOp, status: Status) {
        if !self.order.is_empty() && !op.silent && self.order.send_done(connection.index, status) {
            self.complete_due(connection);
            return;
        }
        self.raise_completion(connection, op, status);
        if !self.order.is_empty() {
            self.complete_due(connection);
        }
    }

    /// Completes `count` sends that have `op` in common and ended alike. One that is alone, as is the rule, is completed in line.
    #[inline(always)]
    pub fn complete_run(&mut self, connection: Connection, op: SendOp, status: Status, count: u32) {
        let is_usual = count == 1 && status == Status::Success;
        if !is_usual || !self.order.is_empty() || !self.caught.is_empty() {
            self.complete_each(connection, op, status, count);
        } else if !op.silent && self.is_signaled(op.context) {
            self.events.push_send(connection, op.context, status);
        }
    }

    /// Whether the program wants an event of a send that succeeds.
    #[inline(always)]
    pub fn is_signaled(&self, context: u64) -> bool {
        context <= self.unsignaled_above
    }

    /// Whether a completion can be given to the program without [`Core::complete`].
    #[inline(always)]
    pub fn completes_at_once(&self) -> bool {
        self.order.is_empty() && self.caught.is_empty()
    }

    #[cold]
    #[inline(never)]
    fn complete_each(&mut self, connection: Connection, op: SendOp, status: Status, count: u32) {
        if status == Status::Success && self.order.is_empty() {
            if op.silent {
                return;
            }
            match self.caught.catch_some(op.context, status, count) {
                Catch::No => {}
                Catch::Yes => return,
                Catch::Last(end) => return self.events.push_send_apart(connection, end.context, end.status),
            }
        }
        for _ in 0..count {
            self.complete(connection, op, status);
        }
    }

    /// Enters an operation that a transport is about to start. `sends` returns how many sends of the connection the transport
    /// has yet to complete, without the silent ones; it is called only on ordered connections. Returns the operation's identifier.
    ///
    /// # Errors
    /// `WouldBlock`: as many are in progress as may be, or there is no memory.
    pub fn begin_operation(
        &mut self,
        connection: Connection,
        op: OperationOp,
        sends: impl FnOnce() -> u32,
    ) -> Result<u64, SendError> {
        let OperationOp { context, silent, is_ordered } = op;
        if !self.reserve_completion() {
            return Err(SendError::WouldBlock);
        }
        let mut order_entry = None;
        if is_ordered {
            let earlier = sends() + self.waiting.unreported(connection);
            order_entry = self.order.enter_operation(connection.index, context, silent, || earlier);
            if order_entry.is_none() {
                return Err(SendError::WouldBlock);
            }
        }
        let operation = Operation { connection, context, silent, order_entry };
        let id = self.operations.insert(operation, self.counters.connections_open < 2);
        if let (None, Some(entry)) = (id, order_entry) {
            self.order.take_back(connection.index, entry);
        }
        id.ok_or(SendError::WouldBlock)
    }

    /// Removes the operation that was entered last: the transport could not start it.
    #[cold]
    pub fn withdraw_operation(&mut self, id: u64) {
        if let Some(Operation { connection, order_entry: Some(entry), .. }) = self.operations.remove(id) {
            self.order.take_back(connection.index, entry);
        }
    }

    /// Completes an operation that was over before it was entered. On ordered connections it may still have to wait behind
    /// `sends` sends, whose completions the transport has yet to report.
    #[inline]
    pub fn end_unentered(&mut self, connection: Connection, op: OperationOp, status: Status, sends: u32) {
        let OperationOp { context, silent, is_ordered } = op;
        if is_ordered {
            let sends = sends + self.waiting.unreported(connection);
            if sends > 0 || self.order.holds(connection.index) {
                // There is memory: it was reserved before the operation began.
                let order_entry = self.order.enter_operation(connection.index, context, silent, || sends);
                return self.end_operation(Operation { connection, context, silent, order_entry }, status);
            }
        }
        self.raise_completion(connection, SendOp { context, silent }, status);
    }

    /// Completes a remote memory operation, which the transport knew by `name`.
    pub fn complete_operation(&mut self, name: u64, status: Status) {
        if let Some(operation) = self.operations.remove(name) {
            self.end_operation(operation, status);
        }
    }

    /// Completes an operation that has already been taken out of the table.
    pub fn end_operation(&mut self, operation: Operation, status: Status) {
        let Operation { connection, context, silent, order_entry } = operation;
        match order_entry {
            Some(entry) => {
                self.order.operation_done(entry, status);
                self.complete_due(connection);
            }
            None => self.raise_completion(connection, SendOp { context, silent }, status),
        }
    }

    /// Raises the completions of a connection whose turn has come.
    #[cold]
    fn complete_due(&mut self, connection: Connection) {
        while let Some(due) = self.order.next_due(connection.index) {
            let op = SendOp { context: due.context, silent: due.silent };
            self.raise_completion(connection, op, due.status);
        }
    }

    /// Raises a completion. Always inlined: a silent operation has nothing to raise, and should not pay for the call.
    #[inline(always)]
    pub fn raise_completion(&mut self, connection: Connection, op: SendOp, status: Status) {
        if status != Status::Success {
            self.failed_one(connection, status);
        }
        if !self.caught.is_empty() {
            match self.caught.catch(op.context, status) {
                Catch::No => {}
                Catch::Yes => return,
                Catch::Last(end) => return self.events.push_send_apart(connection, end.context, end.status),
            }
        }
        if !op.silent && (self.is_signaled(op.context) || status != Status::Success) {
            self.events.push_send(connection, op.context, status);
        }
    }

    #[cold]
    fn failed_one(&mut self, connection: Connection, status: Status) {
        self.counters.sends_failed += 1;
        self.waiting.note_failure(connection, status);
    }

    /// Notes that all of a burst was sent but `untaken` messages, and raises its event if what was sent has completed.
    pub fn burst_sent(&mut self, connection: Connection, context: u64, untaken: u32) {
        if let Some(end) = self.caught.burst_sent(context, untaken) {
            self.events.push_send_apart(connection, end.context, end.status);
        }
    }

    /// Ends all sends of a queue, as its connection is over.
    pub fn end_queue(&mut self, queue: &mut SendQueue) {
        let status = queue.status_at_end();
        while let Some(head) = self.waiting.drop_head(queue) {
            self.complete(queue.connection, SendOp::of(&head), status);
        }
    }

    /// Ends all waiting sends of a connection whose queue is in the table, not taken out.
    #[cold]
    fn end_waiting(&mut self, connection: Connection) {
        while let Some((head, status)) = self.waiting.end_one(connection) {
            self.complete(connection, SendOp::of(&head), status);
        }
    }

    /// Takes a request of a peer's, which becomes an event, or is refused if there is no memory for that.
    pub fn requested(&mut self, body: RequestBody) {
        if !self.events.has_space_for_others(self.owed as usize + 1) {
            return body.refuse();
        }
        self.events.push(Event::ConnectRequest(ConnectRequest::new(body)));
    }

    /// Notes that a connection is open, with the smaller MSS of both sides, and raises its event.
    pub fn opened(&mut self, connection: Connection, mss: u32) {
        let Some(conn) = self.conns.get_mut(key(connection)) else { return };
        let (was, context) = (conn.state, conn.context);
        self.owed = self.owed.saturating_sub(1);
        conn.set_mss(mss);
        conn.state = ConnState::Open;
        if was == ConnState::Connecting {
            self.attempts.opened(connection);
        }
        self.counters.connections_made += 1;
        self.counters.connections_open += 1;
        match was {
            ConnState::Connecting => self.events.push(Event::Connect { context, result: Ok(connection) }),
            ConnState::Accepting => self.events.push(Event::Accept { context, result: Ok(connection) }),
            _ => debug_assert!(false, "opened twice"),
        }
    }

    /// Notes that a connection could not be made, and raises its event.
    pub fn failed(&mut self, connection: Connection, why: ConnectFailure) {
        let Some(conn) = self.conns.remove(key(connection)) else { return };
        self.not_owed(conn.state);
        self.unidentify(connection);
        match conn.state {
            ConnState::Connecting if self.attempts.failed(connection, why) => {}
            ConnState::Connecting => self.connect_failed(conn.context, why),
            ConnState::Accepting => {
                self.events.push(Event::Accept { context: conn.context, result: Err(why) });
            }
            _ => {}
        }
    }

    /// Notes who was proved to be at the other end of this connection, for as long as it lives. To be called before the peer
    /// can ask for anything over it.
    pub fn identify(&mut self, connection: Connection, peer: &Peer) {
        self.peers.insert(connection, peer);
        self.regions.limit(connection, peer.access());
    }

    #[inline]
    fn unidentify(&mut self, connection: Connection) {
        self.peers.remove(connection);
        self.regions.forget(connection);
    }

    /// Raises the event that an attempt to connect has failed, after all ways to connect were tried.
    pub fn connect_failed(&mut self, context: u64, why: ConnectFailure) {
        self.events.push(Event::Connect { context, result: Err(why) });
    }

    /// Notes that the peer's library has answered an attempt to connect: what follows comes from the peer.
    pub fn heard(&mut self, connection: Connection) {
        self.attempts.answered(connection, Answer::Peer);
    }

    /// Notes that somebody else than the peer has answered an attempt to connect.
    pub fn disproved(&mut self, connection: Connection) {
        self.attempts.answered(connection, Answer::Stranger);
    }

    /// Notes that the peer takes nothing more. The transport has completed what it had for the peer; what the peer sent before
    /// may still come, until [`Core::ended`].
    pub fn peer_gone(&mut self, connection: Connection) {
        self.end_waiting(connection);
        self.regions.pairs.forget_connection(connection);
        if let Some(conn) = self.conns.get_mut(key(connection))
            && conn.state == ConnState::Open
        {
            conn.state = ConnState::PeerGone;
            self.counters.connections_open = self.counters.connections_open.saturating_sub(1);
        }
    }

    /// Notes that the transport is done with a connection. Its handle is free, unless an event has to report the end first.
    pub fn closed(&mut self, connection: Connection) {
        self.end_waiting(connection);
        self.regions.pairs.forget_connection(connection);
        self.waiting.forget(connection);
        self.unidentify(connection);
        if self.released(connection) {
            return;
        }
        if let Some(conn) = self.conns.remove(key(connection))
            && conn.state == ConnState::Open
        {
            self.counters.connections_open = self.counters.connections_open.saturating_sub(1);
        }
    }

    /// Raises the event that a peer was silent for too long.
    pub fn keepalive_timed_out(&mut self, connection: Connection) {
        if self.is_closing(connection) {
            return;
        }
        self.events.push(Event::KeepaliveTimedOut { connection });
    }

    /// Raises the event that the device failed.
    pub fn device_failed(&mut self) {
        self.events.push(Event::DeviceFailed);
    }

    /// Enters a connection that is being made into the table; None when it is full, or there is no memory.
    pub fn insert(&mut self, context: u64, attribute: Attribute, state: ConnState) -> Option<Connection> {
        debug_assert!(matches!(state, ConnState::Connecting | ConnState::Accepting));
        // The events about it must not need memory later.
        if !self.events.has_space_for_others(self.owed as usize + 1) || !self.peers.has_space_for_one() {
            return None;
        }
        let key = self.conns.insert(Conn::new(context, attribute, state)).ok()?;
        self.owed += 1;
        Some(Connection { index: key.index, generation: key.generation })
    }

    /// Gives back the event reserved for a connection in this state, which won't be raised.
    pub fn not_owed(&mut self, state: ConnState) {
        if matches!(state, ConnState::Connecting | ConnState::Accepting) {
            self.owed = self.owed.saturating_sub(1);
        }
    }

    /// Removes a connection whose attempt never began.
    pub fn forget(&mut self, connection: Connection) {
        self.unidentify(connection);
        if let Some(conn) = self.conns.remove(key(connection)) {
            self.not_owed(conn.state);
        }
    }

    #[inline]
    pub fn conn(&self, connection: Connection) -> Option<&Conn> {
        self.conns.get(key(connection))
    }

    #[inline]
    pub fn conn_mut(&mut self, connection: Connection) -> Option<&mut Conn> {
        self.conns.get_mut(key(connection))
    }

    #[inline(always)]
    pub fn pop_event(&mut self) -> Option<Event> {
        let Core { events, receive, conns, ended_connections, .. } = self;
        events.pop(receive, |connection| ended_connections.report(conns, connection))
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// How many events wait for the program.
    pub fn events_queued(&self) -> usize {
        self.events.len()
    }

    /// Whether a send that is not silent may begin on this connection: the program takes its events, and the connection's
    /// completions are within their quota.
    #[inline]
    pub fn has_send_quota(&self, connection: Connection) -> bool {
        self.events.len() < self.events_max
            && (self.order.held() < self.held_max / 2 || self.has_completion_quota(connection, false))
    }

    /// Whether a remote operation may be started now. One that is `silent` raises no event, but keeps its turn among the
    /// completions.
    #[inline]
    pub fn has_operation_quota(&self, connection: Connection, silent: bool) -> bool {
        (silent || self.events.len() < self.events_max)
            && (self.order.held() < self.held_max / 2 || self.has_completion_quota(connection, true))
    }

    /// Whether a connection may hold one more completion behind those before it. It may hold as many as remain for all others
    /// (ADR 19), so that an operation that never ends stops only its own connection. While less than half of them are used,
    /// nobody holds more. `begins`: this may be the first of the connection's queue, which a send never is.
    #[cold]
    fn has_completion_quota(&self, connection: Connection, begins: bool) -> bool {
        let is_ordered =
            self.conn(connection).is_some_and(|conn| conn.attribute == Attribute::ReliableOrdered);
        let held = self.order.held_by(connection.index);
        !is_ordered || !begins && held == 0 || held < self.held_max.saturating_sub(self.order.held())
    }

    /// Reserves an entry for the completion of one more operation. False: there is no memory.
    #[inline]
    pub fn reserve_completion(&mut self) -> bool {
        let beyond = self.operations.len().saturating_sub(limits::RMA_EVENTS_RESERVED);
        beyond == 0 || self.events.has_capacity(self.events_reserved + beyond as usize + 1)
    }

    /// Whether some blocking send has ended.
    pub fn has_unblocked(&self) -> bool {
        self.caught.unblocked_count() > 0
    }

    /// How much waits to be reported: events, and ends of blocking sends.
    pub fn news(&self) -> usize {
        self.events.len() + self.ended_connections.pending() + self.caught.unblocked_count()
    }

    /// Every connection in the table.
    pub fn connections(&self) -> Vec<Connection> {
        self.conns
            .iter()
            .map(|(key, _)| Connection { index: key.index, generation: key.generation })
            .collect()
    }

    /// Bytes held by the engine itself, by kind.
    pub fn memory(&self) -> [(&'static str, u64); 10] {
        [
            ("receive buffers", self.receive.bytes() as u64 + self.quotas.bytes() as u64),
            ("event queue", self.events.bytes() as u64),
            ("connection table", self.conns.bytes() as u64),
            ("regions", self.regions.bytes()),
            ("who peers are", self.peers.bytes()),
            ("known memory", self.registrations.bytes()),
            ("sends that wait for space", self.waiting.bytes()),
            ("remote operations", self.operations.bytes() + self.order.bytes()),
            ("bursts", self.caught.bytes()),
            ("loans that are copied", self.own_loans_bytes),
        ]
    }
}

fn events_max(options: &Options) -> usize {
    let Options { recv_buffers, send_buffers, rma_operations, .. } = *options;
    recv_buffers as usize + send_buffers as usize + rma_operations as usize + 64
}

fn key(connection: Connection) -> Key {
    Key { index: connection.index, generation: connection.generation }
}

#[cfg(test)]
mod tests;
