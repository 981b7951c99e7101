//! Datagrams go out: answers first, then each connection in turn.

use super::Endpoint;
use super::handshake::dial_datagram;
use super::shared::Shared;
use crate::conn::path::{Bond, FIRST, Path, SECOND};
use crate::conn::{Active, ActiveConn, want};
use crate::limits::{
    FRAGMENT_RESENDS, HEADER_BYTES, PACING_BURST_NS, PACING_BURST_SHARE, PACING_RTT_NS_MIN, SACK_WORDS_MAX,
    TURN_DATAGRAMS, padded,
};
use crate::reliable::tx::{TxSlot, holds, mark, weight};
use crate::wire::{Accept, Connect, Head, Hello, Kind, Sack, flags, timestamp};
use crate::{Blocked, ConnState, Seq, Sink, Status, Time, Transmit};

/// How a connection's turn ended.
#[derive(PartialEq)]
enum Turn {
    /// It has nothing more that may leave now.
    Done,
    /// It has more, and had its share of this round.
    More,
    /// The carrier is full.
    Full,
}

impl Endpoint {
    /// Writes datagrams while the carrier has room, round robin over the connections that have something to send.
    /// Unreliable sends complete here, into `sink`.
    pub fn poll_transmit(&mut self, now: Time, out: &mut impl Transmit, sink: &mut impl Sink) {
        if !self.replies.transmit(out, &mut self.shared.counters) {
            return;
        }
        while let Some(&index) = self.shared.ready.front() {
            let Some(conn) = self.table.at_mut(index) else {
                self.shared.ready.pop_front();
                continue;
            };
            if conn.base.state == ConnState::Done {
                self.shared.ready.pop_front();
                self.finish(index, sink);
                continue;
            }
            let Some(mut conn) = conn.awake().filter(|conn| conn.active.queued) else {
                self.shared.ready.pop_front(); // gone meanwhile, or asleep
                continue;
            };
            let turn = self.shared.take_turn(&mut conn, now, out, sink);
            if turn == Turn::Full {
                return; // stays at the head of the queue
            }
            self.shared.ready.pop_front();
            conn.active.queued = false;
            if turn == Turn::More {
                self.shared.enqueue(conn.active);
            }
            self.shared.arm(conn.active);
        }
    }
}

impl Shared {
    fn take_turn(
        &mut self,
        conn: &mut ActiveConn<'_>,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> Turn {
        let wants = conn.active.wants;
        if wants & !want::ACK != 0 && !self.send_wanted(conn, wants, now, out) {
            return Turn::Full;
        }
        let turn = if conn.base.state == ConnState::Up || conn.base.state == ConnState::Lingering {
            self.send_data(conn, now, out, sink)
        } else {
            Turn::Done
        };
        self.settle_operations(conn);
        let wants_ack = conn.active.wants & want::ACK != 0;
        let due = turn == Turn::Done && wants_ack && conn.base.is_established();
        if due && !self.send_acks(conn, now, out) {
            return Turn::Full;
        }
        turn
    }

    /// Acknowledges by every way by which that is due; false: the carrier is full.
    fn send_acks(&mut self, conn: &mut ActiveConn<'_>, now: Time, out: &mut impl Transmit) -> bool {
        let by = conn.active.acks_by();
        for which in (FIRST..=SECOND).filter(|which| by >> which & 1 != 0) {
            if !self.send_bare(conn, Kind::Ack, 0, which, now, out) {
                return false;
            }
            self.counters.acks_sent += 1;
        }
        let active = &mut *conn.active;
        active.wants &= !want::ACK;
        if let Some(bond) = active.bond.as_deref_mut() {
            active.ack_pending = bond.acked();
        }
        true
    }

    /// The special datagrams; false: the carrier is full.
    fn send_wanted(
        &mut self,
        conn: &mut ActiveConn<'_>,
        wants: u8,
        now: Time,
        out: &mut impl Transmit,
    ) -> bool {
        if wants & want::DIAL != 0 && !self.send_dial(conn, now, out) {
            return false;
        }
        if wants & want::ACCEPT != 0 && !self.send_accept(conn, now, out) {
            return false;
        }
        if wants & want::PING != 0 && conn.base.is_established() {
            let which = take_turn(conn);
            if !self.send_bare(conn, Kind::Ping, flags::PROBE, which, now, out) {
                return false;
            }
            clear(conn, want::PING);
        }
        if wants & want::CLOSE != 0 && conn.base.state == ConnState::Closing {
            let which = take_turn(conn);
            if !self.send_bare(conn, Kind::Close, 0, which, now, out) {
                return false;
            }
            clear(conn, want::CLOSE);
        }
        if wants & want::PATH != 0 && conn.base.is_established() {
            return self.send_paths(conn, now, out);
        }
        true
    }

