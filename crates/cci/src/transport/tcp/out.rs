//! The sending side of a connection: what waits to be written, and what was written and is not acknowledged.
//!
//! Messages are stored in a [`Queue`] as records, from the first unacknowledged one on. Each has its entry in [`Sends`]. Control
//! records, such as acknowledgements, are stored in `control` and are written between two messages.

use super::pipe::Pipe;
use super::sends::{Fifo, NIL, Send, Sends};
use super::wire::{Fault, HEADER_BYTES, Header, Kind, RECORD_BYTES_MAX};
use crate::engine::chunks::{Chunks, PARTS_MAX, Queue};
use crate::engine::core::SendOp;
use crate::transport::Taken;
use std::io::{self, ErrorKind, IoSlice};

/// The most bytes of control records, for a peer that requests answers and does not read them; and the rest of a message that was
/// begun.
const CONTROL_BYTES_MAX: usize = (4 << 10) + RECORD_BYTES_MAX;
/// The window before the peer has set one.
pub(super) const UNLIMITED: u32 = u32::MAX;

/// Whether messages may be written.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Going,
    /// The peer has dropped everything that it has not acknowledged, since it lacks a buffer. It will send READY when it has one.
    Stalled,
}

/// Outgoing messages and control records of a connection.
pub(super) struct Out {
    queue: Queue,
    fifo: Fifo,
    /// The position up to which messages were written.
    written: u64,
    /// The run of the first record that was not written completely, and where that record begins. NIL if all were.
    next: u32,
    next_at: u64,
    /// How many records of that run were written completely and are not acknowledged.
    next_of_run: u32,
    /// Messages that were written and not acknowledged.
    in_flight: u32,
    /// How many messages may be written and not acknowledged.
    window: u32,
    control: Vec<u8>,
    control_written: usize,
    /// Where the last control record begins, if it is an acknowledgement.
    ack_at: Option<usize>,
    pub flow: Flow,
    /// Whether the kernel took less than it was given. Then nothing is written until it has space.
    pub blocked: bool,
    /// The poll after which a message was last written alone.
    pub lone_poll: u32,
}

/// The result of a write.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Wrote {
    pub bytes: u64,
    pub writes: u64,
}

impl Out {
    pub const fn new() -> Out {
        Out {
            queue: Queue::new(),
            fifo: Fifo::new(),
            written: 0,
            next: NIL,
            next_at: 0,
            next_of_run: 0,
            in_flight: 0,
            window: UNLIMITED,
            control: Vec::new(),
            control_written: 0,
            ack_at: None,
            flow: Flow::Going,
            blocked: false,
            lone_poll: 0,
        }
    }

    /// Sends that have not completed.
    #[inline]
    pub fn sends(&self) -> u32 {
        self.fifo.len()
    }

    /// Whether the table of sends has space for one more.
    #[inline]
    pub fn has_space(&self, sends: &Sends, is_alone: bool) -> bool {
        sends.has_space_for(&self.fifo, is_alone)
    }

    /// Whether the peer has no free receive buffer.
    pub fn is_refused(&self) -> bool {
        self.flow == Flow::Stalled || self.window != UNLIMITED && self.in_flight >= self.window
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether nothing waits to be written.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        self.next == NIL && self.control.is_empty() && self.may_write_messages() && !self.blocked
    }

    /// Whether something waits that may be written.
    pub fn wants(&self) -> bool {
        !self.control.is_empty() || self.is_mid_record() || self.next != NIL && self.may_write_messages()
    }

    /// Bytes of messages that were not written yet.
    pub fn unwritten_bytes(&self) -> u64 {
        self.queue.tail() - self.written
    }

    fn may_write_messages(&self) -> bool {
        self.flow == Flow::Going && self.in_flight < self.window
    }

    fn is_mid_record(&self) -> bool {
        self.next != NIL && self.written > self.next_at
    }

