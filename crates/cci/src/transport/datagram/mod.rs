//! The transport over datagrams: the protocol (`cci_proto`) over a [`carrier`], such as UDP sockets ([`udp`]) or Ethernet frames
//! ([`eth`]).
//!
//! The protocol decides what is sent and when. This module gives it a carrier, a clock and the engine ([`adapter`]).
//!
//! **Invariant:** nothing here knows the wire format.

mod adapter;
mod carrier;
mod eth;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod intake;
mod link;
mod multicast;
mod open;
mod report;
mod rest;
mod sealed;
#[cfg(feature = "simulated")]
mod sim;
mod size;
mod udp;
mod udp_uri;

#[cfg(test)]
mod tests;

pub(crate) use eth::{lacks_xdp, open as open_eth, show_mac};
#[cfg(feature = "simulated")]
pub(crate) use sim::open as open_simulated;
#[cfg(feature = "simulated")]
pub use sim::{Network, SimulatedNode, TooLong};
pub(crate) use size::{
    FRAME_MTU_BYTES_MIN, MTU_BYTES_DEFAULT, MTU_BYTES_MAX, MTU_BYTES_MIN, message_bytes_max,
    message_bytes_max_in_frame,
};
pub(crate) use udp::open as open_udp;

use self::adapter::{Adapter, ToProgram, accept_error, attribute, send_error};
use self::carrier::{Carrier, Dead, Identities, Narrow, Nobody, Paths};
use self::rest::Rest;
use super::{
    About, Action, Activity, Armed, AtomicRequest, Dial, LinkState, Operation, Report, RmaRequest, Setting,
    Started, Taken, Transport,
};
use crate::connection::Connection;
use crate::engine::core::{Core, SendOp};
use crate::engine::lent::Lender;
use crate::engine::peer::Peer;
use crate::engine::requests::{Decision, RequestBody};
use crate::error::{AcceptError, ConnectError, ConnectFailure, SendError};
use crate::limits;
use crate::security::NO_NAMES;
use cci_proto as proto;
use cci_proto::{Address, ConnKey, ConnState, Endpoint, Request, Time};

/// The most rounds of filling and flushing the send batch in one progress.
const SEND_ROUNDS_MAX: u32 = 8;
/// Bytes queued by sends before they leave without waiting for the next progress: about one batch for the kernel.
const QUEUED_BYTES_MAX: usize = 48 << 10;
/// About how many bytes an operation puts into a datagram beside its data.
const OPERATION_BYTES: usize = 64;
/// How many packed sends share one reading of the clock. They leave later in any case.
const SENDS_PER_CLOCK: u32 = 16;
/// The shortest time between two reads of the socket while messages wait for receive buffers. It is then read for
/// acknowledgements only. The kernel should keep the datagrams, since this endpoint would drop them for lack of packet buffers.
const STARVED_RECV_NS: u64 = 50_000;
/// The greatest age of a reading of the clock that polls share if they found nothing.
const CLOCK_AGE_NS: u64 = 5_000;
/// The most polls that share a reading of the clock.
const POLLS_PER_CLOCK_MAX: u64 = 8;
/// Sends that follow a lone one sooner than this, with no progress between, are packed. Without this, each message of a burst on
/// an unreliable connection would cost a system call: such a connection is always quiet, since nothing is acknowledged on it.
const LONE_GAP_NS: u64 = 20_000;
/// The time after which to try again when the socket had no space. A fast link empties a buffer sooner.
const SPACE_RETRY_NS: u64 = 100_000;

/// The transport of one endpoint.
struct Datagram<C> {
    proto: Endpoint,
    carrier: C,
    adapter: Adapter,
    rest: Rest,
    uri: String,
    /// The last reading of the clock.
    now: Time,
    /// Polls since the clock was read.
    polls_since_clock: u64,
    /// How many polls may share one reading of the clock. It depends on how fast the program polls.
    polls_per_clock: u64,
    /// When the socket was last read.
    received_at: Time,
    /// Whether that read left many events for the program.
    has_left_many: bool,
    /// Sends since the clock was read.
    sends_since_clock: u32,
    /// When a message was last sent in a datagram of its own; `None` if progress was made since.
    sent_alone_at: Option<Time>,
    /// Bytes of messages queued since the last transmission.
    queued_bytes: usize,
    /// Whether the carrier is dead and was reported to the engine.
    failed: bool,
}

