//! The target's side of a flow: what a peer asks for is checked, carried out, and answered when there is space.

use super::slots::{Job, bits};
use super::step::{Step, Turn};
use super::wire::{Head, Parsed};
use super::{Arrived, Channel, Fault, Pulled, Pushed, SLOTS};
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::engine::regions::{FILE_BYTES_MAX, Source};
use crate::rma::Access;
use cci_memory::bytes::Bytes;
use cci_proto::RmaRefusal;
use std::collections::VecDeque;

/// The most that is fetched in one go: system calls of this size cost nothing beside their copying.
pub(super) const FETCH_BYTES_MAX: u64 = 1 << 20;

/// What the peer has asked for on one connection.
pub(super) struct Target {
    jobs: [Job; SLOTS],
    /// Jobs that are not free.
    busy: u128,
    /// Answers to be pushed.
    answers: u128,
    /// Reads and fetches, in order.
    queue: VecDeque<u16>,
    /// Messages of the peer's that it holds until we have buffers, in order.
    holding: VecDeque<u16>,
    /// Of these, those that it has been asked for since then, and has not said.
    asked: u128,
    asked_ns: u64,
}

impl Target {
    pub fn new() -> Target {
        Target {
            jobs: [Job::Free; SLOTS],
            busy: 0,
            answers: 0,
            queue: VecDeque::with_capacity(SLOTS),
            holding: VecDeque::with_capacity(SLOTS),
            asked: 0,
            asked_ns: 0,
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.jobs = [Job::Free; SLOTS];
        (self.busy, self.answers, self.asked, self.asked_ns) = (0, 0, 0, 0);
        self.queue.clear();
        self.holding.clear();
    }

    /// Nothing of the peer's is under way.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.busy == 0
    }

    /// Something is to be pushed or fetched.
    #[inline]
    pub fn has_work(&self) -> bool {
        self.has_answers() || !self.queue.is_empty()
    }

    /// What the peer's operations came to is to be pushed.
    #[inline]
    pub fn has_answers(&self) -> bool {
        self.answers != 0
    }

    /// The next thing to do is to fetch something, which waits for nobody.
    #[inline]
    pub fn has_fetches(&self) -> bool {
        self.queue.front().is_some_and(|slot| matches!(self.job(*slot), Job::Fetch { .. }))
    }

    /// Messages are held by the peer.
    #[inline]
    pub fn is_holding(&self) -> bool {
        !self.holding.is_empty()
    }

    /// Slots in which writes have come and more will, and of these those that were refused; if nothing else is under way.
    pub fn writes(&self) -> Option<(u128, u128)> {
        if self.has_work() || self.is_holding() {
            return None;
        }
        let (mut writes, mut refused_writes) = (0, 0);
        for slot in bits(self.busy) {
            match self.job(slot) {
                Job::Writes { refused } => {
                    writes |= 1 << slot;
                    refused_writes |= u128::from(refused) << slot;
                }
                Job::Free => {}
                _ => return None,
            }
        }
        Some((writes, refused_writes))
    }

    /// Goes on with [writes](Target::writes) that had begun.
    pub fn await_writes(&mut self, writes: u128, refused_writes: u128) {
        for slot in bits(writes) {
            self.set_job(slot, Job::Writes { refused: refused_writes & 1 << slot != 0 });
        }
    }

    #[inline]
    pub fn set_job(&mut self, slot: u16, job: Job) {
        let bit = 1_u128 << slot;
        self.busy = if matches!(job, Job::Free) { self.busy & !bit } else { self.busy | bit };
        if !matches!(job, Job::Again) {
            self.asked &= !bit;
        }
        if matches!(job, Job::Done(_) | Job::Here { .. } | Job::Hold) {
            self.answers |= bit;
        }
        if let Some(entry) = self.jobs.get_mut(usize::from(slot)) {
            *entry = job;
        }
    }

    #[inline]
    pub fn job(&self, slot: u16) -> Job {
        self.jobs.get(usize::from(slot)).copied().unwrap_or(Job::Free)
    }

