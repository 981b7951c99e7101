//! What a connection sends besides its bundles: steps of the handshake, acknowledgements, questions, the close. And the
//! header that all its datagrams begin with.

use super::shared::Shared;
use crate::conn::path::{Bond, FIRST, SECOND};
use crate::conn::{ActiveConn, Dial, want};
use crate::limits::{HEADER_BYTES, VERSION, padded};
use crate::wire::{Accept, Connect, Head, Hello, Kind, PathBody, Sack, flags, timestamp};
use crate::{Attribute, ConnState, Seq, Time, Transmit};

/// Writes an acknowledgement for every path by which one is due; false: the carrier is full.
pub(super) fn send_acks(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    now: Time,
    out: &mut impl Transmit,
) -> bool {
    let by = conn.active.paths.acks_by();
    for which in (FIRST..=SECOND).filter(|which| by >> which & 1 != 0) {
        if !send_bare(shared, conn, Kind::Ack, 0, which, now, out) {
            return false;
        }
        shared.counters.acks_sent += 1;
    }
    let active = &mut *conn.active;
    active.wants &= !want::ACK;
    if let Some(bond) = active.paths.bond.as_deref_mut() {
        active.ack_pending = bond.acked();
    }
    true
}

/// Writes what a connection wants to send besides data and acknowledgements; false: the carrier is full.
pub(super) fn send_wanted(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    wants: u8,
    now: Time,
    out: &mut impl Transmit,
) -> bool {
    if wants & want::DIAL != 0 && !send_dial(shared, conn, now, out) {
        return false;
    }
    if wants & want::ACCEPT != 0 && !send_accept(shared, conn, now, out) {
        return false;
    }
    if wants & want::PING != 0 && conn.base.is_established() {
        let which = take_turn(conn);
        if !send_bare(shared, conn, Kind::Ping, flags::PROBE, which, now, out) {
            return false;
        }
        conn.active.tx.irregular |= conn.active.paths.get_mut(which).note_ping(now);
        clear(conn, want::PING);
    }
    if wants & want::CLOSE != 0 && conn.base.state == ConnState::Closing {
        let which = take_turn(conn);
        if !send_bare(shared, conn, Kind::Close, 0, which, now, out) {
            return false;
        }
        clear(conn, want::CLOSE);
    }
    if wants & want::PATH != 0 && conn.base.is_established() {
        return send_paths(shared, conn, now, out);
    }
    true
}

pub(super) fn send_dial(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    now: Time,
    out: &mut impl Transmit,
) -> bool {
    let own = (shared.config.datagram_bytes_max, shared.window_kib());
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
    shared.committed(len, out);
    active.wants &= !want::DIAL;
    true
}

pub(super) fn send_accept(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    now: Time,
    out: &mut impl Transmit,
) -> bool {
    let window_kib = shared.window_kib();
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
        echo: active.paths.first.echo_now(now),
        datagram_bytes_max: shared.config.datagram_bytes_max,
        window_kib,
        bond: active.paths.bond.is_some(),
    };
    let len = accept.emit(buffer);
    shared.committed(len, out);
    active.wants &= !want::ACCEPT;
    true
}

/// Writes a header with no body, to go by one path; it acknowledges as every header does. False: the carrier is full.
#[allow(clippy::too_many_arguments)] // the fields of one datagram
pub(super) fn send_bare(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    kind: Kind,
    more_flags: u8,
    which: u8,
    now: Time,
    out: &mut impl Transmit,
) -> bool {
    let active = &*conn.active;
    let sack = if conn.base.attribute.is_reliable() { active.rx.sack() } else { Sack::default() };
    let mut head = head(conn, kind, active.tx.unsent, shared.window_kib(), which, now);
    head.flags |= more_flags;
    let Some(buffer) = out.begin(conn.address(which), HEADER_BYTES + sack.bytes(), false) else {
        return false;
    };
    let len = head.emit(&sack, 0, buffer);
    shared.committed(len, out);
    acked_now(conn, which);
    count_on_path(conn, which, len);
    true
}

