//! Frames of our own on an Ethernet interface: their header, the interface they leave by, who owns an endpoint number
//! there, and what sockets for them have in common ([`FrameSocket`]; [`crate::xdp`] and [`crate::packet`] have one each).
//!
//! This is the part of the SeaStar header that its NIC kept (CCI 2013, IV.B: type, destination, length); on our
//! machines the eBPF program `xdp/steer.c` and the filter of `packet` read it.

use std::fmt;
use std::io;
use std::os::fd::AsFd;

mod link;
mod lock;
pub(crate) mod raw;

pub use link::{Link, Lookout};
pub use lock::EndpointLock;
#[cfg(feature = "xdp")]
pub(crate) use lock::Looker;

/// A hardware address.
pub type Mac = [u8; 6];

/// Ethertype of our frames: IEEE 802 local experimental 1.
pub const ETHERTYPE: u16 = 0x88b5;
/// Version of the frame header.
pub const VERSION: u8 = 1;
/// Bytes of the Ethernet header: two addresses and the ethertype.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of our header behind it.
pub const HEADER_BYTES: usize = 18;
/// Where the payload begins: a multiple of 8.
pub const PAYLOAD_OFFSET: usize = ETHERNET_BYTES + HEADER_BYTES;

/// Offset of the destination endpoint in the frame, u32 little-endian.
pub const TO_ENDPOINT_OFFSET: usize = 16;

const _: () =
    assert!(PAYLOAD_OFFSET.is_multiple_of(8), "the protocol's 64-bit fields are aligned in the frame");

/// Where a frame goes and where it comes from. Endpoint 0 is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameHeader {
    /// Interface it goes to.
    pub to: Mac,
    /// Interface it comes from.
    pub from: Mac,
    /// Endpoint behind `to`.
    pub to_endpoint: u32,
    /// Endpoint behind `from`.
    pub from_endpoint: u32,
}

/// Why a frame is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameFault {
    /// It ends before its headers do, or before the payload they announce.
    Short,
    /// It has another ethertype.
    Ethertype,
    /// It has a version that we do not know, or bits that this version leaves zero.
    Version,
    /// An endpoint number is zero.
    Endpoint,
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameFault::Short => "the frame is cut off",
            FrameFault::Ethertype => "another ethertype",
            FrameFault::Version => "another version of the frame header",
            FrameFault::Endpoint => "endpoint number 0",
        })
    }
}

impl FrameHeader {
    /// The header's bytes for a payload of `payload_bytes`: the first [`PAYLOAD_OFFSET`] of the frame.
    #[inline]
    #[must_use]
    pub fn emit(&self, payload_bytes: u16) -> [u8; PAYLOAD_OFFSET] {
        let ([t0, t1, t2, t3, t4, t5], [f0, f1, f2, f3, f4, f5]) = (self.to, self.from);
        let [e0, e1] = ETHERTYPE.to_be_bytes();
        let [d0, d1, d2, d3] = self.to_endpoint.to_le_bytes();
        let [s0, s1, s2, s3] = self.from_endpoint.to_le_bytes();
        let [l0, l1] = payload_bytes.to_le_bytes();
        [
            t0, t1, t2, t3, t4, t5, f0, f1, f2, f3, f4, f5, e0, e1, VERSION, 0, d0, d1, d2, d3, s0, s1, s2,
            s3, l0, l1, 0, 0, 0, 0, 0, 0,
        ]
    }

    //= wire.md R-ETH-1
    /// Header and payload of `frame`, which may be padded behind the payload.
    #[inline]
    pub fn parse(frame: &[u8]) -> Result<(FrameHeader, &[u8]), FrameFault> {
        let (head, remainder) = frame.split_first_chunk::<PAYLOAD_OFFSET>().ok_or(FrameFault::Short)?;
        let [t0, t1, t2, t3, t4, t5, f0, f1, f2, f3, f4, f5, e0, e1, version, zero, fields @ ..] = *head;
        if u16::from_be_bytes([e0, e1]) != ETHERTYPE {
            return Err(FrameFault::Ethertype);
        }
        let [d0, d1, d2, d3, s0, s1, s2, s3, l0, l1, spare @ ..] = fields;
        if version != VERSION || zero != 0 || spare != [0; 6] {
            return Err(FrameFault::Version);
        }
        let header = FrameHeader {
            to: [t0, t1, t2, t3, t4, t5],
            from: [f0, f1, f2, f3, f4, f5],
            to_endpoint: u32::from_le_bytes([d0, d1, d2, d3]),
            from_endpoint: u32::from_le_bytes([s0, s1, s2, s3]),
        };
        if header.to_endpoint == 0 || header.from_endpoint == 0 {
            return Err(FrameFault::Endpoint);
        }
        let payload = remainder.get(..u16::from_le_bytes([l0, l1]).into()).ok_or(FrameFault::Short)?;
        Ok((header, payload))
    }
}

/// A socket that sends and receives whole frames, without a copy into or out of memory of ours. Frames may be lost,
/// repeated and reordered. No call blocks or allocates.
///
/// Sending: `begin`, write, `commit`, as often as there is space; then `flush`. Receiving: `receive` until `None`, then
/// `release`.
pub trait FrameSocket: AsFd + fmt::Debug + Send {
    /// Longest frame that can be sent or received, Ethernet header included.
    fn frame_bytes_max(&self) -> usize;

