//! Allocation that may fail: of buffers and tables whose size options, peers or programs decide. What Rust's own
//! collections answer with the end of the process is an error here.

use std::alloc::{Layout, alloc, alloc_zeroed};
use std::collections::{TryReserveError, VecDeque};
use std::ptr::NonNull;

/// `len` zeros, in pages that the system gives when they are first touched. `None`: there is no memory.
#[must_use]
pub fn zeroed<T: Zeroable>(len: usize) -> Option<Box<[T]>> {
    let layout = Layout::array::<T>(len).ok()?;
    if layout.size() == 0 {
        return Some(Box::default());
    }
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if start.is_null() {
        return None;
    }
    // SAFETY: just allocated with the layout of so many `T`, of which all zeros is a value: `Zeroable`.
    Some(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, len)) })
}

/// Numbers: plain bits, all of them zero is a value.
pub trait Zeroable: sealed::Number {}

impl<T: sealed::Number> Zeroable for T {}

mod sealed {
    pub trait Number {}
    impl Number for u8 {}
    impl Number for u64 {}
}

/// A value in a box; given back if there is no memory.
///
/// # Errors
/// There is none.
pub fn boxed<T>(value: T) -> Result<Box<T>, T> {
    let layout = Layout::new::<T>();
    if layout.size() == 0 {
        return Ok(Box::new(value));
    }
    // SAFETY: the layout is not empty.
    let Some(memory) = NonNull::new(unsafe { alloc(layout) }.cast::<T>()) else { return Err(value) };
    // SAFETY: just allocated with the layout of one `T`, which is written before the box is made.
    Ok(unsafe {
        memory.write(value);
        Box::from_raw(memory.as_ptr())
    })
}

/// `len` times `value`.
///
/// # Errors
/// There is no memory.
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Box<[T]>, TryReserveError> {
    let mut all = vec(len)?;
    all.resize(len, value);
    Ok(all.into_boxed_slice())
}

/// An empty vector with space for so many.
///
/// # Errors
/// There is no memory.
pub fn vec<T>(capacity: usize) -> Result<Vec<T>, TryReserveError> {
    let mut empty = Vec::new();
    empty.try_reserve_exact(capacity)?;
    Ok(empty)
}

/// An empty queue with space for so many.
///
/// # Errors
/// There is no memory.
pub fn queue<T>(capacity: usize) -> Result<VecDeque<T>, TryReserveError> {
    let mut empty = VecDeque::new();
    empty.try_reserve_exact(capacity)?;
    Ok(empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri ends where memory does")]
    fn what_is_there_is_given_and_what_is_not_is_an_error() {
        assert!(zeroed::<u8>(0).is_some_and(|none| none.is_empty()));
        assert_eq!(*zeroed::<u64>(3).unwrap(), [0; 3]);
        assert!(zeroed::<u64>(usize::MAX).is_none() && zeroed::<u8>(1 << 60).is_none());
        assert_eq!(*boxed(String::from("kept")).unwrap(), "kept");
        assert_eq!(boxed(()), Ok(Box::new(())));
        assert_eq!(*filled(2, 7_u16).unwrap(), [7; 2]);
        assert!(filled(usize::MAX, 0_u8).is_err());
        assert!(vec::<u32>(5).unwrap().capacity() >= 5 && vec::<u32>(usize::MAX / 8).is_err());
        assert!(queue::<u32>(5).unwrap().capacity() >= 5 && queue::<u32>(usize::MAX / 8).is_err());
    }
}
