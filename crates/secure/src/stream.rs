//! Sealed streams: a handshake, then records. For anything that carries bytes in order.

use crate::endpoint_id::EndpointId;
use crate::failure::Failure;
use crate::handshake::Handshake;
use crate::identity::{Authorisation, Identity, Method, Rights};
use crate::keys::{Opener, Sealer};
use crate::limits::UpdateLimits;
use crate::limits::{
    HANDSHAKE_BYTES_MAX, HANDSHAKE_PARTS_MAX, HANDSHAKE_VERSION, RECORD_BODY_BYTES_MAX, RECORD_HEADER_BYTES,
    RECORD_OVERHEAD_BYTES, TAG_BYTES,
};
use crate::types::{Ahead, STREAM_MAGIC, StreamConfig};
use std::ops::RangeInclusive;

/// Bytes that a sealed stream begins with.
const PREAMBLE_BYTES: usize = 8;
const PROLOGUE: &[u8] = b"cci stream 2";
const EPOCH_MASK: u64 = 255;

/// The length of a record, of which none is empty.
const RECORD_BYTES: RangeInclusive<usize> =
    RECORD_OVERHEAD_BYTES + 1..=RECORD_OVERHEAD_BYTES + RECORD_BODY_BYTES_MAX;

const SEALED: u8 = 1;
const HANDSHAKE: u8 = 2;
/// The side that was dialled has seen the certificate of the other one, and takes it.
const DONE: u8 = 3;

/// One side of a sealed stream. It moves no bytes: its owner does.
///
/// First [`SealedStream::shake`] takes what comes and [`SealedStream::outgoing`] has what is to be written, until
/// [`SealedStream::peer`] gives the peer's identity. From then on all is records: [`SealedStream::seal`] and
/// [`SealedStream::open`], in the order of the stream.
pub struct SealedStream {
    state: State,
    outgoing: Vec<u8>,
    update: UpdateLimits,
}

enum State {
    /// Dialled by a peer that has sent nothing yet.
    Called(Box<StreamConfig>),
    Handshaking(Box<Handshaking>),
    Open(Box<Keys>),
    Over,
}

struct Handshaking {
    handshake: Handshake,
    authorisation: Authorisation,
    /// Who must be there, for the side that dials.
    expected: Option<Box<str>>,
    method: Method,
    initiator: bool,
    received: usize,
    parts: usize,
    /// This side has its keys; the peer has not confirmed yet.
    keys: Option<Box<Keys>>,
}

struct Keys {
    peer: Identity,
    endpoint: EndpointId,
    rights: Rights,
    sealer: Sealer,
    opener: Opener,
    opened: u64,
}

fn method_number(method: Method) -> u8 {
    match method {
        Method::Psk => 1,
        Method::Certificate => 2,
    }
}

//= wire.md R-SEC-12
fn preamble(method: Method) -> [u8; PREAMBLE_BYTES] {
    let [a, b, c, d] = STREAM_MAGIC;
    [a, b, c, d, HANDSHAKE_VERSION, method_number(method), 0, 0]
}

/// The version that these first bytes of a sealed stream say, if it is another one.
//= wire.md R-SEC-16
fn other_version(first: &[u8]) -> Option<u8> {
    match first {
        [magic @ .., version, _, _, _] if *magic == STREAM_MAGIC && *version != HANDSHAKE_VERSION => {
            Some(*version)
        }
        _ => None,
    }
}

impl SealedStream {
    /// The side that dials; its first bytes are in [`SealedStream::outgoing`]. `expected`: the name of who must be there. With
    /// pre-shared keys it is the one by which this side asks.
    ///
    /// # Errors
    ///
    /// The system has no randomness.
    pub fn dial(config: &StreamConfig, expected: Option<&str>) -> Result<SealedStream, Failure> {
        let handshake = Handshake::initiate(&config.credentials, config.own, PROLOGUE, expected)?;
        let method = config.credentials.method();
        let handshaking = Handshaking {
            handshake,
            authorisation: config.authorisation.clone(),
            expected: expected.map(Into::into),
            method,
            initiator: true,
            received: 0,
            parts: 0,
            keys: None,
        };
        let outgoing = preamble(method).to_vec();
        let mut stream = SealedStream {
            state: State::Handshaking(Box::new(handshaking)),
            outgoing,
            update: config.update,
        };
        stream.write_next()?;
        Ok(stream)
    }

