//! Bundles leave, the lost ones first, as far as windows and pace allow. Those that are longer than what the path takes leave
//! in parts; so do those that try whether it takes more.

use super::control::{acked_now, count_on_path, head};
use super::sending::Sending;
use super::shared::Shared;
use super::transfers::Transfers;
use crate::conn::path::FIRST;
use crate::conn::split::{Split, UnsentParts};
use crate::conn::{ActiveConn, want};
use crate::limits::{
    DATAGRAM_BYTES_MIN, FRAGMENT_RESENDS, HEADER_BYTES, PART_HEAD_BYTES, SACK_WORDS_MAX, SIZE_SUSPECT_COPIES,
    TURN_DATAGRAMS,
};
use crate::reliable::tx::{TxSlot, holds, mark, weight};
use crate::wire::{Kind, PartHead, Sack, flags};
use crate::{Seq, Sink, Time, Transmit};

/// How a connection's turn ended.
#[derive(PartialEq)]
pub(super) enum Turn {
    /// The connection has nothing more that may leave now.
    Done,
    /// The connection has more, and had its share of this round.
    More,
    /// The carrier is full.
    Full,
}

/// Writes bundles as datagrams.
pub(crate) struct Transmitter {
    /// Where a bundle is made that leaves in parts and has no packet buffer.
    scratch: Box<[u8]>,
}

impl Transmitter {
    /// `None`: there is no memory.
    pub fn new(datagram_bytes_max: usize) -> Option<Transmitter> {
        let mut scratch = Vec::new();
        scratch.try_reserve_exact(datagram_bytes_max).ok()?;
        scratch.resize(datagram_bytes_max, 0);
        Some(Transmitter { scratch: scratch.into() })
    }

