//! Messages on their way into one datagram.

use super::datagram::{GroupName, write_header};
use crate::limits::record_bytes;
use crate::limits::{DATAGRAM_BYTES_MAX, DATAGRAM_BYTES_MIN, GROUP_HEADER_BYTES, RECORDS_MAX};
use crate::wire::write_record;

/// One datagram to a group while it is filled. Its memory is taken once.
#[derive(Debug)]
pub struct GroupBundle {
    /// The buffer, as long as a datagram may be.
    bytes: Box<[u8]>,
    /// Bytes written, header counted.
    len: usize,
    messages: u16,
}

impl GroupBundle {
    /// An empty one, for datagrams of up to `datagram_bytes_max` bytes (1,152 to 65,504, rounded down to a multiple of 8). `None`:
    /// there is no memory.
    #[must_use]
    pub fn new(datagram_bytes_max: u16) -> Option<GroupBundle> {
        let bytes = datagram_bytes_max.clamp(DATAGRAM_BYTES_MIN, DATAGRAM_BYTES_MAX) & !7;
        let mut space = Vec::new();
        space.try_reserve_exact(bytes.into()).ok()?;
        space.resize(bytes.into(), 0);
        Some(GroupBundle { bytes: space.into_boxed_slice(), len: GROUP_HEADER_BYTES, messages: 0 })
    }

    /// Bytes of memory it holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no message in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// How many messages are in it.
    #[must_use]
    pub fn messages(&self) -> u16 {
        self.messages
    }

    /// Whether a message of `payload_bytes` fits behind those that are in it.
    #[must_use]
    pub fn fits(&self, payload_bytes: usize) -> bool {
        //= wire.md R-MC-5
        self.messages < RECORDS_MAX
            && payload_bytes <= usize::from(u16::MAX)
            && self.len + record_bytes(payload_bytes) <= self.bytes.len()
    }

    /// Adds a message made of the segments, which have `payload_bytes` together. False: it does not fit, and nothing changed.
    #[must_use]
    pub fn push(&mut self, segments: &[&[u8]], payload_bytes: usize) -> bool {
        debug_assert_eq!(payload_bytes, segments.iter().map(|segment| segment.len()).sum::<usize>());
        if !self.fits(payload_bytes) {
            return false;
        }
        let Some(tail) = self.bytes.get_mut(self.len..) else { return false };
        self.len += write_record(tail, segments, payload_bytes);
        self.messages += 1;
        true
    }

    /// Completes the datagram, as the next one of `sender` to `group`.
    pub fn finish(&mut self, group: GroupName, sender: u64, number: u64) -> &[u8] {
        let body_bytes = self.len - GROUP_HEADER_BYTES;
        if let Some(header) = self.bytes.first_chunk_mut::<GROUP_HEADER_BYTES>() {
            write_header(header, body_bytes, group, sender, number);
        }
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Forgets the messages in it.
    pub fn clear(&mut self) {
        self.len = GROUP_HEADER_BYTES;
        self.messages = 0;
    }
}
