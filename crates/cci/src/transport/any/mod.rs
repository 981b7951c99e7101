//! One endpoint that is reached over every path: shared memory, UDP and TCP, under one URI that lists them ([`uri`]).
//!
//! The endpoint's transport consists of parts ([`parts`]), one for each kind of path, which know nothing of each other. Each
//! connection uses one part: the first, in a fixed order, whose path leads to the peer ([`dial`]). A connection's link names
//! its part, so that after the handshake a call costs one look-up more.
//!
//! Parts without connections make progress every [`LOOK_NS`] only. So a program that polls for messages over shared memory
//! does not pay a system call for each poll because there is a UDP socket, too. `docs/adr/0011-one-endpoint-every-path.md` has
//! the reasons.

mod dial;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod on_demand;
mod open;
mod parts;
mod report;
mod uri;

#[cfg(test)]
mod tests;

pub(crate) use on_demand::{OnDemand, around, nothing, options_of_home};
pub(crate) use open::open;
pub use uri::network_uri;
pub(crate) use uri::part_for;

use self::dial::{Attempt, Outcomes};
use self::parts::{Part, pack, unpack};
use super::{
    About, Activity, Armed, Dial, LinkState, Operation, RegionChange, Report, Setting, Started, Taken,
    Transport,
};
use crate::connection::Connection;
use crate::device::TransportKind;
use crate::engine::core::{Core, SendOp};
use crate::engine::event::Event;
use crate::engine::lent::{Lender, ShortMessage};
use crate::engine::mapped_pairs::MappedRegion;
use crate::engine::requests::{Decision, RequestBody};
use crate::error::{AcceptError, ConnectError, SendError};
use cci_memory::ring::Line;
use cci_sys::clock;
use cci_sys::shared_memory::LendingSlot;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Tokens of the parts' descriptors begin here. Nobody asks which of them is readable.
const TOKEN_PARTS: u64 = 0;
/// Parts without connections make progress this often while the program polls.
const LOOK_NS: u64 = 50_000;
/// Polls that share a reading of the clock, at most.
const POLLS_PER_CLOCK_MAX: u32 = 8;

/// A kind of path that this endpoint does not have.
struct Missing {
    kind: TransportKind,
    reason: String,
}

/// Counted since the endpoint was opened.
#[derive(Default)]
struct Counts {
    /// Attempts to reach a peer by its list of addresses.
    attempts: u64,
    /// Paths tried after another one had failed.
    fallbacks: u64,
    /// Paths given up because nothing was heard.
    silent: u64,
    /// Paths at whose end somebody else was.
    disproved: u64,
}

/// One endpoint's transport.
struct Any {
    uri: String,
    /// In the order in which they are tried.
    parts: Vec<Part>,
    missing: Vec<Missing>,
    /// Other devices, whose parts are opened when they are first dialled. None: there are no others.
    on_demand: Option<OnDemand>,
    /// Attempts in progress, by the handle of the connection that the present path is tried with.
    attempts: HashMap<u64, Attempt>,
    /// When attempts give up their present paths if nothing is heard, and the bits of their handles. Attempts that have ended
    /// stay in it until they are due.
    due: BinaryHeap<Reverse<(u64, u64)>>,
    /// Outcomes of all paths, by the link of the open connection that was dialled.
    paths: HashMap<u64, Outcomes>,
    counts: Counts,
    /// Polls since the clock was read.
    polls: u32,
    /// With so many polls it is read again.
    clock_at: u32,
    /// How many polls may share one reading of the clock, by how fast the program has polled.
    polls_per_clock: u32,
    /// When idle parts last made progress.
    looked_ns: u64,
    /// The program may have slept, so every part has to make progress.
    slept: bool,
}

impl Any {
    /// The index of a kind's part.
    fn index_of(&self, kind: TransportKind) -> Option<usize> {
        self.parts.iter().position(|part| part.kind == kind)
    }

    /// The index of a kind's part that others may ask for connections.
    fn serving_index(&self, kind: TransportKind) -> Option<usize> {
        let own = self.on_demand.as_ref().map(OnDemand::home);
        let serves = |part: &Part| part.device.is_none() || part.device.as_deref() == own;
        self.parts.iter().position(|part| part.kind == kind && serves(part))
    }

    /// The part that a link belongs to, and the part's own link.
    #[inline]
    fn part(&self, link: u64) -> Option<(&dyn Transport, u64)> {
        let (index, link) = unpack(link);
        self.parts.get(index).map(|part| (&*part.transport, link))
    }

    /// Calls the part that a link belongs to.
    #[inline]
    fn turn<R>(
        &mut self,
        core: &mut Core,
        link: u64,
        call: impl FnOnce(&mut dyn Transport, &mut Core, u64) -> R,
    ) -> Option<R> {
        let (index, link) = unpack(link);
        let part = self.parts.get_mut(index)?;
        Some(part.turn(core, |transport, core| call(transport, core, link)))
    }

