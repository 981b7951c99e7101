//! Sending: one write for a batch, and a lone message at once.

use super::conn::{Conn, Shared, State};
use super::counts::Fault;
use super::out::{Flow, Out, Written};
use super::pipe::Pipe;
use super::wire::Kind;
use super::{Tcp, token};
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use crate::event::{DisconnectReason, Status};
use cci_memory::slab::Key;
use cci_sys::clock;
use cci_sys::event::Interest;
use std::os::fd::AsFd;

/// Messages queued on a connection leave without waiting for the next progress once they are so many bytes.
const BATCH_BYTES: u64 = 48 << 10;
/// Sends that use one reading of the clock: those that are queued.
const SENDS_PER_CLOCK: u32 = 16;
/// A connection may always have so many chunks, if there are any,
const CHUNKS_MIN: u32 = 4;
/// and never more than these: a megabyte.
const CHUNKS_MAX: u32 = 64;
/// In between, this part of what is left, so that one slow peer does not take it all.
const CHUNKS_SHARE: u32 = 4;
/// Messages that came and are not acknowledged: from so many on their acknowledgement waits for no pause.
const UNTOLD_MAX: u32 = 32;

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
        let shared = &mut self.shared;
        // A lone message must not wait for the next progress; one behind others may, and shares their write.
        let lone = conn.out.is_quiet() && conn.out.lone_poll != self.polls;
        self.sends_since_clock += 1;
        if lone || self.sends_since_clock >= SENDS_PER_CLOCK {
            shared.now_ns = clock::now_ns();
            self.sends_since_clock = 0;
        }
        let len = segments.iter().map(|segment| segment.len()).sum();
        let ack = if lone { conn.input.tell() } else { conn.input.taken() };
        let deadline_ns = shared.now_ns.saturating_add(conn.send_timeout_ns);
        let chunks_max = (shared.chunks.left() / CHUNKS_SHARE).clamp(CHUNKS_MIN, CHUNKS_MAX);
        if conn.out.sends() == 0 {
            conn.moved_ns = shared.now_ns;
        }
        let header = Out::message(len, ack);
        let Shared { sends, chunks, .. } = shared;
        if !conn.out.has_room(sends, is_alone)
            || !conn.out.push(sends, chunks, header, segments, op, deadline_ns, chunks_max)
        {
            return Err(SendError::WouldBlock);
        }
        shared.sends_due_ns = shared.sends_due_ns.min(deadline_ns);
        conn.to_be_told += u32::from(!op.silent);
        conn.messages_sent += 1;
        conn.bytes_sent += len as u64;
        if !lone {
            let full = conn.out.unwritten_bytes() >= BATCH_BYTES && !conn.out.blocked;
            self.dirty(key);
            if full && self.conns.get(key).is_some_and(|conn| conn.out.flow == Flow::Going) {
                self.flush(core, key);
            }
            return Ok(());
        }
        conn.out.lone_poll = self.polls;
        let Some(stream) = &mut conn.stream else { return Ok(()) };
        let written = conn.out.write_lone(stream, &shared.sends);
        shared.counts.lone += 1;
        let done = written.as_ref().is_ok_and(|_| !conn.out.blocked && conn.is_reliable);
        if let Ok(written) = &written {
            shared.counts.writes += written.writes;
            shared.counts.bytes_written += written.bytes;
        }
        if !done {
            self.after_write(core, key, written.map(|_| Written::default()));
        }
        Ok(())
    }

    /// Something waits to be written.
    #[inline]
    pub(super) fn dirty(&mut self, key: Key) {
        if let Some(conn) = self.conns.get_mut(key)
            && !conn.is_dirty
        {
            conn.is_dirty = true;
            self.dirty.push(key);
        }
    }

    /// Queues a control record; it leaves with the next progress.
    pub(super) fn say(&mut self, key: Key, kind: Kind) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if !conn.say(kind) {
            self.doomed.push(key);
        }
        self.dirty(key);
    }

    /// Writes what waits on one connection.
    pub(super) fn flush(&mut self, core: &mut Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Some(stream) = &mut conn.stream else { return };
        if matches!(conn.state, State::Gone) || conn.out.blocked && conn.is_watched_for_room {
            return;
        }
        let written = conn.out.write(stream, &self.shared.sends);
        self.after_write(core, key, written);
    }

    /// What follows from a write.
    fn after_write(&mut self, core: &mut Core, key: Key, written: std::io::Result<Written>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match written {
            Ok(Written { bytes, writes }) => {
                self.shared.counts.bytes_written += bytes;
                self.shared.counts.writes += writes;
                self.shared.counts.batches += u64::from(writes > 0);
            }
            Err(_) => return self.write_failed(core, key),
        }
        if !conn.is_reliable {
            //= wire.md R-TCP-12
            let shared = &mut self.shared;
            while let Some(send) = conn.out.pop_written(&mut shared.sends, &mut shared.chunks) {
                Shared::complete(conn, core, &send, Status::Success);
            }
        }
        if conn.out.blocked && conn.stream.as_ref().is_some_and(Pipe::lacks_buffer) {
            // Of that nobody tells: it is tried again with the next progress.
            conn.out.blocked = false;
            self.dirty(key);
        }
        self.watch_for_room(core, key);
        let Some(conn) = self.conns.get_mut(key) else { return };
        match (conn.state, &conn.stream) {
            (State::Closing, _) => self.go_on_closing(core, key),
            (State::Lingering, Some(stream)) if !conn.out.wants() && !stream.has_unsent() => {
                // One that fails has nothing to shut down any more.
                let _ = stream.shutdown_write();
            }
            _ => {}
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

    /// Tells the kernel whether to tell when there is room.
    fn watch_for_room(&mut self, core: &Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.out.blocked && !conn.is_watched && !conn.input.is_holding() {
            return self.watch(core, key);
        }
        if conn.out.blocked == conn.is_watched_for_room || !conn.is_watched {
            return;
        }
        let Some(stream) = &conn.stream else { return };
        conn.is_watched_for_room = conn.out.blocked;
        let interest = if conn.out.blocked { Interest::Both } else { Interest::Read };
        core.poller.rewatch(stream.as_fd(), token::make(token::CONN, key), interest);
    }

    /// Puts a connection's stream into the endpoint's epoll set, if it is not.
    pub(super) fn watch(&mut self, core: &Core, key: Key) {
        let Some(conn) = self.conns.get_mut(key).filter(|conn| conn.state != State::PeerClosed) else {
            return;
        };
        let Some(stream) = conn.stream.as_ref().filter(|_| !conn.is_watched) else { return };
        // Where the system refuses, the next arming tries again.
        conn.is_watched = core.poller.watch(stream.as_fd(), token::make(token::CONN, key)).is_ok();
        conn.is_watched_for_room = false;
        if conn.is_watched {
            self.watch_for_room(core, key);
        }
    }

    /// Takes it out.
    pub(super) fn unwatch(core: &Core, conn: &mut Conn) {
        if let Some(stream) = conn.stream.as_ref().filter(|_| conn.is_watched) {
            core.poller.unwatch(stream.as_fd());
        }
        (conn.is_watched, conn.is_watched_for_room) = (false, false);
    }

    /// Everything that the program, or the last progress, has queued.
    #[cold]
    pub(super) fn flush_dirty(&mut self, core: &mut Core) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain(..) {
            if let Some(conn) = self.conns.get_mut(key) {
                conn.is_dirty = false;
                self.flush(core, key);
            }
        }
        // What was queued meanwhile is for the next time.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        while let Some(key) = self.doomed.pop() {
            self.fault(core, key, Fault::Answers);
        }
    }

    /// Acknowledges what came, where nothing went the other way that could carry it. A peer that goes on sending is
    /// told now and then; `all`: nobody is to wait.
    #[cold]
    pub(super) fn acknowledge(&mut self, core: &mut Core, all: bool) {
        let mut at = 0;
        while let Some(&key) = self.acks.get(at) {
            let Some(conn) = self.conns.get_mut(key) else {
                self.acks.swap_remove(at);
                continue;
            };
            let untold = conn.input.untold();
            if untold > 0 && !all && conn.input.poll == self.polls && untold < UNTOLD_MAX {
                at += 1;
                continue;
            }
            conn.owes_ack = false;
            self.acks.swap_remove(at);
            if untold > 0 && matches!(conn.state, State::Open | State::PeerClosing | State::Closing) {
                //= wire.md R-TCP-8
                self.shared.counts.acks_sent += 1;
                self.say(key, Kind::Ack);
                self.flush(core, key);
            }
        }
    }
}
