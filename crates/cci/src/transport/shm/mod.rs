//! Shared memory between processes of one host.
//!
//! An endpoint listens on a UNIX socket ([`name`]). Two endpoints share a *link* ([`link`]): two rings in sealed
//! memfds, handed over that socket, two doorbells, and the socket itself as the lifeline whose hang-up tells at once
//! that the peer is gone. Connections ride on links and hold nothing but a place in a table ([`table`]). How they
//! come about is in [`handshake`], [`dial`] and [`listen`], which remember a [`hand`] for each; how they end in
//! [`close`].
//!
//! A send copies the message into the ring and completes when the peer's library has taken it out, which it says
//! with every record of its own, or in a word of the ring ([`send`], [`pending`]). The receiver copies it once, into a
//! receive buffer; without one it stalls that ring and leaves the others alone ([`receive`]).
//!
//! A poll looks at the links that were active lately, at one of the others, and at the kernel now and then
//! ([`poll`]): its cost does not grow with the number of links. Before sleeping it asks every peer to ring
//! ([`sleep`]). `docs/adr/0003-shared-memory-links.md` has the reasons. Remote memory
//! access is in [`rma`].

mod admission;
#[cfg(any(test, fuzzing))]
mod by_hand;
mod close;
mod common;
mod connections;
mod dial;
mod doorbell;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod hand;
mod handshake;
mod keepalive;
mod link;
mod links;
mod listen;
mod name;
mod out;
mod overdue;
mod pending;
mod proof;
mod quota;
mod receive;
mod report;
mod rma;
mod transfers;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use self::admission::Admission;
pub(crate) use self::proof::Proof;

use self::common::Common;
use self::connections::{Connections, Counts, State, from_us, to_us};
use self::hand::{Hand, Peer, Stage};
use self::handshake::ERRNO_DESCRIPTORS;
use self::keepalive::Keepalive;
use self::link::{Life, Link};
use self::links::{Links, ring_charge};
use self::out::Out;
use self::quota::{Requests, RingMemory};
use self::rma::grant::{GRANT_BYTES, Grant};
use self::rma::initiator::Initiator;
use self::rma::mapped::Held;
use self::transfers::{NewOperation, Transfers};
use super::ordered_rma::What;
use super::{
    About, Action, Activity, Armed, AtomicRequest, Dial, LinkState, Operation, RegionChange, Report,
    RmaRequest, Setting, Started, Transport, token,
};
use crate::connection::{Connection, Status};
use crate::device::DeviceInfo;
use crate::engine::core::{Core, SendOp};
use crate::engine::origin::{Fate, RequestBody};
use crate::engine::poller::Poller;
use crate::error::{AcceptError, ConnectError, CreateError, SendError};
use crate::options::Options;
use crate::{ConnectFailure, limits};
use cci_memory::ring::payload_bytes_limit;
use cci_memory::slab::{Key, Slab};
use cci_sys::event::Events;
use cci_sys::process::fork;
use cci_sys::unix::{Listener, ReceivedFds};
use cci_sys::{clock, random};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Longest message.
pub(crate) const MESSAGE_BYTES_MAX: u32 = limits::MESSAGE_BYTES_MAX;

/// Data of a ring while the endpoint has plenty of memory left: a window of 32 of the longest messages.
const RING_BYTES_MAX: u32 = 256 << 10;
/// The smallest ring: an endpoint near its cap makes these, then none.
const RING_BYTES_MIN: u32 = 32 << 10;
/// A ring takes at most this part of what is left under the cap.
const RING_SHARE: u64 = 16;
/// The largest ring that we map for a peer, which is the largest that we make. It is not charged here: its pages are there, and
/// the peer's. A peer that takes them out again makes us pay for this much at most, beside a ring of our own.
const RING_BYTES_PEER_MAX: u32 = RING_BYTES_MAX;
/// How long a client may be silent after it connected.
const SILENCE_NS_MAX: u64 = 1_000_000_000;
/// And how long at least, however many others knock.
const SILENCE_NS_MIN: u64 = 200_000_000;
/// How long an accepted client may take to confirm.
/// Its death is known at once; this is for one that hangs, or polls seldom.
const HANDSHAKE_NS_MAX: u64 = if cfg!(test) { 2_000_000_000 } else { 30_000_000_000 };
/// Clients that have connected and said nothing yet; more wait in the kernel's queue.
const HANDS_SILENT_MAX: u32 = 256;
/// Connections being made at once.
const HANDS_MAX: u32 = 64 << 10;
/// What the kernel reports at once.
const KERNEL_EVENTS: usize = 32;
/// How often a server whose queue is full is tried.
const RETRY_NS: u64 = 1_000_000;
/// How long not to listen when no more clients can be let in.
const LISTEN_AGAIN_NS: u64 = 5_000_000;

