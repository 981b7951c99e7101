//! One connection from its making to its end: a stream each way, memory to work on, and the account of all of it.

use super::super::random::Random;
use super::super::talk::{Plant, Report};
use super::flow::{Flight, Inflow, Script, is_data};
use super::frame::{Fin, Frame, Hello};
use super::lent::{GivenUp, Ledger, Lent};
use super::loans;
use super::op::Op;
use super::work::Work;
use crate::pattern::Pattern;
use cci::{Attribute, Connection, Endpoint, Event, Loans, RmaError, SendError, SendFlags, Status};
use cci_sys::clock;
use std::collections::VecDeque;

/// Sends and operations of one session under way at once.
const FLIGHT_MAX: usize = 96;
/// Messages in one turn.
const BURST_MAX: u64 = 24;
/// A session in which nothing happens for so long has stalled: longer than any time-out of the library's.
pub const STALL_NS: u64 = 45_000_000_000;
/// What was sent on a connection that ended completes within this.
const CLOSING_NS_MAX: u64 = 45_000_000_000;
/// An idle session asks whether its peer is there.
const PING_NS: u64 = 1_000_000_000;
/// On UU, silence for so long is the end.
const SILENCE_NS: u64 = 3_000_000_000;
/// What came before the end of a connection, and waits for a receive buffer, comes within this.
const GONE_NS: u64 = 5_000_000_000;
/// FINs on UU: one will come through.
const UNRELIABLE_FINS: u32 = 3;

/// How a session ends.
#[derive(Debug)]
pub enum End {
    /// As it should.
    Clean,
    /// The library says that it is over. Whether it may be is for the conductor to judge.
    Broken(String),
    /// This must never be.
    Wrong(String),
}

/// So much memory of sessions that have ended is held, to be looked at once more, bytes.
const GIVEN_UP_BYTES_MAX: usize = 4 << 20;

/// What sessions share.
pub struct Shared {
    pub endpoint: Endpoint,
    pub ledger: Ledger,
    pub pattern: Pattern,
    pub random: Random,
    pub report: Report,
    pub scratch: Vec<u8>,
    pub plant: Option<Plant>,
    /// Lent memory of sessions that have ended, which is looked at once more.
    pub given_up: VecDeque<GivenUp>,
}

impl Shared {
    /// Checks memory that was given up: all that is due at a time, or what there is. Where sessions end so fast that more than
    /// [`GIVEN_UP_BYTES_MAX`] would be held, the oldest is checked early: how much memory a peer needs does not follow the
    /// speed of the machine.
    pub fn check_given_up(&mut self, now_ns: Option<u64>) -> Result<(), String> {
        let mut held_bytes: usize = self.given_up.iter().map(GivenUp::held_bytes).sum();
        while let Some(first) = self.given_up.front()
            && (held_bytes > GIVEN_UP_BYTES_MAX || now_ns.is_none_or(|now_ns| first.is_due(now_ns)))
        {
            held_bytes -= first.held_bytes();
            self.report.torn += u64::from(first.check()?);
            self.given_up.pop_front();
        }
        Ok(())
    }
}

/// Where the session is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// The connection is being made.
    Connecting,
    /// At work.
    Open,
    /// Over; what was started completes.
    Closing { since_ns: u64 },
}

/// Memory to work on, on either side.
enum Remote {
    None,
    Lent(Lent),
    Awaited,
    Work(Work),
}

/// One session: a connection, what both sides still have to do on it, and what they have verified.
pub struct Session {
    id: u32,
    pub with: u32,
    initiator: bool,
    attribute: Attribute,
    pub connection: Option<Connection>,
    phase: Phase,
    hello: Hello,
    out: Script,
    next: u64,
    inflow: Inflow,
    flight: Flight<Op>,
    frames: VecDeque<Vec<u8>>,
    remote: Remote,
    fins: u32,
    peer_fin: bool,
    done_sent: bool,
    done: bool,
    progress_ns: u64,
    ping_ns: u64,
    /// The library says that the connection is over, how, and since when.
    gone: Option<(String, u64)>,
}

