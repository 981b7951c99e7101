//! Translates between the protocol and the engine, in both directions: events, errors and names.

use super::carrier::Who;
use crate::connection::{Connection, DisconnectReason, Status};
use crate::device::TransportKind;
use crate::engine::core::{Core, SendOp};
use crate::engine::requests::RequestBody;
use crate::error::{AcceptError, ConnectError, ConnectFailure, SendError};
use crate::limits::{self, MESSAGE_BYTES_MAX};
use crate::options::Attribute;
use crate::rma::Access;
use cci_memory::slab::{Key, Slab};
use cci_proto as proto;
use cci_proto::{
    Address, Atomic, BundleSummary, ConnKey, Event, Memory, RemoteAddress, Request, RequestTicket,
    RmaRefusal, Sink, Time,
};
use cci_secure::Identity;
use std::collections::HashMap;

/// Messages that go to a handler instead of into receive buffers.
#[derive(Default)]
pub(super) struct Lending {
    /// Whether there is a handler that can take the next message at once. Completions can wait, since they have no order among
    /// messages.
    pub is_open: bool,
    /// The bundle that the handler takes when its datagram has been handled, and its connection.
    pub bundle: Option<(Connection, BundleSummary)>,
}

/// What the transport keeps beside the protocol's state.
pub(super) struct Adapter {
    kind: TransportKind,
    /// The protocol's tickets of the requests that the program holds. Their keys are the engine's tickets.
    tickets: Slab<RequestTicket>,
    /// Connections that opened in the last call of the protocol. The engine does not know their largest message yet.
    opened: Vec<(ConnKey, Connection)>,
    /// Connections that have ended, of which the carrier does not know yet.
    pub ended: Vec<ConnKey>,
    /// Connections whose peers have proved who they are, and their addresses. The carrier does not know of them yet.
    pub met: Vec<(ConnKey, Address, Identity)>,
    /// Connections whose peers have proved who they are in the last call of the protocol. Their addresses are not known yet.
    identified: Vec<(ConnKey, Identity)>,
    /// The names that the peers of dialled connections must prove, by the tokens of the connections.
    pub expected: HashMap<u64, Box<str>>,
    /// Connections that this side has dialled and must end, because their peers are not those it may connect to.
    unwelcome: Vec<ConnKey>,
    /// Requests that must be refused, because there was no space in `tickets` or their peers may not connect.
    refused: Vec<Request>,
    /// Failed sends and operations that were reported to the engine, which has counted them.
    failures_reported: u64,
    /// Failed sends and operations that raised no event, and were counted.
    failures_counted: u64,
    /// Whether there was no free receive buffer at all.
    pub starved: bool,
    /// Whether the protocol holds messages, or keeps senders waiting, because there was no receive buffer, or none within the
    /// connection's quota.
    pub waiting: bool,
    /// [`Core::returns`] when delivery to all that wait was last tried.
    pub fed_at: u64,
    /// How many connections there are whose last event the protocol has not raised yet.
    pub live: u64,
    /// How many requests came from peers that may not connect.
    pub not_permitted: u64,
    /// How many messages were longer than a receive buffer. No honest peer sends such a message.
    pub too_long: u64,
    /// The longest message that a receive buffer of this endpoint takes.
    message_bytes_max: usize,
    pub lending: Lending,
}

impl Adapter {
    pub fn new(kind: TransportKind, message_bytes_max: u32) -> Adapter {
        Adapter {
            kind,
            failures_reported: 0,
            failures_counted: 0,
            tickets: Slab::new(4 * limits::REQUESTS_MAX),
            opened: Vec::with_capacity(4),
            ended: Vec::with_capacity(4),
            met: Vec::new(),
            identified: Vec::new(),
            expected: HashMap::new(),
            unwelcome: Vec::new(),
            refused: Vec::new(),
            starved: false,
            waiting: false,
            fed_at: 0,
            live: 0,
            not_permitted: 0,
            too_long: 0,
            message_bytes_max: message_bytes_max as usize,
            lending: Lending::default(),
        }
    }

