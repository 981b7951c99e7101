//! The sealed kind of pipe.

use super::Security;
use super::pool::{Buffer, Pool};
use cci_ring::memory::Bytes;
use cci_secure::limits::{RECORD_BODY_BYTES_MAX, RECORD_HEADER_BYTES, RECORD_OVERHEAD_BYTES, TAG_BYTES};
use cci_secure::{EndpointId, Failure, Identity, Rights, STREAM_MAGIC, SealedStream};
use cci_sys::clock;
use cci_sys::tcp::Stream;
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::ops::Range;
use std::sync::Arc;

/// The longest record.
const RECORD_BYTES_MAX: usize = RECORD_BODY_BYTES_MAX + RECORD_OVERHEAD_BYTES;

/// Of what comes behind a part that has ended the handshake, so much is read before the stream is closed.
const DRAINED_BYTES: usize = 4096;

/// See the module above.
pub(super) struct Sealed {
    /// None: it has turned out to be plain, which is allowed here.
    stream: Option<SealedStream>,
    /// Accepted, and plain peers are served, too: what it is has to be seen.
    undecided: bool,
    pool: Arc<Pool>,
    /// Sealed, and not taken by the kernel.
    out: Option<Buffer>,
    /// Came: whole and partial records; of the first one, what is left of its content.
    input: Option<Buffer>,
    content: Range<usize>,
    /// The part of the handshake that is being read.
    part: Vec<u8>,
}

/// What a read of the kernel's brought.
enum Filled {
    Nothing,
    /// The peer has closed its side.
    End,
    /// `all`: it was all that had come.
    Some {
        all: bool,
    },
}

fn would_block() -> io::Error {
    ErrorKind::WouldBlock.into()
}

fn refused(failure: Failure) -> io::Error {
    io::Error::other(failure)
}

fn forged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a record that the peer has not sealed")
}

/// The stream has ended, or was cut, before the handshake was over: what a peer does that does not want this side.
fn unwanted() -> Failure {
    Failure::Certificate("the peer ended the handshake: it does not accept this side".to_owned())
}

impl Sealed {
    pub fn dial(security: &Security, expected: Option<&str>) -> Result<Sealed, Failure> {
        let stream = SealedStream::dial(&security.config, expected)?;
        Ok(Sealed::new(stream, security, false))
    }

    pub fn answer(security: &Security) -> Sealed {
        Sealed::new(SealedStream::answer(&security.config), security, !security.sealing.required)
    }

    fn new(stream: SealedStream, security: &Security, undecided: bool) -> Sealed {
        Sealed {
            stream: Some(stream),
            undecided,
            pool: Arc::clone(&security.pool),
            out: None,
            input: None,
            content: 0..0,
            part: Vec::new(),
        }
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
        self.out.is_some() || self.stream.as_ref().is_some_and(|stream| stream.has_said())
    }

    /// Something has come that was not given to anybody.
    pub fn has_input(&self) -> bool {
        self.input.is_some()
    }

    #[cfg(test)]
    pub fn content_len(&self) -> usize {
        self.content.len()
    }

