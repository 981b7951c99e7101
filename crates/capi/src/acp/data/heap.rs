//! Memory of the heaps.

use crate::acp::live::call;
use crate::acp::management::address;
use libc::c_int;

/// Allocates memory on a rank.
#[unsafe(no_mangle)]
pub extern "C" fn acp_malloc(size: usize, rank: c_int) -> u64 {
    call(0, |live| Ok(cci_acp::allocate(&mut live.global, rank.cast_unsigned(), size as u64)?.to_bits()))
}

/// Frees memory, on any rank.
#[unsafe(no_mangle)]
pub extern "C" fn acp_free(ga: u64) {
    call((), |live| {
        if ga != 0 {
            let at = address(live, ga)?;
            cci_acp::free(&mut live.global, at)?;
        }
        Ok(())
    });
}
