//! How the bytes of a handshake travel in datagrams that may be lost, repeated and reordered.

use super::wire::{Cookie, HANDSHAKE_HEADER_BYTES, Piece};
use crate::failure::Failure;
use crate::handshake::Handshake;
use crate::limits::{HANDSHAKE_BYTES_MAX, HANDSHAKE_DATAGRAM_BYTES, HANDSHAKE_PIECES_MAX};
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
const PIECE_BYTES: usize = HANDSHAKE_DATAGRAM_BYTES - HANDSHAKE_HEADER_BYTES;

pub(super) struct Shaking {
    pub handshake: Handshake,
    /// The responder's, for the initiator.
    pub cookie: Option<Cookie>,
    cookies: u8,
    /// The version that somebody says the responder speaks.
    pub version: Option<u8>,
    pub begun_ns: u64,
    pub until_ns: u64,
    /// When to ask again; never, for a side that only answers.
    pub repeat_ns: u64,
    interval_ns: u64,
    /// All that this side says, what the peer has of it, and what is being sent.
    said: Vec<u8>,
    acked: usize,
    sent: usize,
    /// A datagram is due even if there is nothing new in it.
    bare: bool,
    /// The next datagram is to be answered.
    asks: bool,
    /// What the peer said, without a gap; what came early.
    heard: u16,
    early: BTreeMap<u16, Vec<u8>>,
    /// It has failed; what it says about that is still sent, also to whoever has not got it.
    failed: bool,
}

impl Shaking {
    pub fn new(handshake: Handshake, now_ns: u64, initiator: bool) -> Shaking {
        let patience = if initiator { HANDSHAKE_NS_PATIENT } else { HANDSHAKE_NS_MAX };
        Shaking {
            handshake,
            cookie: None,
            cookies: 0,
            version: None,
            begun_ns: now_ns,
            until_ns: now_ns.saturating_add(patience),
            repeat_ns: if initiator { now_ns.saturating_add(REPEAT_NS) } else { u64::MAX },
            interval_ns: REPEAT_NS,
            said: Vec::new(),
            acked: 0,
            sent: 0,
            bare: false,
            asks: false,
            heard: 0,
            early: BTreeMap::new(),
            failed: false,
        }
    }

    /// What the handshake has to say is to be sent.
    pub fn say(&mut self) -> Result<(), Failure> {
        self.handshake.write(&mut self.said)?;
        if self.said.len() > HANDSHAKE_BYTES_MAX {
            return Err(Failure::Internal("the own certificates are too long"));
        }
        Ok(())
    }

    /// Takes a piece of what the peer says. The answers wait to be sent, also after an error.
    pub fn hear(&mut self, piece: &Piece<'_>) -> Result<(), Failure> {
        self.acked = self.acked.max(usize::from(piece.ack).min(self.said.len()));
        self.sent = self.sent.max(self.acked);
        if self.failed {
            self.bare = piece.asks;
            self.sent = if piece.asks { self.acked } else { self.sent };
            return Ok(());
        }
        if usize::from(piece.offset) + piece.bytes.len() > HANDSHAKE_BYTES_MAX {
            return Err(Failure::Malformed);
        }
        if piece.bytes.len() > PIECE_BYTES {
            // No honest peer's: what comes early is kept.
            return Ok(());
        }
        if piece.offset > self.heard {
            if self.early.len() < HANDSHAKE_PIECES_MAX {
                self.early.insert(piece.offset, piece.bytes.to_vec());
            }
        } else {
            self.hear_next(piece.offset, piece.bytes)?;
        }
        while let Some(early) = self.early.first_entry().filter(|early| *early.key() <= self.heard) {
            let (offset, bytes) = early.remove_entry();
            self.hear_next(offset, &bytes)?;
        }
        self.say()?;
        if piece.asks {
            self.sent = self.acked;
            self.bare = true;
        }
        Ok(())
    }