/// Polls between maintenances, at most: whoever waits for a message waits for these, too. A program that polls seldom has
/// them more often.
const POLLS_PER_MAINTENANCE_MAX: u32 = 64;
/// When so much time has passed between two maintenances, the next one comes sooner; see [`KERNEL_POLL_NS`].
const MAINTENANCE_NS_MAX: u64 = 10_000;
/// Between questions to the kernel, while polling: a system call in each poll would be the latency.
const KERNEL_POLL_NS: u64 = 20_000;
/// Between questions to the kernel right after the program may have slept on the descriptor.
const KERNEL_DUE_NS: u64 = 2_000;
/// Grants taken from one peer at once.
const GRANTS_PER_POLL_MAX: u32 = 16;
/// Rounds of events taken from the kernel at once.
const KERNEL_ROUNDS_MAX: u32 = 4;
/// How often a sleeper whose receive buffers are all out looks for one: another thread may drop it.
const STALL_POLL_NS: u64 = 1_000_000;

const _: () = {
    assert!(payload_bytes_limit(RING_BYTES_MIN as usize) >= MESSAGE_BYTES_MAX as usize);
    assert!(RING_BYTES_MIN.is_power_of_two() && RING_BYTES_MAX.is_power_of_two());
};

/// One endpoint's transport. On lines of its own, as endpoints of several threads are often made by one.
#[repr(align(128))]
pub(super) struct Shm {
    uri: String,
    admission: Admission,
    /// What is shown to those who want to know who listens here; None: nobody does.
    proof: Option<Proof>,
    /// None: it only dials.
    listener: Option<Listener>,
    /// We do not listen until then: there are too many clients, or no descriptors.
    listen_again_ns: Option<u64>,
    /// Clients let in that have said nothing yet.
    silent: u32,
    /// Requests that the program holds.
    shown: Requests,
    links: Links,
    /// New links offered and not confirmed.
    offers: HashMap<Peer, Key>,
    common: Common,
    /// Our part of the memory cap.
    own_bytes_max: u64,
    /// Of the memory cap, what other transports of the endpoint have.
    set_apart_bytes: u64,
    /// None while its contents are worked on.
    events: Option<Events>,
    /// Polls since the last maintenance, and after how many the next one comes.
    polls: u32,
    polls_per_maintenance: u32,
    kernel_polled_ns: u64,
    hands_looked_ns: u64,
    /// The program has slept on the descriptor, or may have: the kernel is asked at the next poll.
    kernel_due: bool,
    made_by: fork::Token,
}

