//! Shared memory between processes of one host.
//!
//! An endpoint listens on a UNIX socket ([`name`], [`listening`]). Two endpoints share a *link* ([`link`]). It has two rings in
//! sealed memfds, which are passed over that socket, two doorbells, and the socket itself as the lifeline: its hang-up shows at
//! once that the peer is gone. Connections use links ([`connections`]). They begin with a [`handshake`], which [`connecting`]
//! passes to this endpoint's side, [`client`] or [`server`]. [`close`] ends them.
//!
//! [`Shm`] has the [`links`], and what is [`common`] to them, which any link may use while it is polled: [`connections`],
//! [`handshakes`] in progress, and [`transfers`] for remote memory access.
//!
//! A send copies the message into the ring ([`send`]). It completes when the peer's library has taken the message out. The peer
//! reports that with each of its own records, or in a word of the ring ([`out`], [`pending`]). The receiver copies the message
//! once, into a receive buffer. Without a buffer it stalls that ring and no other ([`receive`]).
//!
//! A poll checks the links that were active recently, one of the others ([`schedule`], [`turn`]), and from time to time the
//! kernel ([`pace`]). So its cost does not grow with the number of links. Before an endpoint sleeps, it asks every peer to ring.
//! `docs/adr/0003-shared-memory-links.md` has the reasons.

mod admission;
mod alone;
mod borrowing;
mod budget;
mod client;
mod close;
mod common;
mod connecting;
mod connections;
mod doorbell;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod handshake;
mod handshakes;
mod keepalive;
mod lend;
mod lending;
mod link;
mod links;
mod listening;
mod loans;
mod name;
mod offer;
mod open;
mod out;
mod overdue;
mod pace;
mod peer;
mod pending;
mod proof;
mod quota;
mod receive;
mod report;
mod rma;
mod schedule;
#[cfg(any(test, fuzzing))]
mod scripted;
mod send;
mod server;
mod short;
mod step;
mod table;
mod transfers;
mod turn;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use self::admission::Admission;
pub(crate) use self::open::open;
pub(crate) use self::proof::Proof;

use self::borrowing::{Borrowing, NotBorrowed};
use self::budget::Budget;
use self::common::Common;
use self::connecting::Connecting;
use self::connections::{Conn, Established, Phase, State, from_us, to_us};
use self::link::{Life, Link};
use self::links::Links;
use self::loans::Asked;
use self::offer::Offer;
use self::pace::Pace;
use self::rma::grant::{GRANT_BYTES, Grant};
use self::rma::mapped::Held;
use self::rma::mappings::Keep;
use self::send::Burst;
use self::step::Step;
use self::transfers::NewOperation;
use super::{
    About, Action, Activity, Armed, AtomicRequest, Dial, LinkState, Operation, RegionChange, Report,
    RmaRequest, Setting, Started, Taken, Transport, token,
};
use crate::connection::{Connection, Status};
use crate::engine::core::{Core, SendOp};
use crate::engine::event::Event;
use crate::engine::lent::{Lender, ShortMessage};
use crate::engine::mapped_pairs::MappedRegion;
use crate::engine::requests::{Decision, RequestBody};
use crate::error::{AcceptError, ConnectError, SendError};
use crate::{ConnectFailure, limits};
use cci_memory::ring::{Line, payload_bytes_limit};
use cci_memory::slab::Key;
use cci_sys::clock;
use cci_sys::event::Events;
use cci_sys::process::fork;
use cci_sys::shared_memory::LendingSlot;
use cci_sys::unix::ReceivedFds;
use std::io;

/// Longest message.
pub(crate) const MESSAGE_BYTES_MAX: u32 = limits::MESSAGE_BYTES_MAX;

/// The data bytes of a ring while the endpoint has plenty of memory left: a window of 64 of the longest messages. What this costs and
/// brings is in ADR 59.
const RING_BYTES_MAX: u32 = 512 << 10;
/// The smallest ring. An endpoint near its cap makes such rings, then none.
const RING_BYTES_MIN: u32 = 32 << 10;
/// The largest ring of a peer that we map, which is the largest that we make. It is not charged to us, since its pages are the
/// peer's. A peer that removes them makes us pay for at most this much, beside a ring of our own.
const RING_BYTES_PEER_MAX: u32 = RING_BYTES_MAX;
/// The most clients that one poll admits.
const ACCEPTS_PER_POLL_MAX: u32 = 32;
/// EMFILE. A dependency for one number is not worth it.
const ERRNO_DESCRIPTORS: i32 = 24;
/// The most events that one call takes from the kernel.
const KERNEL_EVENTS: usize = 32;
/// The most such calls in one poll.
const KERNEL_ROUNDS_MAX: u32 = 4;
/// The most grants that are taken from one peer at once.
const GRANTS_PER_POLL_MAX: u32 = 16;
/// How often a sleeping endpoint without free receive buffers checks for one. Another thread may drop it.
const STALL_POLL_NS: u64 = 1_000_000;

