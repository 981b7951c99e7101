//! A vector of bytes on one rank.
//!
//! Layout, in words: the address of its bytes, their number, the capacity, the lock.

use crate::address::GlobalAddress;
use crate::data::{heap, lock};
use crate::error::{AcpError, Result};
use crate::space::{GONE, Space, WORD_BYTES, address_in, behind, move_bytes, word_of};

const LOCK_AT: u64 = 3 * WORD_BYTES;
const CONTROL_BYTES: u64 = 4 * WORD_BYTES;
/// The least capacity of a vector. One that grows doubles its capacity.
const CAPACITY_MIN: u64 = 64;

/// Consecutive bytes on one rank, which can grow (`acp_vector_t`). Lengths and positions are in bytes. Any rank that has its
/// handle works on it at any time. Each call is atomic for all others, but if a rank dies during one, the bytes that it was
/// moving may be in both places or in neither.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Vector {
    control: GlobalAddress,
}

/// A vector as it was read under its lock.
#[derive(Copy, Clone)]
struct State {
    body: Option<GlobalAddress>,
    len: u64,
    capacity: u64,
}

impl Vector {
    /// Makes a vector of `len_bytes` zeros on a rank (`acp_create_vector`).
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is not there, or gone.
    pub fn create(space: &mut impl Space, len_bytes: u64, rank: u32) -> Result<Vector> {
        let control = heap::allocate(space, rank, CONTROL_BYTES)?;
        let made = space.write_words(control, [0, 0, 0, lock::FREE]).and_then(|()| {
            let vector = Vector { control };
            vector.resize(space, len_bytes)?;
            Ok(vector)
        });
        if made.is_err() {
            heap::free(space, control)?;
        }
        made
    }

    /// Opens the vector of a handle that another rank has given.
    pub fn open(handle: GlobalAddress) -> Vector {
        Vector { control: handle }
    }

    /// The handle by which other ranks open it.
    pub fn handle(self) -> GlobalAddress {
        self.control
    }

    /// Frees the vector and its bytes (`acp_destroy_vector`). No rank may use it afterwards.
    ///
    /// # Errors
    /// It was destroyed before. The rank is gone.
    pub fn destroy(self, space: &mut impl Space) -> Result<()> {
        let state = self.state(space)?;
        space.write_words(self.control, [GONE])?;
        heap::free(space, self.control)?;
        state.body.map_or(Ok(()), |body| heap::free(space, body))
    }

    /// How many bytes it has (`acp_size_vector`).
    ///
    /// # Errors
    /// The rank is gone.
    pub fn len(self, space: &mut impl Space) -> Result<u64> {
        Ok(self.state(space)?.len)
    }

    /// How many bytes it can have without new memory (`acp_capacity_vector`).
    ///
    /// # Errors
    /// The rank is gone.
    pub fn capacity(self, space: &mut impl Space) -> Result<u64> {
        Ok(self.state(space)?.capacity)
    }

