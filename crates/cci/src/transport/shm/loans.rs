//! Loans: messages that the receiver reads in the sender's memory.
//!
//! For each link, a side that lends has memory, divided into slots, that only it can write to ([`lending`](super::lending)). It
//! offers the memory to its peer once, over the link's socket, with the descriptor. The peer maps it for reading and reports that
//! (LOANS), or reports that it does not. From then on a message may be a record with a slot's number and a length (LOAN), in
//! order among all other records of the ring. The receiver copies the message out of the slot, or its program reads it there
//! ([`borrowing`](super::borrowing)). When the program is done with it, a record returns the slot to the sender (RETURN). A LOAN
//! in the ring is treated like any other message there.
//!
//! If a receiver returns a slot that was not lent to it, its link ends. So does the link of a sender that lends a slot twice.
//! When a link ends, the sender has all slots back at once, since it never lends that memory to anybody else. Memory that the
//! receiver's program keeps stays mapped.

use super::common::Common;
use super::lending::{Lending, NotLent};
use super::link::{Life, Link};
use super::links::Links;
use super::offer::Offer;
use super::out::Control;
use super::wire::{NOBODY, kind};
use crate::connection::Connection;
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use crate::limits;
use cci_memory::ring::{PushError, RecordHeader};
use cci_memory::slab::Key;
use cci_sys::shared_memory::LendingSlot;

/// The answer to a request for memory.
pub(super) enum Asked {
    Slot(LendingSlot),
    /// There is none now, or none at all.
    None,
    /// No memory was ever offered to the peer of this link.
    NotOffered(Key),
}

/// Takes memory for a message of a connection.
pub(super) fn take(links: &mut Links, common: &mut Common, key: Key) -> Asked {
    let Some(conn) = common.connections.conns.open(key) else { return Asked::None };
    let at = conn.on.link;
    let Some(link) = links.table.get_mut(at).filter(|link| link.life == Life::Up) else { return Asked::None };
    match link.out.lending.take() {
        Ok(slot) => Asked::Slot(slot),
        Err(NotLent::Never) => Asked::NotOffered(at),
        Err(NotLent::Now) => Asked::None,
    }
}

/// Offers memory to the peer of a link: at most `space_bytes`.
pub(super) fn offer(links: &mut Links, common: &Common, key: Key, space_bytes: u64) {
    let Some(link) = links.table.get_mut(key) else { return };
    let offer = Offer { slots: limits::LOANS_MAX, slot_bytes: common.connections.mss.next_multiple_of(64) };
    link.out.lending = Lending::offer(offer, &link.lifeline, &common.lent, space_bytes);
}

/// Sends a message that is in memory of its link, as [`send`](super::send::send) does with others.
pub(super) fn send(
    links: &mut Links,
    common: &mut Common,
    core: &mut Core,
    (key, connection): (Key, Connection),
    (slot, len_bytes): (LendingSlot, usize),
    op: SendOp,
) -> Result<(), (SendError, LendingSlot)> {
    let connections = &mut common.connections;
    let Some(at) = connections.conns.open(key).map(|conn| conn.on.link) else {
        return Err((SendError::Disconnected, slot));
    };
    let is_alone = links.table.len() < 2;
    let Some(link) = links.table.get_mut(at) else { return Err((SendError::Disconnected, slot)) };
    if !link.out.lending.owns(&slot) {
        return Err((SendError::Disconnected, slot));
    }
    if !connections.sends.has_space_for(&link.out.fifo, is_alone) || !link.out.control.is_empty() {
        // The peer may have taken something since the last check.
        let looked = link.complete_taken(connections, core).and_then(|_| link.push_control());
        let has_space = connections.sends.has_space_for(&link.out.fifo, is_alone);
        if looked.is_err() || !has_space || !link.out.control.is_empty() {
            return Err((SendError::WouldBlock, slot));
        }
    }
    let Some(conn) = connections.conns.open(key) else { return Err((SendError::Disconnected, slot)) };
    let was_flushed = link.out.is_flushed();
    let header = RecordHeader {
        kind: kind::LOAN,
        flags: conn.on.peer_generation,
        conn: conn.on.peer_index,
        ack: link.ack(),
    };
    let payload = [slot.index().to_ne_bytes(), (len_bytes as u32).to_ne_bytes()];
    let span = match link.out.producer.push(header, &[payload.as_flattened()]) {
        Ok(span) => span,
        Err(PushError::Full | PushError::TooLong) => {
            super::send::is_full(link, connections, core);
            links.make_busy(at);
            return Err((SendError::WouldBlock, slot));
        }
        Err(PushError::Corrupt(_)) => {
            links.kill(common, core, at);
            return Err((SendError::Disconnected, slot));
        }
    };
    conn.base.messages_sent += 1;
    conn.base.bytes_sent += len_bytes as u64;
    conn.on.in_progress += 1;
    connections.sends.push_loan(&mut link.out.fifo, span, key.index, slot.index());
    link.out.lending.sent(slot, (connection, key.index), op);
    // This follows the message, which somebody may be waiting for.
    let returned = link.return_loans();
    if link.out.flush_after_send(was_flushed) {
        link.publish_due = false;
    }
    if !link.is_busy || !link.is_active {
        links.has_sends(common, at);
    }
    if returned.is_err() {
        links.kill(common, core, at);
    }
    Ok(())
}

/// Informs the peer of a link whether the memory that it has offered is mapped.
pub(super) fn answer(link: &mut Link, is_mapped: bool) {
    // If the ring is corrupt, the next push finds that as well.
    let _ = link.send_control(Control::words(kind::LOANS, NOBODY, [is_mapped.into(), 0, 0]));
    link.out.flush();
}
