//! Operations that are under way: what is to be done when they end.

use super::descriptions::Place;
use super::types::*;
use cci_am::description::Description;
use cci_am::process::Following;
use cci_memory::bytes::{Bytes, Writable};
use libc::{c_int, c_void};
use std::ops::Range;

/// An address of the program's.
#[derive(Copy, Clone)]
pub(super) struct Pointer(pub *mut c_void);

// SAFETY: only the program looks at what is there, or this library where the program has promised that it may.
unsafe impl Send for Pointer {}

/// What the program wants called at an end, with its argument.
#[derive(Copy, Clone)]
pub(super) enum Callback {
    /// It asks how it ended, or not.
    Plain(unsafe extern "C" fn(*mut c_void)),
    /// It is reported by a code.
    WithStatus(unsafe extern "C" fn(*mut c_void, c_int)),
}

/// What is to be done when an operation has ended.
pub(super) struct Ending {
    pub callback: Option<Callback>,
    pub arg: Pointer,
    pub result: Outcome,
    /// The message that follows an operation that has ended well.
    pub then: Option<Following>,
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

/// What is to be done when a collective has ended.
pub(super) struct Collecting {
    pub to: To,
    pub then: Then,
}

/// Where what this process gets of a collective goes.
pub(super) enum To {
    Nowhere,
    Bytes(Pointer),
    Described {
        to: Pointer,
        count: usize,
        description: Description,
    },
    /// Parts of the result, each to where it is in that.
    Parts(Pointer, Vec<Range<usize>>),
}

/// Who hears of the end of a collective.
pub(super) enum Then {
    Call(CCS_callback_t, Pointer),
    /// Whoever waits for it asks.
    Kept,
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
                unpack(to, count, &description, &row);
            }
        }
    }
}

impl To {
    pub fn put(self, bytes: &[u8]) {
        let copy = |to: &Pointer, range: Range<usize>| {
            let part = bytes.get(range.clone()).unwrap_or_default();
            if !part.is_empty() {
                // SAFETY: the program has given a place for all that comes, which is its own until the collective has ended.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        part.as_ptr(),
                        to.0.cast::<u8>().add(range.start),
                        part.len(),
                    )
                };
            }
        };
        match self {
            To::Nowhere => {}
            To::Bytes(to) => copy(&to, 0..bytes.len()),
            To::Described { to, count, description } => unpack(to, count, &description, bytes),
            To::Parts(to, parts) => parts.into_iter().for_each(|part| copy(&to, part)),
        }
    }
}

/// Copies packed data to where the program wants them.
fn unpack(to: Pointer, count: usize, description: &Description, row: &[u8]) {
    let Some(place) = Place::of(to.0, count, description) else { return };
    // SAFETY: the program promises that what it describes is its own until the operation has ended.
    let bytes = unsafe { Bytes::new(place.start, place.len_bytes) };
    let done = description.unpack(Writable::from(bytes), place.origin, count, 0, row);
    debug_assert!(done.is_ok());
}
