//! Keepalive: which connections ask silent peers for a sign of life, and when.

use super::connections::{Conn, State, from_us};
use super::link::Link;
use crate::engine::core::Core;
use cci_memory::slab::{Key, Slab};

/// The connections with keepalive on.
pub(super) struct Keepalive {
    conns: Vec<Key>,
    /// When the next of them is to be looked at.
    next_ns: u64,
}

impl Keepalive {
    pub const fn new() -> Keepalive {
        Keepalive { conns: Vec::new(), next_ns: 0 }
    }

    /// Turns keepalive on or off for a connection.
    pub fn set(&mut self, key: Key, is_on: bool) {
        self.conns.retain(|on| *on != key);
        if is_on {
            self.conns.push(key);
            self.next_ns = 0;
        }
    }

    /// When a connection is to be looked at; `u64::MAX`: never.
    pub fn deadline_ns(&self) -> u64 {
        if self.conns.is_empty() { u64::MAX } else { self.next_ns }
    }

    /// Asks silent peers for a sign of life, and reports those that give none to the program. Once: keepalive is off for
    /// their connections then.
    pub fn ask(&mut self, conns: &mut Slab<Conn>, links: &mut Slab<Box<Link>>, core: &mut Core, now_ns: u64) {
        if now_ns < self.deadline_ns() {
            return;
        }
        let mut next_ns = u64::MAX;
        self.conns.retain(|&key| {
            let Some(conn) = conns.get_mut(key) else { return false };
            if conn.keepalive_us == 0 || conn.state == State::Closing {
                return false;
            }
            let limit_ns = from_us(conn.keepalive_us);
            let has_link = matches!(conn.state, State::Open | State::Broken);
            let link = links.get_mut(conn.at).filter(|_| has_link);
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
                // If the ring is corrupt, the next poll finds that, too.
                let _ = link.send_ping();
                link.out.flush();
            }
            next_ns = next_ns.min(now_ns.saturating_add(limit_ns / 4));
            true
        });
        self.next_ns = next_ns;
    }
}
