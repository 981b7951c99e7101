//! What a poll looks at.
//!
//! - *Hot* links, those active lately and at most [`HOT_MAX`], are looked at in every poll: one cache line each.
//! - All others are *cold*: their attention word is raised, so that a peer that writes rings our doorbell, which the
//!   kernel reports. One of them is looked at in every few polls besides, so that nothing can get lost.
//! - *Busy* links, those with sends, closing connections or stalls under way, are looked after now and then.
//! - The kernel is asked every [`KERNEL_POLL_NS`] at most: a system call in each poll would be the latency.

use super::handshake::ERRNO_DESCRIPTORS;
use super::link::{Life, Link};
use super::rma::grant::GRANT_BYTES;
use super::sleep::cool;
use super::{Shm, token};
use super::{doorbell, receive};
use crate::connection::DisconnectReason;
use crate::engine::core::Core;
use cci_memory::slab::{Key, Slab};
use cci_sys::clock;

/// Links looked at in every poll.
pub(super) const HOT_MAX: usize = 16;
/// So many stay hot however idle: looking at them costs next to nothing.
const HOT_IDLE_MAX: usize = 2;
/// A hot link with nothing for so long becomes cold.
const HOT_IDLE_NS: u64 = 200_000;
/// Polls between looks at the clock and the less urgent, at most: whoever waits for a message waits for these looks, too.
/// A program that polls seldom has them more often.
const POLLS_PER_CARE_MAX: u32 = 64;
/// When so much time has passed between them, they come sooner the next time; see [`KERNEL_POLL_NS`].
const CARE_NS_MAX: u64 = 10_000;
/// Polls with nothing there before a look at how far the peer of a hot link has read. Each look takes its cache line
/// away from it, and an answer, which says the same, may be on its way.
const POLLS_PER_LOOK: u32 = 64;
/// Between questions to the kernel, while polling.
const KERNEL_POLL_NS: u64 = 20_000;
/// The same right after the owner may have slept on the descriptor.
const KERNEL_DUE_NS: u64 = 2_000;
/// Busy links looked after in one go.
const CARE_MAX: usize = 32;
/// Grants taken from one peer at once.
const GRANTS_PER_POLL_MAX: u32 = 16;
/// Rounds of events taken from the kernel at once.
const KERNEL_ROUNDS_MAX: u32 = 4;

impl Shm {
    /// One poll.
    #[inline]
    pub(super) fn poll(&mut self, core: &mut Core) {
        if !self.is_ours() {
            return;
        }
        self.polls += 1;
        let mut at = 0;
        while let Some(&key) = self.hot.get(at) {
            self.poll_hot(core, key);
            // A link that ended has left the list, and another may have its place.
            if self.hot.get(at) == Some(&key) {
                at += 1;
            }
        }
        if self.polls >= self.polls_per_care || self.kernel_due {
            self.care(core);
        }
    }

    #[inline]
    fn poll_hot(&mut self, core: &mut Core, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        link.out.flush();
        let nothing = !link.consumer.is_stalled() && !link.consumer.may_have_more();
        let drained = if nothing { Ok(0) } else { receive::drain(link, &mut self.common, core) };
        let Ok(records) = drained else { return self.kill(core, key) };
        if records == 0 {
            link.idle_polls = link.idle_polls.wrapping_add(1);
            if link.tell_due {
                link.tell();
            }
            if link.idle_polls.is_multiple_of(POLLS_PER_LOOK)
                && (!link.out.fifo.is_empty() || link.out.wants_room())
                && link.complete_taken(&mut self.common.connections, core).is_err()
            {
                return self.kill(core, key);
            }
        }
        if link.transfers.has_work() {
            self.turn_transfers(core, key);
        }
        let Some(link) = self.links.get_mut(key) else { return };
        if link.conns == 0 || link.life != Life::Up || link.out.bell_failed {
            self.after_poll(core, key);
        } else if !link.is_busy && link.needs_care() {
            self.care_for(key);
        }
    }

    /// Looks at one link, whatever its temperature. Answers whether anything had come.
    pub(super) fn poll_link(&mut self, core: &mut Core, key: Key) -> bool {
        let Some(link) = self.links.get_mut(key) else { return false };
        link.out.flush();
        match receive::drain(link, &mut self.common, core) {
            Err(_) => {
                self.kill(core, key);
                true
            }
            Ok(records) => {
                if records > 0 {
                    self.make_hot(key);
                }
                if link_has_work(&self.links, key) {
                    self.turn_transfers(core, key);
                }
                self.after_poll(core, key);
                records > 0
            }
        }
    }

