//! What a peer has begun here and must end itself: nothing of it is kept for ever.

use super::shared::Shared;
use crate::conn::unended::Unended;
use crate::conn::{Active, ActiveConn, Base};
use crate::limits::{PROGRESS_BYTES_PER_SECOND_MIN, UNENDED_NS_MIN};
use crate::{ConnState, DisconnectReason, Sink, Status, Time};

impl Shared {
    fn unended_ns(&self, base: &Base) -> u64 {
        self.send_timeout_ns(base.send_timeout_ms).max(UNENDED_NS_MIN)
    }

    /// The peer has begun something: it is looked at in a while.
    #[inline]
    pub fn watch(&mut self, conn: &mut ActiveConn<'_>, now: Time) {
        if conn.active.unended.due == Time::FAR {
            conn.active.unended.due = now.plus(self.unended_ns(conn.base));
        }
    }

    /// Breaks the connection if something is still as it was at the last look. So whatever a peer must end has the longer of
    /// the send timeout and 30 s, and twice that at most.
    //= wire.md R-DUE-4
    pub fn on_unended_due(&mut self, conn: &mut ActiveConn<'_>, now: Time, sink: &mut impl Sink) {
        let look_ns = self.unended_ns(conn.base);
        let (state, rx_epoch) = (conn.base.state, conn.base.rx_epoch);
        let active = &mut *conn.active;
        let before = std::mem::replace(&mut active.unended, Unended::NONE);
        if !matches!(state, ConnState::Up | ConnState::PeerClosed) {
            return; // ends by itself
        }
        // While we refuse what is missing, it can't come.
        let missing = active.rx.end != active.rx.next && !active.refusing;
        let missing = missing.then_some((active.rx.next, rx_epoch));
        // While our program takes nothing, the peer can't go on either.
        let closing = state == ConnState::PeerClosed;
        let closes = closing && !active.refusing && !active.holding;
        let dead = active.rnr && now.since(active.heard_at) >= look_ns;
        let write = active.unended_write(look_ns);
        let late = (missing.is_some() && missing == before.missing) || (closes && before.closing);
        if late || dead || write == Write::Late {
            self.counters.connections_broken += 1;
            let status = if closing { Status::Disconnected } else { Status::TimedOut };
            let reason = if dead { DisconnectReason::TimedOut } else { DisconnectReason::Refused };
            return self.lose(conn, (status, reason), now, sink);
        }
        let due = if closing || active.rnr || active.owes() { now.plus(look_ns) } else { Time::FAR };
        active.unended = Unended { due, missing, closing: closes };
    }
}

/// Writes of the peer's of which something was refused and whose end has not come.
#[derive(PartialEq)]
enum Write {
    None,
    Begun,
    Late,
}

impl Active {
    /// Whether the peer must still send a bundle before others that have come, or the end of a write.
    #[inline]
    pub fn owes(&self) -> bool {
        self.rx.end != self.rx.next || self.rma.as_deref().is_some_and(|rma| rma.failed != 0)
    }

    fn unended_write(&mut self, look_ns: u64) -> Write {
        let Some(rma) = self.rma.as_deref_mut().filter(|rma| rma.failed != 0) else { return Write::None };
        let bytes = std::mem::take(&mut rma.failed_bytes);
        // A long write goes on although its beginning was refused, because its sender can't know.
        let slow = bytes < (look_ns / 1_000_000).saturating_mul(PROGRESS_BYTES_PER_SECOND_MIN) / 1_000;
        if rma.failed_before != 0 && slow {
            return Write::Late;
        }
        rma.failed_before = rma.failed;
        Write::Begun
    }
}
