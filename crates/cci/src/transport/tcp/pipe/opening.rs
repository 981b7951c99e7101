//! What a sealed stream receives.
//!
//! As a rule the kernel is asked for as much as there is, into a borrowed buffer, which keeps the part of a record that comes
//! last until the rest comes. Where the stream may keep no buffer, a copy of what the kernel has is opened, and only what is
//! taken of it leaves the kernel: parts of records stay there, and the kernel tells when there is more.

use super::input::{Copy, Input};
use super::pool::{BUFFER_BYTES, Buffer};
use super::sealed::{Sealed, forged, would_block};
use cci_memory::bytes::Bytes;
use cci_secure::limits::{RECORD_BODY_BYTES_MAX, RECORD_HEADER_BYTES, RECORD_OVERHEAD_BYTES};
use cci_secure::{Ahead, SealedStream};
use cci_sys::tcp::Stream;
use std::io::{self, ErrorKind};

/// After so many bytes of the kernel's, sealed, a read ends, whatever was in them.
const COMES_MAX: usize = 5 * BUFFER_BYTES;

/// The longest record.
const RECORD_BYTES_MAX: usize = RECORD_BODY_BYTES_MAX + RECORD_OVERHEAD_BYTES;

/// What a read of the kernel's brought.
enum Filled {
    Nothing,
    /// The stream may keep nothing.
    NoBuffer,
    /// The peer has closed its side.
    End,
    /// `all`: it was all that had come.
    Some {
        all: bool,
        bytes: usize,
    },
}

/// A look at what the kernel has.
enum Looked {
    Nothing,
    End,
    Some(Buffer),
}

/// What of a look is not taken.
#[derive(Copy, Clone)]
enum Remainder {
    /// It is for the next read.
    IsOfUse,
    /// It is of no use without what follows it.
    WantsMore,
}

/// The length of the next record, as far as `bytes` show.
fn wanted(stream: &SealedStream, bytes: &[u8]) -> io::Result<usize> {
    stream.wanted(bytes).map_err(|_| forged())
}

/// It is whole.
fn is_whole(wanted: usize, bytes: &[u8]) -> bool {
    (RECORD_OVERHEAD_BYTES..=bytes.len()).contains(&wanted)
}

impl Sealed {
    /// Something has come that was not given to anybody, and is not in the kernel any more.
    pub fn has_input(&self) -> bool {
        self.came.input.is_some()
    }

    /// A part of a record is here or in the kernel, as of the last read.
    pub fn has_part(&self) -> bool {
        self.came.input.as_ref().is_some_and(|input| !input.is_empty()) || self.came.wakeup_bytes > 1
    }

    /// Something is here that can be given at once.
    pub fn has_content(&self) -> bool {
        !self.came.content.is_empty()
    }

    /// Receives as much as there is and fits.
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

    /// Gives `total` bytes at most to `put`; answers how many.
    fn give(&mut self, from: &Stream, total: usize, put: impl FnMut(&[u8]) -> bool) -> io::Result<usize> {
        if !self.is_open() && !self.shake(from)? {
            return Err(would_block());
        }
        if self.stream.is_none() {
            return self.give_plain(from, total, put);
        }
        let given = self.give_of_buffer(from, total, put);
        self.release_empty();
        if let Some(input) = &mut self.came.input {
            self.pool.keep(input, self.host);
        }
        given
    }

    fn give_of_buffer(
        &mut self,
        from: &Stream,
        total: usize,
        mut put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let (mut given, mut drained, mut came) = (0, false, 0);
        while given < total {
            if self.came.content.is_empty() && !self.next_record()? {
                let missing = total - given;
                // Records may have a byte each: what others wait for is bounded by what has come, too.
                drained |= came >= COMES_MAX;
                if given > 0 && (drained || missing < RECORD_BYTES_MAX) {
                    break;
                }
                if drained {
                    return Err(would_block());
                }
                match self.fill(from, missing) {
                    Ok(Filled::NoBuffer) if given == 0 => return self.give_of_copy(from, total, put),
                    Ok(Filled::End) if given == 0 => return Ok(0),
                    Ok(Filled::Nothing) if given == 0 => return Err(would_block()),
                    Err(error) if given == 0 => return Err(error),
                    // The next read finds it again.
                    Ok(Filled::End | Filled::Nothing | Filled::NoBuffer) | Err(_) => return Ok(given),
                    Ok(Filled::Some { all, bytes }) => (drained, came) = (all, came + bytes),
                }
                continue;
            }
            let Input { input: Some(input), content, .. } = &mut self.came else { continue };
            let len = content.len().min(total - given);
            if !put(input.bytes.get(content.start..content.start + len).unwrap_or_default()) {
                return Err(io::Error::other("there is no place for it"));
            }
            content.start += len;
            given += len;
        }
        Ok(given)
    }

