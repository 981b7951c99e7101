//! Judges how operations start and end, and the memory when all is over. Promises checked here:
//! - every operation ends exactly once, in success only if all of it has happened, refused exactly if it had to be;
//! - a message is delivered if its operation succeeded, and never if it did not for the receiver's sake;
//! - memory holds at the end what the operations that succeeded left there, in the order of fences, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use cci_proto::{Atomic, AtomicKind, Status};

use super::super::rma::names::OPERATION_MARK;
use super::super::rma::operation::{Operation, RESULT_BYTES, What, base_of};
use super::super::rma::regions::{ATOMIC, READ, WRITE};
use super::{Ledger, Role, Side, SideState};
use crate::contents;
use crate::rng::mix;

impl Ledger {
    /// What must become of an operation for its handles, ranges and rights alone, if it is started now.
    fn refusal(&self, token: usize, peer: usize, op: &Operation) -> Option<Status> {
        let node = self.sides[peer].node;
        let right = match op.what {
            What::Write => WRITE,
            What::Read | What::ReadBack(_) => READ,
            What::Atomic(..) => ATOMIC,
        };
        let conversation = self.sides[token].conversation;
        for segment in &op.segments {
            let Ok(region) = self.rma.regions.reach(node, segment.remote, segment.len_bytes, right) else {
                return Some(Status::RmaHandle);
            };
            let is_ours = |owner: usize| self.sides[owner].conversation == conversation;
            if region.scoped && !region.owner.is_some_and(is_ours) {
                return Some(Status::RmaHandle);
            }
            if op.is_atomic() && !segment.remote.offset.is_multiple_of(segment.len_bytes) {
                return Some(Status::RmaOperation);
            }
        }
        None
    }

    /// An operation was taken by the endpoint.
    pub(in crate::sim) fn rma_started(&mut self, token: usize, peer: usize, mut op: Operation) {
        op.bad = self.refusal(token, peer, &op);
        let (conversation, role) = (self.sides[token].conversation, self.sides[token].role);
        let mut all = self.sides.iter().enumerate();
        let is_peer = |side: &Side| side.conversation == conversation && side.role != role;
        op.unsure = all.any(|(other, side)| other != peer && is_peer(side));
        let messages = self.sides[token].flow.msgs.len() as u32;
        let side = self.rma.side(token);
        let index = side.ops.len() as u32;
        let before = side.ops.last().map_or((0, 0), |last| (last.operations_before, last.messages_before));
        (op.operations_before, op.messages_before) = if op.fence { (index, messages) } else { before };
        side.outstanding += 1;
        side.empty_sent += u64::from(op.message == Some(0));
        let mut used: BTreeSet<u64> = op.segments.iter().map(|segment| segment.remote.region).collect();
        if op.what != What::Write {
            used.extend(op.segments.first().map(|segment| segment.local.region));
        }
        side.ops.push(op);
        for region in used {
            if let Some(region) = self.rma.regions.get_mut(region) {
                region.users.push((token, index));
            }
        }
    }

    /// Whether memory of this side that an operation used has gone away.
    pub(super) fn local_gone(&self, token: usize, index: u32) -> bool {
        let Some(op) = self.rma.sides.get(token).and_then(|side| side.ops.get(index as usize)) else {
            return false;
        };
        op.segments.iter().any(|segment| self.is_gone(segment.local.region))
    }

    fn is_gone(&self, region: u64) -> bool {
        self.rma.regions.get(region).is_some_and(|region| region.gone_ns.is_some())
    }

    /// `Event::Rma`.
    pub(in crate::sim) fn rma_completed(&mut self, now_ns: u64, token: u64, name: u64, status: Status) {
        self.note(now_ns, 11, token, name ^ (status as u64) << 40);
        let index = name as u32;
        let side = token as usize;
        let is_known = name & OPERATION_MARK != 0
            && (name & !OPERATION_MARK) >> 32 == token
            && self.rma.sides.get(side).is_some_and(|side| side.ops.len() > index as usize);
        if !is_known {
            return self.fail(now_ns, format!("side {token}: end of {name:#x}, which was never started"));
        }
        if let Err(what) = self.check_ended(side, index, status) {
            let op = &self.rma.sides[side].ops[index as usize];
            let what = format!("side {token}, operation {index}: ended {status:?}: {what}\n{op:?}");
            return self.fail(now_ns, what);
        }
        self.ended(now_ns, side, index, status);
    }

