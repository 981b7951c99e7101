//! One endpoint by every way: shared memory, UDP and TCP at once, under one URI ([`uri`]) that lists them.
//!
//! The endpoint's transport is made of theirs ([`parts`]), which know nothing of each other. Each connection rides on one of
//! them: the first, in a set order, that a probe proves ([`dial`]). A connection's link says which; so past the
//! handshake a call costs one look-up more.
//!
//! Parts without connections are looked at every [`LOOK_NS`] only: a program that polls for messages over shared memory
//! does not pay a system call for each poll because UDP is there, too. `docs/adr/0011-one-endpoint-every-path.md` has
//! the reasons.

mod beyond;
mod dial;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod open;
mod parts;
mod report;
mod uri;

#[cfg(test)]
mod tests;

pub(crate) use beyond::{Beyond, around, nothing, options_of_home};
pub(crate) use open::open;
pub(crate) use uri::part_for;

use self::dial::{Attempt, Outcomes};
use self::parts::{Part, pack, unpack};
use super::{Armed, AtomicRequest, Dial, RmaRequest, Transport};
use crate::counters::{ConnectionCounters, DropReason};
use crate::device::TransportKind;
use crate::engine::core::{Core, SendOp};
use crate::engine::origin::{RequestBody, RequestInner};
use crate::engine::regions::Region;
use crate::error::{AcceptError, ConnectError, SendError};
use crate::event::{Connection, Status};
use crate::explain::Explanation;
use cci_sys::clock;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// The parts' places in the endpoint's descriptor, from here on. Nobody asks it which of them is readable.
const TOKEN_PARTS: u64 = 0;
/// Parts without connections are looked at this often while the program polls.
const LOOK_NS: u64 = 50_000;
/// Polls that share a reading of the clock, at most.
const POLLS_PER_CLOCK_MAX: u32 = 8;

/// A kind of way that this endpoint does not have.
struct LeftOut {
    kind: TransportKind,
    reason: String,
}

/// Counted since the endpoint was opened.
#[derive(Default)]
struct Counts {
    /// Attempts to reach a peer by its list of addresses.
    attempts: u64,
    /// Ways tried after another one had failed.
    fallbacks: u64,
    /// Ways given up because nothing was heard.
    silent: u64,
    /// Ways at whose end somebody else was.
    disproved: u64,
}

/// One endpoint's transport.
struct Any {
    uri: String,
    /// The best first.
    parts: Vec<Part>,
    left_out: Vec<LeftOut>,
    /// What other devices lead to, by parts that are opened when they are dialled. None: what is here is all.
    beyond: Option<Beyond>,
    /// By the connection's handle of the moment.
    attempts: HashMap<u64, Attempt>,
    /// When attempts' present ways are given up if nothing was heard; those that are over are still in it.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    /// What came of each way, for connections of ours that are open.
    ways: HashMap<u64, Outcomes>,
    counts: Counts,
    /// Since the clock was read.
    polls: u32,
    /// How many that may be, judged by how fast the program polled of late.
    polls_per_clock: u32,
    /// When idle parts were last looked at.
    looked_ns: u64,
    /// The owner has slept, or may have: look at every part.
    slept: bool,
}

impl Any {
    /// The place of a kind's part.
    fn place_of(&self, kind: TransportKind) -> Option<usize> {
        self.parts.iter().position(|part| part.kind == kind)
    }

    /// The place of a kind's part that others may ask for connections.
    fn serving_place_of(&self, kind: TransportKind) -> Option<usize> {
        let own = self.beyond.as_ref().map(Beyond::home);
        let serves = |part: &Part| part.device.is_none() || part.device.as_deref() == own;
        self.parts.iter().position(|part| part.kind == kind && serves(part))
    }

    /// The part that a link is one of, and its name there.
    #[inline]
    fn part(&self, link: u64) -> Option<(&dyn Transport, u64)> {
        let (place, link) = unpack(link);
        self.parts.get(place).map(|part| (&*part.transport, link))
    }

    /// Calls the part that a link is one of.
    #[inline]
    fn turn<R>(
        &mut self,
        core: &mut Core,
        link: u64,
        call: impl FnOnce(&mut dyn Transport, &mut Core, u64) -> R,
    ) -> Option<R> {
        let (place, link) = unpack(link);
        let part = self.parts.get_mut(place)?;
        Some(part.turn(core, |transport, core| call(transport, core, link)))
    }

