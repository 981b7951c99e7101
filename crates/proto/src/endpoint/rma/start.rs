//! The program starts remote memory operations.

use crate::conn::ActiveConn;
use crate::endpoint::Endpoint;
use crate::limits::RMA_PIECES_MAX;
use crate::reliable::sends::SendId;
use crate::rma::{Atomic, RemoteAddress, RmaError, RmaKind, RmaSegment};
use crate::time::ticks;
use crate::transfers::operations::{NewOp, OpKind, Ops};
use crate::{ConnKey, ConnState, Time};

impl Endpoint {
    /// Starts one remote memory operation (CCI-060). `message` is copied and delivered to the peer's program once all
    /// data is where it belongs (CCI-064); `fence`: not before everything earlier on this connection is complete at the
    /// peer (CCI-063). Ends in exactly one [`crate::Event::Rma`] with `operation`. What a write reads is read while it
    /// goes on, so it must not change before that event.
    #[expect(clippy::too_many_arguments, reason = "one call says it all")]
    pub fn rma(
        &mut self,
        now: Time,
        key: ConnKey,
        kind: RmaKind,
        pieces: &[RmaSegment],
        message: Option<&[u8]>,
        fence: bool,
        operation: u64,
    ) -> Result<(), RmaError> {
        if pieces.is_empty() || pieces.len() > RMA_PIECES_MAX || !pieces.iter().all(is_sound) {
            return Err(RmaError::Pieces);
        }
        let (kind, now_ticks) = match kind {
            RmaKind::Write => (OpKind::Write, ticks(now.0)),
            RmaKind::Read => (OpKind::Read, ticks(now.0)),
        };
        self.start(now, key, &NewOp { operation, kind, pieces, atomic: None, message, fence, now_ticks })?;
        match kind {
            OpKind::Read => self.shared.counters.rma_reads += 1,
            _ => self.shared.counters.rma_writes += 1,
        }
        Ok(())
    }

    /// Starts one atomic operation at the peer (CCS-062), which is carried out exactly once. `result`: where what was
    /// there before goes, 8 bytes, with zeros above the value of a 4-byte word. Ends as [`Endpoint::rma`] does.
    #[expect(clippy::too_many_arguments, reason = "one call says it all")]
    pub fn atomic(
        &mut self,
        now: Time,
        key: ConnKey,
        atomic: Atomic,
        target: RemoteAddress,
        result: Option<RemoteAddress>,
        fence: bool,
        operation: u64,
    ) -> Result<(), RmaError> {
        let len_bytes = atomic.width.bytes() as u64;
        let piece = RmaSegment { local: result.unwrap_or_default(), remote: target, len_bytes };
        if !is_sound(&piece) {
            return Err(RmaError::Pieces);
        }
        let new = NewOp {
            operation,
            kind: OpKind::Atomic,
            pieces: &[piece],
            atomic: Some((atomic, result.is_some())),
            message: None,
            fence,
            now_ticks: ticks(now.0),
        };
        self.start(now, key, &new)?;
        self.shared.counters.atomics += 1;
        Ok(())
    }

    fn start(&mut self, now: Time, key: ConnKey, new: &NewOp<'_>) -> Result<(), RmaError> {
        let is_alone = self.table.used() < 2;
        let conn = self.table.get_mut(key).ok_or(RmaError::Unknown)?;
        match conn.base.state {
            ConnState::Up => {}
            ConnState::Dialing | ConnState::Accepting => return Err(RmaError::NotConnected),
            _ => return Err(RmaError::Disconnected),
        }
        if !conn.base.attribute.is_reliable() {
            return Err(RmaError::Unreliable);
        }
        let (max, message_bytes) = (conn.base.message_bytes_max(), new.message.map_or(0, <[u8]>::len));
        if message_bytes > max {
            return Err(RmaError::TooLong { max });
        }
        let shared = &mut self.shared;
        let Some(ActiveConn { base, active, .. }) = shared.wake(conn, key.index, now) else {
            return Err(RmaError::WouldBlock);
        };
        let nodes = Ops::nodes_for(new.pieces.len(), new.atomic.is_some(), message_bytes);
        if !shared.has_rma(active) {
            return Err(RmaError::WouldBlock);
        }
        let Some(rma) = active.rma.as_deref_mut() else { return Err(RmaError::WouldBlock) };
        let held = (!is_alone).then_some((rma.held_ops, rma.held_nodes));
        if !shared.room_for_op(nodes, held) {
            return Err(RmaError::WouldBlock);
        }
        let Some(id) = shared.ops.add(new) else { return Err(RmaError::WouldBlock) };
        rma.held_ops += 1;
        rma.held_nodes += nodes;
        if let Some(op) = shared.ops.get_mut(id).filter(|_| rma.fence_owed) {
            (op.fence, rma.fence_owed) = (true, false);
        }
        rma.queue.push(&mut shared.ops, id);
        if rma.ops == 0 {
            rma.progress.restart(new.now_ticks);
        }
        rma.ops += 1;
        active.used_at = now;
        if active.send_due == Time::FAR {
            active.send_due = now.plus(shared.send_timeout_ns(base.send_timeout_ms));
            shared.arm(active);
        }
        shared.enqueue(active);
        Ok(())
    }

    /// Sends of this connection that have not completed, silent ones not counted. Walks the window.
    #[must_use]
    pub fn sends_in_progress_on(&self, key: ConnKey) -> u32 {
        let Some(active) = self.table.get(key).and_then(|conn| conn.active.as_deref()) else { return 0 };
        let Some(ring) = active.tx_ring.as_ref() else { return 0 };
        let mut count = 0;
        let mut seq = active.tx.unacked;
        while seq != active.tx.next {
            let first = ring.get(seq).first;
            if first != SendId::NONE {
                count += self.shared.sends.count_told(first);
            }
            seq = seq.next();
        }
        count
    }
}

fn is_sound(piece: &RmaSegment) -> bool {
    let ends = |place: RemoteAddress| place.offset.checked_add(piece.len_bytes).is_some();
    piece.len_bytes != 0 && ends(piece.local) && ends(piece.remote)
}
