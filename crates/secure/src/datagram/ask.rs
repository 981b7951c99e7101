//! The side that begins a handshake.

use super::cookie::is_same;
use super::shaking::Shaking;
use super::table::Entry;
use super::wire::{Cookie, Piece};
use super::{Associations, Opened};
use crate::credentials::COOKIE_TAG_BYTES;
use crate::failure::Failure;
use crate::handshake::Handshake;
use crate::identity::Method;
use std::hash::Hash;

/// How long a handshake that somebody else began at an address, and for which nothing was proved, keeps this side from beginning one.
const OTHERS_NS_MAX: u64 = 500_000_000;

/// What both sides say they do, and which handshake it is. `cookie`: with keys, what is said with it is good for it alone.
//= wire.md R-SEC-5
pub(super) fn prologue(id: u64, cookie: Option<Cookie>) -> Vec<u8> {
    let mut out = b"cci datagram 2".to_vec();
    out.extend_from_slice(&id.to_le_bytes());
    out.extend(cookie.iter().flat_map(Cookie::bytes));
    out
}

impl<A: Copy + Eq + Hash> Associations<A> {
    /// A datagram (its body alone) for an address without an association: begins a handshake if none is under way, and
    /// keeps the first datagram until it is done. Others are dropped: the protocol above repeats them.
    pub fn hold(&mut self, to: A, body: &[u8], now_ns: u64) {
        let neighbours_max = self.config.associations_max + 2 * self.config.handshakes_max;
        if self.neighbours.len() >= neighbours_max && !self.neighbours.contains_key(&to) {
            self.counters.no_room += 1;
            return;
        }
        let neighbour = self.neighbours.entry(to).or_default();
        if neighbour.held.is_none() && body.len() <= self.config.datagram_bytes_max {
            (neighbour.held, neighbour.held_ns) = (Some(body.to_vec()), now_ns);
        } else {
            self.counters.waited += 1;
        }
        let (current, begun_here, begun_there) =
            (neighbour.current, neighbour.begun_here, neighbour.begun_there);
        let has_waited = now_ns.saturating_sub(neighbour.held_ns) >= OTHERS_NS_MAX;
        if let Some(current) = current {
            self.ready(current);
        } else if let Some(index) = begun_there.filter(|index| !has_waited || self.is_proved(*index)) {
            // The peer is about to make one; should its last datagram be lost, it must be asked for.
            if let Some(shaking) = self.table.get_mut(index).and_then(|entry| entry.shaking.as_mut()) {
                shaking.hurry(now_ns);
                self.due_ns = self.due_ns.min(shaking.due_ns());
            }
        } else if begun_here.is_none() {
            self.ask(to, now_ns);
        }
    }

    /// Whether somebody has proved to be at the other end of that handshake. With keys that is so from the first message on; with
    /// certificates anybody who sees what is sent to an address can begin one in its name.
    pub(super) fn is_proved(&self, index: u32) -> bool {
        let is_psk = self.config.credentials.method() == Method::Psk;
        is_psk || self.table.get(index).is_some_and(|entry| entry.link.is_some())
    }

    /// The peer has begun a handshake that leads nowhere, and this side begins one beside it. One of the two goes on, by the rule
    /// for those that both begin at once.
    //= wire.md R-SEC-7
    fn give_up_theirs(&mut self, to: A, id: u64) {
        let there = self.neighbours.get(&to).and_then(|neighbour| neighbour.begun_there);
        let is_higher = |index: &u32| self.table.get(*index).is_some_and(|entry| entry.id > id);
        if let Some(there) = there.filter(is_higher) {
            self.remove(there);
        }
    }

    /// Begins a handshake with that address.
    pub(super) fn ask(&mut self, to: A, now_ns: u64) {
        if self.asks() >= self.config.handshakes_max {
            self.counters.no_room += 1;
            if let Some(neighbour) = self.neighbours.get_mut(&to) {
                neighbour.held = None;
            }
            return;
        }
        let made = self.begin(to, now_ns).and_then(|(id, shaking)| {
            let entry = Entry {
                address: to,
                id,
                initiator: true,
                peer_index: 0,
                shaking: Some(Box::new(shaking)),
                link: None,
                counts: false,
                is_ready: false,
                says_empty: false,
            };
            self.give_up_theirs(to, id);
            self.insert(entry).ok_or(Failure::Internal("too many handshakes"))
        });
        let neighbour = self.neighbours.entry(to).or_default();
        match made {
            Ok(index) => {
                neighbour.begun_here = Some(index);
                self.ready(index);
            }
            Err(failure) => {
                neighbour.fail(&failure, now_ns);
                neighbour.held = None;
                self.counters.refused += 1;
            }
        }
    }

    /// Handshakes under way that this side began.
    pub(super) fn asks(&self) -> usize {
        let under_way = self.shaking.iter().filter_map(|index| self.table.get(*index));
        under_way.filter(|entry| entry.initiator).count()
    }

    fn begin(&mut self, to: A, now_ns: u64) -> Result<(u64, Shaking), Failure> {
        let id = self.ids.next().ok_or(Failure::Internal("no randomness"))?;
        let key = self.key_for(to);
        let handshake = Handshake::initiate(&self.config.credentials, self.own, &prologue(id, None), key)?;
        let mut shaking = Shaking::new(handshake, now_ns, true);
        shaking.say()?;
        Ok((id, shaking))
    }