const _: () = {
    assert!(payload_bytes_limit(RING_BYTES_MIN as usize) >= MESSAGE_BYTES_MAX as usize);
    assert!(RING_BYTES_MIN.is_power_of_two() && RING_BYTES_MAX.is_power_of_two());
};

/// The transport of one endpoint. It has its own cache lines, since one thread often makes several endpoints.
#[repr(align(128))]
pub(super) struct Shm {
    uri: String,
    connecting: Connecting,
    links: Links,
    common: Common,
    /// The part of the memory cap that is for shared memory.
    own_bytes_max: u64,
    /// The part of the memory cap that other transports of the endpoint have.
    set_apart_bytes: u64,
    /// The kernel's reports; `None` while they are being handled.
    events: Option<Events>,
    pace: Pace,
    made_by: fork::Token,
}

impl Shm {
    /// All that the endpoint holds, and what other transports and flows may still take.
    fn held_bytes(&self, core: &Core) -> u64 {
        let mut kinds = core.memory().to_vec();
        report::memory(self, &mut kinds);
        let held_bytes: u64 = kinds.iter().map(|(_, bytes)| bytes).sum();
        held_bytes + self.set_apart_bytes + self.common.transfers.unused_bytes()
    }

    /// The link of a connection that has one.
    fn link_of(&self, key: Key) -> Option<&Link> {
        self.links.table.get(self.common.connections.conns.get(key)?.on()?.link)
    }

