//! An attempt to connect: tries the paths to the peer one after the other, until one leads there.
//!
//! A path is given up for the next one only while the peer's program can't have seen the request: when nobody has answered,
//! or somebody else has. Once the peer's library has answered, its program may take its time, and a refusal is final.

use super::parts::{pack, unpack};
use super::uri::{KINDS, ORDER, Paths};
use super::{Any, uri};
use crate::ConnectFailure;
use crate::connection::Connection;
use crate::device::TransportKind;
use crate::engine::attempts::{Answer, Outcome as Recorded};
use crate::engine::core::{ConnState, Core};
use crate::error::ConnectError;
use crate::options::Attribute;
use crate::security::NO_NAMES;
use crate::transport::{Dial, PeerState, Report};
use cci_sys::clock;
use std::cmp::Reverse;

/// How long a path that is not the last may stay silent. It is a third of the attempt's time-out if that is less. A library
/// answers when its program or its progress thread polls.
const SILENCE_NS_MAX: u64 = 1_000_000_000;

/// Outcome of one path.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was not tried yet.
    Untried,
    /// The URI does not list it.
    Unlisted,
    /// This endpoint does not have it.
    Missing,
    /// Being tried.
    Started,
    /// It leads to the peer.
    Chosen,
    /// Nobody answered.
    Silent,
    /// The program expects a peer by name, and this path can't prove names.
    Nameless,
    /// The process there is not the one that the URI means.
    Disproved,
    /// The address is not valid on this machine.
    BadAddress,
    /// It could not be tried.
    NotStarted,
    Failed(ConnectFailure),
}

/// Outcomes of all kinds of paths, in the order of [`ORDER`].
pub(super) type Outcomes = [Outcome; KINDS];

/// An attempt in progress.
pub(super) struct Attempt {
    paths: Paths,
    pub outcomes: Outcomes,
    request: Vec<u8>,
    /// The name that the peer must prove, if one is expected.
    expected: Option<Box<str>>,
    attribute: Attribute,
    /// The program's context.
    context: u64,
    /// When the attempt times out; u64::MAX: never.
    until_ns: u64,
    /// Index of the path being tried.
    at: usize,
    /// All paths were tried, and the silent ones are tried a second time.
    again: bool,
    /// Why the last path failed.
    why: ConnectFailure,
}

impl Attempt {
    pub fn bytes(&self) -> u64 {
        let uris = self.paths.uris.iter().flatten().map(String::capacity).sum::<usize>();
        (size_of::<Attempt>() + self.request.capacity() + uris) as u64
    }

    /// Whether there is another path behind this one.
    fn has_more(&self) -> bool {
        self.outcomes.iter().skip(self.at + 1).any(|outcome| *outcome == Outcome::Untried)
    }

    fn note(&mut self, outcome: Outcome) {
        if let Some(noted) = self.outcomes.get_mut(self.at) {
            *noted = outcome;
        }
    }

    /// Goes on to the next path. False: all were tried.
    fn advance(&mut self) -> bool {
        let untried = |outcomes: &Outcomes| outcomes.iter().position(|outcome| *outcome == Outcome::Untried);
        if untried(&self.outcomes).is_none() && !self.again {
            // Peers that were silent may only have been busy.
            self.again = true;
            let silent = self.outcomes.iter_mut().filter(|outcome| **outcome == Outcome::Silent);
            silent.for_each(|outcome| *outcome = Outcome::Untried);
        }
        let next = untried(&self.outcomes);
        self.at = next.unwrap_or(self.at);
        next.is_some()
    }

    /// How long the present path may take before it is over, and how long it may be silent. None: for ever.
    fn limits_ns(&self, now_ns: u64) -> (Option<u64>, Option<u64>) {
        if self.until_ns == u64::MAX {
            return (None, self.has_more().then_some(SILENCE_NS_MAX));
        }
        let remaining_ns = self.until_ns.saturating_sub(now_ns);
        (Some(remaining_ns), self.has_more().then_some(SILENCE_NS_MAX.min(remaining_ns / 3)))
    }
}