/// Opens an endpoint's shared-memory transport, which may have this part of the memory cap. `admission`: whose processes it
/// connects with. `proof`: for clients that know its commitment.
pub(crate) fn open(
    device: &DeviceInfo,
    options: &Options,
    own_bytes_max: u64,
    poller: &Arc<Poller>,
    admission: Admission,
    proof: Option<Proof>,
) -> Result<Box<dyn Transport>, CreateError> {
    let place = name::listen_place(device, options.service.as_deref())?;
    let listener = device.serves.then(|| Listener::bind(&place.name)).transpose();
    let listener = listener.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => CreateError::InUse { service: place.uri.clone() },
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
            name::no_folder(device, &place, &error)
        }
        _ => CreateError::System(error),
    })?;
    let no_memory = CreateError::NoMemory {
        needed_bytes: u64::from(options.send_buffers) * size_of::<pending::Send>() as u64,
        cap_bytes: options.memory_bytes_max,
    };
    let sends = pending::Sends::new(options.send_buffers).ok_or(no_memory)?;
    if let Some(listener) = &listener {
        poller.watch(listener.as_fd(), token::make(token::LISTENER, token::NOWHERE))?;
    }
    let (send_timeout, keepalive) =
        (options.send_timeout.as_nanos(), options.keepalive.unwrap_or_default().as_nanos());
    let connections = Connections {
        conns: Slab::new(limits::CONNECTIONS_MAX),
        sends,
        counts: Counts::default(),
        closing: Vec::new(),
        now_ns: clock::now_ns(),
        mss: device.max_send_size.min(MESSAGE_BYTES_MAX),
        send_timeout_us: to_us(u64::try_from(send_timeout).unwrap_or(u64::MAX)),
        keepalive_us: to_us(u64::try_from(keepalive).unwrap_or(u64::MAX)),
    };
    let transfers = Transfers::new(options.rma_operations, own_bytes_max, device.shm.direct, device.shm.cma);
    Ok(Box::new(Shm {
        uri: place.uri,
        admission,
        proof,
        listener,
        listen_again_ns: None,
        silent: 0,
        shown: Requests::default(),
        links: Links::new(),
        offers: HashMap::new(),
        common: Common {
            endpoint: random::u64()?,
            connections,
            keepalive: Keepalive::new(),
            transfers,
            hands: Slab::new(HANDS_MAX),
        },
        own_bytes_max,
        set_apart_bytes: options.memory_bytes_max.saturating_sub(own_bytes_max),
        events: Some(Events::with_capacity(KERNEL_EVENTS)),
        polls: 0,
        polls_per_maintenance: 8,
        kernel_polled_ns: 0,
        hands_looked_ns: 0,
        kernel_due: true,
        made_by: fork::token(),
    }))
}

impl Shm {
    /// Everything that the endpoint holds, what other parts of its transport may, and what flows may.
    fn held_bytes(&self, core: &Core) -> u64 {
        let mut kinds = core.memory().to_vec();
        self.count_memory(&mut kinds);
        let held_bytes: u64 = kinds.iter().map(|(_, bytes)| bytes).sum();
        held_bytes + self.set_apart_bytes + self.common.transfers.unused_bytes()
    }

    /// How large a ring we can afford to read, for a link to this process. None: no ring at all.
    fn affordable_ring_bytes(&self, core: &Core, process: u64) -> Option<u32> {
        let left = core.options.memory_bytes_max.saturating_sub(self.held_bytes(core));
        let of_links = self.links.all().iter().map(|(_, link)| (link.peer.process(), link.ring_bytes));
        let of_offers = self.common.hands.iter().filter_map(|(_, hand)| match &hand.stage {
            Stage::Offered { guest, half } => Some((guest.peer.process(), half.ring_bytes)),
            _ => None,
        });
        let own = of_links.chain(of_offers).filter(|(owner, _)| *owner == process);
        let memory =
            RingMemory { left, of_process: own.map(|(_, ring_bytes)| ring_charge(ring_bytes)).sum() };
        let is_affordable = |ring_bytes| {
            ring_charge(ring_bytes) <= left / RING_SHARE && memory.has_room_for(ring_charge(ring_bytes))
        };
        let mut ring_bytes = RING_BYTES_MAX;
        while ring_bytes > RING_BYTES_MIN && !is_affordable(ring_bytes) {
            ring_bytes /= 2;
        }
        memory.has_room_for(ring_charge(ring_bytes)).then_some(ring_bytes)
    }

    /// Does an operation by plain copies, if everything of it is mapped.
    #[inline]
    fn copy_at_once(&mut self, core: &mut Core, key: Key, request: &RmaRequest<'_>) -> Option<Status> {
        // The message needs the ring.
        let (first, more) = request.pieces.split_first().filter(|_| request.message.is_none())?;
        let (initiator, out) = self.initiator_at_once(core, key, request.fence)?;
        initiator.copy(core, out, key, request.kind, first, more)
    }