    /// The maker of connections, and everything that one of its steps needs.
    fn connecting<'a>(&'a mut self, core: &'a mut Core) -> (&'a mut Connecting, Step<'a>) {
        let held_bytes = self.held_bytes(core).saturating_sub(self.links.ring_memory().total());
        let budget = Budget { cap_bytes: core.options.memory_bytes_max, held_bytes };
        let Shm { connecting, links, common, .. } = self;
        (connecting, Step { links, common, core, budget })
    }

    /// Lets in clients that wait on the listening socket.
    fn let_in(&mut self, core: &mut Core) {
        for _ in 0..ACCEPTS_PER_POLL_MAX {
            let (connecting, mut step) = self.connecting(core);
            if !connecting.let_in(&mut step) {
                return;
            }
        }
    }

    /// Does an operation by plain copies, if all its memory is mapped.
    #[inline]
    fn copy_at_once(&mut self, core: &mut Core, key: Key, request: &RmaRequest<'_>) -> Option<Status> {
        // The message needs the ring.
        let (first, more) = request.segments.split_first().filter(|_| request.message.is_none())?;
        let (initiator, out) = self.links.initiator_at_once(&mut self.common, core, key, request.fence)?;
        initiator.copy(core, out, key, request.kind, first, more)
    }

    /// Does an atomic operation by the processor's instruction, if its target is mapped.
    #[inline]
    fn change_at_once(&mut self, core: &mut Core, key: Key, request: &AtomicRequest) -> Option<Status> {
        let AtomicRequest { atomic, target, result, fence } = *request;
        let (initiator, out) = self.links.initiator_at_once(&mut self.common, core, key, fence)?;
        initiator.atomic(core, out, key, atomic, target, result)
    }

    /// Handles a grant that came over a link's socket. Returns false if no honest peer sends it.
    fn grant_came(&mut self, core: &mut Core, key: Key, bytes: &[u8], fds: ReceivedFds) -> bool {
        let Some(grant) = Grant::parse(bytes) else { return false };
        let of = |link: &Link| link.transfers.initiator.as_ref().map(|initiator| initiator.awaits(&grant));
        let Some(is_awaited) = self.links.table.get(key).and_then(of) else {
            return false;
        };
        if !is_awaited {
            // The region was forgotten meanwhile, or asked for twice.
            return true;
        }
        let space_bytes = self.space_for(core, key, grant.charged_bytes());
        let keep = Keep { now_ns: self.common.connections.now_ns, cap_bytes: core.options.memory_bytes_max };
        let Some(link) = self.links.table.get_mut(key) else { return false };
        let uid = link.peer.uid;
        let initiator = link.transfers.initiator.as_mut();
        let pairs = &mut core.regions.pairs;
        initiator.is_some_and(|initiator| initiator.granted(pairs, grant, fds, uid, space_bytes, keep))
    }

    /// Handles a peer's offer of memory for loans. Returns false if no honest peer makes it: twice, or without a descriptor.
    fn offer_came(&mut self, core: &Core, key: Key, offer: Offer, mut fds: ReceivedFds) -> bool {
        if self.links.table.get(key).is_none_or(|link| link.borrowing.is_some()) {
            return false;
        }
        let Some(fd) = fds.take(0) else { return false };
        let has_space = self.space_for(core, key, offer.len_bytes()) >= offer.len_bytes();
        let Some(link) = self.links.table.get_mut(key) else { return false };
        let paths = &mut self.common.transfers.paths;
        let borrowing = if !paths.direct {
            Err(NotBorrowed::Off)
        } else if !has_space {
            Err(NotBorrowed::OverCap)
        } else {
            let charges = paths.mapped.charge_loans(link.peer.process(), offer.len_bytes());
            Borrowing::map(offer, fd, core.requests.clone(), charges).ok_or(NotBorrowed::Unsound)
        };
        link.not_borrowed = borrowing.as_ref().err().copied();
        link.borrowing = borrowing.ok().map(Box::new);
        self.common.connections.counts.loan_offers_refused += u64::from(link.borrowing.is_none());
        loans::answer(link, link.borrowing.is_some());
        true
    }

    /// The longest mapping that may be added for the peer of a link. If that is less than `wanted_bytes`, memory that is mapped
    /// without a grant is unmapped first.
    fn space_for(&mut self, core: &Core, key: Key, wanted_bytes: u64) -> u64 {
        let Some(process) = self.links.table.get(key).map(|link| link.peer.process()) else { return 0 };
        let mut found_bytes = self.held(core, process).space_bytes();
        if found_bytes < wanted_bytes && self.links.release_kept() {
            found_bytes = self.held(core, process).space_bytes();
        }
        found_bytes
    }

    /// What the endpoint holds when a process asks it to map memory.
    fn held(&self, core: &Core, process: u64) -> Held {
        let mapped = &self.common.transfers.paths.mapped;
        let links = || self.links.table.iter().map(|(_, link)| link);
        let on_links =
            links().filter_map(|link| link.borrowing.as_ref()).map(|it| it.len_bytes()).sum::<u64>();
        Held {
            cap_bytes: core.options.memory_bytes_max,
            total_bytes: self.held_bytes(core),
            mapped_bytes: mapped.total(),
            of_process_bytes: mapped.of_process(process),
            is_alone: mapped.of_loans() <= on_links && links().all(|link| link.peer.process() == process),
        }
    }

    /// Makes progress where something may have come.
    #[inline(never)]
    fn progress_active(&mut self, core: &mut Core) {
        self.links.poll(&mut self.common, core);
        if self.pace.is_maintenance_due() {
            self.maintain(core);
        }
    }

    /// Makes progress where something may have come, and returns the next event, which usually comes alone.
    #[inline(never)]
    fn next_active(&mut self, core: &mut Core) -> Option<Event> {
        if let Some(event) = self.take_one_alone(core) {
            return Some(event);
        }
        self.next_of_progress(core)
    }

    /// Takes the next event if it comes alone, and nothing is due after it.
    #[inline(always)]
    fn take_one_alone(&mut self, core: &mut Core) -> Option<Event> {
        if self.pace.is_maintenance_near() {
            return None;
        }
        let event = self.links.take_alone(&mut self.common, core)?;
        self.pace.polled();
        Some(event)
    }

    /// Makes progress, and returns the next queued event.
    #[inline(never)]
    fn next_of_progress(&mut self, core: &mut Core) -> Option<Event> {
        self.progress_active(core);
        self.take_queued(core)
    }

    /// Does what is less urgent than messages, and returns the next queued event.
    #[cold]
    #[inline(never)]
    fn next_of_maintenance(&mut self, core: &mut Core) -> Option<Event> {
        self.maintain(core);
        self.take_queued(core)
    }

    /// Does what is less urgent than messages: the clock, the kernel, busy links, one idle link, deadlines.
    #[cold]
    fn maintain(&mut self, core: &mut Core) {
        let now_ns = clock::now_ns();
        let before_ns = std::mem::replace(&mut self.common.connections.now_ns, now_ns);
        self.pace.maintained(now_ns.saturating_sub(before_ns));
        if self.pace.asks_kernel(now_ns) {
            self.ask_kernel(core);
        }
        self.links.maintain(&mut self.common, core);
        if self.connecting.server.listening.resume(&core.poller, now_ns) {
            self.let_in(core);
        }
        if self.common.handshakes.are_due(now_ns) {
            let (connecting, mut step) = self.connecting(core);
            connecting.time_out(&mut step);
        }
        if now_ns >= self.common.connections.closing_deadline_ns() {
            self.links.give_up_closing(&mut self.common, core);
        }
        self.links.keep_alive(&mut self.common, core);
        if self.common.transfers.target.is_look_due(now_ns) {
            self.links.report_ended(&mut self.common, core);
        }
    }

    /// Takes what the kernel has to report.
    fn ask_kernel(&mut self, core: &mut Core) {
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
            token::HANDSHAKE => {
                if let Some(key) = self.common.handshakes.named_by(what) {
                    let (connecting, mut step) = self.connecting(core);
                    connecting.ready(&mut step, key);
                }
            }
            token::LIFELINE => {
                if let Some(key) = self.links.table.named_by(what) {
                    self.lifeline_ready(core, key);
                }
            }
            token::BELL => {
                if let Some(key) = self.links.table.named_by(what) {
                    self.links.bell_rang(&mut self.common, core, key);
                }
            }
            // The engine handles this token.
            _ => {}
        }
    }

    /// Reads what has come on a link's lifeline: grants of memory, rings of the bell, or the hang-up.
    fn lifeline_ready(&mut self, core: &mut Core, key: Key) {
        // What is left is reported again, since the poller is level-triggered.
        for _ in 0..GRANTS_PER_POLL_MAX {
            let Some(link) = self.links.table.get(key) else { return };
            let mut buffer = [0; GRANT_BYTES];
            match link.lifeline.recv(&mut buffer, 2) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // This process has no free descriptor for a grant, so the operation goes through the ring.
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
                    let is_honest = match Offer::parse(bytes) {
                        Some(offer) => self.offer_came(core, key, offer, got.fds),
                        None => self.grant_came(core, key, bytes, got.fds),
                    };
                    if is_honest {
                        continue;
                    }
                }
                Err(_) => {}
            }
            self.common.connections.counts.bad_handshake += 1;
            return self.links.kill(&mut self.common, core, key);
        }
    }

    /// Raises the attention words of all links, and answers how long the endpoint may sleep.
    fn prepare_sleep(&mut self, core: &mut Core) -> Armed {
        if !self.is_ours() {
            return Armed::Sleep { deadline_ns: None };
        }
        self.common.connections.now_ns = clock::now_ns();
        self.pace.may_sleep();
        if self.common.transfers.target.is_look_due(u64::MAX) {
            self.links.report_ended(&mut self.common, core);
        }
        // Events that were queued before do not wake a program that waits for something else.
        let events_before = core.events_queued();
        if self.links.arm(&mut self.common, core) || core.events_queued() > events_before {
            return Armed::Pending;
        }
        Armed::Sleep { deadline_ns: self.next_deadline_ns() }
    }

    /// The earliest time at which something is due.
    fn next_deadline_ns(&self) -> Option<u64> {
        let stalled_ns = self.common.connections.now_ns + STALL_POLL_NS;
        let Common { connections, handshakes, .. } = &self.common;
        let next_ns = self
            .links
            .deadline_ns(stalled_ns)
            .min(self.connecting.server.listening.deadline_ns())
            .min(handshakes.deadline_ns())
            .min(connections.closing_deadline_ns())
            .min(connections.keepalive.deadline_ns());
        (next_ns != u64::MAX).then_some(next_ns)
    }

    fn close(&mut self, core: &mut Core, connection: Connection, key: Key) {
        let connections = &mut self.common.connections;
        let Some(conn) = connections.conns.get(key) else { return core.closed(connection) };
        match conn.state {
            State::Gone => connections.remove(core, key),
            State::Making { handshake, .. } => {
                let (connecting, mut step) = self.connecting(core);
                connecting.end(&mut step, handshake, ConnectFailure::Disconnected);
                // `failed` has removed the connection from the engine's table without an event, since it is closing there.
                core.closed(connection);
            }
            State::Established(Established { phase: Phase::Closing, .. }) => {}
            State::Established(_) => self.links.disconnect(&mut self.common, core, key),
        }
    }

    /// Whether this process made the endpoint. In a child of `fork` nothing is mapped, so touching a ring would kill it.
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
        let (connecting, mut step) = self.connecting(core);
        connecting.client.dial(&mut step, connection, &to).map(Key::to_bits)
    }

    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError> {
        let (connecting, mut step) = self.connecting(core);
        connecting.server.accept(&mut step, connection, request).map(Key::to_bits)
    }

    fn decided(&mut self, _: &mut Core, decision: Decision) {
        match decision {
            Decision::Refused { ticket, inner, .. } => self.connecting.server.refuse(ticket, inner),
            Decision::AcceptedElsewhere { ticket, .. } => self.connecting.server.held.leave(ticket),
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
        self.links.send(&mut self.common, core, Key::from_bits(link), segments, op)
    }

    fn send_burst(
        &mut self,
        core: &mut Core,
        _: Connection,
        link: u64,
        messages: &[&[u8]],
        mss: u32,
        op: SendOp,
    ) -> Taken {
        let burst = Burst { messages, mss };
        self.links.send_burst(&mut self.common, core, Key::from_bits(link), &burst, op)
    }

    fn loan(&mut self, core: &mut Core, _: Connection, link: u64, len_bytes: usize) -> Option<LendingSlot> {
        if len_bytes < limits::LOAN_MAPPED_BYTES_MIN || !self.common.transfers.paths.direct {
            return None;
        }
        match loans::take(&mut self.links, &mut self.common, Key::from_bits(link)) {
            Asked::Slot(slot) => Some(slot),
            Asked::None => None,
            Asked::NotOffered(key) => {
                let space_bytes = core.options.memory_bytes_max.saturating_sub(self.held_bytes(core));
                // The rest is for all peers, as with rings.
                loans::offer(&mut self.links, &self.common, key, space_bytes / 16);
                None
            }
        }
    }

    fn send_loan(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        message: (LendingSlot, usize),
        op: SendOp,
    ) -> Result<(), (SendError, LendingSlot)> {
        let key = Key::from_bits(link);
        loans::send(&mut self.links, &mut self.common, core, (key, connection), message, op)
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
        let sends = || {
            let conn = self.common.connections.conns.get(key);
            conn.and_then(Conn::on).map_or(0, |on| on.not_silent)
        };
        if let Some(status) = done {
            let sends = if op.is_ordered && !op.ends_unseen(status) { sends() } else { 0 };
            return Ok(Started::Done { status, sends });
        }
        let id = core.begin_operation(connection, op, sends)?;
        let operation = NewOperation::new(id, &operation.action);
        match self.links.start(&mut self.common, core, key, &operation) {
            Ok(()) => Ok(Started::Pending),
            Err(error) => {
                core.withdraw_operation(id);
                Err(error)
            }
        }
    }

    fn mapped(&mut self, link: u64, region: u64, key: u64) -> Option<MappedRegion> {
        let conn = Key::from_bits(link);
        let link = self.links.table.get_mut(self.common.connections.conns.open(conn)?.on.link)?;
        // The memory of a peer that is gone may not be used.
        let Link { transfers, out, .. } = Some(link).filter(|link| link.life == Life::Up)?;
        transfers.initiator.as_mut()?.resolve(out, conn, region, key)
    }

    fn region(&mut self, core: &mut Core, change: &RegionChange<'_>) {
        let RegionChange::Removed { id, .. } = *change;
        if !self.is_ours() {
            return;
        }
        self.links.region_removed(&mut self.common, core, id);
    }

    fn region_for(&mut self, core: &mut Core, link: u64, region: u64) {
        self.links.announce(&mut self.common, core, Key::from_bits(link), region);
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        if !self.links.have_nothing() {
            return self.progress_active(core);
        }
        // Nothing is called before this, so that an empty poll saves no registers.
        if self.pace.is_maintenance_due() {
            self.maintain(core);
        }
    }

    fn hands_out_events(&self) -> bool {
        true
    }

    #[inline]
    fn next(&mut self, core: &mut Core) -> Option<Event> {
        if !self.links.have_nothing() {
            return self.next_active(core);
        }
        if self.pace.is_maintenance_due() {
            return self.next_of_maintenance(core);
        }
        None
    }

    fn take_alone(&mut self, core: &mut Core) -> Option<Event> {
        self.take_one_alone(core)
    }

    fn takes_short(&self) -> bool {
        true
    }

    fn take_short(&mut self, core: &mut Core, line: &mut Line) -> ShortMessage {
        if self.pace.is_maintenance_near() {
            return ShortMessage::Other;
        }
        let short = self.links.take_short(&mut self.common, core, line);
        if short != ShortMessage::Other {
            self.pace.polled();
        }
        short
    }

    fn progress_lending(&mut self, core: &mut Core, lender: &mut Lender<'_>) {
        self.links.poll_lending(&mut self.common, core, lender);
        if self.pace.is_maintenance_due() {
            self.maintain(core);
        }
    }

    fn arm(&mut self, core: &mut Core) -> Armed {
        self.prepare_sleep(core)
    }

    fn activity(&self) -> Activity {
        if self.links.table.len() == 0
            && self.common.connections.conns.is_empty()
            && self.common.handshakes.is_empty()
        {
            Activity::Idle
        } else if !self.is_ours() || self.common.transfers.flows.ops.len() == 0 {
            // The peer gets what is in a ring whether this process lives or not: it has the memory mapped, and drains it when it
            // sees the hang-up. A CLOSE that found no space would show no more than the hang-up. Remote memory operations need
            // this process.
            Activity::Drained
        } else {
            Activity::Active
        }
    }

    fn link_state(&self, link: u64) -> Option<LinkState> {
        let conn = self.common.connections.conns.get(Key::from_bits(link))?;
        Some(LinkState {
            held: conn.on().map_or(0, |on| on.in_progress),
            drains_by_itself: true,
            send_timeout_ns: conn.base.send_timeout_ns(),
            keepalive_ns: from_us(conn.base.keepalive_us),
        })
    }

    fn unreported(&self, link: u64) -> Option<u32> {
        let conn = self.common.connections.conns.get(Key::from_bits(link))?;
        Some(conn.on().map_or(0, |on| on.not_silent))
    }

    fn configure(&mut self, _: &mut Core, setting: Setting) {
        match setting {
            Setting::SendTimeout { link, timeout_ns } => {
                self.links.set_send_timeout(&mut self.common, Key::from_bits(link), timeout_ns);
            }
            Setting::Keepalive { link, timeout_ns } => {
                self.links.set_keepalive(&mut self.common, Key::from_bits(link), timeout_ns)
            }
            Setting::Loans { link, loans } => {
                let conn = self.common.connections.conns.established(Key::from_bits(link));
                if let Some(conn) = conn {
                    conn.on.loans = loans;
                }
            }
            Setting::Defaults { send_timeout_ns, keepalive_ns } => {
                self.common.connections.send_timeout_us = to_us(send_timeout_ns);
                self.common.connections.keepalive_us = to_us(keepalive_ns);
            }
            // What the engine holds is not available to rings: see `held_bytes`.
            Setting::Lent { .. } => {}
            Setting::SetApart { bytes } => self.set_apart_bytes = bytes,
        }
    }

    fn report(&self, core: &Core, report: Report<'_>) {
        match report {
            Report::Counters { into, drops } => report::counters(self, &core.regions.pairs, into, drops),
            Report::Memory(into) => report::memory(self, into),
            Report::SpareBytes(into) => {
                let kept_bytes =
                    self.held_bytes(core).saturating_add(self.own_bytes_max / limits::KEPT_SHARE);
                *into += core.options.memory_bytes_max.saturating_sub(kept_bytes);
            }
            Report::SendsHeld(into) => *into += self.common.connections.sends.in_use(),
            Report::Connection { link, into } => *into = report::connection(self, Key::from_bits(link)),
            Report::Explanation { link, into } => report::explain(self, Key::from_bits(link), into),
            Report::Peer { link, into } => {
                let link = self.link_of(Key::from_bits(link));
                into.refuses = link.is_some_and(|link| link.out.producer.is_stalled());
            }
        }
    }
}

impl Drop for Shm {
    fn drop(&mut self) {
        // Grants end with the endpoint, although the memory may live on.
        if self.is_ours() {
            self.common.transfers.target.end(&mut self.links.table);
        }
    }
}
