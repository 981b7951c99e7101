//! Global memory management: registrations and addresses.

use super::failure::{Result, Wrong, wrong};
use super::live::{Live, call};
use cci::{Foreign, Memory};
use cci_acp::{GlobalAddress, RegionKey};
use libc::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

/// Where the starter memory of a process begins.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_starter_ga(rank: c_int) -> u64 {
    call(0, |live| Ok(live.global.starter(rank.cast_unsigned())?.to_bits()))
}

/// Memory of the program's; none of no bytes.
///
/// # Safety
/// It stays mapped, and is used by atomics or not at all, as long as the value lives.
pub(super) unsafe fn foreign(start: *mut c_void, len_bytes: usize) -> Result<Memory> {
    let start = if len_bytes == 0 { Some(NonNull::dangling()) } else { NonNull::new(start.cast()) };
    let is_length = isize::try_from(len_bytes).is_ok();
    let start = start.filter(|start| is_length && start.addr().get().checked_add(len_bytes).is_some());
    let start = start.ok_or_else(|| Wrong("there is no memory at this address".into()))?;
    // SAFETY: as the caller promises.
    Ok(Memory::foreign(unsafe { Foreign::new(start, len_bytes) }))
}

/// Lets all processes access memory.
///
/// # Safety
/// The memory stays mapped until it was unregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acp_register_memory(addr: *mut c_void, size: usize, color: c_int) -> u64 {
    call(0, |live| {
        if addr.is_null() || size == 0 {
            return wrong("there is no memory to be registered");
        }
        // SAFETY: as the caller promises.
        let memory = unsafe { foreign(addr, size) }?;
        Ok(live.global.register(&memory, color.cast_unsigned())?.to_bits())
    })
}

fn key(atkey: u64) -> Result<RegionKey> {
    RegionKey::from_bits(atkey).ok_or_else(|| Wrong("this is no key of a registration".into()))
}

/// Ends a registration.
#[unsafe(no_mangle)]
pub extern "C" fn acp_unregister_memory(atkey: u64) -> c_int {
    call(-1, |live| {
        live.global.unregister(key(atkey)?)?;
        Ok(0)
    })
}

/// The global address of a byte.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_ga(atkey: u64, addr: *mut c_void) -> u64 {
    call(0, |live| {
        let key = key(atkey)?;
        let start = live.global.address(key, 0)?;
        let (memory, _) = live.global.local(start)?;
        let offset = addr.addr().checked_sub(memory.as_ptr().addr());
        let offset = offset.filter(|&offset| offset < memory.len());
        let offset = offset.ok_or_else(|| Wrong("the byte is not in this registration".into()))?;
        Ok(live.global.address(key, offset)?.to_bits())
    })
}

/// An address that a process of this job may have.
pub(super) fn address(live: &Live, ga: u64) -> Result<GlobalAddress> {
    let address = GlobalAddress::from_bits(ga);
    let there = address
        .filter(|address| address.rank() < live.global.size() && address.color() < live.global.colors());
    there.ok_or_else(|| Wrong(format!("{ga:#x} is no global address")))
}

/// The byte of this process that an address names.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_address(ga: u64) -> *mut c_void {
    call(null_mut(), |live| {
        let (memory, offset) = live.global.local(address(live, ga)?)?;
        if offset >= memory.len() {
            return wrong("the address is behind the end of the registered memory");
        }
        Ok(memory.as_ptr().wrapping_add(offset).cast())
    })
}

/// Whose memory an address names.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_rank(ga: u64) -> c_int {
    call(-1, |live| Ok(address(live, ga)?.rank().cast_signed()))
}

/// The colour of an address.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_color(ga: u64) -> c_int {
    call(-1, |live| Ok(address(live, ga)?.color().cast_signed()))
}

/// How many colours there are.
#[unsafe(no_mangle)]
pub extern "C" fn acp_colors() -> c_int {
    call(-1, |live| Ok(live.global.colors().cast_signed()))
}
