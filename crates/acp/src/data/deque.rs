//! A queue of bytes with two ends on one rank.
//!
//! Layout: the address of its ring and the lock. The ring has the positions of the first byte and of the end, its capacity, and
//! the space for the bytes. Both positions only increase or decrease, modulo the capacity, so a change at either end is one word.
//! A longer ring is complete before it replaces the old one.

use crate::address::GlobalAddress;
use crate::data::{heap, lock};
use crate::error::{AcpError, Result};
use crate::space::{GONE, Space, WORD_BYTES, address_in, behind};

const LOCK_AT: u64 = WORD_BYTES;
const CONTROL_BYTES: u64 = 2 * WORD_BYTES;
const RING_HEAD_BYTES: u64 = 3 * WORD_BYTES;
const END_AT: u64 = WORD_BYTES;
/// The least capacity of a deque. One that grows doubles its capacity.
const CAPACITY_MIN: u64 = 64;
/// The first position of an empty deque: as many bytes may come before it as after it.
const MIDDLE: u64 = 1 << 63;

/// Bytes in a row on one rank, which grow and shrink at both ends (`acp_deque_t`). Lengths and positions are in bytes. Any rank that has its handle
/// works on it at any time; each call is atomic for all others, and a change at one end is done or not done, even if the rank dies meanwhile.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Deque {
    control: GlobalAddress,
}

/// A deque as it was read under its lock.
#[derive(Copy, Clone)]
struct Ring {
    at: GlobalAddress,
    start: u64,
    end: u64,
    capacity: u64,
}

impl Deque {
    /// Makes an empty deque with space for `capacity_bytes` on a rank (`acp_create_deque`).
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is not there, or gone.
    pub fn create(space: &mut impl Space, capacity_bytes: u64, rank: u32) -> Result<Deque> {
        let control = heap::allocate(space, rank, CONTROL_BYTES)?;
        let made = new_ring(space, rank, capacity_bytes, &[])
            .and_then(|ring| space.write_words(control, [ring.at.to_bits(), lock::FREE]));
        match made {
            Ok(()) => Ok(Deque { control }),
            Err(error) => {
                heap::free(space, control)?;
                Err(error)
            }
        }
    }

    /// Opens the deque of a handle that another rank has given.
    pub fn open(handle: GlobalAddress) -> Deque {
        Deque { control: handle }
    }

    /// The handle by which other ranks open it.
    pub fn handle(self) -> GlobalAddress {
        self.control
    }

    /// Frees the deque and its bytes (`acp_destroy_deque`). No rank may use it afterwards.
    ///
    /// # Errors
    /// It was destroyed before. The rank is gone.
    pub fn destroy(self, space: &mut impl Space) -> Result<()> {
        let ring = self.ring(space)?;
        space.write_words(self.control, [GONE])?;
        heap::free(space, self.control)?;
        heap::free(space, ring.at)
    }

    /// How many bytes it has (`acp_size_deque`).
    ///
    /// # Errors
    /// The rank is gone.
    pub fn len(self, space: &mut impl Space) -> Result<u64> {
        self.with(space, |_, ring| Ok(ring.len()))
    }

    /// How many bytes it can have without new memory (`acp_capacity_deque`).
    ///
    /// # Errors
    /// The rank is gone.
    pub fn capacity(self, space: &mut impl Space) -> Result<u64> {
        self.with(space, |_, ring| Ok(ring.capacity))
    }