    /// Does what is less urgent: lets idle parts make progress, finds out which are idle, and gives up silent paths.
    #[cold]
    fn look(&mut self, core: &mut Core) {
        let now_ns = clock::now_ns();
        let since_ns = now_ns.saturating_sub(self.looked_ns);
        if since_ns < LOOK_NS && !self.slept {
            self.clock_at = self.polls + self.polls_per_clock;
            return;
        }
        let poll_ns = since_ns / u64::from(self.polls.max(1));
        self.polls_per_clock = u32::try_from(LOOK_NS / poll_ns.max(1))
            .map_or(POLLS_PER_CLOCK_MAX, |polls| polls.clamp(1, POLLS_PER_CLOCK_MAX));
        (self.looked_ns, self.polls, self.slept) = (now_ns, 0, false);
        self.clock_at = self.polls_per_clock;
        for part in &mut self.parts {
            if !part.busy {
                part.turn(core, |transport, core| transport.progress(core));
            }
            part.busy = part.transport.activity() != Activity::Idle;
        }
        self.time_out(core, now_ns);
    }

    /// Whether the next poll is one after which the clock is read.
    #[inline]
    fn is_look_near(&self) -> bool {
        self.polls + 1 >= self.clock_at || self.slept
    }

    /// Does what is due after the parts had their turns.
    #[inline]
    fn after_turns(&mut self, core: &mut Core) {
        self.polls += 1;
        if self.polls >= self.clock_at || self.slept {
            self.look(core);
        }
        if core.attempts.has_outcomes() {
            self.settle_outcomes(core);
        }
    }
}

