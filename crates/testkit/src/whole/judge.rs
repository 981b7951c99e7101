//! The judge: every side of every talk, and the first promise that was broken.
//!
//! Checked when it could be broken:
//! - ordered: delivered in the order sent; completions in the order of the calls, messages and operations together;
//! - reliable: exactly once; unreliable: at most once; every byte as it was sent, from that peer, on that connection;
//! - every send and operation that is not silent completes exactly once, whatever becomes of peers and network;
//! - `Success` on a reliable connection came, or will have come when all is over; `ReceiverNotReady` never does;
//! - what was written or read is there when its completion says so; additions happen once; nothing else is touched.

use super::broken::Broken;
use super::memory::Kind;
use super::scenario::{End, Sabotage};
use super::side::{Life, Side};
use crate::rng::mix;
use crate::whole::contents;
use cci::{Attribute, Connection, DisconnectReason, Status};

/// In the context of an operation.
const OPERATION: u64 = 1 << 63;
/// A clock that jumps by less makes nothing late.
const JUMP_NS_MIN: u64 = 1_000_000_000;
/// In the name of a message behind an operation.
pub(super) const BEHIND: u32 = 1 << 23;

#[derive(Default)]
pub(super) struct Judge {
    pub sides: Vec<Side>,
    /// Nothing may fail.
    pub gentle: bool,
    pub sabotage: Option<Sabotage>,
    /// Datagrams arrive again from other addresses of their senders.
    pub replays_elsewhere: bool,
    /// System calls are made to fail.
    pub calls_may_fail: bool,
    /// The machines share memory: what a library takes out of a ring has arrived.
    pub is_shared: bool,
    /// Fold of everything that happened.
    pub trace: u64,
    /// Lines for people, if they are wanted.
    pub lines: Option<Vec<String>>,
    pub broken: Option<Broken>,
    pub messages: u64,
    pub operations: u64,
    pub failures: u64,
    pub completions: u64,
}

impl Judge {
    /// Records the first broken promise; later ones are mostly its consequences.
    pub fn fail(&mut self, now_ns: u64, rule: &'static str, what: impl Into<String>) {
        if self.broken.is_none() {
            self.broken = Some(Broken { rule, at_ns: now_ns, what: what.into(), lines: Vec::new() });
        }
    }

    pub fn note(&mut self, now_ns: u64, kind: u64, a: u64, b: u64) {
        self.trace = mix(self.trace ^ mix(now_ns ^ kind << 56) ^ mix(a).rotate_left(7) ^ mix(b ^ kind));
    }

