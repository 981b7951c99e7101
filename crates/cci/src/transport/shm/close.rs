//! How connections and links end.
//!
//! CLOSE goes through the ring behind everything sent before. The peer stops sending on the connection, answers
//! CLOSE_ACK, and knows that it is gone; with that answer our place for it is free, as no record of the peer's can
//! name it any more. Two CLOSEs that cross need no answers. A link with no connection left is given up by whoever
//! sees it first; the other side drains what is in the ring and follows.

use super::Shm;
use super::common::Common;
use super::connections::{State, complete};
use super::link::{Life, Link};
use super::out::Control;
use super::transfers;
use super::wire::NOBODY;
use super::wire::kind;
use crate::ConnectFailure;
use crate::connection::{Connection, DisconnectReason, Status};
use crate::engine::core::Core;
use crate::transport::token;
use cci_memory::ring::Corrupt;
use cci_memory::slab::Key;
use std::os::fd::AsFd;

/// The peer disconnected.
pub(super) fn close_came(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    conn: u32,
    generation: u8,
) -> Result<(), Corrupt> {
    let here = link.key;
    let Some((key, conn)) = common.connections.named(conn, generation).filter(|(_, conn)| conn.at == here)
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

/// Ends a connection whose peer asks for more than there is for its process. The peer hears of it behind what was sent before.
#[cold]
pub(super) fn shut_out(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    key: Key,
) -> Result<(), Corrupt> {
    link.complete_taken(&mut common.connections, core)?;
    let here = link.key;
    let Some(conn) =
        common.connections.conns.get_mut(key).filter(|conn| conn.at == here && conn.state == State::Open)
    else {
        return Ok(());
    };
    let said = link.send_close(conn);
    let connection = conn.connection;
    (conn.state, conn.at) = (State::Gone, token::NOWHERE);
    common.connections.counts.operations_over_quota += 1;
    link.end_sends(&mut common.connections, core, key.index, Status::Disconnected);
    common.transfers.end_flow(link, &mut common.connections, core, key, Status::Disconnected);
    core.ended(connection, DisconnectReason::Refused);
    link.conns = link.conns.saturating_sub(1);
    said
}

/// The peer has seen our CLOSE, and all that was before it.
pub(super) fn close_ack_came(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    conn: u32,
    generation: u8,
) -> Result<(), Corrupt> {
    let here = link.key;
    match common.connections.named(conn, generation) {
        Some((key, conn)) if conn.at == here && conn.state == State::Closing => {
            closed(link, common, core, key)
        }
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

impl Shm {
    pub(super) fn disconnect_conn(&mut self, core: &mut Core, connection: Connection, key: Key) {
        let Some(conn) = self.common.connections.conns.get_mut(key) else {
            core.closed(connection);
            return;
        };
        match conn.state {
            State::Closing => {}
            State::Gone => {
                self.common.connections.conns.remove(key);
                core.closed(connection);
            }
            State::Making => {
                let hand = conn.at;
                self.end_hand(core, hand, ConnectFailure::Disconnected);
                // `failed` has taken it out of the engine's table without an event, as it is closing there.
                core.closed(connection);
            }
            State::Open | State::Broken => {
                conn.state = State::Closing;
                let (at, flow_key) = (conn.at, conn.flow);
                // The last look at the clock may be long ago.
                self.common.connections.now_ns = cci_sys::clock::now_ns();
                let until_ns = self.common.connections.now_ns.saturating_add(conn.send_timeout_ns());
                self.common.connections.closes_by(key, until_ns);
                if self.common.transfers.delays_close(flow_key) {
                    return;
                }
                let Some(conn) = self.common.connections.conns.get(key) else { return };
                let Some(link) = self.links.get_mut(at) else { return };
                let said = link.send_close(conn);
                link.out.flush();
                self.care_for(at);
                if said.is_err() {
                    self.kill(core, at);
                }
            }
        }
    }

    /// Disconnected, and no answer until the send timeout: what was sent may or may not have arrived.
    pub(super) fn give_up_closing(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.common.connections.conns.get(key) else { return };
        let (connection, at) = (conn.connection, conn.at);
        if let Some(link) = self.links.get_mut(at) {
            link.end_sends(&mut self.common.connections, core, key.index, Status::TimedOut);
            if self.common.transfers.end_flow(link, &mut self.common.connections, core, key, Status::TimedOut)
                && let Some(conn) = self.common.connections.conns.get(key)
            {
                // What it finds wrong with the ring, the next poll finds too.
                let _ = link.send_close(conn);
            }
            link.conns = link.conns.saturating_sub(1);
        }
        self.common.connections.conns.remove(key);
        core.closed(connection);
        self.drop_if_unused(core, at);
    }

    /// The peer's end of the lifeline is closed: it has let go of the link, or died. What it had written by now is
    /// still to be delivered.
    pub(super) fn peer_hung_up(&mut self, core: &mut Core, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        if link.life != Life::Up {
            return;
        }
        // A whole ring at most: one that lives on and goes on writing can't keep us here.
        link.life = Life::Draining { until: link.consumer.head() + u64::from(link.ring_bytes) };
        core.poller.unwatch(link.lifeline.as_fd());
        self.care_for(key);
        self.poll_link(core, key);
    }

    /// The link is of no use any more: the peer wrote nonsense into it.
    pub(super) fn kill(&mut self, core: &mut Core, key: Key) {
        self.common.connections.counts.link_corrupt += 1;
        self.end_link(core, key, DisconnectReason::Refused);
    }

    /// Ends a link and everything that rides on it.
    pub(super) fn end_link(&mut self, core: &mut Core, key: Key, reason: DisconnectReason) {
        let Some(link) = self.links.get_mut(key) else { return };
        link.life = Life::Dead;
        // What the peer took before it died has arrived. If its last word is nonsense, that is no longer known.
        let _ = link.complete_taken(&mut self.common.connections, core);
        let conns = &mut self.common.connections.conns;
        self.common.connections.sends.retain(
            &mut link.out.fifo,
            |_| true,
            |send| complete(conns, core, send.conn, send.op(), Status::Disconnected),
        );
        self.common.transfers.end_flows(link, &mut self.common.connections, core);
        let has_conns = link.conns > 0;
        self.common.transfers.target.link_ended(&self.links, key);
        if has_conns {
            self.common.connections.counts.links_died += 1;
            self.end_conns_of(core, key, reason);
        }
        self.remove_link(core, key);
    }

    fn end_conns_of(&mut self, core: &mut Core, link: Key, reason: DisconnectReason) {
        let mut over = Vec::new();
        for (key, conn) in self.common.connections.conns.iter_mut() {
            if conn.at != link {
                continue;
            }
            match conn.state {
                State::Open | State::Broken => {
                    conn.state = State::Gone;
                    conn.at = token::NOWHERE;
                    core.ended(conn.connection, reason);
                }
                State::Closing => over.push(key),
                State::Making | State::Gone => {}
            }
        }
        for key in over {
            if let Some(conn) = self.common.connections.conns.remove(key) {
                core.closed(conn.connection);
            }
        }
        self.fail_joining(core, link);
    }

    /// Lets go of a link that nothing rides on any more.
    pub(super) fn drop_if_unused(&mut self, core: &mut Core, key: Key) {
        let unused = self.links.get(key).is_some_and(|link| link.conns == 0 && link.out.control.is_empty());
        if unused {
            self.end_link(core, key, DisconnectReason::Closed);
        }
    }

    fn remove_link(&mut self, core: &mut Core, key: Key) {
        let Some(mut link) = self.links.remove(key) else { return };
        // The peer may sleep until we answer; the lifeline tells it, but only if it watches that.
        link.out.flush();
        self.common.connections.counts.wakes_sent += link.out.wakes;
        transfers::report::keep_counts(&mut self.common.transfers, &link);
        core.poller.unwatch(link.bell.as_fd());
        core.poller.unwatch(link.lifeline.as_fd());
        self.ring_memory_bytes = self.ring_memory_bytes.saturating_sub(super::ring_charge(link.ring_bytes));
        self.links_by_id.remove(&(link.id, link.side));
        if self.links_by_peer.get(&link.peer) == Some(&key) {
            self.links_by_peer.remove(&link.peer);
        }
        self.hot.retain(|hot| *hot != key);
        self.busy.retain(|busy| *busy != key);
    }
}