impl Session {
    /// A connection is being made.
    pub fn new(id: u32, with: u32, initiator: bool, attribute: Attribute, hello: Hello) -> Session {
        let script = |seed: u64, count| Script { seed, longest: 0, count };
        let (there, back) = (script(hello.seed, hello.there), script(!hello.seed, hello.back));
        let (out, back) = if initiator { (there, back) } else { (back, there) };
        let now_ns = clock::now_ns();
        Session {
            id,
            with,
            initiator,
            attribute,
            connection: None,
            phase: Phase::Connecting,
            hello,
            out,
            next: 0,
            inflow: Inflow::new(back, attribute),
            flight: Flight::new(attribute),
            frames: VecDeque::new(),
            remote: Remote::None,
            fins: 0,
            peer_fin: false,
            done_sent: false,
            done: false,
            progress_ns: now_ns,
            ping_ns: now_ns,
            gone: None,
        }
    }

    /// It was asked that the request be rejected.
    pub fn wants_rejection(&self) -> bool {
        self.hello.reject
    }

    /// True for the side that asked.
    pub fn is_initiator(&self) -> bool {
        self.initiator
    }

    /// The connection is there.
    pub fn opened(&mut self, shared: &mut Shared, connection: Connection) -> Result<(), End> {
        let longest = shared.endpoint.max_send_size(connection).unwrap_or(0) as usize;
        self.connection = Some(connection);
        self.phase = Phase::Open;
        self.touch();
        self.out.longest = longest;
        if shared.random.one_in(2) {
            // The end of a connection that has ended already is reported next.
            let _ = shared.endpoint.set_loans(connection, Loans::Mapped);
        }
        let back = if self.initiator { self.hello.back } else { self.hello.there };
        let seed = if self.initiator { !self.hello.seed } else { self.hello.seed };
        self.inflow = Inflow::new(Script { seed, longest, count: back }, self.attribute);
        if !self.hello.memory {
            return Ok(());
        }
        if self.initiator {
            self.remote = Remote::Awaited;
            return Ok(());
        }
        let Shared { endpoint, ledger, random, .. } = shared;
        let lent = Lent::new(endpoint, ledger, connection, random, self.hello.flood)
            .map_err(|error| End::Wrong(format!("registering memory: {error}")))?;
        shared.report.registered += 1;
        self.frames.push_back(Frame::Offer(lent.offer()).encode());
        self.remote = Remote::Lent(lent);
        Ok(())
    }

    fn touch(&mut self) {
        self.progress_ns = clock::now_ns();
    }

    /// A message came.
    pub fn message(&mut self, shared: &mut Shared, message: &[u8]) -> Result<(), End> {
        if self.phase != Phase::Open {
            return Ok(());
        }
        self.touch();
        if is_data(message) {
            self.inflow.take(message, &shared.pattern).map_err(End::Wrong)?;
            shared.report.messages += 1;
            shared.report.message_bytes += message.len() as u64;
            return Ok(());
        }
        let frame = Frame::parse(message)
            .ok_or_else(|| End::Wrong(format!("{} bytes came that nobody sent", message.len())))?;
        match (frame, &mut self.remote) {
            (Frame::Ping, _) => {}
            (Frame::Done, _) => self.done = true,
            (Frame::Fin(fin), remote) => {
                self.peer_fin = true;
                self.inflow.end().map_err(End::Wrong)?;
                if let Remote::Lent(lent) = remote {
                    lent.settle(&mut shared.ledger, &fin).map_err(End::Wrong)?;
                }
            }
            (Frame::Offer(offer), remote @ Remote::Awaited) => {
                let corrupt = shared.plant == Some(Plant::Memory) && shared.report.messages > 100;
                let work =
                    Work::new(&mut shared.endpoint, offer, &mut shared.random, corrupt, self.hello.flood)
                        .map_err(|error| End::Wrong(format!("registering local memory: {error}")))?;
                shared.report.registered += 1;
                *remote = Remote::Work(work);
            }
            (Frame::Note { slot, seed, len }, Remote::Lent(lent)) => {
                lent.note(slot, seed, len).map_err(End::Wrong)?;
                shared.report.transfers += 1;
                shared.report.transfer_bytes += len;
                self.frames.push_back(Frame::Noted { slot }.encode());
            }
            (Frame::Noted { slot }, Remote::Work(work)) => work.noted(slot),
            _ => return Err(End::Wrong(format!("{frame:?} came, which makes no sense here"))),
        }
        Ok(())
    }

    /// The connection is over. True: what was sent before may still come, and then all was well.
    pub fn lingers(&mut self, why: &str) -> bool {
        if self.phase != Phase::Open || !self.attribute.is_reliable() || self.gone.is_some() {
            return false;
        }
        self.gone = Some((why.to_owned(), clock::now_ns()));
        true
    }

