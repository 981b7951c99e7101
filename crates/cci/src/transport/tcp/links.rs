//! Reading, writing and ending connections, one after the other.

use super::Tcp;
use super::conn::{Conn, State, Written};
use super::counts::Fault;
use super::input::{READ_BYTES, Take};
use super::pipe;
use super::receive::{Came, Receiver};
use super::wire::{HEADER_BYTES, Kind};
use crate::ConnectFailure;
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use crate::transport::quota::Host;
use cci_memory::slab::Key;
use std::io::ErrorKind;

/// Connections without a receive buffer that are looked at in one poll; the others have their turn in the next ones.
const FED_MAX: usize = 64;
/// Messages that came and are not acknowledged: from so many on their acknowledgement waits for no pause.
const UNTOLD_MAX: u32 = 32;
/// How long the peer's end of a stream is awaited once all is said.
const LINGER_NS: u64 = 1_000_000_000;
/// What a connection that closes is given beyond the deadlines of what is under way.
const CLOSING_NS_MIN: u64 = 1_000_000_000;

impl Tcp {
    #[inline]
    pub(super) fn send_message(
        &mut self,
        core: &mut Core,
        key: Key,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        let is_alone = self.conns.len() < 2;
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.state == State::Open) else {
            return Err(SendError::Disconnected);
        };
        let written = conn.send(&mut self.shared, core, segments, op, is_alone)?;
        if written != Written::Done {
            self.written(core, key, written);
        }
        Ok(())
    }

    /// Queues a control record; it leaves with the next progress.
    pub(super) fn send_control(&mut self, key: Key, kind: Kind) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.send_control(&mut self.shared.streams, kind);
        }
    }

    /// Writes what waits on one connection.
    pub(super) fn flush(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let written = conn.flush(&mut self.shared, core);
        self.written(core, key, written);
    }

    /// What follows from a write.
    fn written(&mut self, core: &mut Core, key: Key, written: Written) {
        match written {
            Written::Done => {}
            Written::Failed => self.write_failed(core, key),
            Written::MayClose => self.go_on_closing(core, key),
        }
    }

    /// What the peer said before it went may still be there: the next read finds it, and the end behind it.
    fn write_failed(&mut self, core: &mut Core, key: Key) {
        while self.read(core, key) {}
        let holds = self.conns.get(key).is_some_and(|conn| conn.input.is_holding());
        if !holds {
            self.end(core, key, DisconnectReason::Died);
        }
    }

    /// Writes everything that the program, or the last progress, has queued.
    #[cold]
    pub(super) fn flush_unwritten(&mut self, core: &mut Core) {
        let mut unwritten = self.shared.streams.take_unwritten();
        for key in unwritten.drain(..) {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.listed.left_unwritten();
            let written = conn.flush(&mut self.shared, core);
            self.written(core, key, written);
        }
        // What was queued meanwhile is for the next time.
        self.shared.streams.put_back(unwritten);
        while let Some(key) = self.shared.streams.next_doomed() {
            self.fault(core, key, Fault::Answers);
        }
    }

    /// Acknowledges what came, where nothing went the other way that could carry it. A peer that goes on sending is
    /// told now and then; `all`: nobody is to wait.
    #[cold]
    pub(super) fn acknowledge(&mut self, core: &mut Core, all: bool) {
        let mut at = 0;
        while let Some(key) = self.shared.streams.unacknowledged(at) {
            let Some(conn) = self.conns.get_mut(key) else {
                self.shared.streams.take_unacknowledged(at);
                continue;
            };
            let untold = conn.input.untold();
            if untold > 0 && !all && conn.input.poll == self.shared.pace.polls && untold < UNTOLD_MAX {
                at += 1;
                continue;
            }
            conn.listed.left_unacknowledged();
            self.shared.streams.take_unacknowledged(at);
            if untold > 0 && matches!(conn.state, State::Open | State::PeerClosing | State::Closing) {
                //= wire.md R-TCP-8
                self.shared.counts.acks_sent += 1;
                conn.send_control(&mut self.shared.streams, Kind::Ack);
                let written = conn.flush(&mut self.shared, core);
                self.written(core, key, written);
            }
        }
    }

    /// Reads once and deals with what came. Answers whether something did.
    #[inline]
    pub(super) fn read(&mut self, core: &mut Core, key: Key) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        if conn.input.is_holding() || matches!(conn.state, State::Dialing | State::PeerClosed | State::Gone) {
            return false;
        }
        if conn.state == State::Lingering {
            self.read_last(core, key);
            return false;
        }
        // Taken out as long as it is worked in; what goes wrong meanwhile puts it back all the same.
        let mut scratch = std::mem::take(&mut self.scratch);
        let came = self.read_into(core, key, &mut scratch);
        self.scratch = scratch;
        came
    }

    fn read_into(&mut self, core: &mut Core, key: Key, scratch: &mut [u8]) -> bool {
        let Some(conn) = self.conns.get_mut(key) else { return false };
        let whom = conn.peer;
        let Some(stream) = &mut conn.stream else { return false };
        let kept = conn.input.kept().len();
        if std::mem::take(&mut conn.leaves_part) {
            // Where the system refuses, it tells later than it might.
            let _ = stream.set_wakeup_bytes(1);
        }
        // Where nothing more may be kept, what is not a whole record stays in the kernel, but for what is out of it already.
        let keepers = &mut self.shared.keepers;
        let keeps =
            keepers.has_plenty() || kept > 0 || stream.has_input() || keepers.has_room(Host::of(whom));
        let is_sealed = stream.is_sealed();
        if !keeps && !std::mem::replace(&mut conn.has_room_behind_parts, true) {
            stream.make_room_behind_parts();
        }
        let Some((room, space)) = scratch.split_at_mut_checked(kept) else { return false };
        let Some(space) = space.get_mut(..READ_BYTES) else { return false };
        let got = if keeps { stream.recv_now(space) } else { stream.peek_now(space) };
        self.shared.counts.reads += 1;
        let len = match got {
            Ok(None) => {
                self.shared.counts.reads_empty += 1;
                if is_sealed {
                    conn.note_sealed_part(&mut self.shared);
                }
                return false;
            }
            Ok(Some(len)) if len > 0 => len,
            //= wire.md R-SEC-14
            Err(error) if pipe::is_forgery(&error) => {
                self.fault(core, key, Fault::Forged);
                return true;
            }
            Ok(_) => {
                self.end(core, key, DisconnectReason::Died);
                return true;
            }
            Err(error) => {
                self.end(core, key, pipe::reason(&error));
                return true;
            }
        };
        if kept > 0 {
            room.copy_from_slice(conn.input.kept());
            conn.input.drop_kept(&mut self.shared.keepers);
        }
        self.shared.counts.bytes_read += len as u64;
        if keeps {
            conn.heard_ns = self.shared.now_ns;
        }
        let filled = scratch.get(..kept + len).unwrap_or_default();
        let used = self.deal(core, key, filled, keeps);
        self.go_on_closing(core, key);
        let Some(conn) = self.conns.get_mut(key) else { return true };
        let has_sealed_part = conn.stream.as_ref().is_some_and(|stream| stream.has_part());
        if used == filled.len() && !has_sealed_part || conn.input.is_holding() {
            conn.record_ns = None;
        } else if used > 0 || conn.record_ns.is_none() {
            conn.record_ns = Some(self.shared.now_ns);
        }
        let is_part = conn.record_ns.is_some() && !conn.listed.is_unfinished();
        if keeps {
            if !conn.input.keep(
                &mut self.shared.keepers,
                Host::of(whom),
                filled.get(used..).unwrap_or_default(),
            ) {
                // What was read can't be put back, nor be asked for again.
                self.shared.counts.refused_system += 1;
                self.end(core, key, DisconnectReason::Refused);
                return true;
            }
        } else if let Some(stream) = &mut conn.stream {
            self.shared.counts.bytes_read -= (len - used) as u64;
            // What was dealt with is taken out of the kernel.
            if !scratch.get_mut(..used).is_some_and(|space| stream.take(space)) {
                self.end(core, key, DisconnectReason::Died);
                return true;
            }
            if used < len && conn.record_ns.is_some() {
                // A part of a record stays there. The kernel tells of the rest, or of an end behind it.
                let needed = scratch.get(used..len).map_or(1, record_bytes);
                conn.leaves_part = stream.set_wakeup_bytes(needed).is_ok();
                conn.hot_reads = 0;
            }
            if used > 0 {
                conn.heard_ns = self.shared.now_ns;
            }
            if conn.leaves_part {
                conn.watch(core);
            }
        }
        if is_part {
            conn.await_rest(&mut self.shared);
        }
        keeps || used > 0
    }

    /// Deals with all whole records; answers how many bytes they were. Where it had to stop, the rest is for later.
    fn deal(&mut self, core: &mut Core, key: Key, bytes: &[u8], may_hold: bool) -> usize {
        let mut used = 0;
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return bytes.len() };
            let mut receiver = Receiver { conn, shared: &mut self.shared, core, may_hold };
            match receiver.deal(bytes, &mut used) {
                Ok(()) => return used,
                Err(Came::Confirm) => self.open_conn(core, key),
                Err(Came::AskSecond) => self.dial_bulk(core, key),
                Err(Came::Closing) => self.peer_closing(core, key),
                Err(Came::Close) => {
                    self.peer_closed(core, key);
                    return bytes.len();
                }
                Err(Came::Fault(fault)) => {
                    self.fault(core, key, fault);
                    return bytes.len();
                }
            }
        }
    }

    /// Connections whose messages wait for receive buffers: there are some again, or the wait was too long.
    #[cold]
    pub(super) fn feed(&mut self, core: &mut Core) {
        for _ in 0..self.shared.streams.starved().min(FED_MAX) {
            let Some(key) = self.shared.streams.next_starved() else { break };
            self.shared.counts.starved_looks += 1;
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.listed.left_starved();
            let (free, has_buffer) = (core.receive.free_count(), core.has_buffer_for(conn.connection));
            match conn.input.take {
                Take::Holding { until_ns } if has_buffer || self.shared.now_ns >= until_ns => {
                    self.feed_held(core, key, !has_buffer);
                }
                Take::Dropping if has_buffer => {
                    let window = free / (self.shared.streams.starved() as u32 + 1);
                    if !conn.say_ready(&mut self.shared, window.max(1)) {
                        self.fault(core, key, Fault::Answers);
                    }
                }
                Take::All | Take::Awaited => {}
                Take::Holding { .. } => {
                    // What is not read now would end each sleep at once.
                    conn.unwatch(core);
                    self.shared.streams.starve(&mut conn.listed);
                }
                Take::Dropping => self.shared.streams.starve(&mut conn.listed),
            }
        }
    }

    /// Goes on with what was held: delivers it, or drops it.
    fn feed_held(&mut self, core: &mut Core, key: Key, drop: bool) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (kept, at) = conn.input.lift();
        conn.input.take = Take::All;
        if drop {
            conn.drop_messages(&mut self.shared);
        }
        let used = self.deal(core, key, kept.behind(at), true);
        let Some(conn) = self.conns.get_mut(key) else {
            return self.shared.keepers.give_back(kept);
        };
        conn.input.put_back(&mut self.shared.keepers, kept, at + used);
        if !conn.input.is_holding() {
            if !conn.input.kept().is_empty() || conn.stream.as_ref().is_some_and(|stream| stream.has_part()) {
                // A part of a record was behind what was held: from now on it has a time.
                conn.record_ns = Some(self.shared.now_ns);
                conn.await_rest(&mut self.shared);
            }
            conn.watch(core);
            self.go_on_closing(core, key);
        }
    }

    /// A stream of which nothing but the end is wanted.
    fn read_last(&mut self, core: &mut Core, key: Key) {
        let Some(Conn { stream: Some(stream), .. }) = self.conns.get_mut(key) else { return };
        match stream.recv(&mut self.scratch) {
            Ok(0) => {}
            Ok(_) => return,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {}
        }
        self.remove(core, key);
    }

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
            conn.send_control(&mut self.shared.streams, Kind::Closing);
        }
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
        self.send_control(key, Kind::Close);
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
        conn.end_sends(&mut self.shared, core, Status::Disconnected);
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
        conn.unwatch(core);
        let connection = conn.connection;
        conn.end_sends(&mut self.shared, core, Status::Disconnected);
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
        conn.unwatch(core);
        conn.stream = None;
        conn.state = State::Gone;
        conn.input.drop_kept(&mut self.shared.keepers);
        conn.end_sends(&mut self.shared, core, status);
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
            conn.unwatch(core);
            conn.input.drop_kept(&mut self.shared.keepers);
            while conn.out.abandon(&mut self.shared.sends, &mut self.shared.chunks).is_some() {
                debug_assert!(false, "they were told of before");
            }
        }
    }

    /// Reads a connection in every poll from now on, instead of the one that was idle longest.
    pub(super) fn activate(&mut self, core: &Core, key: Key) {
        let lives = |key| self.conns.get(key).is_some();
        if let Some(idle) = self.shared.streams.activate(key, lives) {
            self.watch_again(core, idle);
        }
    }

    /// Has the kernel report a connection again that was asked itself.
    pub(super) fn watch_again(&mut self, core: &Core, key: Key) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.hot_reads = 0;
            if !conn.input.is_holding() {
                conn.watch(core);
            }
        }
    }

    /// Ends connections on which a record does not get whole.
    #[cold]
    pub(super) fn time_out_unfinished(&mut self, core: &mut Core) {
        let now_ns = self.shared.now_ns;
        let (mut at, mut next_ns) = (0, u64::MAX);
        while let Some(&key) = self.shared.streams.unfinished().get(at) {
            match self.conns.get(key).and_then(|conn| conn.record_due_ns(now_ns)) {
                Some(due_ns) if due_ns > now_ns => {
                    next_ns = next_ns.min(due_ns);
                    at += 1;
                    continue;
                }
                //= wire.md R-TCP-26
                Some(_) => self.fault(core, key, Fault::Unfinished),
                None => {}
            }
            self.shared.streams.take_unfinished(at);
            if let Some(conn) = self.conns.get_mut(key) {
                conn.listed.left_unfinished();
            }
        }
        self.shared.streams.unfinished_due_ns = next_ns;
    }
}

/// How long the record is that begins like this, as far as that can be told: a header at least.
fn record_bytes(part: &[u8]) -> u32 {
    let payload = part.first_chunk::<HEADER_BYTES>().map_or(0, |[l0, l1, ..]| u16::from_le_bytes([*l0, *l1]));
    HEADER_BYTES as u32 + u32::from(payload)
}
