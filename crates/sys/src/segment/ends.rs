//! The two ends of a ring in a segment. A segment becomes one end by value, so that safe code can't make two.

use std::io;

use cci_memory::ring::{BadRegion, Consumer, Producer};

use super::Segment;
use crate::error::{Result, SysError};

impl Segment {
    /// Makes this mapping the writing end of a ring with payloads of at most `payload_bytes_max` bytes. The peer may
    /// have written anything to it. `InvalidInput`: the length is not that of a ring (`cci_memory::ring::region_bytes`).
    pub fn into_producer(self, payload_bytes_max: u32) -> Result<Producer<Segment>> {
        let (base, len) = (self.as_ptr(), self.len());
        // SAFETY: the mapping is readable and writable for as long as the segment lives, and moving the segment does
        // not move it. The kernel zeroed the memory when it was made. The segment is given away with this call and
        // lends no reference to its memory, so this end is the only one on this mapping; another mapping of the same
        // memory in this process is the other end's, as any peer's would be.
        unsafe { Producer::new(base, len, payload_bytes_max, self) }.map_err(bad)
    }

    /// Makes this mapping the reading end; as [`into_producer`](Segment::into_producer).
    pub fn into_consumer(self, payload_bytes_max: u32) -> Result<Consumer<Segment>> {
        let (base, len) = (self.as_ptr(), self.len());
        // SAFETY: as above.
        unsafe { Consumer::new(base, len, payload_bytes_max, self) }.map_err(bad)
    }
}

fn bad(region: BadRegion) -> SysError {
    SysError::new("make a ring in shared memory", io::Error::new(io::ErrorKind::InvalidInput, region))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_memory::ring::{RecordHeader, region_bytes};
    use std::os::fd::AsFd;

    #[test]
    fn two_mappings_make_one_ring() {
        let ours = Segment::create("cci-test", region_bytes(4096)).unwrap();
        let fd = ours.fd().unwrap().as_fd().try_clone_to_owned().unwrap();
        let theirs = Segment::open(fd, region_bytes(4096)).unwrap();
        let mut producer = theirs.into_producer(1000).unwrap();
        let mut consumer = ours.into_consumer(1000).unwrap();
        producer.push(RecordHeader { kind: 3, ..RecordHeader::default() }, &[b"hello"]).unwrap();
        let record = consumer.peek().unwrap().unwrap();
        let mut to = [0; 5];
        assert_eq!((record.header().kind, record.copy_to(&mut to), &to), (3, 5, b"hello"));
    }

    #[test]
    fn odd_lengths_are_refused() {
        let segment = Segment::create("cci-test", 5000).unwrap();
        assert_eq!(segment.into_producer(100).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    }
}
