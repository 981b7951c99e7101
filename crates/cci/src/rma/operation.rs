//! Operations: read, write, and their gathered and scattered forms.

use super::RegionHandle;
use cci_proto::RmaKind;
use std::ops::BitOr;

/// An address in a region: of this endpoint's, or of a peer's.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RegionAddress {
    /// The region that the address is in.
    pub handle: RegionHandle,
    /// Bytes from its start.
    pub offset: u64,
}

impl RegionAddress {
    /// `offset` bytes into the region.
    pub const fn new(handle: RegionHandle, offset: u64) -> RegionAddress {
        RegionAddress { handle, offset }
    }
}

/// Contiguous bytes in a region.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The address of its first byte.
    pub address: RegionAddress,
    /// Its length in bytes.
    pub len_bytes: u64,
}

impl Segment {
    /// `len_bytes` from `offset` of the region on.
    pub const fn new(handle: RegionHandle, offset: u64, len_bytes: u64) -> Segment {
        Segment { address: RegionAddress { handle, offset }, len_bytes }
    }
}

/// Blocks of one length at equal distances, in local memory and in a peer's region.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// Where the first block begins in the local memory, in bytes.
    pub local: usize,
    /// From the beginning of a local block to that of the next one, in bytes.
    pub local_stride: isize,
    /// Where the first block begins in the peer's region, in bytes.
    pub remote: usize,
    /// From the beginning of a block there to that of the next one, in bytes.
    pub remote_stride: isize,
    /// The length of each block in bytes.
    pub len_bytes: usize,
    /// How many blocks there are.
    pub count: usize,
}

/// Flags of an operation, combined with `|`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Default)]
pub struct RmaFlags(u8);

impl RmaFlags {
    /// Raise an event at completion.
    pub const NONE: RmaFlags = RmaFlags(0);
    /// No completion event. A failure is counted in `sends_failed`.
    pub const SILENT: RmaFlags = RmaFlags(1);
    /// Everything started on this connection before is complete at the target before this operation touches its memory
    /// (CCI-063). Costs a round trip, and only where it is used.
    pub const FENCE: RmaFlags = RmaFlags(2);

    /// True when all of `other` is in `self`.
    pub const fn contains(self, other: RmaFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for RmaFlags {
    type Output = RmaFlags;
    fn bitor(self, other: RmaFlags) -> RmaFlags {
        RmaFlags(self.0 | other.0)
    }
}

/// One operation, whole: from any segments of local memory to any segments of remote memory, or back. Both lists have the
/// same total length, and each at least one segment; they need not be divided alike.
///
/// ```
/// use cci::{Connection, Endpoint, Segment, Rma, RmaError, RmaFlags, RegionHandle, RmaKind};
///
/// /// Writes a page of ours to the peer's region, and notifies its program once it is there.
/// fn publish(
///     endpoint: &mut Endpoint,
///     peer: Connection,
///     ours: RegionHandle,
///     theirs: RegionHandle,
/// ) -> Result<(), RmaError> {
///     let (local, remote) = ([Segment::new(ours, 0, 4_096)], [Segment::new(theirs, 0, 4_096)]);
///     let message = Some(&b"page 0 is there"[..]);
///     let flags = RmaFlags::NONE;
///     endpoint.rma(peer, &Rma { kind: RmaKind::Write, local: &local, remote: &remote, message, context: 0, flags })
/// }
/// ```
#[derive(Copy, Clone, Debug)]
pub struct Rma<'a> {
    /// Write to the peer's memory, or read from it.
    pub kind: RmaKind,
    /// Segments of regions of this endpoint, in order.
    pub local: &'a [Segment],
    /// Segments of regions of the peer's, in order.
    pub remote: &'a [Segment],
    /// Delivered to the peer as an ordinary message once all the data is there (CCI-064); nothing is delivered when the
    /// operation fails.
    pub message: Option<&'a [u8]>,
    /// Returned unchanged with the completion.
    pub context: u64,
    /// Options of the operation.
    pub flags: RmaFlags,
}