    /// A request came.
    #[inline]
    pub fn asked(
        &mut self,
        core: &mut Core,
        connection: Connection,
        record: &impl Arrived,
        parsed: &Parsed,
    ) -> Result<(), Fault> {
        let slot = parsed.slot;
        if let Head::Write { .. } = parsed.head {
            return self.written(core, connection, record, parsed);
        }
        let Job::Free = self.job(slot) else { return Err(Fault) };
        let job = match parsed.head {
            Head::Read { at, len_bytes } => match core.regions.peer_source(connection, at, len_bytes) {
                Ok(_) if len_bytes == 0 => return Err(Fault),
                Ok(_) => Job::Read { at, len_bytes, sent_bytes: 0 },
                Err(refusal) => Job::Done(Err(refusal)),
            },
            Head::Atomic { at, atomic, wants_value } => {
                let before = core.regions.peer_atomic(connection, at, atomic);
                Job::Done(before.map(|value| wants_value.then_some(value)))
            }
            Head::Pull { at, len_bytes, address } => {
                match core.regions.peer(connection, at, len_bytes, Access::WRITE) {
                    Ok(_) if len_bytes == 0 => return Err(Fault),
                    Ok(_) => Job::Fetch { at, len_bytes, done_bytes: 0, address },
                    Err(refusal) => Job::Done(Err(refusal)),
                }
            }
            Head::Where { at, len_bytes } => {
                match core.regions.peer_source(connection, at, len_bytes) {
                    Ok(_) if len_bytes == 0 => return Err(Fault),
                    Ok(Source::Memory(bytes, offset)) => {
                        let address = bytes.as_ptr().addr().get() as u64 + offset as u64;
                        Job::Here { at, len_bytes, address }
                    }
                    // It has no address, so its bytes are sent.
                    Ok(Source::File(..)) => Job::Read { at, len_bytes, sent_bytes: 0 },
                    Err(refusal) => Job::Done(Err(refusal)),
                }
            }
            _ => return Err(Fault),
        };
        if matches!(job, Job::Read { .. } | Job::Fetch { .. }) {
            self.queue.push_back(slot);
        }
        self.set_job(slot, job);
        Ok(())
    }

    #[inline]
    fn written(
        &mut self,
        core: &mut Core,
        connection: Connection,
        record: &impl Arrived,
        parsed: &Parsed,
    ) -> Result<(), Fault> {
        let Head::Write { at, remaining_bytes, last } = parsed.head else { return Err(Fault) };
        let mut refused = match self.job(parsed.slot) {
            Job::Free => false,
            Job::Writes { refused } => refused,
            // Its sender has given up waiting for a buffer.
            Job::Hold | Job::Held | Job::Again if last && parsed.remaining_bytes == 0 => {
                self.holding.retain(|held| *held != parsed.slot);
                false
            }
            // A key names one registration, so a region that is there now was there while its bytes were fetched.
            Job::Lent { at, len_bytes } if last && parsed.remaining_bytes == 0 => {
                core.regions.peer(connection, at, len_bytes, Access::READ).is_err()
            }
            _ => return Err(Fault),
        };
        if parsed.remaining_bytes as u64 > remaining_bytes {
            return Err(Fault);
        }
        // An empty one only says that there is no more.
        if parsed.remaining_bytes > 0 && !refused {
            let len_bytes = parsed.remaining_bytes;
            refused = !record.placed().unwrap_or_else(|| {
                let found = core.regions.peer(connection, at, remaining_bytes, Access::WRITE);
                let to = found.ok().and_then(|(bytes, offset)| bytes.part(offset, len_bytes));
                to.is_some_and(|to| record.read_to(parsed.head_bytes, &to))
            });
        }
        let job = match (last, refused) {
            (false, _) => Job::Writes { refused },
            (true, false) => Job::Done(Ok(None)),
            (true, true) => Job::Done(Err(RmaRefusal::Handle)),
        };
        self.set_job(parsed.slot, job);
        Ok(())
    }

    /// Where `len_bytes` of a write's data go, from byte `skip_bytes` of them on. `None`: nowhere, they are refused.
    pub fn write_target(
        &self,
        core: &mut Core,
        connection: Connection,
        parsed: &Parsed,
        skip_bytes: usize,
        len_bytes: usize,
    ) -> Result<Option<Bytes>, Fault> {
        let Head::Write { at, remaining_bytes, .. } = parsed.head else { return Err(Fault) };
        let refused = match self.job(parsed.slot) {
            Job::Free => false,
            Job::Writes { refused } => refused,
            _ => return Err(Fault),
        };
        if parsed.remaining_bytes as u64 > remaining_bytes {
            return Err(Fault);
        }
        if refused {
            return Ok(None);
        }
        //= wire.md R-TCP-21
        let found = core.regions.peer(connection, at, remaining_bytes, Access::WRITE);
        Ok(found.ok().and_then(|(bytes, offset)| bytes.part(offset + skip_bytes, len_bytes)))
    }