    /// Does an atomic operation by the processor's, if its target is mapped.
    #[inline]
    fn change_at_once(&mut self, core: &mut Core, key: Key, request: &AtomicRequest) -> Option<Status> {
        let AtomicRequest { atomic, target, result, fence } = *request;
        let (initiator, out) = self.initiator_at_once(core, key, fence)?;
        initiator.atomic(core, out, key, atomic, target, result)
    }

    /// What is mapped of a connection's peer; None: nothing, or a fence has to wait first.
    #[inline]
    fn initiator_at_once(
        &mut self,
        core: &mut Core,
        key: Key,
        fence: bool,
    ) -> Option<(&mut Initiator, &mut Out)> {
        if !self.is_ours() {
            return None;
        }
        let connections = &mut self.common.connections;
        let conn = connections.conns.get(key).filter(|conn| conn.state == State::Open)?;
        let (at, flow_key, in_progress) = (conn.at, conn.flow, conn.in_progress);
        // What there is of a peer that is gone is nobody's memory.
        let link = self.links.get_mut(at).filter(|link| link.life == Life::Up)?;
        link.transfers.initiator.as_ref()?;
        if fence {
            if self.common.transfers.operations(flow_key) > 0 {
                return None;
            }
            if in_progress > 0 {
                // If the peer's position makes no sense, the next poll finds that, too.
                link.complete_taken(connections, core).ok()?;
                if connections.conns.get(key).is_none_or(|conn| conn.in_progress > 0) {
                    return None;
                }
            }
        }
        let Link { transfers, out, .. } = link;
        Some((transfers.initiator.as_mut()?, out))
    }

    /// Enters a read or write, and does of it what can be done now.
    fn start_rma(
        &mut self,
        core: &mut Core,
        key: Key,
        request: &RmaRequest<'_>,
        name: u64,
    ) -> Result<(), SendError> {
        let RmaRequest { kind, pieces: segments, message, fence } = *request;
        self.start_operation(
            core,
            key,
            &NewOperation { name, what: What::Move(kind), segments, message, fence },
        )
    }

    /// Enters an atomic operation, and does of it what can be done now.
    fn start_atomic(
        &mut self,
        core: &mut Core,
        key: Key,
        request: &AtomicRequest,
        name: u64,
    ) -> Result<(), SendError> {
        let AtomicRequest { atomic, target, result, fence } = *request;
        let what = What::Atomic { atomic, target, result };
        self.start_operation(core, key, &NewOperation { name, what, segments: &[], message: None, fence })
    }

    fn start_operation(
        &mut self,
        core: &mut Core,
        key: Key,
        operation: &NewOperation<'_>,
    ) -> Result<(), SendError> {
        if !self.is_ours() {
            return Err(SendError::Disconnected);
        }
        let Common { connections, transfers, .. } = &mut self.common;
        let Some(conn) = connections.conns.get(key) else { return Err(SendError::UnknownConnection) };
        if conn.state != State::Open {
            return Err(SendError::Disconnected);
        }
        let at = conn.at;
        let Some(link) = self.links.get_mut(at) else { return Err(SendError::Disconnected) };
        if transfers.start(link, connections, core, key, operation)?.is_err() {
            self.links.kill(&mut self.common, core, at);
            return Ok(());
        }
        self.links.schedule(at);
        self.links.make_active(at, self.common.connections.now_ns);
        Ok(())
    }

