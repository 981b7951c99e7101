//! The endpoint: all connections, and what they share. Split by event.

mod bulk;
mod bulk_run;
mod connections;
mod control;
mod handshakes;
mod ordinary;
mod parts;
mod paths;
mod protocol;
mod pump;
mod receiving;
mod replies;
mod requests;
mod sending;
mod shared;
#[cfg(test)]
mod tests;
mod transfers;
mod transmitter;
mod walk;

use crate::conn::path::{BondedPath, Path};
use crate::conn::state::Input;
use crate::conn::table::Table;
use crate::conn::{Active, ActiveConn};
use crate::limits::{
    DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, HEADER_BYTES, INDEX_MAX, RMA_SEGMENTS_MAX, SENDS_MAX,
    record_bytes,
};
use crate::operations::table::{NewOp, OpKind};
use crate::reliable::sends::SendId;
use crate::time::ticks;
use crate::wire::{Head, Packet};
use crate::{
    AcceptError, Address, Atomic, Attribute, BundleMessages, Config, ConfigError, ConnKey, ConnState,
    ConnectError, ConnectionInfo, Counters, MemoryUse, PathInfo, PeerFault, RemoteAddress, Request,
    RequestTicket, RmaError, RmaKind, RmaSegment, SendError, Sink, Taken, Time, Transmit, Unknown,
};
use connections::Connections;
use handshakes::Handshakes;
use protocol::Protocol;
use receiving::stop_receiving;
use sending::{Burst, open_bundle};
use shared::Shared;
use walk::Walk;

/// One side of any number of connections. Driven by its caller: it never waits and never calls the system.
///
/// The caller calls [`Endpoint::handle_datagram`] for what arrives, [`Endpoint::handle_timeout`] when
/// [`Endpoint::next_deadline`] has passed, and after either, and after sends, [`Endpoint::poll_transmit`].
pub struct Endpoint {
    connections: Connections,
    handshakes: Handshakes,
    /// The latest time that a datagram brought.
    seen: Time,
    /// Whether no short path is taken, to compare what they do with what the long ones do.
    #[cfg(test)]
    only_long: bool,
}

impl Endpoint {
    /// Makes an endpoint. The packet buffers and the table of sends are allocated at once; the connection table and
    /// the states of active connections grow with their number, under `memory_bytes_max`.
    pub fn new(config: Config) -> Result<Endpoint, ConfigError> {
        let size = config.datagram_bytes_max;
        if !size.is_multiple_of(8) || !(DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX).contains(&size) {
            return Err(ConfigError::DatagramBytes);
        }
        let counts = [config.connections_max, config.requests_max, config.sends_max, config.operations_max];
        if counts.iter().any(|&count| count == 0 || count > INDEX_MAX) || config.sends_max > SENDS_MAX {
            return Err(ConfigError::Count);
        }
        let handshakes = Handshakes::new(&config).ok_or(ConfigError::OutOfMemory { bytes: 64 << 10 })?;
        let table = Table::new(config.connections_max);
        let connections = Connections { table, protocol: Protocol::new(config)?, walk: Walk::new() };
        Ok(Endpoint {
            connections,
            handshakes,
            seen: Time(0),
            #[cfg(test)]
            only_long: false,
        })
    }