    /// Gives the kernel what waits. False: it has no room for all.
    pub fn flush(&mut self, to: &Stream) -> io::Result<bool> {
        if let Some(stream) = &mut self.stream {
            while stream.has_said() {
                match to.send(stream.said()) {
                    Ok(len) => drop(stream.said().drain(..len)),
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
    fn shake(&mut self, with: &Stream) -> io::Result<bool> {
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
            return Ok(false);
        }
        self.undecided = false;
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
        self.take(to, total, |mut room| {
            while !room.is_empty() {
                let Some(rest) = parts.get(part).and_then(|bytes| bytes.get(at..)) else { return false };
                let len = rest.len().min(room.len());
                let (Some((now, later)), Some(rest)) = (room.split_at_mut_checked(len), rest.get(..len))
                else {
                    return false;
                };
                now.copy_from_slice(rest);
                room = later;
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
        self.take(to, total, |room| {
            let of_head = head.get(at..).unwrap_or_default();
            let split = of_head.len().min(room.len());
            let (first, second) = room.split_at_mut(split);
            first.copy_from_slice(of_head.get(..split).unwrap_or_default());
            let from = (at + split).saturating_sub(head.len());
            at += split + second.len();
            second.is_empty() || data.is_some_and(|data| data.read(from, second))
        })
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
            let Some(mut out) = self.pool.lend() else {
                return if taken > 0 { Ok(taken) } else { Err(would_block()) };
            };
            let now_ns = clock::now_ns();
            while taken < total {
                let Some(room) = out.bytes.get_mut(out.end..) else { break };
                let Some(body) = room.len().checked_sub(RECORD_OVERHEAD_BYTES).filter(|body| *body > 0)
                else {
                    break;
                };
                let body = body.min(RECORD_BODY_BYTES_MAX).min(total - taken);
                let Some(record) = room.get_mut(..body + RECORD_OVERHEAD_BYTES) else { break };
                let place =
                    record.get_mut(RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + body).unwrap_or_default();
                let sealed =
                    fill(place) && self.stream.as_mut().is_some_and(|stream| stream.seal(record, now_ns));
                if !sealed {
                    self.pool.give_back(out);
                    return Err(io::Error::other("it can't be sealed"));
                }
                out.end += body + RECORD_OVERHEAD_BYTES;
                taken += body;
            }
            self.out = Some(out);
            if !self.flush(to)? {
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
        let Some(mut out) = self.pool.lend() else { return Err(would_block()) };
        let len = total.min(out.bytes.len());
        if !out.bytes.get_mut(..len).is_some_and(&mut fill) {
            self.pool.give_back(out);
            return Err(io::Error::other("it can't be read"));
        }
        let sent = to.send(out.bytes.get(..len).unwrap_or_default());
        out.end = 0;
        self.pool.give_back(out);
        sent
    }

    /// As a read of the kernel's: as much as there is and fits.
    pub fn recv(&mut self, from: &mut Stream, buffer: &mut [u8]) -> io::Result<usize> {
        let mut at = 0;
        let total = buffer.len();
        self.give(from, total, |bytes| {
            let len = bytes.len();
            let Some(room) = buffer.get_mut(at..at + len) else { return false };
            room.copy_from_slice(bytes);
            at += len;
            true
        })
    }

    pub fn recv_memory(
        &mut self,
        from: &mut Stream,
        to: Option<&Bytes>,
        rest: &mut [u8],
    ) -> io::Result<usize> {
        let placed = to.map_or(0, Bytes::len);
        let total = placed + rest.len();
        let mut at = 0;
        self.give(from, total, |bytes| {
            let of_place = placed.saturating_sub(at).min(bytes.len());
            let (first, second) = bytes.split_at(of_place);
            let put = first.is_empty() || to.is_some_and(|to| to.write(at, first));
            let behind = (at + of_place).saturating_sub(placed);
            at += bytes.len();
            put && (second.is_empty()
                || rest
                    .get_mut(behind..behind + second.len())
                    .map(|room| room.copy_from_slice(second))
                    .is_some())
        })
    }

    /// Gives `total` bytes at most to `put`; answers how many.
    fn give(&mut self, from: &Stream, total: usize, mut put: impl FnMut(&[u8]) -> bool) -> io::Result<usize> {
        if !self.is_open() && !self.shake(from)? {
            return Err(would_block());
        }
        if self.stream.is_none() {
            return self.give_plain(from, total, put);
        }
        let (mut given, mut drained) = (0, false);
        while given < total {
            if self.content.is_empty() && !self.next_record()? {
                let missing = total - given;
                if given > 0 && (drained || missing < RECORD_BYTES_MAX) {
                    return Ok(given);
                }
                if drained {
                    return Err(would_block());
                }
                match self.fill(from, missing) {
                    Ok(Filled::End) if given == 0 => return Ok(0),
                    Ok(Filled::Nothing) if given == 0 => return Err(would_block()),
                    Err(error) if given == 0 => return Err(error),
                    // The next read finds it again.
                    Ok(Filled::End | Filled::Nothing) | Err(_) => return Ok(given),
                    Ok(Filled::Some { all }) => drained = all,
                }
                continue;
            }
            let Some(input) = &self.input else { continue };
            let len = self.content.len().min(total - given);
            let content = input.bytes.get(self.content.start..self.content.start + len).unwrap_or_default();
            if !put(content) {
                return Err(io::Error::other("there is no place for it"));
            }
            self.content.start += len;
            given += len;
        }
        self.rest();
        Ok(given)
    }

    /// Opens the next record, if it has come whole. Empty ones are none.
    fn next_record(&mut self) -> io::Result<bool> {
        loop {
            self.rest();
            let (Some(stream), Some(input)) = (&mut self.stream, &mut self.input) else { return Ok(false) };
            let wanted = stream.wanted(input.filled()).map_err(|_| forged())?;
            if wanted > input.filled().len() || wanted < RECORD_OVERHEAD_BYTES {
                return Ok(false);
            }
            let start = input.at;
            let record = input.bytes.get_mut(start..start + wanted).unwrap_or_default();
            let len = stream.open(record).ok_or_else(forged)?.len();
            let content = start + RECORD_HEADER_BYTES;
            self.content = content..content + len;
            input.at = start + wanted;
            debug_assert_eq!(len + RECORD_HEADER_BYTES + TAG_BYTES, wanted);
            if len > 0 {
                return Ok(true);
            }
        }
    }

    /// Gives the buffer back if nothing is in it.
    fn rest(&mut self) {
        if self.content.is_empty()
            && self.input.as_ref().is_some_and(Buffer::is_empty)
            && let Some(input) = self.input.take()
        {
            self.pool.give_back(input);
        }
    }

    /// Reads once. Where there is not room for the longest record's content, no further than to the end of the record:
    /// what stays in the kernel is told of.
    fn fill(&mut self, from: &Stream, room: usize) -> io::Result<Filled> {
        if self.input.is_none() {
            let lent = self.pool.lend();
            self.input = Some(lent.ok_or_else(|| io::Error::from(ErrorKind::OutOfMemory))?);
        }
        let (Some(stream), Some(input)) = (&self.stream, &mut self.input) else { return Ok(Filled::Nothing) };
        let have = input.filled().len();
        input.bytes.copy_within(input.at..input.end, 0);
        (input.at, input.end) = (0, have);
        let wanted = stream.wanted(input.filled()).map_err(|_| forged())?;
        let up_to = if room >= RECORD_BYTES_MAX { room } else { wanted };
        let up_to = up_to.min(input.bytes.len());
        let got = from.recv_now(input.bytes.get_mut(have..up_to).unwrap_or_default());
        input.end += got.as_ref().ok().copied().flatten().unwrap_or(0);
        self.rest();
        Ok(match got? {
            None => Filled::Nothing,
            Some(0) => Filled::End,
            Some(got) => Filled::Some { all: have + got < up_to },
        })
    }

    fn give_plain(
        &mut self,
        from: &Stream,
        total: usize,
        mut put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let Some(mut input) = self.pool.lend() else { return Err(ErrorKind::OutOfMemory.into()) };
        let len = total.min(input.bytes.len());
        let got = from.recv(input.bytes.get_mut(..len).unwrap_or_default());
        let put = got.as_ref().is_ok_and(|got| put(input.bytes.get(..*got).unwrap_or_default()));
        self.pool.give_back(input);
        if got.is_ok() && !put { Err(io::Error::other("there is no place for it")) } else { got }
    }
}

/// What it has borrowed goes back.
impl Drop for Sealed {
    fn drop(&mut self) {
        for buffer in [self.out.take(), self.input.take()].into_iter().flatten() {
            self.pool.give_back(buffer);
        }
    }
}
