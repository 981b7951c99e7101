//! The side that answers a handshake. Nothing is remembered of anybody who has not shown a cookie.

use super::ask::prologue;
use super::shaking::Shaking;
use super::table::Entry;
use super::wire::{Piece, cookie_datagram};
use super::{Associations, COOKIES_MAX, Opened};
use crate::handshake::{Failure, Handshake};
use crate::identity::Method;
use std::hash::Hash;

/// A handshake of others' that takes longer than this makes room for others.
const YIELD_NS: u64 = 1_000_000_000;

impl<A: Copy + Eq + Hash> Associations<A> {
    /// The initiator says something.
    pub(super) fn answer(&mut self, from: A, piece: &Piece<'_>, now_ns: u64) -> Opened<'static> {
        if let Some(index) = self.known(from, piece) {
            return self.go_on(index, piece, now_ns);
        }
        //= wire.md R-SEC-7
        if self.is_own(from, piece.id) {
            self.counters.replayed += 1;
            return Opened::Dropped;
        }
        //= wire.md R-SEC-4
        if piece.offset != 0 || piece.receiver != 0 || piece.bytes.is_empty() {
            self.counters.unknown += 1;
            return Opened::Dropped;
        }
        match piece.cookie {
            Some(cookie) if self.jar.is_ours(cookie, from, piece.id, now_ns) => {
                self.begin_answer(from, piece, now_ns)
            }
            _ => self.give_cookie(from, piece, now_ns),
        }
    }

    /// The entry of a handshake that is known.
    fn known(&self, from: A, piece: &Piece<'_>) -> Option<u32> {
        let neighbour = self.neighbours.get(&from)?;
        let is_it = |index: &u32| {
            self.table.get(*index).is_some_and(|entry| entry.id == piece.id && !entry.initiator)
        };
        [neighbour.begun_there, neighbour.current, neighbour.before.map(|(before, _)| before)]
            .into_iter()
            .flatten()
            .find(is_it)
    }

    /// Whether this side began that handshake with the address: somebody gives it back what it said itself.
    fn is_own(&self, from: A, id: u64) -> bool {
        let Some(neighbour) = self.neighbours.get(&from) else { return false };
        let is_it = |index: u32| self.table.get(index).is_some_and(|entry| entry.id == id && entry.initiator);
        [neighbour.begun_here, neighbour.current, neighbour.before.map(|(before, _)| before)]
            .into_iter()
            .flatten()
            .any(is_it)
    }

    /// Answers by a cookie: with keys, only somebody who has one of ours, and each message only once.
    fn give_cookie(&mut self, from: A, piece: &Piece<'_>, now_ns: u64) -> Opened<'static> {
        if self.cookies.len() >= COOKIES_MAX {
            self.counters.no_room += 1;
            return Opened::Dropped;
        }
        //= wire.md R-SEC-5
        if self.config.credentials.method() == Method::Psk {
            let heard = self.hear_first(piece).and_then(|heard| match heard.peer() {
                Some(peer) => self.admit(from, peer).map(|_| ()),
                None => Err(Failure::Malformed),
            });
            if heard.is_err() {
                self.counters.refused += 1;
                return Opened::Dropped;
            }
            if !self.asked.insert(piece.id) {
                self.counters.replayed += 1;
                return Opened::Dropped;
            }
        }
        let Some(cookie) = self.jar.give(from, piece.id, now_ns) else { return Opened::Dropped };
        self.cookies.push_back((from, cookie_datagram(piece.sender, piece.id, cookie)));
        self.counters.cookies += 1;
        Opened::Taken
    }

    fn hear_first(&self, piece: &Piece<'_>) -> Result<Handshake, Failure> {
        let mut handshake = Handshake::respond(&self.config.credentials, &prologue(piece.id))?;
        handshake.read(piece.bytes)?;
        Ok(handshake)
    }

    /// The first piece came with a cookie.
    fn begin_answer(&mut self, from: A, piece: &Piece<'_>, now_ns: u64) -> Opened<'static> {
        let is_psk = self.config.credentials.method() == Method::Psk;
        if is_psk {
            let admitted = self.hear_first(piece).and_then(|heard| match heard.peer() {
                Some(peer) => self.admit(from, peer).map(|_| ()),
                None => Err(Failure::Malformed),
            });
            if admitted.is_err() {
                self.counters.refused += 1;
                return Opened::Dropped;
            }
        }
        if !self.makes_way(from, piece.id, is_psk, now_ns) {
            return Opened::Dropped;
        }
        if !self.begun.insert(piece.id) {
            self.counters.replayed += 1;
            return Opened::Dropped;
        }
        let Ok(handshake) = Handshake::respond(&self.config.credentials, &prologue(piece.id)) else {
            self.counters.refused += 1;
            return Opened::Dropped;
        };
        let entry = Entry {
            address: from,
            id: piece.id,
            initiator: false,
            peer_index: piece.sender,
            shaking: Some(Box::new(Shaking::new(handshake, now_ns, false))),
            link: None,
            is_ready: false,
            says_empty: false,
        };
        let Some(index) = self.insert(entry) else {
            self.counters.no_room += 1;
            return Opened::Dropped;
        };
        self.neighbours.entry(from).or_default().begun_there = Some(index);
        self.go_on(index, piece, now_ns)
    }

    /// Whether that handshake may begin: what is in its way is removed, or stays and the handshake is not answered.
    fn makes_way(&mut self, from: A, id: u64, is_psk: bool, now_ns: u64) -> bool {
        let (here, there) = match self.neighbours.get(&from) {
            Some(neighbour) => (neighbour.begun_here, neighbour.begun_there),
            None => (None, None),
        };
        let age_ns = |entry: &Entry<A>| {
            entry.shaking.as_ref().map_or(u64::MAX, |shaking| now_ns.saturating_sub(shaking.begun_ns))
        };
        //= wire.md R-SEC-7
        if here.and_then(|index| self.table.get(index)).is_some_and(|mine| mine.id < id) {
            return false;
        }
        if let Some(other) = there.and_then(|index| self.table.get(index))
            && !is_psk
            && age_ns(other) < YIELD_NS
        {
            self.counters.no_room += 1;
            return false;
        }
        [here, there].into_iter().flatten().for_each(|index| self.remove(index));
        let others = || {
            let entries = self.shaking.iter().filter_map(|index| Some((*index, self.table.get(*index)?)));
            entries.filter(|(_, entry)| !entry.initiator)
        };
        if others().count() < self.config.handshakes_max {
            return true;
        }
        let oldest = others().max_by_key(|(_, entry)| age_ns(entry));
        if let Some((index, _)) = oldest.filter(|(_, entry)| age_ns(entry) > YIELD_NS) {
            self.remove(index);
            return true;
        }
        self.counters.no_room += 1;
        false
    }

    fn go_on(&mut self, index: u32, piece: &Piece<'_>, now_ns: u64) -> Opened<'static> {
        let is_psk = self.config.credentials.method() == Method::Psk;
        let Some(entry) = self.table.get_mut(index) else { return Opened::Dropped };
        let Some(shaking) = &mut entry.shaking else {
            // With certificates the initiator waits for something sealed. With keys it needs nothing more.
            if !is_psk && piece.asks && entry.link.as_mut().is_some_and(|link| link.may_answer()) {
                entry.says_empty = true;
                self.ready(index);
            }
            return Opened::Taken;
        };
        if let Err(failure) = shaking.hear(piece) {
            self.fail(index, &failure, now_ns);
            return Opened::Dropped;
        }
        let is_done = shaking.is_done() && entry.link.is_none();
        self.ready(index);
        if is_done {
            match self.establish(index, now_ns) {
                Err(failure) => self.fail(index, &failure, now_ns),
                // With keys, whoever answers that can open what this side seals.
                Ok(()) if is_psk => {}
                Ok(()) => {
                    if let Some(entry) = self.table.get_mut(index) {
                        entry.says_empty = true;
                    }
                    self.confirm(index, now_ns);
                }
            }
        }
        Opened::Taken
    }
}
