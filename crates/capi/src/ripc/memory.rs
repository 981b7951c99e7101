//! Buffers and windows.

use super::live::{Live, Result, Wrong, guarded, wrong};
use super::services::begin;
use super::shared::{call, with};
use libc::{c_char, c_void};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

/// A buffer of zeros.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_buf_alloc(size: usize) -> *mut c_void {
    guarded(ptr::null_mut(), || {
        begin()?;
        with(|live| allocate(live, size))
    })
}

fn allocate(live: &mut Live, size: usize) -> Result<*mut c_void> {
    if size == 0 {
        return wrong("a buffer of no bytes");
    }
    let buffer = live.buffers.take_zeroed(&mut live.node, size);
    let buffer = buffer.ok_or_else(|| Wrong(format!("there is no memory for {size} bytes")))?;
    Ok(buffer.as_ptr().cast())
}

/// A buffer with the content of another one, which ends.
///
/// # Safety
/// Nobody else uses the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_buf_realloc(buf: *mut c_void, size: usize) -> *mut c_void {
    if buf.is_null() {
        return ripc_buf_alloc(size);
    }
    call(ptr::null_mut(), |live| {
        let Some(len) = live.buffers.len_of(buf.addr()) else {
            return wrong("only the beginning of a buffer that ripc_buf_alloc() gave has another size");
        };
        if size == 0 {
            live.buffers.free(&mut live.node, buf.addr());
            return Ok(ptr::null_mut());
        }
        let other = allocate(live, size)?;
        // SAFETY: so long are both, and they are different buffers.
        unsafe { ptr::copy_nonoverlapping(buf.cast::<u8>(), other.cast::<u8>(), len.min(size)) };
        live.buffers.free(&mut live.node, buf.addr());
        Ok(other)
    })
}

/// A file as a buffer.
///
/// # Safety
/// `path` is NULL or ends with a zero byte; `size` is NULL or a place for a length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_file_map(path: *const c_char, size: *mut usize) -> *mut c_void {
    guarded(ptr::null_mut(), || {
        if path.is_null() || size.is_null() {
            return wrong("the path of a file, or the place for its size, is NULL");
        }
        // SAFETY: not NULL, and the caller promises its end.
        let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
        begin()?;
        with(|live| {
            let (base, len_bytes) = live.buffers.add_file(path).map_err(Wrong)?;
            // SAFETY: not NULL, and the caller's to be written.
            unsafe { size.write(len_bytes) };
            Ok(base.as_ptr().cast())
        })
    })
}

/// Gives a buffer back.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_buf_free(buf: *mut c_void) {
    if !buf.is_null() {
        call((), |live| {
            live.buffers.free(&mut live.node, buf.addr());
            Ok(())
        });
    }
}

/// Checks an address and a length that the program gives.
fn check(buf: *mut c_void, size: usize) -> Result<()> {
    let is_possible = isize::try_from(size).is_ok() && buf.addr().checked_add(size).is_some();
    if buf.is_null() || size == 0 || !is_possible {
        return wrong("the memory is NULL, empty, or reaches beyond any address");
    }
    Ok(())
}

/// Registers memory of the program's.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_buf_register(buf: *mut c_void, size: usize) -> u8 {
    guarded(1, || {
        check(buf, size)?;
        begin()?;
        with(|live| {
            // A buffer of the library's is registered from the beginning.
            if live.buffers.part(buf.expose_provenance(), size).is_err() {
                return wrong("the memory is in a buffer that was freed, or reaches beyond its buffer");
            }
            Ok(0)
        })
    })
}

/// Ends a registration.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_buf_unregister(buf: *mut c_void) -> u8 {
    call(0, |live| {
        if live.buffers.unregister(&mut live.node, buf.addr()) {
            Ok(1)
        } else {
            wrong("there is no registered memory at this address")
        }
    })
}

fn give_window(base: *mut c_void, size: usize, service: Option<u16>) -> u8 {
    guarded(1, || {
        if size == 0 {
            return wrong("a window of no bytes");
        }
        if !base.is_null() {
            check(base, size)?;
        }
        begin()?;
        with(|live| {
            let service =
                service.map(|id| live.registered(id).map(|registered| registered.service)).transpose()?;
            let window = if base.is_null() {
                live.buffers.take_for_partners(&mut live.node, size)
            } else {
                live.buffers.part(base.expose_provenance(), size).ok()
            };
            let Some(window) = window else {
                return wrong(
                    "the window is in a buffer that was freed, reaches beyond its buffer, or there is no memory",
                );
            };
            live.node.give_window_part(service, window)?;
            Ok(0)
        })
    })
}

/// Gives a window for one long item of any service.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_reg_recv_window(base: *mut c_void, size: usize) -> u8 {
    give_window(base, size, None)
}

/// Gives a window for one long item of one service.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_reg_recv_window_for_service(base: *mut c_void, size: usize, service_id: u16) -> u8 {
    give_window(base, size, Some(service_id))
}