impl Any {
    /// Starts an attempt to reach the peer of `to.uri`, which lists its addresses.
    pub(super) fn dial(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: &Dial<'_>,
    ) -> Result<u64, ConnectError> {
        let bad_uri = |reason| ConnectError::BadUri { uri: to.uri.to_owned(), reason };
        let paths = uri::parse(to.uri).map_err(bad_uri)?;
        let mut outcomes = [Outcome::Untried; KINDS];
        for ((outcome, kind), uri) in outcomes.iter_mut().zip(ORDER).zip(&paths.uris) {
            if uri.is_none() {
                *outcome = Outcome::Unlisted;
            } else if !uri.as_deref().is_some_and(|uri| self.leads_to(kind, uri)) {
                *outcome = Outcome::Missing;
            } else if to.expected.is_some() && kind == TransportKind::Shm {
                *outcome = Outcome::Nameless;
            }
        }
        let now_ns = clock::now_ns();
        let mut attempt = Attempt {
            paths,
            outcomes,
            request: to.request.to_vec(),
            expected: to.expected.map(Into::into),
            attribute: to.attribute,
            context: core.conn(connection).map_or(0, |conn| conn.context),
            until_ns: to.timeout_ns.map_or(u64::MAX, |ns| now_ns.saturating_add(ns)),
            at: 0,
            again: false,
            why: ConnectFailure::Refused,
        };
        if !attempt.advance() {
            if let Some(name) = to.expected {
                return Err(ConnectError::CannotExpect {
                    name: name.to_owned(),
                    reason: NO_NAMES.to_owned(),
                });
            }
            let missing: Vec<&str> = self.missing.iter().map(|missing| missing.kind.name()).collect();
            let reason = format!(
                "this endpoint has none of the paths it lists: it goes without {}",
                missing.join(", ")
            );
            return Err(bad_uri(reason));
        }
        match self.start(core, connection, &mut attempt) {
            Ok(link) => {
                self.counts.attempts += 1;
                self.attempts.insert(connection.to_bits(), attempt);
                self.settle_outcomes(core);
                Ok(link)
            }
            Err(ConnectError::BadUri { reason, .. }) => Err(bad_uri(reason)),
            Err(error) => Err(error),
        }
    }

