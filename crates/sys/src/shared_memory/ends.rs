//! The two ends of a ring in shared memory. The memory becomes one end by value, so that safe code can't make two.

use std::io;
use std::sync::Arc;

use cci_memory::ring::{BadRegion, Consumer, Producer};

use super::SharedMemory;
use crate::error::{Result, SysError};

impl SharedMemory {
    /// Makes this mapping the writing end of a ring with payloads of at most `payload_bytes_max` bytes. The peer may
    /// have written anything to it. `InvalidInput`: the length is not that of a ring (`cci_memory::ring::region_bytes`).
    pub fn into_producer(self, payload_bytes_max: u32) -> Result<Producer<Arc<SharedMemory>>> {
        let (base, len) = (self.as_ptr(), self.len());
        // SAFETY: the mapping is readable and writable for as long as the value lives, and moving the value does
        // not move it. The kernel zeroed the memory when it was made. The value is given away with this call and
        // lends no reference to its memory, so this end is the only one on this mapping; another mapping of the same
        // memory in this process is the other end's, as any peer's would be. The ring gives no handle of the value out.
        unsafe { Producer::new(base, len, payload_bytes_max, Arc::new(self)) }.map_err(bad)
    }

    /// Makes this mapping the reading end; as [`into_producer`](SharedMemory::into_producer).
    pub fn into_consumer(self, payload_bytes_max: u32) -> Result<Consumer<SharedMemory>> {
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
        let ours = SharedMemory::create("cci-test", region_bytes(4096)).unwrap();
        let fd = ours.fd().unwrap().as_fd().try_clone_to_owned().unwrap();
        let theirs = SharedMemory::open(fd, region_bytes(4096)).unwrap();
        let mut producer = theirs.into_producer(1000).unwrap();
        let mut consumer = ours.into_consumer(1000).unwrap();
        producer.push(RecordHeader { kind: 3, ..RecordHeader::default() }, &[b"hello"]).unwrap();
        let record = consumer.peek().unwrap().unwrap();
        let mut to = [0; 5];
        assert_eq!((record.header().kind, record.copy_to(&mut to), &to), (3, 5, b"hello"));
    }

    #[test]
    fn odd_lengths_are_refused() {
        let memory = SharedMemory::create("cci-test", 5000).unwrap();
        assert_eq!(memory.into_producer(100).err().unwrap().kind(), io::ErrorKind::InvalidInput);
    }
}