impl<C: Carrier> Datagram<C> {
    fn read_clock(&mut self) -> Time {
        // Time never goes back, although clocks of different processors may differ by some nanoseconds.
        self.now = self.now.max(Time(self.carrier.now_ns()));
        self.sends_since_clock = 0;
        self.polls_since_clock = 0;
        self.now
    }

    /// Reads the clock after a poll that found nothing, and returns true, unless the last reading is still good enough. A
    /// program that polls as fast as it can would otherwise spend a tenth of its time on reading it.
    // Always inlined, as is `receive`: an empty poll is little else.
    #[inline(always)]
    fn read_clock_if_old(&mut self) -> bool {
        self.polls_since_clock += 1;
        if self.polls_since_clock < self.polls_per_clock {
            return false;
        }
        let (before, polls) = (self.now, self.polls_since_clock);
        let poll_ns = self.read_clock().0.saturating_sub(before.0) / polls;
        self.polls_per_clock = (CLOCK_AGE_NS / poll_ns.max(1)).min(POLLS_PER_CLOCK_MAX);
        true
    }

    /// Reads the clock for a send on a quiet connection. Returns whether the send is alone: no message was sent in a datagram of
    /// its own just before, with no progress since.
    fn is_lone(&mut self) -> bool {
        self.read_clock();
        self.follows_none()
    }

    /// Whether no message was sent in a datagram of its own just before, with no progress since.
    fn follows_none(&self) -> bool {
        self.sent_alone_at.is_none_or(|left_at| self.now.0.saturating_sub(left_at.0) >= LONE_GAP_NS)
    }

    /// Notes that a connection was asked for or accepted, and gives its nonce to the carrier.
    fn begun(&mut self, key: ConnKey) {
        self.adapter.live += 1;
        //= wire.md R-ETH-5
        if let Some(nonce) = self.proto.nonce(key) {
            self.carrier.set_nonce(key, Some(nonce));
        }
    }

    /// Decides whether a request from that address can be accepted here, and returns the peer, if it was proved. `asked` is the
    /// peer as the endpoint knows it that received the request, which may be another one.
    fn admit(&mut self, from: Address, asked: Option<&Peer>) -> Result<Option<Peer>, AcceptError> {
        if !self.carrier.reaches(from) {
            return Err(AcceptError::OtherDevice);
        }
        match self.carrier.identities() {
            Some(identities) => {
                identities.admit(from, asked.and_then(|asked| asked.identity.as_ref())).map(Some)
            }
            None if asked.is_some() => Err(AcceptError::NotPermitted),
            None => Ok(None),
        }
    }

    /// Sends an operation that was queued if it is `lone`, or if enough for a batch is queued.
    fn operation_queued(&mut self, core: &mut Core, lone: bool, len_bytes: u64) {
        let len = usize::try_from(len_bytes).unwrap_or(QUEUED_BYTES_MAX).min(QUEUED_BYTES_MAX);
        self.queued_bytes += len + OPERATION_BYTES;
        if lone || self.queued_bytes >= QUEUED_BYTES_MAX {
            self.transmit(core);
        }
    }

    /// Takes datagrams that have arrived, up to a bound, and returns whether there were any.
    #[inline(always)]
    fn receive(&mut self, core: &mut Core, lender: Option<&mut Lender<'_>>) -> bool {
        if self.adapter.starved && self.now.0 < self.received_at.0.saturating_add(STARVED_RECV_NS) {
            return false;
        }
        if self.has_left_many && core.is_between_events() && self.was_just_received() {
            return false;
        }
        let first = self.receive_once(core);
        if first != 0 {
            self.take_in(core, first, lender);
        }
        self.received_at = self.now;
        first != 0
    }

    /// Whether the socket was read so recently that a program which takes its events quickly should take more of them first.
    /// Otherwise as many datagrams would come as it takes, and a peer that keeps sending would fill the queue of events with all
    /// receive buffers.
    #[cold]
    fn was_just_received(&mut self) -> bool {
        self.read_clock().0 < self.received_at.0.saturating_add(limits::PROGRESS_NS)
    }

