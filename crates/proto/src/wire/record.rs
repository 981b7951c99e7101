//! The records that the body of a DATA datagram is made of.

use crate::PeerFault;
use crate::limits::{RECORD_BYTES, RECORDS_MAX, padded, record_bytes};
use crate::rma::{self, Record};

/// The record kinds that are not remote memory access; those are in [`crate::rma`].
mod kind {
    /// No message any more: its sender has given it up.
    pub const VOID: u8 = 0;
    pub const MESSAGE: u8 = 1;
}

/// One record of a bundle.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// No record any more: it has been given up, or has been handled.
    Void,
    /// One message.
    Message(&'a [u8]),
    Rma(Record<'a>),
}

/// What a bundle holds, as far as it decides when the bundle is processed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Messages only, and what is known of them together.
    Messages(Summary),
    /// Data of a remote operation, which is written to its address as soon as it comes.
    Bulk,
    /// Remote memory access that has to wait for its turn among the bundles, perhaps with messages for the program.
    Rma { messages: bool },
    /// A part of a bundle, of which nothing is known yet.
    Part,
}

/// What a body of messages alone holds. All is 0 for any other body, which may hold records that were given up.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub messages: u16,
    /// Length of all messages together, bytes.
    pub bytes: u16,
    /// No message is longer than this, bytes; perhaps all are shorter.
    pub len_bound: u16,
}

/// Checks a whole body, so that [`Records`] and [`Messages`] may rely on it, and returns what it holds.
//= wire.md R-REC-1
#[inline]
pub(crate) fn check(body: &[u8]) -> Result<Holds, PeerFault> {
    let mut tail = body;
    let mut sum = Summary::default();
    // What nearly all bodies hold is looked at by a few comparisons a message.
    while let Some((header, behind)) = tail.split_first_chunk::<RECORD_BYTES>() {
        let header = u64::from_le_bytes(*header);
        let len = header as u16;
        if header >> 16 != u64::from(kind::MESSAGE) {
            return check_mixed(body);
        }
        tail = behind.get(padded(len.into())..).ok_or(PeerFault::Record)?;
        sum.messages += 1;
        sum.bytes = sum.bytes.wrapping_add(len);
        sum.len_bound |= len;
    }
    if tail.is_empty() && sum.messages <= RECORDS_MAX {
        Ok(Holds::Messages(sum))
    } else {
        Err(PeerFault::Record)
    }
}

/// The message of a body that holds nothing else.
#[inline(always)]
pub(super) fn only_message(body: &[u8]) -> Option<&[u8]> {
    let (header, padded_payload) = body.split_first_chunk::<RECORD_BYTES>()?;
    let header = u64::from_le_bytes(*header);
    let len = usize::from(header as u16);
    let is_one = header >> 16 == u64::from(kind::MESSAGE) && padded_payload.len() == padded(len);
    if is_one { padded_payload.get(..len) } else { None }
}

/// Checks a body that may hold records of any kind.
#[inline(never)]
fn check_mixed(body: &[u8]) -> Result<Holds, PeerFault> {
    let mut tail = body;
    let mut count = 0;
    while let Some((&[l0, l1, kind, flags, s0, s1, s2, s3], behind)) =
        tail.split_first_chunk::<RECORD_BYTES>()
    {
        if kind > kind::MESSAGE {
            return check_rma(body);
        }
        if flags != 0 || [s0, s1, s2, s3] != [0; 4] || count == RECORDS_MAX {
            return Err(PeerFault::Record);
        }
        let payload_bytes = usize::from(u16::from_le_bytes([l0, l1]));
        tail = behind.get(padded(payload_bytes)..).ok_or(PeerFault::Record)?;
        count += 1;
    }
    if tail.is_empty() { Ok(Holds::Messages(Summary::default())) } else { Err(PeerFault::Record) }
}

