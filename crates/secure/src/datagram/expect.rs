//! Whom this side wants to find at an address: nobody else gets an association there, and nothing is sent to anybody else.

use super::Associations;
use crate::failure::Failure;
use crate::identity::Identity;
use std::hash::Hash;

impl<A: Copy + Eq + Hash> Associations<A> {
    /// From now on somebody of that name must be at the address, until as many calls of [`Associations::unexpect`]. False:
    /// somebody else is there, with whom there are connections, or is expected there; nothing has changed.
    #[must_use]
    pub fn expect(&mut self, address: A, name: &str, now_ns: u64) -> bool {
        let is_psk = self.config.credentials.key_named(name).is_some();
        let is_named = self.peer(address).map(|(peer, _)| peer.has_name(name));
        let state = self.addresses.entry(address).or_default();
        let is_owned = state.identity.as_ref().is_some_and(|identity| !identity.has_name(name));
        // A key has one name; a certificate may have both.
        let others = state.expected.iter().any(|other| !other.eq_ignore_ascii_case(name));
        if is_owned || is_named == Some(false) && state.users > 0 || is_psk && others {
            if state.is_empty() {
                self.addresses.remove(&address);
            }
            return false;
        }
        state.expected.push(name.into());
        let asked_by_another_key = is_psk && state.expected.len() == 1;
        let (as_initiator, current) = (state.as_initiator, state.current);
        let before = state.before.map(|(before, _)| before);
        if is_named == Some(false) {
            [current, before].into_iter().flatten().for_each(|index| self.remove(index));
        }
        if let Some(index) = as_initiator.filter(|_| asked_by_another_key) {
            self.remove(index);
            if self.addresses.get(&address).is_some_and(|state| state.held.is_some()) {
                self.ask(address, now_ns);
            }
        }
        true
    }

    /// One that was expected there is not any more.
    pub fn unexpect(&mut self, address: A, name: &str) {
        let Some(state) = self.addresses.get_mut(&address) else { return };
        if let Some(at) = state.expected.iter().position(|expected| **expected == *name) {
            state.expected.swap_remove(at);
        }
        if state.current.is_none() {
            // It may have been for whoever was expected; if not, it is repeated.
            state.held = None;
        }
        if state.is_empty() {
            self.addresses.remove(&address);
        }
    }

    /// Whether it is somebody who is expected at that address.
    pub(super) fn check_expected(&self, address: A, peer: &Identity) -> Result<(), Failure> {
        let expected = self.addresses.get(&address).map(|state| &state.expected[..]).unwrap_or_default();
        match expected.iter().find(|name| !peer.has_name(name)) {
            Some(name) => Err(Failure::NotExpected(peer.to_string(), name.to_string())),
            None => Ok(()),
        }
    }

    /// The key by which to ask at that address: that of whom is expected there, or of whose it is while there are
    /// connections, or that of the association there is. `None`: the own one.
    pub(super) fn key_for(&self, address: A) -> Option<&str> {
        let state = self.addresses.get(&address)?;
        let expected = state.expected.first().map(|name| &**name);
        let identity = state.identity.as_ref().map(Identity::name);
        expected.or(identity).or_else(|| self.peer(address).map(|(peer, _)| peer.name()))
    }
}
