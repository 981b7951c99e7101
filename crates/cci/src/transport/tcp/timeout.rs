//! What is due.

use super::Tcp;
use super::conn::State;
use crate::ConnectFailure;
use crate::connection::DisconnectReason;
use crate::engine::core::Core;

impl Tcp {
    /// Does what is due.
    #[cold]
    pub(super) fn time_out(&mut self, core: &mut Core) {
        let now_ns = self.links.shared.now_ns;
        if self.listen_again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.listen_again(core);
        }
        if self.handshakes_due_ns <= now_ns {
            self.time_out_handshakes(core);
        }
        if self.links.deadlines.due_ns <= now_ns {
            self.time_out_making(core);
        }
        self.links.time_out(core);
    }

    fn time_out_making(&mut self, core: &mut Core) {
        let now_ns = self.links.shared.now_ns;
        let (mut at, mut due_ns) = (0, u64::MAX);
        while let Some(key) = self.links.deadlines.get(at) {
            let state = self.links.conns.get(key).map(|conn| (conn.state, conn.until_ns, conn.again_ns));
            match state {
                Some((State::Dialing, until_ns, _)) if until_ns <= now_ns => {
                    // The answer may have come in this very moment.
                    self.answered(core, key);
                    if self.links.conns.get(key).is_some_and(|conn| conn.state == State::Dialing) {
                        self.links.shared.counts.handshake_timed_out += 1;
                        self.links.fail(core, key, ConnectFailure::TimedOut);
                    }
                }
                Some((State::Dialing, _, again_ns)) if again_ns <= now_ns => {
                    self.call(core, key);
                }
                Some((State::Accepting, until_ns, _)) if until_ns <= now_ns => {
                    self.links.shared.counts.handshake_timed_out += 1;
                    self.links.fail(core, key, ConnectFailure::TimedOut);
                }
                //= wire.md R-TCP-17
                Some((State::Closing, until_ns, _)) if until_ns <= now_ns => {
                    self.links.end(core, key, DisconnectReason::TimedOut);
                }
                Some((State::PeerClosed, until_ns, _)) if until_ns <= now_ns => {
                    self.links.end(core, key, DisconnectReason::Closed);
                }
                Some((State::Lingering, until_ns, _)) if until_ns <= now_ns => self.links.remove(core, key),
                _ => {}
            }
            match self.links.conns.get_mut(key) {
                Some(conn) if conn.state.has_deadline() => {
                    due_ns = due_ns.min(conn.until_ns).min(conn.again_ns);
                    at += 1;
                }
                left => {
                    if let Some(conn) = left {
                        conn.has_deadline = false;
                    }
                    self.links.deadlines.take(at);
                }
            }
        }
        self.links.deadlines.due_ns = due_ns;
    }
}
