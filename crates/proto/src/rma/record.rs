//! The records that remote memory access travels in, byte for byte. `docs/wire.md` is the rule (R-RMA-1).

use super::{Atomic, RemoteAddress, RmaRefusal};
use crate::limits::{RECORD_BYTES, padded, record_bytes};

//= wire.md R-RMA-1
/// The record kinds on the wire.
pub(crate) mod kind {
    pub const WRITE: u8 = 2;
    pub const READ: u8 = 3;
    pub const DATA: u8 = 4;
    pub const ATOMIC: u8 = 5;
    pub const NOTIFY: u8 = 6;
    pub const DONE: u8 = 7;
}

/// The flags of each kind.
pub(crate) mod flag {
    /// WRITE: the last record of its operation, which is to be answered.
    pub const LAST: u8 = 1;
    /// DATA: the memory went away; the payload says where and how much.
    pub const GONE: u8 = 1;
    /// ATOMIC: answer with what was there.
    pub const WANTS_VALUE: u8 = 1;
    /// NOTIFY: no message is to be delivered, whatever the payload.
    pub const BARE: u8 = 1;
    /// DONE: a value follows.
    pub const VALUE: u8 = 1;
    /// DONE: refused, for the handle or the operation.
    pub const HANDLE: u8 = 2;
    pub const OPERATION: u8 = 4;
}

/// One record, understood. Every value can be written, and reads back the same.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// Put `data` there. `last`: it completes the operation in this slot, which is to be answered.
    Write {
        /// Names the operation until it is answered.
        slot: u16,
        /// Where the data goes.
        at: RemoteAddress,
        /// Answer with [`Record::Done`].
        last: bool,
        /// What to put there.
        data: &'a [u8],
    },
    /// Send what is there, as [`Record::Data`]; or [`Record::Done`] if that is refused.
    Read {
        /// Names the request until all data has come.
        slot: u16,
        /// Where the data is.
        at: RemoteAddress,
        /// How much is asked for.
        len_bytes: u64,
    },
    /// A part of what a READ asked for.
    Data {
        /// The slot of the request.
        slot: u16,
        /// Where in the request this part begins.
        offset: u64,
        /// The data of this part.
        data: &'a [u8],
    },
    /// A part of what a READ asked for is no more: the memory was deregistered meanwhile.
    Gone {
        /// The slot of the request.
        slot: u16,
        /// Where in the request this part begins.
        offset: u64,
        /// How long this part is.
        len_bytes: u64,
    },
    /// Do this to the word there, once, and answer with [`Record::Done`].
    Atomic {
        /// Names the operation until it is answered.
        slot: u16,
        /// Where the word is.
        at: RemoteAddress,
        /// What to do.
        atomic: Atomic,
        /// The answer is to carry the value from before.
        wants_value: bool,
    },
    /// All data of the operation in this slot has been sent: deliver the message if none of it was refused, and answer
    /// with [`Record::Done`] in any case.
    Notify {
        /// Names the operation until it is answered.
        slot: u16,
        /// `None`: there is nothing to deliver.
        message: Option<&'a [u8]>,
    },
    /// The answer: how the operation in this slot ended, and what an atomic found.
    Done {
        /// The slot of the operation.
        slot: u16,
        /// How it ended.
        result: Result<Option<u64>, RmaRefusal>,
    },
}

/// Whether records of this kind may be data that has a bundle of its own.
#[inline]
pub(crate) fn is_bulk_kind(kind: u8) -> bool {
    matches!(kind, kind::WRITE | kind::DATA)
}