    /// Continues with the datagram whose messages were lent in part. Returns whether the turn of progress goes on: it does not if
    /// the handler was given as many messages as it takes.
    #[cold]
    #[inline(never)]
    fn take_rest(&mut self, core: &mut Core, lender: Option<&mut Lender<'_>>) -> bool {
        let since = self.rest.since();
        match lender {
            // A handler that is slow would keep the socket, acknowledgements and time-outs waiting.
            Some(lender)
                if lender.may_leave()
                    && !core.has_events()
                    && !core.waiting.has_closing()
                    && self.read_clock().0 < since.0.saturating_add(limits::PROGRESS_NS) =>
            {
                self.rest.lend(core, lender);
                lender.left() > 0
            }
            _ => {
                self.rest.deliver(core);
                true
            }
        }
    }

    /// One turn of progress. With a lender, messages go to a handler as far as they can.
    #[inline(always)]
    fn turn(&mut self, core: &mut Core, mut lender: Option<&mut Lender<'_>>) {
        self.sent_alone_at = None;
        if !self.rest.is_empty() && !self.take_rest(core, lender.as_deref_mut()) {
            return;
        }
        if self.adapter.waiting {
            self.read_clock();
            self.feed(core);
        }
        if !self.receive(core, lender) && !self.read_clock_if_old() {
            // A program may send all the time and never make progress, so what is due is also done here.
            let due = self.next_deadline().is_some_and(|at| at <= self.now);
            if !due && !self.proto.wants_transmit() && !self.carrier.has_pending() {
                return;
            }
            self.read_clock();
        }
        self.time_out(core);
        self.queued_bytes = 0;
        if self.has_to_transmit() {
            self.transmit(core);
        }
        // Silent sends that fail raise no event, so only the protocol has counted all failures.
        let counters = self.proto.counters();
        core.counters.sends_failed +=
            self.adapter.failed_silently(counters.sends_failed + counters.rma_failed);
    }

    /// Delivers messages that waited for a receive buffer, once some are free again.
    fn feed(&mut self, core: &mut Core) {
        let returns = core.returns();
        if !self.adapter.waiting || core.receive.free_count() == 0 || returns == self.adapter.fed_at {
            return;
        }
        self.adapter.starved = false;
        let mut sink = ToProgram { core, adapter: &mut self.adapter, who: &Nobody };
        self.proto.buffers_returned(self.now, &mut sink);
        if !self.proto.waits_for_a_turn() {
            self.adapter.fed_at = returns;
        }
        self.adapter.waiting = self.proto.waits_for_buffers();
        self.adapter.settle(&mut self.proto, core, self.now);
    }

    /// Handles what is due.
    fn time_out(&mut self, core: &mut Core) {
        if let Some(identities) = self.carrier.identities()
            && identities.next_deadline().is_some_and(|at| at <= self.now)
        {
            identities.at(self.now);
            identities.time_out();
        }
        if self.proto.next_deadline().is_some_and(|at| at <= self.now) {
            self.proto
                .handle_timeout(self.now, &mut ToProgram { core, adapter: &mut self.adapter, who: &Nobody });
            self.adapter.settle(&mut self.proto, core, self.now);
        }
    }

