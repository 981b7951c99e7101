//! The datagrams that make and unmake connections.

use super::{Reader, Writer, first_byte, types};
use crate::limits::padded;
use crate::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, REQUEST_BYTES_MAX, VERSION};
use crate::{Attribute, PeerFault, Seq};

/// The first datagram of a client, which asks for a cookie. It is as long as the longest answer to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The version in which the client asks.
    pub version: u8,
    pub index: u32,
    pub generation: u32,
    pub nonce: u64,
    pub timestamp: u32,
}

impl Hello {
    pub const BYTES: usize = 64;

    pub(super) fn parse(datagram: &[u8]) -> Result<Hello, PeerFault> {
        let hello = Hello::parse_any_version(datagram)?;
        if datagram.iter().skip(28).any(|&byte| byte != 0) {
            return Err(PeerFault::Field);
        }
        Ok(hello)
    }

    /// Parses the part that is the same in every version.
    //= wire.md R-VER-2
    pub(super) fn parse_any_version(datagram: &[u8]) -> Result<Hello, PeerFault> {
        //= wire.md R-HS-2
        if datagram.len() < Hello::BYTES {
            return Err(PeerFault::Short);
        }
        let mut read = Reader(datagram);
        let version = read.u8()? >> 4;
        read.zero::<3>()?;
        let hello = Hello {
            version,
            index: read.u32()?,
            generation: read.u32()?,
            nonce: {
                read.zero::<4>()?;
                read.u64()?
            },
            timestamp: read.u32()?,
        };
        Ok(hello)
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        Writer::new(out)
            .u8(self.version << 4 | types::HELLO)
            .zeros(3)
            .u32(self.index)
            .u32(self.generation)
            .zeros(4)
            .u64(self.nonce)
            .u32(self.timestamp)
            .zeros(36)
            .finish()
    }
}

/// A stateless server's answer to [`Hello`]: a cookie, with which the client is to ask again.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    pub index: u32,
    pub generation: u32,
    pub bucket: u32,
    pub nonce: u64,
    pub cookie: u64,
}

impl Retry {
    pub const BYTES: usize = 32;

    pub(super) fn parse(datagram: &[u8]) -> Result<Retry, PeerFault> {
        let mut read = Reader(datagram);
        read.u8()?;
        read.zero::<3>()?;
        Ok(Retry {
            index: read.u32()?,
            generation: read.u32()?,
            bucket: read.u32()?,
            nonce: read.u64()?,
            cookie: read.u64()?,
        })
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        Writer::new(out)
            .u8(first_byte(types::RETRY))
            .zeros(3)
            .u32(self.index)
            .u32(self.generation)
            .u32(self.bucket)
            .u64(self.nonce)
            .u64(self.cookie)
            .finish()
    }
}

/// The request itself: cookie, parameters, and the program's payload.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Connect<'a> {
    pub index: u32,
    pub generation: u32,
    pub bucket: u32,
    pub nonce: u64,
    pub cookie: u64,
    pub timestamp: u32,
    pub first_seq: Seq,
    pub datagram_bytes_max: u16,
    pub window_kib: u16,
    pub attribute: Attribute,
    /// The client has another path to the server and would like to use both.
    pub bond: bool,
    pub payload: &'a [u8],
}

impl<'a> Connect<'a> {
    pub const FIXED_BYTES: usize = 48;

    pub(super) fn parse(datagram: &'a [u8]) -> Result<Connect<'a>, PeerFault> {
        let mut read = Reader(datagram);
        read.u8()?;
        read.zero::<3>()?;
        let (index, generation, bucket) = (read.u32()?, read.u32()?, read.u32()?);
        let (nonce, cookie) = (read.u64()?, read.u64()?);
        let (timestamp, first_seq) = (read.u32()?, Seq(read.u32()?));
        let (datagram_bytes_max, window_kib) = (datagram_bytes(read.u16()?)?, read.u16()?);
        let attribute = Attribute::from_wire(read.u8()?).ok_or(PeerFault::Field)?;
        let bond = bond_flag(read.u8()?)?;
        let len = usize::from(read.u16()?);
        if len > REQUEST_BYTES_MAX {
            return Err(PeerFault::Field);
        }
        let payload = read.tail().get(..len).ok_or(PeerFault::Short)?;
        Ok(Connect {
            index,
            generation,
            bucket,
            nonce,
            cookie,
            timestamp,
            first_seq,
            datagram_bytes_max,
            window_kib,
            attribute,
            bond,
            payload,
        })
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        let len = self.payload.len();
        Writer::new(out)
            .u8(first_byte(types::CONNECT))
            .zeros(3)
            .u32(self.index)
            .u32(self.generation)
            .u32(self.bucket)
            .u64(self.nonce)
            .u64(self.cookie)
            .u32(self.timestamp)
            .u32(self.first_seq.0)
            .u16(self.datagram_bytes_max)
            .u16(self.window_kib)
            .u8(self.attribute as u8)
            .u8(u8::from(self.bond))
            .u16(len as u16)
            .bytes(self.payload)
            .zeros(padded(len) - len)
            .finish()
    }
}

//= wire.md R-PATH-1
/// The flags of CONNECT and ACCEPT.
fn bond_flag(flags: u8) -> Result<bool, PeerFault> {
    if flags > 1 { Err(PeerFault::Field) } else { Ok(flags == 1) }
}

//= wire.md R-GEN-1
/// Checks a datagram size that a peer names.
fn datagram_bytes(bytes: u16) -> Result<u16, PeerFault> {
    if bytes.is_multiple_of(8) && (DATAGRAM_BYTES_MIN..=DATAGRAM_BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(PeerFault::Field)
    }
}

/// The server's program accepted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Accept {
    pub index: u32,
    pub generation: u32,
    pub source_index: u32,
    pub nonce: u64,
    pub source_generation: u32,
    pub first_seq: Seq,
    pub source_nonce: u64,
    pub timestamp: u32,
    pub echo: u32,
    pub datagram_bytes_max: u16,
    pub window_kib: u16,
    /// The server agrees to use two paths.
    pub bond: bool,
}