    fn check_ended(&self, side: usize, index: u32, status: Status) -> Result<(), String> {
        let op = &self.rma.sides[side].ops[index as usize];
        let state = self.sides[side].state;
        if let Some(first) = op.status {
            return Err(format!("for the second time, after {first:?}"));
        }
        if matches!(state, SideState::Closed | SideState::Failed | SideState::Crashed | SideState::Pending) {
            return Err(format!("while the connection is {state:?}"));
        }
        let gone = op.unsure
            || op
                .segments
                .iter()
                .any(|segment| self.is_gone(segment.local.region) || self.is_gone(segment.remote.region));
        match status {
            Status::Success if op.bad.is_some() => Err(format!("it had to be refused, {:?}", op.bad)),
            Status::Success if !op.is_done() => {
                Err(format!("bytes {:?} are missing", op.placed.gap(op.len_bytes)))
            }
            Status::Success => match op.what {
                What::Atomic(_, Some(_)) if op.placed.len_bytes() != RESULT_BYTES => {
                    Err("the result is missing".into())
                }
                _ => Ok(()),
            },
            Status::RmaHandle if op.bad != Some(Status::RmaHandle) && !gone => {
                Err("there was nothing wrong with its places".into())
            }
            Status::RmaHandle if op.delivered > 0 && !self.local_gone(side, index) => {
                Err("its message was delivered".into())
            }
            Status::RmaOperation if op.bad != Some(Status::RmaOperation) => {
                Err("there was nothing wrong with it".into())
            }
            Status::RmaHandle | Status::RmaOperation if op.old.is_some() && !gone => {
                Err("it was carried out".into())
            }
            Status::RmaHandle | Status::RmaOperation => Ok(()),
            Status::ReceiverNotReady if op.message.is_none() => Err("it has no message".into()),
            Status::ReceiverNotReady if op.delivered > 0 => Err("its message was delivered".into()),
            _ if self.all_succeed => Err("nothing was wrong with the network or the peer".into()),
            _ => Ok(()),
        }
    }

    fn ended(&mut self, now_ns: u64, token: usize, index: u32, status: Status) {
        let rma = &mut self.rma;
        let side = &mut rma.sides[token];
        let op = &mut side.ops[index as usize];
        op.status = Some(status);
        side.outstanding -= 1;
        side.last_completion_ns = now_ns;
        let counts = &mut rma.counts;
        match (status, op.what) {
            (Status::Success, what) => {
                side.done_bytes += op.len_bytes;
                counts.bytes += op.len_bytes;
                match what {
                    What::Write => counts.writes += 1,
                    What::Read | What::ReadBack(_) => counts.reads += 1,
                    What::Atomic(..) => counts.atomics += 1,
                }
            }
            (Status::RmaHandle | Status::RmaOperation, _) => counts.refused += 1,
            _ => counts.failed += 1,
        }
        side.failed += u32::from(status != Status::Success);
        if op.what == What::Write {
            // From now on this memory is the program's again, which has other uses for it.
            for segment in &op.segments {
                if let Some(region) =
                    rma.regions.get_mut(segment.local.region).filter(|region| region.gone_ns.is_none())
                {
                    let bytes =
                        &mut region.bytes[segment.local.offset as usize..][..segment.len_bytes as usize];
                    contents::fill_pattern(mix(now_ns), 0, bytes);
                }
            }
        }
        if status == Status::Success
            && let Some(segment) = op.segments.first()
        {
            for region in [segment.remote.region, segment.local.region] {
                if let Some(region) = rma.regions.get_mut(region) {
                    region.users.retain(|user| *user != (token, index));
                }
            }
        }
    }

    /// What can only be judged when nothing more will happen.
    pub(in crate::sim) fn rma_finish(&self) -> Result<(), String> {
        for (token, side) in self.rma.sides.iter().enumerate() {
            if self.sides[token].state == SideState::Crashed {
                continue;
            }
            if let Some(index) = side.ops.iter().position(|op| op.status.is_none()) {
                return Err(format!("side {token}: operation {index} never ended: {:?}", side.ops[index]));
            }
            self.check_messages(token)?;
        }
        self.check_memory_written()?;
        self.rma.words.values().try_for_each(|words| self.check_words(*words))
    }

    fn check_messages(&self, token: usize) -> Result<(), String> {
        let (side, known) = (&self.rma.sides[token], &self.sides[token]);
        let mut receivers = self
            .sides
            .iter()
            .filter(|peer| peer.conversation == known.conversation && peer.role != known.role);
        if receivers.any(|peer| peer.state == SideState::Crashed || peer.hung_up) {
            return Ok(());
        }
        let owed = |op: &&Operation| op.status == Some(Status::Success) && op.message.is_some();
        let empty = side.ops.iter().filter(owed).filter(|op| op.message == Some(0)).count() as u64;
        if side.empty_arrived < empty {
            return Err(format!("side {token}: {empty} empty messages, {} arrived", side.empty_arrived));
        }
        let lost = |op: &Operation| owed(&op) && op.message != Some(0) && op.delivered == 0;
        match side.ops.iter().position(lost) {
            Some(index) => Err(format!("side {token}: the message of operation {index} never arrived")),
            None => Ok(()),
        }
    }

