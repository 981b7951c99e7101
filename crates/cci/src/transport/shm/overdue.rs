//! Sends whose deadline has passed, and connections whose peers are silent.

use super::common::Common;
use super::connections::{Base, Connections, EstablishedConn, Phase, complete, from_us};
use super::link::Link;
use super::out::Out;
use super::pending::{Send, Sends};
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::Core;
use cci_memory::ring::Corrupt;

/// How much later a link is checked again whose peer reads slowly. Its sends have their send timeout once more.
const GRACE_NS: u64 = 10_000_000;

/// How much more time a peer gets for a send that is overdue.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Patience {
    /// None, since it does not read.
    Over,
    /// The send timeout once more, from the deadline on.
    OnceMore,
}

/// Gives each send of a link that has no deadline yet its deadline.
pub(super) fn stamp(link: &mut Link, connections: &mut Connections) {
    let Connections { conns, sends, now_ns, .. } = connections;
    let earliest_ns =
        sends.stamp(&mut link.out.fifo, |conn| now_ns.saturating_add(conns.send_timeout_ns(conn)));
    link.out.deadline_ns = link.out.deadline_ns.min(earliest_ns);
}

/// Ends the overdue sends of a link.
///
/// If the peer has announced that it has no receive buffer, the message is taken back: it ends in RNR, was not delivered, and the
/// connection goes on. If the peer reads nothing at all, it ends in `TimedOut`: whether the message will be delivered is not
/// known, and the connection is broken. A peer that reads, but has not reached the message, gets the send timeout once more,
/// whatever it does.
///
/// # Errors
/// The peer's position is impossible, and the link must be given up.
pub(super) fn end_sends(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<(), Corrupt> {
    let now_ns = common.connections.now_ns;
    if now_ns < link.out.deadline_ns {
        return Ok(());
    }
    let advanced = link.complete_taken(&mut common.connections, core)?;
    let patience = if take_back(link, &mut common.connections, core)? {
        // What the peer has taken since then has arrived. If an overdue message was not taken and can't be taken back, it is at a
        // place where an honest peer can't be.
        link.complete_taken(&mut common.connections, core)?;
        Patience::Over
    } else if advanced || link.out.producer.is_stalled() {
        Patience::OnceMore
    } else {
        Patience::Over
    };
    break_connections(link, common, core, patience);
    let earliest_ns = common.connections.sends.earliest_ns(&link.out.fifo);
    let again_ns = now_ns.saturating_add(GRACE_NS);
    link.out.deadline_ns = if earliest_ns <= now_ns { again_ns } else { earliest_ns };
    Ok(())
}

/// Takes overdue messages back from a peer that is stalled. Returns false if it is not stalled.
fn take_back(link: &mut Link, connections: &mut Connections, core: &mut Core) -> Result<bool, Corrupt> {
    let Out { producer, fifo, consumed, lending, .. } = &mut link.out;
    let Some(mut guard) = producer.try_cancel()? else { return Ok(false) };
    let (now_ns, rnr, conns) = (connections.now_ns, &mut link.rnr, &mut connections.conns);
    // The peer may have taken some messages before it stalled, after its position was last read. They complete before those
    // behind them.
    *consumed = guard.consumed().max(*consumed);
    while let Some(ended) = connections.sends.pop_consumed(fifo, *consumed) {
        complete(conns, core, &ended, Status::Success);
        lending.ended(core, &ended, Status::Success);
    }
    connections.sends.end_some(
        fifo,
        |send| if send.is_due(now_ns) { send.take_back(&mut guard) } else { 0 },
        |ended| {
            *rnr += u64::from(ended.messages);
            complete(conns, core, &ended, Status::ReceiverNotReady);
            lending.ended(core, &ended, Status::ReceiverNotReady);
        },
    );
    Ok(true)
}

/// Breaks connections with overdue sends, since the peer does not read, or reads too slowly.
fn break_connections(link: &mut Link, common: &mut Common, core: &mut Core, patience: Patience) {
    let Common { connections, transfers, .. } = common;
    let Connections { conns, sends, now_ns, .. } = &mut *connections;
    let more_ns = |conn| match patience {
        Patience::Over => 0,
        Patience::OnceMore => conns.send_timeout_ns(conn),
    };
    let mut broken = Vec::new();
    let find = |send: &mut Send| {
        let is_due = send.is_due(now_ns.saturating_sub(more_ns(send.conn)));
        if is_due && !broken.contains(&send.conn) {
            broken.push(send.conn);
        }
        0
    };
    sends.end_some(&mut link.out.fifo, find, |_| {});
    for index in broken {
        link.end_sends(connections, core, index, Status::TimedOut);
        let Some((key, conn)) = connections.conns.at(index) else { continue };
        let Some(EstablishedConn { base, on }) = conn.established() else { continue };
        if on.phase == Phase::Open {
            on.phase = Phase::Broken;
            let connection = base.connection;
            transfers.end_flow(link, connections, core, key, Status::TimedOut);
            core.ended(connection, DisconnectReason::TimedOut);
        }
    }
}

/// Lowers the deadlines of a connection's sends to `limit_ns`.
pub(super) fn bring_forward(link: &mut Link, sends: &mut Sends, conn: u32, limit_ns: u64) {
    let bring = |send: &mut Send| {
        if send.conn == conn && send.deadline_ns() > limit_ns {
            send.set_deadline_ns(limit_ns);
        }
        0
    };
    sends.end_some(&mut link.out.fifo, bring, |_| {});
    link.out.deadline_ns = link.out.deadline_ns.min(limit_ns);
}

/// Asks a silent peer for a sign of life, or reports to the program that it has given none. Returns when the connection is
/// checked again. `None` switches keepalive off, as that report does.
pub(super) fn keep_alive(
    base: &mut Base,
    link: Option<&mut Link>,
    core: &mut Core,
    now_ns: u64,
) -> Option<u64> {
    if base.keepalive_us == 0 {
        return None;
    }
    let limit_ns = from_us(base.keepalive_us);
    // A connection without a link has lost its peer, and so counts as silent for ever.
    let silent_ns = link.as_ref().map_or(u64::MAX, |link| now_ns.saturating_sub(link.heard_ns));
    // A peer is silent only if it was asked and did not answer. While the program does not poll, nobody is asked. While this side
    // has no receive buffer, no answer gets through.
    let was_asked = link.as_ref().is_none_or(|link| {
        link.pinged_ns > link.heard_ns
            && now_ns.saturating_sub(link.pinged_ns) >= limit_ns / 4
            && !link.consumer.is_stalled()
    });
    if silent_ns >= limit_ns && was_asked {
        base.keepalive_us = 0;
        core.keepalive_timed_out(base.connection);
        return None;
    }
    if let Some(link) = link
        && silent_ns >= limit_ns / 2
        && now_ns.saturating_sub(link.pinged_ns) >= limit_ns / 2
    {
        link.pinged_ns = now_ns;
        // If the ring is corrupt, the next poll finds that as well.
        let _ = link.send_ping();
        link.out.flush();
    }
    Some(now_ns.saturating_add(limit_ns / 4))
}
