//! A connection, and what all of them share.

use super::counts::{Counts, Fault};
use super::input::{Input, Keepers, READ_BYTES, Take};
use super::lent::Lent;
use super::out::{Flow, Out, Wrote};
use super::pace::Pace;
use super::pipe;
use super::preamble::Ticket;
use super::second_stream::SecondStream;
use super::sends::{Send, Sends};
use super::streams::{Listed, Streams};
use super::watched::Watched;
use super::wire::{HEADER_BYTES, Header, Kind};
use crate::connection::{Connection, DisconnectReason, Status};
use crate::engine::chunks::Chunks;
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use crate::limits::{TCP_ASK_S, TCP_ASKS, TCP_IDLE_JITTER_S, TCP_IDLE_S};
use crate::transport::quota::Host;
use crate::transport::token::NOWHERE;
use cci_sys::event::Interest;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Messages queued on a connection leave without waiting for the next progress once they are so many bytes.
const BATCH_BYTES: u64 = 48 << 10;
/// A connection may always have so many chunks, if there are any.
const CHUNKS_MIN: u32 = 4;
/// A connection may never have more chunks than these: a megabyte.
const CHUNKS_MAX: u32 = 64;
/// Between the two a connection may have this part of what is left, so that one slow peer does not take it all.
const CHUNKS_SHARE: u32 = 4;
/// How long a record may take from its first byte to its last, unless the send timeout is longer. Only a peer that stands still in
/// the middle takes so long: where this side does not read, its time does not count.
const RECORD_NS_MAX: u64 = if cfg!(test) { 1_500_000_000 } else { 30_000_000_000 };

/// How long a record may take on a connection with this send timeout.
pub(super) fn record_ns_max(send_timeout_ns: u64) -> u64 {
    RECORD_NS_MAX.max(send_timeout_ns)
}

/// Where a connection stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Dialled: the stream is being made, or the peer has not answered. Has a deadline.
    Dialing,
    /// Accepted: the peer has not confirmed. Has a deadline.
    Accepting,
    Open,
    /// The peer's program has disconnected; what it sent before still comes.
    PeerClosing,
    /// The peer has closed; what it has answered over the second stream still comes. Has a deadline.
    PeerClosed,
    /// Our program has disconnected; what it sent before is still on its way. Has a deadline.
    Closing,
    /// CLOSE was sent, the program's handle is gone; the peer's end of the stream is awaited. Has a deadline.
    Lingering,
    /// The stream is gone; waits for the program to disconnect.
    Gone,
}

impl State {
    /// Whether it ends once something has been done: there may be a step to take after each read and write.
    #[inline]
    pub fn may_end(self) -> bool {
        matches!(self, State::Closing | State::PeerClosed)
    }

    /// Whether it has a deadline of its own, [`Conn::until_ns`].
    pub fn has_deadline(self) -> bool {
        match self {
            State::Dialing | State::Accepting | State::PeerClosed | State::Closing | State::Lingering => true,
            State::Open | State::PeerClosing | State::Gone => false,
        }
    }
}

/// What came of writing on a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Written {
    Done,
    /// The stream is of no use any more. What the peer sent before may still be there.
    Failed,
    /// The connection closes, and may have come a step further.
    MayClose,
}

/// What a read brought.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Bytes to deal with: those that were kept from before, and those that came.
    pub filled: usize,
    /// Bytes that came.
    fresh: usize,
    /// They are out of the kernel; otherwise only what is dealt with leaves it.
    pub keeps: bool,
}

/// Why nothing more is read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    Fault(Fault),
    Ended(DisconnectReason),
}

/// When the next send of a connection is due.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    At(u64),
    /// Its time is over, and it can't be taken back: so is the connection.
    Over,
    /// Nothing is under way.
    Never,
}