    fn send_dial(&mut self, conn: &mut ActiveConn<'_>, now: Time, out: &mut impl Transmit) -> bool {
        let own = (self.config.datagram_bytes_max, self.window_kib());
        let generation = conn.base.generation;
        let active = &mut *conn.active;
        let Some(dial) = active.dial.as_deref() else { return true };
        let len_max = Hello::BYTES.max(Connect::FIXED_BYTES + padded(dial.request.len()));
        let Some(buffer) = out.begin(conn.base.peer, len_max, false) else { return false };
        let seq = active.tx.next;
        let len = dial_datagram(
            dial,
            (active.index, generation),
            conn.base.nonce,
            seq,
            own,
            conn.base.attribute,
            now,
            buffer,
        );
        self.committed(len, out);
        active.wants &= !want::DIAL;
        true
    }

    fn send_accept(&mut self, conn: &mut ActiveConn<'_>, now: Time, out: &mut impl Transmit) -> bool {
        let window_kib = self.window_kib();
        let active = &mut *conn.active;
        let Some(buffer) = out.begin(conn.base.peer, Accept::BYTES, false) else { return false };
        let accept = Accept {
            index: conn.base.peer_index,
            generation: conn.base.peer_generation,
            source_index: active.index,
            nonce: conn.base.peer_nonce,
            source_generation: conn.base.generation,
            first_seq: active.tx.next,
            source_nonce: conn.base.nonce,
            timestamp: timestamp(now),
            echo: active.path.echo_now(now),
            datagram_bytes_max: self.config.datagram_bytes_max,
            window_kib,
            bond: active.bond.is_some(),
        };
        let len = accept.emit(buffer);
        self.committed(len, out);
        active.wants &= !want::ACCEPT;
        true
    }

    /// A header with no body, by one way; it acknowledges all the same. False: the carrier is full.
    #[allow(clippy::too_many_arguments)] // the fields of one datagram
    fn send_bare(
        &mut self,
        conn: &mut ActiveConn<'_>,
        kind: Kind,
        more_flags: u8,
        which: u8,
        now: Time,
        out: &mut impl Transmit,
    ) -> bool {
        let active = &*conn.active;
        let sack = if conn.base.attribute.is_reliable() { active.rx.sack() } else { Sack::default() };
        let mut head = head(conn, kind, active.tx.unsent, self.window_kib(), which, now);
        head.flags |= more_flags;
        let Some(buffer) = out.begin(conn.address(which), HEADER_BYTES + sack.bytes(), false) else {
            return false;
        };
        let len = head.emit(&sack, 0, buffer);
        self.committed(len, out);
        acked_now(conn, which);
        count_on_path(conn, which, len);
        true
    }

    #[inline]
    pub(super) fn committed(&mut self, len: usize, out: &mut impl Transmit) {
        out.commit(len);
        self.counters.datagrams_sent += 1;
        self.counters.datagram_bytes_sent += len as u64;
    }