    /// The library says that the peer is silent or has closed, which is how most sessions end for the side that waits.
    pub fn silent(&mut self) -> Result<(), End> {
        match self.phase {
            Phase::Open if !self.attribute.is_reliable() => {
                self.peer_fin = true;
                Ok(())
            }
            // What is under way still comes, or completes.
            Phase::Open if self.done || self.done_sent => Ok(()),
            Phase::Open | Phase::Connecting => {
                Err(End::Broken("the peer is silent or has closed".to_owned()))
            }
            Phase::Closing { .. } => Ok(()),
        }
    }

    /// Something completed.
    pub fn completed(&mut self, shared: &mut Shared, number: u32, status: Status) -> Result<(), End> {
        self.touch();
        let op = self.flight.end(number).map_err(End::Wrong)?;
        if op == Op::Loan && status == Status::Success && self.phase == Phase::Open {
            let is_open = self.connection.is_some_and(|connection| shared.endpoint.is_open(connection));
            shared.report.loans_orphaned += u64::from(!is_open);
        }
        if matches!(self.phase, Phase::Closing { .. }) {
            return Ok(());
        }
        if op == Op::Done {
            // It may have come and its acknowledgement not: the other side closes as soon as it has it.
            return Err(End::Clean);
        }
        if let Remote::Work(work) = &mut self.remote {
            let handled = status == Status::Success || status == Status::RmaHandle;
            if handled {
                let outcome = work.completed(op, status).map_err(End::Wrong)?;
                shared.report.transfers += u64::from(outcome.compared > 0);
                shared.report.transfer_bytes += outcome.compared;
                shared.report.atomics += outcome.atomics;
                if status == Status::Success || work.is_over() {
                    return Ok(());
                }
            }
        }
        match status {
            Status::Success => Ok(()),
            _ if !self.attribute.is_reliable() => Err(End::Clean),
            _ if self.gone.is_some() => Ok(()),
            _ => Err(End::Broken(format!("{op:?} ended with: {status}"))),
        }
    }

    /// Does what can be done now. `may_begin`: within the load allowed. True: something was done.
    pub fn step(&mut self, shared: &mut Shared, may_begin: bool) -> Result<bool, End> {
        let now_ns = clock::now_ns();
        let connection = match (self.phase, self.connection) {
            (Phase::Open, Some(connection)) => connection,
            (Phase::Closing { since_ns }, _) if now_ns > since_ns + CLOSING_NS_MAX => {
                return Err(End::Wrong(format!(
                    "{} operations did not complete within {} s of the end of their connection",
                    self.flight.len(),
                    CLOSING_NS_MAX / 1_000_000_000
                )));
            }
            (Phase::Connecting, _) if now_ns > self.progress_ns + STALL_NS => {
                return Err(End::Wrong(format!(
                    "not connected, and not refused, in {} s",
                    STALL_NS / 1_000_000_000
                )));
            }
            _ => return Ok(false),
        };
        if !self.attribute.is_reliable() {
            return self.step_unreliable(shared, connection, now_ns);
        }
        if let Some((why, since_ns)) = &self.gone {
            if now_ns > since_ns + GONE_NS {
                return Err(End::Broken(why.clone()));
            }
            return self.finish().map(|()| false);
        }
        if now_ns > self.progress_ns + STALL_NS {
            return Err(End::Wrong(format!("nothing went on for {} s", STALL_NS / 1_000_000_000)));
        }
        if let Remote::Lent(lent) = &mut self.remote {
            lent.step(&mut shared.endpoint, now_ns).map_err(End::Wrong)?;
        }
        let mut busy = self.send_frames(shared, connection)?;
        if may_begin {
            busy |= self.send_data(shared, connection)?;
            busy |= self.work(shared, connection)?;
        }
        self.finish()?;
        if !busy && !self.done_sent && now_ns > self.ping_ns.max(self.progress_ns) + PING_NS {
            // Who only waits would never learn that the other side is gone.
            self.ping_ns = now_ns;
            self.frames.push_back(Frame::Ping.encode());
        }
        Ok(busy)
    }

