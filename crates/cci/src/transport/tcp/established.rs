//! A connection that has a stream.

use super::base::Base;
use super::counts::Fault;
use super::input::{Input, READ_BYTES, Take};
use super::out::{Flow, Out, Wrote};
use super::pipe;
use super::preamble::Ticket;
use super::second_stream::Second;
use super::sends::Send;
use super::shared::Shared;
use super::streams::Streams;
use super::watched::Watched;
use super::wire::{HEADER_BYTES, Header, Kind};
use crate::connection::{DisconnectReason, Status};
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use crate::limits::{TCP_ASK_S, TCP_ASKS, TCP_IDLE_JITTER_S, TCP_IDLE_S};
use crate::transport::Taken;
use cci_memory::slab::Key;
use cci_sys::event::Interest;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Bytes of queued messages that are written at once, instead of by the next progress.
const BATCH_BYTES: u64 = 48 << 10;
/// Chunks that a connection may always have, if there are any.
const CHUNKS_MIN: u32 = 4;
/// The most chunks that a connection may have: a megabyte.
const CHUNKS_MAX: u32 = 64;
/// A connection may have this part of the unused chunks, between the two limits. So one slow peer does not take all of them.
const CHUNKS_SHARE: u32 = 4;
/// The time that a record may take from its first byte to its last, unless the send timeout is longer. Time in which this side
/// does not read is not counted. So only a peer that stops in the middle of a record exceeds it.
const RECORD_NS_MAX: u64 = if cfg!(test) { 1_500_000_000 } else { 30_000_000_000 };

/// The time that a record may take on a connection with this send timeout.
pub(super) fn record_ns_max(send_timeout_ns: u64) -> u64 {
    RECORD_NS_MAX.max(send_timeout_ns)
}

/// The stage of an established connection. `until_ns` is the deadline of a stage that must end.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// This side has accepted; the peer has not confirmed.
    Accepting {
        until_ns: u64,
    },
    Open,
    /// The peer's program has disconnected. What it sent before may still come.
    PeerClosing,
    /// The peer has closed. What it has answered over the second stream may still come.
    PeerClosed {
        until_ns: u64,
    },
    /// Our program has disconnected. What it sent before is still on its way. `sent` and `came` say whether CLOSING was sent and
    /// has come.
    Closing {
        until_ns: u64,
        sent: bool,
        came: bool,
    },
    /// CLOSE was sent and the program's handle is gone. The peer has not closed its end of the stream yet.
    Lingering {
        until_ns: u64,
    },
}

impl Stage {
    /// Whether any read or write may end the connection.
    #[inline]
    pub fn may_end(self) -> bool {
        matches!(self, Stage::Closing { .. } | Stage::PeerClosed { .. })
    }

    /// Whether this side's program has disconnected.
    pub fn is_left(self) -> bool {
        matches!(self, Stage::Closing { .. } | Stage::Lingering { .. })
    }

    /// Whether received messages are acknowledged.
    pub fn acknowledges(self) -> bool {
        matches!(self, Stage::Open | Stage::PeerClosing | Stage::Closing { .. })
    }

    /// Whether the peer has sent CLOSING.
    pub fn closing_came(self) -> bool {
        matches!(self, Stage::PeerClosing | Stage::Closing { came: true, .. })
    }

    /// The stage's deadline, if it has one.
    pub fn until_ns(self) -> Option<u64> {
        match self {
            Stage::Accepting { until_ns }
            | Stage::PeerClosed { until_ns }
            | Stage::Closing { until_ns, .. }
            | Stage::Lingering { until_ns } => Some(until_ns),
            Stage::Open | Stage::PeerClosing => None,
        }
    }
}

/// The side that dialled.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// This side has dialled. It also dials the second stream, at this address of the peer.
    Dialled {
        second_at: SocketAddr,
    },
    Accepted,
}

/// The result of writing on a connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Written {
    Done,
    /// The stream has failed. There may still be input that the peer sent before.
    Failed,
    /// The connection is closing, and may have reached its next stage.
    MayClose,
}

/// The result of a read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Bytes to handle: those kept from before, and those that have come.
    pub filled: usize,
    /// Bytes that came.
    fresh: usize,
    /// Whether the bytes have left the kernel. If not, only those that are handled leave it.
    pub keeps: bool,
}

/// Input that was read and is not handled yet: everything behind the first `used` bytes of the batch, in the read buffer.
#[derive(Copy, Clone, Debug)]
pub(super) struct Rest {
    pub key: Key,
    pub batch: Batch,
    pub used: usize,
}

/// Why reading has stopped.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    Fault(Fault),
    Ended(DisconnectReason),
}

