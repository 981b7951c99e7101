//! Changes of this process's memory that it makes for other ranks (CCS section 3.1): accumulations and indexed puts.
//!
//! Each is made completely or not at all. Elements and pointers are changed by the atomic operations of the core, so they are
//! atomic with respect to those of all ranks. Indexed puts are made one after the other: a pointer moves on when the data are
//! there.

use super::part::Part;
use super::registered::{Registered, inside};
use crate::arithmetic::{Accumulation, Number};
use crate::limits::UPDATES_MAX;
use crate::wire::{Range, Region, Update, Updating};
use cci::{Atomic, AtomicKind, AtomicWidth, Memory};
use std::collections::VecDeque;

const POINTER_BYTES: u64 = 8;

/// How often a pointer is tried in one turn while others change it.
const ATTEMPTS_MAX: usize = 64;

/// The result of an update: success, or the address where nothing is registered.
pub(crate) type Made = Result<(), u64>;

/// Indexed puts of other ranks that this process must make.
#[derive(Default)]
pub(crate) struct Served {
    queue: VecDeque<(u32, Update)>,
    /// The place to which the pointer of the first one pointed when the fetch of its bytes began.
    fetching_to: Option<u64>,
}

/// The next step of an indexed put.
pub(crate) enum Next {
    /// It has ended: its rank, its number and its result.
    Ended(u32, u64, Made),
    /// Fetch bytes of the rank to this part. Then call [`Served::fetched`].
    Fetch { rank: u32, source: Range, region: Region, to: Part },
}

impl Served {
    /// Keeps an indexed put for later. Returns false if the rank may not ask for so many.
    pub fn keep(&mut self, rank: u32, update: Update) -> bool {
        let is_more = self.queue.iter().filter(|(other, _)| *other == rank).count() >= UPDATES_MAX as usize;
        if !is_more {
            self.queue.push_back((rank, update));
        }
        !is_more
    }

    /// Whether indexed puts must wait, including this process's own.
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the first one must be tried again. No event reports when.
    pub fn is_stalled(&self) -> bool {
        self.is_busy() && self.fetching_to.is_none()
    }

    /// Continues the first indexed put. `None` if nothing can be done now.
    pub fn next(&mut self, registered: &[Registered]) -> Option<Next> {
        if self.fetching_to.is_some() {
            return None;
        }
        let (rank, Update { id, what }) = self.queue.front()?;
        let (rank, id) = (*rank, *id);
        let made = match what {
            Updating::Indexed { pointer, data } => {
                put_at_pointer(registered, *pointer, data.len(), |memory, at| memory.write(at, data))?
            }
            Updating::IndexedFar { pointer, source, region } => {
                match place(registered, *pointer, source.len_bytes) {
                    Err(refused) => Err(refused),
                    Ok((to, memory, at)) => {
                        self.fetching_to = Some(to);
                        let to = Part { memory, offset: at, len_bytes: source.len_bytes as usize };
                        return Some(Next::Fetch { rank, source: *source, region: *region, to });
                    }
                }
            }
            // These are made at once.
            Updating::Accumulate { .. } | Updating::Scatter { .. } | Updating::Gather { .. } => Ok(()),
        };
        self.queue.pop_front();
        Some(Next::Ended(rank, id, made))
    }

    /// Notes that the bytes of the first one are there, or can't be fetched, since its rank is gone or has deregistered them. In
    /// that case the source is at fault.
    pub fn fetched(&mut self, registered: &[Registered], are_there: bool) -> Option<Next> {
        let to = self.fetching_to.take()?;
        let (_, Update { what: Updating::IndexedFar { pointer, source, .. }, .. }) = self.queue.front()?
        else {
            return None;
        };
        // If the bytes did not come, or only in part, they are in no range that the pointer has passed.
        let made = if are_there {
            match move_pointer(registered, *pointer, to, source.len_bytes) {
                Ok(true) => Ok(()),
                // The pointer was changed meanwhile, so the bytes must go elsewhere.
                Ok(false) => return None,
                Err(refused) => Err(refused),
            }
        } else {
            Err(source.start)
        };
        let (rank, update) = self.queue.pop_front()?;
        Some(Next::Ended(rank, update.id, made))
    }

    /// Notes that the fetch could not be started.
    pub fn not_begun(&mut self) {
        self.fetching_to = None;
    }

    /// Handles the loss of a rank. A fetch from it ends by itself.
    pub fn lose(&mut self, rank: u32) {
        let first = self.fetching_to.is_some().then(|| self.queue.pop_front()).flatten();
        self.queue.retain(|(other, _)| *other != rank);
        self.queue.extend(first);
        self.queue.rotate_right(usize::from(self.fetching_to.is_some()));
    }
}

/// Changes all elements of these pieces, or none.
pub(crate) fn accumulate(
    registered: &[Registered],
    number: Number,
    how: Accumulation,
    pieces: &[Range],
    data: &[u8],
) -> Made {
    let found = |piece: &Range| inside(registered, *piece).ok_or(piece.start);
    let places: Vec<(Memory, usize)> = pieces.iter().map(found).collect::<Result<_, _>>()?;
    let element = number.len_bytes();
    let mut rest = data;
    for ((memory, at), piece) in places.iter().zip(pieces) {
        let Some(bytes) = rest.split_off(..piece.len_bytes as usize) else { return Ok(()) };
        for (offset, operand) in (*at..).step_by(element).zip(bytes.chunks_exact(element)) {
            // The places were looked up, and addresses of elements are multiples of their width, so this can't fail.
            let made = how.change(number, number.word(operand)).make(memory, offset);
            debug_assert!(made.is_ok());
        }
    }
    Ok(())
}

/// Writes bytes to the place to which a pointer points, and moves the pointer on. `None` if others changed the pointer at each
/// attempt.
pub(crate) fn put_at_pointer(
    registered: &[Registered],
    pointer: u64,
    len_bytes: usize,
    put: impl Fn(&Memory, usize) -> bool,
) -> Option<Made> {
    for _ in 0..ATTEMPTS_MAX {
        let (to, memory, at) = match place(registered, pointer, len_bytes as u64) {
            Ok(place) => place,
            Err(refused) => return Some(Err(refused)),
        };
        let is_there = put(&memory, at);
        debug_assert!(is_there, "the place was looked up");
        match move_pointer(registered, pointer, to, len_bytes as u64) {
            Ok(false) => {}
            Ok(true) => return Some(Ok(())),
            Err(refused) => return Some(Err(refused)),
        }
    }
    None
}

/// The value of a pointer, and the memory to which it points.
fn place(registered: &[Registered], pointer: u64, len_bytes: u64) -> Result<(u64, Memory, usize), u64> {
    let (memory, at) =
        inside(registered, Range { start: pointer, len_bytes: POINTER_BYTES }).ok_or(pointer)?;
    let to = memory.load(at, AtomicWidth::Eight).map_err(|_| pointer)?;
    let (memory, at) = inside(registered, Range { start: to, len_bytes }).ok_or(to)?;
    Ok((to, memory, at))
}

/// Moves a pointer on. Returns false if it has another value by now.
fn move_pointer(registered: &[Registered], pointer: u64, from: u64, len_bytes: u64) -> Result<bool, u64> {
    let (memory, at) =
        inside(registered, Range { start: pointer, len_bytes: POINTER_BYTES }).ok_or(pointer)?;
    let next = Atomic {
        kind: AtomicKind::CompareSwap,
        width: AtomicWidth::Eight,
        operand: from.wrapping_add(len_bytes),
        compare: from,
    };
    memory.atomic(at, next).map(|found| found == from).map_err(|_| pointer)
}
