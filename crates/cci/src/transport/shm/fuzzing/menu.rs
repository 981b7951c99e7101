//! Descriptors that a peer may send, right ones and wrong ones.

use crate::fuzzing::Script;
use crate::transport::shm::scripted::RING_BYTES;
use cci_memory::ring::region_bytes;
use cci_sys::event::EventFd;
use cci_sys::shared_memory::{Lending, SharedMemory};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// How much memory for loans the menu has.
pub(super) const LENT_SLOTS: u32 = 4;
pub(super) const LENT_SLOT_BYTES: u32 = 4096;

/// Descriptors to choose from.
pub(super) struct Menu {
    ring: SharedMemory,
    short: SharedMemory,
    page: SharedMemory,
    memory: SharedMemory,
    lending: Lending,
    bell: EventFd,
    null: File,
    directory: File,
    program: File,
    socket: (UnixStream, UnixStream),
}

impl Menu {
    pub fn new() -> Menu {
        Menu {
            ring: SharedMemory::create("cci-fuzz", region_bytes(RING_BYTES as usize)).unwrap(),
            short: SharedMemory::create("cci-fuzz", region_bytes(4096)).unwrap(),
            page: SharedMemory::create_read_only_for_others(4096).unwrap(),
            memory: SharedMemory::create_for_rma_small(64 << 10).unwrap(),
            lending: Lending::create(LENT_SLOTS, LENT_SLOT_BYTES as usize).unwrap(),
            bell: EventFd::new().unwrap(),
            null: File::open("/dev/null").unwrap(),
            directory: File::open("/").unwrap(),
            program: File::open("/proc/self/exe").unwrap(),
            socket: UnixStream::pair().unwrap(),
        }
    }

    fn one(&self, number: u8) -> BorrowedFd<'_> {
        match number % 10 {
            0 => self.ring.fd().unwrap(),
            1 => self.bell.as_fd(),
            2 => self.short.fd().unwrap(),
            3 => self.page.fd().unwrap(),
            4 => self.memory.fd().unwrap(),
            5 => self.null.as_fd(),
            6 => self.directory.as_fd(),
            7 => self.program.as_fd(),
            9 => self.lending(),
            _ => self.socket.0.as_fd(),
        }
    }

    /// Memory as a peer offers it for loans.
    pub fn lending(&self) -> BorrowedFd<'_> {
        self.lending.fd().unwrap()
    }

    /// Up to four descriptors, as the script says. Usually they are the right ones for a link.
    pub fn pick(&self, script: &mut Script<'_>) -> Vec<BorrowedFd<'_>> {
        match script.byte() % 8 {
            0 => Vec::new(),
            1..=3 => vec![self.one(0), self.one(1)],
            4 => vec![self.one(4), self.one(3)],
            how => (0..how - 4 + u8::from(how == 7)).map(|_| self.one(script.byte())).collect(),
        }
    }
}
