//! What is due: repeats, ends, and looking through everything now and then.

use super::{Associations, FAILURE_NS, IDLE_NS_MAX, SWEEP_NS};
use crate::failure::Failure;
use crate::identity::Method;
use std::hash::Hash;

impl<A: Copy + Eq + Hash> Associations<A> {
    /// Does what is due: repeats, gives up, forgets.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        if now_ns < self.due_ns {
            return;
        }
        self.ask_the_silent(now_ns);
        // What is removed or finished meanwhile is looked at the next time.
        for at in (0..self.shaking.len()).rev() {
            if let Some(index) = self.shaking.get(at).copied() {
                self.shake(index, now_ns);
            }
        }
        if now_ns >= self.sweep_ns {
            self.sweep(now_ns);
            self.sweep_ns = now_ns.saturating_add(SWEEP_NS);
        }
        let handshakes = self.shaking.iter().filter_map(|index| self.table.get(*index)?.shaking.as_ref());
        let due_ns = handshakes.map(|shaking| shaking.due_ns()).min().unwrap_or(u64::MAX);
        let idle = self.table.len() == 0 && self.neighbours.is_empty();
        self.due_ns = due_ns.min(if idle { u64::MAX } else { self.sweep_ns });
    }

    /// Peers that have not answered for long may have forgotten the association: they are asked for another.
    /// They leave half of the places for handshakes to others: those for which there is none are asked later.
    fn ask_the_silent(&mut self, now_ns: u64) {
        let asks_max = self.config.handshakes_max.div_ceil(2);
        while self.asks() < asks_max
            && let Some(index) = self.silent.pop()
        {
            let Some(address) = self.table.get(index).map(|entry| entry.address) else { continue };
            let Some(neighbour) = self.neighbours.get(&address) else { continue };
            let theirs = neighbour.begun_there.filter(|theirs| self.is_proved(*theirs));
            if neighbour.current == Some(index) && neighbour.begun_here.or(theirs).is_none() {
                self.ask(address, now_ns);
            }
        }
    }

    fn shake(&mut self, index: u32, now_ns: u64) {
        let Some(entry) = self.table.get_mut(index) else { return };
        let Some(shaking) = &mut entry.shaking else { return };
        if now_ns >= shaking.until_ns {
            if shaking.has_failed() {
                self.remove(index);
            } else if entry.initiator || entry.link.is_none() {
                let (version, address) = (shaking.version, entry.address);
                let failure = version.map_or_else(|| self.silence(address), Failure::Version);
                self.fail(index, &failure, now_ns);
            } else {
                self.counters.timeouts += 1;
                self.remove(index);
            }
        } else if now_ns >= shaking.repeat_ns {
            let is_psk = self.config.credentials.method() == Method::Psk;
            if is_psk && entry.initiator && shaking.cookie.is_none() {
                self.ask_anew(index, now_ns);
            } else {
                shaking.repeat(now_ns);
                self.ready(index);
            }
        }
    }

    /// Nobody has answered there.
    fn silence(&self, address: A) -> Failure {
        let credentials = &self.config.credentials;
        let name = self.key_for(address).unwrap_or_else(|| credentials.own_name());
        let shown = match credentials.method() {
            Method::Psk => name,
            Method::Certificate => credentials.own_name(),
        };
        Failure::Silence(format!("{shown} ({})", credentials.method()))
    }

    /// Forgets what is too old.
    fn sweep(&mut self, now_ns: u64) {
        let mut gone = Vec::new();
        for (index, entry) in self.table.iter_mut() {
            let Some(link) = &mut entry.link else { continue };
            link.forget_keys();
            let neighbour = self.neighbours.get(&entry.address);
            let used = neighbour.is_some_and(|neighbour| neighbour.users > 0);
            let is_before = neighbour.and_then(|neighbour| neighbour.before).filter(|(of, _)| *of == index);
            let is_old = is_before.is_some_and(|(_, until_ns)| now_ns >= until_ns);
            if is_old || !used && now_ns.saturating_sub(link.used_ns) >= IDLE_NS_MAX {
                gone.push(index);
            }
        }
        gone.into_iter().for_each(|index| self.remove(index));
        self.neighbours.retain(|_, neighbour| {
            neighbour.failure.take_if(|(_, at_ns)| now_ns.saturating_sub(*at_ns) >= FAILURE_NS);
            if neighbour.current.or(neighbour.begun_here).or(neighbour.begun_there).is_none() {
                neighbour.held = None;
            }
            !neighbour.is_empty()
        });
    }
}