    /// A link may have come to its end.
    fn after_poll(&mut self, core: &mut Core, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        if link.out.bell_failed {
            return self.kill(core, key);
        }
        if let Life::Draining { until } = link.life {
            let rest = !link.consumer.is_stalled() && link.consumer.head() < until;
            let over = match link.consumer.peek() {
                Ok(record) => record.is_none() && rest,
                Err(_) => true,
            };
            if over || link.consumer.head() >= until {
                return self.end_link(core, key, DisconnectReason::Died);
            }
        }
        if link.conns == 0 {
            return self.drop_if_unused(core, key);
        }
        if !link.is_busy && link.needs_care() {
            self.care_for(key);
        }
    }

    /// Puts a link on the list of those with something under way.
    pub(super) fn care_for(&mut self, key: Key) {
        if let Some(link) = self.links.get_mut(key)
            && !link.is_busy
        {
            link.is_busy = true;
            self.busy.push(key);
        }
    }

    /// The less urgent: the clock, the kernel, busy links, one cold link.
    #[cold]
    fn care(&mut self, core: &mut Core) {
        let now_ns = clock::now_ns();
        self.polls = 0;
        self.polls_per_care = match now_ns.saturating_sub(self.common.connections.now_ns) {
            CARE_NS_MAX.. => (self.polls_per_care / 2).max(1),
            _ => (self.polls_per_care + 1).min(POLLS_PER_CARE_MAX),
        };
        self.common.connections.now_ns = now_ns;
        let since_ns = now_ns.saturating_sub(self.kernel_polled_ns);
        if since_ns >= KERNEL_POLL_NS || self.kernel_due && since_ns >= KERNEL_DUE_NS {
            self.kernel_due = false;
            self.ask_kernel(core);
        }
        for _ in 0..self.busy.len().min(CARE_MAX) {
            if self.next_busy >= self.busy.len() {
                self.next_busy = 0;
            }
            let Some(&key) = self.busy.get(self.next_busy) else { break };
            self.care_for_one(core, key);
            if self.busy.get(self.next_busy) == Some(&key) {
                self.next_busy += 1;
            }
        }
        self.look_at_a_cold_one(core);
        if self.hot.len() > HOT_IDLE_MAX {
            self.cool_idle();
        }
        self.time_out(core);
    }

    /// Looks after one busy link; takes it off the list when nothing is under way any more.
    fn care_for_one(&mut self, core: &mut Core, key: Key) {
        let Some(link) = self.links.get_mut(key) else {
            self.busy.retain(|busy| *busy != key);
            return;
        };
        link.out.flush();
        if link.tell_due {
            link.tell();
        }
        let mut fine = Ok(());
        if !link.is_hot && (!link.out.fifo.is_empty() || link.out.wants_room()) {
            fine = link.complete_taken(&mut self.common.connections, core).map(drop);
        }
        if fine.is_ok() && !link.out.control.is_empty() {
            fine = link.push_control();
            link.out.flush();
        }
        if fine.is_err() {
            return self.kill(core, key);
        }
        self.stamp(key);
        self.time_out_sends(core, key);
        if link_has_work(&self.links, key) {
            self.turn_transfers(core, key);
        }
        self.maintain_transfers(core, key, false);
        let Some(link) = self.links.get_mut(key) else { return };
        if link.consumer.is_stalled() || link.life != Life::Up || link.out.bell_failed {
            self.poll_link(core, key);
        }
        if let Some(link) = self.links.get_mut(key)
            && !link.needs_care()
        {
            link.is_busy = false;
            self.busy.retain(|busy| *busy != key);
            self.drop_if_unused(core, key);
        }
    }

    fn look_at_a_cold_one(&mut self, core: &mut Core) {
        if self.links.len() as usize <= self.hot.len() {
            return;
        }
        self.next_cold = if self.next_cold + 1 < self.link_places { self.next_cold + 1 } else { 0 };
        if let Some(key) = self.links.key_at(self.next_cold)
            && self.links.get(key).is_some_and(|link| !link.is_hot)
        {
            self.poll_cold(core, key);
        }
    }

    /// Looks at a cold link. One that had something becomes hot.
    fn poll_cold(&mut self, core: &mut Core, key: Key) {
        if !self.poll_link(core, key)
            && let Some(link) = self.links.get_mut(key)
            && !link.is_hot
            && !link.armed
            && cool(link)
        {
            self.make_hot(key);
        }
    }

