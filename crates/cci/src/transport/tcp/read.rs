//! The receiving side of a connection: from bytes to records.
//!
//! A read goes into one buffer of the endpoint's; whole records are dealt with there, and what is left is kept with the
//! connection until the next read. Without a receive buffer a message is *held* with all behind it, and the stream is not
//! read, for a moment; if that does not help, it is *dropped* with all behind it and the peer is told, so that
//! acknowledgements and the like get through, and the peer may take messages back.

use super::Tcp;
use super::conn::{Conn, Shared, State};
use super::counts::Fault;
use super::input::{READ_BYTES, Take};
use super::out::Flow;
use super::pipe::{self, Pipe};
use super::wire::{HEADER_BYTES, Header, Kind};
use crate::engine::core::Core;
use crate::event::{DisconnectReason, Status};
use crate::transport::quota::Host;
use cci_memory::slab::Key;
use std::io::ErrorKind;

/// How long messages are held for want of a receive buffer before they are dropped, to be sent again.
const HOLD_NS: u64 = 2_000_000;

/// Connections without a receive buffer that are looked at in one poll; the others have their turn in the next ones.
const FED_MAX: usize = 64;

/// What dealing with a record came to.
enum Step {
    Next,
    /// This message has to wait, and so does everything behind it.
    Hold,
    /// The connection is not what it was: look at it anew.
    Over,
}

