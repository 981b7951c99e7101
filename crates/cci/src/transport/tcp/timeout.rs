//! Deadlines: of sends, of connections being made and left, of silent peers.

use super::Tcp;
use super::conn::State;
use super::out::Flow;
use crate::ConnectFailure;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::Core;
use crate::limits::{TCP_ASK_S, TCP_ASKS, TCP_IDLE_JITTER_S, TCP_IDLE_S};
use cci_memory::slab::Key;
use cci_sys::clock;
use std::time::Duration;

impl Tcp {
    /// Does what is due.
    #[cold]
    pub(super) fn time_out(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        if self.listen_again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.listen_again(core);
        }
        if self.hands_due_ns <= now_ns {
            self.time_out_hands(core);
        }
        if self.making_due_ns <= now_ns {
            self.time_out_making(core);
        }
        if self.shared.sends_due_ns <= now_ns {
            self.time_out_sends(core);
        }
        if self.shared.streams.unfinished_due_ns <= now_ns {
            self.time_out_unfinished(core);
        }
        if !self.keepalive.is_empty() && self.next_keepalive_ns <= now_ns {
            self.keep_alive(core);
        }
    }

    /// Puts a connection into the list of those with a deadline of their own.
    pub(super) fn make(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        self.making_due_ns = self.making_due_ns.min(conn.until_ns).min(conn.again_ns);
        if !std::mem::replace(&mut conn.has_deadline, true) {
            self.making.push(key);
        }
    }

    fn time_out_making(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        let (mut at, mut due_ns) = (0, u64::MAX);
        while let Some(&key) = self.making.get(at) {
            let state = self.conns.get(key).map(|conn| (conn.state, conn.until_ns, conn.again_ns));
            match state {
                Some((State::Dialing, until_ns, _)) if until_ns <= now_ns => {
                    // The answer may have come in this very moment.
                    self.answered(core, key);
                    if self.conns.get(key).is_some_and(|conn| conn.state == State::Dialing) {
                        self.shared.counts.handshake_timed_out += 1;
                        self.dial_failed(core, key, ConnectFailure::TimedOut);
                    }
                }
                Some((State::Dialing, _, again_ns)) if again_ns <= now_ns => {
                    self.call_again(core, key);
                }
                Some((State::Accepting, until_ns, _)) if until_ns <= now_ns => {
                    self.shared.counts.handshake_timed_out += 1;
                    if let Some(conn) = self.conns.get(key) {
                        core.failed(conn.connection, ConnectFailure::TimedOut);
                    }
                    self.remove(core, key);
                }
                //= wire.md R-TCP-17
                Some((State::Closing, until_ns, _)) if until_ns <= now_ns => {
                    self.end(core, key, DisconnectReason::TimedOut);
                }
                Some((State::PeerClosed, until_ns, _)) if until_ns <= now_ns => {
                    self.end(core, key, DisconnectReason::Closed);
                }
                Some((State::Lingering, until_ns, _)) if until_ns <= now_ns => self.remove(core, key),
                _ => {}
            }
            match self.conns.get_mut(key) {
                Some(conn) if conn.state.has_deadline() => {
                    due_ns = due_ns.min(conn.until_ns).min(conn.again_ns);
                    at += 1;
                }
                left => {
                    if let Some(conn) = left {
                        conn.has_deadline = false;
                    }
                    self.making.swap_remove(at);
                }
            }
        }
        self.making_due_ns = due_ns;
    }

    /// Ends sends that are overdue.
    ///
    /// What the peer has refused for want of a buffer is taken back: it ends in RNR, was not delivered, and the connection
    /// lives on. What it has not answered at all: `TimedOut`, whether it will be delivered is not known, and the
    /// connection is broken. A peer that goes on taking messages, but has not come so far, gets more time: the send
    /// timeout once more, whatever it says.
    fn time_out_sends(&mut self, core: &mut Core) {
        self.flush_unwritten(core);
        let mut next_ns = u64::MAX;
        for index in 0..self.conns_max {
            let Some(key) = self.conns.key_at(index) else { continue };
            if self.conns.get(key).is_some_and(|conn| conn.out.sends() > 0) {
                next_ns = next_ns.min(self.time_out_sends_of(core, key));
            }
        }
        self.shared.sends_due_ns = next_ns;
    }

    /// Answers when the next one is due.
    fn time_out_sends_of(&mut self, core: &mut Core, key: Key) -> u64 {
        let now_ns = self.shared.now_ns;
        loop {
            let shared = &mut self.shared;
            let Some(conn) = self.conns.get_mut(key) else { return u64::MAX };
            let Some(deadline_ns) = conn.out.oldest(&shared.sends).map(|send| send.deadline_ns) else {
                break;
            };
            if deadline_ns > now_ns {
                return deadline_ns;
            }
            let refused = conn.out.flow == Flow::Stalled;
            if let Some(send) = conn.out.take_back(&mut shared.sends, &mut shared.chunks) {
                //= wire.md R-TCP-10
                let status = if refused { Status::ReceiverNotReady } else { Status::TimedOut };
                conn.complete(core, &send, status);
                continue;
            }
            //= wire.md R-TCP-17
            let patience_ns = conn.moved_ns.min(deadline_ns).saturating_add(conn.send_timeout_ns);
            if patience_ns > now_ns {
                return patience_ns;
            }
            self.end(core, key, DisconnectReason::TimedOut);
            return u64::MAX;
        }
        self.go_on_closing(core, key);
        u64::MAX
    }

    /// Asks silent peers for a sign of life; tells the program of those that give none. Once: it is off then.
    fn keep_alive(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        let mut next_ns = u64::MAX;
        let mut keys = std::mem::take(&mut self.keepalive);
        keys.retain(|&key| {
            let Some(conn) = self.conns.get_mut(key) else { return false };
            if conn.keepalive_ns == 0 || matches!(conn.state, State::Closing | State::Lingering) {
                return false;
            }
            let limit_ns = conn.keepalive_ns;
            let silent_ns =
                if conn.stream.is_none() { u64::MAX } else { now_ns.saturating_sub(conn.heard_ns) };
            // Silent is who was asked and did not answer. When the program has not polled for a while, nobody was
            // asked; while messages are held here, no answer gets through.
            let was_asked = conn.stream.is_none()
                || conn.pinged_ns > conn.heard_ns
                    && now_ns.saturating_sub(conn.pinged_ns) >= limit_ns / 4
                    && !conn.input.is_holding();
            if silent_ns >= limit_ns && was_asked {
                conn.keepalive_ns = 0;
                self.shared.counts.keepalives += 1;
                core.keepalive_timed_out(conn.connection);
                return false;
            }
            if conn.stream.is_some()
                && silent_ns >= limit_ns / 2
                && now_ns.saturating_sub(conn.pinged_ns) >= limit_ns / 2
            {
                conn.pinged_ns = now_ns;
                conn.ping(&mut self.shared.streams);
            }
            next_ns = next_ns.min(now_ns.saturating_add((limit_ns / 4).max(1)));
            true
        });
        self.keepalive = keys;
        self.next_keepalive_ns = next_ns;
    }

    pub(super) fn change_send_timeout(&mut self, key: Key, timeout_ns: u64) {
        let now_ns = clock::now_ns();
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.send_timeout_ns = timeout_ns;
        // Sends under way must not outlive later ones: completions of a connection stay in order.
        let limit_ns = now_ns.saturating_add(timeout_ns);
        conn.out.bring_forward(&mut self.shared.sends, limit_ns);
        self.shared.sends_due_ns = self.shared.sends_due_ns.min(limit_ns);
        self.bulk_timeout_changed();
        self.bound_silence(key);
    }

    /// Has the kernel notice that the peer's host is gone: by asking it where the connection is idle, and by what it does not
    /// acknowledge. The user timeout counts for both; sends and operations have deadlines of their own, which are sooner.
    //= wire.md R-TCP-27
    pub(super) fn bound_silence(&self, key: Key) {
        let Some(conn) = self.conns.get(key) else { return };
        let Some(stream) = &conn.stream else { return };
        // Both sides know the ticket, and no two connections have the same.
        let jitter_s = u64::from(conn.ticket.secret[0]) % TCP_IDLE_JITTER_S;
        let idle = Duration::from_secs(TCP_IDLE_S + jitter_s);
        let give_up_ms = (TCP_IDLE_S + TCP_IDLE_JITTER_S + TCP_ASK_S * u64::from(TCP_ASKS)) * 1_000;
        let timeout_ms = (conn.send_timeout_ns / 1_000_000).saturating_mul(2).clamp(give_up_ms, 86_400_000);
        // A kernel that refuses gives up after its own, longer, time.
        let _ = stream.set_keepalive(idle, Duration::from_secs(TCP_ASK_S), TCP_ASKS);
        let _ = stream.set_user_timeout_ms(u32::try_from(timeout_ms).unwrap_or(u32::MAX));
    }

    pub(super) fn change_keepalive(&mut self, key: Key, timeout_ns: u64) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        conn.keepalive_ns = timeout_ns;
        self.shared.now_ns = clock::now_ns();
        // Silence counts from now on.
        conn.heard_ns = self.shared.now_ns;
        self.keepalive.retain(|kept| *kept != key);
        if timeout_ns != 0 {
            self.keepalive.push(key);
            self.next_keepalive_ns = 0;
        }
    }
}
