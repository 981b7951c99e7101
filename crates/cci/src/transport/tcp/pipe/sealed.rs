//! The sealed kind of pipe: its handshake, and its output. [`Input`] is its input.

use super::Security;
use super::input::{Input, Source, no_place, put, would_block};
use super::pool::{Buffer, Lender};
use crate::transport::quota::Host;
use cci_memory::bytes::Bytes;
use cci_secure::limits::{RECORD_BODY_BYTES_MAX, RECORD_HEADER_BYTES, RECORD_OVERHEAD_BYTES};
use cci_secure::{EndpointId, Failure, Identity, Rights, STREAM_MAGIC, SealedStream};
use cci_sys::clock;
use cci_sys::tcp::Stream;
use std::io::{self, ErrorKind};
use std::ops::Deref;

/// How many bytes are read after a part that has ended the handshake, before the stream is closed.
const DRAINED_BYTES: usize = 4096;

/// State of a sealed stream: its keys, and what waits to be sent or passed on.
pub(super) struct Sealed {
    /// `None` if the peer's stream is plain, which this endpoint allows.
    stream: Option<SealedStream>,
    /// Whether the stream was accepted and its first bytes have not shown yet whether it is plain, which is allowed.
    undecided: bool,
    lender: Lender,
    /// Sealed records that the kernel has not taken yet.
    out: Option<Buffer>,
    /// Whether there was no buffer to seal into.
    lacks_buffer: bool,
    /// Input that was not passed on yet.
    input: Input,
    /// The part of the handshake that is being read.
    part: Vec<u8>,
}

fn refused(failure: Failure) -> io::Error {
    io::Error::other(failure)
}

/// The failure if a stream ends before the handshake is over. A peer refuses this side by such an end.
fn unwanted() -> Failure {
    Failure::Certificate("the peer ended the handshake: it does not accept this side".to_owned())
}

impl Sealed {
    pub fn dial(security: &Security, expected: Option<&str>, host: Host) -> Result<Sealed, Failure> {
        let stream = SealedStream::dial(&security.config, expected)?;
        Ok(Sealed::new(stream, Lender::new(&security.pool, host, true), false))
    }

    pub fn answer(security: &Security, host: Host) -> Sealed {
        let stream = SealedStream::answer(&security.config);
        Sealed::new(stream, Lender::new(&security.pool, host, false), !security.sealing.required)
    }

    fn new(stream: SealedStream, lender: Lender, undecided: bool) -> Sealed {
        Sealed {
            stream: Some(stream),
            undecided,
            lender,
            out: None,
            lacks_buffer: false,
            input: Input::default(),
            part: Vec::new(),
        }
    }

    /// Whether the peer has no security, which this endpoint allows.
    pub fn is_plain(&self) -> bool {
        self.stream.is_none()
    }

    /// Marks the connection as wanted by this side's program.
    pub fn want(&mut self) {
        self.lender.is_wanted = true;
    }

    pub fn peer(&self) -> Option<(&Identity, Rights)> {
        self.stream.as_ref()?.peer()
    }

    /// The peer's endpoint, once it is proved.
    pub fn peer_endpoint(&self) -> Option<EndpointId> {
        self.stream.as_ref()?.peer_endpoint()
    }

    pub fn is_open(&self) -> bool {
        self.stream.as_ref().is_none_or(SealedStream::is_open)
    }

    pub fn has_unsent(&self) -> bool {
        self.out.is_some() || self.stream.as_ref().is_some_and(|stream| stream.has_outgoing())
    }

    /// Whether nothing could be sealed because a buffer was lacking. The kernel does not report when there is one.
    pub fn lacks_buffer(&self) -> bool {
        self.lacks_buffer
    }