/// A connection, from when it is dialled or accepted until the program has disconnected and the stream has ended.
pub(super) struct Conn {
    /// The engine's handle.
    pub connection: Connection,
    /// Its name in the endpoint's table, and in which lists it is.
    pub listed: Listed,
    /// None: gone, or to be dialled again.
    pub stream: Option<Watched>,
    pub state: State,
    pub is_reliable: bool,
    /// We dialled it.
    pub dialled: bool,
    /// The peer's library has answered HELLO.
    pub is_heard: bool,
    /// CLOSING was sent, and has come.
    pub closing_sent: bool,
    pub closing_came: bool,
    /// In the list of [`Deadlines`](super::deadlines::Deadlines).
    pub has_deadline: bool,
    /// Since when a part of a record of the first stream is here.
    pub record_ns: Option<u64>,
    /// That part was left in the kernel, which tells when the record is whole.
    pub leaves_part: bool,
    /// The kernel has room for what follows such a part.
    pub has_space_behind_parts: bool,
    /// Polls that found something by asking the stream itself, since the last sleep.
    pub active_reads: u32,
    pub input: Input,
    pub out: Out,
    /// The longest message, both sides considered.
    pub mss: u32,
    pub send_timeout_ns: u64,
    /// 0: off.
    pub keepalive_ns: u64,
    /// When the peer was last heard of, and asked for a sign of life.
    pub heard_ns: u64,
    pub pinged_ns: u64,
    /// When the peer last took something, or had nothing to take.
    pub moved_ns: u64,
    /// Until when it must be made, or gone.
    pub until_ns: u64,
    /// When it is to be dialled again.
    pub again_ns: u64,
    /// Of the sends in progress, those that are not silent.
    pub unreported: u32,
    pub messages_sent: u64,
    pub bytes_sent: u64,
    pub messages_received: u64,
    pub bytes_received: u64,
    /// Times the peer had no receive buffer.
    pub not_ready: u64,
    /// Where the peer is, or was dialled at.
    pub peer: Option<SocketAddr>,
    /// What the second stream shows: ours at the side that accepted, the peer's at the side that dialled.
    pub ticket: Ticket,
    /// Where the second stream is to be dialled: at the peer's host.
    pub second_at: Option<SocketAddr>,
    /// The second stream is wanted: asked for, or being dialled.
    pub wants_second: bool,
    /// The second stream and all of remote memory access; None: none was ever needed.
    pub second: Option<Box<SecondStream>>,
    /// The name of who must be at the other end.
    pub expected: Option<Box<str>>,
    /// HELLO, as long as it may be needed again.
    pub hello: Vec<u8>,
    /// REQUEST, which is sent once HEARD has come; empty: it was sent, or HELLO had all.
    pub request: Vec<u8>,
    /// What was read of the answer.
    pub hello_answer: Vec<u8>,
}

impl Conn {
    pub fn new(connection: Connection, state: State, is_reliable: bool, timeouts_ns: (u64, u64)) -> Conn {
        Conn {
            connection,
            listed: Listed::nowhere(NOWHERE),
            stream: None,
            state,
            is_reliable,
            dialled: state == State::Dialing,
            is_heard: false,
            closing_sent: false,
            closing_came: false,
            has_deadline: false,
            record_ns: None,
            leaves_part: false,
            has_space_behind_parts: false,
            active_reads: 0,
            input: Input::new(),
            out: Out::new(),
            mss: 0,
            send_timeout_ns: timeouts_ns.0,
            keepalive_ns: timeouts_ns.1,
            heard_ns: 0,
            pinged_ns: 0,
            moved_ns: 0,
            until_ns: u64::MAX,
            again_ns: u64::MAX,
            unreported: 0,
            messages_sent: 0,
            bytes_sent: 0,
            messages_received: 0,
            bytes_received: 0,
            not_ready: 0,
            peer: None,
            ticket: Ticket { key: 0, secret: [0; 16] },
            second_at: None,
            wants_second: false,
            second: None,
            expected: None,
            hello: Vec::new(),
            request: Vec::new(),
            hello_answer: Vec::new(),
        }
    }

    /// Where the peer is, as far as quotas tell.
    #[inline]
    pub fn host(&self) -> Host {
        Host::of(self.peer)
    }

    /// A header that says how much was taken from the peer.
    #[inline]
    pub fn header(&mut self, kind: Kind, len: u16) -> Header {
        Header { kind, len, ack: self.input.announce() }
    }

    /// Queues a control record, which leaves with the next progress.
    pub fn send_control(&mut self, streams: &mut Streams, kind: Kind) {
        let header = self.header(kind, 0);
        if !self.out.send_control(header, None) {
            // The peer lets too many pile up.
            streams.doom(self.listed.key);
        }
        streams.write_later(&mut self.listed);
    }

