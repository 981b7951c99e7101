//! Which links a poll looks at, and how links begin and end.
//!
//! - *Active* links, those with something lately and at most [`ACTIVE_MAX`], are looked at in every poll: one cache line each.
//! - All others are *idle*: their attention word is raised, so that a peer that writes rings our doorbell, which the
//!   kernel reports. One of them is looked at in every few polls besides, so that nothing can get lost.
//! - *Busy* links, those with sends, closing connections or stalls under way, are maintained now and then.

use super::common::Common;
use super::connections::{Conn, Connections, EstablishedConn, Phase, State, complete, to_us};
use super::link::{Life, Link};
use super::peer::{Peer, Side};
use super::pending::Sends;
use super::wire::kind;
use super::{close, overdue, receive, transfers};
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::{Core, SendOp};
use crate::engine::poller::Poller;
use crate::error::SendError;
use crate::limits;
use crate::transport::token;
use cci_memory::ring::{PushError, RecordHeader, region_bytes};
use cci_memory::slab::{Key, Slab};
use std::collections::HashMap;
use std::os::fd::AsFd;

/// Links looked at in every poll.
const ACTIVE_MAX: usize = 16;
/// So many stay active however little they have: looking at them costs next to nothing.
const ACTIVE_ALWAYS_MAX: usize = 2;
/// An active link with nothing for so long becomes idle.
const ACTIVE_NS: u64 = 200_000;
/// Polls with nothing there before a look at how far the peer of an active link has read. Each look takes its cache line
/// away from it, and an answer, which carries the same position, may be on its way.
const POLLS_PER_LOOK: u32 = 64;
/// Busy links maintained in one go.
const MAINTAINED_MAX: usize = 32;

/// All links of an endpoint.
pub(super) struct Links {
    all: Slab<Box<Link>>,
    by_id: HashMap<(u64, Side), Key>,
    by_peer: HashMap<Peer, Key>,
    /// Links that are polled directly.
    active: Vec<Key>,
    /// Links that have something under way.
    busy: Vec<Key>,
    /// One more than the highest index that a link ever had.
    indices: u32,
    /// The next busy link to be maintained.
    next_busy: usize,
    /// The index of the link looked at last as one of the idle.
    next_idle: u32,
    /// Memory of the rings that we read, also of those that are only offered.
    ring_memory_bytes: u64,
}

/// What the memory of a ring is charged as: its pages.
pub(super) const fn ring_charge(ring_bytes: u32) -> u64 {
    region_bytes(ring_bytes as usize).next_multiple_of(4096) as u64
}

impl Links {
    pub fn new() -> Links {
        Links {
            all: Slab::new(limits::CONNECTIONS_MAX),
            by_id: HashMap::new(),
            by_peer: HashMap::new(),
            active: Vec::with_capacity(ACTIVE_MAX),
            busy: Vec::with_capacity(64),
            indices: 0,
            next_busy: 0,
            next_idle: 0,
            ring_memory_bytes: 0,
        }
    }

