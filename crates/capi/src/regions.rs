//! Registering memory, and giving out memory of the library's own: what C asks of remote memory beside operations.

use crate::allocations::{self, library_memory};
use crate::connecting::resolve;
use crate::endpoint::{CEndpoint, Side};
use crate::guard::{Failure, guard};
use crate::handles::handle_of;
use crate::types::*;
use cci::{Access, Connection, Foreign, Memory, Registration};
use libc::{c_int, c_void};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

fn access_of(flags: c_int) -> Result<Access, Failure> {
    let known =
        [(CCI_FLAG_READ, Access::READ), (CCI_FLAG_WRITE, Access::WRITE), (CCI_FLAG_ATOMIC, Access::ATOMIC)];
    let mut remainder = flags;
    let mut access = Access::LOCAL;
    for (flag, right) in known {
        if flags & flag != 0 {
            access = access | right;
            remainder &= !flag;
        }
    }
    if remainder != 0 {
        return Err(Failure::with_text(
            CCI_EINVAL,
            "registering memory: flags are CCI_FLAG_READ, CCI_FLAG_WRITE, CCI_FLAG_ATOMIC, or 0",
        ));
    }
    Ok(access)
}

/// Registers memory, of the library's own or of the program's.
///
/// # Safety
/// `rma_handle` is NULL or a place for a pointer. The memory, if it is the program's, stays mapped, readable, and as
/// writable as peers may write, until it is deregistered or `c_endpoint` destroyed.
unsafe fn register(
    c_endpoint: &CEndpoint,
    only: Option<Connection>,
    start: *mut c_void,
    length: u64,
    flags: c_int,
    rma_handle: *mut *const cci_rma_handle_t,
) -> Result<(), Failure> {
    let base = NonNull::new(start.cast::<u8>());
    let (Some(base), Ok(length), false) =
        (base, usize::try_from(length), length == 0 || rma_handle.is_null())
    else {
        let text = "registering memory: start or the handle is NULL, or the length is 0";
        return Err(Failure::with_text(CCI_EINVAL, text));
    };
    let access = access_of(flags)?;
    let (memory, range, in_use) = match library_memory(base.addr().get(), length)? {
        Some((memory, range, in_use)) => (memory, Some(range), Some(in_use)),
        // SAFETY: the program promises it, by the description of `cci_rma_register`.
        None => (Memory::foreign(unsafe { Foreign::new(base, length) }), None, None),
    };
    let handle = c_endpoint.with(|endpoint, side| {
        let handle = endpoint.register(&memory, Registration { range, access, only })?;
        Ok::<_, Failure>(side.handles.insert(handle, in_use))
    })??;
    // SAFETY: not NULL, and the caller's to be written.
    unsafe { rma_handle.write(handle) };
    Ok(())
}

/// Registers memory (CCI-055).
///
/// # Safety
/// `endpoint` is NULL or open; `rma_handle` is NULL or a place for a pointer; the memory stays mapped, readable, and as
/// writable as peers may write, until it is deregistered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_register(
    endpoint: *const cci_endpoint_t,
    start: *mut c_void,
    length: u64,
    flags: c_int,
    rma_handle: *mut *const cci_rma_handle_t,
) -> c_int {
    // SAFETY: the caller's promises are those of both.
    guard(|| unsafe { register(CEndpoint::of(endpoint)?, None, start, length, flags, rma_handle) })
}

/// Registers memory for one connection only (CCI-056).
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; otherwise as [`cci_rma_register`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_register_conn(
    connection: *const cci_connection_t,
    start: *mut c_void,
    length: u64,
    flags: c_int,
    rma_handle: *mut *const cci_rma_handle_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (c_endpoint, connection) = unsafe { resolve(connection) }?;
        // SAFETY: as the caller promises.
        unsafe { register(c_endpoint, Some(connection), start, length, flags, rma_handle) }
    })
}

