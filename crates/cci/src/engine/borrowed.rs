//! Messages that lie in memory of a peer's, which is mapped here for reading.

use super::charge::Charge;
use super::requests::RequestInbox;
use crate::connection::Connection;
use cci_memory::bytes::Trust;
use cci_memory::pool::Slot;
use cci_sys::shared_memory::SharedMemoryReader;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Memory of one peer's, in slots that it lends. It stays mapped as long as a message in it is kept.
pub(crate) struct BorrowedMemory {
    reader: SharedMemoryReader,
    slot_bytes: usize,
    /// Slots of which the program has dropped the messages, as bits.
    returned: AtomicU64,
    /// The endpoint may be asleep, and wants to know what is returned.
    is_owner_asleep: AtomicBool,
    owner: Arc<RequestInbox>,
    /// The program trusts the peer: it has said so of a connection.
    trust: OnceLock<Trust>,
    /// The sums under the cap that it counts in.
    _charges: [Charge; 2],
}

impl BorrowedMemory {
    pub fn new(
        reader: SharedMemoryReader,
        slot_bytes: usize,
        owner: Arc<RequestInbox>,
        charges: [Charge; 2],
    ) -> BorrowedMemory {
        let (returned, is_owner_asleep) = (AtomicU64::new(0), AtomicBool::new(false));
        BorrowedMemory {
            reader,
            slot_bytes,
            returned,
            is_owner_asleep,
            owner,
            trust: OnceLock::new(),
            _charges: charges,
        }
    }

    /// Copies the beginning of a slot out. `false`: there is no such slot, or it is shorter.
    #[must_use = "`false` means that nothing was copied"]
    pub fn read(&self, slot: u32, out: &mut [u8]) -> bool {
        self.read_at(slot, 0, out)
    }

    fn read_at(&self, slot: u32, offset: usize, out: &mut [u8]) -> bool {
        let at = (slot as usize).checked_mul(self.slot_bytes).and_then(|start| start.checked_add(offset));
        self.reader.is_mapped() && at.is_some_and(|at| self.reader.read(at, out))
    }

    /// Notes that messages may be read in place.
    pub fn trust(&self, trust: Trust) {
        // It may have been noted before.
        let _ = self.trust.set(trust);
    }

    /// Gives a slot back, from any thread.
    pub fn give_back(&self, slot: u32) {
        // Pairs with the Acquire in `take_returned`: who had the message is done with it. SeqCst here and in `arm`: either the owner
        // sees the slot, or we see that it sleeps.
        self.returned.fetch_or(1u64.checked_shl(slot).unwrap_or(0), Ordering::SeqCst);
        if self.is_owner_asleep.load(Ordering::SeqCst) && self.is_owner_asleep.swap(false, Ordering::SeqCst) {
            self.owner.wake();
        }
    }

    /// The slots that came back since the last call, as bits.
    pub fn take_returned(&self) -> u64 {
        if self.returned.load(Ordering::Relaxed) == 0 { 0 } else { self.returned.swap(0, Ordering::Acquire) }
    }

    /// Has the owner woken when the next slot comes back. True: one has already.
    pub fn arm(&self) -> bool {
        self.is_owner_asleep.store(true, Ordering::SeqCst);
        self.returned.load(Ordering::SeqCst) != 0
    }
}

/// A message that a peer has lent.
#[derive(Copy, Clone)]
pub(crate) struct Borrowed {
    pub slot: u32,
    pub len_bytes: u32,
    pub is_trusted: bool,
}

impl Borrowed {
    /// Bytes that describe it, in the receive buffer that it has.
    pub const BYTES: usize = 24;

    pub fn write(self, connection: Connection, to: &mut [u8]) {
        let words = [
            connection.to_bits(),
            u64::from(self.slot) << 32 | u64::from(self.len_bytes),
            u64::from(self.is_trusted),
        ];
        for (to, word) in to.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
    }
}

/// A received message that lies in memory of the peer's and was not copied: see [`Loans`](crate::Loans). The peer's process could still
/// change it, so it is copied out before it is checked; a slice of it is only given for a peer that is trusted.
///
/// It is kept as long as the program likes. Dropping it, in any order and on any thread, gives the memory back to the peer. Meanwhile it
/// holds one of the endpoint's receive buffers, as any message does, and one of the peer's few slots. It outlives the connection and the
/// peer.
pub struct MappedMessage {
    /// A receive buffer, which says where the message lies.
    about: Slot,
    memory: Arc<BorrowedMemory>,
}

impl MappedMessage {
    pub(crate) fn new(about: Slot, memory: Arc<BorrowedMemory>) -> MappedMessage {
        MappedMessage { about, memory }
    }

    fn word(&self, index: usize) -> u64 {
        self.about.as_chunks::<8>().0.get(index).map_or(0, |word| u64::from_ne_bytes(*word))
    }

    fn borrowed(&self) -> Borrowed {
        let place = self.word(1);
        Borrowed { slot: (place >> 32) as u32, len_bytes: place as u32, is_trusted: self.word(2) != 0 }
    }

    /// The connection that it came on; answer there.
    pub fn connection(&self) -> Connection {
        Connection::from_bits(self.word(0))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.borrowed().len_bytes as usize
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes out, from `offset` on. What was copied stays as it is, so it is to be checked, and not the message.
    /// False, and nothing is done, beyond the end.
    #[must_use = "`false` means that nothing was copied"]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> bool {
        let Borrowed { slot, len_bytes, .. } = self.borrowed();
        let is_within = offset.checked_add(out.len()).is_some_and(|end| end <= len_bytes as usize);
        is_within && self.memory.read_at(slot, offset, out)
    }

    /// A copy of all of it.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len()];
        if self.read(0, &mut copy) { copy } else { Vec::new() }
    }

    /// The message in place. `None` unless the program has said of the connection that it trusts the peer
    /// ([`Loans::Trusted`](crate::Loans::Trusted)).
    pub fn trusted(&self) -> Option<&[u8]> {
        let Borrowed { slot, len_bytes, is_trusted } = self.borrowed();
        let BorrowedMemory { reader, slot_bytes, trust, .. } = &*self.memory;
        if !is_trusted || !reader.is_mapped() {
            return None;
        }
        reader.trusted(*trust.get()?, slot as usize * slot_bytes, len_bytes as usize)
    }
}

impl Drop for MappedMessage {
    fn drop(&mut self) {
        self.memory.give_back(self.borrowed().slot);
    }
}

impl fmt::Debug for MappedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedMessage({} bytes from {:?})", self.len(), self.connection())
    }
}