    /// Every byte that peers could write, against what the operations that succeeded left there.
    fn check_memory_written(&self) -> Result<(), String> {
        let mut writes: BTreeMap<u64, Vec<(usize, u32)>> = BTreeMap::new();
        for (token, side) in self.rma.sides.iter().enumerate() {
            for (index, op) in side.ops.iter().enumerate().filter(|(_, op)| op.what == What::Write) {
                let regions: BTreeSet<u64> =
                    op.segments.iter().map(|segment| segment.remote.region).collect();
                for region in regions {
                    writes.entry(region).or_default().push((token, index as u32));
                }
            }
        }
        for (id, region) in self.rma.regions.iter().filter(|(_, region)| region.rights & WRITE != 0) {
            let users = writes.get(&id).map_or(&[][..], Vec::as_slice);
            let writer = |user: &&(usize, u32)| self.sides[user.0].role == Role::Server;
            if users.iter().filter(writer).map(|user| user.0).collect::<BTreeSet<_>>().len() > 1 {
                continue; // a server that was restarted: nobody ordered the two
            }
            let mut wanted = vec![0; region.bytes.len()];
            contents::fill_pattern(mix(id), 0, &mut wanted);
            let mut sure = vec![true; wanted.len()];
            for (token, index) in users {
                self.apply(*token, *index, id, &mut wanted, &mut sure);
            }
            let differs = (0..wanted.len()).find(|at| sure[*at] && wanted[*at] != region.bytes[*at]);
            if let Some(at) = differs {
                let address = self.rma.regions.address(id, at as u64);
                let covers = |user: &&(usize, u32)| {
                    self.rma.sides[user.0].ops[user.1 as usize].at_remote(address, 1).is_some()
                };
                let writers: Vec<_> = users.iter().filter(covers).collect();
                return Err(format!(
                    "region {id}: byte {at} is not what was written there last; writers, in order: {writers:?}"
                ));
            }
        }
        Ok(())
    }

    fn apply(&self, token: usize, index: u32, id: u64, wanted: &mut [u8], sure: &mut [bool]) {
        let op = &self.rma.sides[token].ops[index as usize];
        let success = op.status == Some(Status::Success);
        let mut at = 0;
        for segment in &op.segments {
            // Of an operation that ends behind the region, which must be refused, what is inside may be written.
            let clamped = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(wanted.len());
            let range = clamped(segment.remote.offset)..clamped(segment.remote.offset + segment.len_bytes);
            if segment.remote.region == id {
                contents::fill_pattern(base_of(token, index), at, &mut wanted[range.clone()]);
                sure[range].fill(success);
            }
            at += segment.len_bytes;
        }
    }

    /// Every word, against all that was done to it.
    fn check_words(&self, region: u64) -> Result<(), String> {
        let Some(bytes) = self.rma.regions.get(region).map(|region| &region.bytes) else { return Ok(()) };
        let mut done: BTreeMap<u64, Vec<(Atomic, u64)>> = BTreeMap::new();
        for op in self.rma.sides.iter().flat_map(|side| &side.ops) {
            if let (What::Atomic(atomic, _), Some(old), Some(segment)) =
                (op.what, op.old, op.segments.first())
                && segment.remote.region == region
            {
                done.entry(segment.remote.offset).or_default().push((atomic, old));
            }
        }
        for (offset, done) in done {
            let width = done[0].0.width.bytes();
            let mut word = [0; 8];
            word[..width].copy_from_slice(&bytes[offset as usize..][..width]);
            check_word(&done, u64::from_le_bytes(word), offset)?;
        }
        Ok(())
    }
}

/// A word of ones.
fn full(atomic: Atomic) -> u64 {
    u64::MAX >> (64 - 8 * atomic.width.bytes())
}

/// All that was done to one word, of one kind, each with what it found; and what is there at the end.
fn check_word(done: &[(Atomic, u64)], last: u64, offset: u64) -> Result<(), String> {
    let kind = done[0].0.kind;
    let wrong = match kind {
        // One each: all results differ, and there is no gap.
        AtomicKind::FetchAdd => {
            let mut olds: Vec<u64> = done.iter().map(|(_, old)| *old).collect();
            olds.sort_unstable();
            olds.iter().enumerate().any(|(wanted, old)| *old != wanted as u64) || last != olds.len() as u64
        }
        AtomicKind::Add => {
            done.iter().fold(0u64, |sum, (atomic, _)| sum.wrapping_add(atomic.operand)) != last
        }
        AtomicKind::Or => done.iter().fold(0, |bits, (atomic, _)| bits | atomic.operand) != last,
        AtomicKind::Xor => done.iter().fold(0, |bits, (atomic, _)| bits ^ atomic.operand) != last,
        AtomicKind::And => {
            done.iter().fold(full(done[0].0), |bits, (atomic, _)| bits & atomic.operand) != last
        }
        // What was put there is found by the next, or is there at the end: a chain without a branch.
        AtomicKind::Swap | AtomicKind::CompareSwap => {
            let took = |(atomic, old): &&(Atomic, u64)| kind == AtomicKind::Swap || *old == atomic.compare;
            let mut found: Vec<u64> = done.iter().filter(took).map(|(_, old)| *old).collect();
            found.push(last);
            let mut put: Vec<u64> = done.iter().filter(took).map(|(atomic, _)| atomic.operand).collect();
            put.push(0);
            found.sort_unstable();
            put.sort_unstable();
            found != put
        }
    };
    if wrong {
        return Err(format!("word at {offset}: {last:#x} after {done:x?}"));
    }
    Ok(())
}
