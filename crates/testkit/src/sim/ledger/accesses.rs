//! Judges every access that the protocol makes, at the moment it makes it. Promises checked here:
//! - bytes are put only where an operation in progress wants them, as they were given, and only once;
//! - nothing of an operation happens before all that is before its fence is complete;
//! - what a read brings is what was there at some moment from its start on; what is read back behind a fence is what was
//!   written;
//! - an atomic is carried out at most once, and its result is what it found;
//! - a message that belongs to an operation comes once at most, and not before the operation's data.
//!
//! What can be said of ends is in `ends`.

use cci_proto::{Atomic, AtomicKind, AtomicWidth, ConnKey, RemoteAddress, RmaRefusal, Status};

use super::super::rma::operation::{Operation, What, base_of};
use super::super::rma::regions::{ATOMIC, READ, WRITE};
use super::{Ledger, SideState};
use crate::contents;

/// Which operation an access is for, and where in it.
type Found = (usize, u32, u64);

impl Ledger {
    /// `Memory::peer_write`.
    pub(in crate::sim) fn peer_write(
        &mut self,
        now_ns: u64,
        (node, conn, token): (usize, ConnKey, u64),
        at: RemoteAddress,
        data: &[u8],
    ) -> Result<(), RmaRefusal> {
        self.note(now_ns, 5, token, at.offset ^ (data.len() as u64) << 24);
        let len_bytes = data.len() as u64;
        self.let_in(now_ns, (node, conn, token), at, len_bytes, WRITE)?;
        if data.is_empty() {
            return Ok(());
        }
        let found = self.find_write(token as usize, at, data).and_then(|(side, index, offset)| {
            self.check_order(side, index)?;
            let op = &mut self.rma.sides[side].ops[index as usize];
            op.placed.add(offset, offset + len_bytes);
            Ok(())
        });
        if let Err(what) = found {
            self.fail(now_ns, format!("side {token}: write of {len_bytes} B at {at:x?}: {what}"));
        }
        if let Some(region) = self.rma.regions.get_mut(at.region) {
            region.bytes[at.offset as usize..][..data.len()].copy_from_slice(data);
        }
        Ok(())
    }

    /// `Memory::peer_may_read`.
    pub(in crate::sim) fn peer_may_read(
        &mut self,
        now_ns: u64,
        (node, conn, token): (usize, ConnKey, u64),
        at: RemoteAddress,
        len_bytes: u64,
    ) -> Result<(), RmaRefusal> {
        self.note(now_ns, 6, token, at.offset ^ len_bytes << 24);
        self.let_in(now_ns, (node, conn, token), at, len_bytes, READ)?;
        if let Err(what) = self.check_read(token as usize, at, len_bytes) {
            self.fail(now_ns, format!("side {token}: read of {len_bytes} B at {at:x?}: {what}"));
        }
        Ok(())
    }

    /// `Memory::peer_read`. It may come long after the end of the operation, for a bundle that is sent again.
    pub(in crate::sim) fn peer_read(
        &mut self,
        now_ns: u64,
        (node, conn, token): (usize, ConnKey, u64),
        at: RemoteAddress,
        out: &mut [u8],
    ) -> Result<(), RmaRefusal> {
        self.note(now_ns, 7, token, at.offset ^ (out.len() as u64) << 24);
        let region = self.let_in(now_ns, (node, conn, token), at, out.len() as u64, READ)?;
        if let Some(region) = self.rma.regions.get(region) {
            out.copy_from_slice(&region.bytes[at.offset as usize..][..out.len()]);
        }
        Ok(())
    }

    /// `Memory::peer_atomic`.
    pub(in crate::sim) fn peer_atomic(
        &mut self,
        now_ns: u64,
        (node, conn, token): (usize, ConnKey, u64),
        at: RemoteAddress,
        atomic: Atomic,
    ) -> Result<u64, RmaRefusal> {
        self.note(now_ns, 8, token, at.offset ^ (atomic.kind as u64) << 24);
        let width = atomic.width.bytes();
        self.let_in(now_ns, (node, conn, token), at, width as u64, ATOMIC)?;
        if !at.offset.is_multiple_of(width as u64) {
            return Err(RmaRefusal::Operation);
        }
        let region = self.rma.regions.get_mut(at.region).ok_or(RmaRefusal::Handle)?;
        let old = carry_out(atomic, &mut region.bytes[at.offset as usize..][..width]);
        let found = self.find_atomic(token as usize, at, atomic).and_then(|(side, index, _)| {
            self.check_order(side, index)?;
            self.rma.sides[side].ops[index as usize].old = Some(old);
            Ok(())
        });
        if let Err(what) = found {
            self.fail(now_ns, format!("side {token}: {atomic:?} at {at:x?}: {what}"));
        }
        Ok(old)
    }