    /// Does what could not be done during a call of the protocol. It must be called after each one.
    #[inline]
    pub fn settle(&mut self, protocol: &mut proto::Endpoint, core: &mut Core, now: Time) {
        if !(self.opened.is_empty() && self.refused.is_empty() && self.unwelcome.is_empty()) {
            self.settle_seldom(protocol, core, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn settle_seldom(&mut self, protocol: &mut proto::Endpoint, core: &mut Core, now: Time) {
        for (key, connection) in self.opened.drain(..) {
            if let (Some(info), Some(conn)) = (protocol.connection(key), core.conn_mut(connection)) {
                let bytes = u32::try_from(info.message_bytes_max).unwrap_or(MESSAGE_BYTES_MAX);
                conn.set_mss(bytes.min(MESSAGE_BYTES_MAX));
            }
        }
        for request in self.refused.drain(..) {
            protocol.reject(now, request);
        }
        for (key, identity) in self.identified.drain(..) {
            if let Some(info) = protocol.connection(key) {
                self.met.push((key, info.peer, identity));
            }
        }
        for key in self.unwelcome.drain(..) {
            // The connection exists, as the protocol has just reported it.
            let _ = protocol.disconnect(now, key);
        }
    }

    /// Forgets a request that was decided on, and returns the protocol's ticket.
    pub fn forget(&mut self, ticket: u64) -> Option<RequestTicket> {
        self.tickets.remove(Key::from_bits(ticket))
    }

    /// How many more sends and operations have failed without an event since the last call, if `failed` have failed in all.
    #[inline]
    pub fn failed_silently(&mut self, failed: u64) -> u64 {
        let silently = failed.saturating_sub(self.failures_reported);
        let more = silently.saturating_sub(self.failures_counted);
        self.failures_counted += more;
        more
    }

    /// The memory of the table of requests, bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.tickets.bytes() as u64
    }
}

/// Takes what the protocol has for the program, and passes it on to the engine.
pub(super) struct ToProgram<'a> {
    pub core: &'a mut Core,
    pub adapter: &'a mut Adapter,
    /// Who sent the datagram that is being handled.
    pub who: &'a dyn Who,
}

impl Sink for ToProgram<'_> {
    #[inline]
    fn takes_bundle(&mut self, _: ConnKey, token: u64, summary: BundleSummary) -> bool {
        let takes = self.adapter.lending.is_open
            && self.core.may_keep(summary.messages)
            && summary.len_bound as usize <= self.adapter.message_bytes_max;
        if takes {
            self.adapter.lending.bundle = Some((Connection::from_bits(token), summary));
        }
        takes
    }

    #[inline]
    fn message(&mut self, _: ConnKey, token: u64, payload: &[u8]) -> bool {
        self.adapter.lending.is_open = false;
        if payload.len() > self.adapter.message_bytes_max {
            self.adapter.too_long += 1;
            return true;
        }
        let taken = self.core.deliver(Connection::from_bits(token), payload);
        if !taken {
            self.adapter.waiting = true;
            self.adapter.starved |= self.core.receive.free_count() == 0;
        }
        taken
    }

    fn has_buffer_for(&mut self, _: ConnKey, token: u64) -> bool {
        self.core.has_buffer_for(Connection::from_bits(token))
    }

    #[inline]
    fn event(&mut self, event: Event) {
        match event {
            Event::Sent { token, context, status, count, .. } => {
                let op = SendOp { context, silent: false };
                if status != proto::Status::Success {
                    self.adapter.failures_reported += u64::from(count);
                }
                self.core.complete_run(Connection::from_bits(token), op, status_of(status), count);
            }
            Event::Rma { operation, status, .. } => {
                self.adapter.lending.is_open = false;
                self.adapter.failures_reported += u64::from(status != proto::Status::Success);
                self.core.complete_operation(operation, status_of(status));
            }
            other => self.seldom(other),
        }
    }
}