/// Data of a remote operation that is not its end.
///
/// A [`Record`] is read through memory, as it is long. This stays in registers: a record that is read from memory again just after it was
/// written waits for all stores before it, and those are the data of the datagram before, on their way to memory that no cache has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum BulkRecord<'a> {
    /// [`Record::Write`] that is not the last one of its operation.
    Write { slot: u16, at: RemoteAddress, data: &'a [u8] },
    /// [`Record::Data`].
    Data { slot: u16, offset: u64, data: &'a [u8] },
}

impl<'a> BulkRecord<'a> {
    /// Reads the only record of `body`. `None`: it is another one, or none, or there are several.
    #[inline(always)]
    pub(crate) fn parse(body: &'a [u8]) -> Option<BulkRecord<'a>> {
        let (&[l0, l1, kind, 0, s0, s1, 0, 0], tail) = body.split_first_chunk::<RECORD_BYTES>()? else {
            return None;
        };
        let (payload_bytes, slot) = (u16::from_le_bytes([l0, l1]).into(), u16::from_le_bytes([s0, s1]));
        let payload = tail.get(..payload_bytes).filter(|_| tail.len() == padded(payload_bytes))?;
        match kind {
            kind::WRITE => address(payload).map(|(at, data)| BulkRecord::Write { slot, at, data }),
            kind::DATA => word(payload).map(|(offset, data)| BulkRecord::Data { slot, offset, data }),
            _ => None,
        }
    }
}

/// Bytes before a WRITE's data.
pub const WRITE_HEAD_BYTES: usize = RECORD_BYTES + 24;

/// Bytes before a DATA record's data.
pub const DATA_HEAD_BYTES: usize = RECORD_BYTES + 8;

/// Writes what precedes the data of a WRITE, for those who put the data into `out` themselves, and zeros the padding
/// behind it. Returns the length of the whole record; `None` if it does not fit `out` or no record can be so long.
pub fn emit_write_head(
    slot: u16,
    at: RemoteAddress,
    last: bool,
    data_bytes: usize,
    out: &mut [u8],
) -> Option<usize> {
    let flags = if last { flag::LAST } else { 0 };
    let (total, tail) = emit_header(kind::WRITE, flags, slot, 24 + data_bytes, out)?;
    put_address(at, tail);
    Some(total)
}

/// Writes what precedes the data of a DATA record, and zeros the padding behind it. Returns the length of the whole record;
/// `None` if it does not fit `out` or no record can be so long.
pub fn emit_data_head(slot: u16, offset: u64, data_bytes: usize, out: &mut [u8]) -> Option<usize> {
    let (total, tail) = emit_header(kind::DATA, 0, slot, 8 + data_bytes, out)?;
    put(0, offset, tail);
    Some(total)
}

/// Writes a record's header and zeros its padding; returns the record's length, and where its payload goes.
fn emit_header(
    kind: u8,
    flags: u8,
    slot: u16,
    payload_bytes: usize,
    out: &mut [u8],
) -> Option<(usize, &mut [u8])> {
    let [l0, l1] = u16::try_from(payload_bytes).ok()?.to_le_bytes();
    let [s0, s1] = slot.to_le_bytes();
    let total = record_bytes(payload_bytes);
    let (head, tail) = out.get_mut(..total)?.split_first_chunk_mut::<RECORD_BYTES>()?;
    *head = [l0, l1, kind, flags, s0, s1, 0, 0];
    tail.get_mut(payload_bytes..)?.fill(0);
    Some((total, tail))
}

fn put(offset: usize, value: u64, out: &mut [u8]) {
    if let Some(word) = out.get_mut(offset..).and_then(|tail| tail.first_chunk_mut::<8>()) {
        *word = value.to_le_bytes();
    }
}

fn put_words<const N: usize>(from: usize, words: [u64; N], out: &mut [u8]) {
    for (at, word) in words.into_iter().enumerate() {
        put(from + 8 * at, word, out);
    }
}

fn put_address(at: RemoteAddress, out: &mut [u8]) {
    put_words(0, at.words(), out);
}

impl Record<'_> {
    /// Writes the record; returns its length, a multiple of 8. `None` if it does not fit `out`, or its payload is
    /// longer than a record's can be.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        match *self {
            Record::Write { slot, at, last, data } => {
                let total = emit_write_head(slot, at, last, data.len(), out)?;
                out.get_mut(WRITE_HEAD_BYTES..WRITE_HEAD_BYTES + data.len())?.copy_from_slice(data);
                Some(total)
            }
            Record::Read { slot, at, len_bytes } => {
                let (total, tail) = emit_header(kind::READ, 0, slot, 32, out)?;
                put_address(at, tail);
                put(24, len_bytes, tail);
                Some(total)
            }
            Record::Data { slot, offset, data } => {
                let total = emit_data_head(slot, offset, data.len(), out)?;
                out.get_mut(DATA_HEAD_BYTES..DATA_HEAD_BYTES + data.len())?.copy_from_slice(data);
                Some(total)
            }
            Record::Gone { slot, offset, len_bytes } => {
                let (total, tail) = emit_header(kind::DATA, flag::GONE, slot, 16, out)?;
                put(0, offset, tail);
                put(8, len_bytes, tail);
                Some(total)
            }
            Record::Atomic { slot, at, atomic, wants_value } => {
                let flags = if wants_value { flag::WANTS_VALUE } else { 0 };
                let (total, tail) = emit_header(kind::ATOMIC, flags, slot, 48, out)?;
                put_address(at, tail);
                put_words(24, atomic.words(), tail);
                Some(total)
            }
            Record::Notify { slot, message } => {
                let flags = if message.is_none() { flag::BARE } else { 0 };
                let message = message.unwrap_or_default();
                let (total, tail) = emit_header(kind::NOTIFY, flags, slot, message.len(), out)?;
                tail.get_mut(..message.len())?.copy_from_slice(message);
                Some(total)
            }
            Record::Done { slot, result } => {
                let (flags, payload_bytes) = match result {
                    Ok(None) => (0, 0),
                    Ok(Some(_)) => (flag::VALUE, 8),
                    Err(RmaRefusal::Handle) => (flag::HANDLE, 0),
                    Err(RmaRefusal::Operation) => (flag::OPERATION, 0),
                };
                let (total, tail) = emit_header(kind::DONE, flags, slot, payload_bytes, out)?;
                if let Ok(Some(value)) = result {
                    put(0, value, tail);
                }
                Some(total)
            }
        }
    }

    /// Reads the record at the start of `bytes`; returns it and its length. `None`: there is no such record.
    #[inline]
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Record<'_>, usize)> {
        let (&[l0, l1, kind, flags, s0, s1, 0, 0], tail) = bytes.split_first_chunk::<RECORD_BYTES>()? else {
            return None;
        };
        let payload_bytes = usize::from(u16::from_le_bytes([l0, l1]));
        let payload = tail.get(..padded(payload_bytes))?.get(..payload_bytes)?;
        let record = parse_payload(kind, flags, u16::from_le_bytes([s0, s1]), payload)?;
        Some((record, record_bytes(payload_bytes)))
    }
}

