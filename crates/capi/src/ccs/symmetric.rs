//! Memory at one address in all processes.

use super::collectives::{run, to_c};
use super::here::check_may_wait;
use super::live::lock;
use super::operations::{Pointer, To};
use super::status::{Code, Result, call, place};
use cci_am::{Collective, Team};
use libc::{c_int, c_void};

/// Does a collective of all ranks, and returns its result, which has as many bytes as this rank's data.
fn agree(collective: Collective) -> Result<Vec<u8>> {
    let len = match &collective {
        Collective::Allreduce { data, .. } => data.len(),
        _ => 0,
    };
    let mut result = vec![0_u8; len];
    let to = To::Bytes(Pointer(result.as_mut_ptr().cast()));
    run(to_c(Team::WORLD), None, |_, _| Ok((collective, to)))?;
    Ok(result)
}

/// Allocates memory at one address in all processes, who all call it.
///
/// # Safety
/// `addr` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_symmetric_alloc(bytes: usize, addr: *mut *mut c_void) -> c_int {
    call(|| {
        let out = place(addr)?;
        check_may_wait()?;
        loop {
            let begun = lock()?.process.begin_symmetric(bytes)?;
            let agreed = agree(begun)?;
            if let Some(memory) = lock()?.process.end_symmetric(&agreed)? {
                // SAFETY: the caller's to be written.
                unsafe { out.write(memory.as_ptr().cast()) };
                return Ok(());
            }
        }
    })
}

/// Frees such memory, when all processes have called it.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_symmetric_free(addr: *mut c_void) -> c_int {
    call(|| {
        let address = addr.addr() as u64;
        check_may_wait()?;
        if !lock()?.process.is_symmetric(address) {
            return Err(Code::ARG);
        }
        agree(Collective::Barrier)?;
        Ok(lock()?.process.free_symmetric(address)?)
    })
}
