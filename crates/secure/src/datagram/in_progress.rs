//! How the bytes of a handshake travel in datagrams that may be lost, repeated and reordered.

use super::wire::{Cookie, Fragment, HANDSHAKE_HEADER_BYTES};
use crate::failure::Failure;
use crate::handshake::Handshake;
use crate::limits::{HANDSHAKE_BYTES_MAX, HANDSHAKE_DATAGRAM_BYTES, HANDSHAKE_FRAGMENTS_MAX};
use std::collections::BTreeMap;

/// A side that waits for an answer asks again after so long, and twice as long each time.
const REPEAT_NS: u64 = 30_000_000;
const REPEAT_NS_MAX: u64 = 1_000_000_000;
/// A handshake ends after so long, done or not: longer than a cookie is good.
pub(super) const HANDSHAKE_NS_MAX: u64 = 10_000_000_000;
/// One that this side began: then the next one may try.
pub(super) const HANDSHAKE_NS_PATIENT: u64 = 5_000_000_000;
/// How long a failed one stays, to say why.
const FAREWELL_NS: u64 = 200_000_000;
/// Cookies of a responder's that one handshake takes, one after the other.
const COOKIES_MAX: u8 = 16;
/// How long one waits for anything else that has heard of another version.
const VERSION_NS: u64 = 2_000_000_000;
const FRAGMENT_BYTES: usize = HANDSHAKE_DATAGRAM_BYTES - HANDSHAKE_HEADER_BYTES;

pub(super) struct InProgress {
    pub handshake: Handshake,
    /// The responder's, for the initiator.
    pub cookie: Option<Cookie>,
    cookies: u8,
    /// The version that an answer announced, which may be forged.
    pub version: Option<u8>,
    pub begun_ns: u64,
    pub until_ns: u64,
    /// When to ask again; never, for a side that only answers.
    pub repeat_ns: u64,
    interval_ns: u64,
    /// All that this side sends, how much of it the peer has, and what is being sent.
    outgoing: Vec<u8>,
    acked: usize,
    sent: usize,
    /// A datagram is due even if there is nothing new in it.
    bare: bool,
    /// The next datagram is to be answered.
    asks: bool,
    /// How much the peer sent without a gap; what came early.
    received: u16,
    early: BTreeMap<u16, Vec<u8>>,
    /// It has failed; what it writes about that is still sent, and repeated.
    failed: bool,
}

impl InProgress {
    pub fn new(handshake: Handshake, now_ns: u64, initiator: bool) -> InProgress {
        let patience = if initiator { HANDSHAKE_NS_PATIENT } else { HANDSHAKE_NS_MAX };
        InProgress {
            handshake,
            cookie: None,
            cookies: 0,
            version: None,
            begun_ns: now_ns,
            until_ns: now_ns.saturating_add(patience),
            repeat_ns: if initiator { now_ns.saturating_add(REPEAT_NS) } else { u64::MAX },
            interval_ns: REPEAT_NS,
            outgoing: Vec::new(),
            acked: 0,
            sent: 0,
            bare: false,
            asks: false,
            received: 0,
            early: BTreeMap::new(),
            failed: false,
        }
    }

    /// What the handshake has to say is to be sent.
    pub fn write_next(&mut self) -> Result<(), Failure> {
        self.handshake.write(&mut self.outgoing)?;
        if self.outgoing.len() > HANDSHAKE_BYTES_MAX {
            return Err(Failure::Internal("the own certificates are too long"));
        }
        Ok(())
    }

    /// Takes a fragment of the peer's stream. The answers wait to be sent, also after an error.
    pub fn hear(&mut self, fragment: &Fragment<'_>) -> Result<(), Failure> {
        self.acked = self.acked.max(usize::from(fragment.ack).min(self.outgoing.len()));
        self.sent = self.sent.max(self.acked);
        if self.failed {
            self.bare = fragment.asks;
            self.sent = if fragment.asks { self.acked } else { self.sent };
            return Ok(());
        }
        if usize::from(fragment.offset) + fragment.bytes.len() > HANDSHAKE_BYTES_MAX {
            return Err(Failure::Malformed);
        }
        if fragment.bytes.len() > FRAGMENT_BYTES {
            // No honest peer's: what comes early is kept.
            return Ok(());
        }
        if fragment.offset > self.received {
            if self.early.len() < HANDSHAKE_FRAGMENTS_MAX {
                self.early.insert(fragment.offset, fragment.bytes.to_vec());
            }
        } else {
            self.hear_next(fragment.offset, fragment.bytes)?;
        }
        while let Some(early) = self.early.first_entry().filter(|early| *early.key() <= self.received) {
            let (offset, bytes) = early.remove_entry();
            self.hear_next(offset, &bytes)?;
        }
        self.write_next()?;
        if fragment.asks {
            self.sent = self.acked;
            self.bare = true;
        }
        Ok(())
    }

    /// With keys, each side sends one message, which is one fragment. One that does not verify is ignored:
    /// the true one may still come.
    //= wire.md R-SEC-5
    pub fn hear_whole(&mut self, fragment: &Fragment<'_>) -> Result<(), Failure> {
        if fragment.offset != 0 {
            return Err(Failure::Malformed);
        }
        if self.received > 0 {
            // A repeat, as long as the first one and longer than the answer, which has not come.
            if fragment.asks && fragment.bytes.len() == usize::from(self.received) {
                (self.sent, self.bare) = (0, true);
            }
            return Ok(());
        }
        self.handshake.read_whole(fragment.bytes)?;
        self.received = u16::try_from(fragment.bytes.len()).unwrap_or(u16::MAX);
        self.write_next()
    }