/// Checks a body that holds records of remote memory access, and returns what it holds.
#[inline(never)]
fn check_rma(mut body: &[u8]) -> Result<Holds, PeerFault> {
    let (mut count, mut messages, mut bulk) = (0, false, false);
    while let Some(&[l0, l1, kind, flags, s0, s1, s2, s3]) = body.first_chunk::<RECORD_BYTES>() {
        let len = if kind > kind::MESSAGE {
            let (record, len) = Record::parse(body).ok_or(PeerFault::Record)?;
            messages |= matches!(record, Record::Notify { message: Some(_), .. });
            bulk |= is_bulk(&record);
            len
        } else if flags != 0 || [s0, s1, s2, s3] != [0; 4] {
            return Err(PeerFault::Record);
        } else {
            messages |= kind == kind::MESSAGE;
            record_bytes(u16::from_le_bytes([l0, l1]).into())
        };
        if count == RECORDS_MAX {
            return Err(PeerFault::Record);
        }
        body = body.get(len..).ok_or(PeerFault::Record)?;
        count += 1;
    }
    match bulk && count == 1 {
        _ if !body.is_empty() => Err(PeerFault::Record),
        true => Ok(Holds::Bulk),
        false => Ok(Holds::Rma { messages }),
    }
}

/// Whether a record is data that may be written to its address whenever it comes, if its bundle holds nothing else.
#[inline]
fn is_bulk(record: &Record<'_>) -> bool {
    matches!(record, Record::Write { last: false, .. } | Record::Data { .. } | Record::Gone { .. })
}

/// Iterates over the records of a checked body: each record, and the offset behind it.
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
    type Item = (Content<'a>, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let record = self.body.get(self.at..)?;
        let (&[l0, l1, kind, ..], tail) = record.split_first_chunk::<RECORD_BYTES>()?;
        if kind > kind::MESSAGE {
            let (record, len) = Record::parse(record)?;
            self.at += len;
            return Some((Content::Rma(record), self.at));
        }
        let payload = tail.get(..usize::from(u16::from_le_bytes([l0, l1])))?;
        self.at += record_bytes(payload.len());
        let content = if kind == kind::MESSAGE { Content::Message(payload) } else { Content::Void };
        Some((content, self.at))
    }
}

/// Iterates over a checked body for its messages only: `None` for any other record, and the offset behind each.
pub(crate) struct Messages<'a>(Records<'a>);

impl<'a> Messages<'a> {
    /// Starts at byte `at` of the body, where a record must begin.
    #[inline]
    pub(crate) fn from(body: &'a [u8], at: usize) -> Messages<'a> {
        Messages(Records::from(body, at))
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = (Option<&'a [u8]>, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let tail = self.0.body.get(self.0.at..)?;
        let (&[l0, l1, kind, ..], tail) = tail.split_first_chunk::<RECORD_BYTES>()?;
        let payload = tail.get(..usize::from(u16::from_le_bytes([l0, l1])))?;
        self.0.at += record_bytes(payload.len());
        Some(((kind == kind::MESSAGE).then_some(payload), self.0.at))
    }
}

/// The messages of a bundle, in order.
#[derive(Clone, Debug, Default)]
pub struct BundleMessages<'a> {
    /// A body that holds nothing else, or what is left of it.
    body: &'a [u8],
}

impl<'a> BundleMessages<'a> {
    pub(crate) fn of(body: &'a [u8]) -> BundleMessages<'a> {
        BundleMessages { body }
    }

    /// Those of records that came from [`BundleMessages::as_bytes`]. Of others it gives whatever they look like.
    #[must_use]
    pub fn of_checked(records: &'a [u8]) -> BundleMessages<'a> {
        BundleMessages::of(records)
    }

    /// The records of those that are left.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.body
    }

    /// Whether each message begins at an address divisible by 8.
    #[must_use]
    pub fn are_aligned(&self) -> bool {
        self.body.as_ptr().addr().is_multiple_of(8)
    }

    /// Whether there are none left.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.body.is_empty()
    }
}

impl<'a> Iterator for BundleMessages<'a> {
    type Item = &'a [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (&[l0, l1, ..], behind) = self.body.split_first_chunk::<RECORD_BYTES>()?;
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        // What is behind is there, as the body was checked.
        let (padded, behind) = behind.split_at_checked(padded(len))?;
        self.body = behind;
        padded.get(..len)
    }
}