    fn step_unreliable(
        &mut self,
        shared: &mut Shared,
        connection: Connection,
        now_ns: u64,
    ) -> Result<bool, End> {
        let silent = now_ns > self.progress_ns + SILENCE_NS;
        let sent = self.send_frames(shared, connection).and_then(|busy| {
            let busy = self.send_data(shared, connection)? || busy;
            if self.next == self.out.count && self.fins < UNRELIABLE_FINS && self.flight.len() == 0 {
                self.fins += 1;
                self.frames.push_back(Frame::Fin(Fin::default()).encode());
            }
            Ok(busy)
        });
        match sent {
            // The other side has ended first; only what it sent before that matters.
            Err(End::Broken(_)) => {
                shared.report.lost += self.inflow.missing();
                return Err(End::Clean);
            }
            Err(other) => return Err(other),
            Ok(true) => return Ok(true),
            Ok(false) => {}
        }
        let reason = self.fins == UNRELIABLE_FINS && self.frames.is_empty() && self.flight.len() == 0;
        if (reason && self.peer_fin && now_ns > self.progress_ns + SILENCE_NS / 30) || silent {
            shared.report.lost += self.inflow.missing();
            return Err(End::Clean);
        }
        Ok(false)
    }

    fn send_frames(&mut self, shared: &mut Shared, connection: Connection) -> Result<bool, End> {
        let mut busy = false;
        while self.flight.len() < FLIGHT_MAX
            && let Some(frame) = self.frames.front()
        {
            let op = if Frame::parse(frame) == Some(Frame::Done) { Op::Done } else { Op::Frame };
            let context = u64::from(self.id) << 32 | u64::from(self.flight.next());
            if !taken(shared.endpoint.send(connection, frame, context, SendFlags::NONE))? {
                break;
            }
            self.flight.start(op);
            self.frames.pop_front();
            shared.report.sent += 1;
            busy = true;
        }
        Ok(busy)
    }

    fn send_data(&mut self, shared: &mut Shared, connection: Connection) -> Result<bool, End> {
        let burst = shared.random.between(1, BURST_MAX);
        let mut busy = false;
        for _ in 0..burst {
            if self.next == self.out.count || self.flight.len() >= FLIGHT_MAX {
                break;
            }
            let mut message = std::mem::take(&mut shared.scratch);
            self.out.make(self.next, &shared.pattern, &mut message);
            let spoiled =
                if shared.report.sent > 500 { self.spoil(shared.plant, &mut message) } else { None };
            let times = spoiled.unwrap_or(1);
            let silent = shared.random.one_in(4);
            let flags = if silent { SendFlags::SILENT } else { SendFlags::NONE };
            let mut sent = Ok(());
            for _ in 0..times {
                let context = u64::from(self.id) << 32 | u64::from(self.flight.next());
                let split = shared.random.below(message.len() as u64 + 1) as usize;
                let (one, two) = message.split_at(split);
                let mut op = Op::Message;
                sent = match shared.random.below(8) {
                    0 | 1 => shared.endpoint.send_vectored(connection, &[one, two], context, flags),
                    2..=4 => {
                        let lent = loans::send(&mut shared.endpoint, connection, &message, context, flags);
                        op = if lent == Ok(true) { Op::Loan } else { op };
                        lent.map(|_| ())
                    }
                    _ => shared.endpoint.send(connection, &message, context, flags),
                };
                match op {
                    _ if sent.is_err() || silent => {}
                    Op::Loan => self.flight.start_apart(op),
                    _ => self.flight.start(op),
                }
            }
            shared.scratch = message;
            if !taken(sent)? {
                break;
            }
            if spoiled.is_some() {
                shared.plant = None;
            }
            self.next += 1;
            shared.report.sent += 1;
            busy = true;
        }
        Ok(busy)
    }

    /// Does wrong on purpose: how often the message is to be sent then.
    fn spoil(&self, plant: Option<Plant>, message: &mut [u8]) -> Option<usize> {
        if !self.attribute.is_reliable() {
            return None;
        }
        // Behind the number.
        let byte = message.get_mut(20)?;
        match plant? {
            Plant::Corrupt => {
                *byte ^= 0x10;
                Some(1)
            }
            // Without an order it shows only at the end.
            Plant::Lose if self.attribute == Attribute::ReliableOrdered => Some(0),
            Plant::Repeat if self.attribute == Attribute::ReliableOrdered => Some(2),
            Plant::Lose | Plant::Repeat | Plant::Memory | Plant::Leak | Plant::Descriptors | Plant::Hang => {
                None
            }
        }
    }

    fn work(&mut self, shared: &mut Shared, connection: Connection) -> Result<bool, End> {
        let Remote::Work(work) = &mut self.remote else { return Ok(false) };
        if self.flight.len() >= FLIGHT_MAX {
            return Ok(false);
        }
        let base = u64::from(self.id) << 32;
        let Shared { endpoint, random, scratch, .. } = shared;
        work.begin(endpoint, connection, base, &mut self.flight, random, scratch).map_err(|error| match error
        {
            RmaError::Disconnected => End::Broken("an operation was not taken: disconnected".to_owned()),
            other => End::Wrong(format!("an operation was not taken: {other}")),
        })
    }

