//! What is done before sleeping: every peer is asked to ring, and then looked at once more.

use super::Shm;
use super::link::{Life, Link};
use crate::engine::core::Core;
use crate::transport::Armed;
use cci_memory::slab::Key;
use cci_sys::clock;

/// How often a sleeper whose receive buffers are all out looks for one: another thread may drop it.
const STALL_POLL_NS: u64 = 1_000_000;

impl Shm {
    /// Raises the attention words of all links and says how long one may sleep.
    pub(super) fn prepare_sleep(&mut self, core: &mut Core) -> Armed {
        if !self.is_ours() {
            return Armed::Sleep { deadline_ns: None };
        }
        self.common.connections.now_ns = clock::now_ns();
        self.kernel_due = true;
        // Those that were queued before do not keep a sleeper awake who waits for something else.
        let events_before = core.events_queued();
        for at in 0..self.busy.len() {
            let Some(&key) = self.busy.get(at) else { break };
            self.stamp(key);
            self.maintain_transfers(core, key, true);
            if self.arm_link(core, key) {
                return Armed::Pending;
            }
        }
        for at in 0..self.hot.len() {
            let Some(&key) = self.hot.get(at) else { break };
            if self.arm_link(core, key) {
                return Armed::Pending;
            }
        }
        if core.events_queued() > events_before {
            return Armed::Pending;
        }
        Armed::Sleep { deadline_ns: self.next_deadline_ns(STALL_POLL_NS) }
    }

    /// True: something is there.
    fn arm_link(&mut self, core: &mut Core, key: Key) -> bool {
        if let Some(link) = self.links.get_mut(key)
            && link.transfers.has_work()
        {
            match self.common.transfers.turn(link, &mut self.common.connections, core) {
                Ok(moved) if moved || link.transfers.at_once => return true,
                Ok(_) => {}
                Err(_) => {
                    self.kill(core, key);
                    return true;
                }
            }
        }
        let Some(link) = self.links.get_mut(key) else { return true };
        link.out.flush();
        if link.tell_due {
            link.tell();
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
        if (!link.armed || progress && !link.armed_for_progress) && cool(link) {
            link.consumer.disarm();
            link.armed = false;
            return true;
        }
        if !progress {
            return false;
        }
        // Once more, after the attention word is up: see the ring's protocol for sleeping.
        match link.complete_taken(&mut self.common.connections, core) {
            Ok(news) => news,
            Err(_) => {
                self.kill(core, key);
                true
            }
        }
    }
}

/// Raises a link's attention word. True: something is there already.
pub(super) fn cool(link: &mut Link) -> bool {
    link.armed = true;
    link.armed_for_progress = link.waits_for_progress();
    if link.armed_for_progress { link.consumer.arm_for_progress() } else { link.consumer.arm() }
}