impl Transport for Any {
    fn about(&self) -> About<'_> {
        let has = |part: &Part| part.transport.about().offers_multicast;
        About { uri: &self.uri, offers_multicast: self.on_demand.is_some() || self.parts.iter().any(has) }
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
                return bad_uri("a list of paths is no group; write the group's own URI".to_owned());
            }
            return self.dial(core, connection, &to);
        }
        if let Some(on_demand) = &self.on_demand
            && !self.parts.iter().any(|part| part.device.is_none() && part.kind.name() == scheme)
        {
            let kind = on_demand.device_for(to.uri)?.transport();
            return self.connect_by(core, kind, connection, to);
        }
        let of_scheme = self.parts.iter().find(|part| part.kind.name() == scheme).map(|part| part.kind);
        let Some(kind) = of_scheme else {
            let out = self.missing.iter().find(|missing| missing.kind.name() == scheme);
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
        let Some(index) = self.serving_index(request.via) else {
            request.refuse();
            return Err(AcceptError::OtherDevice);
        };
        let Some(part) = self.parts.get_mut(index) else { return Err(AcceptError::OtherDevice) };
        let link = part.turn(core, |transport, core| transport.accept(core, connection, request))?;
        part.busy = true;
        Ok(pack(index, link))
    }

    fn decided(&mut self, core: &mut Core, decision: Decision) {
        if let Some(part) = self.parts.iter_mut().find(|part| part.kind == decision.via()) {
            part.turn(core, |transport, core| transport.decided(core, decision));
        }
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64) {
        if self.attempts.remove(&connection.to_bits()).is_some() {
            core.attempts.leave(connection);
        }
        self.paths.remove(&link);
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

    fn send_burst(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        messages: &[&[u8]],
        mss: u32,
        op: SendOp,
    ) -> Taken {
        let send = |transport: &mut dyn Transport, core: &mut Core, link| {
            transport.send_burst(core, connection, link, messages, mss, op)
        };
        self.turn(core, link, send).unwrap_or_default()
    }

    fn loan(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        len_bytes: usize,
    ) -> Option<LendingSlot> {
        self.turn(core, link, |transport, core, link| transport.loan(core, connection, link, len_bytes))?
    }

    fn send_loan(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        message: (LendingSlot, usize),
        op: SendOp,
    ) -> Result<(), (SendError, LendingSlot)> {
        let (index, link) = unpack(link);
        match self.parts.get_mut(index) {
            Some(part) => {
                part.turn(core, |transport, core| transport.send_loan(core, connection, link, message, op))
            }
            None => Err((SendError::UnknownConnection, message.0)),
        }
    }

    #[inline]
    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        operation: &Operation<'_>,
    ) -> Result<Started, SendError> {
        self.turn(core, link, |transport, core, link| transport.start(core, connection, link, operation))
            .unwrap_or(Err(SendError::UnknownConnection))
    }

    fn mapped(&mut self, link: u64, region: u64, key: u64) -> Option<MappedRegion> {
        let (index, link) = unpack(link);
        self.parts.get_mut(index)?.transport.mapped(link, region, key)
    }

    fn region(&mut self, core: &mut Core, change: &RegionChange<'_>) {
        for part in &mut self.parts {
            part.turn(core, |transport, core| transport.region(core, change));
        }
    }

    fn region_for(&mut self, core: &mut Core, link: u64, region: u64) {
        self.turn(core, link, |transport, core, link| transport.region_for(core, link, region));
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        for part in &mut self.parts {
            if part.busy {
                part.turn(core, |transport, core| transport.progress(core));
            }
        }
        self.after_turns(core);
    }

    fn hands_out_events(&self) -> bool {
        true
    }

    #[inline]
    fn next(&mut self, core: &mut Core) -> Option<Event> {
        if !self.is_look_near() && !core.attempts.has_outcomes() {
            // Parts have their turns in one order: what is behind a busy one waits for that.
            let part = self.parts.iter_mut().find(|part| part.busy);
            let event = part.and_then(|part| part.turn(core, |transport, core| transport.take_alone(core)));
            if event.is_some() {
                self.polls += 1;
                return event;
            }
        }
        self.progress(core);
        self.take_queued(core)
    }

    fn takes_short(&self) -> bool {
        true
    }

    fn take_short(&mut self, core: &mut Core, line: &mut Line) -> ShortMessage {
        if self.is_look_near() || core.attempts.has_outcomes() {
            return ShortMessage::Other;
        }
        // Where several parts are busy, each has its turn.
        let mut busy = self.parts.iter_mut().filter(|part| part.busy);
        let (Some(part), None) = (busy.next(), busy.next()) else { return ShortMessage::Other };
        let short = part.turn(core, |transport, core| transport.take_short(core, line));
        if short != ShortMessage::Other {
            self.polls += 1;
        }
        short
    }

    fn progress_lending(&mut self, core: &mut Core, lender: &mut Lender<'_>) {
        lender.leave_nothing();
        for part in &mut self.parts {
            if part.busy {
                part.turn(core, |transport, core| transport.progress_lending(core, lender));
            }
        }
        self.after_turns(core);
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
        // Arming times out what is due, which may close a path.
        if core.attempts.has_outcomes() { Armed::Pending } else { Armed::Sleep { deadline_ns: earliest_ns } }
    }

    fn activity(&self) -> Activity {
        let parts = self.parts.iter().map(|part| part.transport.activity());
        parts.min().unwrap_or(Activity::Idle)
    }

    #[inline]
    fn link_state(&self, link: u64) -> Option<LinkState> {
        let (transport, link) = self.part(link)?;
        transport.link_state(link)
    }

    fn unreported(&self, link: u64) -> Option<u32> {
        let (transport, link) = self.part(link)?;
        transport.unreported(link)
    }

    fn configure(&mut self, core: &mut Core, setting: Setting) {
        match setting {
            Setting::SendTimeout { link, timeout_ns } => {
                self.turn(core, link, |transport, core, link| {
                    transport.configure(core, Setting::SendTimeout { link, timeout_ns });
                });
            }
            Setting::Keepalive { link, timeout_ns } => {
                self.turn(core, link, |transport, core, link| {
                    transport.configure(core, Setting::Keepalive { link, timeout_ns });
                });
            }
            Setting::Loans { link, loans } => {
                self.turn(core, link, |transport, core, link| {
                    transport.configure(core, Setting::Loans { link, loans });
                });
            }
            Setting::Defaults { .. } => {
                for part in &mut self.parts {
                    part.turn(core, |transport, core| transport.configure(core, setting));
                }
            }
            Setting::SetApart { .. } => {}
            // The first part has most of the memory, so `report` asks it for spare bytes, and it lends them.
            Setting::Lent { .. } => {
                if let Some(part) = self.parts.first_mut() {
                    part.turn(core, |transport, core| transport.configure(core, setting));
                }
            }
        }
    }

    fn report(&self, core: &Core, report: Report<'_>) {
        match report {
            Report::Counters { into, drops } => self.count(core, into, drops),
            Report::Memory(into) => self.count_memory(core, into),
            Report::SpareBytes(into) => {
                if let Some(part) = self.parts.first() {
                    part.transport.report(core, Report::SpareBytes(into));
                }
            }
            Report::SendsHeld(into) => {
                for part in &self.parts {
                    part.transport.report(core, Report::SendsHeld(&mut *into));
                }
            }
            Report::Connection { link, into } => {
                if let Some((transport, link)) = self.part(link) {
                    transport.report(core, Report::Connection { link, into });
                }
            }
            Report::Explanation { link, into } => self.explain_connection(core, link, into),
            Report::Peer { link, into } => {
                if let Some((transport, link)) = self.part(link) {
                    transport.report(core, Report::Peer { link, into });
                }
            }
        }
    }
}
