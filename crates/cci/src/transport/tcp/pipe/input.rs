//! The input of a sealed stream.
//!
//! Usually all that has come is read into a borrowed buffer, which keeps an incomplete record until the rest of it comes. A
//! stream that may keep no buffer copies what the kernel has, opens the records of the copy, and takes only those out of the
//! kernel that are passed on. An incomplete record stays in the kernel, which reports the stream when there is more.

use super::pool::{BUFFER_BYTES, Buffer, Lender};
use cci_secure::limits::{RECORD_BODY_BYTES_MAX, RECORD_HEADER_BYTES, RECORD_OVERHEAD_BYTES};
use cci_secure::{Ahead, SealedStream};
use cci_sys::tcp::Stream;
use std::io::{self, ErrorKind};
use std::ops::Range;

/// Sealed bytes after which a read ends, however little content they had.
const COMES_MAX: usize = 5 * BUFFER_BYTES;

/// The longest record.
const RECORD_BYTES_MAX: usize = RECORD_BODY_BYTES_MAX + RECORD_OVERHEAD_BYTES;

/// The result of a read from the kernel.
enum Filled {
    Nothing,
    /// The stream may keep nothing.
    NoBuffer,
    /// The peer has closed its side.
    End,
    /// This many bytes came. `all` says whether the kernel has no more.
    Some {
        all: bool,
        bytes: usize,
    },
}

/// The result of a look at the kernel's input.
enum Looked {
    Nothing,
    End,
    Some(Buffer),
}

/// What happens to input that was looked at and not taken.
#[derive(Copy, Clone)]
enum Remainder {
    /// The next read takes it.
    IsOfUse,
    /// It can't be used before more has come.
    WantsMore,
}

/// Input that was not passed on yet.
pub(super) struct Input {
    /// Complete and incomplete records. The first may be opened and passed on in part; `content` is the rest of it.
    pub input: Option<Buffer>,
    pub content: Range<usize>,
    /// How many bytes of the kernel's first record were passed on already.
    pub skip_bytes: usize,
    /// The kernel reports the stream when it has this many bytes. Fewer can't be used.
    pub wakeup_bytes: usize,
    /// Whether the kernel has space for the rest of an incomplete record that stays there.
    pub has_space: bool,
    /// A copy of the kernel's input, opened, until it is known how much of it is taken.
    pub looked_at: Option<Copy>,
}

impl Default for Input {
    fn default() -> Input {
        Input {
            input: None,
            content: 0..0,
            skip_bytes: 0,
            wakeup_bytes: 1,
            has_space: false,
            looked_at: None,
        }
    }
}

/// A copy of the kernel's input, some of whose records are opened.
pub(super) struct Copy {
    pub buffer: Buffer,
    pub records: u64,
    /// Bytes of the opened records.
    pub opened_bytes: usize,
    /// Whether further records can be opened after these are taken.
    pub is_cut: bool,
}

/// The length of the record that begins with `bytes`, or the length that is needed to know it.
fn wanted(stream: &SealedStream, bytes: &[u8]) -> io::Result<usize> {
    stream.wanted(bytes).map_err(|_| forged())
}

/// Whether a record of this length is here in full.
fn is_whole(wanted: usize, bytes: &[u8]) -> bool {
    (RECORD_OVERHEAD_BYTES..=bytes.len()).contains(&wanted)
}

pub(super) fn would_block() -> io::Error {
    ErrorKind::WouldBlock.into()
}

pub(super) fn forged() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a record that the peer has not sealed")
}

pub(super) fn no_place() -> io::Error {
    io::Error::other("there is no place for it")
}

/// The source of input during one call, and the keys that open it.
pub(super) struct Source<'a> {
    /// The keys.
    pub stream: &'a mut SealedStream,
    pub lender: &'a Lender,
    pub from: &'a Stream,
}

impl Input {
    /// Whether there is input that has left the kernel and was not passed on.
    pub fn has_input(&self) -> bool {
        self.input.is_some()
    }

    /// Whether an incomplete record was here, or in the kernel, at the last read.
    pub fn has_part(&self) -> bool {
        self.input.as_ref().is_some_and(|input| !input.is_empty()) || self.wakeup_bytes > 1
    }

    /// Whether there is content that can be passed on at once.
    pub fn has_content(&self) -> bool {
        !self.content.is_empty()
    }

    /// Passes at most `total` bytes on to `put`, and returns how many.
    pub fn give(
        &mut self,
        source: &mut Source<'_>,
        total: usize,
        put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let given = self.give_of_buffer(source, total, put);
        self.release_empty(source.lender);
        if let Some(input) = &mut self.input {
            source.lender.keep(input);
        }
        given
    }