    /// No cookie has come. Whoever got the first message will not answer it again, in case somebody else repeats it:
    /// another one is made.
    pub(super) fn ask_anew(&mut self, index: u32, now_ns: u64) {
        let Some(entry) = self.table.get(index) else { return };
        let address = entry.address;
        match self.begin(address, now_ns) {
            Err(failure) => self.fail(index, &failure, now_ns),
            Ok((id, mut shaking)) => {
                let Some(entry) = self.table.get_mut(index) else { return };
                if let Some(before) = &entry.shaking {
                    shaking.succeed(before, now_ns);
                }
                entry.id = id;
                entry.peer_index = 0;
                entry.shaking = Some(Box::new(shaking));
                self.ready(index);
            }
        }
    }

    /// The entry with the handshake that this side began at that address.
    fn mine(&mut self, from: A, index: u32, id: u64) -> Option<&mut Entry<A>> {
        self.table.get_mut(index).filter(|entry| entry.address == from && entry.id == id && entry.initiator)
    }

    /// The responder wants to see that cookie with what is said.
    pub(super) fn take_cookie(
        &mut self,
        from: A,
        (index, id): (u32, u64),
        cookie: Cookie,
        tag: &[u8; COOKIE_TAG_BYTES],
    ) -> Opened<'static> {
        let (credentials, own) = (self.config.credentials.clone(), self.own);
        let entry = self.mine(from, index, id).filter(|entry| entry.peer_index == 0);
        let Some(shaking) = entry.and_then(|entry| entry.shaking.as_mut()) else {
            self.counters.unknown += 1;
            return Opened::Dropped;
        };
        if shaking.cookie == Some(cookie) {
            return Opened::Taken;
        }
        let begun = match credentials.key_of(shaking.said()) {
            //= wire.md R-SEC-4
            Some(key) if !is_same(&key.cookie_tag(id, &cookie.bytes()), tag) => {
                self.counters.forged += 1;
                return Opened::Dropped;
            }
            // Somebody could make us begin again for ever.
            _ if !shaking.may_take_cookie() => return Opened::Dropped,
            Some(key) => Handshake::initiate(&credentials, own, &prologue(id, Some(cookie)), Some(&key.name))
                .and_then(|handshake| shaking.begin_anew_with(handshake, cookie)),
            None => {
                shaking.begin_again_with(cookie);
                Ok(())
            }
        };
        if begun.is_ok() {
            self.ready(index);
        }
        Opened::Taken
    }

    /// Whoever answers says that it speaks another version. Anybody may have said that: if nothing else comes, it was true.
    pub(super) fn hear_version(
        &mut self,
        from: A,
        (index, id): (u32, u64),
        theirs: u8,
        now_ns: u64,
    ) -> Opened<'static> {
        self.counters.versions += 1;
        let entry = self.mine(from, index, id).filter(|entry| entry.peer_index == 0);
        let Some(shaking) = entry.and_then(|entry| entry.shaking.as_mut()) else { return Opened::Dropped };
        shaking.hear_version(theirs, now_ns);
        let due_ns = shaking.due_ns();
        self.due_ns = self.due_ns.min(due_ns);
        Opened::Taken
    }

    /// The responder says something.
    pub(super) fn answered(&mut self, from: A, piece: &Piece<'_>, now_ns: u64) -> Opened<'static> {
        let index = piece.receiver;
        let is_psk = self.config.credentials.method() == Method::Psk;
        let Some(entry) = self.mine(from, index, piece.id) else {
            self.counters.unknown += 1;
            return Opened::Dropped;
        };
        // It asks because it has not heard that its answer came.
        let answers = piece.asks && entry.link.as_mut().is_some_and(|link| link.may_answer());
        entry.says_empty |= answers;
        let Some(shaking) = &mut entry.shaking else {
            if answers {
                self.ready(index);
            }
            return Opened::Taken;
        };
        if shaking.cookie.is_none() {
            self.counters.unknown += 1;
            return Opened::Dropped;
        }
        if is_psk {
            if shaking.hear_whole(piece).is_err() {
                self.counters.forged += 1;
                return Opened::Dropped;
            }
            entry.peer_index = piece.sender;
        } else {
            if entry.peer_index == 0 {
                entry.peer_index = piece.sender;
            }
            if let Err(failure) = shaking.hear(piece) {
                self.fail(index, &failure, now_ns);
                return Opened::Dropped;
            }
        }
        let is_done = shaking.is_done() && entry.link.is_none();
        self.ready(index);
        if is_done {
            self.have_asked(index, now_ns);
        }
        Opened::Taken
    }

    /// Everything was said.
    fn have_asked(&mut self, index: u32, now_ns: u64) {
        if let Err(failure) = self.establish(index, now_ns) {
            self.fail(index, &failure, now_ns);
            return;
        }
        if let Some(entry) = self.table.get_mut(index) {
            // So that the peer knows, if there is nothing else to be said.
            entry.says_empty = true;
        }
        match self.config.credentials.method() {
            Method::Psk => self.confirm(index, now_ns),
            // The last flight is repeated until something sealed shows that the peer took it.
            Method::Certificate => self.promote(index, now_ns),
        }
    }
}
