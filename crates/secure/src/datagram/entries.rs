//! What handshakes and associations go through, whoever began them.

use super::link::Link;
use super::quota::YIELD_NS;
use super::table::Entry;
use super::{Associations, BEFORE_NS, FAREWELL_LOOK_NS};
use crate::failure::Failure;
use crate::handshake::Established;
use crate::identity::{Identity, Method, Rights};
use std::hash::Hash;

impl<A: Copy + Eq + Hash> Associations<A> {
    /// A handshake begins.
    pub(super) fn insert(&mut self, entry: Entry<A>) -> Option<u32> {
        let due_ns = entry.in_progress.as_ref().map_or(u64::MAX, |in_progress| in_progress.due_ns());
        let index = self.table.insert(entry)?;
        self.in_progress.push(index);
        self.due_ns = self.due_ns.min(due_ns).min(self.sweep_ns);
        Some(index)
    }

    pub(super) fn remove(&mut self, index: u32) {
        let Some(entry) = self.table.remove(index) else { return };
        self.uncount(&entry);
        self.last = None;
        self.in_progress.retain(|in_progress| *in_progress != index);
        if let Some(state) = self.addresses.get_mut(&entry.address) {
            state.forget(index);
            if state.is_empty() {
                self.addresses.remove(&entry.address);
            }
        }
    }

    /// There may be something to transmit.
    pub(super) fn ready(&mut self, index: u32) {
        if let Some(entry) = self.table.get_mut(index)
            && !std::mem::replace(&mut entry.is_ready, true)
        {
            self.ready.push_back(index);
        }
    }

    /// Whether that peer may be at that address now.
    pub(super) fn admit(&self, address: A, peer: &Identity) -> Result<Rights, Failure> {
        let rights = self.config.authorisation.rights(peer);
        if !rights.connect {
            return Err(Failure::NotAllowed(peer.to_string()));
        }
        //= wire.md R-SEC-8
        if let Some(now) = self.addresses.get(&address).and_then(|state| state.identity.as_ref())
            && now != peer
        {
            return Err(Failure::AnotherPeer(now.to_string(), peer.to_string()));
        }
        self.check_expected(address, peer)?;
        Ok(rights)
    }

    /// The handshake is done: there is an association, if the peer may be here. Whether it is used yet is
    /// [`Associations::confirm`]'s. One that others have asked for counts only then: whoever replays what was recorded gets
    /// this far.
    pub(super) fn establish(&mut self, index: u32, now_ns: u64) -> Result<(), Failure> {
        let entry = self.table.get_mut(index).ok_or(Failure::Internal("gone"))?;
        //= wire.md R-SEC-11
        let (initiator, responder) =
            if entry.initiator { (index, entry.peer_index) } else { (entry.peer_index, index) };
        let context =
            [&entry.id.to_le_bytes()[..], &initiator.to_le_bytes(), &responder.to_le_bytes()].concat();
        let in_progress = entry.in_progress.as_mut().ok_or(Failure::Internal("gone"))?;
        let made: Established = in_progress.handshake.finish(&context)?;
        let (address, is_ours) = (entry.address, entry.initiator);
        let rights = self.admit(address, &made.peer)?;
        if is_ours && !self.count(index) {
            return Err(Failure::Internal("too many associations"));
        }
        let link = Link::new(&made, rights, now_ns, self.config.update);
        if let Some(entry) = self.table.get_mut(index) {
            entry.link = Some(Box::new(link));
        }
        Ok(())
    }

    /// Something sealed by the peer has come for the first time. False: there is no room for it now, or somebody else has
    /// come to be at that address.
    pub(super) fn confirmed(&mut self, index: u32, now_ns: u64) -> bool {
        let Some(entry) = self.table.get_mut(index) else { return false };
        if entry.initiator {
            // With certificates the responder waits for the same.
            entry.empty_is_due = true;
            self.ready(index);
        } else {
            let Some(peer) = entry.link.as_ref().map(|link| link.peer.clone()) else { return false };
            let address = entry.address;
            let admitted = self.admit(address, &peer).map(drop).and_then(|()| match self.count(index) {
                true => Ok(()),
                false => Err(Failure::Internal("too many associations")),
            });
            if let Err(failure) = admitted {
                self.fail(index, &failure, now_ns);
                return false;
            }
        }
        self.confirm(index, now_ns);
        true
    }