impl Tcp {
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
                    self.note_sealed_part(key);
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
        let has_sealed_part = conn.stream.as_ref().is_some_and(Pipe::has_part);
        if used == filled.len() && !has_sealed_part || conn.input.is_holding() {
            conn.record_ns = None;
        } else if used > 0 || conn.record_ns.is_none() {
            conn.record_ns = Some(self.shared.now_ns);
        }
        let is_part = conn.record_ns.is_some() && !conn.has_part;
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
                self.watch(core, key);
            }
        }
        if is_part {
            self.note_part(key);
        }
        keeps || used > 0
    }

    /// Nothing could be read: if that is because a sealed record is not whole, that has a time.
    fn note_sealed_part(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if conn.stream.as_ref().is_some_and(Pipe::has_part) {
            conn.record_ns.get_or_insert(self.shared.now_ns);
            self.note_part(key);
        } else if conn.input.kept().is_empty() {
            conn.record_ns = None;
        }
    }

    /// Deals with all whole records; answers how many bytes they were. Where it had to stop, the rest is for later.
    fn deal(&mut self, core: &mut Core, key: Key, bytes: &[u8], may_hold: bool) -> usize {
        let mut used = 0;
        loop {
            let Some(rest) = bytes.get(used..) else { return used };
            let Some(header) = rest.first_chunk::<HEADER_BYTES>() else { return used };
            let Some(conn) = self.conns.get_mut(key) else { return bytes.len() };
            let Ok(header) = Header::parse(*header, conn.mss) else {
                self.fault(core, key, Fault::Record);
                return bytes.len();
            };
            let len = HEADER_BYTES + usize::from(header.len);
            let Some(payload) = rest.get(HEADER_BYTES..len) else { return used };
            match self.record(core, key, header, payload, may_hold) {
                Ok(Step::Next) => used += len,
                Ok(Step::Hold) => return used,
                Ok(Step::Over) => return bytes.len(),
                Err(fault) => {
                    self.fault(core, key, fault);
                    return bytes.len();
                }
            }
        }
    }

    #[inline]
    fn record(
        &mut self,
        core: &mut Core,
        key: Key,
        header: Header,
        payload: &[u8],
        may_hold: bool,
    ) -> Result<Step, Fault> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(Step::Over) };
        if header.ack != conn.input.acked {
            acknowledged(conn, &mut self.shared, core, header.ack)?;
            if conn.out.wants() {
                // The window has opened.
                self.dirty(key);
            }
        }
        if self.conns.get(key).is_some_and(|conn| conn.state == State::Accepting) {
            self.confirmed(core, key);
        }
        if header.kind == Kind::Message {
            return Ok(self.message(core, key, payload, may_hold));
        }
        self.control(core, key, header.kind, payload)
    }

    #[inline]
    fn message(&mut self, core: &mut Core, key: Key, payload: &[u8], may_hold: bool) -> Step {
        let (shared, acks, poll) = (&mut self.shared, &mut self.acks, self.polls);
        let Some(conn) = self.conns.get_mut(key) else { return Step::Over };
        if !conn.takes_messages() {
            //= wire.md R-TCP-13
            shared.counts.after_close += 1;
            return Step::Next;
        }
        if matches!(conn.input.take, Take::Dropping | Take::Awaited) {
            return Step::Next;
        }
        if core.deliver(conn.connection, payload) {
            conn.messages_received += 1;
            conn.bytes_received += payload.len() as u64;
            if conn.is_reliable {
                conn.input.took(poll);
                if !conn.owes_ack {
                    conn.owes_ack = true;
                    acks.push(key);
                }
            }
            return Step::Next;
        }
        if !conn.is_reliable {
            //= wire.md R-TCP-12
            shared.counts.unreliable_no_buffer += 1;
            return Step::Next;
        }
        if may_hold {
            conn.input.take = Take::Holding { until_ns: shared.now_ns + HOLD_NS };
            self.starve(key);
            return Step::Hold;
        }
        self.drop_messages(key);
        Step::Next
    }

    /// Puts a connection into the list of those with a message that waits for a receive buffer.
    fn starve(&mut self, key: Key) {
        if let Some(conn) = self.conns.get_mut(key)
            && !std::mem::replace(&mut conn.is_starved, true)
        {
            self.starved.push_back(key);
        }
    }

    /// From here on messages are dropped, and the peer is told.
    fn drop_messages(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        //= wire.md R-TCP-9
        conn.input.take = Take::Dropping;
        self.shared.counts.not_ready_sent += 1;
        self.say(key, Kind::NotReady);
        self.starve(key);
    }

    /// Records that are not messages.
    fn control(&mut self, core: &mut Core, key: Key, kind: Kind, payload: &[u8]) -> Result<Step, Fault> {
        let Some(conn) = self.conns.get_mut(key) else { return Ok(Step::Over) };
        match kind {
            Kind::Message | Kind::Ack | Kind::Pong => {}
            // Confirming is all that it is for; the state has changed already.
            Kind::Confirm if !conn.dialled => {}
            Kind::NotReady if conn.is_reliable => {
                conn.not_ready += 1;
                conn.moved_ns = self.shared.now_ns;
                conn.out.dropped(&self.shared.sends).map_err(|_| Fault::Record)?;
                if let Some(oldest) = conn.out.oldest(&self.shared.sends) {
                    // One that is overdue can be taken back now, before the peer asks for it again.
                    self.shared.sends_due_ns = self.shared.sends_due_ns.min(oldest.deadline_ns);
                }
                self.shared.counts.not_ready_received += 1;
                self.dirty(key);
            }
            Kind::Ready if conn.is_reliable => {
                let window = payload.first_chunk().map_or(1, |window| u32::from_le_bytes(*window));
                if conn.out.flow != Flow::Stalled {
                    return Err(Fault::Record);
                }
                conn.moved_ns = self.shared.now_ns;
                //= wire.md R-TCP-11
                self.say(key, Kind::Resume);
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.out.resume(window);
                }
            }
            Kind::Resume if conn.input.take == Take::Awaited => conn.input.take = Take::All,
            Kind::Ping => self.say(key, Kind::Pong),
            Kind::AskBulk if conn.dialled && conn.is_reliable => self.dial_bulk(core, key),
            Kind::Closing if !conn.closing_came => self.peer_closing(core, key),
            Kind::Close => {
                self.peer_closed(core, key);
                return Ok(Step::Over);
            }
            Kind::Confirm | Kind::NotReady | Kind::Ready | Kind::Resume | Kind::Closing | Kind::AskBulk => {
                return Err(Fault::Record);
            }
        }
        Ok(Step::Next)
    }

    /// Connections whose messages wait for receive buffers: there are some again, or the wait was too long.
    #[cold]
    pub(super) fn feed(&mut self, core: &mut Core) {
        for _ in 0..self.starved.len().min(FED_MAX) {
            let Some(key) = self.starved.pop_front() else { break };
            self.shared.counts.starved_looks += 1;
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.is_starved = false;
            let (free, has_buffer) = (core.receive.free_count(), core.has_buffer_for(conn.connection));
            match conn.input.take {
                Take::Holding { until_ns } if has_buffer || self.shared.now_ns >= until_ns => {
                    self.feed_held(core, key, !has_buffer);
                }
                Take::Dropping if has_buffer => {
                    //= wire.md R-TCP-11
                    conn.input.take = Take::Awaited;
                    let header = conn.header(Kind::Ready, 4);
                    let window = free / (self.starved.len() as u32 + 1);
                    let said = conn.out.say(header, Some(window.max(1)));
                    self.dirty(key);
                    if !said {
                        self.fault(core, key, Fault::Answers);
                    }
                }
                Take::All | Take::Awaited => {}
                Take::Holding { .. } => {
                    // What is not read now would end each sleep at once.
                    Self::unwatch(core, conn);
                    self.starve(key);
                }
                Take::Dropping => self.starve(key),
            }
        }
    }

    /// Goes on with what was held: delivers it, or drops it.
    fn feed_held(&mut self, core: &mut Core, key: Key, drop: bool) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let (kept, at) = conn.input.lift();
        conn.input.take = Take::All;
        if drop {
            self.drop_messages(key);
        }
        let used = self.deal(core, key, kept.behind(at), true);
        let Some(conn) = self.conns.get_mut(key) else {
            return self.shared.keepers.give_back(kept);
        };
        conn.input.put_back(&mut self.shared.keepers, kept, at + used);
        if !conn.input.is_holding() {
            if !conn.input.kept().is_empty() || conn.stream.as_ref().is_some_and(Pipe::has_part) {
                // A part of a record was behind what was held: from now on it has a time.
                conn.record_ns = Some(self.shared.now_ns);
                self.note_part(key);
            }
            self.watch(core, key);
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
}

/// How long the record is that begins like this, as far as that can be told: a header at least.
fn record_bytes(part: &[u8]) -> u32 {
    let payload = part.first_chunk::<HEADER_BYTES>().map_or(0, |[l0, l1, ..]| u16::from_le_bytes([*l0, *l1]));
    HEADER_BYTES as u32 + u32::from(payload)
}

/// The peer has taken messages.
#[inline]
fn acknowledged(conn: &mut Conn, shared: &mut Shared, core: &mut Core, ack: u32) -> Result<(), Fault> {
    //= wire.md R-TCP-7
    let count = ack.wrapping_sub(conn.input.acked);
    if count > u32::MAX / 2 {
        // Older than one that came before: of a record that was queued then.
        return Ok(());
    }
    conn.out.acked(count).map_err(|_| Fault::Record)?;
    conn.input.acked = ack;
    conn.moved_ns = shared.now_ns;
    for _ in 0..count {
        let Some(send) = conn.out.pop_written(&mut shared.sends, &mut shared.chunks) else { break };
        Shared::complete(conn, core, &send, Status::Success);
    }
    Ok(())
}