    //= wire.md R-LOSS-4
    /// Bundles, the lost ones first, as far as windows and pace allow.
    fn send_data(
        &mut self,
        conn: &mut ActiveConn<'_>,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> Turn {
        for _ in 0..TURN_DATAGRAMS {
            let window_kib = conn.base.peer_window_kib;
            let reliable = conn.base.attribute.is_reliable();
            let room = out.room();
            let lacking = if room { self.pump(conn, now, sink) } else { None };
            let active = &mut *conn.active;
            if !active.tx.has_work() {
                active.blocked = lacking;
                // Without room nothing was made of what waits: it must be looked at again.
                return if room || !active.has_rma_work() { Turn::Done } else { Turn::Full };
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
            if !self.send_bundle(conn, seq, which, now, out, sink) {
                return Turn::Full;
            }
            if !reliable {
                self.left(conn, seq, sink);
            }
        }
        Turn::More
    }

    /// Writes bundle `seq`, to go this way; false: the carrier is full.
    #[allow(clippy::too_many_arguments)] // one bundle, and where everything it needs is
    fn send_bundle(
        &mut self,
        conn: &mut ActiveConn<'_>,
        seq: Seq,
        which: u8,
        now: Time,
        out: &mut impl Transmit,
        sink: &mut impl Sink,
    ) -> bool {
        let window_kib = self.window_kib();
        let active = &*conn.active;
        let Some(slot) = active.tx_ring.as_ref().map(|ring| *ring.get(seq)) else { return true };
        let body_bytes = usize::from(slot.body_bytes);
        if let Some(cut) = self.cut(conn, seq, &slot, now) {
            return self.send_in_parts(conn, seq, cut, which, now, out, sink);
        }
        let active = &*conn.active;
        let mut sack = if conn.base.attribute.is_reliable() { active.rx.sack() } else { Sack::default() };
        // The bundle was filled without regard to the acknowledgement: what does not fit travels alone.
        let room = usize::from(conn.base.datagram_bytes).saturating_sub(HEADER_BYTES + body_bytes);
        let cut = sack.bytes() > room;
        if cut {
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
            buffer[at..len].copy_from_slice(self.pool.get(slot.buf, body_bytes));
            body_bytes
        } else {
            let (key, token) = (conn.key(), conn.base.token);
            let active = &mut *conn.active;
            self.write_bulk(active, key, token, seq, now, &mut buffer[at..len], sink)
        };
        let active = &mut *conn.active;
        head.emit(&sack, body_bytes, buffer);
        self.committed(at + body_bytes, out);
        let had_want = active.wants & want::ACK != 0;
        acked_now(conn, which);
        count_on_path(conn, which, at + body_bytes);
        let epoch = conn.base.tx_epoch;
        let active = &mut *conn.active;
        if cut && had_want {
            active.wants |= want::ACK;
        }
        active.note_sent(self, seq, which, epoch, now);
        true
    }

    /// An unreliable bundle has left: that is all that was promised.
    //= wire.md R-UU-2
    fn left(&mut self, conn: &mut ActiveConn<'_>, seq: Seq, sink: &mut impl Sink) {
        let (key, token) = (conn.key(), conn.base.token);
        let active = &mut *conn.active;
        let Some(ring) = active.tx_ring.as_mut() else { return };
        let slot = std::mem::replace(ring.at(seq), TxSlot::EMPTY);
        self.pool.give_back(slot.buf);
        active.tx.bufs -= 1;
        active.path.in_flight_bytes = 0;
        active.tx.unacked = seq.next();
        active.path.probe_due = Time::FAR;
        active.tx.sends -= self.complete(slot.first, Status::Success, key, token, sink);
        if active.tx.is_empty() {
            self.spare_tx_ring(active.tx_ring.take());
            active.send_due = Time::FAR;
            if conn.base.state == ConnState::Lingering {
                conn.base.enter(crate::conn::state::Input::Delivered);
                self.start_closing(conn);
            }
        }
    }
}

/// The header of a datagram that leaves now, by one way.
#[inline]
#[allow(clippy::too_many_arguments)] // the fields of one datagram
pub(super) fn head(
    conn: &ActiveConn<'_>,
    kind: Kind,
    seq: Seq,
    window_kib: u16,
    which: u8,
    now: Time,
) -> Head {
    let mut flags = if conn.active.refusing { flags::RNR } else { 0 };
    if conn.takes_no_more() {
        flags |= flags::CLOSING;
    }
    Head {
        kind,
        flags,
        index: conn.base.peer_index,
        generation: conn.base.peer_generation,
        source_index: conn.active.index,
        nonce: conn.base.peer_nonce,
        seq,
        ack: conn.active.rx.next,
        timestamp: timestamp(now),
        echo: conn.active.path(which).echo_now(now),
        window_kib,
        epoch: conn.base.tx_epoch,
        epoch_ack: conn.base.rx_epoch,
    }
}

/// Everything that has come is acknowledged by what was just written. Of a bonded connection, what came another way is
/// acknowledged that way too: else the peer would hear nothing there, and not know how long it takes.
#[inline]
pub(super) fn acked_now(conn: &mut ActiveConn<'_>, which: u8) {
    let active = &mut *conn.active;
    let left = match active.bond.as_deref_mut() {
        Some(bond) => bond.acked_by(which),
        None => 0,
    };
    active.ack_pending = left;
    if active.bond.as_deref().is_none_or(|bond| bond.ack_by == 0) {
        active.wants &= !want::ACK;
    }
}

/// Counts a datagram of a bonded connection.
#[inline]
pub(super) fn count_on_path(conn: &mut ActiveConn<'_>, which: u8, len: usize) {
    let bond = conn.active.bond.as_deref_mut();
    if let Some(bond) = bond {
        let way = bond.way(which);
        way.datagrams_sent += 1;
        way.bytes_sent += len as u64;
    }
}

/// By which way a question goes that the peer must answer.
fn take_turn(conn: &mut ActiveConn<'_>) -> u8 {
    let bond = conn.active.bond.as_deref_mut();
    bond.map_or(FIRST, Bond::take_turn)
}

pub(super) fn clear(conn: &mut ActiveConn<'_>, want: u8) {
    let active = &mut *conn.active;
    active.wants &= !want;
}

impl Active {
    /// The bundle whose turn it is.
    fn next_to_send(&self) -> Option<Seq> {
        if self.tx.resend == 0 {
            return Some(self.tx.unsent);
        }
        let ring = self.tx_ring.as_ref()?;
        let mut seq = self.tx.unacked;
        while seq != self.tx.unsent {
            if ring.get(seq).has(mark::RESEND) {
                return Some(seq);
            }
            seq = seq.next();
        }
        debug_assert!(false, "counted bundles to resend that are not there");
        None
    }