/// Registers a part of a file.
///
/// # Safety
/// `endpoint` is NULL or open; `connection` is NULL or a connection of an open endpoint; `rma_handle` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_register_file(
    endpoint: *const cci_endpoint_t,
    connection: *const cci_connection_t,
    fd: c_int,
    offset: u64,
    length: u64,
    rma_handle: *mut *const cci_rma_handle_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let c_endpoint = unsafe { CEndpoint::of(endpoint) }?;
        let only = if connection.is_null() {
            None
        } else {
            // SAFETY: as the caller promises.
            let (of, connection) = unsafe { resolve(connection) }?;
            if !std::ptr::eq(of, c_endpoint) {
                let text = "registering a file: the connection is of another endpoint";
                return Err(Failure::with_text(CCI_EINVAL, text));
            }
            Some(connection)
        };
        let (Ok(start), Ok(len)) = (usize::try_from(offset), usize::try_from(length)) else {
            return Err(Failure::with_text(CCI_EINVAL, "registering a file: no file is that long"));
        };
        let end = start.checked_add(len).filter(|_| fd >= 0 && !rma_handle.is_null()).ok_or_else(|| {
            let text = "registering a file: no descriptor, the handle is NULL, or no file is that long";
            Failure::with_text(CCI_EINVAL, text)
        })?;
        // SAFETY: it is only duplicated, which fails if it is not open.
        let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
        let file = file.map_err(|error| {
            Failure::with_text(CCI_EINVAL, format!("registering a file: descriptor {fd}: {error}"))
        })?;
        let memory = Memory::file(File::from(file)).map_err(|error| {
            Failure::with_text(CCI_EINVAL, format!("registering a file: descriptor {fd}: {error}"))
        })?;
        let registration = Registration { range: Some(start..end), access: Access::READ, only };
        let handle = c_endpoint.with(|endpoint, side| {
            let handle = endpoint.register(&memory, registration)?;
            Ok::<_, Failure>(side.handles.insert(handle, None))
        })??;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { rma_handle.write(handle) };
        Ok(())
    })
}

/// Ends a registration.
///
/// # Safety
/// `endpoint` is NULL or open; `rma_handle` is NULL or points to a handle, or a copy of one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_deregister(
    endpoint: *const cci_endpoint_t,
    rma_handle: *const cci_rma_handle_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (c_endpoint, handle) = unsafe { (CEndpoint::of(endpoint)?, handle_of(rma_handle)?) };
        c_endpoint.with(|endpoint, side: &mut Side| {
            endpoint.deregister(&handle)?;
            side.handles.remove(&handle);
            Ok(())
        })?
    })
}

/// Forgets what is remembered of memory that is not registered any more.
///
/// # Safety
/// `endpoint` is NULL or open. The range may be anything: it is not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_invalidate(
    endpoint: *const cci_endpoint_t,
    start: *const c_void,
    length: u64,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let c_endpoint = unsafe { CEndpoint::of(endpoint) }?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        c_endpoint.with(|endpoint, _| endpoint.forget_registrations(start.cast(), length))
    })
}

/// Gives memory of the library's own, which peers on the same host map.
///
/// # Safety
/// `endpoint` is NULL or open; `start` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_alloc(
    endpoint: *const cci_endpoint_t,
    length: u64,
    start: *mut *mut c_void,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let c_endpoint = unsafe { CEndpoint::of(endpoint) }?;
        if start.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_rma_alloc: start is NULL"));
        }
        let length = allocations::length_of(length)?;
        let memory = c_endpoint.with(|endpoint, _| endpoint.allocate(length))??;
        let given = allocations::give(memory, endpoint.addr());
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { start.write(given) };
        Ok(())
    })
}

/// Takes such memory back.
///
/// # Safety
/// `endpoint` is NULL or open; the program does not use the memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_free(endpoint: *const cci_endpoint_t, start: *mut c_void) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { CEndpoint::of(endpoint) }?;
        drop(allocations::take_back(start, endpoint.addr())?);
        Ok(())
    })
}
