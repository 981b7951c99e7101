//! The datagrams, byte for byte, as `docs/wire.md` has them. Nothing else reads or writes them.
//!
//! Everything is parsed once, into values that cannot be wrong; fields are little-endian.

mod handshake;
mod head;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use handshake::{Accept, Connect, Hello, Reject, Reset, Retry, VersionNotice};
pub(crate) use head::{Head, Kind, PartHead, PathBody, Sack, flags};
pub use record::BundleMessages;
pub(crate) use record::{
    Content, Holds, Messages, Records, Summary, check, set_bare_at, set_message_at, set_void, set_void_at,
    write_only_record, write_record, write_records,
};

use crate::limits::{DATAGRAM_BYTES_MAX, HEADER_BYTES, VERSION, padded};
use crate::{PeerFault, Time};

/// One datagram, parsed.
#[derive(Debug, PartialEq)]
pub(crate) enum Packet<'a> {
    Hello(Hello),
    Retry(Retry),
    Connect(Connect<'a>),
    Accept(Accept),
    Reject(Reject),
    Version(VersionNotice),
    Reset(Reset),
    /// A datagram of any type that only an established connection sends. Its body is a sequence of records, checked.
    Established(Head, Sack, Holds, &'a [u8]),
}

//= wire.md R-GEN-4
//= wire.md R-GEN-5
/// The wire's type numbers (the low four bits of the first byte).
pub(crate) mod types {
    pub const HELLO: u8 = 1;
    pub const RETRY: u8 = 2;
    pub const CONNECT: u8 = 3;
    pub const ACCEPT: u8 = 4;
    pub const REJECT: u8 = 5;
    pub const VERSION: u8 = 6;
    pub const RESET: u8 = 7;
    pub const DATA: u8 = 8;
    pub const ACK: u8 = 9;
    pub const PING: u8 = 10;
    pub const CLOSE: u8 = 11;
    pub const CLOSE_ACK: u8 = 12;
    /// A datagram to a group, which never comes to an endpoint's own address: see [`crate::group`].
    pub const GROUP: u8 = 13;
    /// A sealed datagram. The carrier opens it and gives the protocol what is inside.
    pub const SEALED: u8 = 14;
    pub const PATH: u8 = 15;
}

/// Bytes of the header and the tag of a sealed datagram: none is shorter.
const SEALED_OVERHEAD_BYTES: usize = 32;

/// The first byte of a datagram of type `kind`.
const fn first_byte(kind: u8) -> u8 {
    VERSION << 4 | kind
}

/// The unit of a timestamp, in nanoseconds.
pub(crate) const TIMESTAMP_NS: u64 = 64;

//= wire.md R-GEN-7
/// The clock as it travels: units of 64 ns, wrapping after 274 s.
pub(crate) const fn timestamp(now: Time) -> u32 {
    (now.0 >> 6) as u32
}

/// Nanoseconds from `earlier` to `later`, both as they travel. 0 if the result makes no sense, which is more than half
/// the wrap.
pub(crate) const fn timestamp_ns_between(earlier: u32, later: u32) -> u64 {
    let units = later.wrapping_sub(earlier);
    if units < 1 << 31 { (units as u64) << 6 } else { 0 }
}

impl Packet<'_> {
    /// Parses one datagram.
    #[inline]
    pub(crate) fn parse(datagram: &[u8]) -> Result<Packet<'_>, PeerFault> {
        //= wire.md R-GEN-2
        if datagram.len() > DATAGRAM_BYTES_MAX as usize || !datagram.len().is_multiple_of(8) {
            return Err(PeerFault::Length);
        }
        let &[first, ..] = datagram else { return Err(PeerFault::Short) };
        //= wire.md R-VER-1
        if first >> 4 != VERSION {
            // Every version understands these two datagrams. Of all others, those of another version mean nothing.
            return match first & 15 {
                types::HELLO => Hello::parse_any_version(datagram).map(Packet::Hello),
                types::VERSION => VersionNotice::parse(datagram).map(Packet::Version),
                _ => Err(PeerFault::Version),
            };
        }
        match first & 15 {
            types::HELLO => Hello::parse(datagram).map(Packet::Hello),
            types::RETRY => Retry::parse(datagram).map(Packet::Retry),
            types::CONNECT => Connect::parse(datagram).map(Packet::Connect),
            types::ACCEPT => Accept::parse(datagram).map(Packet::Accept),
            types::REJECT => Reject::parse(datagram).map(Packet::Reject),
            types::VERSION => VersionNotice::parse(datagram).map(Packet::Version),
            types::RESET => Reset::parse(datagram).map(Packet::Reset),
            kind => {
                let kind = Kind::from_wire(kind).ok_or(PeerFault::Type)?;
                let (head, sack, holds, body) = Head::parse(kind, datagram)?;
                Ok(Packet::Established(head, sack, holds, body))
            }
        }
    }
}

