//! Whether the peers of idle connections live. An idle connection has no timer and no state of its own, so the table is walked
//! through slowly: some entries at a time, each about every [`IDLE_LOOK_NS`].

use super::protocol::Protocol;
use crate::Time;
use crate::conn::table::Table;
use crate::limits::{IDLE_LOOK_NS, IDLE_LOOKS_PER_SECOND_MAX};
use crate::secret::Secret;

/// Places looked at in one go. As many connections may be woken to ask, which takes memory for a while.
const SLOTS: u32 = 16;

/// The time that they get at least.
const SLOT_NS_MIN: u64 = SLOTS as u64 * 1_000_000_000 / IDLE_LOOKS_PER_SECOND_MAX;

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

    /// There is a connection, which is to be looked at some time.
    pub fn start(&mut self, table: &Table, secret: &mut Secret, now: Time) {
        if self.due == Time::FAR {
            self.due = next_look(table, secret, now);
        }
    }

    /// A connection is gone, and may have been the last.
    pub fn stop_if_alone(&mut self, table: &Table) {
        if table.used() == 0 {
            self.due = Time::FAR;
        }
    }

    /// Looks at the next connections. After a time in which nobody called, no more than at other times.
    //= wire.md R-IDLE-1
    pub fn go_on(&mut self, table: &mut Table, protocol: &mut Protocol, secret: &mut Secret, now: Time) {
        if table.used() == 0 {
            self.due = Time::FAR;
            return;
        }
        let end = table.indices().end;
        let first = if self.next_index < end { self.next_index } else { 0 };
        let behind = (first + SLOTS).min(end);
        for index in first..behind {
            if let Some(conn) = table.at_mut(index) {
                protocol.look_at_idle(conn, index, now);
            }
        }
        self.next_index = behind;
        self.due = next_look(table, secret, now);
    }
}

/// When the walk goes on: jittered, so that endpoints which began together do not go on together.
fn next_look(table: &Table, secret: &mut Secret, now: Time) -> Time {
    let goes = u64::from(table.indices().end.div_ceil(SLOTS).max(1));
    let every_ns = (IDLE_LOOK_NS / goes).max(SLOT_NS_MIN);
    now.plus(every_ns - every_ns / 4 + secret.draw() % (every_ns / 2).max(1))
}