    /// Says what is to be said once everything is sent, and once everything came.
    fn finish(&mut self) -> Result<(), End> {
        let quiet = self.flight.len() == 0 && self.frames.is_empty();
        let over = match &self.remote {
            Remote::Awaited => false,
            Remote::Work(work) => work.is_over(),
            Remote::None | Remote::Lent(_) => true,
        };
        if self.fins == 0 && quiet && over && self.next == self.out.count {
            let fin = match &self.remote {
                Remote::Work(work) => work.fin(),
                _ => Fin::default(),
            };
            self.fins = 1;
            self.frames.push_back(Frame::Fin(fin).encode());
            return Ok(());
        }
        let came = self.peer_fin && self.inflow.is_complete().map_err(End::Wrong)?;
        if self.initiator {
            // The other side says it when all that was sent there came; what came here may be still under way.
            if self.done && came {
                return Err(End::Clean);
            }
        } else if came && self.fins == 1 && quiet && !self.done_sent {
            self.done_sent = true;
            self.frames.push_back(Frame::Done.encode());
        }
        Ok(())
    }

    /// The session ends here, for whatever reason. What was started is still to complete.
    pub fn end(&mut self, shared: &mut Shared) -> Result<(), String> {
        self.phase = Phase::Closing { since_ns: clock::now_ns() };
        if let Some(connection) = self.connection {
            shared.endpoint.disconnect(connection);
        }
        self.frames.clear();
        match std::mem::replace(&mut self.remote, Remote::None) {
            Remote::Lent(lent) => {
                let given_up = lent.end(&mut shared.endpoint, &mut shared.ledger)?;
                shared.given_up.extend(given_up);
                Ok(())
            }
            Remote::Work(work) => work.end(&mut shared.endpoint),
            Remote::None | Remote::Awaited => Ok(()),
        }
    }

    /// Over, and nothing is to complete any more.
    pub fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. }) && self.flight.len() == 0
    }

    /// Over.
    pub fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// For people: the session, and the connection by the library's own account.
    pub fn describe(&self, endpoint: &Endpoint) -> String {
        let role = if self.initiator { "to" } else { "from" };
        let remote = match &self.remote {
            Remote::None => String::new(),
            Remote::Awaited => ", waits for memory".to_owned(),
            Remote::Lent(_) => ", lends memory".to_owned(),
            Remote::Work(work) => format!(", {}", work.describe()),
        };
        let idle_ms = clock::now_ns().saturating_sub(self.progress_ns) / 1_000_000;
        let explained = self.connection.and_then(|connection| endpoint.explain(connection));
        format!(
            "session {:#x} {role} {} ({}, {:?}, seed {:#x}): {} of {} sent, {} frames wait, {} under way, {}; fin sent {} came {}, \
             done sent {} came {}{remote}; idle for {idle_ms} ms\n{}",
            self.id,
            self.with,
            self.attribute.short_name(),
            self.phase,
            self.hello.seed,
            self.next,
            self.out.count,
            self.frames.len(),
            self.flight.len(),
            self.inflow.describe(),
            self.fins,
            self.peer_fin,
            self.done_sent,
            self.done,
            explained.map_or_else(String::new, |explained| explained.to_string()),
        )
    }
}

/// False: no room now.
fn taken(sent: Result<(), SendError>) -> Result<bool, End> {
    match sent {
        Ok(()) => Ok(true),
        Err(SendError::WouldBlock) => Ok(false),
        Err(SendError::Disconnected | SendError::UnknownConnection) => {
            Err(End::Broken("a message was not taken: disconnected".to_owned()))
        }
        Err(error) => Err(End::Wrong(format!("a message was not taken: {error}"))),
    }
}

/// The session that an event is about, and where it has one, the operation.
pub fn address(event: &Event, endpoint: &Endpoint) -> Option<u32> {
    let context = match event {
        Event::Send { context, .. }
        | Event::Connect { context, .. }
        | Event::Accept { context, .. }
        | Event::Disconnected { context, .. } => *context,
        Event::Recv(message) => endpoint.context(message.connection())?,
        Event::Mapped(message) => endpoint.context(message.connection())?,
        Event::KeepaliveTimedOut { connection } => endpoint.context(*connection)?,
        _ => return None,
    };
    Some((context >> 32) as u32)
}
