//! How connections and links end.
//!
//! CLOSE goes through the ring behind everything sent before. The peer stops sending on the connection, answers
//! CLOSE_ACK, and knows that it is gone; with that answer our entry for it is free, as no record of the peer's can
//! name it any more. Two CLOSEs that cross need no answers. A link with no connection left is given up by whoever
//! sees it first; the other side drains what is in the ring and follows.

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
            // Our own CLOSE has not been sent, since operations were under way: so the peer waits for an answer.
            link.send_control(Control::about(kind::CLOSE_ACK, to, NOBODY))?;
        }
        return closed(link, common, core, key);
    }
    lose_peer(link, common, core, key, DisconnectReason::Closed)?;
    link.send_control(Control::about(kind::CLOSE_ACK, to, NOBODY))
}

/// Ends a connection because the peer's process has used up its quota. The peer is told by a CLOSE, behind all that was sent
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

/// Takes a connection off its link because its peer is gone, or is shut out, and ends what it has under way.
///
/// # Errors
/// The ring is corrupt. The connection still rides on its link then, and ends with that.
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

/// Frees a connection that we have closed, and for which nothing more can come.
fn closed(link: &mut Link, common: &mut Common, core: &mut Core, key: Key) -> Result<(), Corrupt> {
    link.complete_taken(&mut common.connections, core)?;
    link.end_sends(&mut common.connections, core, key.index, Status::Disconnected);
    common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected);
    link.conns = link.conns.saturating_sub(1);
    common.connections.remove(core, key);
    Ok(())
}

/// Takes a connection off its link whose CLOSE was not answered within the send timeout, and ends what it has under way.
pub(super) fn give_up(link: &mut Link, common: &mut Common, core: &mut Core, key: Key) {
    let Common { connections, transfers, .. } = common;
    link.end_sends(connections, core, key.index, Status::TimedOut);
    if transfers.end_flow(link, connections, core, key, Status::TimedOut)
        && let Some(conn) = connections.conns.established(key)
    {
        // If the ring is corrupt, the next poll finds that, too.
        let _ = link.send_close(conn.on);
    }
    link.conns = link.conns.saturating_sub(1);
}
