//! The program sends a message.

use super::Endpoint;
use crate::conn::{Active, ActiveConn};
use crate::limits::{HEADER_BYTES, RECORDS_MAX, RMA_BUNDLES_RESERVED, WINDOW_BUNDLES_MAX, record_bytes};
use crate::reliable::sends::SendId;
use crate::reliable::tx::TxSlot;
use crate::time::ticks;
use crate::wire::write_record;
use crate::{Blocked, ConnKey, ConnState, SendError, Time};

use super::shared::Shared;

impl Endpoint {
    /// Queues one message made of `segments`, copied before return. Reliable: completes when the peer has stored
    /// it; unreliable: when it has left. `silent`: no completion event.
    #[inline]
    pub fn send(
        &mut self,
        now: Time,
        key: ConnKey,
        segments: &[&[u8]],
        context: u64,
        silent: bool,
    ) -> Result<(), SendError> {
        let is_alone = self.table.used() < 2;
        let conn = self.table.get_mut(key).ok_or(SendError::Unknown)?;
        match conn.base.state {
            ConnState::Up => {}
            ConnState::Dialing | ConnState::Accepting => return Err(SendError::NotConnected),
            _ => return Err(SendError::Disconnected),
        }
        let len = segments.iter().map(|segment| segment.len()).sum();
        let max = conn.base.message_bytes_max();
        if len > max {
            return Err(SendError::TooLong { max });
        }
        let shared = &mut self.shared;
        if shared.sends.is_full() {
            return Err(SendError::WouldBlock);
        }
        let Some(ActiveConn { base, active, .. }) = shared.wake(conn, key.index, now) else {
            return Err(SendError::WouldBlock);
        };
        let body_bytes_max = usize::from(base.datagram_bytes) - HEADER_BYTES;
        // Who holds more than is left for all others waits for its own (ADR 19): a receiver that takes nothing keeps
        // nobody else from theirs. Without any it always may.
        if active.tx.sends >= shared.sends.left() && !is_alone {
            return Err(SendError::WouldBlock);
        }
        active.make_room(shared, record_bytes(len), body_bytes_max)?;
        active.append(shared, now, segments, len, context, silent)?;
        active.used_at = now;
        if active.send_due == Time::FAR {
            active.send_due = now.plus(shared.send_timeout_ns(base.send_timeout_ms));
            shared.arm(active);
        }
        shared.enqueue(active);
        active.counters.messages_sent += 1;
        active.counters.message_bytes_sent += len as u64;
        shared.counters.messages_sent += 1;
        shared.counters.message_bytes_sent += len as u64;
        Ok(())
    }
}

impl Active {
    /// Makes sure the open bundle takes a record of `record_bytes`.
    #[inline]
    fn make_room(
        &mut self,
        shared: &mut Shared,
        record_bytes: usize,
        body_bytes_max: usize,
    ) -> Result<(), SendError> {
        if self.tx_ring.is_none() {
            self.tx_ring = shared.tx_ring();
        }
        let Some(ring) = self.tx_ring.as_ref() else { return Err(SendError::WouldBlock) };
        if self.tx.open {
            let slot = ring.get(self.tx.next.plus(u32::MAX));
            if usize::from(slot.body_bytes) + record_bytes <= body_bytes_max && slot.records < RECORDS_MAX {
                return Ok(());
            }
        }
        // A flood of messages leaves room for remote memory access.
        let places = WINDOW_BUNDLES_MAX - self.tx.len();
        if places == 0 || (places <= RMA_BUNDLES_RESERVED && self.has_rma_work()) {
            self.blocked.get_or_insert(Blocked::Window);
            return Err(SendError::WouldBlock);
        }
        // What is held for reception does not count: if it did, a gap that a dead peer never fills would keep us from sending
        // the message by which we miss the peer.
        let Some(buf) = shared.pool.take(self.tx.bufs) else {
            self.blocked.get_or_insert(Blocked::Pool);
            return Err(SendError::WouldBlock);
        };
        self.tx.bufs += 1;
        let Some(ring) = self.tx_ring.as_mut() else { return Err(SendError::WouldBlock) };
        *ring.at(self.tx.next) = TxSlot { buf, ..TxSlot::EMPTY };
        self.tx.next = self.tx.next.next();
        self.tx.open = true;
        Ok(())
    }

    /// Writes the message into the open bundle, where there is room.
    #[inline]
    fn append(
        &mut self,
        shared: &mut Shared,
        now: Time,
        segments: &[&[u8]],
        len: usize,
        context: u64,
        silent: bool,
    ) -> Result<(), SendError> {
        let Some(ring) = self.tx_ring.as_mut() else { return Err(SendError::WouldBlock) };
        let slot = ring.at(self.tx.next.plus(u32::MAX));
        let Some(id) = shared.sends.add(slot.last, context, silent, ticks(now.0)) else {
            return Err(SendError::WouldBlock);
        };
        if slot.first == SendId::NONE {
            slot.first = id;
        }
        slot.last = id;
        self.tx.sends += 1;
        let body = shared.pool.get_mut(slot.buf);
        let written = write_record(&mut body[usize::from(slot.body_bytes)..], segments, len);
        slot.body_bytes += written as u16;
        slot.records += 1;
        Ok(())
    }
}