    pub fn get(&self, key: Key) -> Option<&Link> {
        self.all.get(key).map(|link| &**link)
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Link> {
        self.all.get_mut(key).map(|link| &mut **link)
    }

    pub fn all(&self) -> &Slab<Box<Link>> {
        &self.all
    }

    pub fn all_mut(&mut self) -> &mut Slab<Box<Link>> {
        &mut self.all
    }

    /// The link that a token of the poller names.
    pub fn named_by(&self, what: u64) -> Option<Key> {
        self.all.key_at(token::index(what)).filter(|key| token::names(what, *key))
    }

    /// The link with a peer that a further connection may join.
    pub fn with_peer(&mut self, peer: &Peer) -> Option<&mut Link> {
        let key = *self.by_peer.get(peer)?;
        self.get_mut(key).filter(|link| link.life == Life::Up)
    }

    /// This end of the link with this number.
    pub fn with_id(&mut self, id: u64, side: Side) -> Option<&mut Link> {
        let key = *self.by_id.get(&(id, side))?;
        self.get_mut(key)
    }

    pub fn active_count(&self) -> usize {
        self.active.len()
    }

    /// Memory of the rings that we read.
    pub fn ring_memory_bytes(&self) -> u64 {
        self.ring_memory_bytes
    }

    /// A ring of `ring_bytes` of data was made, to be read here.
    pub fn charge_ring(&mut self, ring_bytes: u32) {
        self.ring_memory_bytes += ring_charge(ring_bytes);
    }

    /// A ring is no more.
    pub fn discharge_ring(&mut self, ring_bytes: u32) {
        self.ring_memory_bytes = self.ring_memory_bytes.saturating_sub(ring_charge(ring_bytes));
    }

    /// Enters a link that was just made, with one connection on it. Its lifeline carried the handshake before.
    pub fn make(&mut self, connections: &mut Connections, core: &Core, link: Link) -> Option<Key> {
        core.poller.unwatch(link.lifeline.as_fd());
        let ring_bytes = link.ring_bytes;
        let Some(key) = self.insert(&core.poller, link) else {
            connections.counts.system_errors += 1;
            self.discharge_ring(ring_bytes);
            return None;
        };
        connections.counts.links_made += 1;
        self.make_active(key, connections.now_ns);
        Some(key)
    }

    /// Enters a link with one connection on it, and watches it. None: there is no memory, or the kernel refuses.
    fn insert(&mut self, poller: &Poller, link: Link) -> Option<Key> {
        let (id, side, peer) = (link.id, link.side, link.peer);
        self.by_id.try_reserve(1).ok()?;
        self.by_peer.try_reserve(1).ok()?;
        let key = self
            .all
            .insert_with(Box::new(link), |mut link, key| {
                (link.key, link.conns) = (key, 1);
                link
            })
            .ok()?;
        let link = self.all.get(key)?;
        let watched = poller
            .watch(link.bell.as_fd(), token::make(token::BELL, key))
            .and_then(|()| poller.watch(link.lifeline.as_fd(), token::make(token::LIFELINE, key)));
        if watched.is_err() {
            if let Some(link) = self.all.remove(key) {
                poller.unwatch(link.bell.as_fd());
                poller.unwatch(link.lifeline.as_fd());
            }
            return None;
        }
        self.by_id.insert((id, side), key);
        self.by_peer.insert(peer, key);
        self.indices = self.indices.max(key.index + 1);
        Some(key)
    }

    /// Looks at every active link.
    #[inline]
    pub fn poll(&mut self, common: &mut Common, core: &mut Core) {
        let mut at = 0;
        while let Some(&key) = self.active.get(at) {
            self.poll_active(common, core, key);
            // A link that ended has left the list, and another may have taken its position.
            if self.active.get(at) == Some(&key) {
                at += 1;
            }
        }
    }

    #[inline]
    fn poll_active(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.all.get_mut(key) else { return };
        link.out.flush();
        let nothing = !link.consumer.is_stalled() && !link.consumer.may_have_more();
        let drained = if nothing { Ok(0) } else { receive::drain(link, common, core) };
        let Ok(records) = drained else { return self.kill(common, core, key) };
        if records == 0 {
            link.idle_polls = link.idle_polls.wrapping_add(1);
            if link.publish_due {
                link.announce();
            }
            if link.idle_polls.is_multiple_of(POLLS_PER_LOOK)
                && (!link.out.fifo.is_empty() || link.out.wants_space())
                && link.complete_taken(&mut common.connections, core).is_err()
            {
                return self.kill(common, core, key);
            }
        }
        if link.transfers.has_work() {
            self.turn_transfers(common, core, key);
        }
        let Some(link) = self.all.get_mut(key) else { return };
        if link.conns == 0 || link.life != Life::Up || link.out.bell_failed {
            self.after_poll(common, core, key);
        } else if !link.is_busy && link.needs_maintenance() {
            self.schedule(key);
        }
    }

    /// Looks at one link, active or idle. Answers whether anything had come.
    fn poll_link(&mut self, common: &mut Common, core: &mut Core, key: Key) -> bool {
        let Some(link) = self.all.get_mut(key) else { return false };
        link.out.flush();
        match receive::drain(link, common, core) {
            Err(_) => {
                self.kill(common, core, key);
                true
            }
            Ok(records) => {
                if records > 0 {
                    self.make_active(key, common.connections.now_ns);
                }
                if self.has_work(key) {
                    self.turn_transfers(common, core, key);
                }
                self.after_poll(common, core, key);
                records > 0
            }
        }
    }

    fn has_work(&self, key: Key) -> bool {
        self.all.get(key).is_some_and(|link| link.transfers.has_work())
    }

    /// A link may have come to its end.
    fn after_poll(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.all.get_mut(key) else { return };
        if link.out.bell_failed {
            return self.kill(common, core, key);
        }
        if let Life::Draining { until } = link.life {
            let may_end = !link.consumer.is_stalled() && link.consumer.head() < until;
            let over = match link.consumer.peek() {
                Ok(record) => record.is_none() && may_end,
                Err(_) => true,
            };
            if over || link.consumer.head() >= until {
                return self.end(common, core, key, DisconnectReason::Died);
            }
        }
        if link.conns == 0 {
            return self.end_if_unused(common, core, key);
        }
        if !link.is_busy && link.needs_maintenance() {
            self.schedule(key);
        }
    }

    /// Copies a message into the ring of its connection's link. A reliable one completes when the peer has taken it, an
    /// unreliable one here: it has left. A full ring is `WouldBlock` for both, and the message waits in the engine: on one
    /// host, nothing is gained by losing it.
    #[inline]
    pub fn send(
        &mut self,
        common: &mut Common,
        core: &mut Core,
        key: Key,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        let is_alone = self.all.len() < 2;
        let connections = &mut common.connections;
        let Some(mut conn) = connections.conns.open(key) else { return Err(SendError::Disconnected) };
        let (at, is_reliable) = (conn.on.link, conn.on.is_reliable);
        let Some(link) = self.all.get_mut(at) else { return Err(SendError::Disconnected) };
        let has_space = |sends: &Sends, link: &Link| {
            (!is_reliable || sends.has_space_for(&link.out.fifo, is_alone)) && link.out.control.is_empty()
        };
        if !has_space(&connections.sends, link) {
            // Perhaps the peer has taken something that we have not looked at yet.
            let looked = link.complete_taken(connections, core).and_then(|_| link.push_control());
            if looked.is_err() || !has_space(&connections.sends, link) {
                return Err(SendError::WouldBlock);
            }
            let Some(again) = connections.conns.open(key) else { return Err(SendError::Disconnected) };
            conn = again;
        }
        let was_flushed = link.out.flushed == link.out.producer.tail();
        let header = RecordHeader {
            kind: kind::MESSAGE,
            flags: conn.on.peer_generation,
            conn: conn.on.peer_index,
            ack: link.ack(),
        };
        let span = match link.out.producer.push(header, segments) {
            Ok(span) => span,
            Err(PushError::Full) => {
                self.is_full(common, core, at);
                return Err(SendError::WouldBlock);
            }
            Err(PushError::TooLong) => {
                let len_bytes = segments.iter().map(|segment| segment.len()).sum();
                return Err(SendError::TooLong {
                    len_bytes,
                    max_bytes: link.out.producer.payload_bytes_max(),
                });
            }
            Err(PushError::Corrupt(_)) => {
                self.kill(common, core, at);
                return Err(SendError::Disconnected);
            }
        };
        conn.base.messages_sent += 1;
        conn.base.bytes_sent += segments.iter().map(|segment| segment.len() as u64).sum::<u64>();
        if is_reliable {
            conn.on.in_progress += 1;
            conn.on.not_silent += u32::from(!op.silent);
            connections.sends.push(&mut link.out.fifo, span, key.index, op);
        }
        if link.out.flush_after_send(was_flushed) {
            // That look also serves a peer that waits for our reading.
            link.publish_due = false;
        }
        if !is_reliable {
            core.complete(conn.base.connection, op, Status::Success);
        }
        let (is_busy, is_active) = (link.is_busy, link.is_active);
        if !is_busy {
            self.schedule(at);
        }
        if !is_active {
            self.make_active(at, common.connections.now_ns);
        }
        Ok(())
    }

    /// A message found no space in the ring of a link.
    #[cold]
    fn is_full(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.all.get_mut(key) else { return };
        // The sends that were taken meanwhile complete now, so that a program that waits for them sees them.
        let _ = link.complete_taken(&mut common.connections, core);
        link.out.full_at = link.out.producer.tail();
        link.out.flush();
        // Messages that are not acknowledged leave no other trace: the peer is to wake us once it has taken them.
        self.schedule(key);
    }

    /// Pushes and fetches what a link has to. Called in every poll while it has.
    fn turn_transfers(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.all.get_mut(key) else { return };
        let turned = common.transfers.turn(link, &mut common.connections, core);
        link.out.flush();
        if turned.is_err() {
            return self.kill(common, core, key);
        }
        self.schedule(key);
    }

    /// Maintains the flows of a link; `now`: the endpoint is about to sleep.
    #[inline(always)]
    fn maintain_transfers(&mut self, common: &mut Common, core: &mut Core, key: Key, now: bool) {
        let Some(link) = self.all.get_mut(key).filter(|link| link.transfers.is_in_use()) else { return };
        if common.transfers.maintain(link, &mut common.connections, core, now).is_err() {
            self.kill(common, core, key);
        }
    }

    /// A region of ours is no more: takes back what was granted of it.
    pub fn region_removed(&mut self, common: &mut Common, core: &mut Core, region_id: u64) {
        for key in common.transfers.target.removed(&mut self.all, region_id) {
            let Some(link) = self.all.get_mut(key) else { continue };
            link.out.flush();
            if link.out.control.len() > transfers::CONTROL_LEN_MAX {
                self.kill(common, core, key);
            } else {
                self.schedule(key);
            }
        }
    }

    /// Puts a link on the list of those that are maintained.
    pub fn schedule(&mut self, key: Key) {
        if let Some(link) = self.all.get_mut(key)
            && !link.is_busy
        {
            link.is_busy = true;
            self.busy.push(key);
        }
    }

    /// Maintains some busy links, and looks at one that is idle.
    // Always: it has one caller, and its share of each message counts.
    #[inline(always)]
    pub fn maintain(&mut self, common: &mut Common, core: &mut Core) {
        for _ in 0..self.busy.len().min(MAINTAINED_MAX) {
            if self.next_busy >= self.busy.len() {
                self.next_busy = 0;
            }
            let Some(&key) = self.busy.get(self.next_busy) else { break };
            self.maintain_one(common, core, key);
            if self.busy.get(self.next_busy) == Some(&key) {
                self.next_busy += 1;
            }
        }
        self.look_at_an_idle_one(common, core);
        if self.active.len() > ACTIVE_ALWAYS_MAX {
            self.retire_one(common.connections.now_ns);
        }
    }

    /// Maintains one busy link; takes it off the list when nothing is under way any more.
    #[inline(always)]
    fn maintain_one(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.all.get_mut(key) else {
            self.busy.retain(|busy| *busy != key);
            return;
        };
        link.out.flush();
        if link.publish_due {
            link.announce();
        }
        let mut fine = Ok(());
        if !link.is_active && (!link.out.fifo.is_empty() || link.out.wants_space()) {
            fine = link.complete_taken(&mut common.connections, core).map(drop);
        }
        if fine.is_ok() && !link.out.control.is_empty() {
            fine = link.push_control();
            link.out.flush();
        }
        overdue::stamp(link, &mut common.connections);
        if fine.and_then(|()| overdue::end_sends(link, common, core)).is_err() {
            return self.kill(common, core, key);
        }
        if self.has_work(key) {
            self.turn_transfers(common, core, key);
        }
        self.maintain_transfers(common, core, key, false);
        let Some(link) = self.all.get_mut(key) else { return };
        if link.consumer.is_stalled() || link.life != Life::Up || link.out.bell_failed {
            self.poll_link(common, core, key);
        }
        if let Some(link) = self.all.get_mut(key)
            && !link.needs_maintenance()
        {
            link.is_busy = false;
            self.busy.retain(|busy| *busy != key);
            self.end_if_unused(common, core, key);
        }
    }

    fn look_at_an_idle_one(&mut self, common: &mut Common, core: &mut Core) {
        if self.all.len() as usize <= self.active.len() {
            return;
        }
        self.next_idle = if self.next_idle + 1 < self.indices { self.next_idle + 1 } else { 0 };
        if let Some(key) = self.all.key_at(self.next_idle)
            && self.all.get(key).is_some_and(|link| !link.is_active)
        {
            self.poll_idle(common, core, key);
        }
    }

    /// Looks at an idle link. One that had something becomes active.
    fn poll_idle(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        if !self.poll_link(common, core, key)
            && let Some(link) = self.all.get_mut(key)
            && !link.is_active
            && !link.armed
            && link.arm()
        {
            self.make_active(key, common.connections.now_ns);
        }
    }

    /// Polls a link directly from now on. When too many are active, the one with nothing for longest becomes idle.
    pub fn make_active(&mut self, key: Key, now_ns: u64) {
        let Some(link) = self.all.get_mut(key) else { return };
        if link.is_active {
            return;
        }
        link.is_active = true;
        link.worked_ns = now_ns;
        self.active.push(key);
        if self.active.len() > ACTIVE_MAX {
            let worked_ns = |key: Key| self.all.get(key).map_or(0, |link| link.worked_ns);
            if let Some(idlest) = self.active.iter().copied().min_by_key(|key| worked_ns(*key)) {
                self.make_idle(idlest, now_ns);
            }
        }
    }

    /// Lets the peer ring from now on.
    fn make_idle(&mut self, key: Key, now_ns: u64) {
        self.active.retain(|active| *active != key);
        let Some(link) = self.all.get_mut(key) else { return };
        link.is_active = false;
        if link.arm() {
            // Something has come in this very moment.
            link.consumer.disarm();
            (link.armed, link.is_active, link.worked_ns) = (false, true, now_ns);
            self.active.push(key);
        }
    }

    /// Makes an active link idle that had nothing for a while.
    fn retire_one(&mut self, now_ns: u64) {
        let had_nothing = |key: &Key| {
            self.all.get(*key).is_none_or(|link| now_ns.saturating_sub(link.worked_ns) > ACTIVE_NS)
        };
        if let Some(key) = self.active.iter().copied().find(had_nothing) {
            self.make_idle(key, now_ns);
        }
    }

    /// The bell of a link can be read.
    pub fn bell_rang(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.all.get_mut(key) else { return };
        link.out.bell_failed |= link.bell.drain().is_err();
        self.was_rung(common, core, key);
    }

    /// The peer rang, by its bell or over the lifeline.
    pub fn was_rung(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        common.connections.counts.wakes_received += 1;
        let Some(link) = self.all.get_mut(key) else { return };
        link.rung = false;
        link.armed = false;
        if link.waits_for_progress() && link.complete_taken(&mut common.connections, core).is_err() {
            return self.kill(common, core, key);
        }
        self.poll_idle(common, core, key);
    }

    /// Prepares all links for sleep. Answers whether something is there to be done first.
    pub fn arm(&mut self, common: &mut Common, core: &mut Core) -> bool {
        for at in 0..self.busy.len() {
            let Some(&key) = self.busy.get(at) else { break };
            if let Some(link) = self.all.get_mut(key) {
                overdue::stamp(link, &mut common.connections);
            }
            self.maintain_transfers(common, core, key, true);
            if self.arm_one(common, core, key) {
                return true;
            }
        }
        for at in 0..self.active.len() {
            let Some(&key) = self.active.get(at) else { break };
            if self.arm_one(common, core, key) {
                return true;
            }
        }
        false
    }

    fn arm_one(&mut self, common: &mut Common, core: &mut Core, key: Key) -> bool {
        if let Some(link) = self.all.get_mut(key)
            && link.transfers.has_work()
        {
            match common.transfers.turn(link, &mut common.connections, core) {
                Ok(moved) if moved || link.transfers.at_once => return true,
                Ok(_) => {}
                Err(_) => {
                    self.kill(common, core, key);
                    return true;
                }
            }
        }
        let Some(link) = self.all.get_mut(key) else { return true };
        if link.is_unused() {
            self.end(common, core, key, DisconnectReason::Closed);
            return true;
        }
        link.out.flush();
        if link.publish_due {
            link.announce();
        }
        if link.life != Life::Up || link.out.bell_failed {
            // A link that drains and is not stalled has work to do.
            return !link.consumer.is_stalled();
        }
        if link.rung {
            link.rung = false;
            link.out.bell_failed |= link.bell.drain().is_err();
        }
        let progress = link.waits_for_progress();
        if (!link.armed || progress && !link.armed_for_progress) && link.arm() {
            link.consumer.disarm();
            link.armed = false;
            return true;
        }
        if !progress {
            return false;
        }
        // Once more, after the attention word is up: see the ring's protocol for sleeping.
        match link.complete_taken(&mut common.connections, core) {
            Ok(news) => news,
            Err(_) => {
                self.kill(common, core, key);
                true
            }
        }
    }

    /// When something of a link is due; `u64::MAX`: never. Links that wait for receive buffers are looked at again
    /// at `stalled_ns`.
    pub fn deadline_ns(&self, stalled_ns: u64) -> u64 {
        let mut next_ns = u64::MAX;
        for link in self.busy.iter().filter_map(|key| self.all.get(*key)) {
            next_ns = next_ns.min(link.out.deadline_ns).min(link.transfers.deadline_ns);
            if link.consumer.is_stalled() {
                next_ns = next_ns.min(stalled_ns);
            }
        }
        next_ns
    }

    /// The program disconnected an open connection.
    pub fn disconnect(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(EstablishedConn { base, on }) = common.connections.conns.established(key) else { return };
        on.phase = Phase::Closing;
        let (at, flow_key, timeout_ns) = (on.link, on.flow(), base.send_timeout_ns());
        // The last look at the clock may be long ago.
        common.connections.now_ns = cci_sys::clock::now_ns();
        let until_ns = common.connections.now_ns.saturating_add(timeout_ns);
        common.connections.closes_by(key, until_ns);
        if flow_key.is_some_and(|flow_key| common.transfers.delays_close(flow_key)) {
            return;
        }
        let Some(conn) = common.connections.conns.established(key) else { return };
        let Some(link) = self.all.get_mut(at) else { return };
        let sent = link.send_close(conn.on);
        link.out.flush();
        self.schedule(at);
        if sent.is_err() {
            self.kill(common, core, at);
        }
    }

    /// Gives up connections that were disconnected and not answered until the send timeout: what was sent may or may not
    /// have arrived.
    pub fn give_up_closing(&mut self, common: &mut Common, core: &mut Core) {
        for key in common.connections.take_overdue_closing() {
            let Some(at) = common.connections.conns.established(key).map(|conn| conn.on.link) else {
                continue;
            };
            if let Some(link) = self.all.get_mut(at) {
                close::give_up(link, common, core, key);
            }
            common.connections.remove(core, key);
            self.end_if_unused(common, core, at);
        }
    }

    /// The peer's end of the lifeline is closed: it has let go of the link, or died. What it had written by now is
    /// still to be delivered.
    pub fn peer_hung_up(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.all.get_mut(key) else { return };
        if link.life != Life::Up {
            return;
        }
        // A whole ring at most: one that lives on and goes on writing can't keep us here.
        link.life = Life::Draining { until: link.consumer.head() + u64::from(link.ring_bytes) };
        core.poller.unwatch(link.lifeline.as_fd());
        self.schedule(key);
        self.poll_link(common, core, key);
    }

    /// The link is of no use any more: the peer wrote nonsense into it.
    pub fn kill(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        common.connections.counts.link_corrupt += 1;
        self.end(common, core, key, DisconnectReason::Refused);
    }

    /// Lets go of a link that nothing rides on any more.
    fn end_if_unused(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        if self.all.get(key).is_some_and(|link| link.is_unused()) {
            self.end(common, core, key, DisconnectReason::Closed);
        }
    }

    /// Ends a link and everything that rides on it.
    fn end(&mut self, common: &mut Common, core: &mut Core, key: Key, reason: DisconnectReason) {
        let Some(link) = self.all.get_mut(key) else { return };
        link.life = Life::Dead;
        let connections = &mut common.connections;
        // What the peer took before it died has arrived. If its last word is nonsense, that is no longer known.
        let _ = link.complete_taken(connections, core);
        let conns = &mut connections.conns;
        connections.sends.retain(
            &mut link.out.fifo,
            |_| true,
            |send| complete(conns, core, send.conn, send.op(), Status::Disconnected),
        );
        common.transfers.end_flows(link, connections, core);
        let has_conns = link.conns > 0;
        common.transfers.target.link_ended(&self.all, key);
        if has_conns {
            connections.counts.links_died += 1;
            connections.end_all_on(core, key, reason);
            common.handshakes.fail_joining(connections, core, key);
        }
        self.remove(common, core, key);
    }

    fn remove(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(mut link) = self.all.remove(key) else { return };
        // The peer may sleep until we answer; the lifeline's hang-up wakes it, but only if it watches that.
        link.out.flush();
        common.connections.counts.wakes_sent += link.out.wakes;
        transfers::report::keep_counts(&mut common.transfers, &link);
        core.poller.unwatch(link.bell.as_fd());
        core.poller.unwatch(link.lifeline.as_fd());
        self.discharge_ring(link.ring_bytes);
        self.by_id.remove(&(link.id, link.side));
        if self.by_peer.get(&link.peer) == Some(&key) {
            self.by_peer.remove(&link.peer);
        }
        self.active.retain(|active| *active != key);
        self.busy.retain(|busy| *busy != key);
    }

    /// Takes a connection off a link, which ends soon if it was the last.
    pub fn leave(&mut self, key: Key) {
        if let Some(link) = self.get_mut(key) {
            link.conns = link.conns.saturating_sub(1);
            self.schedule(key);
        }
    }

    /// Asks silent peers for a sign of life, if that is due.
    #[inline]
    pub fn keep_alive(&mut self, common: &mut Common, core: &mut Core) {
        let Connections { conns, keepalive, now_ns, .. } = &mut common.connections;
        keepalive.look(*now_ns, |key| {
            let Conn { base, state } = conns.get_mut(key)?;
            let link = match state {
                State::Established(on) if on.phase != Phase::Closing => self.all.get_mut(on.link),
                State::Gone => None,
                // One that is being made begins when it is established.
                State::Established(_) | State::Making { .. } => return None,
            };
            overdue::keep_alive(base, link.map(|link| &mut **link), core, *now_ns)
        });
    }

    /// Overrides the send timeout of a connection.
    pub fn set_send_timeout(&mut self, common: &mut Common, key: Key, timeout_ns: u64) {
        let Some(Conn { base, state }) = common.connections.conns.get_mut(key) else { return };
        base.send_timeout_us = to_us(timeout_ns);
        if let State::Established(on) = state
            && on.in_progress > 0
            && let Some(link) = self.all.get_mut(on.link)
        {
            // Sends under way must not outlive later ones: completions of a connection stay in order.
            let limit_ns = cci_sys::clock::now_ns().saturating_add(timeout_ns);
            overdue::bring_forward(link, &mut common.connections.sends, key.index, limit_ns);
        }
    }

    /// Overrides the keepalive of a connection; 0 = off.
    pub fn set_keepalive(&mut self, common: &mut Common, key: Key, timeout_ns: u64) {
        let connections = &mut common.connections;
        let Some(conn) = connections.conns.get_mut(key) else { return };
        conn.base.keepalive_us = if timeout_ns == 0 { 0 } else { to_us(timeout_ns) };
        connections.now_ns = cci_sys::clock::now_ns();
        if let Some(link) = conn.on().and_then(|on| self.all.get_mut(on.link)) {
            // Silence counts from now on.
            link.heard_ns = connections.now_ns;
        }
        connections.keepalive.set(key, timeout_ns != 0);
    }
}
