//! Operations that are under way: what is to be done when they end.

use super::descriptions::Place;
use super::types::*;
use cci_am::description::Description;
use cci_memory::bytes::{Bytes, Writable};
use libc::c_void;

/// An address of the program's.
#[derive(Copy, Clone)]
pub(super) struct Pointer(pub *mut c_void);

// SAFETY: only the program looks at what is there, or this library where the program has promised that it may.
unsafe impl Send for Pointer {}

/// What is to be done when an operation has ended.
pub(super) struct Ending {
    pub callback: CCS_callback_t,
    pub arg: Pointer,
    pub result: Outcome,
}

/// Where what an operation found goes.
pub(super) enum Outcome {
    Nothing,
    /// A word of so many bytes.
    Word(Pointer, usize),
    /// Packed data, which are to be unpacked to where the program wants them.
    Unpack {
        packed: cci::Memory,
        to: Pointer,
        count: usize,
        description: Description,
    },
}

/// Operations that are under way, by what the process knows them by.
#[derive(Default)]
pub(super) struct Operations {
    places: Vec<Option<Ending>>,
    free: Vec<usize>,
}

impl Operations {
    pub fn insert(&mut self, ending: Ending) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        if let Some(place) = self.places.get_mut(at) {
            *place = Some(ending);
        }
        at as u64
    }

    pub fn remove(&mut self, cookie: u64) -> Option<Ending> {
        let at = cookie as usize;
        let ending = self.places.get_mut(at)?.take()?;
        self.free.push(at);
        Some(ending)
    }
}

impl Outcome {
    pub fn put(self, found: u64) {
        match self {
            Outcome::Nothing => {}
            Outcome::Word(to, len_bytes) => {
                let bytes = found.to_ne_bytes();
                let from = if cfg!(target_endian = "big") { 8 - len_bytes } else { 0 };
                // SAFETY: the program has given a place for a word of this type, which is its own until the operation has ended.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().add(from), to.0.cast(), len_bytes) };
            }
            Outcome::Unpack { packed, to, count, description } => {
                let mut row = vec![0; packed.len()];
                let is_inside = packed.read(0, &mut row);
                debug_assert!(is_inside);
                let Some(place) = Place::of(to.0, count, &description) else { return };
                // SAFETY: the program promises that what it describes is its own until the operation has ended.
                let bytes = unsafe { Bytes::new(place.start, place.len_bytes) };
                let done = description.unpack(Writable::from(bytes), place.origin, count, 0, &row);
                debug_assert!(done.is_ok());
            }
        }
    }
}