    /// A message came behind data. Returns false if there is no buffer for it.
    pub fn notified<R: Arrived>(
        &mut self,
        core: &mut Core,
        connection: Connection,
        record: &R,
        parsed: &Parsed,
        delivers: bool,
    ) -> Result<bool, Fault> {
        let refused = match self.job(parsed.slot) {
            Job::Free => false,
            Job::Writes { refused } => refused,
            Job::Again => false,
            _ => return Err(Fault),
        };
        if !refused && delivers {
            if self.holding.front().is_some_and(|first| *first != parsed.slot) {
                self.hold(parsed.slot);
                return Ok(true);
            }
            let fill = |buffer: &mut [u8]| {
                record.read(parsed.head_bytes, buffer);
            };
            if !core.deliver_with(connection, parsed.remaining_bytes, fill) {
                if R::ASKS_AGAIN {
                    self.hold(parsed.slot);
                }
                return Ok(R::ASKS_AGAIN);
            }
        }
        self.holding.retain(|held| *held != parsed.slot);
        let result = if refused { Err(RmaRefusal::Handle) } else { Ok(None) };
        self.set_job(parsed.slot, Job::Done(result));
        Ok(true)
    }

    /// A message has no buffer, or others wait before it: its sender keeps it.
    pub fn hold(&mut self, slot: u16) {
        //= wire.md R-TCP-22
        if !self.holding.contains(&slot) {
            self.holding.push_back(slot);
        }
        self.set_job(slot, Job::Hold);
    }

    /// Whether the peer has been asked for a message that it holds, and has not said it for so long.
    #[inline]
    pub fn is_owed_a_message(&mut self, now_ns: u64, limit_ns: u64) -> bool {
        if self.asked == 0 {
            let asked = self.holding.iter().filter(|slot| matches!(self.job(**slot), Job::Again));
            self.asked = asked.fold(0, |asked, slot| asked | 1 << slot);
            self.asked_ns = now_ns;
        }
        self.asked != 0 && now_ns.saturating_sub(self.asked_ns) >= limit_ns
    }

    /// The peer holds messages until there are buffers here.
    #[inline]
    pub fn waits_for_buffers(&self) -> bool {
        self.holding.front().is_some_and(|slot| matches!(self.job(*slot), Job::Held))
    }

    /// Pushes answers. Returns false if there is no space for more.
    #[inline]
    pub fn push_answers(&mut self, channel: &mut impl Channel, turn: &mut Turn) -> bool {
        while self.answers != 0 {
            let slot = self.answers.trailing_zeros() as u16;
            let head = match self.job(slot) {
                Job::Done(result) => Head::Done { result },
                Job::Here { address, .. } => Head::Here { address },
                Job::Hold => Head::Hold,
                Job::Free
                | Job::Writes { .. }
                | Job::Read { .. }
                | Job::Fetch { .. }
                | Job::Lent { .. }
                | Job::Held
                | Job::Again => {
                    debug_assert!(false, "only answers are marked as such");
                    self.answers &= self.answers - 1;
                    continue;
                }
            };
            match channel.push(head.bytes(slot).as_slice(), &[]) {
                Pushed::Yes => {}
                Pushed::Full => return false,
                Pushed::Broken => {
                    turn.broken = true;
                    return false;
                }
            }
            turn.moved = true;
            self.answers &= self.answers - 1;
            let next = match self.job(slot) {
                Job::Hold => Job::Held,
                Job::Here { at, len_bytes, .. } => Job::Lent { at, len_bytes },
                _ => Job::Free,
            };
            self.set_job(slot, next);
        }
        true
    }

    /// Asks for the messages again for which there are buffers now.
    #[inline]
    pub fn ask_again(
        &mut self,
        core: &mut Core,
        connection: Connection,
        channel: &mut impl Channel,
        turn: &mut Turn,
    ) -> bool {
        if self.holding.is_empty() {
            return true;
        }
        // A message that would only come back for want of a buffer is not asked for.
        if !core.has_buffer_for(connection) {
            return true;
        }
        for at in 0..self.holding.len().min(core.receive.free_count() as usize) {
            let Some(&slot) = self.holding.get(at) else { break };
            if !matches!(self.job(slot), Job::Held) {
                continue;
            }
            let pushed = channel.push(Head::Again.bytes(slot).as_slice(), &[]);
            if pushed != Pushed::Yes {
                turn.broken |= pushed == Pushed::Broken;
                return false;
            }
            turn.moved = true;
            self.set_job(slot, Job::Again);
        }
        true
    }