/// Writes one message record at the start of `out`, and returns its length. The caller has made sure that it fits.
#[inline]
pub(crate) fn write_record(out: &mut [u8], segments: &[&[u8]], payload_bytes: usize) -> usize {
    let total = record_bytes(payload_bytes);
    let out = &mut out[..total];
    let [l0, l1] = (payload_bytes as u16).to_le_bytes();
    out[..RECORD_BYTES].copy_from_slice(&[l0, l1, kind::MESSAGE, 0, 0, 0, 0, 0]);
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

/// Writes one message record that fills `out`.
#[inline(always)]
pub(crate) fn write_only_record(out: &mut [u8], payload: &[u8]) {
    let Some((header, out)) = out.split_first_chunk_mut::<RECORD_BYTES>() else { return };
    let [l0, l1] = (payload.len() as u16).to_le_bytes();
    *header = [l0, l1, kind::MESSAGE, 0, 0, 0, 0, 0];
    if let (Some(word), Ok(bytes)) = (out.first_chunk_mut::<8>(), <&[u8; 8]>::try_from(payload)) {
        *word = *bytes;
    } else {
        copy_padded(out, payload);
    }
}

/// What [`write_records`] has written.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub messages: u32,
    /// All bytes of their records.
    pub body_bytes: usize,
    /// Bytes of the messages alone.
    pub payload_bytes: usize,
}

/// Copies a message to where its record has space for it, and fills that up with zeros.
#[inline(never)]
fn copy_padded(payload: &mut [u8], message: &[u8]) {
    if let Some(last) = payload.last_chunk_mut::<8>() {
        *last = [0; 8];
    }
    payload[..message.len()].copy_from_slice(message);
}

/// Writes messages as records at the start of `out`, from the first on, as far as they fit and none is longer than
/// `message_bytes_max`, which is less than 64 KiB.
// Apart from its caller, so that what the loop needs stays in registers.
#[inline(never)]
pub(crate) fn write_records(out: &mut [u8], messages: &[&[u8]], message_bytes_max: usize) -> Written {
    let mut written = Written::default();
    for message in messages {
        let len = message.len();
        let end = written.body_bytes + record_bytes(len);
        let Some(record) = out.get_mut(written.body_bytes..end).filter(|_| len <= message_bytes_max) else {
            break;
        };
        let Some((header, payload)) = record.split_first_chunk_mut::<RECORD_BYTES>() else { break };
        *header = (u64::from(kind::MESSAGE) << 16 | len as u64).to_le_bytes();
        // What is shortest is written without a call and without a loop.
        match (payload.first_chunk_mut::<8>(), <&[u8; 8]>::try_from(*message)) {
            (Some(word), Ok(bytes)) => *word = *bytes,
            _ => copy_padded(payload, message),
        }
        written.messages += 1;
        written.body_bytes = end;
        written.payload_bytes += len;
    }
    written
}

/// Makes the record at `at` an empty one of the same length.
pub(crate) fn set_void_at(body: &mut [u8], at: usize) {
    if let Some(header) = body.get_mut(at..).and_then(|tail| tail.first_chunk_mut::<RECORD_BYTES>()) {
        let [l0, l1, ..] = *header;
        *header = [l0, l1, kind::VOID, 0, 0, 0, 0, 0];
    }
}

/// Makes the NOTIFY at `at` a message like any other.
pub(crate) fn set_message_at(body: &mut [u8], at: usize) {
    if let Some(header) = body.get_mut(at..).and_then(|tail| tail.first_chunk_mut::<RECORD_BYTES>()) {
        let [l0, l1, ..] = *header;
        *header = [l0, l1, kind::MESSAGE, 0, 0, 0, 0, 0];
    }
}

/// Makes the NOTIFY at `at` one that delivers nothing.
pub(crate) fn set_bare_at(body: &mut [u8], at: usize) {
    if let Some([_, _, rma::kind::NOTIFY, flags, ..]) = body.get_mut(at..) {
        *flags = rma::flag::BARE;
    }
}

/// Makes all messages of a body but the last `remaining` empty records, so that they can never be delivered.
//= wire.md R-RNR-6
pub(crate) fn set_void(body: &mut [u8], remaining: u32) {
    let is_message = |content: &Content| matches!(content, Content::Void | Content::Message(_));
    let messages = Records::from(body, 0).filter(|(content, _)| is_message(content)).count();
    let mut gone = messages.saturating_sub(remaining as usize);
    let mut at = 0;
    while gone != 0 {
        let Some((content, end)) = Records::from(body, at).next() else { return };
        if is_message(&content) {
            set_void_at(body, at);
            gone -= 1;
        }
        at = end;
    }
}