    /// When something is due next, in the protocol or in the carrier's handshakes.
    #[inline]
    fn next_deadline(&mut self) -> Option<Time> {
        let due = self.carrier.identities().and_then(|identities| identities.next_deadline());
        match (self.proto.next_deadline(), due) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Reports to the engine, once, that the carrier is dead.
    #[cold]
    fn fail(&mut self, core: &mut Core) {
        if !std::mem::replace(&mut self.failed, true) {
            core.device_failed();
        }
    }

    /// Ends an attempt to connect from this side that can't succeed any more.
    #[cold]
    fn refuse(&mut self, core: &mut Core, key: ConnKey, why: ConnectFailure) {
        let Some(info) = self.proto.connection(key).filter(|info| info.state == ConnState::Dialing) else {
            return;
        };
        core.failed(Connection::from_bits(info.token), why);
        // The connection exists, and the program needs no event about it any more.
        let _ = self.proto.disconnect(self.now, key);
    }

    /// Reports the connections that have ended to the carrier.
    #[cold]
    fn forget_ended(&mut self) {
        for key in self.adapter.ended.drain(..) {
            self.carrier.set_nonce(key, None);
        }
    }

    /// Gives waiting datagrams to the system.
    #[inline]
    fn flush(&mut self, core: &mut Core) {
        let (proto, now) = (&mut self.proto, self.now);
        let flushed = self.carrier.flush(|Narrow { to, datagram_bytes_max }| {
            proto.path_mtu_changed(now, to, datagram_bytes_max);
        });
        if flushed == Err(Dead) {
            self.fail(core);
        }
    }

    /// Sends a lone message by the short path, if possible.
    #[inline]
    fn send_at_once(&mut self, core: &mut Core, key: ConnKey, segments: &[&[u8]], op: SendOp) -> bool {
        let &[payload] = segments else { return false };
        let is_free = !self.carrier.has_pending()
            && self.adapter.ended.is_empty()
            && self.carrier.identities().is_none();
        let run = (op.context, op.silent);
        let sent = is_free && self.proto.send_at_once(self.now, key, payload, run, &mut self.carrier);
        if sent {
            self.sent_alone_at = Some(self.now);
            self.flush(core);
        }
        sent
    }

    /// Whether [`Datagram::transmit`] may have something to do.
    #[inline]
    fn has_to_transmit(&mut self) -> bool {
        self.proto.wants_transmit()
            || self.carrier.has_pending()
            || !self.adapter.ended.is_empty()
            || self.carrier.identities().is_some()
    }

    /// Sends what may be sent, as far as the socket has space.
    fn transmit(&mut self, core: &mut Core) {
        self.queued_bytes = 0;
        if !self.adapter.ended.is_empty() {
            self.forget_ended();
        }
        if let Some(identities) = self.carrier.identities() {
            identities.at(self.now);
        }
        while let Some((key, why)) = self.carrier.identities().and_then(Identities::take_refused) {
            self.refuse(core, key, why);
        }
        for _ in 0..SEND_ROUNDS_MAX {
            let wants = self.proto.wants_transmit();
            if wants {
                let mut sink = ToProgram { core, adapter: &mut self.adapter, who: &Nobody };
                self.proto.poll_transmit(self.now, &mut self.carrier, &mut sink);
                self.adapter.settle(&mut self.proto, core, self.now);
            }
            if !self.carrier.has_pending() {
                return;
            }
            self.flush(core);
            if !wants || self.carrier.has_pending() {
                return;
            }
        }
    }
}

impl<C: Carrier> Transport for Datagram<C> {
    fn about(&self) -> About<'_> {
        About { uri: &self.uri, offers_multicast: false }
    }

    fn connect(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: Dial<'_>,
    ) -> Result<u64, ConnectError> {
        let bad_uri = |reason| ConnectError::BadUri { uri: to.uri.to_owned(), reason };
        let paths = self.carrier.parse(to.uri).map_err(bad_uri)?;
        if let Some(name) = to.expected {
            let reason = || NO_NAMES.to_owned();
            let cannot = || ConnectError::CannotExpect { name: name.to_owned(), reason: reason() };
            self.carrier.identities().ok_or_else(cannot)?.can_expect(name)?;
        }
        let now = self.read_clock();
        let (attribute, token) = (attribute(to.attribute), connection.to_bits());
        let (request, timeout_ns) = (to.request, to.timeout_ns);
        let (key, first) = match paths {
            Paths::One(address) => {
                (self.proto.connect(now, address, request, attribute, token, timeout_ns), address)
            }
            Paths::Bonded(both) => {
                (self.proto.connect_bonded(now, both, request, attribute, token, timeout_ns), both[0])
            }
        };
        let key = key.map_err(adapter::connect_error)?;
        self.begun(key);
        if let Some(identities) = self.carrier.identities() {
            identities.at(now);
            identities.dialled(key, first, to.expected);
        }
        self.adapter.expected.extend(to.expected.map(|name| (token, name.into())));
        self.transmit(core);
        Ok(link::pack(key))
    }

    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError> {
        let (inner, mut request) = request.claim::<Request>()?;
        let from = inner.peer();
        let peer = match self.admit(from, request.identity.as_ref()) {
            Ok(peer) => peer,
            Err(error) => {
                request.inner = inner;
                request.refuse();
                return Err(error);
            }
        };
        let now = self.read_clock();
        match self.proto.accept(now, *inner, connection.to_bits()) {
            Ok(key) => {
                self.begun(key);
                if let Some(peer) = peer {
                    if let (Some(identity), Some(identities)) = (&peer.identity, self.carrier.identities()) {
                        identities.hold(key, from, identity);
                    }
                    core.identify(connection, &peer);
                }
                if std::sync::Arc::ptr_eq(&request.inbox, &core.requests) {
                    self.adapter.forget(request.ticket);
                }
                self.transmit(core);
                Ok(link::pack(key))
            }
            Err((error, inner)) => {
                request.inner = Box::new(inner);
                request.refuse();
                Err(accept_error(error))
            }
        }
    }

