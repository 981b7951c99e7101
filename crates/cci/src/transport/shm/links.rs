//! The links of an endpoint: how they are made, polled, armed and ended.

use super::alone::Alone;
use super::common::Common;
use super::connections::{Conn, Connections, EstablishedConn, Phase, State, complete, to_us};
use super::link::{Life, Link};
use super::out::Out;
use super::pending::Send;
use super::rma::initiator::Initiator;
use super::schedule::Schedule;
use super::send::{Burst, NotSent, has_space, is_full, send, send_after_look, send_some};
use super::table::Table;
use super::transfers::NewOperation;
use super::turn::Turned;
use super::{alone, close, lend, overdue, short, transfers, turn};
use crate::connection::{DisconnectReason, Status};
use crate::engine::charge::ChargedBytes;
use crate::engine::core::{Core, SendOp};
use crate::engine::event::Event;
use crate::engine::lent::{Lender, ShortMessage};
use crate::error::SendError;
use crate::transport::Taken;
use cci_memory::ring::{Line, region_bytes};
use cci_memory::slab::Key;
use cci_sys::clock;
use std::os::fd::AsFd;

/// The most busy links that one call maintains.
const MAINTAINED_MAX: usize = 32;

/// All links of an endpoint, and when each is polled.
pub(super) struct Links {
    pub table: Table,
    pub schedule: Schedule,
    /// Memory of the rings that we read, and of those that we have offered.
    ring_memory: ChargedBytes,
}

/// The bytes that are charged for a ring: all its pages.
pub(super) const fn ring_charge(ring_bytes: u32) -> u64 {
    region_bytes(ring_bytes as usize).next_multiple_of(4096) as u64
}

impl Links {
    pub fn new() -> Links {
        Links { table: Table::new(), schedule: Schedule::new(), ring_memory: ChargedBytes::default() }
    }

    /// Memory of the rings that we read, and of those that we have offered.
    pub fn ring_memory(&self) -> &ChargedBytes {
        &self.ring_memory
    }

    /// Enters a new link with one connection on it. Its lifeline carried the handshake before. Returns `None` if there is no
    /// memory, or the kernel refuses.
    pub fn make(&mut self, connections: &mut Connections, core: &Core, link: Link) -> Option<Key> {
        core.poller.unwatch(link.lifeline.as_fd());
        let Some(key) = self.table.insert(&core.poller, link) else {
            connections.counts.system_errors += 1;
            return None;
        };
        connections.counts.links_made += 1;
        self.make_active(key, connections.now_ns);
        Some(key)
    }

    /// Whether active links have nothing to do, as far as a short check shows. They count as polled then.
    #[inline(always)]
    pub fn have_nothing(&mut self) -> bool {
        // Usually there is one.
        let &[key] = self.schedule.active() else { return self.schedule.active().is_empty() };
        self.table.get_mut(key).is_some_and(turn::has_nothing)
    }

    /// Polls every active link. If there is only one, [`Links::have_nothing`] has found that something may have come on it.
    #[inline(always)]
    pub fn poll(&mut self, common: &mut Common, core: &mut Core) {
        if let &[key] = self.schedule.active() {
            let Some(link) = self.table.get_mut(key) else { return };
            let turned = turn::poll_active(link, common, core);
            if turned != Turned::Well || !link.is_busy {
                self.polled(common, core, key, turned);
            }
        } else {
            self.poll_each(common, core);
        }
    }

    /// Takes the next event of the only active link, if it is one that comes alone.
    #[inline(always)]
    pub fn take_alone(&mut self, common: &mut Common, core: &mut Core) -> Option<Event> {
        let &[key] = self.schedule.active() else { return None };
        alone::take(self.table.get_mut(key)?, &mut common.connections, core).map(Alone::event)
    }

    /// Takes the next message of the only active link, if it is all that there is to do.
    #[inline(always)]
    pub fn take_short(&mut self, common: &mut Common, core: &mut Core, line: &mut Line) -> ShortMessage {
        let &[key] = self.schedule.active() else { return ShortMessage::Other };
        let Some(link) = self.table.get_mut(key) else { return ShortMessage::Other };
        if turn::has_nothing(link) {
            return ShortMessage::Nothing;
        }
        short::take(link, &mut common.connections, core, line)
            .map_or(ShortMessage::Other, ShortMessage::Message)
    }