    /// `Memory::local_read`.
    pub(in crate::sim) fn local_read(
        &mut self,
        now_ns: u64,
        node: usize,
        at: RemoteAddress,
        out: &mut [u8],
    ) -> bool {
        self.note(now_ns, 9, node as u64, at.offset ^ (out.len() as u64) << 24);
        match self.rma.regions.reach(node, at, out.len() as u64, 0) {
            Ok(region) => {
                out.copy_from_slice(&region.bytes[at.offset as usize..][..out.len()]);
                true
            }
            Err(_) => self.must_be_gone(now_ns, node, at, out.len()),
        }
    }

    /// `Memory::local_write`.
    pub(in crate::sim) fn local_write(
        &mut self,
        now_ns: u64,
        node: usize,
        at: RemoteAddress,
        data: &[u8],
    ) -> bool {
        self.note(now_ns, 10, node as u64, at.offset ^ (data.len() as u64) << 24);
        let len_bytes = data.len() as u64;
        if self.rma.regions.reach(node, at, len_bytes, 0).is_err() {
            return self.must_be_gone(now_ns, node, at, data.len());
        }
        let found = self.find_local(at, data, now_ns).map(|(side, index, offset)| {
            self.rma.sides[side].ops[index as usize].placed.add(offset, offset + len_bytes);
        });
        if let Err(what) = found {
            self.fail(now_ns, format!("node {node}: puts {len_bytes} B at its own {at:x?}: {what}"));
        }
        if let Some(region) = self.rma.regions.get_mut(at.region) {
            region.bytes[at.offset as usize..][..data.len()].copy_from_slice(data);
        }
        true
    }

    /// The only reason why memory here can't be used is that it has been deregistered.
    fn must_be_gone(&mut self, now_ns: u64, node: usize, at: RemoteAddress, len_bytes: usize) -> bool {
        if self.rma.regions.get(at.region).is_none_or(|region| region.gone_ns.is_none()) {
            self.fail(
                now_ns,
                format!("node {node}: uses its own {at:x?}, {len_bytes} B, which nobody named"),
            );
        }
        false
    }

    /// What the owner has to check of every access, and what the protocol must have checked before.
    fn let_in(
        &mut self,
        now_ns: u64,
        (node, conn, token): (usize, ConnKey, u64),
        at: RemoteAddress,
        len_bytes: u64,
        right: u8,
    ) -> Result<u64, RmaRefusal> {
        let side = self.sides.get(token as usize);
        let is_known = side.is_some_and(|side| {
            let up = matches!(side.state, SideState::Up | SideState::Broken | SideState::Closing);
            up && side.node == node && side.key.is_none_or(|key| key == conn)
        });
        if !is_known {
            let state = side.map(|side| (side.node, side.key, side.state));
            self.fail(now_ns, format!("node {node}: access through {conn:?}, side {token}: {state:?}"));
            return Err(RmaRefusal::Handle);
        }
        let region = self.rma.regions.reach(node, at, len_bytes, right)?;
        if region.scoped && region.owner != Some(token as usize) {
            return Err(RmaRefusal::Handle);
        }
        Ok(at.region)
    }

    /// Operations of the other end of this connection that may use a region: first those that have not ended.
    fn users(&self, token: usize, region: u64) -> impl Iterator<Item = (usize, u32)> {
        let (conversation, role) = (self.sides[token].conversation, self.sides[token].role);
        let users = self.rma.regions.get(region).map_or(&[][..], |region| &region.users);
        let ours = move |user: &&(usize, u32)| {
            let side = &self.sides[user.0];
            side.conversation == conversation && side.role != role
        };
        let ended = |user: &(usize, u32)| self.rma.sides[user.0].ops[user.1 as usize].status.is_some();
        let live = users.iter().filter(ours).filter(move |user| !ended(user));
        live.chain(users.iter().filter(ours).filter(move |user| ended(user))).copied()
    }