    /// Appends a message; [`Out::has_space`] was true. Returns false if there is no space for its bytes.
    // Always: it is in the way of every message, and has two callers.
    #[inline(always)]
    #[allow(clippy::too_many_arguments, reason = "what it takes from its owner, who has it all")]
    pub fn push(
        &mut self,
        sends: &mut Sends,
        chunks: &mut Chunks,
        header: Header,
        segments: &[&[u8]],
        op: SendOp,
        deadline_ns: u64,
        chunks_max: u32,
    ) -> bool {
        let record_bytes = HEADER_BYTES + usize::from(header.len);
        if !self.queue.reserve(chunks, record_bytes, chunks_max) {
            return false;
        }
        let at_position = self.queue.tail();
        self.queue.push(&header.bytes());
        for segment in segments {
            self.queue.push(segment);
        }
        let at = sends.push(&mut self.fifo, op, (record_bytes as u32, 1), deadline_ns);
        if self.next == NIL {
            (self.next, self.next_at) = (at, at_position);
        }
        true
    }

    /// How many more messages the table of sends has space for.
    pub fn space(&self, sends: &Sends, is_alone: bool) -> u32 {
        sends.space_for(&self.fifo, is_alone)
    }

    /// Appends messages of a burst as one run: those that have the length of the first and fit into one chunk. Takes none if
    /// there is no space for the first. The caller has checked their number with [`Out::space`].
    #[inline(never)]
    pub fn push_burst(
        &mut self,
        (sends, chunks): (&mut Sends, &mut Chunks),
        ack: u32,
        messages: &[&[u8]],
        op: SendOp,
        deadline_ns: u64,
        chunks_max: u32,
    ) -> Taken {
        let Some(first) = messages.first() else { return Taken::default() };
        let header = Out::message(first.len(), ack);
        let record_bytes = HEADER_BYTES + first.len();
        if !self.queue.reserve(chunks, record_bytes, chunks_max) {
            return Taken::default();
        }
        let at_position = self.queue.tail();
        let count = self.queue.push_alike(header.bytes(), messages);
        if count == 0 {
            // The first message crosses into the next chunk.
            let is_taken = self.push(sends, chunks, header, &[first], op, deadline_ns, chunks_max);
            return Taken { messages: u32::from(is_taken), bytes: first.len() as u64 };
        }
        let at = sends.push(&mut self.fifo, op, (record_bytes as u32, count), deadline_ns);
        if self.next == NIL {
            (self.next, self.next_at) = (at, at_position);
        }
        Taken { messages: count, bytes: u64::from(count) * first.len() as u64 }
    }

    /// Writes the only message that waits. The caller has checked [`Out::is_quiet`] before it pushed the message.
    #[inline]
    pub fn write_lone(&mut self, stream: &mut Pipe, sends: &Sends) -> io::Result<Wrote> {
        if stream.has_unsent() {
            return self.write(stream, sends);
        }
        let run = self.queue.run(self.written, self.queue.tail());
        if self.written + run.len() as u64 != self.queue.tail() {
            return self.write(stream, sends);
        }
        match stream.send(run) {
            Ok(len) => {
                self.advance(len as u64, sends);
                self.blocked = self.written < self.queue.tail() || stream.has_unsent();
                Ok(Wrote { bytes: len as u64, writes: 1 })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.blocked = true;
                Ok(Wrote { bytes: 0, writes: 1 })
            }
            Err(error) => Err(error),
        }
    }

    /// Queues a control record. Returns false if the peer lets too many pile up.
    pub fn send_control(&mut self, header: Header, number: Option<u32>) -> bool {
        // If the last control record is an acknowledgement that was not written yet, a new one replaces it. An honest peer may
        // read nothing for a long time while it still sends.
        if let Some(at) = self.ack_at.take().filter(|at| *at >= self.control_written)
            && header.kind == Kind::Ack
        {
            self.control.truncate(at);
        }
        if self.control.len() - self.control_written >= CONTROL_BYTES_MAX {
            return false;
        }
        if self.control_written >= CONTROL_BYTES_MAX {
            self.control.drain(..self.control_written);
            self.control_written = 0;
        }
        self.ack_at = (header.kind == Kind::Ack).then_some(self.control.len());
        self.control.extend_from_slice(&header.bytes());
        if let Some(number) = number {
            self.control.extend_from_slice(&number.to_le_bytes());
        }
        true
    }

    /// Queues bytes of a handshake, which are sent before everything else.
    pub fn send_first(&mut self, bytes: &[u8]) {
        self.ack_at = None;
        self.control.extend_from_slice(bytes);
    }