    //= wire.md R-LOSS-4
    /// Writes bundles, the lost ones first, as far as windows and pace allow.
    #[expect(
        clippy::too_many_arguments,
        reason = "one datagram or message, and the parts of the protocol it touches"
    )]
    #[inline(always)]
    pub fn send_data(
        &mut self,
        shared: &mut Shared,
        sending: &mut Sending,
        transfers: &mut Transfers,
        conn: &mut ActiveConn<'_>,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> Turn {
        let mut left = TURN_DATAGRAMS;
        while left != 0 {
            if conn.active.has_rma_work() {
                let sent = transfers.send_run(shared, conn, left, now, out, sink);
                left -= sent;
                if sent != 0 {
                    continue;
                }
            }
            left -= 1;
            let window_kib = conn.base.peer_window_kib;
            let reliable = conn.base.attribute.is_reliable();
            let has_space = out.has_space();
            let lacking = if has_space { transfers.pump(shared, conn, now, sink) } else { None };
            let active = &mut *conn.active;
            if !active.tx.has_work() {
                active.blocked = lacking;
                // While the carrier is full nothing was made of what waits: it must be looked at again.
                return if has_space || !active.has_rma_work() { Turn::Done } else { Turn::Full };
            }
            let Some(seq) = active.next_to_send() else { return Turn::Done };
            let bytes = active.tx_ring.as_ref().map_or(0, |ring| weight(ring.get(seq).body_bytes));
            let mut which = FIRST;
            if reliable {
                match active.choose_path(bytes, window_kib, now) {
                    Ok(path) => which = path,
                    Err(why) => {
                        active.blocked = Some(why);
                        return Turn::Done;
                    }
                }
            }
            active.blocked = None;
            if !self.send_bundle(shared, transfers, conn, seq, which, now, out, sink) {
                return Turn::Full;
            }
            if !reliable {
                sending.complete_unreliable(shared, conn, seq, sink);
            }
        }
        Turn::More
    }

    /// Writes bundle `seq`, to go by this path; false: the carrier is full.
    #[allow(clippy::too_many_arguments)] // one bundle, and where everything it needs is
    fn send_bundle(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        which: u8,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> bool {
        let window_kib = shared.window_kib();
        let active = &*conn.active;
        let Some(slot) = active.tx_ring.as_ref().map(|ring| *ring.get(seq)) else { return true };
        let body_bytes = usize::from(slot.body_bytes);
        if let Some(split) = split_of(shared, conn, seq, &slot, now) {
            return self.send_in_parts(shared, transfers, conn, seq, split, which, now, out, sink);
        }
        let active = &*conn.active;
        let mut sack = if conn.base.attribute.is_reliable() { active.rx.sack() } else { Sack::default() };
        // The bundle was filled without regard to the acknowledgement: what does not fit travels alone.
        let space = usize::from(conn.base.datagram_bytes).saturating_sub(HEADER_BYTES + body_bytes);
        let is_truncated = sack.bytes() > space;
        if is_truncated {
            sack = Sack { words: [0; SACK_WORDS_MAX], len: 0 };
        }
        let len = HEADER_BYTES + sack.bytes() + body_bytes;
        //= wire.md R-MTU-2
        let fragment = slot.resends >= FRAGMENT_RESENDS;
        let mut head = head(conn, Kind::Data, seq, window_kib, which, now);
        if active.waits_after(which, slot.body_bytes, conn.base.peer_window_kib) {
            head.flags |= flags::PROBE;
        }
        let Some(buffer) = out.begin(conn.address(which), len, fragment) else { return false };
        let at = HEADER_BYTES + sack.bytes();
        let body_bytes = if slot.holds & holds::BULK == 0 {
            buffer[at..len].copy_from_slice(shared.pool.get(slot.buf, body_bytes));
            body_bytes
        } else {
            let (key, token) = (conn.key(), conn.base.token);
            let active = &mut *conn.active;
            transfers.write_bulk(shared, active, key, token, seq, now, &mut buffer[at..len], sink)
        };
        let active = &mut *conn.active;
        head.emit(&sack, body_bytes, buffer);
        shared.committed(at + body_bytes, out);
        let had_want = active.wants & want::ACK != 0;
        acked_now(conn, which);
        count_on_path(conn, which, at + body_bytes);
        let epoch = conn.base.tx_epoch;
        let active = &mut *conn.active;
        if is_truncated && had_want {
            active.wants |= want::ACK;
        }
        active.note_sent(&mut shared.counters, seq, which, epoch, now);
        true
    }

    //= wire.md R-MTU-3
    /// Writes bundle `seq` in parts; false: the carrier is full, and what remains leaves when it takes more.
    #[allow(clippy::too_many_arguments)] // one bundle, and where everything it needs is
    #[cold]
    pub(super) fn send_in_parts(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        split: Split,
        which: u8,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        let whole_bytes = self.write_whole(shared, transfers, conn, seq, now, &mut scratch, sink);
        let whole = scratch.get(..whole_bytes).unwrap_or_default();
        let sent = self.send_parts_of(shared, whole, conn, seq, split, which, now, out);
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
        active.note_sent(&mut shared.counters, seq, which, epoch, now);
        active.note_split(seq, split);
        true
    }

    /// Writes the body of a bundle into `out`, from its packet buffer or from memory; returns its length.
    #[expect(
        clippy::too_many_arguments,
        reason = "one datagram or message, and the parts of the protocol it touches"
    )]
    fn write_whole(
        &mut self,
        shared: &mut Shared,
        transfers: &mut Transfers,
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
            out.copy_from_slice(shared.pool.get(slot.buf, slot.body_bytes.into()));
            return out.len();
        }
        transfers.write_bulk(shared, active, key, token, seq, now, out, sink)
    }

    #[allow(clippy::too_many_arguments)] // one bundle, and where everything it needs is
    fn send_parts_of(
        &mut self,
        shared: &mut Shared,
        whole: &[u8],
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        split: Split,
        which: u8,
        now: Time,
        out: &mut impl Transmit,
    ) -> bool {
        let window_kib = shared.window_kib();
        let active = &mut *conn.active;
        let before = active.unsent_parts.take().filter(|unsent| unsent.seq == seq && unsent.split == split);
        let active = &*conn.active;
        let mut head = head(conn, Kind::Data, seq, window_kib, which, now);
        head.flags |= flags::PART;
        let asks = active.waits_after(which, whole.len() as u16, conn.base.peer_window_kib);
        //= wire.md R-MTU-2
        // Parts of the smallest size may still be too long: with what a seal adds, on a path that only just takes it.
        let resends = active.tx_ring.as_ref().map_or(0, |ring| ring.get(seq).resends);
        let fragment = resends >= FRAGMENT_RESENDS && split.size <= DATAGRAM_BYTES_MIN;
        let space_bytes = usize::from(split.size) - HEADER_BYTES - PART_HEAD_BYTES;
        let mut part = PartHead {
            number: before.map_or(0, |unsent| unsent.next),
            stride_bytes: space_bytes.min(whole.len()) as u16,
            whole_bytes: whole.len() as u16,
        };
        while u32::from(part.number) < part.count() {
            let is_last = u32::from(part.number) + 1 == part.count();
            let remaining = whole.len() - usize::from(part.number) * usize::from(part.stride_bytes);
            let data_bytes = if is_last && !split.is_trial { remaining } else { space_bytes };
            if is_last && asks {
                head.flags |= flags::PROBE;
            }
            let body_bytes = PART_HEAD_BYTES + data_bytes;
            let len = HEADER_BYTES + body_bytes;
            let Some(buffer) = out.begin(conn.address(which), len, fragment) else {
                let active = &mut *conn.active;
                active.unsent_parts = Some(UnsentParts { seq, split, next: part.number });
                return false;
            };
            let at = head.emit(&Sack::default(), body_bytes, buffer);
            part.emit(whole, &mut buffer[at..len]);
            shared.committed(len, out);
            shared.counters.parts_sent += 1;
            count_on_path(conn, which, len);
            part.number += 1;
        }
        true
    }
}