    /// Polls several active links.
    #[inline(never)]
    fn poll_each(&mut self, common: &mut Common, core: &mut Core) {
        let mut at = 0;
        while let Some(&key) = self.schedule.active().get(at) {
            if let Some(link) = self.table.get_mut(key) {
                if turn::has_nothing(link) {
                    at += 1;
                    continue;
                }
                self.poll_active(common, core, key);
            }
            // A link that ended has left the list, and another may have taken its position.
            if self.schedule.active().get(at) == Some(&key) {
                at += 1;
            }
        }
    }

    /// Polls every active link, and lends what has come as far as that is allowed.
    #[inline]
    pub fn poll_lending(&mut self, common: &mut Common, core: &mut Core, lender: &mut Lender<'_>) {
        let mut at = 0;
        while let Some(&key) = self.schedule.active().get(at) {
            let Some(link) = self.table.get_mut(key) else { return };
            if turn::has_nothing(link) {
                at += 1;
                continue;
            }
            if core.has_events() || !self.lend(common, core, key, lender) {
                self.poll_active(common, core, key);
            }
            if self.schedule.active().get(at) == Some(&key) {
                at += 1;
            }
        }
    }

    /// Lends what has come on a link. Returns false if there was nothing, or the link has more to do now.
    #[inline]
    fn lend(&mut self, common: &mut Common, core: &mut Core, key: Key, lender: &mut Lender<'_>) -> bool {
        let Some(link) = self.table.get_mut(key) else { return false };
        link.out.flush();
        let Ok(lent) = lend::lend(link, common, core, lender) else {
            self.kill(common, core, key);
            return true;
        };
        // Events that have just been queued come after what was lent, and before what was not.
        if lent == 0 && !core.has_events()
            || link.transfers.has_work()
            || link.out.bell_failed
            || link.conns == 0
        {
            return false;
        }
        if !link.is_busy && link.needs_maintenance() {
            self.schedule.make_busy(link);
        }
        true
    }

    /// Polls an active link.
    #[inline(never)]
    fn poll_active(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.table.get_mut(key) else { return };
        let turned = turn::poll_active(link, common, core);
        if turned != Turned::Well || !link.is_busy {
            self.polled(common, core, key, turned);
        }
    }

    /// Handles the outcome of a poll of an active link, unless it is the usual one.
    #[cold]
    #[inline(never)]
    fn polled(&mut self, common: &mut Common, core: &mut Core, key: Key, turned: Turned) {
        if turned == Turned::Corrupt {
            return self.kill(common, core, key);
        }
        let Some(link) = self.table.get_mut(key) else { return };
        if link.conns == 0 || link.life != Life::Up || link.out.bell_failed {
            self.after_poll(common, core, key);
        } else if !link.is_busy && link.needs_maintenance() {
            self.schedule.make_busy(link);
        }
    }

    /// Polls one link, active or idle. Returns whether something had come.
    fn poll_link(&mut self, common: &mut Common, core: &mut Core, key: Key) -> bool {
        let Some(link) = self.table.get_mut(key) else { return false };
        let Ok(has_come) = turn::poll(link, common, core) else {
            self.kill(common, core, key);
            return true;
        };
        if has_come {
            self.make_active(key, common.connections.now_ns);
        }
        self.after_poll(common, core, key);
        has_come
    }

