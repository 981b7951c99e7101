//! Deadlines: of sends, of handshakes, of connections that close, of silent peers.

use super::common::Common;
use super::connections::{State, complete, from_us, to_us};
use super::hand::{Hand, Stage};
use super::link::Link;
use super::{Shm, wire};
use crate::ConnectFailure;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::Core;
use cci_memory::ring::Corrupt;
use cci_memory::slab::Key;

/// A peer that goes on reading, slowly, is looked at so much later again: a send has its send timeout once more.
const GRACE_NS: u64 = 10_000_000;

/// What a peer gets whose time for a send is up.
#[derive(Copy, Clone)]
enum Patience {
    /// Nothing: it does not read.
    Over,
    /// The send timeout once more, from the deadline on.
    OnceMore,
}

impl Shm {
    /// Gives the sends of a link that have no deadline theirs.
    pub(super) fn stamp(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        let (now_ns, conns) = (self.common.connections.now_ns, &self.common.connections.conns);
        let earliest_ns = self.common.connections.sends.stamp(&mut link.out.fifo, |conn| {
            let timeout_ns =
                conns.key_at(conn).and_then(|key| conns.get(key)).map_or(0, |conn| conn.send_timeout_ns());
            now_ns.saturating_add(timeout_ns)
        });
        link.out.deadline_ns = link.out.deadline_ns.min(earliest_ns);
    }

    /// Ends sends of a link that are overdue.
    ///
    /// A peer that has said that it has no receive buffer gets the message taken back: it ends in RNR, was not
    /// delivered, and the connection lives on. A peer that reads nothing at all: `TimedOut`, whether the message will
    /// be delivered is not known, and the connection is broken. A peer that reads, but has not come so far: the send timeout
    /// once more, whatever it reads or says.
    pub(super) fn time_out_sends(&mut self, core: &mut Core, key: Key) {
        let now_ns = self.common.connections.now_ns;
        let Some(link) = self.links.get_mut(key) else { return };
        if now_ns < link.out.deadline_ns {
            return;
        }
        let Ok(advanced) = link.complete_taken(&mut self.common.connections, core) else {
            return self.kill(core, key);
        };
        let cancelled = take_back_overdue(link, &mut self.common, core);
        match cancelled {
            Err(_) => return self.kill(core, key),
            Ok(true) => {
                // What it had taken meanwhile has arrived. What is neither taken nor to be had back lies where an
                // honest peer can't stand.
                if link.complete_taken(&mut self.common.connections, core).is_err() {
                    return self.kill(core, key);
                }
                self.break_overdue(core, key, Patience::Over);
            }
            Ok(false) if advanced || link.out.producer.is_stalled() => {
                self.break_overdue(core, key, Patience::OnceMore);
            }
            Ok(false) => self.break_overdue(core, key, Patience::Over),
        }
        if let Some(link) = self.links.get_mut(key) {
            let earliest_ns = self.common.connections.sends.earliest_ns(&link.out.fifo);
            let again_ns = now_ns.saturating_add(GRACE_NS);
            link.out.deadline_ns = if earliest_ns <= now_ns { again_ns } else { earliest_ns };
        }
    }

    /// The peer does not read, or too slowly: connections with overdue sends are broken.
    fn break_overdue(&mut self, core: &mut Core, key: Key, patience: Patience) {
        let now_ns = self.common.connections.now_ns;
        let Some(link) = self.links.get_mut(key) else { return };
        let (conns, sends) = (&mut self.common.connections.conns, &mut self.common.connections.sends);
        let more_ns = |conn| match patience {
            Patience::Over => 0,
            Patience::OnceMore => {
                conns.key_at(conn).and_then(|key| conns.get(key)).map_or(0, |conn| conn.send_timeout_ns())
            }
        };
        let mut broken = Vec::new();
        let is_over = |send: &mut super::pending::Send| {
            let is_due = send.is_due(now_ns.saturating_sub(more_ns(send.conn)));
            if is_due && !broken.contains(&send.conn) {
                broken.push(send.conn);
            }
            false
        };
        sends.retain(&mut link.out.fifo, is_over, |_| {});
        for index in broken {
            link.end_sends(&mut self.common.connections, core, index, Status::TimedOut);
            let Some(key) = self.common.connections.conns.key_at(index) else { continue };
            if self.common.connections.conns.get(key).is_some_and(|conn| conn.state == State::Open) {
                self.common.transfers.end_flow(
                    link,
                    &mut self.common.connections,
                    core,
                    key,
                    Status::TimedOut,
                );
            }
            let Some(conn) = self.common.connections.conns.get_mut(key) else { continue };
            if conn.state == State::Open {
                conn.state = State::Broken;
                core.ended(conn.connection, DisconnectReason::TimedOut);
            }
        }
    }