/// When the next send of a connection is due.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    At(u64),
    /// A send is overdue and can't be taken back, so the connection must end.
    Over,
    /// No send is under way.
    Never,
}

/// A connection with a stream: from when it was accepted until its stream has ended.
pub(super) struct Established {
    pub base: Base,
    pub stream: Watched,
    pub stage: Stage,
    pub side: Side,
    /// Proves that a second stream belongs to this connection. The side that accepted has made it.
    pub ticket: Ticket,
    pub input: Input,
    pub out: Out,
    /// When the first part of an incomplete record of the first stream came.
    pub record_ns: Option<u64>,
    /// Whether that part was left in the kernel, which reports the stream when the record is complete.
    leaves_part: bool,
    /// Whether the kernel was given enough space for the rest of such a record.
    has_space_behind_parts: bool,
    /// How many polls since the last sleep found something by reading this stream directly.
    pub active_reads: u32,
    /// When the peer last sent something, and when it was last asked for a sign of life.
    pub heard_ns: u64,
    pub pinged_ns: u64,
    /// When the peer last took something, or had nothing to take.
    pub moved_ns: u64,
    /// Sends in progress that are not silent.
    pub unreported: u32,
    /// Whether the second stream was requested, or is being dialled.
    pub wants_second: bool,
    /// The second stream and the state of remote memory access.
    pub second: Second,
}

impl Established {
    pub fn new(
        base: Base,
        (stream, out): (Watched, Out),
        stage: Stage,
        side: Side,
        ticket: Ticket,
    ) -> Established {
        Established {
            base,
            stream,
            stage,
            side,
            ticket,
            input: Input::new(),
            out,
            record_ns: None,
            leaves_part: false,
            has_space_behind_parts: false,
            active_reads: 0,
            heard_ns: 0,
            pinged_ns: 0,
            moved_ns: 0,
            unreported: 0,
            wants_second: false,
            second: Second::None,
        }
    }

    /// Makes a header that says how many messages were taken from the peer.
    #[inline]
    pub fn header(&mut self, kind: Kind, len: u16) -> Header {
        Header { kind, len, ack: self.input.announce() }
    }

    /// Queues a control record, which leaves with the next progress.
    pub fn send_control(&mut self, streams: &mut Streams, kind: Kind) {
        let header = self.header(kind, 0);
        if !self.out.send_control(header, None) {
            // The peer lets too many control records pile up.
            streams.doom(self.base.listed.key);
        }
        streams.write_later(&mut self.base.listed);
    }