    fn give_of_buffer(
        &mut self,
        source: &mut Source<'_>,
        total: usize,
        mut put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let (mut given, mut drained, mut came) = (0, false, 0);
        while given < total {
            if self.content.is_empty() && !self.next_record(source)? {
                let missing = total - given;
                // Records may have one byte each. So the input is bounded as well, and others get their turn.
                drained |= came >= COMES_MAX;
                if given > 0 && (drained || missing < RECORD_BYTES_MAX) {
                    break;
                }
                if drained {
                    return Err(would_block());
                }
                match self.fill(source, missing) {
                    Ok(Filled::NoBuffer) if given == 0 => return self.give_of_copy(source, total, put),
                    Ok(Filled::End) if given == 0 => return Ok(0),
                    Ok(Filled::Nothing) if given == 0 => return Err(would_block()),
                    Err(error) if given == 0 => return Err(error),
                    // The next read finds it again.
                    Ok(Filled::End | Filled::Nothing | Filled::NoBuffer) | Err(_) => return Ok(given),
                    Ok(Filled::Some { all, bytes }) => (drained, came) = (all, came + bytes),
                }
                continue;
            }
            let Input { input: Some(input), content, .. } = self else { continue };
            let len = content.len().min(total - given);
            if !put(input.bytes.get(content.start..content.start + len).unwrap_or_default()) {
                return Err(no_place());
            }
            content.start += len;
            given += len;
        }
        Ok(given)
    }