    /// When `handle_timeout` is to be called at the latest; `None`: nothing is pending. May be earlier than what is
    /// really due: then the call only looks.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let at = self
            .connections
            .protocol
            .shared
            .timers
            .next()
            .unwrap_or(Time::FAR)
            .min(self.connections.walk.due);
        (at != Time::FAR).then_some(at)
    }

    /// True if `poll_transmit` has something to do now.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        !self.connections.protocol.shared.ready.is_empty() || !self.handshakes.replies.is_empty()
    }

    /// True if nothing that was sent on a connection waits to leave or to be acknowledged; also if the key names
    /// none.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self, key: ConnKey) -> bool {
        let active = self.connections.table.get(key).and_then(|conn| conn.active.as_deref());
        active.is_none_or(|active| active.tx.is_empty() && active.operations() == 0)
    }

    /// A connection seen from outside; `None` if the key names none.
    #[must_use]
    pub fn connection(&self, key: ConnKey) -> Option<ConnectionInfo> {
        let conn = self.connections.table.get(key)?;
        let active = conn.active.as_deref();
        let idle_window_bytes = u64::from(conn.base.idle_window.kib()) << 10;
        let shared = &self.connections.protocol.shared;
        Some(ConnectionInfo {
            attribute: conn.base.attribute,
            state: conn.base.state,
            heard: conn.base.state != ConnState::Dialing
                || active.and_then(|active| active.dial.as_deref()).is_some_and(|dial| dial.cookie.is_some()),
            peer: conn.base.peer,
            token: conn.base.token,
            message_bytes_max: conn.base.message_bytes_max(),
            datagram_bytes_max: conn.base.datagram_bytes,
            rtt_ns: active
                .map_or(conn.base.idle_rtt.ns(), |active| active.paths.best().rtt.smoothed_ns_or_zero()),
            rtt_ns_min: active.map_or(0, |active| active.paths.best().rtt.min_ns()),
            congestion_window_bytes: active
                .map_or(idle_window_bytes, |active| u64::from(active.paths.window_bytes())),
            peer_window_bytes: u64::from(conn.base.peer_window_kib) << 10,
            in_flight_bytes: active.map_or(0, |active| u64::from(active.paths.in_flight_bytes())),
            bundles_unacked: active.map_or(0, |active| active.tx.len()),
            bundles_held: active.map_or(0, |active| active.rx.held),
            send_timeout_ns: shared.send_timeout_ns(shared.send_timeouts.get(key.index)),
            keepalive_ns: active.map_or(0, |active| active.keepalive_ns),
            blocked: active
                .and_then(|active| active.held_up_by(&self.connections.protocol.transfers.operations)),
            counters: active.map(|active| active.counters).unwrap_or_default(),
        })
    }

    /// The nonce that the peer's datagrams carry, for carriers that check it before the protocol does; `None` if the key names no
    /// connection.
    #[must_use]
    pub fn nonce(&self, key: ConnKey) -> Option<u64> {
        self.connections.table.get(key).map(|conn| conn.base.nonce)
    }

    /// Sets how long a send on this connection may take, in nanoseconds (kept in milliseconds, rounded up); 0: as long as the
    /// endpoint's default says. Holds for sends that are already waiting, too.
    pub fn set_send_timeout(&mut self, key: ConnKey, timeout_ns: u64) -> Result<(), Unknown> {
        let conn = self.connections.table.get_mut(key).ok_or(Unknown)?;
        let shared = &mut self.connections.protocol.shared;
        let timeout_ms = timeout_ns.div_ceil(1_000_000).min(u64::from(u32::MAX)) as u32;
        shared.send_timeouts.set(key.index, timeout_ms);
        if let Some(active) = conn.active.as_deref_mut() {
            active.send_timeout_ms = timeout_ms;
            if !active.tx.is_empty() || active.operations() != 0 {
                active.send_due = Time(0); // looked at, and set right, at once
                shared.arm(active);
            }
        }
        Ok(())
    }

    /// Sets after how much silence, in nanoseconds, `KeepaliveTimedOut` is raised; 0: never. From half of it on
    /// the peer is asked. A connection with keepalive on does not give its active state back.
    pub fn set_keepalive(&mut self, now: Time, key: ConnKey, keepalive_ns: u64) -> Result<(), Unknown> {
        let conn = self.connections.table.get_mut(key).ok_or(Unknown)?;
        let conn = if keepalive_ns == 0 {
            conn.awake()
        } else {
            Some(self.connections.protocol.shared.wake(conn, key.index, now).ok_or(Unknown)?)
        };
        if let Some(ActiveConn { base, active, .. }) = conn {
            active.start_keepalive(now, keepalive_ns, base.state);
            self.connections.protocol.shared.arm(active);
        }
        Ok(())
    }

    /// Sets the send timeout of connections that have none of their own, in nanoseconds; 0: the built-in default.
    pub fn set_default_send_timeout(&mut self, timeout_ns: u64) {
        self.connections.protocol.shared.config.send_timeout_ns = timeout_ns;
    }

    /// Sets the keepalive of connections made from now on, in nanoseconds; 0: off.
    pub fn set_default_keepalive(&mut self, keepalive_ns: u64) {
        self.connections.protocol.shared.config.keepalive_ns = keepalive_ns;
    }

    /// How many connections there are, in whatever state.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.table.used()
    }

    /// Sends that have not completed, silent ones included.
    #[must_use]
    pub fn sends_in_progress(&self) -> u32 {
        self.connections.protocol.sending.sends.in_progress()
    }

    /// Sends of a connection that have not completed, the silent ones included.
    #[must_use]
    pub fn sends_held_by(&self, key: ConnKey) -> u32 {
        self.connections
            .table
            .get(key)
            .and_then(|conn| conn.active.as_deref())
            .map_or(0, |active| active.tx.sends)
    }

    /// Whether the peer says that its program has no receive buffer free.
    #[must_use]
    pub fn is_refused(&self, key: ConnKey) -> bool {
        self.connections
            .table
            .get(key)
            .and_then(|conn| conn.active.as_deref())
            .is_some_and(|active| active.rnr)
    }

    /// Of the memory cap, the bytes that can be lent to somebody else for now. One part in `kept_share` of the cap is not.
    #[must_use]
    pub fn spare_bytes(&self, kept_share: u64) -> u64 {
        let kept_bytes = self.connections.protocol.shared.config.memory_bytes_max / kept_share;
        self.connections.protocol.shared.available_bytes().saturating_sub(kept_bytes)
    }

    /// Of the memory cap, somebody else has so many bytes from now on: no more than [`Endpoint::spare_bytes`] and what it had.
    pub fn lend(&mut self, bytes: u64) {
        self.connections.protocol.shared.lent_bytes = bytes;
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.connections.protocol.shared.counters
    }

    /// What is held now, in bytes by kind.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        self.connections.protocol.shared.memory()
    }

    /// The path to `to` carries only datagrams of this size: later bundles are smaller, older bigger ones go with
    /// fragmentation allowed. Looks at every connection, so not for every packet.
    pub fn path_mtu_changed(&mut self, now: Time, to: Address, datagram_bytes_max: u16) {
        let bytes = (datagram_bytes_max & !7).max(DATAGRAM_BYTES_MIN);
        for index in self.connections.table.indices() {
            if let Some(conn) = self.connections.table.at_mut(index)
                && conn.base.state != ConnState::Free
                && conn.leads_to(to)
            {
                self.connections.protocol.shared.counters.paths_narrowed +=
                    u64::from(bytes < conn.base.datagram_bytes);
                conn.base.datagram_bytes = conn.base.datagram_bytes.min(bytes);
                if matches!(conn.base.state, ConnState::Dialing | ConnState::Accepting) {
                    // The peer does not know yet how long messages may be.
                    conn.base.bundle_bytes = conn.base.datagram_bytes;
                }
                if let Some(active) = conn.active.as_deref_mut() {
                    active.size.was_limited(now);
                }
            }
        }
    }

    /// Queues one message made of `segments`, copied before return. Reliable: completes when the peer has stored
    /// it; unreliable: when it has left. `silent`: no completion event.
    #[inline]
    pub fn send(
        &mut self,
        now: Time,
        key: ConnKey,
        segments: &[&[u8]],
        context: u64,
        silent: bool,
    ) -> Result<(), SendError> {
        let is_alone = self.connections.table.used() < 2;
        let conn = self.connections.table.get_mut(key).ok_or(SendError::Unknown)?;
        match conn.base.state {
            ConnState::Up => {}
            ConnState::Dialing | ConnState::Accepting => return Err(SendError::NotConnected),
            _ => return Err(SendError::Disconnected),
        }
        let len = match segments {
            [only] => only.len(),
            many => many.iter().map(|segment| segment.len()).sum(),
        };
        let max = conn.base.message_bytes_max();
        if len > max {
            return Err(SendError::TooLong { max });
        }
        let Protocol { shared, sending, .. } = &mut self.connections.protocol;
        if sending.sends.is_full() {
            return Err(SendError::WouldBlock);
        }
        let Some(ActiveConn { base, active, .. }) = shared.wake(conn, key.index, now) else {
            return Err(SendError::WouldBlock);
        };
        let body_bytes_max = usize::from(base.datagram_bytes) - HEADER_BYTES;
        if sending.space_for(active, is_alone) == 0 {
            return Err(SendError::WouldBlock);
        }
        open_bundle(active, shared, record_bytes(len), body_bytes_max)?;
        sending.append(active, shared, now, segments, len, context, silent)?;
        queued(active, shared, now, Taken { messages: 1, bytes: len as u64 });
        Ok(())
    }

    /// Queues messages of a burst, from the first on, as [`Endpoint::send`] would one by one: as far as there is space, and none is
    /// longer than `message_bytes_max` and what the connection takes. If the first one can't be sent, `send` says why. Each
    /// message is counted by one [`Event::Sent`](crate::Event::Sent) with `context`, which several of them have in common.
    pub fn send_burst(
        &mut self,
        now: Time,
        key: ConnKey,
        messages: &[&[u8]],
        message_bytes_max: usize,
        context: u64,
        silent: bool,
    ) -> Taken {
        let is_alone = self.connections.table.used() < 2;
        let conn = self.connections.table.get_mut(key).filter(|conn| conn.base.state == ConnState::Up);
        let Protocol { shared, sending, .. } = &mut self.connections.protocol;
        let Some(ActiveConn { base, active, .. }) = conn.and_then(|conn| shared.wake(conn, key.index, now))
        else {
            return Taken::default();
        };
        let body_bytes_max = usize::from(base.datagram_bytes) - HEADER_BYTES;
        let message_bytes_max = message_bytes_max.min(base.message_bytes_max());
        let space = sending.space_for(active, is_alone) as usize;
        let messages = messages.get(..space).unwrap_or(messages);
        let burst = Burst { messages, message_bytes_max, context, silent };
        let taken = sending.append_burst(active, shared, now, &burst, body_bytes_max);
        if taken.messages > 0 {
            queued(active, shared, now, taken);
        }
        taken
    }

    /// Starts one remote memory operation (CCI-060). `message` is copied and delivered to the peer's program once all
    /// data is where it belongs (CCI-064); `fence`: not before everything earlier on this connection is complete at the
    /// peer (CCI-063). Ends in exactly one [`crate::Event::Rma`] with `operation`. What a write reads is read while it
    /// goes on, so it must not change before that event.
    #[expect(clippy::too_many_arguments, reason = "one call says it all")]
    pub fn rma(
        &mut self,
        now: Time,
        key: ConnKey,
        kind: RmaKind,
        segments: &[RmaSegment],
        message: Option<&[u8]>,
        fence: bool,
        operation: u64,
    ) -> Result<(), RmaError> {
        if segments.is_empty() || segments.len() > RMA_SEGMENTS_MAX || !segments.iter().all(is_sound) {
            return Err(RmaError::Segments);
        }
        let (kind, now_ticks) = match kind {
            RmaKind::Write => (OpKind::Write, ticks(now.0)),
            RmaKind::Read => (OpKind::Read, ticks(now.0)),
        };
        self.start(now, key, &NewOp { operation, kind, segments, atomic: None, message, fence, now_ticks })?;
        match kind {
            OpKind::Read => self.connections.protocol.shared.counters.rma_reads += 1,
            _ => self.connections.protocol.shared.counters.rma_writes += 1,
        }
        Ok(())
    }

    /// Starts one atomic operation at the peer (CCS-062), which is carried out exactly once. `result`: where what was
    /// there before goes, 8 bytes, with zeros above the value of a 4-byte word. Ends as [`Endpoint::rma`] does.
    #[expect(clippy::too_many_arguments, reason = "one call says it all")]
    pub fn atomic(
        &mut self,
        now: Time,
        key: ConnKey,
        atomic: Atomic,
        target: RemoteAddress,
        result: Option<RemoteAddress>,
        fence: bool,
        operation: u64,
    ) -> Result<(), RmaError> {
        let len_bytes = atomic.width.bytes() as u64;
        let segment = RmaSegment { local: result.unwrap_or_default(), remote: target, len_bytes };
        if !is_sound(&segment) {
            return Err(RmaError::Segments);
        }
        let new = NewOp {
            operation,
            kind: OpKind::Atomic,
            segments: &[segment],
            atomic: Some((atomic, result.is_some())),
            message: None,
            fence,
            now_ticks: ticks(now.0),
        };
        self.start(now, key, &new)?;
        self.connections.protocol.shared.counters.atomics += 1;
        Ok(())
    }

    fn start(&mut self, now: Time, key: ConnKey, new: &NewOp<'_>) -> Result<(), RmaError> {
        let is_alone = self.connections.table.used() < 2;
        let conn = self.connections.table.get_mut(key).ok_or(RmaError::Unknown)?;
        match conn.base.state {
            ConnState::Up => {}
            ConnState::Dialing | ConnState::Accepting => return Err(RmaError::NotConnected),
            _ => return Err(RmaError::Disconnected),
        }
        if !conn.base.attribute.is_reliable() {
            return Err(RmaError::Unreliable);
        }
        let (max, message_bytes) = (conn.base.message_bytes_max(), new.message.map_or(0, <[u8]>::len));
        if message_bytes > max {
            return Err(RmaError::TooLong { max });
        }
        let Protocol { shared, transfers, .. } = &mut self.connections.protocol;
        let Some(mut conn) = shared.wake(conn, key.index, now) else { return Err(RmaError::WouldBlock) };
        transfers.start(shared, &mut conn, new, is_alone, now).ok_or(RmaError::WouldBlock)
    }

    /// Sends of this connection that have not completed, silent ones not counted. Walks the window.
    #[must_use]
    pub fn sends_in_progress_on(&self, key: ConnKey) -> u32 {
        let Some(active) = self.connections.table.get(key).and_then(|conn| conn.active.as_deref()) else {
            return 0;
        };
        let Some(ring) = active.tx_ring.as_ref() else { return 0 };
        let mut count = 0;
        let mut seq = active.tx.unacked;
        while seq != active.tx.next {
            let first = ring.get(seq).first;
            if first != SendId::NONE {
                count += self.connections.protocol.sending.sends.count_reported(first);
            }
            seq = seq.next();
        }
        count
    }

    /// Whether somebody waits for receive buffers.
    pub fn waits_for_buffers(&self) -> bool {
        !self.connections.protocol.shared.holding.is_empty()
            || !self.connections.protocol.shared.refused.is_empty()
    }

    /// Whether the last [`Endpoint::buffers_returned`] left some out, with whom the next one goes on.
    pub fn waits_for_a_turn(&self) -> bool {
        self.connections.protocol.receiving.is_feeding()
    }

    /// Receive buffers came back: held messages are delivered, and senders that were refused may go on, as
    /// far as there are buffers for them.
    pub fn buffers_returned(&mut self, now: Time, sink: &mut impl Sink) {
        let Protocol { shared, receiving, .. } = &mut self.connections.protocol;
        receiving.feed(&mut self.connections.table, shared, now, sink);
    }

    /// The two paths of a bonded connection; `None` if it has only the one that
    /// [`crate::ConnectionInfo`] describes, or if the key names none.
    #[must_use]
    pub fn paths(&self, key: ConnKey) -> Option<[PathInfo; 2]> {
        let conn = self.connections.table.get(key)?;
        let active = conn.active.as_deref()?;
        let bond = active.paths.bond.as_deref()?;
        let info = |to: Option<Address>, path: &Path, bonded: &BondedPath| PathInfo {
            to,
            state: bonded.state,
            rtt_ns: path.rtt.smoothed_ns_or_zero(),
            congestion_window_bytes: path.window.bytes().into(),
            in_flight_bytes: path.in_flight_bytes.into(),
            datagrams_sent: bonded.datagrams_sent,
            bytes_sent: bonded.bytes_sent,
            retransmissions: bonded.retransmissions,
            downs: bonded.downs,
        };
        let [first, second] = &bond.paths;
        Some([info(Some(conn.base.peer), &active.paths.first, first), info(bond.to, &bond.second, second)])
    }

    /// Takes one datagram from the network. Never panics; a bad one is a counter and nothing else. Returns the messages that the program
    /// takes now, if [`Sink::takes_bundle`] said so of them, and none otherwise.
    pub fn handle_datagram<'a>(
        &mut self,
        now: Time,
        from: Address,
        datagram: &'a [u8],
        sink: &mut impl Sink,
    ) -> BundleMessages<'a> {
        self.seen = now;
        let counters = &mut self.connections.protocol.shared.counters;
        counters.datagrams_received += 1;
        counters.datagram_bytes_received += datagram.len() as u64;
        #[cfg(test)]
        if self.only_long {
            return self.handle_any(now, from, datagram, sink);
        }
        if let Some(messages) = self.connections.on_ordinary(now, from, datagram, sink) {
            return messages;
        }
        if Head::may_be_bulk(datagram) && self.connections.on_bulk(now, from, datagram, sink) {
            return BundleMessages::default();
        }
        self.handle_any(now, from, datagram, sink)
    }

    /// Takes a datagram that may be anything.
    #[inline(never)]
    fn handle_any<'a>(
        &mut self,
        now: Time,
        from: Address,
        datagram: &'a [u8],
        sink: &mut impl Sink,
    ) -> BundleMessages<'a> {
        let Endpoint { connections, handshakes, .. } = self;
        let dropped = connections.protocol.shared.counters.replies_dropped;
        let outcome = match Packet::parse(datagram) {
            Ok(Packet::Established(head, sack, holds, body)) => {
                let outcome =
                    connections.on_established(handshakes, now, from, &head, &sack, (holds, body), sink);
                self.count_outcome(outcome);
                let is_handed_over = &mut self.connections.protocol.shared.is_handed_over;
                let body = if std::mem::take(is_handed_over) { body } else { &[] };
                return BundleMessages::of(body);
            }
            Ok(Packet::Hello(hello)) => {
                handshakes.on_hello(&mut connections.protocol.shared, now, from, &hello)
            }
            Ok(Packet::Retry(retry)) => handshakes.on_retry(
                &mut connections.table,
                &mut connections.protocol.shared,
                now,
                from,
                &retry,
            ),
            Ok(Packet::Connect(connect)) => handshakes.on_connect(
                &mut connections.table,
                &mut connections.protocol.shared,
                now,
                from,
                &connect,
                sink,
            ),
            Ok(Packet::Accept(accept)) => handshakes.on_accept(
                &mut connections.table,
                &mut connections.protocol.shared,
                now,
                from,
                &accept,
                sink,
            ),
            Ok(Packet::Reject(reject)) => handshakes
                .on_reject(&mut connections.table, from, &reject)
                .map(|(index, why)| connections.dial_failed(index, why, sink)),
            Ok(Packet::Version(notice)) => handshakes
                .on_version(&mut connections.table, from, &notice)
                .map(|(index, why)| connections.dial_failed(index, why, sink)),
            Ok(Packet::Reset(reset)) => connections.on_reset(now, from, &reset, sink),
            Err(fault) => Err(fault),
        };
        if outcome.is_ok() && connections.protocol.shared.counters.replies_dropped == dropped {
            connections.protocol.shared.counters.count_useful();
        }
        self.count_outcome(outcome);
        BundleMessages::default()
    }

    #[inline]
    fn count_outcome(&mut self, outcome: Result<(), PeerFault>) {
        if let Err(fault) = outcome {
            self.connections.protocol.shared.counters.count_fault(fault);
        }
    }

    /// Closes a connection in an orderly way: what was sent before is still delivered or times out, then the
    /// peer is notified. The key is dead to `send` at once; `Event::Closed` when all is over. A connection that is
    /// not there yet ends in `ConnectFailed` or `AcceptFailed`, for the reason `Cancelled`.
    pub fn disconnect(&mut self, now: Time, key: ConnKey) -> Result<(), Unknown> {
        let conn = self.connections.table.get_mut(key).ok_or(Unknown)?;
        let Protocol { shared, .. } = &mut self.connections.protocol;
        match conn.base.state {
            ConnState::Dialing | ConnState::Accepting => {
                conn.base.enter(Input::Failed);
            }
            ConnState::Broken => conn.base.enter(Input::Over),
            ConnState::Up | ConnState::PeerClosed => match shared.wake(conn, key.index, now) {
                Some(mut conn) => {
                    let busy = !conn.active.tx.is_empty() || conn.active.operations() != 0;
                    conn.base.enter(if busy { Input::Disconnect } else { Input::Delivered });
                    stop_receiving(shared, conn.active, now);
                    if !busy {
                        shared.start_closing(&mut conn);
                    }
                }
                None => {
                    // No memory to part in good order: the peer learns it by a reset, when it sends next.
                    conn.base.enter(Input::Delivered);
                    conn.base.enter(Input::Over);
                }
            },
            _ => return Err(Unknown),
        }
        if conn.base.state == ConnState::Done {
            shared.ready.push_back(key.index); // the event is raised where there is a sink
        } else if let Some(active) = conn.active.as_deref_mut() {
            shared.enqueue(active);
            shared.arm(active);
        }
        Ok(())
    }

    /// Starts a connection. Ends in exactly one `Event::Connected` or `Event::ConnectFailed` with `token`.
    /// `timeout_ns` `None`: asks for ever, ever more rarely.
    pub fn connect(
        &mut self,
        now: Time,
        to: Address,
        request: &[u8],
        attribute: Attribute,
        token: u64,
        timeout_ns: Option<u64>,
    ) -> Result<ConnKey, ConnectError> {
        self.connect_by((to, None), now, request, attribute, token, timeout_ns)
    }

    /// Connects to a peer that can be reached by two paths, which differ in where they lead or in the `via` of that. Both
    /// are tried until one answers. A reliable connection is then *bonded*, if the peer agrees: it uses both paths, and
    /// lives as long as one of them does.
    //= wire.md R-PATH-1
    pub fn connect_bonded(
        &mut self,
        now: Time,
        to: [Address; 2],
        request: &[u8],
        attribute: Attribute,
        token: u64,
        timeout_ns: Option<u64>,
    ) -> Result<ConnKey, ConnectError> {
        let [first, second] = to;
        let second = (first != second).then_some(second);
        self.connect_by((first, second), now, request, attribute, token, timeout_ns)
    }

    fn connect_by(
        &mut self,
        to: (Address, Option<Address>),
        now: Time,
        request: &[u8],
        attribute: Attribute,
        token: u64,
        timeout_ns: Option<u64>,
    ) -> Result<ConnKey, ConnectError> {
        let Connections { table, protocol, walk } = &mut self.connections;
        let all = (table, &mut protocol.shared, walk);
        self.handshakes.connect_by(all, to, now, request, attribute, token, timeout_ns)
    }

    /// Accepts a request, which may have come to another endpoint (then report it to that one by `request_taken`). Ends
    /// in exactly one `Event::Accepted` or `Event::AcceptFailed` with `token`.
    pub fn accept(
        &mut self,
        now: Time,
        request: Request,
        token: u64,
    ) -> Result<ConnKey, (AcceptError, Request)> {
        let Connections { table, protocol, walk } = &mut self.connections;
        self.handshakes.accept((table, &mut protocol.shared, walk), now, request, token)
    }

    /// Refuses a request; the client learns it.
    pub fn reject(&mut self, now: Time, request: Request) {
        self.handshakes.reject(&mut self.connections.protocol.shared, now, request);
    }

    /// Another endpoint accepted this request: repeats of it are ignored from now on.
    pub fn request_taken(&mut self, ticket: RequestTicket) {
        self.handshakes.request_taken(&mut self.connections.protocol.shared, ticket, self.seen);
    }

    /// Does what is due by `now`. Call it when `next_deadline` has passed; calling it earlier does no harm.
    pub fn handle_timeout(&mut self, now: Time, sink: &mut impl Sink) {
        self.connections.on_time(&mut self.handshakes, now, sink);
    }

    /// Writes datagrams while the carrier takes more, round robin over the connections that have something to send.
    /// Unreliable sends complete when they are written, into `sink`.
    // Always: it has one caller in a program, and a call costs as much as a poll that sends nothing.
    #[inline(always)]
    pub fn poll_transmit(&mut self, now: Time, out: &mut impl Transmit, sink: &mut impl Sink) {
        if self.handshakes.replies.transmit(out, &mut self.connections.protocol.shared.counters) {
            self.connections.transmit(now, out, sink);
        }
    }
}

/// Messages were queued: they are to leave, and to complete in time.
#[inline]
fn queued(active: &mut Active, shared: &mut Shared, now: Time, Taken { messages, bytes }: Taken) {
    active.used_at = now;
    if active.send_due == Time::FAR {
        active.send_due = now.plus(shared.send_timeout_ns(active.send_timeout_ms));
        shared.arm(active);
    }
    shared.enqueue(active);
    active.counters.messages_sent += u64::from(messages);
    active.counters.message_bytes_sent += bytes;
    shared.counters.messages_sent += u64::from(messages);
    shared.counters.message_bytes_sent += bytes;
}

fn is_sound(segment: &RmaSegment) -> bool {
    let ends = |address: RemoteAddress| address.offset.checked_add(segment.len_bytes).is_some();
    segment.len_bytes != 0 && ends(segment.local) && ends(segment.remote)
}
