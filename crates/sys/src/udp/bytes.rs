//! Memory for datagrams.

use crate::error::{Result, SysError};
use cci_memory::fallible;
use rustix::io::Errno;

/// Zeroed bytes that start on an 8-byte boundary. Pages are taken from the system only when written.
pub(super) struct AlignedBytes(Box<[u64]>);

impl AlignedBytes {
    /// At least `len` bytes.
    pub(super) fn new(len: usize) -> Result<AlignedBytes> {
        const WHAT: &str = "have memory for datagrams";
        let bytes = fallible::zeroed(len.div_ceil(size_of::<u64>()));
        bytes
            .map(AlignedBytes)
            .ok_or_else(|| SysError::new(WHAT, Errno::NOMEM).on(format_args!("{len} bytes")))
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        // SAFETY: the same memory, seen as bytes: any byte is valid, and u8 needs no alignment.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), size_of_val(&*self.0)) }
    }

    #[inline]
    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, borrowed mutably; any bytes make a valid u64.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), size_of_val(&*self.0)) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        size_of_val(&*self.0)
    }
}