    /// What keeps a bundle that weighs `bytes` from leaving this way, if anything.
    #[inline]
    pub(super) fn held_back(
        &self,
        which: u8,
        bytes: u32,
        peer_window_kib: u16,
        now: Time,
    ) -> Option<Blocked> {
        if self.rnr {
            return Some(Blocked::ReceiverNotReady);
        }
        let path = self.path(which);
        //= wire.md R-CONN-3
        // With nothing in flight one bundle may always go: windows smaller than that would never open again.
        let in_flight_bytes = self.in_flight_bytes();
        if in_flight_bytes != 0 && path.probe_credit == 0 {
            if in_flight_bytes + bytes > u32::from(peer_window_kib) << 10 {
                return Some(Blocked::PeerWindow);
            }
            if path.in_flight_bytes != 0 && path.in_flight_bytes + bytes > path.window.bytes() {
                return Some(Blocked::Congestion);
            }
        }
        (path.pace_due > now).then_some(Blocked::Pacing)
    }

    /// True if nothing more can be sent this way before an acknowledgement: then it had better not be delayed.
    pub(super) fn waits_after(&self, which: u8, body_bytes: u16, peer_window_kib: u16) -> bool {
        let path = self.path(which);
        let twice = 2 * weight(body_bytes);
        path.probe_credit != 0
            || path.in_flight_bytes + twice > path.window.bytes()
            || self.in_flight_bytes() + twice > u32::from(peer_window_kib) << 10
    }

    pub(super) fn note_sent(&mut self, shared: &mut Shared, seq: Seq, which: u8, epoch: u16, now: Time) {
        let Some(ring) = self.tx_ring.as_mut() else { return };
        let slot = ring.at(seq);
        let bytes = weight(slot.body_bytes);
        if slot.has(mark::RESEND) {
            self.tx.resend -= 1;
            slot.resends = slot.resends.saturating_add(1);
            slot.marks = mark::RESENT;
            self.tx.irregular = true;
            self.counters.retransmissions += 1;
            shared.counters.retransmissions += 1;
            if let Some(bond) = self.bond.as_deref_mut() {
                bond.way(which).retransmissions += 1;
            }
        } else {
            if slot.holds & holds::PUMPED != 0
                && let Some(rma) = self.rma.as_deref_mut()
            {
                rma.unsent = rma.unsent.saturating_sub(1);
            }
            self.tx.unsent = seq.next();
            if self.tx.unsent == self.tx.next {
                self.tx.open = false;
            }
            self.counters.bundles_sent += 1;
            shared.counters.bundles_sent += 1;
        }
        slot.marks |= mark::IN_FLIGHT;
        self.epoch_sent_at = self.epoch_sent_at.min(now);
        slot.sent_at = now;
        slot.epoch = epoch;
        slot.path = which;
        self.used_at = now;
        let path = self.path_mut(which);
        path.in_flight_bytes += bytes;
        path.probe_credit = path.probe_credit.saturating_sub(1);
        if path.probe_due == Time::FAR {
            path.set_probe(now);
        }
        path.pace(bytes, now);
    }
}

impl Path {
    /// On long paths a window's worth is spread over the round trip, a little faster than it will be acknowledged.
    fn pace(&mut self, bytes: u32, now: Time) {
        let rtt_ns = self.rtt.smoothed_ns_or_zero();
        if rtt_ns < PACING_RTT_NS_MIN {
            return;
        }
        let (gain_num, gain_den) = if self.window.in_slow_start() { (1, 2) } else { (4, 5) };
        let gap_ns = rtt_ns * u64::from(bytes) / u64::from(self.window.bytes().max(1)) * gain_num / gain_den;
        // Who wakes up late, on a busy machine or by a coarse timer, makes up for it: else a datagram or two would go for
        // each time that it wakes up.
        let earliest = Time(now.0.saturating_sub(PACING_BURST_NS.max(rtt_ns / PACING_BURST_SHARE)));
        self.pace_due = self.pace_due.max(earliest).plus(gap_ns);
    }
}