    /// With keys, each side says one message, which is one piece. One that does not prove right is nobody's, and changes nothing:
    /// the true one may still come.
    //= wire.md R-SEC-5
    pub fn hear_whole(&mut self, piece: &Piece<'_>) -> Result<(), Failure> {
        if piece.offset != 0 {
            return Err(Failure::Malformed);
        }
        if self.heard > 0 {
            // A repeat, as long as the first one and longer than the answer, which has not come.
            if piece.asks && piece.bytes.len() == usize::from(self.heard) {
                (self.sent, self.bare) = (0, true);
            }
            return Ok(());
        }
        self.handshake.read_whole(piece.bytes)?;
        self.heard = u16::try_from(piece.bytes.len()).unwrap_or(u16::MAX);
        self.say()
    }

    fn hear_next(&mut self, offset: u16, bytes: &[u8]) -> Result<(), Failure> {
        let new = bytes.get(usize::from(self.heard - offset)..).unwrap_or_default();
        if new.is_empty() {
            return Ok(());
        }
        // Bounded above: offset and length are of `HANDSHAKE_BYTES_MAX` at most.
        self.heard = self.heard.saturating_add(u16::try_from(new.len()).unwrap_or(u16::MAX));
        // The peer answers: it is there.
        self.interval_ns = REPEAT_NS;
        self.handshake.read(new)
    }

    /// It has failed. True: the peer is to be told why, so it stays for a little while.
    pub fn fail(&mut self, now_ns: u64) -> bool {
        let is_new = !std::mem::replace(&mut self.failed, true);
        let _ = self.handshake.write(&mut self.said);
        self.repeat_ns = u64::MAX;
        self.until_ns = now_ns.saturating_add(FAREWELL_NS);
        is_new && self.sent < self.said.len() && self.heard > 0
    }

    /// It has failed, and keeps its place until then at least: whoever begins handshakes that fail gets no further ones by that.
    pub fn stay(&mut self, until_ns: u64) {
        self.until_ns = self.until_ns.max(until_ns);
    }

    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Everything was said and heard, now.
    pub fn is_done(&self) -> bool {
        !self.failed && self.handshake.is_done()
    }

    /// All that this side has said.
    pub fn said(&self) -> &[u8] {
        &self.said
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
            // It speaks this version, or somebody says so; then there is as much time as ever.
            self.until_ns = self.begun_ns.saturating_add(HANDSHAKE_NS_PATIENT);
        }
        (self.sent, self.acked) = (0, 0);
    }

    /// The peer wants to see a cookie, to which what is said is bound: it is said anew.
    pub fn begin_anew_with(&mut self, handshake: Handshake, cookie: Cookie) -> Result<(), Failure> {
        self.handshake = handshake;
        self.said.clear();
        self.begin_again_with(cookie);
        self.say()
    }

    /// Somebody says that the responder speaks another version. Little is waited for from now on, unless it has given a cookie.
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
    pub fn succeed(&mut self, before: &Shaking, now_ns: u64) {
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
        self.bare || self.sent < self.said.len()
    }

    /// Writes the next datagram; its length. `around`: what is the same for all of them.
    pub fn emit(&mut self, around: Piece<'_>, out: &mut [u8]) -> Option<usize> {
        if !self.wants() {
            return None;
        }
        let bytes = self.said.get(self.sent..).unwrap_or_default();
        let bytes = bytes.get(..PIECE_BYTES).unwrap_or(bytes);
        let is_last = self.sent + bytes.len() == self.said.len();
        let piece = Piece {
            offset: u16::try_from(self.sent).ok()?,
            ack: self.heard,
            asks: self.asks && is_last,
            cookie: self.cookie,
            bytes,
            ..around
        };
        let len = piece.emit(out)?;
        self.sent += bytes.len();
        if is_last {
            (self.bare, self.asks) = (false, false);
        }
        Some(len)
    }

    /// Bytes held, about: most of them are TLS'.
    pub fn bytes(&self) -> usize {
        let early: usize = self.early.values().map(Vec::capacity).sum();
        size_of::<Shaking>() + self.said.capacity() + early + usize::from(self.heard) + (8 << 10)
    }
}

const _: () =
    assert!(PIECE_BYTES > 0 && HANDSHAKE_NS_MAX > 2 << 32, "a cookie is remembered as long as it is good");