    /// Opens the next record with content, if it is complete.
    fn next_record(&mut self, source: &mut Source<'_>) -> io::Result<bool> {
        loop {
            self.release_empty(source.lender);
            let Input { input: Some(input), content, skip_bytes, .. } = self else {
                return Ok(false);
            };
            let stream = &mut *source.stream;
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

    /// Gives an empty buffer back.
    fn release_empty(&mut self, lender: &Lender) {
        if self.content.is_empty()
            && self.input.as_ref().is_some_and(Buffer::is_empty)
            && let Some(input) = self.input.take()
        {
            lender.give_back(input);
        }
    }

    /// Reads once. If the longest record might not fit into `space`, it reads only to the end of the next record, so that the
    /// kernel goes on reporting what is behind it.
    fn fill(&mut self, source: &mut Source<'_>, space: usize) -> io::Result<Filled> {
        if self.input.is_none() {
            let Some(lent) = source.lender.lend() else { return Ok(Filled::NoBuffer) };
            self.input = Some(lent);
            self.set_wakeup(source.from, 1);
        }
        let Some(input) = &mut self.input else { return Ok(Filled::Nothing) };
        let have = input.filled().len();
        input.bytes.copy_within(input.at..input.end, 0);
        (input.at, input.end) = (0, have);
        let wanted = wanted(source.stream, input.filled())?;
        let up_to = if space >= RECORD_BYTES_MAX { space } else { wanted };
        let up_to = up_to.min(input.bytes.len());
        let got = source.from.recv_now(input.bytes.get_mut(have..up_to).unwrap_or_default());
        input.end += got.as_ref().ok().copied().flatten().unwrap_or(0);
        self.release_empty(source.lender);
        Ok(match got? {
            None => Filled::Nothing,
            Some(0) => Filled::End,
            Some(got) => Filled::Some { all: have + got < up_to, bytes: got },
        })
    }

    /// Passes on what the kernel has, for a stream that may keep no buffer. Records that are used up leave the kernel.
    fn give_of_copy(
        &mut self,
        source: &mut Source<'_>,
        total: usize,
        put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let buffer = match self.look(source)? {
            Looked::Nothing => return Err(would_block()),
            Looked::End => return Ok(0),
            Looked::Some(buffer) => buffer,
        };
        let given = self.open_copy(source, buffer, total, put)?;
        self.leave(source, given, Remainder::IsOfUse)?;
        if given > 0 { Ok(given) } else { Err(would_block()) }
    }

    /// Receives without taking anything out of the kernel; [`Input::take_peeked`] follows.
    pub fn peek(&mut self, source: &mut Source<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        debug_assert!(!self.has_input(), "what has left the kernel can't be put back");
        match self.look(source)? {
            Looked::Nothing => Err(would_block()),
            Looked::End => Ok(0),
            Looked::Some(copy) => {
                let mut at = 0;
                let total = buffer.len();
                let given = self.open_copy(source, copy, total, |bytes| put(buffer, &mut at, bytes))?;
                if given == 0 {
                    // Empty records leave the kernel, which waits for the rest of an incomplete one.
                    self.leave(source, 0, Remainder::WantsMore)?;
                    return Err(would_block());
                }
                Ok(given)
            }
        }
    }

    /// Copies what the kernel has, if that is enough to be used.
    fn look(&mut self, source: &mut Source<'_>) -> io::Result<Looked> {
        if !std::mem::replace(&mut self.has_space, true) {
            source.from.make_space_behind_parts();
        }
        // If all buffers are in use, the kernel reports the stream again.
        let Some(mut buffer) = source.lender.lend_briefly() else { return Ok(Looked::Nothing) };
        let mut peek = || match source.from.peek(&mut buffer.bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            other => other.map(Some),
        };
        let is_enough = |len: Option<usize>| len.is_some_and(|len| len >= self.wakeup_bytes);
        let mut got = peek();
        if matches!(got, Ok(len) if !is_enough(len) && self.wakeup_bytes > 1) && source.from.has_ended() {
            // All that came before the end is there now, and nothing more comes.
            got = peek().map(|len| if is_enough(len) { len } else { Some(0) });
        }
        match got {
            Ok(Some(len)) if is_enough(Some(len)) => {
                buffer.end = len;
                return Ok(Looked::Some(buffer));
            }
            _ => source.lender.give_back(buffer),
        }
        Ok(if got? == Some(0) { Looked::End } else { Looked::Nothing })
    }

    /// Opens the records of a copy, passes at most `total` bytes of them on to `put`, and returns how many.
    fn open_copy(
        &mut self,
        source: &mut Source<'_>,
        buffer: Buffer,
        total: usize,
        mut put: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<usize> {
        let Input { looked_at, skip_bytes, .. } = self;
        let copy = looked_at.insert(Copy { buffer, records: 0, opened_bytes: 0, is_cut: false });
        let mut given = 0;
        while given < total {
            let start = copy.opened_bytes;
            let tail = copy.buffer.bytes.get_mut(start..copy.buffer.end).unwrap_or_default();
            let wanted = wanted(source.stream, tail)?;
            if !is_whole(wanted, tail) {
                break;
            }
            let body =
                match source.stream.open_ahead(copy.records, tail.get_mut(..wanted).unwrap_or_default()) {
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
                return Err(no_place());
            }
            given += content.len();
            copy.opened_bytes += wanted;
            copy.records += 1;
        }
        Ok(given)
    }

    /// Takes this many bytes of what [`Input::peek`] gave. The others can't be used before more has come.
    pub fn take_peeked(&mut self, source: &mut Source<'_>, bytes: usize) -> io::Result<()> {
        self.leave(source, bytes, Remainder::WantsMore)
    }

    /// Takes this many bytes of content of what was last looked at. Records that are used up leave the kernel.
    fn leave(&mut self, source: &mut Source<'_>, mut bytes: usize, tail: Remainder) -> io::Result<()> {
        let Some(mut copy) = self.looked_at.take() else { return Ok(()) };
        let stream = &mut *source.stream;
        let (mut at, mut records, mut skip) = (0, 0, self.skip_bytes);
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
                .is_some_and(|taken| source.from.recv(taken).is_ok_and(|len| len == at));
        source.lender.give_back(copy.buffer);
        if !is_taken {
            return Err(io::Error::other("what the kernel had is gone"));
        }
        if is_full && at == 0 && !has_more && skip == self.skip_bytes {
            return Err(io::Error::other("a message is in more records than are opened at once"));
        }
        stream.advance(records);
        self.skip_bytes = skip;
        let wakeup_bytes = if at == end || has_more { 1 } else { next.max(end + 1) - at };
        self.set_wakeup(source.from, wakeup_bytes);
        Ok(())
    }

    fn set_wakeup(&mut self, of: &Stream, bytes: usize) {
        if self.wakeup_bytes != bytes {
            self.wakeup_bytes = bytes;
            // If the system refuses, it reports the stream too early, and nothing is lost.
            let _ = of.set_wakeup_bytes(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    pub fn drop_buffers(&mut self, lender: &Lender) {
        let copy = self.looked_at.take().map(|copy| copy.buffer);
        for buffer in [self.input.take(), copy].into_iter().flatten() {
            lender.give_back(buffer);
        }
    }
}

/// Copies bytes behind the last ones. Returns false if there is no space for them.
pub(super) fn put(to: &mut [u8], at: &mut usize, bytes: &[u8]) -> bool {
    let Some(space) = to.get_mut(*at..*at + bytes.len()) else { return false };
    space.copy_from_slice(bytes);
    *at += bytes.len();
    true
}
