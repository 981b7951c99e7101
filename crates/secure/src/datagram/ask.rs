//! The side that begins a handshake.

use super::cookie::is_same;
use super::in_progress::InProgress;
use super::table::Entry;
use super::wire::{Cookie, Fragment};
use super::{Associations, Opened};
use crate::credentials::COOKIE_TAG_BYTES;
use crate::failure::Failure;
use crate::handshake::Handshake;
use crate::identity::Method;
use std::hash::Hash;

/// How long a handshake that somebody else began at an address, and for which nothing was proved, keeps this side from beginning one.
const OTHERS_NS_MAX: u64 = 500_000_000;

/// What both sides announce, and which handshake it is. `cookie`: with keys, a message made with it is good for it alone.
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
        let addresses_max = self.config.associations_max + 2 * self.config.handshakes_max;
        if self.addresses.len() >= addresses_max && !self.addresses.contains_key(&to) {
            self.counters.no_space += 1;
            return;
        }
        let state = self.addresses.entry(to).or_default();
        if state.held.is_none() && body.len() <= self.config.datagram_bytes_max {
            (state.held, state.held_ns) = (Some(body.to_vec()), now_ns);
        } else {
            self.counters.waited += 1;
        }
        let (current, as_initiator, as_responder) = (state.current, state.as_initiator, state.as_responder);
        let has_waited = now_ns.saturating_sub(state.held_ns) >= OTHERS_NS_MAX;
        if let Some(current) = current {
            self.ready(current);
        } else if let Some(index) = as_responder.filter(|index| !has_waited || self.is_proved(*index)) {
            // The peer is about to make one; should its last datagram be lost, it must be asked for.
            if let Some(in_progress) = self.table.get_mut(index).and_then(|entry| entry.in_progress.as_mut())
            {
                in_progress.hurry(now_ns);
                self.due_ns = self.due_ns.min(in_progress.due_ns());
            }
        } else if as_initiator.is_none() {
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
        let as_responder = self.addresses.get(&to).and_then(|state| state.as_responder);
        let is_higher = |index: &u32| self.table.get(*index).is_some_and(|entry| entry.id > id);
        if let Some(as_responder) = as_responder.filter(is_higher) {
            self.remove(as_responder);
        }
    }

    /// Begins a handshake with that address.
    pub(super) fn ask(&mut self, to: A, now_ns: u64) {
        if self.asks() >= self.config.handshakes_max {
            self.counters.no_space += 1;
            if let Some(state) = self.addresses.get_mut(&to) {
                state.held = None;
            }
            return;
        }
        let made = self.begin(to, now_ns).and_then(|(id, in_progress)| {
            let entry = Entry {
                address: to,
                id,
                initiator: true,
                peer_index: 0,
                in_progress: Some(Box::new(in_progress)),
                link: None,
                counts: false,
                is_ready: false,
                empty_is_due: false,
            };
            self.give_up_theirs(to, id);
            self.insert(entry).ok_or(Failure::Internal("too many handshakes"))
        });
        let state = self.addresses.entry(to).or_default();
        match made {
            Ok(index) => {
                state.as_initiator = Some(index);
                self.ready(index);
            }
            Err(failure) => {
                state.fail(&failure, now_ns);
                state.held = None;
                self.counters.refused += 1;
            }
        }
    }

    /// Handshakes under way that this side began.
    pub(super) fn asks(&self) -> usize {
        let active = self.in_progress.iter().filter_map(|index| self.table.get(*index));
        active.filter(|entry| entry.initiator).count()
    }

    fn begin(&mut self, to: A, now_ns: u64) -> Result<(u64, InProgress), Failure> {
        let id = self.ids.next().ok_or(Failure::Internal("no randomness"))?;
        let key = self.key_for(to);
        let handshake = Handshake::initiate(&self.config.credentials, self.own, &prologue(id, None), key)?;
        let mut in_progress = InProgress::new(handshake, now_ns, true);
        in_progress.write_next()?;
        Ok((id, in_progress))
    }

    /// No cookie has come. Whoever got the first message will not answer it again, in case somebody else repeats it:
    /// another one is made.
    pub(super) fn ask_anew(&mut self, index: u32, now_ns: u64) {
        let Some(entry) = self.table.get(index) else { return };
        let address = entry.address;
        match self.begin(address, now_ns) {
            Err(failure) => self.fail(index, &failure, now_ns),
            Ok((id, mut in_progress)) => {
                let Some(entry) = self.table.get_mut(index) else { return };
                if let Some(before) = &entry.in_progress {
                    in_progress.succeed(before, now_ns);
                }
                entry.id = id;
                entry.peer_index = 0;
                entry.in_progress = Some(Box::new(in_progress));
                self.ready(index);
            }
        }
    }

    /// The entry with the handshake that this side began at that address.
    fn mine(&mut self, from: A, index: u32, id: u64) -> Option<&mut Entry<A>> {
        self.table.get_mut(index).filter(|entry| entry.address == from && entry.id == id && entry.initiator)
    }

    /// The responder wants to see that cookie in the initiator's datagrams.
    pub(super) fn take_cookie(
        &mut self,
        from: A,
        (index, id): (u32, u64),
        cookie: Cookie,
        tag: &[u8; COOKIE_TAG_BYTES],
    ) -> Opened<'static> {
        let (credentials, own) = (self.config.credentials.clone(), self.own);
        let entry = self.mine(from, index, id).filter(|entry| entry.peer_index == 0);
        let Some(in_progress) = entry.and_then(|entry| entry.in_progress.as_mut()) else {
            self.counters.unknown += 1;
            return Opened::Dropped;
        };
        if in_progress.cookie == Some(cookie) {
            return Opened::Taken;
        }
        let begun = match credentials.key_of(in_progress.outgoing()) {
            //= wire.md R-SEC-4
            Some(key) if !is_same(&key.cookie_tag(id, &cookie.bytes()), tag) => {
                self.counters.forged += 1;
                return Opened::Dropped;
            }
            // Somebody could make us begin again for ever.
            _ if !in_progress.may_take_cookie() => return Opened::Dropped,
            Some(key) => Handshake::initiate(&credentials, own, &prologue(id, Some(cookie)), Some(&key.name))
                .and_then(|handshake| in_progress.begin_anew_with(handshake, cookie)),
            None => {
                in_progress.begin_again_with(cookie);
                Ok(())
            }
        };
        if begun.is_ok() {
            self.ready(index);
        }
        Opened::Taken
    }

    /// The answer announces another version. Anybody may have forged that: it counts only if nothing else comes.
    pub(super) fn hear_version(
        &mut self,
        from: A,
        (index, id): (u32, u64),
        theirs: u8,
        now_ns: u64,
    ) -> Opened<'static> {
        self.counters.versions += 1;
        let entry = self.mine(from, index, id).filter(|entry| entry.peer_index == 0);
        let Some(in_progress) = entry.and_then(|entry| entry.in_progress.as_mut()) else {
            return Opened::Dropped;
        };
        in_progress.hear_version(theirs, now_ns);
        let due_ns = in_progress.due_ns();
        self.due_ns = self.due_ns.min(due_ns);
        Opened::Taken
    }

    /// A fragment of the responder's stream.
    pub(super) fn answered(&mut self, from: A, fragment: &Fragment<'_>, now_ns: u64) -> Opened<'static> {
        let index = fragment.receiver;
        let is_psk = self.config.credentials.method() == Method::Psk;
        let Some(entry) = self.mine(from, index, fragment.id) else {
            self.counters.unknown += 1;
            return Opened::Dropped;
        };
        // It asks because it has not heard that its answer came.
        let answers = fragment.asks && entry.link.as_mut().is_some_and(|link| link.may_answer());
        entry.empty_is_due |= answers;
        let Some(in_progress) = &mut entry.in_progress else {
            if answers {
                self.ready(index);
            }
            return Opened::Taken;
        };
        if in_progress.cookie.is_none() {
            self.counters.unknown += 1;
            return Opened::Dropped;
        }
        if is_psk {
            if in_progress.hear_whole(fragment).is_err() {
                self.counters.forged += 1;
                return Opened::Dropped;
            }
            entry.peer_index = fragment.sender;
        } else {
            if entry.peer_index == 0 {
                entry.peer_index = fragment.sender;
            }
            if let Err(failure) = in_progress.hear(fragment) {
                self.fail(index, &failure, now_ns);
                return Opened::Dropped;
            }
        }
        let is_done = in_progress.is_done() && entry.link.is_none();
        self.ready(index);
        if is_done {
            self.have_asked(index, now_ns);
        }
        Opened::Taken
    }

    /// This side has sent its whole stream.
    fn have_asked(&mut self, index: u32, now_ns: u64) {
        if let Err(failure) = self.establish(index, now_ns) {
            self.fail(index, &failure, now_ns);
            return;
        }
        if let Some(entry) = self.table.get_mut(index) {
            // So that the peer knows, if there is nothing else to be sent.
            entry.empty_is_due = true;
        }
        match self.config.credentials.method() {
            Method::Psk => self.confirm(index, now_ns),
            // The last flight is repeated until something sealed shows that the peer took it.
            Method::Certificate => self.promote(index, now_ns),
        }
    }
}