    /// How many frames can be begun before the kernel has sent some. Looks at the ring when there seems to be none.
    fn space(&mut self) -> usize;

    /// Memory for the next frame, of `len_bytes` (at most [`frame_bytes_max`](FrameSocket::frame_bytes_max)). Its first
    /// byte is the first of the Ethernet header, its payload is aligned to 8. Its contents are arbitrary. `None`: no space now, or
    /// too long. Without `commit` the next `begin` gives the same memory.
    fn begin(&mut self, len_bytes: usize) -> Option<&mut [u8]>;

    /// The frame begun last is complete and `len_bytes` long, no longer than what was begun. It leaves with `flush`.
    fn commit(&mut self, len_bytes: usize);

    /// How many committed frames the kernel does not know of, or would not take yet; more on kernels that do not
    /// show at once what they have taken.
    fn pending(&mut self) -> usize;

    /// Gives the kernel what is pending. `WouldBlock` never comes out: what is not taken stays pending and goes with the
    /// next flush. `ENETDOWN`, `ENXIO`: the interface is down or gone; what was pending may be lost.
    fn flush(&mut self) -> io::Result<()>;

    /// The next frame; `None`: none is there. It stays as it is until the next call of `receive` or `release`. No
    /// system call.
    fn receive(&mut self) -> Option<&[u8]>;

    /// Gives the kernel back what `receive` has handed out. Cheap when that was nothing.
    fn release(&mut self);

    /// Whether `receive` would give a frame. No system call.
    fn ready(&self) -> bool;

    /// Bytes of frames that the kernel can store for us before it drops some.
    fn receive_buffer_bytes(&self) -> usize;

    /// Bytes of memory that the socket holds: frames and rings.
    fn memory_bytes(&self) -> usize;

    /// What happened until now; asks the kernel for its part.
    fn stats(&mut self) -> FrameStats;
}

/// What a socket holds against its interface since the last look, `ENETDOWN` above all: as long as nobody looks, its
/// descriptor is readable on that account.
pub fn take_error(fd: impl AsFd) -> io::Result<()> {
    rustix::net::sockopt::socket_error(fd)??;
    Ok(())
}

/// What a [`FrameSocket`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStats {
    /// Frames given to the kernel.
    pub sent: u64,
    /// System calls that made the kernel send.
    pub kicks: u64,
    /// Times that a frame could not be begun for want of room.
    pub full: u64,
    /// Frames received.
    pub received: u64,
    /// Frames for us that the kernel dropped because we had no room for them.
    pub dropped: u64,
    /// Frames of ours that the kernel refused as invalid, or lost to errors of the interface.
    pub refused: u64,
    /// Entries in which the kernel's ring made no sense, or frames cut off: skipped.
    pub malformed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: FrameHeader = FrameHeader {
        to: [2, 0, 0, 0, 0, 1],
        from: [2, 0, 0, 0, 0, 2],
        to_endpoint: 0x0403_0201,
        from_endpoint: 0x0807_0605,
    };

    fn frame(payload: &[u8]) -> Vec<u8> {
        [&HEADER.emit(payload.len() as u16)[..], payload].concat()
    }

    #[test]
    fn what_is_written_is_read() {
        for len in [0, 1, 8, 46, 1_468, 9_000] {
            let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut frame = frame(&payload);
            assert_eq!(FrameHeader::parse(&frame), Ok((HEADER, &payload[..])));
            frame.extend([0; 20]);
            assert_eq!(FrameHeader::parse(&frame), Ok((HEADER, &payload[..])), "padded");
        }
    }

    #[test]
    fn the_layout_is_what_the_program_in_the_kernel_reads() {
        let bytes = frame(b"12345678");
        assert_eq!(bytes[12..16], [0x88, 0xb5, 1, 0]);
        assert_eq!(bytes[TO_ENDPOINT_OFFSET..][..4], [1, 2, 3, 4]);
        assert_eq!(bytes[20..32], [5, 6, 7, 8, 8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&bytes[PAYLOAD_OFFSET..], b"12345678");
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_judged() {
        let good = frame(b"12345678");
        for len in 0..good.len() {
            assert_eq!(FrameHeader::parse(&good[..len]), Err(FrameFault::Short), "{len}");
        }
        let changed = |at: usize, to: u8| {
            let mut bytes = good.clone();
            bytes[at] = to;
            FrameHeader::parse(&bytes).map(|(header, _)| header)
        };
        assert_eq!(changed(12, 8), Err(FrameFault::Ethertype));
        for at in [14, 15, 26, 27, 28, 29, 30, 31] {
            assert_eq!(changed(at, 9), Err(FrameFault::Version), "{at}");
        }
        assert_eq!(changed(24, 9), Err(FrameFault::Short), "longer than the frame");
        assert!(changed(24, 7).is_ok(), "padding");
        let mut nobody = HEADER;
        nobody.to_endpoint = 0;
        assert_eq!(FrameHeader::parse(&nobody.emit(0)), Err(FrameFault::Endpoint));
    }
}
