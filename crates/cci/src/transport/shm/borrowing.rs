//! The borrowing side of loans: the peer's memory that is mapped here, and the slots that were lent of it.

use super::offer::Offer;
use crate::engine::borrowed::BorrowedMemory;
use crate::engine::charge::Charge;
use crate::engine::requests::RequestInbox;
use cci_sys::shared_memory::SharedMemory;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Memory in which the peer of a link lends messages.
pub(super) struct Borrowing {
    memory: Arc<BorrowedMemory>,
    offer: Offer,
    /// The slots that are lent to this side, as bits.
    held: u64,
    /// Slots to return for which the ring had no space.
    pending: u64,
}

/// Why memory that a peer has offered for loans is not mapped. Its loans are copied then.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum NotBorrowed {
    /// This device maps nothing.
    Off,
    /// There is no space for it under the cap, or the peer's process has its part already.
    OverCap,
    /// It is not what the peer says, or the system does not map it.
    Unsound,
}

impl NotBorrowed {
    pub fn reason(self) -> &'static str {
        match self {
            NotBorrowed::Off => "this device says direct = off",
            NotBorrowed::OverCap => {
                "no space for their memory: it counts under memory_bytes_max, half of which is for mappings, \
                 and no process has more than it leaves to others"
            }
            NotBorrowed::Unsound => "their memory is not what the peer says, or the system did not map it",
        }
    }
}

impl Borrowing {
    /// Maps the memory that the peer offers. Returns `None` if it is not as it should be, or the system does not map it.
    pub fn map(
        offer: Offer,
        fd: OwnedFd,
        owner: Arc<RequestInbox>,
        charges: [Charge; 2],
    ) -> Option<Borrowing> {
        let mut reader = SharedMemory::open_read_only(fd, usize::try_from(offer.len_bytes()).ok()?).ok()?;
        reader.drop_fd();
        let memory = BorrowedMemory::new(reader, offer.slot_bytes as usize, owner, charges);
        Some(Borrowing { memory: Arc::new(memory), offer, held: 0, pending: 0 })
    }

    pub fn memory(&self) -> &Arc<BorrowedMemory> {
        &self.memory
    }

    /// Whether the peer may lend a message of this length in this slot now. It must not if the slot is lent already.
    pub fn may_be_lent(&self, slot: u32, len_bytes: u32) -> bool {
        slot < self.offer.slots && len_bytes <= self.offer.slot_bytes && self.held & 1 << slot == 0
    }

    /// Notes that a slot was taken. The owner of the message returns it.
    pub fn hold(&mut self, slot: u32) {
        self.held |= 1 << slot;
    }

    /// Whether a slot is lent that was not returned.
    #[inline]
    pub fn holds_any(&self) -> bool {
        self.held != 0
    }

    /// Whether a slot to return waits for space in the ring.
    pub fn is_pending(&self) -> bool {
        self.pending != 0
    }

    /// The slots that are to be returned now, as bits.
    #[inline]
    pub fn due(&mut self) -> u64 {
        if self.held == 0 {
            return 0;
        }
        self.pending |= self.memory.take_returned() & self.held;
        self.pending
    }

    /// Notes that all slots that were due have been returned.
    pub fn went_back(&mut self) {
        self.held &= !self.pending;
        self.pending = 0;
    }

    /// Has the endpoint woken when the program drops a message. Returns true if it has dropped one already.
    pub fn arm(&self) -> bool {
        self.held != 0 && self.memory.arm()
    }

    /// How long the mapping is.
    pub fn len_bytes(&self) -> u64 {
        self.offer.len_bytes()
    }

    /// How many messages are lent to this side.
    pub fn held(&self) -> u32 {
        self.held.count_ones()
    }
}