    /// Polls a link directly from now on. When too many are hot, the one idle longest gives way.
    pub(super) fn make_hot(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        if link.is_hot {
            return;
        }
        link.is_hot = true;
        link.worked_ns = self.common.connections.now_ns;
        self.hot.push(key);
        if self.hot.len() > HOT_MAX {
            let idlest = self
                .hot
                .iter()
                .copied()
                .min_by_key(|key| self.links.get(*key).map_or(0, |link| link.worked_ns));
            if let Some(idlest) = idlest {
                self.make_cold(idlest);
            }
        }
    }

    /// Lets the peer ring from now on.
    fn make_cold(&mut self, key: Key) {
        self.hot.retain(|hot| *hot != key);
        let Some(link) = self.links.get_mut(key) else { return };
        link.is_hot = false;
        if cool(link) {
            // Not so idle after all.
            link.consumer.disarm();
            (link.armed, link.is_hot, link.worked_ns) = (false, true, self.common.connections.now_ns);
            self.hot.push(key);
        }
    }

    /// Hot links with nothing for a while.
    fn cool_idle(&mut self) {
        let now_ns = self.common.connections.now_ns;
        let idle = self.hot.iter().copied().find(|key| {
            self.links.get(*key).is_none_or(|link| now_ns.saturating_sub(link.worked_ns) > HOT_IDLE_NS)
        });
        if let Some(idle) = idle {
            self.make_cold(idle);
        }
    }

    /// Takes what the kernel has to report.
    pub(super) fn ask_kernel(&mut self, core: &mut Core) {
        self.kernel_polled_ns = self.common.connections.now_ns;
        self.common.connections.counts.kernel_polls += 1;
        let Some(mut events) = self.events.take() else { return };
        for _ in 0..KERNEL_ROUNDS_MAX {
            core.poller.ready(&mut events);
            for event in events.iter() {
                self.kernel_says(core, event.token);
            }
            if events.len() < super::KERNEL_EVENTS {
                break;
            }
        }
        self.events = Some(events);
    }

    fn kernel_says(&mut self, core: &mut Core, said: u64) {
        let index = token::index(said);
        match token::kind(said) {
            token::LISTENER => self.let_in(core),
            token::HAND => {
                if let Some(key) = self.common.hands.key_at(index).filter(|key| token::names(said, *key)) {
                    self.hand_ready(core, key);
                }
            }
            token::LIFELINE => {
                if let Some(key) = self.links.key_at(index).filter(|key| token::names(said, *key)) {
                    self.lifeline_ready(core, key);
                }
            }
            token::BELL => {
                if let Some(key) = self.links.key_at(index).filter(|key| token::names(said, *key)) {
                    self.bell_rang(core, key);
                }
            }
            // The engine's own.
            _ => {}
        }
    }

    fn bell_rang(&mut self, core: &mut Core, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        self.common.connections.counts.wakes_received += 1;
        link.out.bell_failed |= link.bell.drain().is_err();
        self.was_rung(core, key);
    }

    /// The peer rang, by its bell or over the lifeline.
    fn was_rung(&mut self, core: &mut Core, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        link.rung = false;
        link.armed = false;
        if link.waits_for_progress() && link.complete_taken(&mut self.common.connections, core).is_err() {
            return self.kill(core, key);
        }
        self.poll_cold(core, key);
    }

    /// The lifeline carries grants of memory, rings of the bell, and its end.
    fn lifeline_ready(&mut self, core: &mut Core, key: Key) {
        // Level-triggered: more than so many wait for the next time.
        for _ in 0..GRANTS_PER_POLL_MAX {
            let Some(link) = self.links.get(key) else { return };
            let mut buffer = [0; GRANT_BYTES];
            match link.lifeline.recv(&mut buffer, 2) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // This process has no descriptor free for a grant: what was asked for goes through the ring.
                Err(error) if error.raw_os_error() == Some(ERRNO_DESCRIPTORS) => {
                    self.common.connections.counts.system_errors += 1;
                    continue;
                }
                Ok(got) if got.len == 0 => return self.peer_hung_up(core, key),
                Ok(got) => {
                    let bytes = buffer.get(..got.len).unwrap_or_default();
                    if bytes == doorbell::RING && got.fds.is_empty() {
                        self.common.connections.counts.wakes_received += 1;
                        self.was_rung(core, key);
                        continue;
                    }
                    if self.grant_came(core, key, bytes, got.fds) {
                        continue;
                    }
                }
                Err(_) => {}
            }
            self.common.connections.counts.bad_handshake += 1;
            return self.kill(core, key);
        }
    }
}

fn link_has_work(links: &Slab<Box<Link>>, key: Key) -> bool {
    links.get(key).is_some_and(|link| link.transfers.has_work())
}