    /// The side that was dialled. It sends nothing before the other one has, and with pre-shared keys nothing to whoever
    /// has none of ours.
    #[must_use]
    pub fn answer(config: &StreamConfig) -> SealedStream {
        let state = State::Called(Box::new(config.clone()));
        SealedStream { state, outgoing: Vec::new(), update: config.update }
    }

    /// What is to be written; the owner takes bytes off its front.
    pub fn outgoing(&mut self) -> &mut Vec<u8> {
        &mut self.outgoing
    }

    /// Something is to be written.
    #[must_use]
    #[inline]
    pub fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Who is there and what it may do; `None` before the handshake is over.
    #[must_use]
    pub fn peer(&self) -> Option<(&Identity, Rights)> {
        match &self.state {
            State::Open(keys) => Some((&keys.peer, keys.rights)),
            _ => None,
        }
    }

    /// Which endpoint of the peer's it is; `None` before the handshake is over.
    #[must_use]
    pub fn peer_endpoint(&self) -> Option<EndpointId> {
        match &self.state {
            State::Open(keys) => Some(keys.endpoint),
            _ => None,
        }
    }

    /// The handshake is over: all that comes and goes is records.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// How many bytes the next part of the handshake, or record, has, as far as `bytes` (its beginning) show: more than
    /// `bytes` has if it is not whole.
    ///
    /// # Errors
    ///
    /// No such thing begins like that.
    pub fn wanted(&self, bytes: &[u8]) -> Result<usize, Failure> {
        // A responder of another version begins as an initiator does. No part of ours begins like that.
        if matches!(self.state, State::Called(..)) || !self.is_open() && bytes.starts_with(&STREAM_MAGIC) {
            return Ok(PREAMBLE_BYTES);
        }
        match bytes {
            [low, high, kind, ..] => {
                let len = RECORD_HEADER_BYTES + usize::from(u16::from_le_bytes([*low, *high]));
                let fits = match *kind {
                    SEALED => RECORD_BYTES.contains(&len),
                    HANDSHAKE => {
                        let bytes = len - RECORD_HEADER_BYTES;
                        !self.is_open() && (1..=RECORD_BODY_BYTES_MAX).contains(&bytes)
                    }
                    DONE => !self.is_open() && len == RECORD_HEADER_BYTES,
                    _ => false,
                };
                if fits { Ok(len) } else { Err(Failure::Malformed) }
            }
            _ => Ok(RECORD_HEADER_BYTES),
        }
    }

    /// Takes one whole part of the peer's handshake, as long as [`SealedStream::wanted`] said.
    ///
    /// # Errors
    ///
    /// Why it goes no further. What [`SealedStream::outgoing`] has then says why, and may be written before the end.
    pub fn shake(&mut self, part: &[u8], now_ns: u64) -> Result<(), Failure> {
        let done = self.shake_on(part, now_ns);
        if done.is_err() {
            if let State::Handshaking(handshaking) = &mut self.state
                && handshaking.method == Method::Certificate
                && handshaking.received > 0
            {
                let _ = write_alert(&mut handshaking.handshake, &mut self.outgoing);
            }
            self.state = State::Over;
        }
        done
    }

