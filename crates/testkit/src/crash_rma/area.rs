//! Memory whose right contents are known without a message: each byte follows from its offset, or is 0.

use cci::{Access, Endpoint, Foreign, Memory, RegionHandle, Registration};

/// Bytes of a region.
pub const LEN: usize = 1 << 20;
/// Bytes on each side of it that nobody may touch.
const GUARD: usize = 4096;
const GUARD_BYTE: u8 = 0x5a;

/// Memory, and the region in it.
pub struct Area {
    pub memory: Memory,
    pub handle: RegionHandle,
}

/// What belongs at an offset. Never 0.
pub fn right_byte(offset: usize) -> u8 {
    (offset as u8).wrapping_mul(31) ^ (offset >> 8) as u8 | 0x80
}

impl Area {
    /// The library's own memory, or foreign; zeros, open to peers.
    pub fn new(endpoint: &mut Endpoint, library: bool) -> Area {
        let len = GUARD + LEN + GUARD;
        let memory = if library {
            endpoint.allocate(len).expect("memory")
        } else {
            Memory::foreign(Foreign::owned(vec![0; len].into_boxed_slice()))
        };
        assert!(memory.write(0, &[GUARD_BYTE; GUARD]) && memory.write(GUARD + LEN, &[GUARD_BYTE; GUARD]));
        let handle = register(endpoint, &memory);
        Area { memory, handle }
    }

    /// Opens the region anew, after it was given up.
    pub fn register(&mut self, endpoint: &mut Endpoint) {
        self.handle = register(endpoint, &self.memory);
    }

    /// Zeros everywhere in the region.
    pub fn clear(&self) {
        assert!(self.memory.write(GUARD, &vec![0; LEN]));
    }

    /// What belongs there, everywhere in the region.
    pub fn fill(&self) {
        let right: Vec<u8> = (0..LEN).map(right_byte).collect();
        assert!(self.memory.write(GUARD, &right));
    }

    /// All of it, as it is.
    pub fn now(&self) -> Vec<u8> {
        let mut now = vec![0; self.memory.len()];
        assert!(self.memory.read(0, &mut now));
        now
    }

    /// Nothing is there that nobody wrote. Returns how many bytes were written.
    pub fn check(&self) -> usize {
        let now = self.now();
        let (front, rest) = now.split_at(GUARD);
        let (region, back) = rest.split_at(LEN);
        assert!(front.iter().chain(back).all(|&byte| byte == GUARD_BYTE), "the bytes around the region");
        let mut written = 0;
        for (offset, &byte) in region.iter().enumerate() {
            assert!(byte == 0 || byte == right_byte(offset), "garbage {byte:#x} at offset {offset}");
            written += usize::from(byte != 0);
        }
        written
    }
}

fn register(endpoint: &mut Endpoint, memory: &Memory) -> RegionHandle {
    let what = Registration { range: Some(GUARD..GUARD + LEN), access: Access::ALL, only: None };
    endpoint.register(memory, what).expect("it can be registered")
}