    /// Starts the present path, or the next one that can be started. The error is that of the last one tried.
    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        attempt: &mut Attempt,
    ) -> Result<u64, ConnectError> {
        core.attempts.follow(connection);
        loop {
            let error = match self.start_one(core, connection, attempt) {
                Ok(link) => return Ok(link),
                Err(error) => error,
            };
            let (outcome, why) = match &error {
                ConnectError::BadUri { .. } => (Outcome::BadAddress, ConnectFailure::Refused),
                ConnectError::NoMemory => (Outcome::NotStarted, ConnectFailure::NoMemory),
                _ => (Outcome::NotStarted, ConnectFailure::Disconnected),
            };
            attempt.note(outcome);
            attempt.why = why;
            if !attempt.advance() {
                core.attempts.leave(connection);
                return Err(error);
            }
        }
    }

    fn start_one(
        &mut self,
        core: &mut Core,
        connection: Connection,
        attempt: &mut Attempt,
    ) -> Result<u64, ConnectError> {
        let now_ns = clock::now_ns();
        let (timeout_ns, silence_ns) = attempt.limits_ns(now_ns);
        let kind = ORDER.get(attempt.at).copied().unwrap_or(TransportKind::Any);
        let uri = attempt.paths.uris.get(attempt.at).and_then(Option::as_deref).unwrap_or_default();
        let dial = Dial {
            uri,
            request: &attempt.request,
            expected: attempt.expected.as_deref(),
            attribute: attempt.attribute,
            timeout_ns,
            is_one_of_several: true,
            proof: attempt.paths.id.filter(|_| kind == TransportKind::Shm),
        };
        let link = self.connect_by(core, kind, connection, dial)?;
        attempt.note(Outcome::Started);
        if let Some(silence_ns) = silence_ns {
            self.due.push(Reverse((now_ns.saturating_add(silence_ns), connection.to_bits())));
        }
        Ok(link)
    }

    /// Starts a connection over one part.
    pub(super) fn connect_by(
        &mut self,
        core: &mut Core,
        kind: TransportKind,
        connection: Connection,
        dial: Dial<'_>,
    ) -> Result<u64, ConnectError> {
        let index = self.index_for(core, kind, dial.uri)?;
        let part = self.parts.get_mut(index).ok_or(ConnectError::Unsupported)?;
        if dial.attribute.is_multicast() && !part.transport.about().offers_multicast {
            return Err(ConnectError::Unsupported);
        }
        let configured = part.expected.clone();
        let expected = match (configured.as_deref(), dial.expected) {
            (Some(configured), Some(asked)) if !configured.eq_ignore_ascii_case(asked) => {
                let reason = format!("the device that leads there connects to {configured} only");
                return Err(ConnectError::CannotExpect { name: asked.to_owned(), reason });
            }
            (configured, asked) => asked.or(configured),
        };
        let dial = Dial { expected, ..dial };
        let link = part.turn(core, |transport, core| transport.connect(core, connection, dial))?;
        part.busy = true;
        Ok(pack(index, link))
    }

    /// Handles the outcomes of paths since the last call.
    pub(super) fn settle_outcomes(&mut self, core: &mut Core) {
        while let Some(Recorded { connection, failure }) = core.attempts.next_outcome() {
            let Some(mut attempt) = self.attempts.remove(&connection.to_bits()) else { continue };
            let Some((answer, why)) = failure else {
                attempt.note(Outcome::Chosen);
                if let Some(conn) = core.conn(connection) {
                    self.paths.insert(conn.link, attempt.outcomes);
                }
                continue;
            };
            attempt.why = why;
            if answer == Answer::Stranger {
                self.counts.disproved += 1;
                attempt.note(Outcome::Disproved);
            } else {
                attempt.note(Outcome::Failed(why));
            }
            if answer == Answer::Peer {
                core.connect_failed(attempt.context, why);
            } else {
                self.try_next(core, attempt);
            }
        }
    }

    /// Tries the next path after one has failed, with a new handle. The program has not seen the handle before.
    fn try_next(&mut self, core: &mut Core, mut attempt: Attempt) {
        if clock::now_ns() >= attempt.until_ns {
            return core.connect_failed(attempt.context, ConnectFailure::TimedOut);
        }
        if !attempt.advance() {
            return core.connect_failed(attempt.context, attempt.why);
        }
        let (context, attribute) = (attempt.context, attempt.attribute);
        let Some(connection) = core.insert(context, attribute, ConnState::Connecting) else {
            return core.connect_failed(context, ConnectFailure::NoMemory);
        };
        self.counts.fallbacks += 1;
        match self.start(core, connection, &mut attempt) {
            Ok(link) => {
                if let Some(conn) = core.conn_mut(connection) {
                    conn.link = link;
                }
                self.attempts.insert(connection.to_bits(), attempt);
            }
            Err(_) => {
                core.forget(connection);
                core.connect_failed(context, attempt.why);
            }
        }
    }

    /// Gives up paths on which nobody answers.
    pub(super) fn time_out(&mut self, core: &mut Core, now_ns: u64) {
        // An answer may have come just now, although the path was due to be given up.
        self.settle_outcomes(core);
        while self.next_due_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            let Some(Reverse((_, bits))) = self.due.pop() else { return };
            let connection = Connection::from_bits(bits);
            let Some(conn) = core.conn(connection) else { continue };
            let (index, link) = unpack(conn.link);
            let Some(part) = self.parts.get_mut(index) else { continue };
            let mut peer = PeerState::default();
            part.transport.report(core, Report::Peer { link, into: &mut peer });
            if peer.has_answered || core.attempts.answer(connection) == Answer::Peer {
                continue;
            }
            let Some(mut attempt) = self.attempts.remove(&bits) else { continue };
            core.attempts.leave(connection);
            // The handle ends as if the program had disconnected, so it raises no event.
            if let Some(conn) = core.conn_mut(connection) {
                conn.state = ConnState::Closing;
            }
            part.turn(core, |transport, core| transport.disconnect(core, connection, link));
            attempt.note(Outcome::Silent);
            attempt.why = ConnectFailure::TimedOut;
            self.counts.silent += 1;
            self.try_next(core, attempt);
        }
        self.settle_outcomes(core);
    }

    /// When the next silent path is given up. Entries of attempts that have ended are removed.
    pub(super) fn next_due_ns(&mut self) -> Option<u64> {
        while let Some(Reverse((at_ns, bits))) = self.due.peek() {
            if self.attempts.contains_key(bits) {
                return Some(*at_ns);
            }
            self.due.pop();
        }
        None
    }
}
