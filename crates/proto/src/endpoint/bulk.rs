//! Data of remote operations that come in their turn: the next bundle of a connection with one path, where nothing is lost, refused or held,
//! and which acknowledges nothing new.
//!
//! Where a long operation is under way, nearly every datagram is of this kind. A few comparisons show, before anything is changed, whether
//! one is; every other one goes through the modules that can deal with anything. What is done here leaves the same state as they
//! do, and the same bytes: `tests/ordinary.rs` compares.

use super::connections::Connections;
use super::protocol::Protocol;
use super::receiving::came;
use super::sending::after_ack;
use crate::conn::Active;
use crate::conn::path::FIRST;
use crate::operations::exchange::Exchange;
use crate::time::ticks;
use crate::wire::Head;
use crate::{Address, ConnState, Sink, Time};

/// Whether this bundle is the next one, brings no news of what was sent, and nothing waits for it.
#[inline(always)]
fn is_in_turn(active: &Active, head: &Head) -> bool {
    let rx = &active.rx;
    rx.next == head.seq
        && rx.end == head.seq
        && rx.deliver == head.seq
        && rx.held == 0
        && head.ack == active.tx.unacked
        && !active.rnr
        && !active.refusing
        && active.paths.bond.is_none()
}

impl Connections {
    /// Takes a datagram if it is bulk data in its turn. False: it is not, and nothing has been done.
    #[inline(never)]
    pub fn on_bulk(&mut self, now: Time, from: Address, datagram: &[u8], sink: &mut impl Sink) -> bool {
        self.take_bulk(now, from, datagram, sink).is_some()
    }

    #[inline(always)]
    fn take_bulk(&mut self, now: Time, from: Address, datagram: &[u8], sink: &mut impl Sink) -> Option<()> {
        let (head, body, record) = Head::parse_bulk(datagram)?;
        let Protocol { shared, transfers, .. } = &mut self.protocol;
        let mut conn = self.table.at_mut(head.index)?.awake()?;
        let base = &mut *conn.base;
        //= wire.md R-CONN-1
        //= wire.md R-CONN-2
        let is_expected = base.generation == head.generation
            && base.nonce == head.nonce
            && base.peer_index == head.source_index
            && base.state == ConnState::Up
            && base.attribute.is_reliable()
            && (base.rx_epoch, base.tx_epoch) == (head.epoch, head.epoch_ack)
            && base.peer == from
            && body.len() <= usize::from(shared.config.datagram_bytes_max);
        if !is_expected || !is_in_turn(conn.active, &head) {
            return None;
        }
        let (key, token) = (base.key(head.index), base.token);
        let rma = conn.active.rma.as_deref_mut()?;
        base.peer_window_kib = head.window_kib;
        base.idle_window.note_heard();
        (conn.active.heard_at, conn.active.used_at) = (now, now);
        conn.active.paths.first.came(head.timestamp, now);
        let (ops, counters, now_ticks) = (&mut transfers.operations, &mut shared.counters, ticks(now.0));
        Exchange { ops, counters, rma, key, token, now_ticks, serve: true }.take_bulk(record, sink);
        after_ack(shared, &mut conn);
        came(shared, transfers, &mut conn, &head, FIRST, (0, true), now, sink);
        self.protocol.settle_operations(&mut conn);
        self.protocol.shared.arm(conn.active);
        Some(())
    }
}
