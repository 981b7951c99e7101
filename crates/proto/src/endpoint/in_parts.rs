//! Bundles that are longer than what the way takes leave in parts; so do those that try whether it takes more.

use super::shared::Shared;
use super::transmit::{acked_now, count_on_path, head};
use crate::conn::cut::{Cut, Rest};
use crate::conn::{Active, ActiveConn, want};
use crate::limits::{
    DATAGRAM_BYTES_MIN, FRAGMENT_RESENDS, HEADER_BYTES, PART_HEAD_BYTES, SIZE_SUSPECT_COPIES,
};
use crate::reliable::tx::{TxSlot, holds, mark};
use crate::wire::{Kind, PartHead, Sack, flags};
use crate::{Seq, Sink, Time, Transmit};

impl Shared {
    /// Whether and how a bundle is cut that leaves now.
    #[inline]
    pub(super) fn cut(
        &mut self,
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        slot: &TxSlot,
        now: Time,
    ) -> Option<Cut> {
        let len = HEADER_BYTES + usize::from(slot.body_bytes);
        let fits = len <= usize::from(conn.base.datagram_bytes);
        // As good as always.
        if fits && slot.resends == 0 && conn.base.datagram_bytes == conn.base.bundle_bytes {
            return None;
        }
        self.cut_of_odd(conn, seq, slot, now)
    }

    #[cold]
    fn cut_of_odd(&mut self, conn: &mut ActiveConn<'_>, seq: Seq, slot: &TxSlot, now: Time) -> Option<Cut> {
        let (bundle_bytes, reliable) = (conn.base.bundle_bytes, conn.base.attribute.is_reliable());
        let active = &mut *conn.active;
        if let Some(rest) = active.rest.filter(|rest| rest.seq == seq) {
            return Some(rest.cut);
        }
        //= wire.md R-MTU-4
        let suspect = slot.resends + 1 >= SIZE_SUSPECT_COPIES && (slot.is_large() || slot.has(mark::PARTS));
        if suspect
            && conn.base.datagram_bytes > DATAGRAM_BYTES_MIN
            && active.size.is_black_hole(slot.sent_at, active.heard_at)
        {
            conn.base.datagram_bytes = DATAGRAM_BYTES_MIN;
            active.size.fell(now);
            self.counters.paths_narrowed += 1;
        }
        if reliable
            && slot.resends == 0
            && !slot.has(mark::RESEND)
            && let Some(size) = active.size.candidate(conn.base.datagram_bytes, bundle_bytes, now)
        {
            return Some(Cut { size, is_trial: true });
        }
        let len = HEADER_BYTES + usize::from(slot.body_bytes);
        let size = conn.base.datagram_bytes;
        (len > usize::from(size)).then_some(Cut { size, is_trial: false })
    }

    //= wire.md R-MTU-3
    /// Writes bundle `seq` in parts; false: the carrier is full, the rest leaves when it has room.
    #[allow(clippy::too_many_arguments)] // one bundle, and where everything it needs is
    #[cold]
    pub(super) fn send_in_parts(
        &mut self,
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        cut: Cut,
        which: u8,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        let whole_bytes = self.write_whole(conn, seq, now, &mut scratch, sink);
        let whole = scratch.get(..whole_bytes).unwrap_or_default();
        let sent = self.send_parts_of(whole, conn, seq, cut, which, now, out);
        self.scratch = scratch;
        if !sent {
            return false;
        }
        let had_want = conn.active.wants & want::ACK != 0;
        acked_now(conn, which);
        let (epoch, reliable) = (conn.base.tx_epoch, conn.base.attribute.is_reliable());
        let active = &mut *conn.active;
        // Selective acknowledgements travel alone.
        if had_want && reliable && active.rx.sack() != Sack::default() {
            active.wants |= want::ACK;
        }
        active.note_sent(self, seq, which, epoch, now);
        active.note_cut(seq, cut);
        true
    }

    /// The body of a bundle, wherever it is now; its length.
    fn write_whole(
        &mut self,
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        now: Time,
        out: &mut [u8],
        sink: &mut impl Sink,
    ) -> usize {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(slot) = active.tx_ring.as_ref().map(|ring| *ring.get(seq)) else { return 0 };
        let Some(out) = out.get_mut(..slot.body_bytes.into()) else { return 0 };
        if slot.holds & holds::BULK == 0 {
            out.copy_from_slice(self.pool.get(slot.buf, slot.body_bytes.into()));
            return out.len();
        }
        self.write_bulk(active, key, token, seq, now, out, sink)
    }

    #[allow(clippy::too_many_arguments)] // the same
    fn send_parts_of(
        &mut self,
        whole: &[u8],
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        cut: Cut,
        which: u8,
        now: Time,
        out: &mut impl Transmit,
    ) -> bool {
        let window_kib = self.window_kib();
        let active = &mut *conn.active;
        let before = active.rest.take().filter(|rest| rest.seq == seq && rest.cut == cut);
        let active = &*conn.active;
        let mut head = head(conn, Kind::Data, seq, window_kib, which, now);
        head.flags |= flags::PART;
        let asks = active.waits_after(which, whole.len() as u16, conn.base.peer_window_kib);
        //= wire.md R-MTU-2
        // Parts of the smallest size may still be too long: with what a seal adds, on a way that only just takes it.
        let resends = active.tx_ring.as_ref().map_or(0, |ring| ring.get(seq).resends);
        let fragment = resends >= FRAGMENT_RESENDS && cut.size <= DATAGRAM_BYTES_MIN;
        let room_bytes = usize::from(cut.size) - HEADER_BYTES - PART_HEAD_BYTES;
        let mut part = PartHead {
            number: before.map_or(0, |rest| rest.next),
            stride_bytes: room_bytes.min(whole.len()) as u16,
            whole_bytes: whole.len() as u16,
        };
        while u32::from(part.number) < part.count() {
            let is_last = u32::from(part.number) + 1 == part.count();
            let left = whole.len() - usize::from(part.number) * usize::from(part.stride_bytes);
            let data_bytes = if is_last && !cut.is_trial { left } else { room_bytes };
            if is_last && asks {
                head.flags |= flags::PROBE;
            }
            let body_bytes = PART_HEAD_BYTES + data_bytes;
            let len = HEADER_BYTES + body_bytes;
            let Some(buffer) = out.begin(conn.address(which), len, fragment) else {
                let active = &mut *conn.active;
                active.rest = Some(Rest { seq, cut, next: part.number });
                return false;
            };
            let at = head.emit(&Sack::default(), body_bytes, buffer);
            part.emit(whole, &mut buffer[at..len]);
            self.committed(len, out);
            self.counters.parts_sent += 1;
            count_on_path(conn, which, len);
            part.number += 1;
        }
        true
    }
}

impl Active {
    fn note_cut(&mut self, seq: Seq, cut: Cut) {
        let Some(slot) = self.tx_ring.as_mut().map(|ring| ring.at(seq)) else { return };
        slot.marks |= mark::PARTS;
        if cut.is_trial {
            slot.marks |= mark::SIZE;
            self.size.try_size(cut.size);
        }
    }
}
