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
mod link;
mod listen;
mod name;
mod out;
mod pending;
mod poll;
mod proof;
mod quota;
mod receive;
mod report;
mod rma;
mod send;
mod sleep;
mod timeout;
mod transfers;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use self::admission::Admission;
pub(crate) use self::proof::Proof;

use self::common::Common;
use self::connections::{Connections, Counts, State, from_us, to_us};
use self::hand::{Peer, Side, Stage};
use self::link::{Life, Link};
use self::out::Out;
use self::quota::{Requests, RingMemory};
use self::rma::grant::Grant;
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
use crate::limits;
use crate::options::Options;
use cci_memory::ring::{payload_bytes_limit, region_bytes};
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

const _: () = {
    assert!(payload_bytes_limit(RING_BYTES_MIN as usize) >= MESSAGE_BYTES_MAX as usize);
    assert!(RING_BYTES_MIN.is_power_of_two() && RING_BYTES_MAX.is_power_of_two());
};

/// What a ring costs: its pages.
const fn ring_charge(ring_bytes: u32) -> u64 {
    region_bytes(ring_bytes as usize).next_multiple_of(4096) as u64
}

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
    links: Slab<Box<Link>>,
    links_by_id: HashMap<(u64, Side), Key>,
    links_by_peer: HashMap<Peer, Key>,
    /// New links offered and not confirmed.
    offers: HashMap<Peer, Key>,
    /// Links that are polled directly.
    hot: Vec<Key>,
    /// Links that have something under way.
    busy: Vec<Key>,
    common: Common,
    /// Our part of the memory cap.
    own_bytes_max: u64,
    /// Of the memory cap, what other transports of the endpoint have.
    set_apart_bytes: u64,
    ring_memory_bytes: u64,
    /// None while its contents are worked on.
    events: Option<Events>,
    /// One more than the highest place a link ever had.
    link_places: u32,
    /// Since the last look at the less urgent, and after how many the next one comes.
    polls: u32,
    polls_per_care: u32,
    /// Next to be looked after among the busy and the cold.
    next_busy: usize,
    next_cold: u32,
    kernel_polled_ns: u64,
    hands_looked_ns: u64,
    /// The owner has slept, or may have: ask the kernel at the next poll.
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
        keepalive: Vec::new(),
        next_keepalive_ns: 0,
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
        links: Slab::new(limits::CONNECTIONS_MAX),
        links_by_id: HashMap::new(),
        links_by_peer: HashMap::new(),
        offers: HashMap::new(),
        hot: Vec::with_capacity(poll::HOT_MAX),
        busy: Vec::with_capacity(64),
        common: Common { endpoint: random::u64()?, connections, transfers, hands: Slab::new(HANDS_MAX) },
        own_bytes_max,
        set_apart_bytes: options.memory_bytes_max.saturating_sub(own_bytes_max),
        ring_memory_bytes: 0,
        events: Some(Events::with_capacity(KERNEL_EVENTS)),
        link_places: 0,
        polls: 0,
        polls_per_care: 8,
        next_busy: 0,
        next_cold: 0,
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
        let of_links = self.links.iter().map(|(_, link)| (link.peer.process(), link.ring_bytes));
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
        let Link { transfers, out, .. } = &mut **link;
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
            self.kill(core, at);
            return Ok(());
        }
        self.care_for(at);
        self.make_hot(at);
        Ok(())
    }

    /// Pushes and fetches what a link has to. Called in every poll while it has.
    fn turn_transfers(&mut self, core: &mut Core, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        let turned = self.common.transfers.turn(link, &mut self.common.connections, core);
        link.out.flush();
        if turned.is_err() {
            return self.kill(core, key);
        }
        self.care_for(key);
    }

    /// Maintains the flows of a link; `now`: the endpoint is about to sleep.
    fn maintain_transfers(&mut self, core: &mut Core, key: Key, now: bool) {
        let Some(link) = self.links.get_mut(key) else { return };
        if self.common.transfers.maintain(link, &mut self.common.connections, core, now).is_err() {
            self.kill(core, key);
        }
    }

    /// A grant came over a link's socket. False: no honest peer sends this.
    fn grant_came(&mut self, core: &Core, key: Key, bytes: &[u8], fds: ReceivedFds) -> bool {
        let Some(grant) = Grant::parse(bytes) else { return false };
        let of =
            |link: &Link| link.transfers.initiator.as_ref().map(|it| (it.awaits(&grant), it.mapped_bytes()));
        let Some((is_awaited, own_bytes)) = self.links.get(key).and_then(|link| of(link)) else {
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
            is_alone: self.links.len() == 1,
        };
        let room_bytes = held.room_bytes(own_bytes);
        let Some(link) = self.links.get_mut(key) else { return false };
        let uid = link.peer.uid;
        let initiator = link.transfers.initiator.as_mut();
        initiator.is_some_and(|initiator| initiator.granted(grant, fds, uid, room_bytes))
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
            self.disconnect_conn(core, connection, Key::from_bits(link));
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
        self.send_message(core, Key::from_bits(link), segments, op)
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
        for key in self.common.transfers.target.removed(&mut self.links, id) {
            let Some(link) = self.links.get_mut(key) else { continue };
            link.out.flush();
            if link.out.control.len() > transfers::CONTROL_LEN_MAX {
                self.kill(core, key);
            } else {
                self.care_for(key);
            }
        }
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        self.poll(core);
    }

    fn arm(&mut self, core: &mut Core) -> Armed {
        self.prepare_sleep(core)
    }

    fn activity(&self) -> Activity {
        if self.links.is_empty() && self.common.connections.conns.is_empty() && self.common.hands.is_empty() {
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
                self.change_send_timeout(Key::from_bits(link), timeout_ns);
            }
            Setting::Keepalive { link, timeout_ns } => {
                self.change_keepalive(Key::from_bits(link), timeout_ns)
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
            self.common.transfers.target.end(&mut self.links);
        }
    }
}
