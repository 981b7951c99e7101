//! Where messages come from.

use cci::{Connection, Endpoint, Memory, RegionAddress, RegionHandle, RmaKind};

/// The endpoint copies no more to mapped memory in one call.
const AT_ONCE_BYTES: usize = 1 << 20;

/// Where a message comes from.
#[derive(Copy, Clone)]
pub(super) enum Source<'a> {
    Slice(&'a [u8]),
    Memory(&'a Memory),
}

impl Source<'_> {
    #[inline]
    pub fn len(self) -> usize {
        match self {
            Source::Slice(bytes) => bytes.len(),
            Source::Memory(memory) => memory.len(),
        }
    }

    #[inline]
    pub fn read(self, to: &mut [u8]) -> bool {
        match self {
            Source::Slice(bytes) => {
                let is_long = bytes.len() == to.len();
                if is_long {
                    to.copy_from_slice(bytes);
                }
                is_long
            }
            Source::Memory(memory) => memory.read(0, to),
        }
    }

    pub fn append(self, at: usize, len: usize, to: &mut Vec<u8>) -> bool {
        match self {
            Source::Slice(bytes) => {
                let piece = bytes.get(at..at + len);
                to.extend_from_slice(piece.unwrap_or_default());
                piece.is_some()
            }
            Source::Memory(memory) => {
                let start = to.len();
                to.resize(start + len, 0);
                to.get_mut(start..).is_some_and(|piece| memory.read(at, piece))
            }
        }
    }

    pub fn copy(self, at: usize, len: usize, to: &Memory, to_at: usize) -> bool {
        match self {
            Source::Slice(bytes) => bytes.get(at..at + len).is_some_and(|piece| to.write(to_at, piece)),
            Source::Memory(memory) => to.copy_from(to_at, memory, at, len),
        }
    }

    /// Copies to a region of another rank's that is mapped. False: it is not, or not now, and some bytes may have been copied.
    pub fn put(
        self,
        (at, len): (usize, usize),
        endpoint: &mut Endpoint,
        connection: Connection,
        (region, offset): (RegionHandle, u64),
    ) -> bool {
        (0..len).step_by(AT_ONCE_BYTES).all(|start| {
            let (at, part) = (at + start, AT_ONCE_BYTES.min(len - start));
            let remote = offset + start as u64;
            match self {
                Source::Slice(bytes) => bytes.get(at..at + part).is_some_and(|piece| {
                    endpoint.write_long_at_once(connection, piece, RegionAddress::new(region, remote))
                }),
                Source::Memory(memory) => {
                    let target = RegionAddress::new(region, remote);
                    endpoint.copy_long_at_once(RmaKind::Write, connection, (memory, at), target, part)
                }
            }
        })
    }
}