    /// Where the byte at a position is, until the deque grows (`acp_at_deque`). None behind its end.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn address(self, space: &mut impl Space, at: u64) -> Result<Option<GlobalAddress>> {
        self.with(space, |_, ring| {
            let pieces =
                if at < ring.len() { ring.pieces(ring.start.wrapping_add(at), 1)? } else { Vec::new() };
            Ok(pieces.first().map(|&(at, _)| at))
        })
    }

    /// Where bytes are, until the deque grows: in one piece or in two, each an address and a length (`acp_dereference_deque_it`).
    ///
    /// # Errors
    /// There are fewer bytes. The rank is gone.
    pub fn pieces(
        self,
        space: &mut impl Space,
        at: u64,
        len_bytes: u64,
    ) -> Result<Vec<(GlobalAddress, u64)>> {
        self.with(space, |_, ring| {
            ring.check(at, len_bytes)?;
            ring.pieces(ring.start.wrapping_add(at), len_bytes)
        })
    }

    /// Reads bytes from a position on.
    ///
    /// # Errors
    /// There are fewer bytes. The rank is gone.
    pub fn read(self, space: &mut impl Space, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.with(space, |space, ring| {
            ring.check(at, bytes.len() as u64)?;
            ring.read(space, ring.start.wrapping_add(at), bytes)
        })
    }

    /// Writes over bytes from a position on.
    ///
    /// # Errors
    /// There are fewer bytes. The rank is gone.
    pub fn write(self, space: &mut impl Space, at: u64, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, ring| {
            ring.check(at, bytes.len() as u64)?;
            ring.write(space, ring.start.wrapping_add(at), bytes)
        })
    }

    /// All bytes, as they are at one instant.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn to_vec(self, space: &mut impl Space) -> Result<Vec<u8>> {
        self.with(space, |space, ring| ring.from(space, 0))
    }

    /// Appends bytes (`acp_push_back_deque`).
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is gone.
    pub fn push_back(self, space: &mut impl Space, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, ring| {
            let ring = self.grow(space, ring, bytes.len() as u64)?;
            ring.write(space, ring.end, bytes)?;
            ring.set_end(space, ring.end.wrapping_add(bytes.len() as u64))
        })
    }

    /// Inserts bytes before all others (`acp_push_front_deque`).
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is gone.
    pub fn push_front(self, space: &mut impl Space, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, ring| {
            let ring = self.grow(space, ring, bytes.len() as u64)?;
            let start = ring.start.wrapping_sub(bytes.len() as u64);
            ring.write(space, start, bytes)?;
            space.write_words(ring.at, [start])
        })
    }

    /// Removes bytes at the end, and returns them (`acp_pop_back_deque`): all, if there are fewer than `len_bytes`.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn pop_back(self, space: &mut impl Space, len_bytes: u64) -> Result<Vec<u8>> {
        self.with(space, |space, ring| {
            let mut bytes = vec![0; len_bytes.min(ring.len()) as usize];
            let end = ring.end.wrapping_sub(bytes.len() as u64);
            ring.read(space, end, &mut bytes)?;
            ring.set_end(space, end)?;
            Ok(bytes)
        })
    }

    /// Removes bytes at the front, and returns them (`acp_pop_front_deque`): all, if there are fewer than `len_bytes`.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn pop_front(self, space: &mut impl Space, len_bytes: u64) -> Result<Vec<u8>> {
        self.with(space, |space, ring| {
            let mut bytes = vec![0; len_bytes.min(ring.len()) as usize];
            ring.read(space, ring.start, &mut bytes)?;
            space.write_words(ring.at, [ring.start.wrapping_add(bytes.len() as u64)])?;
            Ok(bytes)
        })
    }

    /// Inserts bytes before a position (`acp_insert_deque`).
    ///
    /// # Errors
    /// The position is beyond the end. The heap of the rank is full. The rank is gone.
    pub fn insert(self, space: &mut impl Space, at: u64, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, ring| {
            ring.check(at, 0)?;
            let tail = ring.from(space, at)?;
            let ring = self.grow(space, ring, bytes.len() as u64)?;
            let place = ring.start.wrapping_add(at);
            ring.write(space, place, bytes)?;
            ring.write(space, place.wrapping_add(bytes.len() as u64), &tail)?;
            ring.set_end(space, ring.end.wrapping_add(bytes.len() as u64))
        })
    }

    /// Removes bytes from a position on (`acp_erase_deque`): up to the end, if there are fewer than `len_bytes`.
    ///
    /// # Errors
    /// The position is beyond the end. The rank is gone.
    pub fn remove(self, space: &mut impl Space, at: u64, len_bytes: u64) -> Result<()> {
        self.with(space, |space, ring| {
            ring.check(at, 0)?;
            let len = len_bytes.min(ring.len() - at);
            let tail = ring.from(space, at + len)?;
            ring.write(space, ring.start.wrapping_add(at), &tail)?;
            ring.set_end(space, ring.end.wrapping_sub(len))
        })
    }

    /// Reserves space for `capacity_bytes` in total (`acp_reserve_deque`).
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is gone.
    pub fn reserve(self, space: &mut impl Space, capacity_bytes: u64) -> Result<()> {
        self.with(space, |space, ring| match capacity_bytes > ring.capacity {
            true => self.give(space, ring, capacity_bytes).map(drop),
            false => Ok(()),
        })
    }

    /// Removes all bytes (`acp_clear_deque`). The space stays.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn clear(self, space: &mut impl Space) -> Result<()> {
        self.with(space, |space, ring| ring.set_end(space, ring.start))
    }

    /// Replaces its bytes by those of another deque (`acp_assign_deque`).
    ///
    /// # Errors
    /// The heap of the rank is full: nothing has changed. A rank is gone.
    pub fn assign(self, space: &mut impl Space, other: Deque) -> Result<()> {
        let bytes = other.to_vec(space)?;
        self.set(space, &bytes)
    }

    /// Replaces its bytes by these (`acp_assign_range_deque`).
    ///
    /// # Errors
    /// Those of [`Deque::assign`].
    pub fn set(self, space: &mut impl Space, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, old| {
            let ring = new_ring(space, self.control.rank(), old.capacity.max(bytes.len() as u64), bytes)?;
            self.take_ring(space, old, ring)
        })
    }

    /// Swaps the bytes of two deques (`acp_swap_deque`).
    ///
    /// # Errors
    /// A heap is full: nothing has changed. A rank is gone.
    pub fn swap(self, space: &mut impl Space, other: Deque) -> Result<()> {
        if self == other {
            return Ok(());
        }
        let [one, other] = if self.control < other.control { [self, other] } else { [other, self] };
        one.with(space, |space, first| {
            other.with(space, |space, second| {
                let (bytes, others) = (first.from(space, 0)?, second.from(space, 0)?);
                let for_one = new_ring(space, one.control.rank(), first.capacity.max(second.len()), &others)?;
                let capacity = second.capacity.max(first.len());
                match new_ring(space, other.control.rank(), capacity, &bytes) {
                    Ok(for_other) => {
                        one.take_ring(space, first, for_one)?;
                        other.take_ring(space, second, for_other)
                    }
                    Err(error) => {
                        heap::free(space, for_one.at)?;
                        Err(error)
                    }
                }
            })
        })
    }

    fn grow(self, space: &mut impl Space, ring: Ring, more: u64) -> Result<Ring> {
        let len = ring.len() + more;
        if len <= ring.capacity { Ok(ring) } else { self.give(space, ring, len.max(2 * ring.capacity)) }
    }

    /// Moves the bytes to a longer ring.
    fn give(self, space: &mut impl Space, old: Ring, capacity: u64) -> Result<Ring> {
        let bytes = old.from(space, 0)?;
        let ring = new_ring(space, self.control.rank(), capacity, &bytes)?;
        self.take_ring(space, old, ring)?;
        Ok(ring)
    }

    /// Has another ring, which is complete, and frees the old one.
    fn take_ring(self, space: &mut impl Space, old: Ring, ring: Ring) -> Result<()> {
        space.write_words(self.control, [ring.at.to_bits()])?;
        heap::free(space, old.at)
    }

    fn with<S: Space, T>(self, space: &mut S, act: impl FnOnce(&mut S, Ring) -> Result<T>) -> Result<T> {
        lock::with(space, behind(self.control, LOCK_AT)?, |space, _| {
            let ring = self.ring(space)?;
            act(space, ring)
        })
    }

    fn ring(self, space: &mut impl Space) -> Result<Ring> {
        const WRONG: AcpError = AcpError::Corrupt("there is no deque at this address, or not any more");
        let at = address_in(space.read_word(self.control)?)?.ok_or(WRONG)?;
        let [start, end, capacity] = space.read_words(at)?;
        let ring = Ring { at, start, end, capacity };
        let is_right = capacity > 0 && ring.len() <= capacity && capacity <= space.heap_bytes();
        is_right.then_some(ring).ok_or(WRONG)
    }
}