    fn decided(&mut self, core: &mut Core, decision: Decision) {
        match decision {
            Decision::Refused { ticket, inner, .. } => {
                self.adapter.forget(ticket);
                if let Ok(request) = inner.downcast::<Request>() {
                    let now = self.read_clock();
                    self.proto.reject(now, *request);
                    self.transmit(core);
                }
            }
            Decision::AcceptedElsewhere { ticket, .. } => {
                if let Some(ticket) = self.adapter.forget(ticket) {
                    self.proto.request_taken(ticket);
                }
            }
        }
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64) {
        self.rest.deliver(core);
        let now = self.read_clock();
        if self.proto.disconnect(now, link::unpack(link)).is_err() {
            core.closed(connection);
        }
        self.transmit(core);
    }

    #[inline]
    fn send(
        &mut self,
        core: &mut Core,
        _: Connection,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        let key = link::unpack(link);
        // A lone message must not wait for the next progress. A message that follows others may wait, and shares their datagram.
        let lone = self.queued_bytes == 0 && self.proto.is_quiet(key) && self.is_lone();
        if lone && self.send_at_once(core, key, segments, op) {
            return Ok(());
        }
        self.sends_since_clock += 1;
        if self.sends_since_clock >= SENDS_PER_CLOCK {
            self.read_clock();
        }
        self.proto.send(self.now, key, segments, op.context, op.silent).map_err(send_error)?;
        self.queued_bytes += match segments {
            [only] => only.len() + 8,
            many => many.iter().map(|segment| segment.len() + 8).sum::<usize>(),
        };
        if lone {
            self.sent_alone_at = Some(self.now);
        }
        if lone || self.queued_bytes >= QUEUED_BYTES_MAX {
            self.transmit(core);
        }
        Ok(())
    }