    /// Takes a message, and writes it at once if it is alone: a lone message must not wait for the next progress. One behind
    /// others may, and shares their write.
    #[inline]
    pub fn send(
        &mut self,
        shared: &mut Shared,
        core: &mut Core,
        segments: &[&[u8]],
        op: SendOp,
        is_alone: bool,
    ) -> Result<Written, SendError> {
        let lone = self.out.is_quiet() && self.out.lone_poll != shared.pace.polls;
        shared.pace.begin_send(lone, &mut shared.now_ns);
        let len = segments.iter().map(|segment| segment.len()).sum();
        let ack = if lone { self.input.announce() } else { self.input.taken() };
        let deadline_ns = shared.now_ns.saturating_add(self.send_timeout_ns);
        let chunks_max = (shared.chunks.unused() / CHUNKS_SHARE).clamp(CHUNKS_MIN, CHUNKS_MAX);
        if self.out.sends() == 0 {
            self.moved_ns = shared.now_ns;
        }
        let header = Out::message(len, ack);
        let Shared { sends, chunks, .. } = shared;
        if !self.out.has_space(sends, is_alone)
            || !self.out.push(sends, chunks, header, segments, op, deadline_ns, chunks_max)
        {
            return Err(SendError::WouldBlock);
        }
        shared.sends_due_ns = shared.sends_due_ns.min(deadline_ns);
        self.unreported += u32::from(!op.silent);
        self.messages_sent += 1;
        self.bytes_sent += len as u64;
        if lone {
            return Ok(self.write_lone(shared, core));
        }
        shared.streams.write_later(&mut self.listed);
        let is_full = self.out.unwritten_bytes() >= BATCH_BYTES && !self.out.blocked;
        Ok(if is_full && self.out.flow == Flow::Going { self.flush(shared, core) } else { Written::Done })
    }

    #[inline]
    fn write_lone(&mut self, shared: &mut Shared, core: &mut Core) -> Written {
        self.out.lone_poll = shared.pace.polls;
        let Some(stream) = &mut self.stream else { return Written::Done };
        let wrote = self.out.write_lone(stream, &shared.sends);
        shared.counts.lone += 1;
        let is_done = wrote.is_ok() && !self.out.blocked && self.is_reliable;
        if let Ok(wrote) = &wrote {
            shared.counts.writes += wrote.writes;
            shared.counts.bytes_written += wrote.bytes;
        }
        if is_done { Written::Done } else { self.after_write(shared, core, wrote.map(|_| Wrote::default())) }
    }

    /// Writes what waits.
    pub fn flush(&mut self, shared: &mut Shared, core: &mut Core) -> Written {
        let Some(stream) = &mut self.stream else { return Written::Done };
        if matches!(self.state, State::Gone) || self.out.blocked && stream.is_watched_for_space() {
            return Written::Done;
        }
        let wrote = self.out.write(stream, &shared.sends);
        self.after_write(shared, core, wrote)
    }

    /// What follows from a write.
    #[inline]
    fn after_write(&mut self, shared: &mut Shared, core: &mut Core, wrote: io::Result<Wrote>) -> Written {
        let Ok(Wrote { bytes, writes }) = wrote else { return Written::Failed };
        shared.counts.bytes_written += bytes;
        shared.counts.writes += writes;
        shared.counts.batches += u64::from(writes > 0);
        if !self.is_reliable {
            //= wire.md R-TCP-12
            while let Some(send) = self.out.pop_written(&mut shared.sends, &mut shared.chunks) {
                self.complete(core, &send, Status::Success);
            }
        }
        if self.out.blocked && self.stream.as_ref().is_some_and(|stream| stream.lacks_buffer()) {
            // Nobody tells when there is one: it is tried again with the next progress.
            self.out.blocked = false;
            shared.streams.write_later(&mut self.listed);
        }
        self.watch_for_space(core);
        match (self.state, &self.stream) {
            (State::Closing, _) => Written::MayClose,
            (State::Lingering, Some(stream)) if !self.out.wants() && !stream.has_unsent() => {
                // One that fails has nothing to shut down any more.
                let _ = stream.shutdown_write();
                Written::Done
            }
            _ => Written::Done,
        }
    }