/// Writes all questions and answers about the paths that wait; false: the carrier is full.
pub(super) fn send_paths(
    shared: &mut Shared,
    conn: &mut ActiveConn<'_>,
    now: Time,
    out: &mut impl Transmit,
) -> bool {
    for which in [FIRST, SECOND] {
        let active = &*conn.active;
        let Some(bond) = active.paths.bond.as_deref() else { break };
        let bonded = &bond.paths[usize::from(which)];
        if !bonded.wanted || (which == SECOND && bond.to.is_none()) {
            continue;
        }
        let body = PathBody { challenge: bonded.question(), answer: bonded.answer };
        let seq = active.tx.unsent;
        let head = head(conn, Kind::Path, seq, shared.window_kib(), which, now);
        let Some(buffer) = out.begin(conn.address(which), HEADER_BYTES + PathBody::BYTES, false) else {
            return false;
        };
        let len = head.emit_path(body, buffer);
        shared.committed(len, out);
        count_on_path(conn, which, len);
        if let Some(bond) = conn.active.paths.bond.as_deref_mut() {
            (bond.path(which).wanted, bond.path(which).answer) = (false, 0);
        }
    }
    clear(conn, want::PATH);
    true
}

/// The header of a datagram that leaves now, by one path.
// Always, or it goes through memory twice.
#[inline(always)]
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
        echo: conn.active.paths.get(which).echo_now(now),
        window_kib,
        epoch: conn.base.tx_epoch,
        epoch_ack: conn.base.rx_epoch,
    }
}

/// Everything that has come is acknowledged by what was just written. Of a bonded connection, what came by the other path is
/// acknowledged there too: else the peer would hear nothing there, and not know how long it takes.
#[inline]
pub(super) fn acked_now(conn: &mut ActiveConn<'_>, which: u8) {
    let active = &mut *conn.active;
    let remaining = match active.paths.bond.as_deref_mut() {
        Some(bond) => bond.acked_by(which),
        None => 0,
    };
    active.ack_pending = remaining;
    if active.paths.bond.as_deref().is_none_or(|bond| bond.ack_by == 0) {
        active.wants &= !want::ACK;
    }
}

/// Counts a datagram of a bonded connection.
#[inline]
pub(super) fn count_on_path(conn: &mut ActiveConn<'_>, which: u8, len: usize) {
    let bond = conn.active.paths.bond.as_deref_mut();
    if let Some(bond) = bond {
        let bonded = bond.path(which);
        bonded.datagrams_sent += 1;
        bonded.bytes_sent += len as u64;
    }
}

/// The path by which a question goes that the peer must answer.
fn take_turn(conn: &mut ActiveConn<'_>) -> u8 {
    let bond = conn.active.paths.bond.as_deref_mut();
    bond.map_or(FIRST, Bond::take_turn)
}

pub(super) fn clear(conn: &mut ActiveConn<'_>, want: u8) {
    let active = &mut *conn.active;
    active.wants &= !want;
}

/// Writes the client's next datagram: asks for a cookie, or for the connection with it.
#[allow(clippy::too_many_arguments)] // the fields of one datagram
fn dial_datagram(
    dial: &Dial,
    (index, generation): (u32, u32),
    nonce: u64,
    first_seq: Seq,
    (datagram_bytes_max, window_kib): (u16, u16),
    attribute: Attribute,
    now: Time,
    out: &mut [u8],
) -> usize {
    let timestamp = timestamp(now);
    match dial.cookie {
        None => Hello { version: VERSION, index, generation, nonce, timestamp }.emit(out),
        Some((bucket, cookie)) => Connect {
            index,
            generation,
            bucket,
            nonce,
            cookie,
            timestamp,
            first_seq,
            datagram_bytes_max,
            window_kib,
            attribute,
            bond: dial.other.is_some() && attribute.is_reliable(),
            payload: &dial.request,
        }
        .emit(out),
    }
}