    /// Sends a message. A message that is alone is written at once, since it must not wait for the next progress. One behind
    /// others may wait, and shares their write.
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
        let deadline_ns = shared.now_ns.saturating_add(self.base.send_timeout_ns);
        let chunks_max = (shared.chunks.unused() / CHUNKS_SHARE).clamp(CHUNKS_MIN, CHUNKS_MAX);
        if self.out.sends() == 0 {
            self.moved_ns = shared.now_ns;
        }
        let header = Out::message(len, self.input.taken());
        let Shared { sends, chunks, .. } = shared;
        if !self.out.has_space(sends, is_alone)
            || !self.out.push(sends, chunks, header, segments, op, deadline_ns, chunks_max)
        {
            return Err(SendError::WouldBlock);
        }
        shared.sends_due_ns = shared.sends_due_ns.min(deadline_ns);
        self.unreported += u32::from(!op.silent);
        self.base.messages_sent += 1;
        self.base.bytes_sent += len as u64;
        if lone {
            self.input.announce();
            return Ok(self.write_lone(shared, core));
        }
        Ok(self.write_behind_others(shared, core))
    }

    /// Sends messages of a burst, from the first on, until there is no space or one is longer than `mss`. They are written at
    /// once where a lone message would be.
    pub fn send_burst(
        &mut self,
        shared: &mut Shared,
        core: &mut Core,
        (messages, mss): (&[&[u8]], u32),
        op: SendOp,
        is_alone: bool,
    ) -> (Taken, Written) {
        let lone = self.out.is_quiet() && self.out.lone_poll != shared.pace.polls;
        shared.pace.begin_send(true, &mut shared.now_ns);
        let deadline_ns = shared.now_ns.saturating_add(self.base.send_timeout_ns);
        let chunks_max = (shared.chunks.unused() / CHUNKS_SHARE).clamp(CHUNKS_MIN, CHUNKS_MAX);
        if self.out.sends() == 0 {
            self.moved_ns = shared.now_ns;
        }
        let space = (self.out.space(&shared.sends, is_alone) as usize).min(messages.len());
        let mut taken = Taken::default();
        while let Some(rest @ [first, ..]) = messages.get(taken.messages as usize..space)
            && first.len() <= mss as usize
        {
            let tables = (&mut shared.sends, &mut shared.chunks);
            let more = self.out.push_burst(tables, self.input.taken(), rest, op, deadline_ns, chunks_max);
            if more.messages == 0 {
                break;
            }
            taken.messages += more.messages;
            taken.bytes += more.bytes;
        }
        if taken.messages == 0 {
            return (taken, Written::Done);
        }
        shared.sends_due_ns = shared.sends_due_ns.min(deadline_ns);
        self.unreported += if op.silent { 0 } else { taken.messages };
        self.base.messages_sent += u64::from(taken.messages);
        self.base.bytes_sent += taken.bytes;
        if lone {
            self.out.lone_poll = shared.pace.polls;
            self.input.announce();
            return (taken, self.flush(shared, core));
        }
        (taken, self.write_behind_others(shared, core))
    }

    /// Writes what was queued, unless more messages can share the write.
    #[inline(always)]
    fn write_behind_others(&mut self, shared: &mut Shared, core: &mut Core) -> Written {
        shared.streams.write_later(&mut self.base.listed);
        let is_full = self.out.unwritten_bytes() >= BATCH_BYTES && !self.out.blocked;
        if is_full && self.out.flow == Flow::Going { self.flush(shared, core) } else { Written::Done }
    }

    #[inline]
    fn write_lone(&mut self, shared: &mut Shared, core: &mut Core) -> Written {
        self.out.lone_poll = shared.pace.polls;
        let wrote = self.out.write_lone(&mut self.stream, &shared.sends);
        shared.counts.lone += 1;
        let is_done = wrote.is_ok() && !self.out.blocked && self.base.is_reliable;
        if let Ok(wrote) = &wrote {
            shared.counts.writes += wrote.writes;
            shared.counts.bytes_written += wrote.bytes;
        }
        if is_done { Written::Done } else { self.after_write(shared, core, wrote.map(|_| Wrote::default())) }
    }

    /// Writes what waits.
    pub fn flush(&mut self, shared: &mut Shared, core: &mut Core) -> Written {
        if self.out.blocked && self.stream.is_watched_for_space() {
            return Written::Done;
        }
        let wrote = self.out.write(&mut self.stream, &shared.sends);
        self.after_write(shared, core, wrote)
    }

    /// Handles the result of a write.
    #[inline]
    fn after_write(&mut self, shared: &mut Shared, core: &mut Core, wrote: io::Result<Wrote>) -> Written {
        let Ok(Wrote { bytes, writes }) = wrote else { return Written::Failed };
        shared.counts.bytes_written += bytes;
        shared.counts.writes += writes;
        shared.counts.batches += u64::from(writes > 0);
        if !self.base.is_reliable {
            //= wire.md R-TCP-12
            while let Some(send) = self.out.pop_written(&mut shared.sends, &mut shared.chunks, u32::MAX) {
                self.complete(core, &send, Status::Success);
            }
        }
        if self.out.blocked && self.stream.lacks_buffer() {
            // Nobody reports that a buffer is free, so the next progress tries again.
            self.out.blocked = false;
            shared.streams.write_later(&mut self.base.listed);
        }
        self.watch_for_space(core);
        match self.stage {
            Stage::Closing { .. } => return Written::MayClose,
            Stage::Lingering { .. } if !self.out.wants() && !self.stream.has_unsent() => {
                // If this fails, the stream is closed already.
                let _ = self.stream.shutdown_write();
            }
            _ => {}
        }
        Written::Done
    }

    /// Changes whether the kernel reports that the stream has space.
    #[inline]
    fn watch_for_space(&mut self, core: &Core) {
        let is_read = self.stream.interest().is_some();
        if is_read || self.out.blocked && !self.input.is_holding() && !self.is_peer_closed() {
            self.stream.watch(&core.poller, Some(self.interest()));
        }
    }

    /// Has the kernel report the stream, if it does not yet.
    pub fn watch(&mut self, core: &Core) {
        if self.stream.interest().is_none() && !self.is_peer_closed() {
            self.stream.watch(&core.poller, Some(self.interest()));
        }
    }

    #[inline]
    fn interest(&self) -> Interest {
        if self.out.blocked { Interest::Both } else { Interest::Read }
    }

    /// Whether the peer has closed, so that nothing more is read or written.
    #[inline]
    fn is_peer_closed(&self) -> bool {
        matches!(self.stage, Stage::PeerClosed { .. })
    }

    /// Stops the kernel from reporting the stream.
    pub fn unwatch(&mut self, core: &Core) {
        self.stream.watch(&core.poller, None);
    }

    /// The deadline of an incomplete record, on whichever stream it came.
    pub fn record_due_ns(&self, now_ns: u64) -> Option<u64> {
        let second = self.second.get().and_then(|second| second.part_since_ns(now_ns));
        let since_ns = [self.record_ns, second].into_iter().flatten().min()?;
        Some(since_ns.saturating_add(record_ns_max(self.base.send_timeout_ns)))
    }

    /// Gives an incomplete record a deadline.
    #[inline]
    pub fn await_remainder(&mut self, shared: &mut Shared) {
        if !self.base.listed.is_unfinished() {
            let due_ns = self.record_due_ns(shared.now_ns).unwrap_or(u64::MAX);
            shared.streams.await_remainder(&mut self.base.listed, due_ns);
        }
    }

    /// Drops messages from now on, and informs the peer.
    pub fn drop_messages(&mut self, shared: &mut Shared) {
        //= wire.md R-TCP-9
        self.input.take = Take::Dropping;
        shared.counts.not_ready_sent += 1;
        self.send_control(&mut shared.streams, Kind::NotReady);
        shared.streams.starve(&mut self.base.listed);
    }

    /// Has the kernel notice that the peer's host is gone: by asking it where the connection is idle, and by what it does not
    /// acknowledge. The user timeout counts for both; sends and operations have deadlines of their own, which are sooner.
    //= wire.md R-TCP-27
    pub fn bound_silence(&self) {
        // Both sides know the ticket, and no two connections have the same.
        let jitter_s = u64::from(self.ticket.secret[0]) % TCP_IDLE_JITTER_S;
        let idle = Duration::from_secs(TCP_IDLE_S + jitter_s);
        let give_up_ms = (TCP_IDLE_S + TCP_IDLE_JITTER_S + TCP_ASK_S * u64::from(TCP_ASKS)) * 1_000;
        let timeout_ms =
            (self.base.send_timeout_ns / 1_000_000).saturating_mul(2).clamp(give_up_ms, 86_400_000);
        // A kernel that refuses gives up after its own, longer, time.
        let _ = self.stream.set_keepalive(idle, Duration::from_secs(TCP_ASK_S), TCP_ASKS);
        let _ = self.stream.set_user_timeout_ms(u32::try_from(timeout_ms).unwrap_or(u32::MAX));
    }

    /// Asks the peer for a sign of life if it is silent; answers whether it has given none for the connection's keepalive time.
    ///
    /// Silent is who was asked and did not answer. When the program has not polled for a while, nobody was asked; while
    /// messages are held here, no answer gets through.
    pub fn ask_if_silent(&mut self, streams: &mut Streams, now_ns: u64) -> bool {
        let limit_ns = self.base.keepalive_ns;
        let (silent_ns, asked_ns) =
            (now_ns.saturating_sub(self.heard_ns), now_ns.saturating_sub(self.pinged_ns));
        let was_asked =
            self.pinged_ns > self.heard_ns && asked_ns >= limit_ns / 4 && !self.input.is_holding();
        if silent_ns >= limit_ns && was_asked {
            return true;
        }
        if silent_ns >= limit_ns / 2 && asked_ns >= limit_ns / 2 {
            self.pinged_ns = now_ns;
            //= wire.md R-TCP-16
            let header = self.header(Kind::Ping, 0);
            // One that finds no space is not needed: the peer has enough to answer.
            let _ = self.out.send_control(header, None);
            streams.write_later(&mut self.base.listed);
        }
        false
    }

    /// Informs the peer that there are receive buffers again, for so many messages. Returns false if it lets too many answers pile up.
    pub fn send_ready(&mut self, shared: &mut Shared, window: u32) -> bool {
        //= wire.md R-TCP-11
        self.input.take = Take::Awaited;
        let header = self.header(Kind::Ready, 4);
        shared.streams.write_later(&mut self.base.listed);
        self.out.send_control(header, Some(window))
    }

    /// Reads once into `scratch`, behind what was kept. `None`: nothing has come.
    #[inline(always)]
    pub fn read(&mut self, shared: &mut Shared, scratch: &mut [u8]) -> Result<Option<Batch>, ReadError> {
        let stream = &mut self.stream;
        let kept = self.input.kept().len();
        if std::mem::take(&mut self.leaves_part) {
            // If the system refuses, it reports the stream later than it could.
            let _ = stream.set_wakeup_bytes(1);
        }
        // Where nothing more may be kept, what is not a whole record stays in the kernel, but for what is out of it already.
        let keepers = &mut shared.keepers;
        let keeps =
            keepers.has_plenty() || kept > 0 || stream.has_input() || keepers.has_space(self.base.host());
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

    /// Keeps what was read and not dealt with, which is all behind the first `used` bytes. Returns whether something came that
    /// is of use.
    #[inline(always)]
    pub fn keep_remainder(
        &mut self,
        shared: &mut Shared,
        core: &Core,
        scratch: &mut [u8],
        batch: &Batch,
        used: usize,
    ) -> Result<bool, ReadError> {
        let has_sealed_part = self.stream.has_part();
        if used == batch.filled && !has_sealed_part || self.input.is_holding() {
            self.record_ns = None;
        } else if used > 0 || self.record_ns.is_none() {
            self.record_ns = Some(shared.now_ns);
        }
        let is_part = self.record_ns.is_some();
        if batch.keeps {
            let tail = scratch.get(used..batch.filled).unwrap_or_default();
            if !tail.is_empty() && !self.input.keep(&mut shared.keepers, self.base.host(), tail) {
                // What was read can't be put back, nor be asked for again.
                shared.counts.refused_system += 1;
                return Err(ReadError::Ended(DisconnectReason::Refused));
            }
        } else {
            shared.counts.bytes_read -= (batch.fresh - used) as u64;
            // What was dealt with is taken out of the kernel.
            if !scratch.get_mut(..used).is_some_and(|space| self.stream.take(space)) {
                return Err(ReadError::Ended(DisconnectReason::Died));
            }
            if used < batch.fresh && is_part {
                // A part of a record stays there. The kernel reports the rest, or the end of the stream behind it.
                let needed = scratch.get(used..batch.fresh).map_or(1, record_bytes);
                self.leaves_part = self.stream.set_wakeup_bytes(needed).is_ok();
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
            let patience_ns = self.moved_ns.min(deadline_ns).saturating_add(self.base.send_timeout_ns);
            return if patience_ns > now_ns { Due::At(patience_ns) } else { Due::Over };
        }
        Due::Never
    }

    /// Called when nothing could be read: gives a sealed record that is incomplete a deadline.
    pub fn note_sealed_part(&mut self, shared: &mut Shared) {
        if self.stream.has_part() {
            self.record_ns.get_or_insert(shared.now_ns);
            self.await_remainder(shared);
        } else if self.input.kept().is_empty() {
            self.record_ns = None;
        }
    }

    /// Completes a run of sends.
    #[inline]
    pub fn complete(&mut self, core: &mut Core, send: &Send, status: Status) {
        let op = send.op();
        if !op.silent {
            self.unreported = self.unreported.saturating_sub(send.count);
        }
        core.complete_run(self.base.connection, op, status, send.count);
    }

    /// Completes every send with this status.
    pub fn end_sends(&mut self, shared: &mut Shared, core: &mut Core, status: Status) {
        while let Some(send) = self.out.abandon(&mut shared.sends, &mut shared.chunks) {
            self.complete(core, &send, status);
        }
    }

    pub fn has_dialled(&self) -> bool {
        matches!(self.side, Side::Dialled { .. })
    }

    /// Gives back what the stream holds, and completes its sends with this status.
    pub fn end(&mut self, shared: &mut Shared, core: &mut Core, status: Status) {
        self.unwatch(core);
        self.input.drop_kept(&mut shared.keepers);
        self.end_sends(shared, core, status);
    }

    /// Whether a second stream may come: only one, and not behind CLOSING of either side.
    pub fn second_may_come(&self) -> bool {
        let lives = match self.stage {
            Stage::Accepting { .. } | Stage::Open => true,
            Stage::Closing { sent, .. } => !sent,
            Stage::PeerClosing | Stage::PeerClosed { .. } | Stage::Lingering { .. } => false,
        };
        lives && self.base.is_reliable && !self.second.was_made()
    }

    /// Of the messages that this side has sent, how many the peer has taken.
    #[inline]
    pub fn messages_taken(&self) -> u64 {
        self.base.messages_sent.saturating_sub(u64::from(self.out.sends()))
    }

    /// Whether this side's program still wants messages of the peer.
    #[inline]
    pub fn takes_messages(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::PeerClosing)
    }
}

/// The length of the record that begins with `part`, as far as it shows: that of a header at least.
fn record_bytes(part: &[u8]) -> u32 {
    let payload = part.first_chunk::<HEADER_BYTES>().map_or(0, |[l0, l1, ..]| u16::from_le_bytes([*l0, *l1]));
    HEADER_BYTES as u32 + u32::from(payload)
}
