//! How connections end.

use super::Tcp;
use super::conn::State;
use super::counts::Fault;
use super::wire::Kind;
use crate::ConnectFailure;
use crate::engine::core::Core;
use crate::event::{DisconnectReason, Status};
use cci_memory::slab::Key;

/// How long the peer's end of a stream is awaited once all is said.
const LINGER_NS: u64 = 1_000_000_000;
/// What a connection that closes is given beyond the deadlines of what is under way.
const CLOSING_NS_MIN: u64 = 1_000_000_000;

impl Tcp {
    /// The program is done with a connection.
    pub(super) fn disconnect_conn(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let connection = conn.connection;
        match conn.state {
            State::Open | State::PeerClosing => {
                conn.state = State::Closing;
                // All that is under way has a deadline; this one is for what the peer may think of beside it.
                let timeout_ns = conn.send_timeout_ns.saturating_mul(2).saturating_add(CLOSING_NS_MIN);
                let until_ns = self.shared.now_ns.saturating_add(timeout_ns);
                let until_ns = until_ns.saturating_add(self.bulk_allowance_ns(key));
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.until_ns = until_ns;
                }
                self.make(key);
                self.go_on_closing(core, key);
                self.flush(core, key);
            }
            State::Dialing | State::Accepting | State::PeerClosed | State::Gone => {
                self.bulk_end(core, key, Status::Disconnected);
                core.closed(connection);
                self.remove(core, key);
            }
            State::Closing | State::Lingering => {}
        }
    }

    /// A connection that closes may have come a step further.
    #[inline]
    pub(super) fn go_on_closing(&mut self, core: &mut Core, key: Key) {
        match self.conns.get(key).map(|conn| conn.state) {
            Some(State::Closing) => self.go_on_closing_now(core, key),
            Some(State::PeerClosed) if !self.bulk_awaits_answers(key) => {
                self.end(core, key, DisconnectReason::Closed);
            }
            _ => {}
        }
    }

    #[cold]
    fn go_on_closing_now(&mut self, core: &mut Core, key: Key) {
        //= wire.md R-TCP-13
        if !self.bulk_is_over(core, key) {
            return;
        }
        let now_ns = self.shared.now_ns;
        let Some(conn) = self.conns.get_mut(key) else { return };
        if !conn.closing_said {
            conn.closing_said = true;
            self.say(key, Kind::Closing);
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        let has_sends = conn.out.sends() > 0;
        //= wire.md R-TCP-13
        if has_sends || self.bulk_owes_answers(key) {
            return;
        }
        let Some(conn) = self.conns.get_mut(key) else { return };
        //= wire.md R-TCP-14
        conn.state = State::Lingering;
        conn.until_ns = now_ns + LINGER_NS;
        let connection = conn.connection;
        self.say(key, Kind::Close);
        self.bulk_end(core, key, Status::Disconnected);
        core.closed(connection);
        self.make(key);
        self.flush(core, key);
    }

    /// The peer's program has disconnected: it takes no more messages. What it answers to remote operations still comes, over a
    /// stream of its own.
    pub(super) fn peer_closing(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.closing_came = true;
        let was_open = conn.state == State::Open;
        if was_open {
            conn.state = State::PeerClosing;
        }
        let (connection, is_closing) = (conn.connection, conn.state != State::PeerClosing);
        conn.out.keep_begun(&self.shared.sends);
        self.shared.end_sends(conn, core, Status::Disconnected);
        if is_closing || !self.bulk_awaits_answers(key) {
            self.bulk_end(core, key, Status::Disconnected);
        }
        if was_open {
            core.peer_gone(connection);
        }
    }

    /// The peer has said CLOSE.
    #[cold]
    pub(super) fn peer_closed(&mut self, core: &mut Core, key: Key) {
        let awaits = self.bulk_awaits_answers(key);
        let Some(conn) = self.conns.get_mut(key) else { return };
        if !awaits || !matches!(conn.state, State::Open | State::PeerClosing) {
            return self.end(core, key, DisconnectReason::Closed);
        }
        //= wire.md R-TCP-14
        conn.state = State::PeerClosed;
        conn.until_ns = self.shared.now_ns.saturating_add(LINGER_NS);
        Self::unwatch(core, conn);
        let connection = conn.connection;
        self.shared.end_sends(conn, core, Status::Disconnected);
        core.peer_gone(connection);
        self.make(key);
    }

    /// A peer that is not to be believed.
    #[cold]
    pub(super) fn fault(&mut self, core: &mut Core, key: Key, fault: Fault) {
        //= wire.md R-TCP-1
        self.shared.counts.fault(fault);
        self.end(core, key, DisconnectReason::Refused);
    }

    /// The stream has ended, or is of no use any more.
    #[cold]
    pub(super) fn end(&mut self, core: &mut Core, key: Key, reason: DisconnectReason) {
        let status = match reason {
            DisconnectReason::TimedOut => Status::TimedOut,
            _ => Status::Disconnected,
        };
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (state, connection) = (conn.state, conn.connection);
        match state {
            State::Dialing => return self.dial_failed(core, key, ConnectFailure::Disconnected),
            State::Accepting => {
                core.failed(connection, ConnectFailure::Disconnected);
                return self.remove(core, key);
            }
            State::Lingering => return self.remove(core, key),
            State::Gone => return,
            State::Open | State::PeerClosing | State::PeerClosed | State::Closing => {}
        }
        // Whatever ends it then, its peer had closed before.
        let reason = if state == State::PeerClosed { DisconnectReason::Closed } else { reason };
        if state == State::Open {
            // One that has closed in an orderly way is not broken.
            self.shared.counts.broken += 1;
        }
        Self::unwatch(core, conn);
        conn.stream = None;
        conn.state = State::Gone;
        conn.input.drop_kept(&mut self.shared.keepers);
        self.shared.end_sends(conn, core, status);
        self.bulk_end(core, key, status);
        if state == State::Closing {
            core.closed(connection);
            self.remove(core, key);
        } else {
            core.ended(connection, reason);
        }
    }

    /// Forgets a connection, whose sends have ended.
    pub(super) fn remove(&mut self, core: &mut Core, key: Key) {
        self.bulk_end(core, key, Status::Disconnected);
        if let Some(mut conn) = self.conns.remove(key) {
            Self::unwatch(core, &mut conn);
            conn.input.drop_kept(&mut self.shared.keepers);
            while conn.out.abandon(&mut self.shared.sends, &mut self.shared.chunks).is_some() {
                debug_assert!(false, "they were told of before");
            }
        }
    }
}
