//! The sealed kind of pipe: its handshake, and what it sends. What it receives is beside this file.

use super::Security;
use super::input::Input;
use super::pool::{Buffer, Pool};
use crate::transport::quota::Host;
use cci_memory::bytes::Bytes;
use cci_secure::limits::{RECORD_BODY_BYTES_MAX, RECORD_HEADER_BYTES, RECORD_OVERHEAD_BYTES};
use cci_secure::{EndpointId, Failure, Identity, Rights, STREAM_MAGIC, SealedStream};
use cci_sys::clock;
use cci_sys::tcp::Stream;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::sync::Arc;

/// Of what comes behind a part that has ended the handshake, so much is read before the stream is closed.
const DRAINED_BYTES: usize = 4096;

/// What a sealed stream has beside the kernel's: its keys, and what waits to be sent or to be given.
pub(super) struct Sealed {
    /// None: it has turned out to be plain, which is allowed here.
    pub(super) stream: Option<SealedStream>,
    /// Accepted, and plain peers are served, too: what it is has to be seen.
    undecided: bool,
    pub(super) pool: Arc<Pool>,
    /// On whose account it keeps buffers.
    pub(super) host: Host,
    /// This side wants the connection: the stream may keep large buffers.
    pub(super) is_wanted: bool,
    /// Sealed, and not taken by the kernel.
    out: Option<Buffer>,
    /// There was no buffer to seal into.
    lacks_buffer: bool,
    /// What came.
    pub(super) came: Input,
    /// The part of the handshake that is being read.
    part: Vec<u8>,
}

pub(super) fn would_block() -> io::Error {
    ErrorKind::WouldBlock.into()
}

fn refused(failure: Failure) -> io::Error {
    io::Error::other(failure)
}

pub(super) fn forged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a record that the peer has not sealed")
}

/// The stream has ended, or was cut, before the handshake was over: what a peer does that does not want this side.
fn unwanted() -> Failure {
    Failure::Certificate("the peer ended the handshake: it does not accept this side".to_owned())
}

impl Sealed {
    pub fn dial(security: &Security, expected: Option<&str>, host: Host) -> Result<Sealed, Failure> {
        let stream = SealedStream::dial(&security.config, expected)?;
        let mut sealed = Sealed::new(stream, security, host);
        sealed.is_wanted = true;
        Ok(sealed)
    }

    pub fn answer(security: &Security, host: Host) -> Sealed {
        let stream = SealedStream::answer(&security.config);
        let mut sealed = Sealed::new(stream, security, host);
        sealed.undecided = !security.sealing.required;
        sealed
    }

    fn new(stream: SealedStream, security: &Security, host: Host) -> Sealed {
        Sealed {
            stream: Some(stream),
            undecided: false,
            pool: Arc::clone(&security.pool),
            host,
            is_wanted: false,
            out: None,
            lacks_buffer: false,
            came: Input::default(),
            part: Vec::new(),
        }
    }

    /// The peer has no security, which is allowed here.
    pub fn is_plain(&self) -> bool {
        self.stream.is_none()
    }

    /// The connection is wanted by this side's program.
    pub fn want(&mut self) {
        self.is_wanted = true;
    }

    pub fn peer(&self) -> Option<(&Identity, Rights)> {
        self.stream.as_ref()?.peer()
    }

    /// Which endpoint of the peer's it is, once that is proved.
    pub fn peer_endpoint(&self) -> Option<EndpointId> {
        self.stream.as_ref()?.peer_endpoint()
    }

    pub fn is_open(&self) -> bool {
        self.stream.as_ref().is_none_or(SealedStream::is_open)
    }

    pub fn has_unsent(&self) -> bool {
        self.out.is_some() || self.stream.as_ref().is_some_and(|stream| stream.has_outgoing())
    }

    /// Nothing could be sealed for want of a buffer: the kernel does not tell when there is one.
    pub fn lacks_buffer(&self) -> bool {
        self.lacks_buffer
    }

    /// Gives the kernel what waits. False: it has no room for all.
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
                self.pool.give_back(out);
            }
        }
        Ok(true)
    }

    /// Goes on with the handshake. False: the peer has to say something, or the kernel to make room. A peer that cuts the
    /// stream meanwhile does not want this side.
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
            // After an error, too: it may say why. It is short, and if there is no room the peer learns by the end.
            let flushed = self.flush(with);
            if shaken.is_err() {
                // What is not read has the kernel reset the stream, and what was said last might be lost.
                let _ = with.recv(&mut [0; DRAINED_BYTES]);
            }
            shaken.map_err(refused)?;
            flushed?;
        }
    }

    /// Looks at what a client begins with, and leaves it there. False: not enough has come.
    fn decide(&mut self, with: &Stream) -> io::Result<bool> {
        let mut first = [0; STREAM_MAGIC.len()];
        let len = match with.peek(&mut first) {
            Ok(0) => return Err(refused(unwanted())),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            other => other?,
        };
        if first.get(..len) == STREAM_MAGIC.get(..len) && len < first.len() {
            // Behind an end nothing more comes. What came before it is there now.
            if with.has_ended() && with.peek(&mut first)? == len {
                return Err(refused(unwanted()));
            }
            // The kernel tells once there is enough. Where it refuses, it tells all the time.
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

    /// Makes room for what is to be sealed: nothing waits, the handshake is over.
    fn prepare(&mut self, to: &Stream) -> io::Result<()> {
        if !self.is_open() && !self.shake(to)? || !self.flush(to)? {
            return Err(would_block());
        }
        Ok(())
    }

    /// Takes bytes of the parts, one after the other; answers how many.
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

    /// Something to seal into: the kernel may not take it at once.
    fn lend_out(&mut self) -> Option<Buffer> {
        let large = if self.is_wanted { self.pool.lend(self.host) } else { None };
        let lent = large.or_else(|| self.pool.lend_small(self.host));
        self.lacks_buffer = lent.is_none();
        lent
    }

    /// Seals `total` bytes, which `fill` gives piece by piece, and writes them; answers how many were taken.
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
                    self.pool.give_back(out);
                    return Err(io::Error::other("it can't be sealed"));
                }
                out.end += body + RECORD_OVERHEAD_BYTES;
                taken += body;
            }
            self.out = Some(out);
            let is_all_gone = self.flush(to)?;
            if let Some(out) = &mut self.out {
                self.pool.keep(out, self.host);
            }
            if !is_all_gone {
                break;
            }
        }
        Ok(taken)
    }

    /// A peer that has no security, where that is allowed: what is sent is short or goes through a buffer all the same.
    fn take_plain(
        &mut self,
        to: &Stream,
        total: usize,
        mut fill: impl FnMut(&mut [u8]) -> bool,
    ) -> io::Result<usize> {
        let Some(mut out) = self.pool.lend_briefly() else { return Err(would_block()) };
        let len = total.min(out.bytes.len());
        if !out.bytes.get_mut(..len).is_some_and(&mut fill) {
            self.pool.give_back(out);
            return Err(io::Error::other("it can't be read"));
        }
        let sent = to.send(out.bytes.get(..len).unwrap_or_default());
        self.pool.give_back(out);
        sent
    }
}

/// What it has borrowed goes back.
impl Drop for Sealed {
    fn drop(&mut self) {
        self.came.drop_buffers(&self.pool);
        if let Some(out) = self.out.take() {
            self.pool.give_back(out);
        }
    }
}