    /// Everything that is not a send.
    pub(super) fn time_out(&mut self, core: &mut Core) {
        let now_ns = self.common.connections.now_ns;
        if self.listen_again_ns.is_some_and(|at_ns| now_ns >= at_ns) {
            self.listen_again(core);
        }
        if !self.common.hands.is_empty() && now_ns >= self.hands_looked_ns + super::RETRY_NS {
            self.hands_looked_ns = now_ns;
            self.time_out_hands(core);
        }
        if self.common.connections.closing.iter().any(|(_, until_ns)| now_ns >= *until_ns) {
            let mut over = Vec::new();
            self.common.connections.closing.retain(|&(key, until_ns)| {
                if now_ns >= until_ns {
                    over.push(key);
                }
                now_ns < until_ns
            });
            for key in over {
                self.give_up_closing(core, key);
            }
        }
        if !self.common.connections.keepalive.is_empty()
            && now_ns >= self.common.connections.next_keepalive_ns
        {
            self.keep_alive(core);
        }
    }

    fn time_out_hands(&mut self, core: &mut Core) {
        let now_ns = self.common.connections.now_ns;
        let (mut over, mut again) = (Vec::new(), Vec::new());
        for (key, hand) in self.common.hands.iter() {
            if now_ns >= hand.deadline_ns {
                over.push(key);
            } else if matches!(&hand.stage, Stage::Knocking { knock, .. } if now_ns >= knock.again_ns) {
                again.push(key);
            }
        }
        for key in over {
            // The answer may have come in this very moment.
            self.hand_ready(core, key);
            if self.common.hands.get(key).is_some_and(|hand| now_ns >= hand.deadline_ns) {
                self.common.connections.counts.handshake_timed_out += 1;
                self.end_hand(core, key, ConnectFailure::TimedOut);
            }
        }
        for key in again {
            if self.knock(core, key).is_err() {
                self.common.connections.counts.system_errors += 1;
                self.end_hand(core, key, ConnectFailure::NoMemory);
            }
        }
    }

    /// Asks silent peers for a sign of life; tells the program of those that give none. Once: it is off then.
    fn keep_alive(&mut self, core: &mut Core) {
        let now_ns = self.common.connections.now_ns;
        let mut next_ns = u64::MAX;
        let mut keys = std::mem::take(&mut self.common.connections.keepalive);
        keys.retain(|&key| {
            let Some(conn) = self.common.connections.conns.get_mut(key) else { return false };
            if conn.keepalive_us == 0 || conn.state == State::Closing {
                return false;
            }
            let limit_ns = from_us(conn.keepalive_us);
            let link =
                self.links.get_mut(conn.at).filter(|_| matches!(conn.state, State::Open | State::Broken));
            // A connection without a link has lost its peer: that is silence enough.
            let silent_ns = link.as_ref().map_or(u64::MAX, |link| now_ns.saturating_sub(link.heard_ns));
            // Silent is who was asked and did not answer. When the program has not polled for a while, nobody was
            // asked; while we have no receive buffer, no answer gets through.
            let was_asked = link.as_ref().is_none_or(|link| {
                link.pinged_ns > link.heard_ns
                    && now_ns.saturating_sub(link.pinged_ns) >= limit_ns / 4
                    && !link.consumer.is_stalled()
            });
            if silent_ns >= limit_ns && was_asked {
                conn.keepalive_us = 0;
                core.keepalive_timed_out(conn.connection);
                return false;
            }
            if let Some(link) = link
                && silent_ns >= limit_ns / 2
                && now_ns.saturating_sub(link.pinged_ns) >= limit_ns / 2
            {
                link.pinged_ns = now_ns;
                // What it finds wrong with the ring, the next poll finds too.
                let _ = link.send_ping();
                link.out.flush();
            }
            next_ns = next_ns.min(now_ns.saturating_add(limit_ns / 4));
            true
        });
        self.common.connections.keepalive = keys;
        self.common.connections.next_keepalive_ns = next_ns;
    }