    /// The less urgent: idle parts, which parts are idle, ways that stay silent.
    #[cold]
    fn look(&mut self, core: &mut Core) {
        let now_ns = clock::now_ns();
        let since_ns = now_ns.saturating_sub(self.looked_ns);
        if since_ns < LOOK_NS && !self.slept {
            return;
        }
        let poll_ns = since_ns / u64::from(self.polls.max(1));
        self.polls_per_clock = u32::try_from(LOOK_NS / poll_ns.max(1))
            .map_or(POLLS_PER_CLOCK_MAX, |polls| polls.clamp(1, POLLS_PER_CLOCK_MAX));
        (self.looked_ns, self.polls, self.slept) = (now_ns, 0, false);
        for part in &mut self.parts {
            if !part.busy {
                part.turn(core, |transport, core| transport.progress(core));
            }
            part.busy = !part.transport.is_idle();
        }
        self.time_out(core, now_ns);
    }
}

impl Transport for Any {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn offers_multicast(&self) -> bool {
        self.beyond.is_some() || self.parts.iter().any(|part| part.transport.offers_multicast())
    }

    fn connect(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: Dial<'_>,
    ) -> Result<u64, ConnectError> {
        let bad_uri = |reason| Err(ConnectError::BadUri { uri: to.uri.to_owned(), reason });
        let scheme = to.uri.split_once("://").map_or("", |(scheme, _)| scheme);
        if scheme == TransportKind::Any.name() {
            if to.attribute.is_multicast() {
                return bad_uri("a list of ways is no group; write the group's own URI".to_owned());
            }
            return self.dial(core, connection, &to);
        }
        if let Some(beyond) = &self.beyond
            && !self.parts.iter().any(|part| part.device.is_none() && part.kind.name() == scheme)
        {
            let kind = beyond.device_for(to.uri)?.transport();
            return self.connect_by(core, kind, connection, to);
        }
        let of_scheme = self.parts.iter().find(|part| part.kind.name() == scheme).map(|part| part.kind);
        let Some(kind) = of_scheme else {
            let out = self.left_out.iter().find(|left_out| left_out.kind.name() == scheme);
            return bad_uri(out.map_or_else(
                || "this endpoint knows any://, shm://, udp:// and tcp://".to_owned(),
                |out| format!("this endpoint goes without {scheme}: {}", out.reason),
            ));
        };
        self.connect_by(core, kind, connection, to)
    }

    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError> {
        let Some(place) = self.serving_place_of(request.via) else {
            request.refuse();
            return Err(AcceptError::OtherDevice);
        };
        let Some(part) = self.parts.get_mut(place) else { return Err(AcceptError::OtherDevice) };
        let link = part.turn(core, |transport, core| transport.accept(core, connection, request))?;
        part.busy = true;
        Ok(pack(place, link))
    }