    /// Gives waiting bytes to the kernel. Returns false if the kernel has no space for all of them.
    pub fn flush(&mut self, to: &Stream) -> io::Result<bool> {
        if let Some(stream) = &mut self.stream {
            while stream.has_outgoing() {
                match to.send(stream.outgoing()) {
                    Ok(len) => drop(stream.outgoing().drain(..len)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
        }
        while let Some(out) = &mut self.out {
            match to.send(out.filled()) {
                Ok(len) => out.at += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if out.is_empty()
                && let Some(out) = self.out.take()
            {
                self.lender.give_back(out);
            }
        }
        Ok(true)
    }

    /// Continues the handshake. Returns false if it waits for the peer's next part, or for space in the kernel. A peer that ends
    /// the stream meanwhile refuses this side.
    pub(super) fn shake(&mut self, with: &Stream) -> io::Result<bool> {
        self.shake_on(with).map_err(|error| match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => refused(unwanted()),
            _ => error,
        })
    }

    fn shake_on(&mut self, with: &Stream) -> io::Result<bool> {
        loop {
            let Some(stream) = &mut self.stream else { return Ok(true) };
            if stream.is_open() {
                self.part = Vec::new();
                return Ok(true);
            }
            if self.undecided && !self.decide(with)? {
                return Ok(false);
            }
            if !self.flush(with)? {
                return Ok(false);
            }
            let Some(stream) = &mut self.stream else { return Ok(true) };
            let wanted = stream.wanted(&self.part).map_err(refused)?;
            let have = self.part.len();
            self.part.try_reserve(wanted.saturating_sub(have)).map_err(|_| ErrorKind::OutOfMemory)?;
            self.part.resize(wanted, 0);
            let got = with.recv(self.part.get_mut(have..).unwrap_or_default());
            self.part.truncate(have + got.as_ref().map_or(0, |len| *len));
            match got {
                Ok(0) => return Err(refused(unwanted())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            if stream.wanted(&self.part).map_err(refused)? > self.part.len() {
                continue;
            }
            let shaken = stream.shake(&self.part, clock::now_ns());
            self.part.clear();
            // The output is written after an error, too, since it may say why. If the kernel has no space for it, the peer sees
            // the end of the stream.
            let flushed = self.flush(with);
            if shaken.is_err() {
                // Unread input would make the kernel reset the stream, and the last part sent might be lost.
                let _ = with.recv(&mut [0; DRAINED_BYTES]);
            }
            shaken.map_err(refused)?;
            flushed?;
        }
    }

    /// Reads the first bytes of a client without taking them. Returns false if not enough have come.
    fn decide(&mut self, with: &Stream) -> io::Result<bool> {
        let mut first = [0; STREAM_MAGIC.len()];
        let len = match with.peek(&mut first) {
            Ok(0) => return Err(refused(unwanted())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            other => other?,
        };
        if first.get(..len) == STREAM_MAGIC.get(..len) && len < first.len() {
            // Nothing comes after the end. All that came before it is in the kernel now.
            if with.has_ended() && with.peek(&mut first)? == len {
                return Err(refused(unwanted()));
            }
            // The kernel is to report the stream when there is enough. If it refuses that, it reports the stream all the time.
            with.set_wakeup_bytes(first.len() as u32)?;
            return Ok(false);
        }
        self.undecided = false;
        with.set_wakeup_bytes(1)?;
        if first != STREAM_MAGIC {
            self.stream = None;
        }
        Ok(true)
    }

    /// Prepares to seal: finishes the handshake, and gives waiting bytes to the kernel.
    fn prepare(&mut self, to: &Stream) -> io::Result<()> {
        if !self.is_open() && !self.shake(to)? || !self.flush(to)? {
            return Err(would_block());
        }
        Ok(())
    }

    /// Takes bytes of the parts, in order. Returns how many.
    pub fn send<P: Deref<Target = [u8]>>(&mut self, to: &Stream, parts: &[P]) -> io::Result<usize> {
        self.prepare(to)?;
        let total = parts.iter().map(|part| part.len()).sum();
        let (mut part, mut at) = (0, 0);
        self.take(to, total, |mut space| {
            while !space.is_empty() {
                let Some(tail) = parts.get(part).and_then(|bytes| bytes.get(at..)) else { return false };
                let len = tail.len().min(space.len());
                let (Some((now, later)), Some(tail)) = (space.split_at_mut_checked(len), tail.get(..len))
                else {
                    return false;
                };
                now.copy_from_slice(tail);
                space = later;
                at += len;
                if parts.get(part).is_some_and(|bytes| bytes.len() == at) {
                    (part, at) = (part + 1, 0);
                }
            }
            true
        })
    }

    pub fn send_memory(&mut self, to: &Stream, head: &[u8], data: Option<&Bytes>) -> io::Result<usize> {
        self.prepare(to)?;
        let total = head.len() + data.map_or(0, Bytes::len);
        let mut at = 0;
        self.take(to, total, |space| {
            let of_head = head.get(at..).unwrap_or_default();
            let split = of_head.len().min(space.len());
            let (first, second) = space.split_at_mut(split);
            first.copy_from_slice(of_head.get(..split).unwrap_or_default());
            let from = (at + split).saturating_sub(head.len());
            at += split + second.len();
            second.is_empty() || data.is_some_and(|data| data.read(from, second))
        })
    }

    /// The input of a stream whose peer has security.
    #[inline]
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// Receives without taking anything out of the kernel; [`Sealed::take_peeked`] follows.
    pub fn peek(&mut self, from: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(stream) = &mut self.stream else { return Err(would_block()) };
        self.input.peek(&mut Source { stream, lender: &self.lender, from }, buffer)
    }

    /// Takes this many bytes of what [`Sealed::peek`] gave. The others can't be used before more has come.
    pub fn take_peeked(&mut self, from: &Stream, bytes: usize) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        self.input.take_peeked(&mut Source { stream, lender: &self.lender, from }, bytes)
    }

    /// Receives what has come and fits.
    pub fn recv(&mut self, from: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut at = 0;
        let total = buffer.len();
        self.give(from, total, |bytes| put(buffer, &mut at, bytes))
    }

    pub fn recv_memory(&mut self, from: &Stream, to: Option<&Bytes>, tail: &mut [u8]) -> io::Result<usize> {
        let placed = to.map_or(0, Bytes::len);
        let total = placed + tail.len();
        let mut at = 0;
        self.give(from, total, |bytes| {
            let of_target = placed.saturating_sub(at).min(bytes.len());
            let (first, second) = bytes.split_at(of_target);
            let put = first.is_empty() || to.is_some_and(|to| to.write(at, first));
            let behind = (at + of_target).saturating_sub(placed);
            at += bytes.len();
            put && (second.is_empty()
                || tail
                    .get_mut(behind..behind + second.len())
                    .map(|space| space.copy_from_slice(second))
                    .is_some())
        })
    }

    /// Gives at most `total` bytes to `put`, and returns how many.
    fn give(&mut self, from: &Stream, total: usize, put: impl FnMut(&[u8]) -> bool) -> io::Result<usize> {
        if !self.is_open() && !self.shake(from)? {
            return Err(would_block());
        }
        match &mut self.stream {
            None => self.give_plain(from, total, put),
            Some(stream) => self.input.give(&mut Source { stream, lender: &self.lender, from }, total, put),
        }
    }

    fn give_plain(
        &mut self,
        from: &Stream,
        total: usize,
        mut put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let Some(mut input) = self.lender.lend_briefly() else { return Err(would_block()) };
        let len = total.min(input.bytes.len());
        let got = from.recv(input.bytes.get_mut(..len).unwrap_or_default());
        let put = got.as_ref().is_ok_and(|got| put(input.bytes.get(..*got).unwrap_or_default()));
        self.lender.give_back(input);
        if got.is_ok() && !put { Err(no_place()) } else { got }
    }

    /// A buffer to seal into, which may be kept if the kernel does not take all at once.
    fn lend_out(&mut self) -> Option<Buffer> {
        let lent = self.lender.lend_any();
        self.lacks_buffer = lent.is_none();
        lent
    }

    /// Seals `total` bytes, which `fill` gives part by part, and writes them. Returns how many were taken.
    fn take(
        &mut self,
        to: &Stream,
        total: usize,
        mut fill: impl FnMut(&mut [u8]) -> bool,
    ) -> io::Result<usize> {
        if self.stream.is_none() {
            return self.take_plain(to, total, fill);
        }
        let mut taken = 0;
        while taken < total {
            let Some(mut out) = self.lend_out() else {
                return if taken > 0 { Ok(taken) } else { Err(would_block()) };
            };
            let now_ns = clock::now_ns();
            while taken < total {
                let Some(space) = out.bytes.get_mut(out.end..) else { break };
                let Some(body) = space.len().checked_sub(RECORD_OVERHEAD_BYTES).filter(|body| *body > 0)
                else {
                    break;
                };
                let body = body.min(RECORD_BODY_BYTES_MAX).min(total - taken);
                let Some(record) = space.get_mut(..body + RECORD_OVERHEAD_BYTES) else { break };
                let target =
                    record.get_mut(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body).unwrap_or_default();
                let sealed =
                    fill(target) && self.stream.as_mut().is_some_and(|stream| stream.seal(record, now_ns));
                if !sealed {
                    self.lender.give_back(out);
                    return Err(io::Error::other("it can't be sealed"));
                }
                out.end += body + RECORD_OVERHEAD_BYTES;
                taken += body;
            }
            self.out = Some(out);
            let is_all_gone = self.flush(to)?;
            if let Some(out) = &mut self.out {
                self.lender.keep(out);
            }
            if !is_all_gone {
                break;
            }
        }
        Ok(taken)
    }

    /// Sends to a peer without security, where that is allowed.
    fn take_plain(
        &mut self,
        to: &Stream,
        total: usize,
        mut fill: impl FnMut(&mut [u8]) -> bool,
    ) -> io::Result<usize> {
        let Some(mut out) = self.lender.lend_briefly() else { return Err(would_block()) };
        let len = total.min(out.bytes.len());
        if !out.bytes.get_mut(..len).is_some_and(&mut fill) {
            self.lender.give_back(out);
            return Err(io::Error::other("it can't be read"));
        }
        let sent = to.send(out.bytes.get(..len).unwrap_or_default());
        self.lender.give_back(out);
        sent
    }
}

/// Gives back the buffers it has borrowed.
impl Drop for Sealed {
    fn drop(&mut self) {
        self.input.drop_buffers(&self.lender);
        if let Some(out) = self.out.take() {
            self.lender.give_back(out);
        }
    }
}