    fn hear_next(&mut self, offset: u16, bytes: &[u8]) -> Result<(), Failure> {
        let new = bytes.get(usize::from(self.received - offset)..).unwrap_or_default();
        if new.is_empty() {
            return Ok(());
        }
        // Bounded above: offset and length are of `HANDSHAKE_BYTES_MAX` at most.
        self.received = self.received.saturating_add(u16::try_from(new.len()).unwrap_or(u16::MAX));
        // The peer answers: it is there.
        self.interval_ns = REPEAT_NS;
        self.handshake.read(new)
    }

    /// Marks it as failed. True: the peer is to learn why, so it stays for a little while.
    pub fn fail(&mut self, now_ns: u64) -> bool {
        let is_new = !std::mem::replace(&mut self.failed, true);
        let _ = self.handshake.write(&mut self.outgoing);
        self.repeat_ns = u64::MAX;
        self.until_ns = now_ns.saturating_add(FAREWELL_NS);
        is_new && self.sent < self.outgoing.len() && self.received > 0
    }

    /// Keeps a failed handshake until then at least: whoever begins handshakes that fail gets no further ones by that.
    pub fn stay(&mut self, until_ns: u64) {
        self.until_ns = self.until_ns.max(until_ns);
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Both streams are complete.
    pub fn is_done(&self) -> bool {
        !self.failed && self.handshake.is_done()
    }

    /// All that this side sends.
    pub fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// Whether one more cookie may be taken in place of the one there is.
    pub fn may_take_cookie(&mut self) -> bool {
        let may = self.cookies < COOKIES_MAX;
        self.cookies += u8::from(may);
        may
    }

    /// The peer wants to see a cookie with all that.
    pub fn begin_again_with(&mut self, cookie: Cookie) {
        self.cookie = Some(cookie);
        if self.version.take().is_some() {
            // It speaks this version, or somebody claims so; then it gets the full time again.
            self.until_ns = self.begun_ns.saturating_add(HANDSHAKE_NS_PATIENT);
        }
        (self.sent, self.acked) = (0, 0);
    }

    /// The peer wants to see a cookie, to which the stream is bound: the stream is made anew.
    pub fn begin_anew_with(&mut self, handshake: Handshake, cookie: Cookie) -> Result<(), Failure> {
        self.handshake = handshake;
        self.outgoing.clear();
        self.begin_again_with(cookie);
        self.write_next()
    }

    /// An answer announces that the responder speaks another version. The wait is short from now on, unless it has given a cookie.
    //= wire.md R-SEC-16
    pub fn hear_version(&mut self, theirs: u8, now_ns: u64) {
        if self.cookie.is_some() {
            return;
        }
        self.version = Some(theirs);
        self.until_ns = self.until_ns.min(now_ns.saturating_add(VERSION_NS));
    }

    /// It is time to ask again.
    pub fn repeat(&mut self, now_ns: u64) {
        self.sent = self.acked;
        (self.bare, self.asks) = (true, true);
        self.interval_ns = (self.interval_ns * 2).min(REPEAT_NS_MAX);
        self.repeat_ns = now_ns.saturating_add(self.interval_ns);
    }

    /// As the one before it: asks ever more rarely, and no longer than that one would have.
    pub fn succeed(&mut self, before: &InProgress, now_ns: u64) {
        self.interval_ns = (before.interval_ns * 2).min(REPEAT_NS_MAX);
        self.repeat_ns = now_ns.saturating_add(self.interval_ns);
        self.until_ns = before.until_ns;
        self.version = before.version;
    }

    /// The side that only answered wants something now.
    pub fn hurry(&mut self, now_ns: u64) {
        if self.repeat_ns == u64::MAX {
            self.interval_ns = REPEAT_NS;
            self.repeat_ns = now_ns.saturating_add(REPEAT_NS);
        }
    }

    pub fn due_ns(&self) -> u64 {
        self.repeat_ns.min(self.until_ns)
    }

    /// Something waits to be sent.
    pub fn wants(&self) -> bool {
        self.bare || self.sent < self.outgoing.len()
    }

    /// Writes the next datagram; its length. `around`: what is the same for all of them.
    pub fn emit(&mut self, around: Fragment<'_>, out: &mut [u8]) -> Option<usize> {
        if !self.wants() {
            return None;
        }
        let bytes = self.outgoing.get(self.sent..).unwrap_or_default();
        let bytes = bytes.get(..FRAGMENT_BYTES).unwrap_or(bytes);
        let is_last = self.sent + bytes.len() == self.outgoing.len();
        let fragment = Fragment {
            offset: u16::try_from(self.sent).ok()?,
            ack: self.received,
            asks: self.asks && is_last,
            cookie: self.cookie,
            bytes,
            ..around
        };
        let len = fragment.emit(out)?;
        self.sent += bytes.len();
        if is_last {
            (self.bare, self.asks) = (false, false);
        }
        Some(len)
    }

    /// Bytes held, about: most of them are TLS'.
    pub fn bytes(&self) -> usize {
        let early: usize = self.early.values().map(Vec::capacity).sum();
        size_of::<InProgress>() + self.outgoing.capacity() + early + usize::from(self.received) + (8 << 10)
    }
}

const _: () =
    assert!(FRAGMENT_BYTES > 0 && HANDSHAKE_NS_MAX > 2 << 32, "a cookie is remembered as long as it is good");