    /// Ends a link that has ended, and schedules maintenance for a link that needs it.
    fn after_poll(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.table.get_mut(key) else { return };
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
            self.schedule.make_busy(link);
        }
    }

    /// Sends a message on a connection, as [`send`] says.
    #[inline]
    pub fn send(
        &mut self,
        common: &mut Common,
        core: &mut Core,
        key: Key,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        let Connections { conns, sends, .. } = &mut common.connections;
        let Some(conn) = conns.open(key) else { return Err(SendError::Disconnected) };
        let at = conn.on.link;
        let is_alone = self.table.len() < 2;
        let Some(link) = self.table.get_mut(at) else { return Err(SendError::Disconnected) };
        let has_space = has_space(&conn, sends, link, is_alone);
        let sent = if has_space {
            send(link, conn, sends, core, key.index, segments, op)
        } else {
            send_after_look(link, &mut common.connections, core, (key, is_alone), segments, op)
        };
        match sent {
            Ok(()) => {
                if !link.is_busy || !link.is_active {
                    self.has_sends(common, at);
                }
                Ok(())
            }
            Err(NotSent::Full) => {
                is_full(link, &mut common.connections, core);
                // The peer must wake us after it has taken unreliable messages, since nothing else shows it.
                self.schedule.make_busy(link);
                Err(SendError::WouldBlock)
            }
            Err(NotSent::Corrupt) => {
                self.kill(common, core, at);
                Err(SendError::Disconnected)
            }
            Err(NotSent::Error(error)) => Err(error),
        }
    }

    /// Sends messages of a burst on a connection, from the first on, as far as there is space.
    #[inline]
    pub fn send_burst(
        &mut self,
        common: &mut Common,
        core: &mut Core,
        key: Key,
        burst: &Burst<'_>,
        op: SendOp,
    ) -> Taken {
        let Connections { conns, sends, .. } = &mut common.connections;
        let Some(conn) = conns.open(key) else { return Taken::default() };
        let at = conn.on.link;
        let is_alone = self.table.len() < 2;
        let Some(link) = self.table.get_mut(at) else { return Taken::default() };
        if !has_space(&conn, sends, link, is_alone) {
            return Taken::default();
        }
        let space = if conn.on.is_reliable { sends.space_for(&link.out.fifo, is_alone) } else { u32::MAX };
        let (taken, sent) = send_some(link, conn, sends, core, (key.index, space), burst, op);
        if taken.messages > 0 && (!link.is_busy || !link.is_active) {
            self.has_sends(common, at);
        }
        if sent.is_err() {
            self.kill(common, core, at);
        }
        taken
    }

    /// Has a link maintained and polled from now on, since something was sent on it.
    #[cold]
    pub fn has_sends(&mut self, common: &Common, key: Key) {
        self.make_busy(key);
        self.make_active(key, common.connections.now_ns);
    }

    /// Starts an operation on a connection, and does as much of it as can be done now.
    pub fn start(
        &mut self,
        common: &mut Common,
        core: &mut Core,
        key: Key,
        operation: &NewOperation<'_>,
    ) -> Result<(), SendError> {
        let Common { connections, transfers, .. } = &mut *common;
        let Some(conn) = connections.conns.open(key) else { return Err(SendError::Disconnected) };
        let at = conn.on.link;
        let Some(link) = self.table.get_mut(at) else { return Err(SendError::Disconnected) };
        if transfers.start(link, connections, core, key, operation)?.is_err() {
            self.kill(common, core, at);
            return Ok(());
        }
        self.schedule.make_busy(link);
        self.make_active(at, common.connections.now_ns);
        Ok(())
    }

    /// What an operation that is done at once needs: the mapped memory of the connection's peer. `None` if none is mapped, or a
    /// fence must wait first.
    // Always inlined: the call alone was 1 % of a small operation.
    #[inline(always)]
    pub fn initiator_at_once(
        &mut self,
        common: &mut Common,
        core: &mut Core,
        key: Key,
        fence: bool,
    ) -> Option<(&mut Initiator, &mut Out)> {
        let Common { connections, transfers, .. } = common;
        let on = connections.conns.open(key)?.on;
        let (at, flow_key, in_progress) = (on.link, on.flow(), on.in_progress);
        // The memory of a peer that is gone may not be used.
        let link = self.table.get_mut(at).filter(|link| link.life == Life::Up)?;
        link.transfers.initiator.as_ref()?;
        if fence {
            if flow_key.is_some_and(|flow_key| transfers.operations(flow_key) > 0) {
                return None;
            }
            if in_progress > 0 {
                // If the peer's position is impossible, the next poll finds that as well.
                link.complete_taken(connections, core).ok()?;
                if connections.conns.open(key).is_none_or(|conn| conn.on.in_progress > 0) {
                    return None;
                }
            }
        }
        let Link { transfers, out, .. } = link;
        Some((transfers.initiator.as_mut()?, out))
    }

    /// Grants a region that is only for one connection to its peer, if the peer maps the memory already.
    pub fn announce(&mut self, common: &mut Common, core: &mut Core, key: Key, region_id: u64) {
        let Some(conn) = common.connections.conns.open(key) else { return };
        let (at, to) = (conn.on.link, conn.on.peer());
        let Some(link) = self.table.get_mut(at) else { return };
        match common.transfers.announce(link, to, core, region_id) {
            // When the message that names the region comes, the peer is awake or being woken.
            Ok(true) => link.out.flush(),
            Ok(false) => {}
            Err(_) => self.kill(common, core, at),
        }
    }

    /// Takes back all grants of one of our regions, which has ended.
    pub fn region_removed(&mut self, common: &mut Common, core: &mut Core, region_id: u64) {
        let affected = common.transfers.target.removed(&mut self.table, region_id);
        self.wake_for_records(common, core, affected);
    }

    /// Informs peers of memories of ours that they still map, although those have ended.
    #[cold]
    pub fn report_ended(&mut self, common: &mut Common, core: &mut Core) {
        let now_ns = common.connections.now_ns;
        let affected = common.transfers.target.report_ended(&mut self.table, now_ns);
        self.wake_for_records(common, core, affected);
    }

    /// Unmaps all memory of peers of which no region is granted. Returns whether there was any.
    #[cold]
    pub fn release_kept(&mut self) -> bool {
        let mut has_released = false;
        for link in self.table.iter_mut() {
            if let Some(initiator) = &mut link.transfers.initiator {
                has_released |= initiator.release_due(u64::MAX);
            }
        }
        has_released
    }

    /// Wakes the peers of links that have a record about mappings.
    fn wake_for_records(&mut self, common: &mut Common, core: &mut Core, affected: Vec<Key>) {
        for key in affected {
            let Some(link) = self.table.get_mut(key) else { continue };
            link.out.flush();
            if link.out.control.len() > transfers::CONTROL_LEN_MAX {
                self.kill(common, core, key);
            } else {
                self.schedule.make_busy(link);
            }
        }
    }

    /// Puts a link on the list of those that are maintained.
    pub fn make_busy(&mut self, key: Key) {
        if let Some(link) = self.table.get_mut(key) {
            self.schedule.make_busy(link);
        }
    }

    fn make_active(&mut self, key: Key, now_ns: u64) {
        self.schedule.make_active(&mut self.table, key, now_ns);
    }

    /// Maintains some busy links, and looks at one that is idle.
    // Always inlined: it has one caller, and a share in the cost of each message.
    #[inline(always)]
    pub fn maintain(&mut self, common: &mut Common, core: &mut Core) {
        for _ in 0..self.schedule.busy().len().min(MAINTAINED_MAX) {
            let Some(key) = self.schedule.next_busy() else { break };
            self.maintain_one(common, core, key);
            self.schedule.had_turn(key);
        }
        if let Some(key) = self.schedule.next_idle(&self.table) {
            self.poll_idle(common, core, key);
        }
        self.schedule.retire_one(&mut self.table, common.connections.now_ns);
    }

    /// Maintains one busy link, and takes it off the list when nothing is under way any more.
    #[inline(always)]
    fn maintain_one(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.table.get_mut(key) else { return self.schedule.forget(key) };
        if turn::maintain(link, common, core).is_err() {
            return self.kill(common, core, key);
        }
        if link.consumer.is_stalled()
            || link.lacks_heavy_fence
            || link.life != Life::Up
            || link.out.bell_failed
        {
            self.poll_link(common, core, key);
        }
        if let Some(link) = self.table.get_mut(key)
            && !link.needs_maintenance()
        {
            self.schedule.make_quiet(link);
            self.end_if_unused(common, core, key);
        }
    }

    /// Polls an idle link, which becomes active if something had come.
    fn poll_idle(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        if !self.poll_link(common, core, key)
            && let Some(link) = self.table.get_mut(key)
            && !link.is_active
            && !link.armed
            && link.arm()
        {
            self.make_active(key, common.connections.now_ns);
        }
    }

    /// Drains the bell of a link, which the peer has rung.
    pub fn bell_rang(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.table.get_mut(key) else { return };
        link.out.bell_failed |= link.bell.drain().is_err();
        self.was_rung(common, core, key);
    }

    /// Polls a link whose peer has rung, by the bell or over the lifeline.
    pub fn was_rung(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        common.connections.counts.wakes_received += 1;
        let Some(link) = self.table.get_mut(key) else { return };
        link.rung = false;
        link.armed = false;
        if link.waits_for_progress() && link.complete_taken(&mut common.connections, core).is_err() {
            return self.kill(common, core, key);
        }
        self.poll_idle(common, core, key);
    }

    /// Prepares all links for sleep. Returns whether something must be done first.
    pub fn arm(&mut self, common: &mut Common, core: &mut Core) -> bool {
        for at in 0..self.schedule.busy().len() {
            let Some(&key) = self.schedule.busy().get(at) else { break };
            if let Some(link) = self.table.get_mut(key)
                && turn::before_sleep(link, common, core).is_err()
            {
                self.kill(common, core, key);
            }
            if self.arm_one(common, core, key) {
                return true;
            }
        }
        for at in 0..self.schedule.active().len() {
            let Some(&key) = self.schedule.active().get(at) else { break };
            if self.arm_one(common, core, key) {
                return true;
            }
        }
        false
    }

    fn arm_one(&mut self, common: &mut Common, core: &mut Core, key: Key) -> bool {
        let Some(link) = self.table.get_mut(key) else { return true };
        if link.is_unused() {
            self.end(common, core, key, DisconnectReason::Closed);
            return true;
        }
        turn::arm(link, common, core).unwrap_or_else(|_| {
            self.kill(common, core, key);
            true
        })
    }

    /// When the first link has something due; `u64::MAX` if none has. A link that waits for a receive buffer is polled again at
    /// `stalled_ns`.
    pub fn deadline_ns(&self, stalled_ns: u64) -> u64 {
        let mut next_ns = u64::MAX;
        for link in self.schedule.busy().iter().filter_map(|key| self.table.get(*key)) {
            next_ns = next_ns.min(link.out.deadline_ns).min(link.transfers.deadline_ns());
            if link.consumer.is_stalled() || link.lacks_heavy_fence {
                next_ns = next_ns.min(stalled_ns);
            }
        }
        next_ns
    }

    /// Closes an established connection, since the program has disconnected.
    pub fn disconnect(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(EstablishedConn { base, on }) = common.connections.conns.established(key) else { return };
        on.phase = Phase::Closing;
        let (at, flow_key, timeout_ns) = (on.link, on.flow(), base.send_timeout_ns());
        // The last reading of the clock may be old.
        common.connections.now_ns = clock::now_ns();
        let until_ns = common.connections.now_ns.saturating_add(timeout_ns);
        common.connections.closes_by(key, until_ns);
        if flow_key.is_some_and(|flow_key| common.transfers.delays_close(flow_key)) {
            return;
        }
        let Some(conn) = common.connections.conns.established(key) else { return };
        let Some(link) = self.table.get_mut(at) else { return };
        let sent = link.send_close(conn.on);
        link.out.flush();
        self.make_busy(at);
        if sent.is_err() {
            self.kill(common, core, at);
        }
    }

    /// Gives up connections whose CLOSE was not answered within the send timeout. What was sent on them may have arrived or not.
    pub fn give_up_closing(&mut self, common: &mut Common, core: &mut Core) {
        for key in common.connections.take_overdue_closing() {
            let Some(at) = common.connections.conns.established(key).map(|conn| conn.on.link) else {
                continue;
            };
            if let Some(link) = self.table.get_mut(at) {
                close::give_up(link, common, core, key);
            }
            common.connections.remove(core, key);
            self.end_if_unused(common, core, at);
        }
    }

    /// Handles the hang-up of a lifeline: the peer has given up the link, or died. What it has written until now is still
    /// delivered.
    pub fn peer_hung_up(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        let Some(link) = self.table.get_mut(key) else { return };
        if link.life != Life::Up {
            return;
        }
        // At most one ring full is read, so that a peer that lives and goes on writing can't keep this endpoint here.
        core.regions.pairs.clear();
        link.life = Life::Draining { until: link.consumer.head() + u64::from(link.ring_bytes) };
        core.poller.unwatch(link.lifeline.as_fd());
        self.make_busy(key);
        self.poll_link(common, core, key);
    }

    /// Ends a link on which the peer wrote something impossible.
    pub fn kill(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        common.connections.counts.link_corrupt += 1;
        self.end(common, core, key, DisconnectReason::Refused);
    }

    /// Ends a link if no connection uses it any more.
    fn end_if_unused(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        if self.table.get(key).is_some_and(|link| link.is_unused()) {
            self.end(common, core, key, DisconnectReason::Closed);
        }
    }

    /// Ends a link and all its connections.
    fn end(&mut self, common: &mut Common, core: &mut Core, key: Key, reason: DisconnectReason) {
        let Some(link) = self.table.get_mut(key) else { return };
        link.life = Life::Dead;
        let connections = &mut common.connections;
        // What the peer took before it died has arrived. If its read position is impossible, it is not known how much that is.
        let _ = link.complete_taken(connections, core);
        let conns = &mut connections.conns;
        let Out { fifo, lending, .. } = &mut link.out;
        connections.sends.end_some(fifo, Send::end, |ended| {
            complete(conns, core, &ended, Status::Disconnected);
            lending.ended(core, &ended, Status::Disconnected);
        });
        lending.end(core);
        common.transfers.end_flows(link, connections, core);
        let has_conns = link.conns > 0;
        common.transfers.target.link_ended(&self.table, key);
        if has_conns {
            connections.counts.links_died += 1;
            connections.end_all_on(core, key, reason);
            common.handshakes.fail_joining(connections, core, key);
        }
        self.remove(common, core, key);
    }

    fn remove(&mut self, common: &mut Common, core: &mut Core, key: Key) {
        core.regions.pairs.clear();
        let Some(mut link) = self.table.remove(&core.poller, key) else { return };
        // The peer may be asleep and not watch the lifeline, whose hang-up would wake it.
        link.out.flush();
        common.connections.counts.wakes_sent += link.out.wakes;
        transfers::report::keep_counts(&mut common.transfers, &link);
        self.schedule.forget(key);
    }

    /// Removes a connection from a link. If it was the last one, the link ends soon.
    pub fn leave(&mut self, key: Key) {
        if let Some(link) = self.table.get_mut(key) {
            link.conns = link.conns.saturating_sub(1);
            self.make_busy(key);
        }
    }

    /// Asks silent peers for a sign of life, if that is due.
    #[inline]
    pub fn keep_alive(&mut self, common: &mut Common, core: &mut Core) {
        let Connections { conns, keepalive, now_ns, .. } = &mut common.connections;
        keepalive.look(*now_ns, |key| {
            let Conn { base, state } = conns.get_mut(key)?;
            let link = match state {
                State::Established(on) if on.phase != Phase::Closing => self.table.get_mut(on.link),
                State::Gone => None,
                // Keepalive of a connection begins when it is established.
                State::Established(_) | State::Making { .. } => return None,
            };
            overdue::keep_alive(base, link, core, *now_ns)
        });
    }

    /// Replaces the send timeout of a connection.
    pub fn set_send_timeout(&mut self, common: &mut Common, key: Key, timeout_ns: u64) {
        let Some(Conn { base, state }) = common.connections.conns.get_mut(key) else { return };
        base.send_timeout_us = to_us(timeout_ns);
        if let State::Established(on) = state
            && on.in_progress > 0
            && let Some(link) = self.table.get_mut(on.link)
        {
            // A send under way must not outlive a later one, since the completions of a connection stay in order.
            let limit_ns = clock::now_ns().saturating_add(timeout_ns);
            overdue::bring_forward(link, &mut common.connections.sends, key.index, limit_ns);
        }
    }

    /// Replaces the keepalive of a connection; 0 switches it off.
    pub fn set_keepalive(&mut self, common: &mut Common, key: Key, timeout_ns: u64) {
        let connections = &mut common.connections;
        let Some(conn) = connections.conns.get_mut(key) else { return };
        conn.base.keepalive_us = if timeout_ns == 0 { 0 } else { to_us(timeout_ns) };
        connections.now_ns = clock::now_ns();
        if let Some(link) = conn.on().and_then(|on| self.table.get_mut(on.link)) {
            // Silence counts from now on.
            link.heard_ns = connections.now_ns;
        }
        connections.keepalive.set(key, timeout_ns != 0);
    }
}