    /// Writes what may be written, as much as the kernel has space for.
    pub fn write(&mut self, stream: &mut Pipe, sends: &Sends) -> io::Result<Wrote> {
        let mut done = Wrote::default();
        self.blocked = !stream.flush()?;
        while !self.blocked && self.wants() {
            match self.write_once(stream, sends) {
                Ok((len, wanted)) => {
                    done.bytes += len as u64;
                    done.writes += 1;
                    self.blocked = len < wanted || stream.has_unsent();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    done.writes += 1;
                    self.blocked = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes once: the rest of a record that was begun, or control records and complete messages behind them. Returns how many
    /// bytes were written, and how many there were.
    fn write_once(&mut self, stream: &mut Pipe, sends: &Sends) -> io::Result<(usize, usize)> {
        let mut parts = [IoSlice::new(&[]); PARTS_MAX];
        let control = self.control.get(self.control_written..).unwrap_or_default();
        let (mut count, mut control_bytes) = (0, 0);
        let mut to = self.written;
        if self.is_mid_record() && !control.is_empty() {
            //= wire.md R-TCP-5
            to = self.next_at + sends.get(self.next).map_or(0, |send| u64::from(send.record_bytes));
        } else {
            if let Some(part) = parts.first_mut().filter(|_| !control.is_empty()) {
                *part = IoSlice::new(control);
                (count, control_bytes) = (1, control.len());
            }
            if self.next != NIL && (self.may_write_messages() || self.is_mid_record()) {
                to = self.window_end(sends);
            }
        }
        count += self.queue.parts(self.written, to, parts.get_mut(count..).unwrap_or_default());
        let parts = parts.get(..count).unwrap_or_default();
        let wanted = parts.iter().map(|part| part.len()).sum();
        let len = match parts {
            [one] => stream.send(one)?,
            many => stream.send_vectored(many)?,
        };
        let of_control = len.min(control_bytes);
        self.control_written += of_control;
        if self.control_written == self.control.len() {
            self.control.clear();
            (self.control_written, self.ack_at) = (0, None);
        }
        self.advance((len - of_control) as u64, sends);
        Ok((len, wanted))
    }

    /// The position up to which messages may be written.
    fn window_end(&self, sends: &Sends) -> u64 {
        let remaining = if self.flow == Flow::Going { self.window.saturating_sub(self.in_flight) } else { 0 };
        if remaining >= self.fifo.len() {
            return self.queue.tail();
        }
        let mut remaining = remaining.max(u32::from(self.is_mid_record()));
        let (mut at, mut of_run, mut end) = (self.next, self.next_of_run, self.next_at);
        while remaining > 0
            && let Some(send) = sends.get(at)
        {
            let count = remaining.min(send.count - of_run);
            end += u64::from(send.record_bytes) * u64::from(count);
            remaining -= count;
            (at, of_run) = (send.next, 0);
        }
        end
    }

    /// Notes that this many bytes of messages were written.
    #[inline]
    fn advance(&mut self, bytes: u64, sends: &Sends) {
        self.written += bytes;
        while let Some(send) = sends.get(self.next) {
            let record_bytes = u64::from(send.record_bytes);
            let end = self.next_at + record_bytes;
            if end > self.written {
                break;
            }
            let unwritten = send.count - self.next_of_run;
            let is_whole = self.next_at + record_bytes * u64::from(unwritten) <= self.written;
            let count =
                if is_whole { unwritten } else { ((self.written - self.next_at) / record_bytes) as u32 };
            self.next_at += record_bytes * u64::from(count);
            self.in_flight += count;
            if is_whole {
                (self.next, self.next_of_run) = (send.next, 0);
            } else {
                self.next_of_run += count;
            }
        }
    }

    /// Removes the oldest send if it was written completely, with at most `max` sends of its run. They were acknowledged, or need
    /// not be.
    #[inline(always)]
    pub fn pop_written(&mut self, sends: &mut Sends, chunks: &mut Chunks, max: u32) -> Option<Send> {
        let max = max.min(self.in_flight);
        if max == 0 {
            return None;
        }
        let is_next = self.fifo.first() == self.next;
        let send = sends.pop(&mut self.fifo, max)?;
        self.in_flight -= send.count;
        if is_next {
            self.next_of_run -= send.count;
        }
        self.queue.release(chunks, self.queue.head() + send.bytes());
        Some(send)
    }

    /// Notes that the peer has taken `count` more messages, so that as many more may be written.
    pub fn acked(&mut self, count: u32) -> Result<(), Fault> {
        //= wire.md R-TCP-7
        if count > self.in_flight {
            return Err(Fault);
        }
        self.window = self.window.saturating_add(count);
        Ok(())
    }

    /// Notes that the peer has dropped everything that it has not acknowledged.
    pub fn dropped(&mut self, sends: &Sends) -> Result<(), Fault> {
        //= wire.md R-TCP-10
        if self.flow == Flow::Stalled || self.in_flight == 0 && !self.is_mid_record() {
            return Err(Fault);
        }
        if self.is_mid_record() {
            // A record that was begun is written to its end before everything else, since the peer counts bytes.
            let end = self.next_at + sends.get(self.next).map_or(0, |send| u64::from(send.record_bytes));
            let mut remainder = Vec::with_capacity((end - self.written) as usize + self.control.len());
            let mut parts = [IoSlice::new(&[]); 4];
            let count = self.queue.parts(self.written, end, &mut parts);
            parts.iter().take(count).for_each(|part| remainder.extend_from_slice(part));
            remainder.extend_from_slice(self.control.get(self.control_written..).unwrap_or_default());
            (self.control, self.control_written, self.ack_at) = (remainder, 0, None);
        }
        self.flow = Flow::Stalled;
        self.rewind();
        Ok(())
    }

    /// Marks all messages as not written.
    fn rewind(&mut self) {
        self.written = self.queue.head();
        self.next_at = self.written;
        (self.next, self.next_of_run) = (self.fifo.first(), 0);
        self.in_flight = 0;
    }

    /// Writes messages again, as many as the peer has receive buffers for. The caller has queued RESUME.
    pub fn resume(&mut self, window: u32) {
        self.flow = Flow::Going;
        self.window = window.max(1);
        // A control record behind half of a message would be in the middle of it. There is no such half, since everything was
        // rewound.
        debug_assert!(!self.is_mid_record());
    }

    /// Removes the oldest send if none of its bytes was sent. The peer will never see it.
    pub fn take_back(&mut self, sends: &mut Sends, chunks: &mut Chunks) -> Option<Send> {
        if self.in_flight > 0 || self.is_mid_record() {
            return None;
        }
        let send = sends.pop(&mut self.fifo, 1)?;
        self.queue.release(chunks, self.queue.head() + send.bytes());
        self.rewind();
        Some(send)
    }

    /// Removes every send, one run with each call, since the connection has ended for them. The rest of a record that was begun
    /// is lost.
    pub fn abandon(&mut self, sends: &mut Sends, chunks: &mut Chunks) -> Option<Send> {
        let send = sends.pop(&mut self.fifo, u32::MAX)?;
        self.queue.release(chunks, self.queue.head() + send.bytes());
        if self.fifo.len() == 0 {
            self.rewind();
        }
        Some(send)
    }

    /// Keeps the rest of a record that was begun. Called before [`Out::abandon`] on a stream that goes on.
    pub fn keep_begun(&mut self, sends: &Sends) {
        if self.is_mid_record() && self.flow == Flow::Going {
            // This can't fail: a record was begun, and the flow is going.
            let _ = self.dropped(sends);
            self.flow = Flow::Going;
        }
    }

    /// The oldest send.
    pub fn oldest<'a>(&self, sends: &'a Sends) -> Option<&'a Send> {
        sends.oldest(&self.fifo)
    }

    pub fn bring_forward(&self, sends: &mut Sends, deadline_ns: u64) {
        sends.bring_forward(&self.fifo, deadline_ns);
    }

    /// The header of a message.
    pub fn message(len: usize, ack: u32) -> Header {
        // The engine has checked it against the agreed length.
        Header { kind: Kind::Message, len: u16::try_from(len).unwrap_or(u16::MAX), ack }
    }

    /// Bytes held, without the chunks.
    pub fn bytes(&self) -> usize {
        self.queue.bytes() + self.control.capacity()
    }
}

#[cfg(test)]
mod tests;
