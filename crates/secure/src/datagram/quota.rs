//! How much each host may have this side keep. Strangers, and holders of a good credential, cost memory; the quota of a host is
//! never more than what is free for the others, so that no host keeps another one out.

use super::table::Entry;
use super::{ANSWERS_MAX, Associations};
use std::collections::HashMap;
use std::hash::Hash;

/// A handshake of others' that takes longer than this makes room for others.
pub(super) const YIELD_NS: u64 = 1_000_000_000;

/// The handshakes in progress that one host has begun.
struct OfHost {
    count: usize,
    oldest: u32,
    begun_ns: u64,
}

impl<A: Copy + Eq + Hash> Associations<A> {
    fn host(&self, address: &A) -> A {
        (self.config.host_of)(address)
    }

    /// Makes sure that somebody at that address may begin a handshake, if need be by ending another one. False: its host has
    /// as many as are free for others, and all of them are young.
    //= wire.md R-SEC-17
    pub(super) fn admits_handshake(&mut self, from: A, now_ns: u64) -> bool {
        let mut by_host: HashMap<A, OfHost> = HashMap::new();
        let mut total = 0;
        for index in &self.in_progress {
            let Some(entry) = self.table.get(*index).filter(|entry| !entry.initiator) else { continue };
            let begun_ns = begun_ns(entry);
            total += 1;
            let first = OfHost { count: 0, oldest: *index, begun_ns };
            let host = by_host.entry(self.host(&entry.address)).or_insert(first);
            host.count += 1;
            if begun_ns < host.begun_ns {
                (host.oldest, host.begun_ns) = (*index, begun_ns);
            }
        }
        let free = self.config.handshakes_max.saturating_sub(total);
        let own = by_host.get(&self.host(&from));
        let own_count = own.map_or(0, |own| own.count);
        if own_count < free {
            return true;
        }
        let is_old = |of: &&OfHost| now_ns.saturating_sub(of.begun_ns) >= YIELD_NS;
        let most = by_host.values().max_by_key(|of| (of.count, u64::MAX - of.begun_ns));
        let yields = own
            .filter(is_old)
            .or_else(|| most.filter(|most| free == 0 && (most.count > own_count + 1 || is_old(most))));
        let Some(index) = yields.map(|of| of.oldest) else {
            self.counters.no_space += 1;
            return false;
        };
        self.remove(index);
        true
    }

    /// Whether one more answer may wait to be sent to that address, which may be forged.
    pub(super) fn admits_answer(&mut self, to: A) -> bool {
        let host = self.host(&to);
        let of_host = self.answers.iter().filter(|answer| self.host(&answer.to) == host).count();
        let is_admitted = of_host < ANSWERS_MAX.saturating_sub(self.answers.len());
        self.counters.no_space += u64::from(!is_admitted);
        is_admitted
    }

    /// The association counts from now on. False: there is no room for it.
    pub(super) fn count(&mut self, index: u32) -> bool {
        let Some(entry) = self.table.get(index) else { return false };
        if entry.counts {
            return true;
        }
        let (address, is_ours) = (entry.address, entry.initiator);
        if !self.admits_association(address, is_ours) {
            self.counters.no_space += 1;
            return false;
        }
        let Some(entry) = self.table.get_mut(index) else { return false };
        entry.counts = true;
        self.links += 1;
        self.counters.handshakes += 1;
        *self.by_host.entry((self.config.host_of)(&address)).or_default() += 1;
        true
    }

    /// It counts no longer.
    pub(super) fn uncount(&mut self, entry: &Entry<A>) {
        if !entry.counts {
            return;
        }
        self.links -= 1;
        let host = self.host(&entry.address);
        if let Some(count) = self.by_host.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.by_host.remove(&host);
            }
        }
    }

    fn of_host(&self, address: &A) -> usize {
        self.by_host.get(&self.host(address)).copied().unwrap_or(0) as usize
    }

    //= wire.md R-SEC-17
    fn admits_association(&mut self, address: A, is_ours: bool) -> bool {
        let free = self.config.associations_max.saturating_sub(self.links);
        if free > 0 && (is_ours || self.of_host(&address) < free) {
            return true;
        }
        // An association replaces the one before it with the same address.
        let current = self.addresses.get(&address).and_then(|state| state.current);
        if let Some(current) = current {
            self.remove(current);
            return true;
        }
        let host = self.host(&address);
        self.evict(|other| *other == host) || free == 0 && self.evict(|_| true)
    }

    /// Of the unused associations of such hosts, the one that was unused for the longest makes room, first of the host that
    /// has the most of all.
    fn evict(&mut self, such: impl Fn(&A) -> bool) -> bool {
        let (addresses, by_host, host_of) = (&self.addresses, &self.by_host, self.config.host_of);
        let unused = |address: &A| addresses.get(address).is_none_or(|state| state.users == 0);
        let candidates = self.table.iter_mut().filter_map(|(index, entry)| {
            let host = host_of(&entry.address);
            let fits = entry.counts && unused(&entry.address) && such(&host);
            let count = by_host.get(&host).copied().unwrap_or(0);
            Some((u32::MAX - count, entry.link.as_ref().filter(|_| fits)?.used_ns, index))
        });
        let first = candidates.min();
        first.map(|(_, _, index)| self.remove(index)).is_some()
    }
}

fn begun_ns<A>(entry: &Entry<A>) -> u64 {
    entry.in_progress.as_ref().map_or(0, |in_progress| in_progress.begun_ns)
}
