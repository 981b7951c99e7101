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
        let there = self.peer(address).map(|(peer, _)| peer.has_name(name));
        let neighbour = self.neighbours.entry(address).or_default();
        let is_owned = neighbour.owner.as_ref().is_some_and(|owner| !owner.has_name(name));
        // A key has one name; a certificate may have both.
        let others = neighbour.expected.iter().any(|other| !other.eq_ignore_ascii_case(name));
        if is_owned || there == Some(false) && neighbour.users > 0 || is_psk && others {
            if neighbour.is_empty() {
                self.neighbours.remove(&address);
            }
            return false;
        }
        neighbour.expected.push(name.into());
        let asked_by_another_key = is_psk && neighbour.expected.len() == 1;
        let (begun_here, current) = (neighbour.begun_here, neighbour.current);
        let before = neighbour.before.map(|(before, _)| before);
        if there == Some(false) {
            [current, before].into_iter().flatten().for_each(|index| self.remove(index));
        }
        if let Some(index) = begun_here.filter(|_| asked_by_another_key) {
            self.remove(index);
            if self.neighbours.get(&address).is_some_and(|neighbour| neighbour.held.is_some()) {
                self.ask(address, now_ns);
            }
        }
        true
    }

    /// One that was expected there is not any more.
    pub fn unexpect(&mut self, address: A, name: &str) {
        let Some(neighbour) = self.neighbours.get_mut(&address) else { return };
        if let Some(at) = neighbour.expected.iter().position(|expected| **expected == *name) {
            neighbour.expected.swap_remove(at);
        }
        if neighbour.current.is_none() {
            // It may have been for whoever was expected; if not, it is repeated.
            neighbour.held = None;
        }
        if neighbour.is_empty() {
            self.neighbours.remove(&address);
        }
    }

    /// Whether it is somebody who is expected at that address.
    pub(super) fn check_expected(&self, address: A, peer: &Identity) -> Result<(), Failure> {
        let expected =
            self.neighbours.get(&address).map(|neighbour| &neighbour.expected[..]).unwrap_or_default();
        match expected.iter().find(|name| !peer.has_name(name)) {
            Some(name) => Err(Failure::NotExpected(peer.to_string(), name.to_string())),
            None => Ok(()),
        }
    }

    /// The key by which to ask at that address: that of whom is expected there, or of whose it is while there are
    /// connections, or that of the association there is. `None`: the own one.
    pub(super) fn key_for(&self, address: A) -> Option<&str> {
        let neighbour = self.neighbours.get(&address)?;
        let expected = neighbour.expected.first().map(|name| &**name);
        let owner = neighbour.owner.as_ref().map(Identity::name);
        expected.or(owner).or_else(|| self.peer(address).map(|(peer, _)| peer.name()))
    }
}
