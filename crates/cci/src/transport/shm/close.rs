//! How connections and links end.
//!
//! CLOSE goes through the ring behind everything sent before. The peer stops sending on the connection, answers
//! CLOSE_ACK, and knows that it is gone; with that answer our entry for it is free, as no record of the peer's can
//! name it any more. Two CLOSEs that cross need no answers. A link with no connection left is given up by whoever
//! sees it first; the other side drains what is in the ring and follows.

use super::common::Common;
use super::connections::State;
use super::link::Link;
use super::out::Control;
use super::wire::NOBODY;
use super::wire::kind;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::Core;
use crate::transport::token;
use cci_memory::ring::Corrupt;
use cci_memory::slab::Key;

/// The peer disconnected.
pub(super) fn close_came(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    conn: u32,
    generation: u8,
) -> Result<(), Corrupt> {
    let at = link.key;
    let Some((key, conn)) = common.connections.named(conn, generation).filter(|(_, conn)| conn.at == at)
    else {
        common.connections.counts.unknown_connection += 1;
        return Ok(());
    };
    match conn.state {
        State::Open | State::Broken => {
            let (connection, to) = (conn.connection, conn.peer());
            // First: if the ring turns out to be corrupt, the connection ends with its link, which must still find it.
            link.complete_taken(&mut common.connections, core)?;
            if let Some(conn) = common.connections.conns.get_mut(key) {
                conn.state = State::Gone;
                conn.at = token::NOWHERE;
            }
            link.end_sends(&mut common.connections, core, key.index, Status::Disconnected);
            common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected);
            core.ended(connection, DisconnectReason::Closed);
            link.conns = link.conns.saturating_sub(1);
            link.send_control(Control::about(kind::CLOSE_ACK, to, NOBODY))
        }
        State::Closing => {
            let to = conn.peer();
            if common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected) {
                // We have not closed yet, as operations were under way: the peer waits for an answer.
                link.send_control(Control::about(kind::CLOSE_ACK, to, NOBODY))?;
            }
            closed(link, common, core, key)
        }
        State::Making | State::Gone => Ok(()),
    }
}

/// Ends a connection whose peer asks for more than there is for its process. The peer learns of that behind what was sent
/// before.
#[cold]
pub(super) fn shut_out(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    key: Key,
) -> Result<(), Corrupt> {
    link.complete_taken(&mut common.connections, core)?;
    let at = link.key;
    let Some(conn) =
        common.connections.conns.get_mut(key).filter(|conn| conn.at == at && conn.state == State::Open)
    else {
        return Ok(());
    };
    let sent = link.send_close(conn);
    let connection = conn.connection;
    (conn.state, conn.at) = (State::Gone, token::NOWHERE);
    common.connections.counts.operations_over_quota += 1;
    link.end_sends(&mut common.connections, core, key.index, Status::Disconnected);
    common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected);
    core.ended(connection, DisconnectReason::Refused);
    link.conns = link.conns.saturating_sub(1);
    sent
}

/// The peer has seen our CLOSE, and all that was before it.
pub(super) fn close_ack_came(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    conn: u32,
    generation: u8,
) -> Result<(), Corrupt> {
    let at = link.key;
    match common.connections.named(conn, generation) {
        Some((key, conn)) if conn.at == at && conn.state == State::Closing => closed(link, common, core, key),
        _ => Ok(()),
    }
}

/// Nothing more can come for a connection that we closed.
fn closed(link: &mut Link, common: &mut Common, core: &mut Core, key: Key) -> Result<(), Corrupt> {
    link.complete_taken(&mut common.connections, core)?;
    link.end_sends(&mut common.connections, core, key.index, Status::Disconnected);
    common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected);
    link.conns = link.conns.saturating_sub(1);
    if let Some(conn) = common.connections.conns.remove(key) {
        core.closed(conn.connection);
    }
    Ok(())
}

/// Ends what a connection has under way that was disconnected and not answered until the send timeout, and takes it off its
/// link.
pub(super) fn give_up(link: &mut Link, common: &mut Common, core: &mut Core, key: Key) {
    let Common { connections, transfers, .. } = common;
    link.end_sends(connections, core, key.index, Status::TimedOut);
    if transfers.end_flow(link, connections, core, key, Status::TimedOut)
        && let Some(conn) = connections.conns.get(key)
    {
        // If the ring is corrupt, the next poll finds that, too.
        let _ = link.send_close(conn);
    }
    link.conns = link.conns.saturating_sub(1);
}