    fn find_write(&mut self, token: usize, at: RemoteAddress, data: &[u8]) -> Result<Found, String> {
        let mut why = String::from("nobody asked for it");
        let mut found: Vec<Found> = Vec::new();
        for (side, index) in self.users(token, at.region) {
            let op = &self.rma.sides[side].ops[index as usize];
            let len_bytes = data.len() as u64;
            let Some(offset) = op.at_remote(at, len_bytes).filter(|_| op.what == What::Write) else {
                continue;
            };
            if op.placed.touches(offset, offset + len_bytes) && !op.blurred {
                why = format!("operation {index} of side {side} has byte {offset} already");
                continue;
            }
            let outcome = match contents::is_pattern(base_of(side, index), offset, data) {
                Ok(()) => self.order(side, index).map(|_| ()),
                Err(byte) => Err(format!(
                    "byte {byte} of operation {index} of side {side} is not as it was written ({:?})",
                    op.status
                )),
            };
            match outcome {
                Ok(()) => found.push((side, index, offset)),
                Err(what) => why = what,
            }
        }
        if found.len() > 1 {
            for (side, index, _) in &found {
                self.rma.sides[*side].ops[*index as usize].blurred = true;
            }
        }
        found.first().copied().ok_or(why)
    }

    fn check_read(&self, token: usize, at: RemoteAddress, len_bytes: u64) -> Result<(), String> {
        let mut outcome = Err(String::from("nobody asked for it"));
        for (side, index) in self.users(token, at.region) {
            let op = &self.rma.sides[side].ops[index as usize];
            let reads = matches!(op.what, What::Read | What::ReadBack(_));
            if !reads || op.at_remote(at, len_bytes).is_none() {
                continue;
            }
            outcome = self.order(side, index).map(|_| ());
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn find_atomic(&self, token: usize, at: RemoteAddress, atomic: Atomic) -> Result<Found, String> {
        let this = |(side, index): &(usize, u32)| {
            let op = &self.rma.sides[*side].ops[*index as usize];
            let same = matches!(op.what, What::Atomic(wanted, _) if wanted == atomic);
            same && op.old.is_none() && op.segments.first().is_some_and(|segment| segment.remote == at)
        };
        let found = self.users(token, at.region).find(this);
        found
            .map(|(side, index)| (side, index, 0))
            .ok_or("nobody asked for it, or for the second time".into())
    }

    fn find_local(&self, at: RemoteAddress, data: &[u8], now_ns: u64) -> Result<Found, String> {
        let mut why = String::from("no operation in progress wants it");
        let users = self.rma.regions.get(at.region).map_or(&[][..], |region| &region.users);
        for &(side, index) in users {
            let op = &self.rma.sides[side].ops[index as usize];
            let Some(offset) = op.at_local(at, data.len() as u64) else { continue };
            if op.status.is_some() {
                why = format!("operation {index} of side {side} has ended ({:?})", op.status);
                continue;
            }
            if op.placed.touches(offset, offset + data.len() as u64) {
                why = format!("operation {index} of side {side} has byte {offset} already");
                continue;
            }
            self.check_brought(side, index, offset, data, now_ns)
                .map_err(|what| format!("operation {index} of side {side}, byte {offset}: {what}"))?;
            return Ok((side, index, offset));
        }
        Err(why)
    }

    /// Whether an operation may bring these bytes.
    fn check_brought(
        &self,
        side: usize,
        index: u32,
        offset: u64,
        data: &[u8],
        now_ns: u64,
    ) -> Result<(), String> {
        let op = &self.rma.sides[side].ops[index as usize];
        match op.what {
            What::Write => Err("a write brings nothing".into()),
            What::Read => self.rma.regions.held(op.to_remote(offset), data, op.started_ns, now_ns),
            What::ReadBack(written) => {
                let write = &self.rma.sides[side].ops[written as usize];
                if write.status != Some(Status::Success) || op.bad.is_some() {
                    return Ok(()); // who knows what is there
                }
                contents::is_pattern(base_of(side, written), offset, data)
                    .map_err(|byte| format!("byte {byte} is not what operation {written} wrote there"))
            }
            What::Atomic(..) => {
                let old = op.old.ok_or("a result before the atomic was carried out")?;
                let wanted = old.to_ne_bytes();
                if data == wanted { Ok(()) } else { Err(format!("result {data:x?}, found {wanted:x?}")) }
            }
        }
    }

    /// Whether what is before an operation's fence is complete; if so, how far everything is.
    fn order(&self, side: usize, index: u32) -> Result<(u32, u32), String> {
        let rma = &self.rma.sides[side];
        let op = &rma.ops[index as usize];
        let (first, last) = (rma.complete_below, op.operations_before);
        let missing = (first..last).find(|before| {
            let before = &rma.ops[*before as usize];
            !before.is_done() && before.status.is_none()
        });
        if let Some(before) = missing {
            return Err(format!(
                "operation {index} of side {side} goes ahead of operation {before}, which is before the fence"
            ));
        }
        let (sent, heard) = (rma.messages_below, op.messages_before);
        let msgs = &self.sides[side].flow.msgs;
        let missing = (sent..heard).find(|before| {
            let before = &msgs[*before as usize];
            !before.silent && before.status.is_none()
        });
        match missing {
            Some(before) => Err(format!(
                "operation {index} of side {side} goes ahead of message {before}, which is before the fence"
            )),
            None => Ok((first.max(last), sent.max(heard))),
        }
    }

    pub(super) fn check_order(&mut self, side: usize, index: u32) -> Result<(), String> {
        let below = self.order(side, index)?;
        let rma = &mut self.rma.sides[side];
        (rma.complete_below, rma.messages_below) = below;
        Ok(())
    }

    /// A message came that operation `index` of side `from` was to send.
    pub(in crate::sim) fn behind_data(
        &mut self,
        from: usize,
        index: u32,
        payload: &[u8],
    ) -> Result<(), String> {
        if self.rma.side(from).ops.len() <= index as usize {
            return Err(format!("the message of operation {index} of side {from}, which was never started"));
        }
        self.check_order(from, index)?;
        self.rma.counts.messages += 1;
        let local_gone = self.local_gone(from, index);
        let op = &mut self.rma.sides[from].ops[index as usize];
        op.delivered = op.delivered.saturating_add(1);
        let wrong = if op.message != Some(payload.len()) {
            format!("which has a message of {:?} B", op.message)
        } else if op.delivered > 1 {
            "for the second time".into()
        } else if op.bad.is_some() {
            "which had to be refused".into()
        } else if !op.is_done() {
            format!("before its data: bytes {:?} are missing", op.placed.gap(op.len_bytes))
        } else if op.status == Some(Status::ReceiverNotReady)
            || (op.status == Some(Status::RmaHandle) && !local_gone)
        {
            format!("after its sender was told {:?}", op.status)
        } else {
            return Ok(());
        };
        Err(format!("the message of operation {index} of side {from}, {wrong}"))
    }

    /// An empty message came on a connection where only operations send empty ones.
    pub(in crate::sim) fn empty_behind_data(&mut self, from: usize) -> Result<(), String> {
        self.rma.counts.messages += 1;
        let side = self.rma.side(from);
        side.empty_arrived += 1;
        let done = |op: &&Operation| op.message == Some(0) && op.is_done() && op.bad.is_none();
        let most = side.ops.iter().filter(done).count() as u64;
        if side.empty_arrived > most {
            return Err(format!("{} of side {from}, with data there for {most}", side.empty_arrived));
        }
        Ok(())
    }
}

/// Does it to the word; gives what was there.
fn carry_out(atomic: Atomic, word: &mut [u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[..word.len()].copy_from_slice(word);
    let old = u64::from_le_bytes(bytes);
    let mask = match atomic.width {
        AtomicWidth::Four => u64::from(u32::MAX),
        AtomicWidth::Eight => u64::MAX,
    };
    let new = match atomic.kind {
        AtomicKind::FetchAdd | AtomicKind::Add => old.wrapping_add(atomic.operand),
        AtomicKind::Swap => atomic.operand,
        AtomicKind::CompareSwap if old == atomic.compare & mask => atomic.operand,
        AtomicKind::CompareSwap => old,
        AtomicKind::And => old & atomic.operand,
        AtomicKind::Or => old | atomic.operand,
        AtomicKind::Xor => old ^ atomic.operand,
    };
    word.copy_from_slice(&new.to_le_bytes()[..word.len()]);
    old
}