    /// Sends or fetches the next part of the oldest such request.
    #[inline]
    pub fn serve<C: Channel>(
        &mut self,
        core: &mut Core,
        connection: Connection,
        channel: &mut C,
        budget_bytes: &mut u64,
    ) -> Step {
        let Some(&slot) = self.queue.front() else { return Step::Blocked };
        if *budget_bytes == 0 {
            return Step::Blocked;
        }
        match self.job(slot) {
            Job::Read { at, len_bytes, sent_bytes } => {
                if !channel.has_space_for_bulk() {
                    return Step::Blocked;
                }
                let now = (len_bytes - sent_bytes).min(channel.data_bytes_max() as u64);
                let from = at.plus(sent_bytes);
                let head = Head::Data { offset: sent_bytes }.bytes(slot);
                let (now, pushed) = if core.regions.is_file(from) {
                    let now = now.min(FILE_BYTES_MAX as u64);
                    let bytes = core.regions.peer_file_bytes(connection, from, now as usize);
                    (now, bytes.ok().map(|bytes| channel.push(head.as_slice(), bytes)))
                } else {
                    let found = core.regions.peer(connection, from, now, Access::READ).ok();
                    let data = found.and_then(|(bytes, offset)| bytes.part(offset, now as usize));
                    (now, data.map(|data| channel.push_memory(head.as_slice(), &data)))
                };
                let pushed = match pushed {
                    Some(pushed) => pushed,
                    None => {
                        let pushed = channel.push(Head::Gone.bytes(slot).as_slice(), &[]);
                        if pushed == Pushed::Yes {
                            self.queue.pop_front();
                            self.set_job(slot, Job::Free);
                        }
                        return pushed.into();
                    }
                };
                if pushed == Pushed::Yes {
                    *budget_bytes = budget_bytes.saturating_sub(now);
                    if sent_bytes + now == len_bytes {
                        self.queue.pop_front();
                        self.set_job(slot, Job::Free);
                    } else {
                        self.set_job(slot, Job::Read { at, len_bytes, sent_bytes: sent_bytes + now });
                        if C::TAKES_TURNS {
                            self.queue.rotate_left(1);
                        }
                    }
                }
                pushed.into()
            }
            Job::Fetch { at, len_bytes, done_bytes, address } => {
                let now = (len_bytes - done_bytes).min(FETCH_BYTES_MAX);
                let found = core.regions.peer(connection, at.plus(done_bytes), now, Access::WRITE);
                let result = match found.map(|(bytes, offset)| bytes.part(offset, now as usize)) {
                    Ok(Some(to)) if channel.pull(address.wrapping_add(done_bytes), &to) == Pulled::All => {
                        Ok(())
                    }
                    Ok(_) => Err(RmaRefusal::Operation),
                    Err(refusal) => Err(refusal),
                };
                *budget_bytes = budget_bytes.saturating_sub(now);
                let done_bytes = done_bytes + now;
                match result {
                    Ok(()) if done_bytes < len_bytes => {
                        self.set_job(slot, Job::Fetch { at, len_bytes, done_bytes, address });
                    }
                    result => {
                        self.queue.pop_front();
                        self.set_job(slot, Job::Done(result.map(|()| None)));
                    }
                }
                Step::Moved
            }
            Job::Free
            | Job::Writes { .. }
            | Job::Done(_)
            | Job::Here { .. }
            | Job::Lent { .. }
            | Job::Hold
            | Job::Held
            | Job::Again => {
                debug_assert!(false, "only reads and fetches stand in line");
                self.queue.pop_front();
                Step::Moved
            }
        }
    }

    /// What reads of the peer's are still to be sent, bytes.
    pub fn unsent_bytes(&self) -> u64 {
        let remaining = |slot: &u16| match self.job(*slot) {
            Job::Read { len_bytes, sent_bytes, .. } => len_bytes - sent_bytes,
            _ => 0,
        };
        self.queue.iter().map(remaining).fold(0, u64::saturating_add)
    }
}