/// A ring that has these bytes.
fn new_ring(space: &mut impl Space, rank: u32, capacity: u64, bytes: &[u8]) -> Result<Ring> {
    // The capacity divides the range of positions, which wrap.
    let capacity = capacity.max(CAPACITY_MIN).checked_next_power_of_two();
    let capacity = capacity.ok_or(AcpError::Full("no heap has so much memory"))?;
    let at = heap::allocate(space, rank, RING_HEAD_BYTES + capacity)?;
    let ring = Ring { at, start: MIDDLE, end: MIDDLE + bytes.len() as u64, capacity };
    let written = space.write_words(at, [ring.start, ring.end, capacity]);
    match written.and_then(|()| ring.write(space, MIDDLE, bytes)) {
        Ok(()) => Ok(ring),
        Err(error) => {
            heap::free(space, at)?;
            Err(error)
        }
    }
}

impl Ring {
    fn len(self) -> u64 {
        self.end.wrapping_sub(self.start)
    }

    fn check(self, at: u64, len_bytes: u64) -> Result<()> {
        let is_inside = at.checked_add(len_bytes).is_some_and(|end| end <= self.len());
        is_inside.then_some(()).ok_or(AcpError::Argument("the deque is shorter"))
    }

    /// Where bytes from a place on are.
    fn pieces(self, place: u64, len: u64) -> Result<Vec<(GlobalAddress, u64)>> {
        let first = place % self.capacity;
        let before_end = len.min(self.capacity - first);
        let pieces = [(first, before_end), (0, len - before_end)].into_iter().filter(|&(_, len)| len > 0);
        pieces.map(|(offset, len)| Ok((behind(self.at, RING_HEAD_BYTES + offset)?, len))).collect()
    }

    fn read(self, space: &mut impl Space, place: u64, bytes: &mut [u8]) -> Result<()> {
        let mut rest = bytes;
        for (at, len) in self.pieces(place, rest.len() as u64)? {
            let (piece, behind) = rest.split_at_mut(len as usize);
            space.read(at, piece)?;
            rest = behind;
        }
        Ok(())
    }

    fn write(self, space: &mut impl Space, place: u64, bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        for (at, len) in self.pieces(place, rest.len() as u64)? {
            let (piece, behind) = rest.split_at(len as usize);
            space.write(at, piece)?;
            rest = behind;
        }
        Ok(())
    }

    /// All bytes from a position on.
    fn from(self, space: &mut impl Space, at: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (self.len() - at) as usize];
        self.read(space, self.start.wrapping_add(at), &mut bytes)?;
        Ok(bytes)
    }

    fn set_end(self, space: &mut impl Space, end: u64) -> Result<()> {
        space.write_words(behind(self.at, END_AT)?, [end])
    }
}