    fn refused(&mut self, core: &mut Core, via: TransportKind, ticket: u64, inner: RequestInner) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.kind == via) {
            part.turn(core, |transport, core| transport.refused(core, via, ticket, inner));
        }
    }

    fn taken(&mut self, core: &mut Core, via: TransportKind, ticket: u64) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.kind == via) {
            part.turn(core, |transport, core| transport.taken(core, via, ticket));
        }
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64) {
        self.attempts.remove(&connection.to_bits());
        self.ways.remove(&link);
        self.turn(core, link, |transport, core, link| transport.disconnect(core, connection, link));
    }

    #[inline]
    fn send(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        self.turn(core, link, |transport, core, link| transport.send(core, connection, link, segments, op))
            .unwrap_or(Err(SendError::UnknownConnection))
    }

    #[inline]
    fn rma_at_once(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        request: &RmaRequest<'_>,
    ) -> Option<Status> {
        self.turn(core, link, |transport, core, link| transport.rma_at_once(core, connection, link, request))?
    }

    fn rma(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        request: &RmaRequest<'_>,
        operation: u64,
    ) -> Result<(), SendError> {
        self.turn(core, link, |transport, core, link| {
            transport.rma(core, connection, link, request, operation)
        })
        .unwrap_or(Err(SendError::UnknownConnection))
    }

    #[inline]
    fn atomic_at_once(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        request: &AtomicRequest,
    ) -> Option<Status> {
        self.turn(core, link, |transport, core, link| {
            transport.atomic_at_once(core, connection, link, request)
        })?
    }

    fn atomic(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        request: &AtomicRequest,
        operation: u64,
    ) -> Result<(), SendError> {
        self.turn(core, link, |transport, core, link| {
            transport.atomic(core, connection, link, request, operation)
        })
        .unwrap_or(Err(SendError::UnknownConnection))
    }

    fn region_removed(&mut self, core: &mut Core, region_id: u64, region: &Region) {
        for part in &mut self.parts {
            part.turn(core, |transport, core| transport.region_removed(core, region_id, region));
        }
    }

    fn heard(&self, link: u64) -> bool {
        self.part(link).is_some_and(|(transport, link)| transport.heard(link))
    }

    fn is_idle(&self) -> bool {
        self.parts.iter().all(|part| part.transport.is_idle())
    }

    #[inline]
    fn sends_in_progress(&self, link: u64) -> u32 {
        self.part(link).map_or(0, |(transport, link)| transport.sends_in_progress(link))
    }

    fn sends_held(&self) -> u32 {
        self.parts.iter().map(|part| part.transport.sends_held()).sum()
    }

    fn sends_held_by(&self, link: u64) -> u32 {
        self.part(link).map_or(0, |(transport, link)| transport.sends_held_by(link))
    }

    fn is_refused(&self, link: u64) -> bool {
        self.part(link).is_some_and(|(transport, link)| transport.is_refused(link))
    }

    fn drains_by_itself(&self, link: u64) -> bool {
        self.part(link).is_some_and(|(transport, link)| transport.drains_by_itself(link))
    }

    fn spare_bytes(&mut self, core: &mut Core) -> u64 {
        // Whichever part has no room: the first has most of the memory.
        let first = self.parts.first_mut();
        first.map_or(0, |part| part.turn(core, |transport, core| transport.spare_bytes(core)))
    }

    fn lend(&mut self, bytes: u64) {
        if let Some(part) = self.parts.first_mut() {
            part.transport.lend(bytes);
        }
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        for part in &mut self.parts {
            if part.busy {
                part.turn(core, |transport, core| transport.progress(core));
            }
        }
        self.polls += 1;
        if self.polls.is_multiple_of(self.polls_per_clock) || self.slept {
            self.look(core);
        }
        if !core.told.is_empty() {
            self.settle_told(core);
        }
    }

    fn arm(&mut self, core: &mut Core) -> Armed {
        self.slept = true;
        let mut earliest_ns = self.next_due_ns();
        for part in &mut self.parts {
            match part.turn(core, |transport, core| transport.arm(core)) {
                Armed::Pending => return Armed::Pending,
                Armed::Sleep { deadline_ns } => {
                    earliest_ns = [earliest_ns, deadline_ns].into_iter().flatten().min();
                }
            }
        }
        // Arming times out what is due, which may close a way.
        if core.told.is_empty() { Armed::Sleep { deadline_ns: earliest_ns } } else { Armed::Pending }
    }

    fn is_drained(&self) -> bool {
        self.parts.iter().all(|part| part.transport.is_drained())
    }

    fn has_delivered_all(&self) -> bool {
        self.parts.iter().all(|part| part.transport.has_delivered_all())
    }

    fn set_send_timeout(&mut self, link: u64, timeout_ns: u64) {
        let (place, link) = unpack(link);
        if let Some(part) = self.parts.get_mut(place) {
            part.transport.set_send_timeout(link, timeout_ns);
        }
    }

    fn set_keepalive(&mut self, core: &mut Core, link: u64, timeout_ns: u64) {
        self.turn(core, link, |transport, core, link| transport.set_keepalive(core, link, timeout_ns));
    }

    fn set_defaults(&mut self, send_timeout_ns: u64, keepalive_ns: u64) {
        for part in &mut self.parts {
            part.transport.set_defaults(send_timeout_ns, keepalive_ns);
        }
    }

    fn timeouts_ns(&self, link: u64) -> Option<(u64, u64)> {
        self.part(link).and_then(|(transport, link)| transport.timeouts_ns(link))
    }

    fn connection_counters(&self, link: u64) -> ConnectionCounters {
        self.part(link)
            .map_or_else(ConnectionCounters::default, |(transport, link)| transport.connection_counters(link))
    }

    fn counters(&self, into: &mut Vec<(&'static str, u64)>, drops: &mut Vec<DropReason>) {
        self.count(into, drops);
    }

    fn memory(&self, into: &mut Vec<(&'static str, u64)>) {
        self.count_memory(into);
    }

    fn explain(&self, link: u64, into: &mut Explanation) {
        self.explain_connection(link, into);
    }
}