    /// When something is due at the latest. `stall_poll_ns`: how soon to look again for receive buffers.
    pub(super) fn next_deadline_ns(&self, stall_poll_ns: u64) -> Option<u64> {
        let now_ns = self.common.connections.now_ns;
        let mut next_ns = self.listen_again_ns.unwrap_or(u64::MAX);
        for key in &self.busy {
            let Some(link) = self.links.get(*key) else { continue };
            next_ns = next_ns.min(link.out.deadline_ns).min(link.transfers.deadline_ns);
            if link.consumer.is_stalled() {
                next_ns = next_ns.min(now_ns + stall_poll_ns);
            }
        }
        if !self.common.hands.is_empty() {
            for (_, Hand { deadline_ns, stage, .. }) in self.common.hands.iter() {
                next_ns = next_ns.min(*deadline_ns);
                if let Stage::Knocking { knock, .. } = stage {
                    next_ns = next_ns.min(knock.again_ns);
                }
            }
        }
        for (_, until_ns) in &self.common.connections.closing {
            next_ns = next_ns.min(*until_ns);
        }
        if !self.common.connections.keepalive.is_empty() {
            next_ns = next_ns.min(self.common.connections.next_keepalive_ns);
        }
        (next_ns != u64::MAX).then_some(next_ns)
    }

    pub(super) fn change_send_timeout(&mut self, key: Key, timeout_ns: u64) {
        let Some(conn) = self.common.connections.conns.get_mut(key) else { return };
        conn.send_timeout_us = to_us(timeout_ns);
        if conn.in_progress == 0 {
            return;
        }
        // Sends under way must not outlive later ones: completions of a connection stay in order.
        let limit_ns = cci_sys::clock::now_ns().saturating_add(timeout_ns);
        let Some(link) = self.links.get_mut(conn.at) else { return };
        self.common.connections.sends.retain(
            &mut link.out.fifo,
            |send| {
                if send.conn == key.index && send.deadline_ns() > limit_ns {
                    send.set_deadline_ns(limit_ns);
                }
                false
            },
            |_| {},
        );
        link.out.deadline_ns = link.out.deadline_ns.min(limit_ns);
    }

    pub(super) fn change_keepalive(&mut self, key: Key, timeout_ns: u64) {
        let Some(conn) = self.common.connections.conns.get_mut(key) else { return };
        conn.keepalive_us = if timeout_ns == 0 { 0 } else { to_us(timeout_ns) };
        self.common.connections.now_ns = cci_sys::clock::now_ns();
        if let Some(link) = self.links.get_mut(conn.at) {
            // Silence counts from now on.
            link.heard_ns = self.common.connections.now_ns;
        }
        self.common.connections.keepalive.retain(|kept| *kept != key);
        if timeout_ns != 0 {
            self.common.connections.keepalive.push(key);
            self.common.connections.next_keepalive_ns = 0;
        }
    }
}

/// If the peer is stalled, takes back what is overdue. False: it is not stalled.
fn take_back_overdue(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<bool, Corrupt> {
    let Some(mut guard) = link.out.producer.try_cancel()? else { return Ok(false) };
    let (now_ns, rnr, conns) = (common.connections.now_ns, &mut link.rnr, &mut common.connections.conns);
    common.connections.sends.retain(
        &mut link.out.fifo,
        |send| send.is_due(now_ns) && send.span().is_some_and(|span| guard.void(span)),
        |send| {
            *rnr += 1;
            complete(conns, core, send.conn, send.op(), Status::ReceiverNotReady);
        },
    );
    Ok(true)
}

const _: () = assert!(wire::VERSION > 0, "0 stands for an unknown version");
