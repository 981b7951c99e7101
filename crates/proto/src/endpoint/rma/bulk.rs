//! Bundles without a packet buffer: what is in them is read from memory each time they are sent.

use crate::conn::Active;
use crate::endpoint::shared::Shared;
use crate::limits::RECORD_BYTES;
use crate::reliable::rx::RxRing;
use crate::reliable::tx::TxRing;
use crate::rma::{DATA_HEAD_BYTES, Record, WRITE_HEAD_BYTES, emit_data_head, emit_write_head};
use crate::time::ticks;
use crate::transfers::desk::Desk;
use crate::transfers::operations::NodeId;
use crate::transfers::state::{Bulk, Rma};
use crate::{ConnKey, RemoteAddress, Seq, Sink, Status, Time};

impl Shared {
    //= wire.md R-RMA-5
    /// Writes the body of bundle `seq`; returns its length, which is less than was planned if the memory has gone or
    /// the operation is over.
    #[expect(clippy::too_many_arguments, reason = "two places in one call")]
    pub fn write_bulk(
        &mut self,
        active: &mut Active,
        key: ConnKey,
        token: u64,
        seq: Seq,
        now: Time,
        body: &mut [u8],
        sink: &mut impl Sink,
    ) -> usize {
        let Some(rma) = active.rma.as_deref_mut() else { return 0 };
        let written = match rma.bulk(seq) {
            Bulk::Write { slot, last, bytes, node, offset, op } => {
                let over = self.ops.get(op).is_none_or(|op| op.over);
                let written = if over {
                    None
                } else {
                    self.write_from(node, offset, (slot, last), bytes.into(), body, sink)
                };
                if written.is_none() && !over {
                    let now_ticks = ticks(now.0);
                    let Shared { ops, counters, .. } = &mut *self;
                    let mut desk = Desk { ops, counters, rma, key, token, now_ticks, serve: true };
                    desk.end(op, Status::RmaHandle, sink);
                }
                // The target must learn of the end in any case, since it has the operation's outcome to tell; and that
                // something is missing, since it may have the message already.
                let slot = u16::from(slot);
                match written {
                    None if last => Record::Notify { slot, message: None }.emit(body),
                    None => Record::Write { slot, at: RemoteAddress::default(), last, data: &[] }.emit(body),
                    written => written,
                }
            }
            Bulk::Data { slot, bytes, offset, at } => {
                let len = usize::from(bytes);
                let total = emit_data_head(slot.into(), offset.into(), len, body);
                let read = body
                    .get_mut(DATA_HEAD_BYTES..DATA_HEAD_BYTES + len)
                    .is_some_and(|data| sink.peer_read(key, token, at, data).is_ok());
                if read {
                    total
                } else {
                    self.counters.rma_refused += 1;
                    let (offset, len_bytes) = (offset.into(), bytes.into());
                    Record::Gone { slot: slot.into(), offset, len_bytes }.emit(body)
                }
            }
            Bulk::None => write_nothing(body),
        };
        let written = written.unwrap_or(0);
        if let Some(slot) = active.tx_ring.as_mut().map(|ring| ring.at(seq)) {
            slot.body_bytes = written as u16;
        }
        written
    }

    /// One piece of data; `None`: it is there no more.
    fn write_from(
        &self,
        node: NodeId,
        offset: u64,
        (slot, last): (u8, bool),
        len: usize,
        body: &mut [u8],
        sink: &mut impl Sink,
    ) -> Option<usize> {
        let piece = self.ops.piece(node)?;
        let total = emit_write_head(slot.into(), piece.remote.plus(offset), last, len, body)?;
        let data = body.get_mut(WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + len)?;
        sink.local_read(piece.local.plus(offset), data).then_some(total)
    }

    /// Room for a connection's remote memory access; `None`: no memory.
    pub fn rma_box(&mut self) -> Option<Box<Rma>> {
        self.spare_rma.pop().or_else(|| {
            // What is left must still take the windows that carry it, or all wait for one another.
            let fits = self.fits(Rma::COST_BYTES + TxRing::COST_BYTES + RxRing::COST_BYTES);
            self.rma_boxes += u64::from(fits);
            fits.then(|| Box::new(Rma::new()))
        })
    }

    /// True if the connection has it now.
    pub fn has_rma(&mut self, active: &mut Active) -> bool {
        if active.rma.is_none() {
            active.rma = self.rma_box();
        }
        active.rma.is_some()
    }

    /// Takes it back; whatever is in it is forgotten.
    pub fn spare_rma(&mut self, rma: Option<Box<Rma>>) {
        if let Some(mut rma) = rma {
            debug_assert_eq!((rma.held_ops, rma.held_nodes), (0, 0), "forgotten with the window");
            if rma.is_idle() {
                (rma.unsent, rma.fence, rma.retry_due) = (0, None, Time::FAR);
                rma.fence_owed = false;
            } else {
                *rma = Rma::new();
            }
            self.spare_rma.push(rma);
        }
    }
}

/// A record that says nothing.
fn write_nothing(body: &mut [u8]) -> Option<usize> {
    body.get_mut(..RECORD_BYTES)?.fill(0);
    Some(RECORD_BYTES)
}
