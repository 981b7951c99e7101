//! How connections and links end.
//!
//! CLOSE goes through the ring behind everything that was sent before. The peer then stops sending on the connection and answers
//! CLOSE_ACK. With that answer our entry for the connection is free, since no record of the peer can refer to it any more. Two
//! CLOSEs that cross need no answers. A link without connections is given up by the side that sees it first. The other side
//! drains the ring and follows.

use super::common::Common;
use super::connections::Phase;
use super::link::Link;
use super::out::Control;
use super::wire::NOBODY;
use super::wire::kind;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::Core;
use cci_memory::ring::Corrupt;
use cci_memory::slab::Key;

/// Handles a CLOSE: the peer has disconnected.
pub(super) fn close_came(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    conn: u32,
    generation: u8,
) -> Result<(), Corrupt> {
    let Some((key, conn)) = common.connections.conns.named_on(link.key, conn, generation) else {
        common.connections.counts.unknown_connection += 1;
        return Ok(());
    };
    let (to, is_closing) = (conn.on.peer(), conn.on.phase == Phase::Closing);
    if is_closing {
        if common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected) {
            // Our own CLOSE was not sent, since operations were under way. So the peer waits for an answer.
            link.send_control(Control::about(kind::CLOSE_ACK, to, NOBODY))?;
        }
        return closed(link, common, core, key);
    }
    lose_peer(link, common, core, key, DisconnectReason::Closed)?;
    link.send_control(Control::about(kind::CLOSE_ACK, to, NOBODY))
}

/// Ends a connection because the peer's process has used up its quota. A CLOSE informs the peer, behind everything that was sent
/// before.
#[cold]
pub(super) fn shut_out(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    key: Key,
) -> Result<(), Corrupt> {
    let link_key = link.key;
    let Some(conn) = common.connections.conns.open(key).filter(|conn| conn.on.link == link_key) else {
        return Ok(());
    };
    let to = conn.on.peer();
    lose_peer(link, common, core, key, DisconnectReason::Refused)?;
    common.connections.counts.operations_over_quota += 1;
    link.send_control(Control::about(kind::CLOSE, to, NOBODY))
}

/// Removes a connection from its link because its peer is gone or shut out, and ends what it has under way.
///
/// # Errors
/// The ring is corrupt. The connection stays on its link then, and ends with it.
fn lose_peer(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    key: Key,
    reason: DisconnectReason,
) -> Result<(), Corrupt> {
    link.complete_taken(&mut common.connections, core)?;
    link.end_sends(&mut common.connections, core, key.index, Status::Disconnected);
    common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected);
    common.connections.lose_peer(core, key, reason);
    link.conns = link.conns.saturating_sub(1);
    Ok(())
}

/// Handles a CLOSE_ACK: the peer has seen our CLOSE and everything before it.
pub(super) fn close_ack_came(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    conn: u32,
    generation: u8,
) -> Result<(), Corrupt> {
    match common.connections.conns.named_on(link.key, conn, generation) {
        Some((key, conn)) if conn.on.phase == Phase::Closing => closed(link, common, core, key),
        _ => Ok(()),
    }
}

/// Frees a connection that this side has closed and for which nothing more can come.
fn closed(link: &mut Link, common: &mut Common, core: &mut Core, key: Key) -> Result<(), Corrupt> {
    link.complete_taken(&mut common.connections, core)?;
    link.end_sends(&mut common.connections, core, key.index, Status::Disconnected);
    common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected);
    link.conns = link.conns.saturating_sub(1);
    common.connections.remove(core, key);
    Ok(())
}

/// Removes a connection whose CLOSE was not answered within the send timeout from its link, and ends what it has under way.
pub(super) fn give_up(link: &mut Link, common: &mut Common, core: &mut Core, key: Key) {
    let Common { connections, transfers, .. } = common;
    link.end_sends(connections, core, key.index, Status::TimedOut);
    if transfers.end_flow(link, connections, core, key, Status::TimedOut)
        && let Some(conn) = connections.conns.established(key)
    {
        // If the ring is corrupt, the next poll finds that as well.
        let _ = link.send_close(conn.on);
    }
    link.conns = link.conns.saturating_sub(1);
}