    /// A grant came over a link's socket. False: no honest peer sends this.
    fn grant_came(&mut self, core: &Core, key: Key, bytes: &[u8], fds: ReceivedFds) -> bool {
        let Some(grant) = Grant::parse(bytes) else { return false };
        let of =
            |link: &Link| link.transfers.initiator.as_ref().map(|it| (it.awaits(&grant), it.mapped_bytes()));
        let Some((is_awaited, own_bytes)) = self.links.get(key).and_then(of) else {
            return false;
        };
        if !is_awaited {
            // It was forgotten, or asked for twice.
            return true;
        }
        let held = Held {
            cap_bytes: core.options.memory_bytes_max,
            total_bytes: self.held_bytes(core),
            mapped_bytes: self.common.transfers.paths.mapped.total(),
            is_alone: self.links.all().len() == 1,
        };
        let room_bytes = held.room_bytes(own_bytes);
        let Some(link) = self.links.get_mut(key) else { return false };
        let uid = link.peer.uid;
        let initiator = link.transfers.initiator.as_mut();
        initiator.is_some_and(|initiator| initiator.granted(grant, fds, uid, room_bytes))
    }

    /// The less urgent: the clock, the kernel, busy links, one that is idle, deadlines.
    #[cold]
    fn maintain(&mut self, core: &mut Core) {
        let now_ns = clock::now_ns();
        self.polls = 0;
        self.polls_per_maintenance = match now_ns.saturating_sub(self.common.connections.now_ns) {
            MAINTENANCE_NS_MAX.. => (self.polls_per_maintenance / 2).max(1),
            _ => (self.polls_per_maintenance + 1).min(POLLS_PER_MAINTENANCE_MAX),
        };
        self.common.connections.now_ns = now_ns;
        let since_ns = now_ns.saturating_sub(self.kernel_polled_ns);
        if since_ns >= KERNEL_POLL_NS || self.kernel_due && since_ns >= KERNEL_DUE_NS {
            self.kernel_due = false;
            self.ask_kernel(core);
        }
        self.links.maintain(&mut self.common, core);
        if self.listen_again_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.listen_again(core);
        }
        if !self.common.hands.is_empty() && now_ns >= self.hands_looked_ns + RETRY_NS {
            self.hands_looked_ns = now_ns;
            self.time_out_hands(core);
        }
        if now_ns >= self.common.connections.closing_deadline_ns() {
            self.links.give_up_closing(&mut self.common, core);
        }
        self.links.keep_alive(&mut self.common, core);
    }

    /// Takes what the kernel has to report.
    fn ask_kernel(&mut self, core: &mut Core) {
        self.kernel_polled_ns = self.common.connections.now_ns;
        self.common.connections.counts.kernel_polls += 1;
        let Some(mut events) = self.events.take() else { return };
        for _ in 0..KERNEL_ROUNDS_MAX {
            core.poller.ready(&mut events);
            for event in events.iter() {
                self.kernel_reports(core, event.token);
            }
            if events.len() < KERNEL_EVENTS {
                break;
            }
        }
        self.events = Some(events);
    }

    fn kernel_reports(&mut self, core: &mut Core, what: u64) {
        match token::kind(what) {
            token::LISTENER => self.let_in(core),
            token::HAND => {
                let key = self.common.hands.key_at(token::index(what));
                if let Some(key) = key.filter(|key| token::names(what, *key)) {
                    self.hand_ready(core, key);
                }
            }
            token::LIFELINE => {
                if let Some(key) = self.links.named_by(what) {
                    self.lifeline_ready(core, key);
                }
            }
            token::BELL => {
                if let Some(key) = self.links.named_by(what) {
                    self.links.bell_rang(&mut self.common, core, key);
                }
            }
            // The engine's own.
            _ => {}
        }
    }

    /// The lifeline carries grants of memory, rings of the bell, and its end.
    fn lifeline_ready(&mut self, core: &mut Core, key: Key) {
        // Level-triggered: more than so many wait for the next time.
        for _ in 0..GRANTS_PER_POLL_MAX {
            let Some(link) = self.links.get(key) else { return };
            let mut buffer = [0; GRANT_BYTES];
            match link.lifeline.recv(&mut buffer, 2) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // This process has no descriptor free for a grant: what was asked for goes through the ring.
                Err(error) if error.raw_os_error() == Some(ERRNO_DESCRIPTORS) => {
                    self.common.connections.counts.system_errors += 1;
                    continue;
                }
                Ok(got) if got.len == 0 => return self.links.peer_hung_up(&mut self.common, core, key),
                Ok(got) => {
                    let bytes = buffer.get(..got.len).unwrap_or_default();
                    if bytes == doorbell::RING && got.fds.is_empty() {
                        self.links.was_rung(&mut self.common, core, key);
                        continue;
                    }
                    if self.grant_came(core, key, bytes, got.fds) {
                        continue;
                    }
                }
                Err(_) => {}
            }
            self.common.connections.counts.bad_handshake += 1;
            return self.links.kill(&mut self.common, core, key);
        }
    }

    /// Raises the attention words of all links and says how long one may sleep.
    fn prepare_sleep(&mut self, core: &mut Core) -> Armed {
        if !self.is_ours() {
            return Armed::Sleep { deadline_ns: None };
        }
        self.common.connections.now_ns = clock::now_ns();
        self.kernel_due = true;
        // Events that were queued before do not keep a sleeper awake who waits for something else.
        let events_before = core.events_queued();
        if self.links.arm(&mut self.common, core) || core.events_queued() > events_before {
            return Armed::Pending;
        }
        Armed::Sleep { deadline_ns: self.next_deadline_ns() }
    }

    /// When something is due at the latest.
    fn next_deadline_ns(&self) -> Option<u64> {
        let stalled_ns = self.common.connections.now_ns + STALL_POLL_NS;
        let mut next_ns = self.listen_again_ns.unwrap_or(u64::MAX);
        next_ns = next_ns.min(self.links.deadline_ns(stalled_ns));
        for (_, Hand { deadline_ns, stage, .. }) in self.common.hands.iter() {
            next_ns = next_ns.min(*deadline_ns);
            if let Stage::Knocking { knock, .. } = stage {
                next_ns = next_ns.min(knock.again_ns);
            }
        }
        next_ns = next_ns.min(self.common.connections.closing_deadline_ns());
        next_ns = next_ns.min(self.common.keepalive.deadline_ns());
        (next_ns != u64::MAX).then_some(next_ns)
    }

    fn close(&mut self, core: &mut Core, connection: Connection, key: Key) {
        let connections = &mut self.common.connections;
        let Some(conn) = connections.conns.get(key) else { return core.closed(connection) };
        match conn.state {
            State::Closing => {}
            State::Gone => {
                connections.conns.remove(key);
                core.closed(connection);
            }
            State::Making => {
                let hand = conn.at;
                self.end_hand(core, hand, ConnectFailure::Disconnected);
                // `failed` has taken it out of the engine's table without an event, as it is closing there.
                core.closed(connection);
            }
            State::Open | State::Broken => self.links.disconnect(&mut self.common, core, key),
        }
    }

    /// In a fork child nothing is mapped: touching a ring would be the end of it.
    fn is_ours(&self) -> bool {
        fork::same_process(self.made_by)
    }
}