    #[inline]
    fn send_burst(
        &mut self,
        core: &mut Core,
        _: Connection,
        link: u64,
        messages: &[&[u8]],
        mss: u32,
        op: SendOp,
    ) -> Taken {
        let key = link::unpack(link);
        // A lone burst leaves at once, like a lone message, but its datagrams are filled.
        self.read_clock();
        let lone = self.queued_bytes == 0 && self.proto.is_quiet(key) && self.follows_none();
        let proto::Taken { messages, bytes } =
            self.proto.send_burst(self.now, key, messages, mss as usize, op.context, op.silent);
        if messages == 0 {
            return Taken::default();
        }
        self.queued_bytes += bytes as usize + messages as usize * 8;
        if lone {
            self.sent_alone_at = Some(self.now);
        }
        if lone || self.queued_bytes >= QUEUED_BYTES_MAX {
            self.transmit(core);
        }
        Taken { messages, bytes }
    }

    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        operation: &Operation<'_>,
    ) -> Result<Started, SendError> {
        let key = link::unpack(link);
        let sends = || self.proto.sends_in_progress_on(key);
        let id = core.begin_operation(connection, operation.op, sends)?;
        let now = self.read_clock();
        // A lone operation is sent at once, like a lone message. One that follows others shares their datagrams, and is sent with
        // the next progress or when there is a batch.
        let lone = self.queued_bytes == 0 && self.proto.is_quiet(key);
        let taken = match operation.action {
            Action::Transfer(RmaRequest { kind, segments, message, fence }) => {
                let taken = self.proto.rma(now, key, kind, segments, message, fence, id);
                taken.map(|()| {
                    segments.iter().fold(0, |sum: u64, segment| sum.saturating_add(segment.len_bytes))
                })
            }
            Action::Atomic(AtomicRequest { atomic, target, result, fence }) => {
                self.proto.atomic(now, key, atomic, target, result, fence, id).map(|()| 0)
            }
        };
        match taken {
            Ok(len_bytes) => {
                self.operation_queued(core, lone, len_bytes);
                Ok(Started::Pending)
            }
            Err(error) => {
                core.withdraw_operation(id);
                Err(adapter::rma_error(error))
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.carrier.now_ns()
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        self.turn(core, None);
    }

    fn progress_lending(&mut self, core: &mut Core, lender: &mut Lender<'_>) {
        self.turn(core, Some(lender));
    }

    fn arm(&mut self, core: &mut Core) -> Armed {
        self.rest.deliver(core);
        // A socket full of datagrams that can't be handled now would end each sleep at once. So a deadline is set instead.
        let is_watched = self.carrier.arm(&core.poller, !self.adapter.starved).unwrap_or_else(|Dead| {
            self.fail(core);
            // Nothing will come, so no deadline need replace the descriptor.
            true
        });
        // A deadline that has passed would end the sleep at once.
        self.read_clock();
        self.time_out(core);
        self.transmit(core);
        let soon = |wait_ns: u64| Some(self.now.0.saturating_add(wait_ns));
        // Something also remains to be sent if the rounds of one call were not enough.
        let waits = self.carrier.has_pending() || self.proto.wants_transmit();
        let space_ns = if waits { soon(SPACE_RETRY_NS) } else { None };
        // No report wakes the endpoint when another thread gives a buffer back.
        let feed_ns = if self.adapter.waiting || !is_watched { soon(limits::SPACE_POLL_NS) } else { None };
        let due_ns = self.next_deadline().map(|at| at.0);
        Armed::Sleep { deadline_ns: [space_ns, feed_ns, due_ns].into_iter().flatten().min() }
    }

    fn activity(&self) -> Activity {
        if self.carrier.has_pending() {
            Activity::Active
        } else if self.adapter.live == 0 && !self.proto.wants_transmit() {
            Activity::Idle
        } else if self.proto.sends_in_progress() == 0 {
            Activity::Delivered
        } else {
            Activity::Active
        }
    }

    fn link_state(&self, link: u64) -> Option<LinkState> {
        let key = link::unpack(link);
        let info = self.proto.connection(key)?;
        Some(LinkState {
            held: self.proto.sends_held_by(key),
            drains_by_itself: false,
            send_timeout_ns: info.send_timeout_ns,
            keepalive_ns: info.keepalive_ns,
        })
    }

    fn unreported(&self, link: u64) -> Option<u32> {
        let key = link::unpack(link);
        self.proto.connection(key).map(|_| self.proto.sends_in_progress_on(key))
    }

    fn configure(&mut self, _: &mut Core, setting: Setting) {
        match setting {
            // The engine has checked the connection. If it has ended since, it has no time-outs.
            Setting::SendTimeout { link, timeout_ns } => {
                let _ = self.proto.set_send_timeout(link::unpack(link), timeout_ns);
            }
            Setting::Keepalive { link, timeout_ns } => {
                let now = self.read_clock();
                let _ = self.proto.set_keepalive(now, link::unpack(link), timeout_ns);
            }
            Setting::Defaults { send_timeout_ns, keepalive_ns } => {
                self.proto.set_default_send_timeout(send_timeout_ns);
                self.proto.set_default_keepalive(keepalive_ns);
            }
            Setting::Lent { bytes } => self.proto.lend(bytes),
            Setting::SetApart { .. } | Setting::Loans { .. } => {}
        }
    }

    fn report(&self, _: &Core, report: Report<'_>) {
        match report {
            Report::Counters { into, drops } => {
                report::counters(&self.proto, &self.carrier, &self.adapter, into, drops);
            }
            Report::Memory(into) => {
                report::memory(&self.proto, &self.carrier, &self.adapter, &self.rest, into)
            }
            Report::SpareBytes(into) => *into += self.proto.spare_bytes(limits::KEPT_SHARE),
            Report::SendsHeld(into) => *into += self.proto.sends_in_progress(),
            Report::Connection { link, into } => {
                *into = report::connection_counters(&self.proto, link::unpack(link));
            }
            Report::Explanation { link, into } => {
                report::explain(&self.proto, &self.carrier, link::unpack(link), into);
            }
            Report::Peer { link, into } => {
                let key = link::unpack(link);
                into.refuses = self.proto.is_refused(key);
                into.has_answered = self.proto.connection(key).is_some_and(|info| info.heard);
            }
        }
    }
}
