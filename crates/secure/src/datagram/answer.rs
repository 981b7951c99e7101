//! The side that answers a handshake. Nothing is remembered of anybody who has not shown a cookie.

use super::ask::prologue;
use super::in_progress::InProgress;
use super::quota::YIELD_NS;
use super::table::Entry;
use super::transmit::{Answer, AnswerKind};
use super::wire::{Cookie, FIRST_FRAGMENT_BYTES_MIN, Fragment, cookie_datagram, version_datagram};
use super::{Associations, Opened};
use crate::credentials::COOKIE_TAG_BYTES;
use crate::failure::Failure;
use crate::handshake::Handshake;
use crate::identity::Method;
use std::hash::Hash;

impl<A: Copy + Eq + Hash> Associations<A> {
    /// A fragment of the initiator's stream.
    pub(super) fn answer(&mut self, from: A, fragment: &Fragment<'_>, now_ns: u64) -> Opened<'static> {
        if let Some(index) = self.known(from, fragment) {
            return self.go_on(index, fragment, now_ns);
        }
        //= wire.md R-SEC-4
        if fragment.offset != 0 || fragment.receiver != 0 || fragment.bytes.len() < FIRST_FRAGMENT_BYTES_MIN {
            self.counters.unknown += 1;
            return Opened::Dropped;
        }
        let cookie = fragment.cookie.filter(|cookie| self.jar.is_ours(*cookie, from, fragment.id, now_ns));
        if let Err(failure) = self.check_first(from, fragment, cookie) {
            match failure {
                Failure::Own => self.counters.own += 1,
                _ => self.counters.refused += 1,
            }
            return Opened::Dropped;
        }
        match cookie {
            Some(cookie) => self.begin_answer(from, fragment, cookie, now_ns),
            None => self.give_cookie(from, fragment, now_ns),
        }
    }

    /// What the first fragment shows by itself: with keys that somebody who has one of ours, and may be at that address, says it,
    /// for this cookie; and that it is not this endpoint, whatever the address.
    //= wire.md R-SEC-5
    //= wire.md R-SEC-7
    fn check_first(&self, from: A, fragment: &Fragment<'_>, cookie: Option<Cookie>) -> Result<(), Failure> {
        if self.config.credentials.method() == Method::Certificate {
            let is_own = Handshake::is_own_certificates(self.own, fragment.bytes);
            return if is_own { Err(Failure::Own) } else { Ok(()) };
        }
        let mut handshake = self.respond(fragment.id, cookie)?;
        handshake.read(fragment.bytes)?;
        let peer = handshake.peer().ok_or(Failure::Malformed)?;
        self.admit(from, peer).map(drop)
    }

    fn respond(&self, id: u64, cookie: Option<Cookie>) -> Result<Handshake, Failure> {
        Handshake::respond(&self.config.credentials, self.own, &prologue(id, cookie))
    }

    /// The entry of a handshake that is known.
    fn known(&self, from: A, fragment: &Fragment<'_>) -> Option<u32> {
        let state = self.addresses.get(&from)?;
        let is_it = |index: &u32| {
            self.table.get(*index).is_some_and(|entry| entry.id == fragment.id && !entry.initiator)
        };
        [state.as_responder, state.current, state.before.map(|(before, _)| before)]
            .into_iter()
            .flatten()
            .find(is_it)
    }

    /// Answers by a cookie; with keys, to each message only once.
    fn give_cookie(&mut self, from: A, fragment: &Fragment<'_>, now_ns: u64) -> Opened<'static> {
        if !self.admits_answer(from) {
            return Opened::Dropped;
        }
        let key = self.config.credentials.key_of(fragment.bytes);
        //= wire.md R-SEC-5
        if key.is_some() && !self.asked.insert(fragment.id) {
            self.counters.replayed += 1;
            return Opened::Dropped;
        }
        let Some(cookie) = self.jar.give(from, fragment.id, now_ns) else { return Opened::Dropped };
        let tag = key.map_or([0; COOKIE_TAG_BYTES], |key| key.cookie_tag(fragment.id, &cookie.bytes()));
        let kind = AnswerKind::Cookie(cookie_datagram(fragment.sender, fragment.id, cookie, tag));
        self.answers.push_back(Answer { to: from, kind });
        self.counters.cookies += 1;
        Opened::Taken
    }

    /// Somebody begins a handshake of another version. With certificates this side answers so, otherwise not: he has
    /// not shown that he has a key.
    //= wire.md R-SEC-16
    pub(super) fn refuse_version(&mut self, from: A, sender: u32, id: u64) -> Opened<'static> {
        self.counters.versions += 1;
        let sends_version = self.config.credentials.method() == Method::Certificate;
        if !sends_version || !self.admits_answer(from) {
            return Opened::Dropped;
        }
        self.answers.push_back(Answer { to: from, kind: AnswerKind::Version(version_datagram(sender, id)) });
        Opened::Taken
    }

    /// The first fragment came with a cookie.
    fn begin_answer(
        &mut self,
        from: A,
        fragment: &Fragment<'_>,
        cookie: Cookie,
        now_ns: u64,
    ) -> Opened<'static> {
        let is_psk = self.config.credentials.method() == Method::Psk;
        if !self.may_begin(from, fragment.id, is_psk, now_ns) {
            return Opened::Dropped;
        }
        self.begun.insert(fragment.id);
        let Ok(handshake) = self.respond(fragment.id, Some(cookie).filter(|_| is_psk)) else {
            self.counters.refused += 1;
            return Opened::Dropped;
        };
        let entry = Entry {
            address: from,
            id: fragment.id,
            initiator: false,
            peer_index: fragment.sender,
            in_progress: Some(Box::new(InProgress::new(handshake, now_ns, false))),
            link: None,
            counts: false,
            is_ready: false,
            empty_is_due: false,
        };
        let Some(index) = self.insert(entry) else {
            self.counters.no_space += 1;
            return Opened::Dropped;
        };
        self.addresses.entry(from).or_default().as_responder = Some(index);
        self.go_on(index, fragment, now_ns)
    }