impl Transport for Shm {
    fn about(&self) -> About<'_> {
        About { uri: &self.uri, offers_multicast: false }
    }

    fn connect(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: Dial<'_>,
    ) -> Result<u64, ConnectError> {
        self.dial(core, connection, &to).map(Key::to_bits)
    }

    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError> {
        self.accept_request(core, connection, request).map(Key::to_bits)
    }

    fn decided(&mut self, _: &mut Core, decision: Fate) {
        match decision {
            Fate::Refused { ticket, inner, .. } => self.refuse(ticket, inner),
            Fate::Taken { ticket, .. } => self.shown.leave(ticket),
        }
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64) {
        if self.is_ours() {
            self.close(core, connection, Key::from_bits(link));
        } else {
            core.closed(connection);
        }
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
        if !self.is_ours() {
            return Err(SendError::Disconnected);
        }
        self.links.send(&mut self.common, core, Key::from_bits(link), segments, op)
    }

    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        operation: &Operation<'_>,
    ) -> Result<Started, SendError> {
        let (key, op) = (Key::from_bits(link), operation.op);
        let done = match &operation.action {
            Action::Transfer(request) => self.copy_at_once(core, key, request),
            Action::Atomic(request) => self.change_at_once(core, key, request),
        };
        let sends = || self.common.connections.conns.get(key).map_or(0, |conn| conn.not_silent);
        if let Some(status) = done {
            return Ok(Started::Done { status, sends: if op.is_ordered { sends() } else { 0 } });
        }
        let id = core.begin_operation(connection, op, sends)?;
        let started = match &operation.action {
            Action::Transfer(request) => self.start_rma(core, key, request, id),
            Action::Atomic(request) => self.start_atomic(core, key, request, id),
        };
        match started {
            Ok(()) => Ok(Started::Pending),
            Err(error) => {
                core.withdraw_operation(id);
                Err(error)
            }
        }
    }

    fn region(&mut self, core: &mut Core, change: &RegionChange<'_>) {
        let RegionChange::Removed { id, .. } = *change;
        if !self.is_ours() {
            return;
        }
        self.links.region_removed(&mut self.common, core, id);
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        if !self.is_ours() {
            return;
        }
        self.polls += 1;
        self.links.poll(&mut self.common, core);
        if self.polls >= self.polls_per_maintenance || self.kernel_due {
            self.maintain(core);
        }
    }

    fn arm(&mut self, core: &mut Core) -> Armed {
        self.prepare_sleep(core)
    }

    fn activity(&self) -> Activity {
        if self.links.all().is_empty()
            && self.common.connections.conns.is_empty()
            && self.common.hands.is_empty()
        {
            Activity::Idle
        } else if !self.is_ours() || self.common.transfers.flows.ops.len() == 0 {
            // What is in a ring reaches the peer whether we live or not: it has the memory mapped and drains it when it
            // sees us hang up. A CLOSE that found no room says no more than the hang-up. Remote memory operations need us.
            Activity::Drained
        } else {
            Activity::Active
        }
    }

    fn link_state(&self, link: u64) -> Option<LinkState> {
        let conn = self.common.connections.conns.get(Key::from_bits(link))?;
        Some(LinkState {
            to_be_told: conn.not_silent,
            held: conn.in_progress,
            drains_by_itself: true,
            send_timeout_ns: conn.send_timeout_ns(),
            keepalive_ns: from_us(conn.keepalive_us),
        })
    }

    fn configure(&mut self, _: &mut Core, setting: Setting) {
        match setting {
            Setting::SendTimeout { link, timeout_ns } => {
                self.links.set_send_timeout(&mut self.common, Key::from_bits(link), timeout_ns);
            }
            Setting::Keepalive { link, timeout_ns } => {
                self.links.set_keepalive(&mut self.common, Key::from_bits(link), timeout_ns)
            }
            Setting::Defaults { send_timeout_ns, keepalive_ns } => {
                self.common.connections.send_timeout_us = to_us(send_timeout_ns);
                self.common.connections.keepalive_us = to_us(keepalive_ns);
            }
            // What the engine holds leaves so much less for rings: see `held_bytes`.
            Setting::Lent { .. } => {}
            Setting::SetApart { bytes } => self.set_apart_bytes = bytes,
        }
    }

    fn report(&self, core: &Core, report: Report<'_>) {
        match report {
            Report::Counters { into, drops } => self.count(into, drops),
            Report::Memory(into) => self.count_memory(into),
            Report::SpareBytes(into) => {
                let kept_bytes =
                    self.held_bytes(core).saturating_add(self.own_bytes_max / limits::KEPT_SHARE);
                *into += core.options.memory_bytes_max.saturating_sub(kept_bytes);
            }
            Report::SendsHeld(into) => *into += self.common.connections.sends.in_use(),
            Report::Connection { link, into } => *into = self.count_connection(Key::from_bits(link)),
            Report::Explanation { link, into } => self.explain_connection(Key::from_bits(link), into),
            Report::Peer { link, into } => {
                let link = self.link_of(Key::from_bits(link));
                into.refuses = link.is_some_and(|link| link.out.producer.is_stalled());
            }
        }
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // What was granted ends with the endpoint; the memory may live on.
        if self.is_ours() {
            self.common.transfers.target.end(self.links.all_mut());
        }
    }
}
