//! Receives from a ring. Everything in shared memory is read once, then checked. A message is copied once, from the ring into a
//! receive buffer.

use super::close;
use super::common::Common;
use super::connections::{Connections, EstablishedConn, Phase};
use super::link::{Life, Link};
use super::out::Control;
use super::rma::grant::{ANNOUNCED_BYTES, Grant};
use super::transfers::TakenRma;
use super::transfers::paths::About;
use super::wire::{NOBODY, PeerConn, kind};
use crate::connection::Connection;
use crate::engine::borrowed::Borrowed;
use crate::engine::core::Core;
use crate::engine::core::mapped::Delivery;
use crate::loan::Loans;
use cci_memory::ring::Corrupt;

/// The most answers to late confirmations that may wait for space in a ring.
const CONTROL_MAX: usize = 256;
/// The most records taken from one link before the others have their turn.
pub(super) const RECORDS_PER_POLL_MAX: u32 = 64;

/// What happened to a record.
enum Taken {
    /// The record was handled.
    Yes,
    /// There is no record.
    None,
    /// The record stays in the ring, and the link is stalled.
    Stalled,
    /// There is now the space that the record needs, so it is to be handled again.
    Again,
}

/// Takes the records that have come, and returns how many.
///
/// After a pause it takes only one record. The peer has just zeroed the line behind that one. The line would have to come from
/// the peer's cache before anything done afterwards could leave the processor, and somebody may be waiting for the answer. In a
/// stream there is no pause, and all records are taken.
///
/// # Errors
/// The peer wrote something impossible, and the link must be given up.
#[inline(always)]
pub(super) fn drain(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<u32, Corrupt> {
    if link.consumer.is_stalled() && !resume(link, core) {
        return Ok(0);
    }
    let records_max = u64::from(if link.idle_polls > 0 { 1 } else { RECORDS_PER_POLL_MAX });
    let records_max = records_max.min(core.records_left);
    let mut records = 0;
    while records < records_max {
        if let Life::Draining { until } = link.life
            && link.consumer.head() >= until
        {
            break;
        }
        match take_one(link, common, core)? {
            Taken::Yes => {}
            Taken::None | Taken::Stalled => break,
            Taken::Again => continue,
        }
        link.consumer.consume();
        records += 1;
    }
    core.records_left -= records;
    if records > 0 {
        has_come(link, common.connections.now_ns);
    }
    // This is necessary even if no record came: the space of records that the peer has taken back is free again.
    link.publish();
    Ok(records as u32)
}

/// Notes that records have come on a link.
#[inline(always)]
pub(super) fn has_come(link: &mut Link, now_ns: u64) {
    link.idle_polls = 0;
    link.worked_ns = now_ns;
    link.heard_ns = now_ns;
    if link.armed {
        // The peer may have rung for these records, or be about to ring.
        link.disarm();
        link.rung = true;
    }
}

/// Ends a stall if there is a buffer now and the peer is not taking messages back at this moment. Also ends it if the waiting
/// message may be dropped, because the program has taken all its events and holds every buffer.
#[cold]
fn resume(link: &mut Link, core: &mut Core) -> bool {
    let may_drop = !link.stalled_by_reliable && !core.has_events();
    let has_buffer = match link.stalled_for {
        Some(connection) => core.has_buffer_for(connection),
        None => core.receive.free_count() != 0,
    };
    if !has_buffer && !may_drop {
        return false;
    }
    if link.life == Life::Up {
        return link.consumer.resume();
    }
    link.consumer.resume_orphaned();
    true
}

/// Leaves the record in place and informs the peer, since there is no receive buffer, or none for the record's connection.
#[cold]
fn stall(link: &mut Link, common: &mut Common, is_reliable: bool, connection: Option<Connection>) -> Taken {
    link.consumer.stall();
    link.stalled_by_reliable = is_reliable;
    link.stalled_for = connection;
    link.stalls += 1;
    common.connections.counts.stalls += 1;
    Taken::Stalled
}

#[inline(always)]
fn take_one(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<Taken, Corrupt> {
    let Some(record) = link.consumer.peek()? else { return Ok(Taken::None) };
    let header = record.header();
    if header.kind != kind::MESSAGE {
        return take_other(link, common, core);
    }
    // Sends complete before the message is delivered, since a program that has its answer may not ask for more.
    link.out.acknowledged(header.ack, &mut common.connections, core)?;
    // The program may answer the message, so the line for our next record is fetched now.
    link.out.producer.prefetch();
    let len_bytes = record.len_bytes();
    if len_bytes > common.connections.mss {
        return Err(Corrupt::Length);
    }
    let (at, counts) = (link.key, &mut common.connections.counts);
    let named = common.connections.conns.at(header.conn);
    let named = named.filter(|(key, _)| key.generation as u8 == header.flags);
    let Some(EstablishedConn { base, on }) =
        named.and_then(|(_, conn)| conn.established()).filter(|conn| conn.on.link == at)
    else {
        counts.unknown_connection += 1;
        return Ok(Taken::Yes);
    };
    if on.phase == Phase::Closing {
        counts.after_close += 1;
        return Ok(Taken::Yes);
    }
    let delivered = core.deliver_with(base.connection, len_bytes as usize, |buffer| {
        record.copy_to(buffer);
    });
    if delivered {
        base.messages_received += 1;
        base.bytes_received += u64::from(len_bytes);
    } else if on.is_reliable || core.has_events() {
        // Even an unreliable message waits while the program is only behind with its events, since the ring can hold it.
        let (is_reliable, connection) = (on.is_reliable, Some(base.connection));
        return Ok(stall(link, common, is_reliable, connection));
    } else {
        counts.unreliable_no_buffer += 1;
    }
    Ok(Taken::Yes)
}

/// Takes a record that is not a message.
#[inline(never)]
fn take_other(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<Taken, Corrupt> {
    let Some(record) = link.consumer.peek()? else { return Ok(Taken::None) };
    let header = record.header();
    link.out.acknowledged(header.ack, &mut common.connections, core)?;
    if header.kind == kind::RMA {
        let from = (link.key, link.peer.process());
        let Common { connections, transfers, .. } = common;
        match transfers.take(&record, from, &mut link.transfers, connections, core)? {
            TakenRma::Yes => return Ok(Taken::Yes),
            TakenRma::NoFlow(conn) => {
                if common.transfers.take_back_idle(link, &mut common.connections) {
                    return Ok(Taken::Again);
                }
                return close::shut_out(link, common, core, conn).map(|()| Taken::Yes);
            }
            TakenRma::NoBuffer => {}
        }
        let connection =
            common.connections.conns.named(header.conn, header.flags).map(|(_, conn)| conn.base.connection);
        return Ok(stall(link, common, true, connection));
    }
    if header.kind == kind::LOAN {
        return take_loan(link, common, core);
    }
    if header.kind == kind::RETURN {
        return take_return(link, common, core);
    }
    if header.kind == kind::GRANT {
        let mut payload = [0; ANNOUNCED_BYTES];
        let grant = if record.len_bytes() as usize == payload.len() {
            record.copy_to(&mut payload);
            Grant::from_record(&payload)
        } else {
            None
        };
        let Common { connections, transfers, .. } = common;
        transfers.take_announced(link, connections, core, (header.conn, header.flags), grant);
        return Ok(Taken::Yes);
    }
    if matches!(header.kind, kind::MAP..=kind::LOANS | kind::FREED) {
        let mut words = [[0; 8]; 3];
        if record.len_bytes() != 24 {
            common.connections.counts.bad_record += 1;
            return Ok(Taken::Yes);
        }
        record.copy_to(words.as_flattened_mut());
        let (kind, conn, generation) = (header.kind, header.conn, header.flags);
        let words = words.map(u64::from_ne_bytes);
        if kind == kind::LOANS {
            link.out.lending.answered(words[0] != 0)?;
            return Ok(Taken::Yes);
        }
        let about = About { kind, conn, generation, words };
        common.transfers.take_about(link, &mut common.connections, core, about);
        return Ok(Taken::Yes);
    }
    let mut own = [0; 8];
    record.copy_to(&mut own);
    let [a, b, c, d, e, f, g, h] = own;
    let from =
        PeerConn { index: u32::from_ne_bytes([a, b, c, d]), generation: u32::from_ne_bytes([e, f, g, h]) };
    let (kind, conn, generation) = (header.kind, header.conn, header.flags);
    other(link, common, core, kind, conn, generation, from).map(|()| Taken::Yes)
}

/// Takes a message that the peer lends: copies it, or gives it to the program in place.
fn take_loan(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<Taken, Corrupt> {
    // If many come, slots are returned all the time. This record's slot can't be among them.
    link.return_loans()?;
    let Some(record) = link.consumer.peek()? else { return Ok(Taken::None) };
    let (header, len) = (record.header(), record.len_bytes());
    let mut words = [[0; 4]; 2];
    if len != 8 {
        common.connections.counts.bad_record += 1;
        return Ok(Taken::Yes);
    }
    record.copy_to(words.as_flattened_mut());
    let [slot, len_bytes] = words.map(u32::from_ne_bytes);
    let Some(borrowing) = &mut link.borrowing else { return Err(Corrupt::Length) };
    if !borrowing.may_be_lent(slot, len_bytes) || len_bytes > common.connections.mss {
        return Err(Corrupt::Length);
    }
    let memory = borrowing.memory();
    let Connections { conns, counts, .. } = &mut common.connections;
    let named = conns.named_on(link.key, header.conn, header.flags).map(|(_, conn)| conn);
    let delivery = match named {
        None => {
            counts.unknown_connection += 1;
            Delivery::Dropped
        }
        Some(conn) if conn.on.phase == Phase::Closing => {
            counts.after_close += 1;
            Delivery::Dropped
        }
        Some(EstablishedConn { base, on }) => {
            let message = |is_trusted| Borrowed { slot, len_bytes, is_trusted };
            let delivery = match on.loans {
                Loans::Copied => {
                    let copied = core.deliver_with(base.connection, len_bytes as usize, |buffer| {
                        let is_read = memory.read(slot, buffer);
                        debug_assert!(is_read, "slot and length were checked");
                    });
                    if copied { Delivery::Dropped } else { Delivery::NoBuffer }
                }
                Loans::Mapped => core.deliver_mapped(base.connection, message(false), memory),
                Loans::Trusted(trust) => {
                    memory.trust(trust);
                    core.deliver_mapped(base.connection, message(true), memory)
                }
            };
            if delivery == Delivery::NoBuffer {
                let (is_reliable, connection) = (on.is_reliable, Some(base.connection));
                return Ok(stall(link, common, is_reliable, connection));
            }
            base.messages_received += 1;
            base.bytes_received += u64::from(len_bytes);
            delivery
        }
    };
    borrowing.hold(slot);
    if delivery == Delivery::Dropped {
        borrowing.memory().give_back(slot);
    }
    Ok(Taken::Yes)
}

/// Handles the return of slots that this side has lent.
fn take_return(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<Taken, Corrupt> {
    let Some(record) = link.consumer.peek()? else { return Ok(Taken::None) };
    let mut slots = [0; 8];
    if record.len_bytes() != 8 {
        common.connections.counts.bad_record += 1;
        return Ok(Taken::Yes);
    }
    record.copy_to(&mut slots);
    link.out.lending.returned(core, u64::from_ne_bytes(slots))?;
    Ok(Taken::Yes)
}

/// Handles a record about a connection's life. A record that names no connection of this link may just be late. It is counted and
/// ignored.
fn other(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    kind: u8,
    conn: u32,
    generation: u8,
    from: PeerConn,
) -> Result<(), Corrupt> {
    match kind {
        kind::CLOSE => close::close_came(link, common, core, conn, generation),
        kind::CLOSE_ACK => close::close_ack_came(link, common, core, conn, generation),
        kind::CONFIRM => confirm_came(link, common, core, (conn, generation), from),
        kind::PING => link.send_pong(),
        kind::PONG => Ok(()),
        _ => {
            common.connections.counts.bad_record += 1;
            Ok(())
        }
    }
}

/// Handles a CONFIRM: a client has joined the link, and names one of our connections and one of its own.
fn confirm_came(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    named: (u32, u8),
    from: PeerConn,
) -> Result<(), Corrupt> {
    let Common { connections, handshakes, .. } = common;
    if handshakes.confirm(connections, core, link.key, named, from) {
        return Ok(());
    }
    // The CONFIRM came after this side had given up. The client assumes that it is connected, and must learn that it is not.
    connections.counts.unknown_connection += 1;
    if link.out.control.len() >= CONTROL_MAX {
        // No honest peer confirms so often and reads nothing.
        return Ok(());
    }
    link.send_control(Control::about(kind::CLOSE, from, NOBODY))
}