    /// Opens the next record, if it has come whole. Empty ones are none.
    fn next_record(&mut self) -> io::Result<bool> {
        loop {
            self.release_empty();
            let Input { input: Some(input), content, skip_bytes, .. } = &mut self.came else {
                return Ok(false);
            };
            let Some(stream) = &mut self.stream else { return Ok(false) };
            let wanted = wanted(stream, input.filled())?;
            if !is_whole(wanted, input.filled()) {
                return Ok(false);
            }
            let start = input.at;
            let record = input.bytes.get_mut(start..start + wanted).unwrap_or_default();
            let len = stream.open(record).ok_or_else(forged)?.len();
            let body = start + RECORD_HEADER_BYTES;
            *content = body + std::mem::take(skip_bytes).min(len)..body + len;
            input.at = start + wanted;
            debug_assert_eq!(len + RECORD_OVERHEAD_BYTES, wanted);
            if content.start < content.end {
                return Ok(true);
            }
        }
    }

    /// Gives the buffer back if nothing is in it.
    fn release_empty(&mut self) {
        if self.came.content.is_empty()
            && self.came.input.as_ref().is_some_and(Buffer::is_empty)
            && let Some(input) = self.came.input.take()
        {
            self.pool.give_back(input);
        }
    }

    /// Reads once. Where there is not room for the longest record's content, no further than to the end of the record:
    /// what stays in the kernel is told of.
    fn fill(&mut self, from: &Stream, space: usize) -> io::Result<Filled> {
        if self.came.input.is_none() {
            let lent = if self.is_wanted { self.pool.lend(self.host) } else { None };
            let Some(lent) = lent else { return Ok(Filled::NoBuffer) };
            self.came.input = Some(lent);
            self.set_wakeup(from, 1);
        }
        let (Some(stream), Some(input)) = (&self.stream, &mut self.came.input) else {
            return Ok(Filled::Nothing);
        };
        let have = input.filled().len();
        input.bytes.copy_within(input.at..input.end, 0);
        (input.at, input.end) = (0, have);
        let wanted = wanted(stream, input.filled())?;
        let up_to = if space >= RECORD_BYTES_MAX { space } else { wanted };
        let up_to = up_to.min(input.bytes.len());
        let got = from.recv_now(input.bytes.get_mut(have..up_to).unwrap_or_default());
        input.end += got.as_ref().ok().copied().flatten().unwrap_or(0);
        self.release_empty();
        Ok(match got? {
            None => Filled::Nothing,
            Some(0) => Filled::End,
            Some(got) => Filled::Some { all: have + got < up_to, bytes: got },
        })
    }

    fn give_plain(
        &mut self,
        from: &Stream,
        total: usize,
        mut put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let Some(mut input) = self.pool.lend_briefly() else { return Err(would_block()) };
        let len = total.min(input.bytes.len());
        let got = from.recv(input.bytes.get_mut(..len).unwrap_or_default());
        let put = got.as_ref().is_ok_and(|got| put(input.bytes.get(..*got).unwrap_or_default()));
        self.pool.give_back(input);
        if got.is_ok() && !put { Err(io::Error::other("there is no place for it")) } else { got }
    }

    /// [`Sealed::give`] for a stream that keeps nothing: of what is given, whole records leave the kernel.
    fn give_of_copy(
        &mut self,
        from: &Stream,
        total: usize,
        put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let buffer = match self.look(from)? {
            Looked::Nothing => return Err(would_block()),
            Looked::End => return Ok(0),
            Looked::Some(buffer) => buffer,
        };
        let given = self.open_copy(buffer, total, put)?;
        self.leave(from, given, Remainder::IsOfUse)?;
        if given > 0 { Ok(given) } else { Err(would_block()) }
    }

    /// Receives without taking anything out of the kernel: [`Sealed::take_peeked`] follows.
    pub fn peek(&mut self, from: &Stream, buffer: &mut [u8]) -> io::Result<usize> {
        debug_assert!(!self.has_input(), "what is here can't be left in the kernel");
        match self.look(from)? {
            Looked::Nothing => Err(would_block()),
            Looked::End => Ok(0),
            Looked::Some(copy) => {
                let mut at = 0;
                let total = buffer.len();
                let given = self.open_copy(copy, total, |bytes| put(buffer, &mut at, bytes))?;
                if given == 0 {
                    // Empty records leave, and a part of one has the kernel wait for the rest.
                    self.leave(from, 0, Remainder::WantsMore)?;
                    return Err(would_block());
                }
                Ok(given)
            }
        }
    }