    fn shake_on(&mut self, part: &[u8], now_ns: u64) -> Result<(), Failure> {
        match &mut self.state {
            State::Called(config) => {
                let method = config.credentials.method();
                if part != preamble(method) {
                    let Some(theirs) = other_version(part) else { return Err(Failure::Malformed) };
                    if method == Method::Certificate {
                        // With keys nobody gets a word who has not shown one.
                        self.outgoing.extend_from_slice(&preamble(method));
                    }
                    return Err(Failure::Version(theirs));
                }
                let handshaking = Handshaking {
                    handshake: Handshake::respond(&config.credentials, config.own, PROLOGUE)?,
                    authorisation: config.authorisation.clone(),
                    expected: None,
                    method,
                    initiator: false,
                    received: 0,
                    parts: 0,
                    keys: None,
                };
                self.state = State::Handshaking(Box::new(handshaking));
                Ok(())
            }
            State::Handshaking(handshaking) if handshaking.received == 0 && other_version(part).is_some() => {
                Err(other_version(part).map_or(Failure::Malformed, Failure::Version))
            }
            State::Handshaking(handshaking) => match part {
                [_, _, DONE, 0] if handshaking.keys.is_some() => {
                    if let Some(keys) = handshaking.keys.take() {
                        self.state = State::Open(keys);
                    }
                    Ok(())
                }
                //= wire.md R-SEC-13
                [_, _, HANDSHAKE, 0, bytes @ ..] if !bytes.is_empty() => {
                    (handshaking.received, handshaking.parts) =
                        (handshaking.received + bytes.len(), handshaking.parts + 1);
                    if handshaking.received > HANDSHAKE_BYTES_MAX || handshaking.parts > HANDSHAKE_PARTS_MAX {
                        return Err(Failure::Malformed);
                    }
                    handshaking.handshake.read(bytes)?;
                    // Before this side answers.
                    if let Some(peer) = handshaking.handshake.peer() {
                        admit(&handshaking.authorisation, peer)?;
                    }
                    self.write_next()?;
                    self.establish(now_ns)
                }
                _ => Err(Failure::Malformed),
            },
            State::Open(_) | State::Over => Err(Failure::Malformed),
        }
    }

    fn write_next(&mut self) -> Result<(), Failure> {
        match &mut self.state {
            State::Handshaking(handshaking) => write_alert(&mut handshaking.handshake, &mut self.outgoing),
            _ => Ok(()),
        }
    }

    fn establish(&mut self, now_ns: u64) -> Result<(), Failure> {
        let State::Handshaking(handshaking) = &mut self.state else { return Ok(()) };
        if !handshaking.handshake.is_done() || handshaking.keys.is_some() {
            return Ok(());
        }
        let made = handshaking.handshake.finish(&[])?;
        let admitted = admit(&handshaking.authorisation, &made.peer)
            .and_then(|rights| check_expected(handshaking.expected.as_deref(), &made.peer).map(|()| rights));
        let rights = match admitted {
            Ok(rights) => rights,
            Err(failure) => {
                // What would have shown the peer that it is accepted.
                self.outgoing.clear();
                return Err(failure);
            }
        };
        let keys = Box::new(Keys {
            peer: made.peer,
            endpoint: made.endpoint,
            rights,
            sealer: Sealer::new(made.send, now_ns, self.update),
            opener: Opener::new(&made.receive),
            opened: 0,
        });
        match (handshaking.method, handshaking.initiator) {
            (Method::Psk, _) => self.state = State::Open(keys),
            //= wire.md R-SEC-13
            // Whether this side's certificate will do is not known yet.
            (Method::Certificate, true) => handshaking.keys = Some(keys),
            (Method::Certificate, false) => {
                self.outgoing.extend_from_slice(&[0, 0, DONE, 0]);
                self.state = State::Open(keys);
            }
        }
        Ok(())
    }

    /// Seals a whole record in place: room for the header ([`RECORD_HEADER_BYTES`]), the body, room for the tag. False: the
    /// stream is not open, or the body is too long, or empty.
    #[must_use]
    pub fn seal(&mut self, record: &mut [u8], now_ns: u64) -> bool {
        let State::Open(keys) = &mut self.state else { return false };
        let len = record.len();
        if !RECORD_BYTES.contains(&len) {
            return false;
        }
        // No record is lost between two others.
        keys.sealer.answered();
        let (epoch, _) = keys.sealer.next(now_ns);
        let [low, high] = u16::try_from(len - RECORD_HEADER_BYTES).unwrap_or(u16::MAX).to_le_bytes();
        //= wire.md R-SEC-14
        let head = [low, high, SEALED, (epoch & EPOCH_MASK) as u8];
        let (head_space, remainder) = record.split_at_mut(RECORD_HEADER_BYTES);
        let (body, tag_space) = remainder.split_at_mut(len - RECORD_OVERHEAD_BYTES);
        head_space.copy_from_slice(&head);
        let tag: [u8; TAG_BYTES] = keys.sealer.seal(&head, body);
        tag_space.copy_from_slice(&tag);
        true
    }