impl Accept {
    pub const BYTES: usize = 56;

    pub(super) fn parse(datagram: &[u8]) -> Result<Accept, PeerFault> {
        let mut read = Reader(datagram);
        read.u8()?;
        read.zero::<3>()?;
        let accept = Accept {
            index: read.u32()?,
            generation: read.u32()?,
            source_index: read.u32()?,
            nonce: read.u64()?,
            source_generation: read.u32()?,
            first_seq: Seq(read.u32()?),
            source_nonce: read.u64()?,
            timestamp: read.u32()?,
            echo: read.u32()?,
            datagram_bytes_max: datagram_bytes(read.u16()?)?,
            window_kib: read.u16()?,
            bond: bond_flag(read.u8()?)?,
        };
        read.zero::<3>()?;
        Ok(accept)
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        Writer::new(out)
            .u8(first_byte(types::ACCEPT))
            .zeros(3)
            .u32(self.index)
            .u32(self.generation)
            .u32(self.source_index)
            .u64(self.nonce)
            .u32(self.source_generation)
            .u32(self.first_seq.0)
            .u64(self.source_nonce)
            .u32(self.timestamp)
            .u32(self.echo)
            .u16(self.datagram_bytes_max)
            .u16(self.window_kib)
            .u8(u8::from(self.bond))
            .zeros(3)
            .finish()
    }
}

/// The server's program refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reject {
    pub index: u32,
    pub generation: u32,
    pub nonce: u64,
}

impl Reject {
    pub const BYTES: usize = 24;

    pub(super) fn parse(datagram: &[u8]) -> Result<Reject, PeerFault> {
        let mut read = Reader(datagram);
        read.u8()?;
        read.zero::<3>()?;
        let (index, generation) = (read.u32()?, read.u32()?);
        read.zero::<4>()?;
        Ok(Reject { index, generation, nonce: read.u64()? })
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        Writer::new(out)
            .u8(first_byte(types::REJECT))
            .zeros(3)
            .u32(self.index)
            .u32(self.generation)
            .zeros(4)
            .u64(self.nonce)
            .finish()
    }
}

/// The answer to a [`Hello`] of another version, which names the versions that are spoken. Its form is the same in every version.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionNotice {
    pub index: u32,
    pub generation: u32,
    pub nonce: u64,
    pub lowest: u8,
    pub highest: u8,
}

impl VersionNotice {
    pub const BYTES: usize = 32;

    pub(super) fn parse(datagram: &[u8]) -> Result<VersionNotice, PeerFault> {
        let mut read = Reader(datagram);
        read.u8()?;
        read.zero::<3>()?;
        let (index, generation) = (read.u32()?, read.u32()?);
        read.zero::<4>()?;
        let notice =
            VersionNotice { index, generation, nonce: read.u64()?, lowest: read.u8()?, highest: read.u8()? };
        read.zero::<6>()?;
        Ok(notice)
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        Writer::new(out)
            .u8(VERSION << 4 | types::VERSION)
            .zeros(3)
            .u32(self.index)
            .u32(self.generation)
            .zeros(4)
            .u64(self.nonce)
            .u8(self.lowest)
            .u8(self.highest)
            .zeros(6)
            .finish()
    }
}

/// The answer to a datagram for a connection that does not exist. It repeats what only the real peer can have sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    /// The receiver's table index, from the datagram answered.
    pub index: u32,
    /// The key that the datagram answered was for.
    pub dead_index: u32,
    pub dead_generation: u32,
    /// The nonce of the datagram answered.
    pub nonce: u64,
    /// Its sequence number.
    pub seq: Seq,
}

impl Reset {
    pub const BYTES: usize = 32;

    pub(super) fn parse(datagram: &[u8]) -> Result<Reset, PeerFault> {
        let mut read = Reader(datagram);
        read.u8()?;
        read.zero::<3>()?;
        let (index, dead_generation, dead_index) = (read.u32()?, read.u32()?, read.u32()?);
        let reset = Reset { index, dead_index, dead_generation, nonce: read.u64()?, seq: Seq(read.u32()?) };
        read.zero::<4>()?;
        Ok(reset)
    }

    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        Writer::new(out)
            .u8(first_byte(types::RESET))
            .zeros(3)
            .u32(self.index)
            .u32(self.dead_generation)
            .u32(self.dead_index)
            .u64(self.nonce)
            .u32(self.seq.0)
            .zeros(4)
            .finish()
    }
}

const _: () = {
    assert!(Retry::BYTES <= Hello::BYTES, "R-HS-2: no answer is larger than what anyone may forge");
    assert!(VersionNotice::BYTES <= Hello::BYTES && Reject::BYTES <= Hello::BYTES);
    assert!(Reset::BYTES <= crate::limits::HEADER_BYTES && Reset::BYTES <= Accept::BYTES);
    assert!(Connect::FIXED_BYTES + REQUEST_BYTES_MAX <= DATAGRAM_BYTES_MIN as usize);
};