    /// Where the byte at a position is, until the vector grows (`acp_at_vector`, `acp_dereference_vector_it`). None behind its end.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn address(self, space: &mut impl Space, at: u64) -> Result<Option<GlobalAddress>> {
        let State { body, len, .. } = self.state(space)?;
        body.filter(|_| at < len).map(|body| behind(body, at)).transpose()
    }

    /// Reads bytes from a position on.
    ///
    /// # Errors
    /// There are fewer bytes. The rank is gone.
    pub fn read(self, space: &mut impl Space, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.with(space, |space, state| {
            state.check(at, bytes.len() as u64)?;
            state.body.map_or(Ok(()), |body| space.read(behind(body, at)?, bytes))
        })
    }

    /// Writes over bytes from a position on.
    ///
    /// # Errors
    /// There are fewer bytes. The rank is gone.
    pub fn write(self, space: &mut impl Space, at: u64, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, state| {
            state.check(at, bytes.len() as u64)?;
            state.body.map_or(Ok(()), |body| space.write(behind(body, at)?, bytes))
        })
    }

    /// All bytes, as they are at one instant.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn to_vec(self, space: &mut impl Space) -> Result<Vec<u8>> {
        self.with(space, |space, state| state.bytes(space))
    }

    /// Appends bytes (`acp_push_back_vector`).
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is gone.
    pub fn push(self, space: &mut impl Space, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, state| self.insert_at(space, state, state.len, bytes))
    }

    /// Removes bytes at the end (`acp_pop_back_vector`): all, if there are fewer than `len_bytes`.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn pop(self, space: &mut impl Space, len_bytes: u64) -> Result<()> {
        self.with(space, |space, state| self.set_len(space, state.len.saturating_sub(len_bytes)))
    }

    /// Inserts bytes before a position (`acp_insert_vector`).
    ///
    /// # Errors
    /// The position is beyond the end. The heap of the rank is full. The rank is gone.
    pub fn insert(self, space: &mut impl Space, at: u64, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, state| self.insert_at(space, state, at, bytes))
    }

    /// Removes bytes from a position on (`acp_erase_vector`): up to the end, if there are fewer than `len_bytes`.
    ///
    /// # Errors
    /// The position is beyond the end. The rank is gone.
    pub fn remove(self, space: &mut impl Space, at: u64, len_bytes: u64) -> Result<()> {
        self.with(space, |space, state| {
            state.check(at, 0)?;
            let end = at.saturating_add(len_bytes).min(state.len);
            if let Some(body) = state.body {
                move_bytes(space, behind(body, at)?, behind(body, end)?, state.len - end)?;
            }
            self.set_len(space, state.len - (end - at))
        })
    }

    /// Sets its length: zeros are appended, or bytes removed at the end.
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is gone.
    pub fn resize(self, space: &mut impl Space, len_bytes: u64) -> Result<()> {
        self.with(space, |space, state| {
            let state = self.grow(space, state, len_bytes)?;
            if let Some(body) = state.body {
                let zeros = vec![0; len_bytes.saturating_sub(state.len) as usize];
                space.write(behind(body, state.len.min(len_bytes))?, &zeros)?;
            }
            self.set_len(space, len_bytes)
        })
    }

    /// Reserves space for `capacity_bytes` in total (`acp_reserve_vector`).
    ///
    /// # Errors
    /// The heap of the rank is full. The rank is gone.
    pub fn reserve(self, space: &mut impl Space, capacity_bytes: u64) -> Result<()> {
        self.with(space, |space, state| {
            if capacity_bytes > state.capacity {
                self.give(space, state, capacity_bytes)?;
            }
            Ok(())
        })
    }

    /// Removes all bytes (`acp_clear_vector`). The space stays.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn clear(self, space: &mut impl Space) -> Result<()> {
        self.with(space, |space, _| self.set_len(space, 0))
    }

    /// Replaces its bytes by those of another vector (`acp_assign_vector`).
    ///
    /// # Errors
    /// Those of [`Vector::set`].
    pub fn assign(self, space: &mut impl Space, other: Vector) -> Result<()> {
        if self == other {
            return Ok(());
        }
        let bytes = other.to_vec(space)?;
        self.set(space, &bytes)
    }

    /// Replaces its bytes by these (`acp_assign_range_vector`).
    ///
    /// # Errors
    /// The heap of the rank is full: nothing has changed. The rank is gone.
    pub fn set(self, space: &mut impl Space, bytes: &[u8]) -> Result<()> {
        self.with(space, |space, state| {
            let state = self.grow(space, state, bytes.len() as u64)?;
            self.insert_at(space, State { len: 0, ..state }, 0, bytes)
        })
    }

    /// Swaps the bytes of two vectors (`acp_swap_vector`).
    ///
    /// # Errors
    /// A heap is full: nothing has changed. A rank is gone.
    pub fn swap(self, space: &mut impl Space, other: Vector) -> Result<()> {
        if self == other {
            return Ok(());
        }
        let [one, other] = if self.control < other.control { [self, other] } else { [other, self] };
        one.with(space, |space, first| {
            other.with(space, |space, second| {
                let (bytes, others) = (first.bytes(space)?, second.bytes(space)?);
                let first = one.grow(space, first, second.len)?;
                let second = other.grow(space, second, first.len)?;
                one.insert_at(space, State { len: 0, ..first }, 0, &others)?;
                other.insert_at(space, State { len: 0, ..second }, 0, &bytes)
            })
        })
    }

    fn insert_at(self, space: &mut impl Space, state: State, at: u64, bytes: &[u8]) -> Result<()> {
        state.check(at, 0)?;
        let len = state.len + bytes.len() as u64;
        let state = self.grow(space, state, len)?;
        if let Some(body) = state.body {
            let to = behind(body, at + bytes.len() as u64)?;
            move_bytes(space, to, behind(body, at)?, state.len - at)?;
            space.write(behind(body, at)?, bytes)?;
        }
        self.set_len(space, len)
    }

    /// Doubles the capacity if it is too small.
    fn grow(self, space: &mut impl Space, state: State, len: u64) -> Result<State> {
        if len <= state.capacity {
            return Ok(state);
        }
        let doubled = len.max(state.capacity.saturating_mul(2)).max(CAPACITY_MIN);
        self.give(space, state, doubled)
    }

    /// Moves the bytes to more memory. The vector gets the address before the capacity, so that it never has less memory than it
    /// says.
    fn give(self, space: &mut impl Space, state: State, capacity: u64) -> Result<State> {
        let capacity = capacity.checked_next_multiple_of(WORD_BYTES);
        let capacity = capacity.ok_or(AcpError::Full("no heap has so much memory"))?;
        let body = heap::allocate(space, self.control.rank(), capacity)?;
        if let Some(old) = state.body {
            move_bytes(space, body, old, state.len)?;
        }
        space.write_words(self.control, [body.to_bits()])?;
        space.write_words(behind(self.control, 2 * WORD_BYTES)?, [capacity])?;
        if let Some(old) = state.body {
            heap::free(space, old)?;
        }
        Ok(State { body: Some(body), capacity, ..state })
    }

    fn set_len(self, space: &mut impl Space, len: u64) -> Result<()> {
        space.write_words(behind(self.control, WORD_BYTES)?, [len])
    }

    fn with<S: Space, T>(self, space: &mut S, act: impl FnOnce(&mut S, State) -> Result<T>) -> Result<T> {
        lock::with(space, behind(self.control, LOCK_AT)?, |space, _| {
            let state = self.state(space)?;
            act(space, state)
        })
    }

    fn state(self, space: &mut impl Space) -> Result<State> {
        let [body, len, capacity] = space.read_words(self.control)?;
        let state = State { body: address_in(body)?, len, capacity };
        let is_right = len <= capacity && capacity <= space.heap_bytes() && word_of(state.body) == body;
        is_right
            .then_some(state)
            .ok_or(AcpError::Corrupt("there is no vector at this address, or not any more"))
    }
}

impl State {
    fn bytes(self, space: &mut impl Space) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        self.body.map_or(Ok(()), |body| space.read(body, &mut bytes))?;
        Ok(bytes)
    }

    fn check(self, at: u64, len_bytes: u64) -> Result<()> {
        let is_inside = at.checked_add(len_bytes).is_some_and(|end| end <= self.len);
        is_inside.then_some(()).ok_or(AcpError::Argument("the vector is shorter"))
    }
}