#[inline]
fn parse_payload(kind: u8, flags: u8, slot: u16, payload: &[u8]) -> Option<Record<'_>> {
    match (kind, flags) {
        (kind::WRITE, 0 | flag::LAST) => {
            let (at, data) = address(payload)?;
            Some(Record::Write { slot, at, last: flags != 0, data })
        }
        (kind::READ, 0) => {
            let (at, tail) = address(payload)?;
            let (len_bytes, tail) = word(tail)?;
            tail.is_empty().then_some(Record::Read { slot, at, len_bytes })
        }
        (kind::DATA, 0) => word(payload).map(|(offset, data)| Record::Data { slot, offset, data }),
        (kind::DATA, flag::GONE) => {
            let (offset, tail) = word(payload)?;
            let (len_bytes, tail) = word(tail)?;
            tail.is_empty().then_some(Record::Gone { slot, offset, len_bytes })
        }
        (kind::ATOMIC, 0 | flag::WANTS_VALUE) => {
            let (at, tail) = address(payload)?;
            let (words, tail) = words(tail)?;
            let atomic = Atomic::from_words(words)?;
            tail.is_empty().then_some(Record::Atomic { slot, at, atomic, wants_value: flags != 0 })
        }
        (kind::NOTIFY, 0) => Some(Record::Notify { slot, message: Some(payload) }),
        (kind::NOTIFY, flag::BARE) => Some(Record::Notify { slot, message: None }),
        (kind::DONE, flag::VALUE) => {
            let (value, tail) = word(payload)?;
            tail.is_empty().then_some(Record::Done { slot, result: Ok(Some(value)) })
        }
        (kind::DONE, _) if payload.is_empty() => {
            let result = match flags {
                0 => Ok(None),
                flag::HANDLE => Err(RmaRefusal::Handle),
                flag::OPERATION => Err(RmaRefusal::Operation),
                _ => return None,
            };
            Some(Record::Done { slot, result })
        }
        _ => None,
    }
}

#[inline(always)]
fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, tail) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*word), tail))
}

#[inline(always)]
fn words(bytes: &[u8]) -> Option<([u64; 3], &[u8])> {
    let (first, tail) = word(bytes)?;
    let (second, tail) = word(tail)?;
    let (third, tail) = word(tail)?;
    Some(([first, second, third], tail))
}

#[inline(always)]
fn address(bytes: &[u8]) -> Option<(RemoteAddress, &[u8])> {
    let (words, tail) = words(bytes)?;
    Some((RemoteAddress::from_words(words), tail))
}