    /// Copies what the kernel has, if that is enough.
    fn look(&mut self, from: &Stream) -> io::Result<Looked> {
        if !std::mem::replace(&mut self.came.has_space, true) {
            from.make_space_behind_parts();
        }
        // If others work in all of them, the kernel tells again.
        let Some(mut buffer) = self.pool.lend_briefly() else { return Ok(Looked::Nothing) };
        let mut peek = || match from.peek(&mut buffer.bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        };
        let is_enough = |len: Option<usize>| len.is_some_and(|len| len >= self.came.wakeup_bytes);
        let mut got = peek();
        if matches!(got, Ok(len) if !is_enough(len) && self.came.wakeup_bytes > 1) && from.has_ended() {
            // What came before the end is there now, and more does not come.
            got = peek().map(|len| if is_enough(len) { len } else { Some(0) });
        }
        match got {
            Ok(Some(len)) if is_enough(Some(len)) => {
                buffer.end = len;
                return Ok(Looked::Some(buffer));
            }
            _ => self.pool.give_back(buffer),
        }
        Ok(if got? == Some(0) { Looked::End } else { Looked::Nothing })
    }

    /// Opens the records of a copy, and gives `total` bytes of them at most to `put`; answers how many.
    fn open_copy(
        &mut self,
        buffer: Buffer,
        total: usize,
        mut put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let Input { looked_at, skip_bytes, .. } = &mut self.came;
        let copy = looked_at.insert(Copy { buffer, records: 0, opened_bytes: 0, is_cut: false });
        let Some(stream) = &mut self.stream else { return Ok(0) };
        let mut given = 0;
        while given < total {
            let start = copy.opened_bytes;
            let tail = copy.buffer.bytes.get_mut(start..copy.buffer.end).unwrap_or_default();
            let wanted = wanted(stream, tail)?;
            if !is_whole(wanted, tail) {
                break;
            }
            let body = match stream.open_ahead(copy.records, tail.get_mut(..wanted).unwrap_or_default()) {
                Ahead::Opened(body) => body,
                Ahead::Forged => return Err(forged()),
                Ahead::Later => {
                    copy.is_cut = true;
                    break;
                }
            };
            let skip = if copy.records == 0 { *skip_bytes } else { 0 };
            let content = body.get(skip..).unwrap_or_default();
            let content = content.get(..content.len().min(total - given)).unwrap_or_default();
            if !put(content) {
                return Err(io::Error::other("there is no place for it"));
            }
            given += content.len();
            copy.opened_bytes += wanted;
            copy.records += 1;
        }
        Ok(given)
    }

    /// Of what [`Sealed::peek`] gave so many bytes are taken. The others are of no use without more behind them.
    pub fn take_peeked(&mut self, from: &Stream, bytes: usize) -> io::Result<()> {
        self.leave(from, bytes, Remainder::WantsMore)
    }

    /// Of what was last looked at, so many bytes of content are taken: the records that are used up leave the kernel.
    fn leave(&mut self, from: &Stream, mut bytes: usize, tail: Remainder) -> io::Result<()> {
        let Some(mut copy) = self.came.looked_at.take() else { return Ok(()) };
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let (mut at, mut records, mut skip) = (0, 0, self.came.skip_bytes);
        while records < copy.records {
            let opened = copy.buffer.bytes.get(at..copy.opened_bytes).unwrap_or_default();
            let wanted = stream.wanted(opened).unwrap_or(opened.len());
            let content = wanted.saturating_sub(RECORD_OVERHEAD_BYTES + skip);
            if bytes < content {
                skip += bytes;
                break;
            }
            bytes -= content;
            at += wanted;
            (records, skip) = (records + 1, 0);
        }
        let behind = copy.buffer.bytes.get(copy.opened_bytes..copy.buffer.end).unwrap_or_default();
        let next = copy.opened_bytes + stream.wanted(behind).unwrap_or(RECORD_HEADER_BYTES);
        let (end, is_full) = (copy.buffer.end, copy.buffer.end == copy.buffer.bytes.len());
        let has_more = match tail {
            _ if at == copy.opened_bytes => next <= end,
            Remainder::IsOfUse => true,
            Remainder::WantsMore => copy.is_cut && at > 0,
        };
        let is_taken = at == 0
            || copy
                .buffer
                .bytes
                .get_mut(..at)
                .is_some_and(|taken| from.recv(taken).is_ok_and(|len| len == at));
        self.pool.give_back(copy.buffer);
        if !is_taken {
            return Err(io::Error::other("what the kernel had is gone"));
        }
        if is_full && at == 0 && !has_more && skip == self.came.skip_bytes {
            return Err(io::Error::other("a message is in more records than are opened at once"));
        }
        stream.advance(records);
        self.came.skip_bytes = skip;
        let wakeup_bytes = if at == end || has_more { 1 } else { next.max(end + 1) - at };
        self.set_wakeup(from, wakeup_bytes);
        Ok(())
    }

    fn set_wakeup(&mut self, of: &Stream, bytes: usize) {
        if self.came.wakeup_bytes != bytes {
            self.came.wakeup_bytes = bytes;
            // Where the system refuses, it tells of what is not enough, too.
            let _ = of.set_wakeup_bytes(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }
}

fn put(to: &mut [u8], at: &mut usize, bytes: &[u8]) -> bool {
    let Some(space) = to.get_mut(*at..*at + bytes.len()) else { return false };
    space.copy_from_slice(bytes);
    *at += bytes.len();
    true
}
