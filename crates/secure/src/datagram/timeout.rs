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
        for at in (0..self.in_progress.len()).rev() {
            if let Some(index) = self.in_progress.get(at).copied() {
                self.shake(index, now_ns);
            }
        }
        if now_ns >= self.sweep_ns {
            self.sweep(now_ns);
            self.sweep_ns = now_ns.saturating_add(SWEEP_NS);
        }
        let handshakes =
            self.in_progress.iter().filter_map(|index| self.table.get(*index)?.in_progress.as_ref());
        let due_ns = handshakes.map(|in_progress| in_progress.due_ns()).min().unwrap_or(u64::MAX);
        let idle = self.table.len() == 0 && self.addresses.is_empty();
        self.due_ns = due_ns.min(if idle { u64::MAX } else { self.sweep_ns });
    }

    /// Peers that have not answered for long may have forgotten the association: they are asked for another.
    /// They take half of the handshakes at most; peers for which there is none are asked later.
    fn ask_the_silent(&mut self, now_ns: u64) {
        let asks_max = self.config.handshakes_max.div_ceil(2);
        while self.asks() < asks_max
            && let Some(index) = self.silent.pop()
        {
            let Some(address) = self.table.get(index).map(|entry| entry.address) else { continue };
            let Some(state) = self.addresses.get(&address) else { continue };
            let theirs = state.as_responder.filter(|theirs| self.is_proved(*theirs));
            if state.current == Some(index) && state.as_initiator.or(theirs).is_none() {
                self.ask(address, now_ns);
            }
        }
    }

    fn shake(&mut self, index: u32, now_ns: u64) {
        let Some(entry) = self.table.get_mut(index) else { return };
        let Some(in_progress) = &mut entry.in_progress else { return };
        if now_ns >= in_progress.until_ns {
            if in_progress.has_failed() {
                self.remove(index);
            } else if entry.initiator || entry.link.is_none() {
                let (version, address) = (in_progress.version, entry.address);
                let failure = version.map_or_else(|| self.silence(address), Failure::Version);
                self.fail(index, &failure, now_ns);
            } else {
                self.counters.timeouts += 1;
                self.remove(index);
            }
        } else if now_ns >= in_progress.repeat_ns {
            let is_psk = self.config.credentials.method() == Method::Psk;
            if is_psk && entry.initiator && in_progress.cookie.is_none() {
                self.ask_anew(index, now_ns);
            } else {
                in_progress.repeat(now_ns);
                self.ready(index);
            }
        }
    }

    /// Ends a handshake that nobody has answered.
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
            let state = self.addresses.get(&entry.address);
            let used = state.is_some_and(|state| state.users > 0);
            let is_before = state.and_then(|state| state.before).filter(|(of, _)| *of == index);
            let is_old = is_before.is_some_and(|(_, until_ns)| now_ns >= until_ns);
            if is_old || !used && now_ns.saturating_sub(link.used_ns) >= IDLE_NS_MAX {
                gone.push(index);
            }
        }
        gone.into_iter().for_each(|index| self.remove(index));
        self.addresses.retain(|_, state| {
            state.failure.take_if(|(_, at_ns)| now_ns.saturating_sub(*at_ns) >= FAILURE_NS);
            if state.current.or(state.as_initiator).or(state.as_responder).is_none() {
                state.held = None;
            }
            !state.is_empty()
        });
    }
}
