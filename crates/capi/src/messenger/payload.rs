//! The bytes of a message, as C programs give them: gathered from segments, to be copied or to be fetched from where they are.

use crate::allocations::library_memory;
use crate::connections::bytes;
use crate::guard::Failure;
use crate::types::*;
use cci::messages::Payload;
use cci::{Foreign, Memory, limits};
use libc::{c_void, iovec};
use std::ops::Range;
use std::ptr::NonNull;

/// Segments that are gathered without allocating.
const SEGMENTS_INLINE: usize = 16;
/// Most segments of a send: what the system's own `writev` takes.
const SEGMENTS_MAX: u32 = 1024;
/// Messages up to this length are copied at less cost than their memory is registered.
const COPIED_BYTES_MAX: usize = 8_192;

/// Memory that holds a range of the program's addresses, of the library or of the program.
///
/// # Safety
/// The memory stays mapped until what is done with it has ended.
pub(super) unsafe fn memory_of(start: *const c_void, len: usize) -> Result<(Memory, Range<usize>), Failure> {
    let Some(base) = NonNull::new(start.cast_mut().cast::<u8>()) else {
        return Err(Failure::with_text(CCI_EINVAL, "the memory of the message is NULL"));
    };
    Ok(match library_memory(base.addr().get(), len)? {
        Some((memory, range, _)) => (memory, range),
        // SAFETY: as the caller promises.
        None => (Memory::foreign(unsafe { Foreign::new(base, len) }), 0..len),
    })
}

/// Runs `then` with the segments that a program has listed.
///
/// # Safety
/// `data` is NULL or points to `iovcnt` segments, each of which points to as many bytes as it says, which stay until this has returned.
pub(super) unsafe fn gather<R>(
    data: *const iovec,
    iovcnt: u32,
    then: impl FnOnce(&[&[u8]]) -> Result<R, Failure>,
) -> Result<R, Failure> {
    if iovcnt > SEGMENTS_MAX || (data.is_null() && iovcnt > 0) {
        let text = "the message's segments are NULL, or more than 1024";
        return Err(Failure::with_text(CCI_EINVAL, text));
    }
    let mut inline: [&[u8]; SEGMENTS_INLINE] = [&[]; SEGMENTS_INLINE];
    let mut apart = Vec::new();
    let count = iovcnt as usize;
    let segments = if count <= SEGMENTS_INLINE {
        &mut inline[..count]
    } else {
        apart.resize(count, &[][..]);
        &mut apart[..]
    };
    for (at, segment) in segments.iter_mut().enumerate() {
        // SAFETY: `data` points to `count` segments, and each to its bytes, says the caller.
        *segment = unsafe {
            let iovec { iov_base, iov_len } = data.add(at).read();
            bytes(iov_base, iov_len)?
        };
    }
    then(segments)
}

/// Runs `then` with a message of these segments, which is fetched from where they are if it `is_lent`, long and in few segments.
///
/// # Safety
/// If it `is_lent`, the segments stay mapped and are not changed until what `then` starts has ended.
pub(super) unsafe fn with_payload<R>(
    segments: &[&[u8]],
    is_lent: bool,
    then: impl FnOnce(Payload<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let total_bytes = segments.iter().try_fold(0_usize, |sum, segment| sum.checked_add(segment.len()));
    if !is_lent
        || segments.len() > limits::LONG_SEGMENTS_MAX
        || total_bytes.is_none_or(|total| total <= COPIED_BYTES_MAX)
    {
        return then(Payload::Gathered(segments));
    }
    let mut memories = Vec::with_capacity(segments.len());
    for segment in segments.iter().filter(|segment| !segment.is_empty()) {
        // SAFETY: as the caller promises.
        memories.push(unsafe { memory_of(segment.as_ptr().cast(), segment.len()) }?);
    }
    let parts: Vec<_> = memories.iter().map(|(memory, range)| (memory, range.clone())).collect();
    then(Payload::Parts(&parts))
}