    /// Opens a whole record in place, as long as [`SealedStream::wanted`] said; what was in it. `None`: the peer has not
    /// sealed that, at this place of the stream: nothing that comes can be believed any more.
    pub fn open<'r>(&mut self, record: &'r mut [u8]) -> Option<&'r mut [u8]> {
        let State::Open(keys) = &mut self.state else { return None };
        let is_of_key_before = keys.epochs_ahead(record) == EPOCH_MASK;
        let body = keys.open(keys.opened, record)?;
        keys.opened += 1;
        if !is_of_key_before {
            keys.opener.forget_before();
        }
        Some(body)
    }

    /// Opens a copy of a record that its owner leaves where it was: the one that is `ahead` behind the next one. All
    /// before it were opened so as well. The stream goes on with [`SealedStream::advance`].
    pub fn open_ahead<'r>(&mut self, ahead: u64, record: &'r mut [u8]) -> Ahead<'r> {
        let State::Open(keys) = &mut self.state else { return Ahead::Forged };
        let epochs_ahead = keys.epochs_ahead(record);
        if ahead == 0 && epochs_ahead != EPOCH_MASK {
            // Whatever was sealed by the key before has been taken.
            keys.opener.forget_before();
        }
        if epochs_ahead == 1 && keys.opener.has_before() {
            return Ahead::Later;
        }
        match keys.open(keys.opened.saturating_add(ahead), record) {
            Some(body) => Ahead::Opened(body),
            None => Ahead::Forged,
        }
    }

    /// So many records that [`SealedStream::open_ahead`] has opened are taken: the next one is behind them.
    pub fn advance(&mut self, records: u64) {
        if let State::Open(keys) = &mut self.state {
            keys.opened += records;
        }
    }
}

impl Keys {
    /// How many epochs behind the current one this record says it is of, modulo their number in a header.
    fn epochs_ahead(&self, record: &[u8]) -> u64 {
        let epoch = record.get(RECORD_HEADER_BYTES - 1).copied().unwrap_or_default();
        u64::from(epoch).wrapping_sub(self.opener.number()) & EPOCH_MASK
    }

    /// Opens the record of that number in place.
    fn open<'r>(&mut self, number: u64, record: &'r mut [u8]) -> Option<&'r mut [u8]> {
        let (head, sealed) = record.split_at_mut_checked(RECORD_HEADER_BYTES)?;
        let [_, _, SEALED, epoch] = *head else { return None };
        self.opener.open(u64::from(epoch), EPOCH_MASK, number, head, sealed)
    }
}

fn admit(authorisation: &Authorisation, peer: &Identity) -> Result<Rights, Failure> {
    let rights = authorisation.rights(peer);
    if rights.connect { Ok(rights) } else { Err(Failure::NotAllowed(peer.to_string())) }
}

fn check_expected(expected: Option<&str>, peer: &Identity) -> Result<(), Failure> {
    match expected.filter(|name| !peer.has_name(name)) {
        Some(name) => Err(Failure::NotExpected(peer.to_string(), name.to_owned())),
        None => Ok(()),
    }
}

fn write_alert(handshake: &mut Handshake, outgoing: &mut Vec<u8>) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    let written = handshake.write(&mut bytes);
    for part in bytes.chunks(RECORD_BODY_BYTES_MAX) {
        let [low, high] = u16::try_from(part.len()).unwrap_or(u16::MAX).to_le_bytes();
        outgoing.extend_from_slice(&[low, high, HANDSHAKE, 0]);
        outgoing.extend_from_slice(part);
    }
    written
}

#[cfg(test)]
mod tests;
