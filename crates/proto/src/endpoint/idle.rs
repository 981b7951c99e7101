//! Whether the peers of idle connections live. An idle connection has no timer and no state of its own, so the table is gone through
//! by and by: some places at a time, each about every [`IDLE_LOOK_NS`].

use super::Endpoint;
use super::shared::Shared;
use crate::conn::{ActiveConn, Conn, want};
use crate::limits::{
    IDLE_ASK_NS_MAX, IDLE_ASK_NS_MIN, IDLE_ASKS_MIN, IDLE_LOOK_NS, IDLE_LOOKS_PER_SECOND_MAX,
};
use crate::{ConnState, DisconnectReason, Sink, Status, Time};

/// Places looked at in one go. As many connections may be woken to ask, which takes memory for a while.
const PLACES: u32 = 16;

/// The time that they get at least.
const PLACES_NS_MIN: u64 = PLACES as u64 * 1_000_000_000 / IDLE_LOOKS_PER_SECOND_MAX;

/// Where the walk over the table is.
pub(super) struct Walk {
    /// When it goes on; [`Time::FAR`]: there are no connections.
    pub due: Time,
    next_index: u32,
}

impl Walk {
    pub const fn new() -> Walk {
        Walk { due: Time::FAR, next_index: 0 }
    }
}

impl Endpoint {
    /// There is a connection, which is to be looked at some time.
    pub(super) fn start_walking(&mut self, now: Time) {
        if self.walk.due == Time::FAR {
            self.walk.due = self.next_look(now);
        }
    }

    /// A connection is gone, and may have been the last.
    pub(super) fn stop_walking_if_alone(&mut self) {
        if self.table.used() == 0 {
            self.walk.due = Time::FAR;
        }
    }

    /// Jittered, so that endpoints which began together do not go on together.
    fn next_look(&mut self, now: Time) -> Time {
        let goes = u64::from(self.table.indices().end.div_ceil(PLACES).max(1));
        let every_ns = (IDLE_LOOK_NS / goes).max(PLACES_NS_MIN);
        now.plus(every_ns - every_ns / 4 + self.secret.draw() % (every_ns / 2).max(1))
    }

    /// Looks at the next connections. After a time in which nobody called, no more than at other times.
    //= wire.md R-IDLE-1
    pub(super) fn walk_on(&mut self, now: Time) {
        if self.table.used() == 0 {
            self.walk.due = Time::FAR;
            return;
        }
        let end = self.table.indices().end;
        let first = if self.walk.next_index < end { self.walk.next_index } else { 0 };
        let behind = (first + PLACES).min(end);
        for index in first..behind {
            if let Some(conn) = self.table.at_mut(index) {
                self.shared.look_at_idle(conn, index, now);
            }
        }
        self.walk.next_index = behind;
        self.walk.due = self.next_look(now);
    }
}

impl Shared {
    /// Asks a peer of which nothing was heard since the last look. Where something is under way, its own time says when the peer is
    /// given up; where the program has keepalive on, the peer is asked anyway.
    fn look_at_idle(&mut self, conn: &mut Conn, index: u32, now: Time) {
        let asks = conn.active.as_deref().is_some_and(|active| active.asks != 0);
        if conn.base.state != ConnState::Up || asks || conn.base.idle_window.take_heard() {
            return;
        }
        let is_busy = conn.active.as_deref().is_some_and(|active| {
            active.keepalive_ns != 0 || !active.tx.is_empty() || active.operations() != 0
        });
        // Without memory to ask with, its turn comes again.
        if !is_busy && let Some(mut conn) = self.wake(conn, index, now) {
            self.ask_idle(&mut conn, now);
        }
    }

    fn ask_idle(&mut self, conn: &mut ActiveConn<'_>, now: Time) {
        let active = &mut *conn.active;
        let wait_ns =
            IDLE_ASK_NS_MIN.checked_shl(active.asks.into()).unwrap_or(u64::MAX).min(IDLE_ASK_NS_MAX);
        active.asks = active.asks.saturating_add(1).min(IDLE_ASKS_MIN);
        active.wants |= want::PING;
        active.keepalive_due = now.plus(wait_ns);
        self.counters.idle_asks += 1;
        self.enqueue(active);
        self.arm(active);
    }

    /// A question has waited for its answer. Only those that were asked count, so that nobody is given up because this side's
    /// program was away.
    //= wire.md R-IDLE-2
    pub fn on_ask_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        let timeout_ns = self.send_timeout_ns(conn.base.send_timeout_ms);
        let (lives, is_up) = (conn.base.idle_window.is_heard(), conn.base.state == ConnState::Up);
        let active = &mut *conn.active;
        active.keepalive_due = Time::FAR;
        if lives || !is_up {
            active.asks = 0;
        } else if active.asks >= IDLE_ASKS_MIN && now.since(active.heard_at) >= timeout_ns {
            active.asks = 0;
            self.counters.connections_broken += 1;
            self.lose(conn, (Status::TimedOut, DisconnectReason::TimedOut), now, sink);
        } else {
            self.ask_idle(conn, now);
        }
    }
}