/// Whether and how a bundle that leaves now is split.
#[inline]
fn split_of(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    seq: Seq,
    slot: &TxSlot,
    now: Time,
) -> Option<Split> {
    let len = HEADER_BYTES + usize::from(slot.body_bytes);
    let fits = len <= usize::from(conn.base.datagram_bytes);
    // The usual case.
    if fits && slot.resends == 0 && conn.base.datagram_bytes == conn.base.bundle_bytes {
        return None;
    }
    split_of_unusual(shared, conn, seq, slot, now)
}

#[cold]
fn split_of_unusual(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    seq: Seq,
    slot: &TxSlot,
    now: Time,
) -> Option<Split> {
    let (bundle_bytes, reliable) = (conn.base.bundle_bytes, conn.base.attribute.is_reliable());
    let active = &mut *conn.active;
    if let Some(unsent) = active.unsent_parts.filter(|unsent| unsent.seq == seq) {
        return Some(unsent.split);
    }
    //= wire.md R-MTU-4
    let suspect = slot.resends >= SIZE_SUSPECT_COPIES - 1 && slot.depends_on_size();
    if suspect
        && conn.base.datagram_bytes > DATAGRAM_BYTES_MIN
        && active.paths.get(slot.path).is_no_chance()
        && active.size.is_black_hole(slot.sent_at, active.heard_at)
    {
        conn.base.datagram_bytes = DATAGRAM_BYTES_MIN;
        active.size.fell(now);
        shared.counters.paths_narrowed += 1;
    }
    if reliable
        && slot.resends == 0
        && !slot.has(mark::RESEND)
        && let Some(size) = active.size.candidate(conn.base.datagram_bytes, bundle_bytes, now)
    {
        return Some(Split { size, is_trial: true });
    }
    let len = HEADER_BYTES + usize::from(slot.body_bytes);
    let size = conn.base.datagram_bytes;
    (len > usize::from(size)).then_some(Split { size, is_trial: false })
}