    /// Whether that handshake may begin: what is in its way is removed, or stays and the handshake is not answered.
    fn may_begin(&mut self, from: A, id: u64, is_psk: bool, now_ns: u64) -> bool {
        let (as_initiator, as_responder) = match self.addresses.get(&from) {
            Some(state) => (state.as_initiator, state.as_responder),
            None => (None, None),
        };
        let age_ns = |entry: &Entry<A>| {
            entry
                .in_progress
                .as_ref()
                .map_or(u64::MAX, |in_progress| now_ns.saturating_sub(in_progress.begun_ns))
        };
        //= wire.md R-SEC-7
        if as_initiator.and_then(|index| self.table.get(index)).is_some_and(|mine| mine.id < id) {
            return false;
        }
        if let Some(other) = as_responder.and_then(|index| self.table.get(index))
            && !is_psk
            && other.link.is_none()
            && age_ns(other) < YIELD_NS
        {
            self.counters.no_space += 1;
            return false;
        }
        if self.begun.contains(id) {
            self.counters.replayed += 1;
            return false;
        }
        // With certificates nothing is proved yet: the own one goes on until something is.
        let yielding = as_initiator.filter(|_| is_psk);
        [yielding, as_responder].into_iter().flatten().for_each(|index| self.remove(index));
        self.admits_handshake(from, now_ns)
    }

    fn go_on(&mut self, index: u32, fragment: &Fragment<'_>, now_ns: u64) -> Opened<'static> {
        let is_psk = self.config.credentials.method() == Method::Psk;
        let Some(entry) = self.table.get_mut(index) else { return Opened::Dropped };
        // With certificates the initiator waits for something sealed. With keys it needs nothing more.
        let answers = !is_psk && fragment.asks && entry.link.as_mut().is_some_and(|link| link.may_answer());
        entry.empty_is_due |= answers;
        let Some(in_progress) = &mut entry.in_progress else {
            if answers {
                self.ready(index);
            }
            return Opened::Taken;
        };
        match if is_psk { in_progress.hear_whole(fragment) } else { in_progress.hear(fragment) } {
            Ok(()) => {}
            // Anybody who saw the first message can say that, which has proved right before.
            Err(_) if is_psk => {
                self.counters.forged += 1;
                return Opened::Dropped;
            }
            Err(failure) => {
                self.fail(index, &failure, now_ns);
                return Opened::Dropped;
            }
        }
        let is_done = in_progress.is_done() && entry.link.is_none();
        self.ready(index);
        if is_done {
            match self.establish(index, now_ns) {
                Err(failure) => self.fail(index, &failure, now_ns),
                // Whether the peer can open what this side seals is seen when it seals something itself.
                Ok(()) if is_psk => {}
                // It goes on repeating its last words until it hears something sealed.
                Ok(()) => {
                    self.give_up_own(index);
                    if let Some(entry) = self.table.get_mut(index) {
                        entry.empty_is_due = true;
                    }
                }
            }
        }
        Opened::Taken
    }

    /// The peer has proved who it is in the handshake that it began: the own one with that address is not needed any more.
    //= wire.md R-SEC-7
    fn give_up_own(&mut self, theirs: u32) {
        let address = self.table.get(theirs).map(|entry| entry.address);
        let state = address.and_then(|address| self.addresses.get(&address));
        if let Some(own) = state.and_then(|state| state.as_initiator) {
            self.remove(own);
        }
    }
}