/// The length of the first datagram in `bytes`, which may hold several of one sender side by side. It is what the
/// header says, unchecked; all of `bytes` where the header has no length.
///
/// For carriers whose kernel joins datagrams: they need not ask it where one ends.
#[inline]
#[must_use]
pub fn first_datagram_bytes(bytes: &[u8]) -> usize {
    let len = match bytes.first().map(|first| (first >> 4, first & 15)) {
        Some((VERSION, kind)) => match kind {
            types::HELLO => Hello::BYTES,
            types::RETRY => Retry::BYTES,
            types::CONNECT => Connect::FIXED_BYTES + padded(u16_at(bytes, 46)),
            types::ACCEPT => Accept::BYTES,
            types::REJECT => Reject::BYTES,
            types::VERSION => VersionNotice::BYTES,
            types::RESET => Reset::BYTES,
            types::DATA..=types::CLOSE_ACK | types::PATH => {
                let words = bytes.get(2).copied().map_or(0, usize::from);
                HEADER_BYTES + 8 * (words + u16_at(bytes, 46))
            }
            //= wire.md R-GEN-5
            // At least its header and tag, so that a false length can't make a thousand datagrams of one.
            types::SEALED => u16_at(bytes, 2).max(SEALED_OVERHEAD_BYTES),
            _ => bytes.len(),
        },
        _ => bytes.len(),
    };
    len.min(bytes.len())
}

fn u16_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u16::from_le_bytes(*bytes).into())
}

/// Reads little-endian fields in order from a slice whose length has been checked by the type.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline(always)]
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], PeerFault> {
        let (bytes, tail) = self.0.split_first_chunk::<N>().ok_or(PeerFault::Short)?;
        self.0 = tail;
        Ok(*bytes)
    }

    #[inline(always)]
    fn u8(&mut self) -> Result<u8, PeerFault> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    #[inline(always)]
    fn u16(&mut self) -> Result<u16, PeerFault> {
        self.bytes().map(u16::from_le_bytes)
    }

    #[inline(always)]
    fn u32(&mut self) -> Result<u32, PeerFault> {
        self.bytes().map(u32::from_le_bytes)
    }

    #[inline(always)]
    fn u64(&mut self) -> Result<u64, PeerFault> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Skips reserved bytes, which are zero in this version.
    fn zero<const N: usize>(&mut self) -> Result<(), PeerFault> {
        if self.bytes::<N>()? == [0; N] { Ok(()) } else { Err(PeerFault::Field) }
    }

    fn tail(self) -> &'a [u8] {
        self.0
    }
}

/// Writes fields in order. That they fit is up to the caller, never to the peer.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut [u8]) -> Writer<'a> {
        Writer { out, at: 0 }
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn zeros(mut self, count: usize) -> Self {
        self.out[self.at..self.at + count].fill(0);
        self.at += count;
        self
    }

    /// How many bytes were written, a multiple of 8.
    fn finish(self) -> usize {
        debug_assert!(self.at.is_multiple_of(8), "every datagram is a multiple of 8 bytes long");
        self.at
    }
}
