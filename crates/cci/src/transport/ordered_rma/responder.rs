//! The answering side: what a peer asks for is checked, carried out, and answered when there is room.

use super::flow::Flow;
use super::operations::Ops;
use super::slots::Job;
use super::step::{Step, Turn};
use super::wire::{Head, Parsed};
use super::{Arrived, Channel, Fault, Pulled, Pushed};
use crate::engine::core::Core;
use crate::rma::Access;
use cci_proto::{RmaPlace, RmaRefusal};

/// The most that is fetched in one go: system calls of this size cost nothing beside their copying.
pub(super) const FETCH_BYTES_MAX: u64 = 1 << 20;

impl Flow {
    fn set_job(&mut self, slot: u16, job: Job) {
        let bit = 1_u128 << slot;
        self.busy = if matches!(job, Job::Free) { self.busy & !bit } else { self.busy | bit };
        if matches!(job, Job::Done(_) | Job::Here { .. }) {
            self.answers |= bit;
        }
        if let Some(place) = self.jobs.get_mut(usize::from(slot)) {
            *place = job;
        }
    }

    fn job(&self, slot: u16) -> Job {
        self.jobs.get(usize::from(slot)).copied().unwrap_or(Job::Free)
    }

    /// A request came.
    pub(super) fn asked(
        &mut self,
        core: &mut Core,
        record: &impl Arrived,
        parsed: &Parsed,
    ) -> Result<(), Fault> {
        let (slot, connection) = (parsed.slot, self.connection);
        if let Head::Write { at, rest_bytes, last } = parsed.head {
            return self.written(core, record, parsed, at, rest_bytes, last);
        }
        let Job::Free = self.job(slot) else { return Err(Fault) };
        let job = match parsed.head {
            Head::Read { at, len_bytes } => {
                match core.regions.peer(connection, at, len_bytes, Access::READ) {
                    Ok(_) if len_bytes == 0 => return Err(Fault),
                    Ok(_) => Job::Read { at, len_bytes, sent_bytes: 0 },
                    Err(refusal) => Job::Done(Err(refusal)),
                }
            }
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
                match core.regions.peer(connection, at, len_bytes, Access::READ) {
                    Ok((bytes, offset)) => {
                        Job::Here { address: bytes.as_ptr().addr().get() as u64 + offset as u64 }
                    }
                    Err(refusal) => Job::Done(Err(refusal)),
                }
            }
            _ => return Err(Fault),
        };
        if matches!(job, Job::Read { .. } | Job::Fetch { .. }) {
            self.line.push_back(slot);
        }
        self.set_job(slot, job);
        Ok(())
    }

    fn written(
        &mut self,
        core: &mut Core,
        record: &impl Arrived,
        parsed: &Parsed,
        at: RmaPlace,
        rest_bytes: u64,
        last: bool,
    ) -> Result<(), Fault> {
        let mut refused = match self.job(parsed.slot) {
            Job::Free => false,
            Job::Writes { refused } => refused,
            _ => return Err(Fault),
        };
        if parsed.rest_bytes as u64 > rest_bytes {
            return Err(Fault);
        }
        // An empty one only says that there is no more.
        if parsed.rest_bytes > 0 && !refused {
            let len_bytes = parsed.rest_bytes;
            refused = match core.regions.peer(self.connection, at, rest_bytes, Access::WRITE) {
                Ok((bytes, offset)) => {
                    bytes.part(offset, len_bytes).is_none_or(|to| !record.read_to(parsed.head_bytes, &to))
                }
                Err(_) => true,
            };
        }
        let job = match (last, refused) {
            (false, _) => Job::Writes { refused },
            (true, false) => Job::Done(Ok(None)),
            (true, true) => Job::Done(Err(RmaRefusal::Handle)),
        };
        self.set_job(parsed.slot, job);
        Ok(())
    }

    /// A message came behind data. False: there is no buffer for it.
    pub(super) fn notified(
        &mut self,
        core: &mut Core,
        record: &impl Arrived,
        parsed: &Parsed,
        delivers: bool,
    ) -> Result<bool, Fault> {
        let refused = match self.job(parsed.slot) {
            Job::Free => false,
            Job::Writes { refused } => refused,
            _ => return Err(Fault),
        };
        if !refused && delivers {
            let fill = |buffer: &mut [u8]| {
                record.read(parsed.head_bytes, buffer);
            };
            if !core.deliver_with(self.connection, parsed.rest_bytes, fill) {
                return Ok(false);
            }
        }
        let result = if refused { Err(RmaRefusal::Handle) } else { Ok(None) };
        self.set_job(parsed.slot, Job::Done(result));
        Ok(true)
    }

    /// Pushes answers. False: there is no room for more.
    pub(super) fn push_answers(&mut self, channel: &mut impl Channel, turn: &mut Turn) -> bool {
        while self.answers != 0 {
            let slot = self.answers.trailing_zeros() as u16;
            let head = match self.job(slot) {
                Job::Done(result) => Head::Done { result },
                Job::Here { address } => Head::Here { address },
                Job::Free | Job::Writes { .. } | Job::Read { .. } | Job::Fetch { .. } => {
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
            self.set_job(slot, Job::Free);
        }
        true
    }

    /// Sends or fetches the next part of the oldest such request.
    pub(super) fn serve(
        &mut self,
        _: &mut Ops,
        core: &mut Core,
        channel: &mut impl Channel,
        budget_bytes: &mut u64,
    ) -> Step {
        let Some(&slot) = self.line.front() else { return Step::Blocked };
        if *budget_bytes == 0 {
            return Step::Blocked;
        }
        match self.job(slot) {
            Job::Read { at, len_bytes, sent_bytes } => {
                if !channel.has_room_for_bulk() {
                    return Step::Blocked;
                }
                let now = (len_bytes - sent_bytes).min(channel.data_bytes_max() as u64);
                let found = core.regions.peer(self.connection, at.plus(sent_bytes), now, Access::READ);
                let pushed = match found.map(|(bytes, offset)| bytes.part(offset, now as usize)) {
                    Ok(Some(data)) => {
                        let head = Head::Data { offset: sent_bytes }.bytes(slot);
                        channel.push_memory(head.as_slice(), &data)
                    }
                    Ok(None) | Err(_) => {
                        let pushed = channel.push(Head::Gone.bytes(slot).as_slice(), &[]);
                        if pushed == Pushed::Yes {
                            self.line.pop_front();
                            self.set_job(slot, Job::Free);
                        }
                        return pushed.into();
                    }
                };
                if pushed == Pushed::Yes {
                    *budget_bytes = budget_bytes.saturating_sub(now);
                    if sent_bytes + now == len_bytes {
                        self.line.pop_front();
                        self.set_job(slot, Job::Free);
                    } else {
                        self.set_job(slot, Job::Read { at, len_bytes, sent_bytes: sent_bytes + now });
                    }
                }
                pushed.into()
            }
            Job::Fetch { at, len_bytes, done_bytes, address } => {
                let now = (len_bytes - done_bytes).min(FETCH_BYTES_MAX);
                let found = core.regions.peer(self.connection, at.plus(done_bytes), now, Access::WRITE);
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
                        self.line.pop_front();
                        self.set_job(slot, Job::Done(result.map(|()| None)));
                    }
                }
                Step::Moved
            }
            Job::Free | Job::Writes { .. } | Job::Done(_) | Job::Here { .. } => {
                debug_assert!(false, "only reads and fetches stand in line");
                self.line.pop_front();
                Step::Moved
            }
        }
    }
}