    /// Tells the kernel whether to tell when there is room.
    #[inline]
    fn watch_for_space(&mut self, core: &Core) {
        let Some(stream) = &mut self.stream else { return };
        let is_read = stream.interest().is_some();
        if is_read || self.out.blocked && !self.input.is_holding() && self.state != State::PeerClosed {
            let interest = if self.out.blocked { Interest::Both } else { Interest::Read };
            stream.watch(&core.poller, Some(interest));
        }
    }

    /// Has the kernel tell of the stream, if it does not.
    pub fn watch(&mut self, core: &Core) {
        if self.state == State::PeerClosed {
            return;
        }
        let interest = if self.out.blocked { Interest::Both } else { Interest::Read };
        if let Some(stream) = self.stream.as_mut().filter(|stream| stream.interest().is_none()) {
            stream.watch(&core.poller, Some(interest));
        }
    }

    /// The kernel tells of the stream.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.stream.as_ref().is_some_and(|stream| stream.interest().is_some())
    }

    /// The kernel tells when the stream can be written, too.
    #[inline]
    pub fn is_watched_for_space(&self) -> bool {
        self.stream.as_ref().is_some_and(Watched::is_watched_for_space)
    }

    /// Has the kernel tell nothing of the stream.
    pub fn unwatch(&mut self, core: &Core) {
        if let Some(stream) = &mut self.stream {
            stream.watch(&core.poller, None);
        }
    }

    /// When a record of which a part has come has to be whole, on whichever stream that is.
    pub fn record_due_ns(&self, now_ns: u64) -> Option<u64> {
        let second = self.second.as_ref().and_then(|second| second.part_since_ns(now_ns));
        let since_ns = [self.record_ns, second].into_iter().flatten().min()?;
        Some(since_ns.saturating_add(record_ns_max(self.send_timeout_ns)))
    }

    /// A part of a record has come on one of the streams: it has a time from now on.
    #[inline]
    pub fn await_remainder(&mut self, shared: &mut Shared) {
        if !self.listed.is_unfinished() {
            let due_ns = self.record_due_ns(shared.now_ns).unwrap_or(u64::MAX);
            shared.streams.await_remainder(&mut self.listed, due_ns);
        }
    }

    /// From here on messages are dropped, and the peer is told.
    pub fn drop_messages(&mut self, shared: &mut Shared) {
        //= wire.md R-TCP-9
        self.input.take = Take::Dropping;
        shared.counts.not_ready_sent += 1;
        self.send_control(&mut shared.streams, Kind::NotReady);
        shared.streams.starve(&mut self.listed);
    }

    /// Has the kernel notice that the peer's host is gone: by asking it where the connection is idle, and by what it does not
    /// acknowledge. The user timeout counts for both; sends and operations have deadlines of their own, which are sooner.
    //= wire.md R-TCP-27
    pub fn bound_silence(&self) {
        let Some(stream) = &self.stream else { return };
        // Both sides know the ticket, and no two connections have the same.
        let jitter_s = u64::from(self.ticket.secret[0]) % TCP_IDLE_JITTER_S;
        let idle = Duration::from_secs(TCP_IDLE_S + jitter_s);
        let give_up_ms = (TCP_IDLE_S + TCP_IDLE_JITTER_S + TCP_ASK_S * u64::from(TCP_ASKS)) * 1_000;
        let timeout_ms = (self.send_timeout_ns / 1_000_000).saturating_mul(2).clamp(give_up_ms, 86_400_000);
        // A kernel that refuses gives up after its own, longer, time.
        let _ = stream.set_keepalive(idle, Duration::from_secs(TCP_ASK_S), TCP_ASKS);
        let _ = stream.set_user_timeout_ms(u32::try_from(timeout_ms).unwrap_or(u32::MAX));
    }

    /// Asks the peer for a sign of life.
    pub fn ping(&mut self, streams: &mut Streams) {
        //= wire.md R-TCP-16
        let header = self.header(Kind::Ping, 0);
        // One that finds no room is not needed: the peer has enough to answer.
        let _ = self.out.send_control(header, None);
        streams.write_later(&mut self.listed);
    }

    /// Tells the peer that there are receive buffers again, for so many messages. False: it lets too many answers pile up.
    pub fn send_ready(&mut self, shared: &mut Shared, window: u32) -> bool {
        //= wire.md R-TCP-11
        self.input.take = Take::Awaited;
        let header = self.header(Kind::Ready, 4);
        shared.streams.write_later(&mut self.listed);
        self.out.send_control(header, Some(window))
    }

    /// Reads once into `scratch`, behind what was kept. `None`: nothing has come.
    #[inline]
    pub fn read(&mut self, shared: &mut Shared, scratch: &mut [u8]) -> Result<Option<Batch>, ReadError> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        let kept = self.input.kept().len();
        if std::mem::take(&mut self.leaves_part) {
            // Where the system refuses, it tells later than it might.
            let _ = stream.set_wakeup_bytes(1);
        }
        // Where nothing more may be kept, what is not a whole record stays in the kernel, but for what is out of it already.
        let keepers = &mut shared.keepers;
        let keeps =
            keepers.has_plenty() || kept > 0 || stream.has_input() || keepers.has_space(Host::of(self.peer));
        if !keeps && !std::mem::replace(&mut self.has_space_behind_parts, true) {
            stream.make_space_behind_parts();
        }
        let Some((before, space)) = scratch.split_at_mut_checked(kept) else { return Ok(None) };
        let Some(space) = space.get_mut(..READ_BYTES) else { return Ok(None) };
        let got = if keeps { stream.recv_now(space) } else { stream.peek_now(space) };
        shared.counts.reads += 1;
        let len = match got {
            Ok(None) => {
                shared.counts.reads_empty += 1;
                if stream.is_sealed() {
                    self.note_sealed_part(shared);
                }
                return Ok(None);
            }
            Ok(Some(0)) => return Err(ReadError::Ended(DisconnectReason::Died)),
            Ok(Some(len)) => len,
            //= wire.md R-SEC-14
            Err(error) if pipe::is_forgery(&error) => return Err(ReadError::Fault(Fault::Forged)),
            Err(error) => return Err(ReadError::Ended(pipe::reason(&error))),
        };
        if kept > 0 {
            before.copy_from_slice(self.input.kept());
            self.input.drop_kept(&mut shared.keepers);
        }
        shared.counts.bytes_read += len as u64;
        if keeps {
            self.heard_ns = shared.now_ns;
        }
        Ok(Some(Batch { filled: kept + len, fresh: len, keeps }))
    }

    /// Keeps what was read and not dealt with, which is all behind the first `used` bytes. Answers whether something came that
    /// is of use.
    #[inline]
    pub fn keep_remainder(
        &mut self,
        shared: &mut Shared,
        core: &Core,
        scratch: &mut [u8],
        batch: &Batch,
        used: usize,
    ) -> Result<bool, ReadError> {
        let has_sealed_part = self.stream.as_ref().is_some_and(|stream| stream.has_part());
        if used == batch.filled && !has_sealed_part || self.input.is_holding() {
            self.record_ns = None;
        } else if used > 0 || self.record_ns.is_none() {
            self.record_ns = Some(shared.now_ns);
        }
        let is_part = self.record_ns.is_some();
        if batch.keeps {
            let tail = scratch.get(used..batch.filled).unwrap_or_default();
            if !tail.is_empty() && !self.input.keep(&mut shared.keepers, Host::of(self.peer), tail) {
                // What was read can't be put back, nor be asked for again.
                shared.counts.refused_system += 1;
                return Err(ReadError::Ended(DisconnectReason::Refused));
            }
        } else if let Some(stream) = &mut self.stream {
            shared.counts.bytes_read -= (batch.fresh - used) as u64;
            // What was dealt with is taken out of the kernel.
            if !scratch.get_mut(..used).is_some_and(|space| stream.take(space)) {
                return Err(ReadError::Ended(DisconnectReason::Died));
            }
            if used < batch.fresh && is_part {
                // A part of a record stays there. The kernel tells of the rest, or of an end behind it.
                let needed = scratch.get(used..batch.fresh).map_or(1, record_bytes);
                self.leaves_part = stream.set_wakeup_bytes(needed).is_ok();
                self.active_reads = 0;
            }
            if used > 0 {
                self.heard_ns = shared.now_ns;
            }
            if self.leaves_part {
                self.watch(core);
            }
        }
        if is_part {
            self.await_remainder(shared);
        }
        Ok(batch.keeps || used > 0)
    }

    /// Ends sends that are overdue.
    ///
    /// What the peer has refused for want of a buffer is taken back: it ends in RNR, was not delivered, and the connection
    /// lives on. What it has not answered at all ends with `TimedOut`: whether it will be delivered is not known, and the
    /// connection is broken. A peer that goes on taking messages, but has not come so far, gets more time: the send
    /// timeout once more, whatever it says.
    pub fn time_out_sends(&mut self, shared: &mut Shared, core: &mut Core) -> Due {
        let now_ns = shared.now_ns;
        while let Some(deadline_ns) = self.out.oldest(&shared.sends).map(|send| send.deadline_ns) {
            if deadline_ns > now_ns {
                return Due::At(deadline_ns);
            }
            let is_refused = self.out.flow == Flow::Stalled;
            if let Some(send) = self.out.take_back(&mut shared.sends, &mut shared.chunks) {
                //= wire.md R-TCP-10
                let status = if is_refused { Status::ReceiverNotReady } else { Status::TimedOut };
                self.complete(core, &send, status);
                continue;
            }
            //= wire.md R-TCP-17
            let patience_ns = self.moved_ns.min(deadline_ns).saturating_add(self.send_timeout_ns);
            return if patience_ns > now_ns { Due::At(patience_ns) } else { Due::Over };
        }
        Due::Never
    }

    /// Nothing could be read: if that is because a sealed record is not whole, that has a time.
    pub fn note_sealed_part(&mut self, shared: &mut Shared) {
        if self.stream.as_ref().is_some_and(|stream| stream.has_part()) {
            self.record_ns.get_or_insert(shared.now_ns);
            self.await_remainder(shared);
        } else if self.input.kept().is_empty() {
            self.record_ns = None;
        }
    }

    /// A send has ended.
    #[inline]
    pub fn complete(&mut self, core: &mut Core, send: &Send, status: Status) {
        let op = send.op();
        if !op.silent {
            self.unreported = self.unreported.saturating_sub(1);
        }
        core.complete(self.connection, op, status);
    }

    /// Every send ends with this status.
    pub fn end_sends(&mut self, shared: &mut Shared, core: &mut Core, status: Status) {
        while let Some(send) = self.out.abandon(&mut shared.sends, &mut shared.chunks) {
            self.complete(core, &send, status);
        }
    }

    /// The second stream is there, or was.
    pub fn has_second(&self) -> bool {
        self.second.as_ref().is_some_and(|second| second.was_made())
    }

    /// A second stream is in order: once, and not behind CLOSING of either side.
    pub fn second_may_come(&self) -> bool {
        let lives = match self.state {
            State::Accepting | State::Open => true,
            State::Closing => !self.closing_sent,
            State::Dialing | State::PeerClosing | State::PeerClosed | State::Lingering | State::Gone => false,
        };
        lives && self.is_reliable && !self.has_second()
    }

    /// The peer may send messages that we want.
    #[inline]
    pub fn takes_messages(&self) -> bool {
        matches!(self.state, State::Open | State::PeerClosing)
    }
}

/// What all connections share.
pub(super) struct Shared {
    pub sends: Sends,
    pub chunks: Chunks,
    /// Of the memory cap, what sends that wait for room have.
    pub lent: Lent,
    pub counts: Counts,
    /// The clock, as of the last look at it.
    pub now_ns: u64,
    /// No send is overdue before.
    pub sends_due_ns: u64,
    pub keepers: Keepers,
    pub streams: Streams,
    pub pace: Pace,
}

/// The length of the record that begins with `part`, as far as it shows: that of a header at least.
fn record_bytes(part: &[u8]) -> u32 {
    let payload = part.first_chunk::<HEADER_BYTES>().map_or(0, |[l0, l1, ..]| u16::from_le_bytes([*l0, *l1]));
    HEADER_BYTES as u32 + u32::from(payload)
}