/// Gives the protocol access to memory. The engine's table of regions checks every access by a peer.
impl Memory for ToProgram<'_> {
    #[inline]
    fn peer_write(
        &mut self,
        _: ConnKey,
        token: u64,
        at: RemoteAddress,
        data: &[u8],
    ) -> Result<(), RmaRefusal> {
        let connection = Connection::from_bits(token);
        let (bytes, offset) = self.core.regions.peer(connection, at, data.len() as u64, Access::WRITE)?;
        bytes.write_piece(offset, data).then_some(()).ok_or(RmaRefusal::Handle)
    }

    #[inline]
    fn peer_read(
        &mut self,
        _: ConnKey,
        token: u64,
        at: RemoteAddress,
        out: &mut [u8],
    ) -> Result<(), RmaRefusal> {
        self.core.regions.peer_read(Connection::from_bits(token), at, out)
    }

    #[inline]
    fn peer_read_ahead(
        &mut self,
        _: ConnKey,
        token: u64,
        at: RemoteAddress,
        out: &mut [u8],
        remaining_bytes: u64,
    ) -> Result<(), RmaRefusal> {
        self.core.regions.peer_read_ahead(Connection::from_bits(token), at, out, remaining_bytes)
    }

    fn peer_may_read(
        &mut self,
        _: ConnKey,
        token: u64,
        at: RemoteAddress,
        len_bytes: u64,
    ) -> Result<(), RmaRefusal> {
        self.core.regions.peer_source(Connection::from_bits(token), at, len_bytes).map(drop)
    }

    fn peer_atomic(
        &mut self,
        _: ConnKey,
        token: u64,
        at: RemoteAddress,
        atomic: Atomic,
    ) -> Result<u64, RmaRefusal> {
        self.core.regions.peer_atomic(Connection::from_bits(token), at, atomic)
    }

    #[inline]
    fn local_read(&mut self, at: RemoteAddress, out: &mut [u8]) -> bool {
        let found = self.core.regions.local(at, out.len() as u64);
        found.is_some_and(|(bytes, offset)| bytes.read_piece(offset, out))
    }

    #[inline]
    fn local_write(&mut self, at: RemoteAddress, data: &[u8]) -> bool {
        let found = self.core.regions.local(at, data.len() as u64);
        found.is_some_and(|(bytes, offset)| bytes.write_piece(offset, data))
    }
}

impl ToProgram<'_> {
    /// Handles the events that are rare.
    #[cold]
    fn seldom(&mut self, event: Event) {
        self.adapter.lending.is_open = false;
        match event {
            Event::Sent { .. } | Event::Rma { .. } => {}
            Event::Request(request) => self.request(request),
            Event::Connected { conn, token } | Event::Accepted { conn, token } => {
                let connection = Connection::from_bits(token);
                // The answer may come from another address than the one that was dialled.
                if !self.is_expected(token) {
                    self.core.failed(connection, ConnectFailure::WrongPeer);
                    self.adapter.unwelcome.push(conn);
                    return;
                }
                if let Some(peer) = self.who.peer().filter(|_| self.core.peers.get(connection).is_none()) {
                    if !peer.rights.connect {
                        self.core.failed(connection, ConnectFailure::NotPermitted);
                        self.adapter.unwelcome.push(conn);
                        return;
                    }
                    self.core.identify(connection, &peer);
                    self.adapter.identified.extend(peer.identity.map(|identity| (conn, identity)));
                }
                // The protocol can't be asked while it calls this; `settle` sets the true size afterwards.
                self.core.opened(connection, 0);
                self.adapter.opened.push((conn, connection));
            }
            Event::ConnectFailed { conn, token, why } => {
                if why == proto::ConnectFailure::Refused {
                    // Only the peer's program refuses.
                    self.core.heard(Connection::from_bits(token));
                }
                self.failed(conn, token, connect_failure(why));
            }
            Event::AcceptFailed { conn, token, why } => self.failed(conn, token, accept_failure(why)),
            Event::KeepaliveTimedOut { token, .. } => {
                self.core.keepalive_timed_out(Connection::from_bits(token));
            }
            Event::Disconnected { token, reason, .. } => {
                self.core.ended(Connection::from_bits(token), disconnect_reason(reason));
            }
            Event::Closed { conn, token } => {
                self.ended(conn);
                self.core.closed(Connection::from_bits(token));
            }
        }
    }

    /// Whether the peer of a dialled connection that has just opened is the expected one.
    fn is_expected(&mut self, token: u64) -> bool {
        let Some(name) = self.adapter.expected.remove(&token) else { return true };
        let identity = self.who.peer().and_then(|peer| peer.identity);
        identity.is_some_and(|identity| identity.has_name(&name))
    }

    fn ended(&mut self, key: ConnKey) {
        self.adapter.live = self.adapter.live.saturating_sub(1);
        self.adapter.ended.push(key);
    }

    fn failed(&mut self, key: ConnKey, token: u64, why: ConnectFailure) {
        self.ended(key);
        self.adapter.expected.remove(&token);
        self.core.failed(Connection::from_bits(token), why);
    }

    fn request(&mut self, request: Request) {
        let who = self.who.peer();
        if who.as_ref().is_some_and(|peer| !peer.rights.connect) {
            self.adapter.not_permitted += 1;
            self.adapter.refused.push(request);
            return;
        }
        let Ok(key) = self.adapter.tickets.insert(request.ticket()) else {
            self.adapter.refused.push(request);
            return;
        };
        let peer = request.peer().to_string();
        self.core.requested(RequestBody {
            payload: request.payload().to_vec(),
            attribute: match request.attribute() {
                proto::Attribute::ReliableOrdered => Attribute::ReliableOrdered,
                proto::Attribute::ReliableUnordered => Attribute::ReliableUnordered,
                proto::Attribute::Unreliable => Attribute::Unreliable,
            },
            peer,
            identity: who,
            via: self.adapter.kind,
            ticket: key.to_bits(),
            inner: Box::new(request),
            inbox: self.core.requests.clone(),
        });
    }
}