    /// From now on this association is the address's.
    pub(super) fn confirm(&mut self, index: u32, now_ns: u64) {
        let Some(entry) = self.table.get_mut(index) else { return };
        let Some(link) = &mut entry.link else { return };
        link.is_confirmed = true;
        entry.in_progress = None;
        let address = entry.address;
        self.in_progress.retain(|in_progress| *in_progress != index);
        let before = self.addresses.get(&address).and_then(|state| state.before);
        if before.is_none_or(|(before, _)| before != index) {
            self.promote(index, now_ns);
        }
    }

    /// What is sent to the address is sealed by this association.
    pub(super) fn promote(&mut self, index: u32, now_ns: u64) {
        let Some(entry) = self.table.get(index) else { return };
        let (address, peer) = (entry.address, entry.link.as_ref().map(|link| &link.peer));
        let state = self.addresses.entry(address).or_default();
        if state.users > 0 && state.identity.is_none() {
            state.identity = peer.cloned();
        }
        let replaced = state.current.filter(|current| *current != index);
        let too_old = replaced.and_then(|_| state.before.take()).map(|(before, _)| before);
        state.current = Some(index);
        state.failure = None;
        for of in [&mut state.as_initiator, &mut state.as_responder] {
            of.take_if(|of| *of == index);
        }
        if let Some(replaced) = replaced {
            state.before = Some((replaced, now_ns.saturating_add(BEFORE_NS)));
        }
        self.last = None;
        self.ready(index);
        too_old.into_iter().for_each(|index| self.remove(index));
        match replaced {
            Some(replaced) => self.succeed(index, replaced),
            None => self.forget_others(address, index),
        }
    }

    /// Where the last association of an address made room for this one, the one before it may be another peer's: then it is
    /// removed.
    fn forget_others(&mut self, address: A, index: u32) {
        let peer_of =
            |index| self.table.get(index).and_then(|entry| entry.link.as_ref()).map(|link| &link.peer);
        let before = self.addresses.get(&address).and_then(|state| state.before);
        if let Some((before, _)) = before.filter(|(before, _)| peer_of(*before) != peer_of(index)) {
            self.remove(before);
        }
    }

    /// The last association of that address had another peer: nothing of that one's is taken for this one's.
    pub(super) fn succeed(&mut self, index: u32, replaced: u32) {
        let before = self.table.get_mut(replaced).and_then(|entry| entry.link.take());
        let same = match (&before, self.table.get_mut(index).and_then(|entry| entry.link.as_mut())) {
            (Some(before), Some(link)) => {
                link.inherit(before);
                before.peer == link.peer
            }
            _ => false,
        };
        if let Some(entry) = self.table.get_mut(replaced) {
            entry.link = before;
        }
        if !same {
            self.remove(replaced);
        }
    }

    /// The handshake has failed.
    pub(super) fn fail(&mut self, index: u32, failure: &Failure, now_ns: u64) {
        let Some(entry) = self.table.get_mut(index) else { return };
        let (address, initiator) = (entry.address, entry.initiator);
        // TLS sends an alert. With keys there is nothing to be sent, and nobody to send it to.
        let is_tls = self.config.credentials.method() == Method::Certificate
            && matches!(failure, Failure::Certificate(_) | Failure::Malformed);
        let answers_why = is_tls
            && entry.link.is_none()
            && entry.in_progress.as_mut().is_some_and(|in_progress| in_progress.fail(now_ns));
        //= wire.md R-SEC-17
        let stays = is_tls && !initiator && entry.link.is_none();
        if let Some(in_progress) = entry.in_progress.as_mut().filter(|_| stays) {
            in_progress.stay(in_progress.begun_ns.saturating_add(YIELD_NS));
        }
        match failure {
            Failure::Silence(_) => self.counters.timeouts += 1,
            _ => self.counters.refused += 1,
        }
        if answers_why {
            self.ready(index);
        } else if !stays {
            self.remove(index);
        }
        if initiator {
            if failure.is_final() && self.failures.len() < self.config.handshakes_max {
                self.failures.push_back((address, failure.clone()));
            }
            let state = self.addresses.entry(address).or_default();
            state.fail(failure, now_ns);
            state.held = None;
        }
        self.due_ns = self.due_ns.min(self.sweep_ns).min(now_ns.saturating_add(FAREWELL_LOOK_NS));
    }
}