    pub fn log(&mut self, now_ns: u64, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>14} {}", now_ns, line()));
        }
    }

    pub fn context(side: usize, index: u32, operation: bool) -> u64 {
        (side as u64) << 32 | u64::from(index) | if operation { OPERATION } else { 0 }
    }

    /// Sides of this talk's other end.
    fn others(&self, side: usize) -> impl Iterator<Item = &Side> {
        let Side { talk, end, .. } = &self.sides[side];
        let (number, end) = (talk.number, *end);
        self.sides.iter().filter(move |other| other.talk.number == number && other.end != end)
    }

    /// Whether this side is a server's that was asked for its connection more than once, since what a client sent from one of its
    /// addresses was replayed from another of them. The client confirms one connection (wire.md R-HS-4).
    pub fn is_asked_twice(&self, side: usize) -> bool {
        let is_server = self.sides.get(side).is_some_and(|side| side.end == End::Server);
        let others = |&(number, other): &(usize, &Side)| {
            number != side && other.end == End::Server && other.peer == self.sides[side].peer
        };
        self.replays_elsewhere && is_server && self.sides.iter().enumerate().any(|each| others(&each))
    }

    /// Whether a call on this side may be refused because the connection is over.
    pub fn may_be_over(&self, side: usize) -> bool {
        let this = &self.sides[side];
        let gone = |other: &Side| !matches!(other.life, Life::Up | Life::Pending) || other.reported_dead;
        // What is silent fails without a word, and may take the connection along.
        // And what a peer does not acknowledge for too long may be an answer to it, of which no program knows.
        let unseen = |side: &Side| side.silent || side.work.is_some();
        let silent = !self.gentle && (unseen(this) || self.others(side).any(unseen));
        // A peer that was not ready is asked whether it is still there, with nothing under way.
        let refused = |side: &Side| side.ended.iter().any(|(_, status)| *status == Status::ReceiverNotReady);
        let asks = !self.gentle && (refused(this) || self.others(side).any(refused));
        // A link ends with a system call that fails on it.
        let late = this.jumped || self.others(side).any(|other| other.jumped);
        this.reported_dead || silent || asks || late || self.calls_may_fail || self.others(side).any(gone)
    }

    /// The clock of a machine has jumped. What was under way there may be too late by it.
    pub fn jumped(&mut self, machine: usize, ns: u64) {
        for side in self.sides.iter_mut().filter(|side| side.machine == machine) {
            side.jumped |= ns >= JUMP_NS_MIN;
        }
    }

    /// A message came to `side`.
    pub fn delivered(&mut self, now_ns: u64, side: usize, payload: &[u8]) {
        self.messages += 1;
        let hash = payload.iter().fold(payload.len() as u64, |hash, byte| mix(hash ^ u64::from(*byte)));
        self.note(now_ns, 1, side as u64, hash);
        self.log(now_ns, || {
            format!("side {side} gets {} bytes: {:?}", payload.len(), contents::identify(payload))
        });
        if let Err(what) = self.check_delivered(now_ns, side, payload) {
            self.fail(now_ns, "delivery", format!("side {side} got {} bytes: {what}", payload.len()));
        }
        if let Some(Sabotage::Repeat(every)) = self.sabotage
            && self.messages.is_multiple_of(every.into())
            && let Err(what) = self.check_delivered(now_ns, side, payload)
        {
            self.fail(now_ns, "delivery", format!("side {side} got {} bytes: {what}", payload.len()));
        }
    }

    /// The library says that a connection has ended: once, for one that its program has not disconnected, and for a reason.
    pub fn disconnected(
        &mut self,
        now_ns: u64,
        number: Option<usize>,
        context: u64,
        reason: DisconnectReason,
    ) -> Result<(), String> {
        self.note(now_ns, 8, context, reason as u64);
        let number = number.ok_or("never known")?;
        self.log(now_ns, || format!("side {number}: disconnected, {reason}"));
        // The other end's program may not have taken the completions by which it learns of that.
        let may_be_over = self.may_be_over(number)
            || self.others(number).any(|side| side.was_overdue || side.is_overdue(now_ns));
        let side = self.sides.get_mut(number).ok_or("never known")?;
        if side.life != Life::Up || side.disconnected {
            return Err(format!("disconnected ({reason}) while {:?}", side.life));
        }
        if !may_be_over {
            return Err(format!("disconnected ({reason}), and nothing has happened to it"));
        }
        (side.life, side.hung_up, side.disconnected) = (Life::Closed, true, true);
        Ok(())
    }

    fn check_delivered(&mut self, now_ns: u64, side: usize, payload: &[u8]) -> Result<(), String> {
        let this = &self.sides[side];
        if !matches!(this.life, Life::Up | Life::Closed) || this.disconnected {
            return Err(format!("while {:?}", this.life));
        }
        let (number, end, ordered) = (this.talk.number, this.end, this.is_ordered());
        let named = contents::identify(payload);
        let from = match named {
            Some((name, _)) => (name & !BEHIND) as usize,
            None if payload.len() < contents::NAMED_BYTES_MIN => {
                this.peer.or_else(|| self.likely_peer(side)).ok_or("from nobody known")?
            }
            None => return Err("contents damaged".into()),
        };
        let known = this.peer.is_none_or(|known| known == from);
        let sender = self.sides.get(from).ok_or("from no side there is")?;
        if sender.talk.number != number || sender.end == end || !known {
            return Err(format!("it is of side {from}, talk {}", sender.talk.number));
        }
        self.sides[side].peer = Some(from);
        let sender = &mut self.sides[from];
        sender.was_overdue |= sender.is_overdue(now_ns);
        sender.progress_ns = now_ns;
        sender.delivered.0 += 1;
        sender.delivered.1 += payload.len() as u64;
        match named {
            Some((name, index)) if name & BEHIND != 0 => {
                let work = sender.work.as_mut().ok_or("of an operation, of which there were none")?;
                work.delivered(from, index, payload.len()).map_err(|what| format!("message {what}"))
            }
            _ => {
                sender.flow.may_complete_late = self.is_shared;
                sender.flow.deliver(from, payload, ordered)
            }
        }
    }

    /// The side that is the other end of this one. A request that comes again makes another side, which never comes up.
    fn likely_peer(&self, side: usize) -> Option<usize> {
        let Side { talk, end, .. } = &self.sides[side];
        let other = |at: &usize| {
            let other = &self.sides[*at];
            other.talk.number == talk.number && other.end != *end
        };
        let up = |at: &usize| other(at) && self.sides[*at].connection.is_some();
        let all = 0..self.sides.len();
        all.clone().find(up).or_else(|| all.clone().find(other))
    }

    /// A completion came on `machine`.
    pub fn completed(
        &mut self,
        now_ns: u64,
        machine: usize,
        connection: Connection,
        context: u64,
        status: Status,
    ) {
        self.completions += 1;
        self.note(now_ns, 2, context, status as u64);
        self.log(now_ns, || {
            let side = (context & !OPERATION) >> 32;
            let what = if context & OPERATION != 0 { "operation" } else { "message" };
            format!("side {side}: {what} {} completes: {status}", context as u32)
        });
        if let Some(Sabotage::LoseCompletion(every)) = self.sabotage
            && self.completions.is_multiple_of(every.into())
        {
            return;
        }
        self.failures += u64::from(status != Status::Success);
        // Who looks at a peer's memory after a completion has heard of it, and hearing orders memory.
        cci::simulated::settle();
        if let Err(what) = self.check_completed(now_ns, machine, connection, context, status) {
            self.fail(now_ns, "completion", format!("context {context:#x} completed {what}"));
        }
    }

    fn check_completed(
        &mut self,
        now_ns: u64,
        machine: usize,
        connection: Connection,
        context: u64,
        status: Status,
    ) -> Result<(), String> {
        let (index, number) = (context as u32, ((context & !OPERATION) >> 32) as usize);
        let gentle = self.gentle;
        let side = self.sides.get_mut(number).ok_or("of no side there is")?;
        if side.machine != machine || side.connection != Some(connection) {
            return Err(format!("on machine {machine} connection {connection:?}, not its own"));
        }
        if !matches!(side.life, Life::Up | Life::Closed) || side.disconnected {
            return Err(format!("while {:?}", side.life));
        }
        let ticket = if context & OPERATION != 0 {
            self.operations += 1;
            let work = side.work.as_mut().ok_or("of an operation, of which there were none")?;
            work.completed(number, index, status, gentle && side.life == Life::Up)?;
            work.ops[index as usize].sent.ticket
        } else {
            let sent = side.flow.sent.get_mut(index as usize).ok_or("of a message never sent")?;
            if let Some(first) = sent.status.replace(status) {
                return Err(format!("twice: {first:?}, then {status:?}"));
            }
            if sent.silent {
                return Err(format!("with {status:?} though it was silent"));
            }
            if status == Status::ReceiverNotReady && sent.delivered > 0 {
                if sent.len_bytes as usize >= contents::NAMED_BYTES_MIN {
                    return Err(format!("with {status:?} though it was delivered"));
                }
                // What came was a later one, too short to say so.
                side.flow.misplaced += u64::from(std::mem::take(&mut sent.delivered));
            }
            if gentle && status != Status::Success {
                return Err(format!("with {status:?} though nothing was wrong"));
            }
            if matches!(status, Status::RmaHandle | Status::RmaOperation) {
                return Err(format!("with {status:?} though it is a message"));
            }
            sent.ticket
        };
        side.completes(now_ns, ticket, status)
    }

    /// What can only be said when all is over. `owed`: no more completions will come.
    pub fn finish(&mut self, now_ns: u64) {
        for side in 0..self.sides.len() {
            if let Err(what) = self.check_finished(side) {
                self.fail(now_ns, "end", format!("side {side}: {what}"));
            }
        }
    }

    fn check_finished(&self, number: usize) -> Result<(), String> {
        let side = &self.sides[number];
        if side.life == Life::Pending {
            return Err("neither up nor failed".into());
        }
        let alive = side.life != Life::Crashed;
        if alive
            && let Some(index) = side.flow.sent.iter().position(|sent| !sent.silent && sent.status.is_none())
        {
            return Err(format!("message {index} never completed ({:?})", side.flow.sent[index]));
        }
        if let Some(work) = &side.work {
            work.finish(alive, self.calls_may_fail)?;
        }
        // A peer that had closed, or whose attempt to accept had ended, may have taken what came without looking at it.
        let closed = |other: &Side| {
            other.life == Life::Crashed || other.hung_up || self.is_shared && other.life == Life::Failed
        };
        let excused = self.others(number).any(closed);
        if side.attribute() == Attribute::Unreliable || excused {
            return Ok(());
        }
        let all = self.gentle && !side.hung_up;
        let missing = side.flow.missing(side.is_ordered(), all);
        missing.or_else(|| side.work.as_ref().and_then(|work| work.missing())).map_or(Ok(()), Err)
    }

    /// Sides that have something to do, for people.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (number, side) in self.sides.iter().enumerate().filter(|(_, side)| side.is_busy()) {
            let Side { talk, end, machine, life, outstanding, flow, progress_ns, .. } = side;
            let failed =
                flow.sent.iter().filter(|sent| sent.status.is_some_and(|s| s != Status::Success)).count();
            let ops = side.work.as_ref().map_or(0, |work| work.ops.len());
            let silent = side
                .work
                .as_ref()
                .map_or(0, |work| work.ops.iter().filter(|op| op.kind == Kind::Silent).count());
            text += &format!(
                "side {number}: talk {} {end:?} on {machine}, {} {life:?}, sent {} failed {failed} operations {ops} ({silent} silent) outstanding {outstanding}, more {}, last progress {progress_ns}\n",
                talk.number,
                talk.attribute.short_name(),
                flow.sent.len(),
                side.has_more(),
            );
        }
        text
    }

    /// The other end of `side`, once only one is possible.
    pub fn peer(&self, side: usize) -> Option<usize> {
        self.sides[side].peer.or_else(|| self.likely_peer(side))
    }

    /// The side of a talk's end that is up, or was last.
    pub fn side_of(&self, talk: u32, end: End) -> Option<usize> {
        let is = |side: &Side| side.talk.number == talk && side.end == end;
        let up = self.sides.iter().rposition(|side| is(side) && side.life == Life::Up);
        up.or_else(|| self.sides.iter().rposition(is))
    }
}