pub(super) fn attribute(ours: Attribute) -> proto::Attribute {
    match ours {
        Attribute::ReliableOrdered => proto::Attribute::ReliableOrdered,
        Attribute::ReliableUnordered => proto::Attribute::ReliableUnordered,
        // Connections with these two attributes never get here, as the protocol knows nothing of groups.
        Attribute::Unreliable | Attribute::MulticastSend | Attribute::MulticastReceive => {
            proto::Attribute::Unreliable
        }
    }
}

fn status_of(theirs: proto::Status) -> Status {
    match theirs {
        proto::Status::Success => Status::Success,
        proto::Status::Disconnected => Status::Disconnected,
        proto::Status::ReceiverNotReady => Status::ReceiverNotReady,
        proto::Status::TimedOut => Status::TimedOut,
        proto::Status::DeviceDead => Status::DeviceDead,
        proto::Status::RmaHandle => Status::RmaHandle,
        proto::Status::RmaOperation => Status::RmaOperation,
    }
}

fn connect_failure(why: proto::ConnectFailure) -> ConnectFailure {
    match why {
        proto::ConnectFailure::Refused => ConnectFailure::Refused,
        proto::ConnectFailure::TimedOut => ConnectFailure::TimedOut,
        proto::ConnectFailure::Version { theirs } => ConnectFailure::Version { theirs },
        proto::ConnectFailure::Cancelled => ConnectFailure::Disconnected,
        proto::ConnectFailure::NoMemory => ConnectFailure::NoMemory,
    }
}

fn disconnect_reason(theirs: proto::DisconnectReason) -> DisconnectReason {
    match theirs {
        proto::DisconnectReason::Closed => DisconnectReason::Closed,
        proto::DisconnectReason::Died => DisconnectReason::Died,
        proto::DisconnectReason::TimedOut => DisconnectReason::TimedOut,
        proto::DisconnectReason::Refused => DisconnectReason::Refused,
    }
}

fn accept_failure(why: proto::AcceptFailure) -> ConnectFailure {
    match why {
        proto::AcceptFailure::TimedOut => ConnectFailure::TimedOut,
        proto::AcceptFailure::Gone | proto::AcceptFailure::Cancelled => ConnectFailure::Disconnected,
    }
}

pub(super) fn connect_error(error: proto::ConnectError) -> ConnectError {
    match error {
        proto::ConnectError::TooLong { max } => ConnectError::RequestTooLong { len_bytes: max + 1 },
        proto::ConnectError::TooMany | proto::ConnectError::NoMemory => ConnectError::NoMemory,
    }
}

pub(super) fn accept_error(error: proto::AcceptError) -> AcceptError {
    match error {
        proto::AcceptError::TooMany | proto::AcceptError::NoMemory => AcceptError::NoMemory,
    }
}

pub(super) fn send_error(error: proto::SendError) -> SendError {
    match error {
        proto::SendError::TooLong { max } => {
            // The engine checks the length that was agreed when the connection was made. The path may take less since then.
            let max_bytes = u32::try_from(max).unwrap_or(u32::MAX);
            SendError::TooLong { len_bytes: max + 1, max_bytes }
        }
        proto::SendError::WouldBlock => SendError::WouldBlock,
        proto::SendError::Disconnected => SendError::Disconnected,
        proto::SendError::NotConnected | proto::SendError::Unknown => SendError::UnknownConnection,
    }
}

pub(super) fn rma_error(error: proto::RmaError) -> SendError {
    match error {
        proto::RmaError::TooLong { max } => send_error(proto::SendError::TooLong { max }),
        proto::RmaError::WouldBlock => SendError::WouldBlock,
        proto::RmaError::Disconnected => SendError::Disconnected,
        // The engine has checked the attribute, and split the operation into segments.
        proto::RmaError::Unreliable | proto::RmaError::Segments => SendError::UnknownConnection,
        proto::RmaError::NotConnected | proto::RmaError::Unknown => SendError::UnknownConnection,
    }
}
