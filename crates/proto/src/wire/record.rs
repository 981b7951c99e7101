//! The records a data datagram's body is made of.

use super::padded;
use crate::PeerFault;
use crate::limits::{RECORD_BYTES, RECORDS_MAX};

/// What a record is. Numbers 2 to 63 are kept for remote memory access, atomics and fences.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// Nothing: a message whose sender has given it up.
    Void = 0,
    /// One message.
    Message = 1,
}

/// Bytes a record with this much payload takes.
pub(crate) const fn record_bytes(payload_bytes: usize) -> usize {
    RECORD_BYTES + padded(payload_bytes)
}

/// Checks a whole body, so that [`Records`] can walk it without doubt.
//= wire.md R-REC-1
pub(crate) fn check(mut body: &[u8]) -> Result<(), PeerFault> {
    let mut count = 0;
    while let Some((&[l0, l1, kind, flags, s0, s1, s2, s3], rest)) = body.split_first_chunk::<RECORD_BYTES>()
    {
        if kind > RecordKind::Message as u8
            || flags != 0
            || [s0, s1, s2, s3] != [0; 4]
            || count == RECORDS_MAX
        {
            return Err(PeerFault::Record);
        }
        let payload_bytes = usize::from(u16::from_le_bytes([l0, l1]));
        body = rest.get(padded(payload_bytes)..).ok_or(PeerFault::Record)?;
        count += 1;
    }
    if body.is_empty() { Ok(()) } else { Err(PeerFault::Record) }
}

/// Walks the records of a checked body: kind, payload, and the offset behind the record.
pub(crate) struct Records<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// Starts at byte `at` of the body, where a record must begin.
    pub(crate) fn from(body: &'a [u8], at: usize) -> Records<'a> {
        Records { body, at }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (RecordKind, &'a [u8], usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.body.get(self.at..)?;
        let (&[l0, l1, kind, ..], rest) = rest.split_first_chunk::<RECORD_BYTES>()?;
        let payload = rest.get(..usize::from(u16::from_le_bytes([l0, l1])))?;
        self.at += record_bytes(payload.len());
        let kind = if kind == RecordKind::Message as u8 { RecordKind::Message } else { RecordKind::Void };
        Some((kind, payload, self.at))
    }
}

/// Writes one message record at the start of `out`; returns its length. The caller has made sure it fits.
#[inline]
pub(crate) fn write_record(out: &mut [u8], segments: &[&[u8]], payload_bytes: usize) -> usize {
    let total = record_bytes(payload_bytes);
    let out = &mut out[..total];
    let [l0, l1] = (payload_bytes as u16).to_le_bytes();
    out[..RECORD_BYTES].copy_from_slice(&[l0, l1, RecordKind::Message as u8, 0, 0, 0, 0, 0]);
    // The last word first: the payload overwrites all of it but the padding.
    if let Some(last) = out[RECORD_BYTES..].last_chunk_mut::<8>() {
        *last = [0; 8];
    }
    let mut at = RECORD_BYTES;
    for segment in segments {
        match (out[at..].first_chunk_mut::<8>(), <&[u8; 8]>::try_from(*segment)) {
            (Some(word), Ok(bytes)) => *word = *bytes,
            _ => out[at..at + segment.len()].copy_from_slice(segment),
        }
        at += segment.len();
    }
    total
}

/// Turns the first `count` records of a body into nothing, so that they can never be delivered.
//= wire.md R-RNR-6
pub(crate) fn set_void(body: &mut [u8], count: u16) {
    let mut at = 0;
    for _ in 0..count {
        let Some(&[l0, l1]) = body.get(at..at + 2) else { return };
        if let Some(kind) = body.get_mut(at + 2) {
            *kind = RecordKind::Void as u8;
        }
        at += record_bytes(usize::from(u16::from_le_bytes([l0, l1])));
    }
}
