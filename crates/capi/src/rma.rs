//! Remote memory access: arguments are checked, the rest is not there yet.

use crate::connecting::resolve;
use crate::endpoint::CEndpoint;
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::Attribute;
use libc::{c_int, c_void};

fn not_yet() -> Failure {
    Failure::told(CCI_ERR_NOT_IMPLEMENTED, "remote memory access is not implemented yet")
}

fn check_region(
    start: *const c_void,
    length: u64,
    flags: c_int,
    handle: *const *const cci_rma_handle_t,
) -> Result<(), Failure> {
    if start.is_null() || length == 0 || handle.is_null() {
        return Err(Failure::told(
            CCI_EINVAL,
            "registering memory: start or the handle is NULL, or the length is 0",
        ));
    }
    if flags & !(CCI_FLAG_READ | CCI_FLAG_WRITE) != 0 {
        return Err(Failure::told(
            CCI_EINVAL,
            "registering memory: flags are CCI_FLAG_READ, CCI_FLAG_WRITE or 0",
        ));
    }
    Ok(())
}

/// Registers memory.
///
/// # Safety
/// `endpoint` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_register(
    endpoint: *const cci_endpoint_t,
    start: *mut c_void,
    length: u64,
    flags: c_int,
    rma_handle: *mut *const cci_rma_handle_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { CEndpoint::of(endpoint) }?;
        check_region(start, length, flags, rma_handle)?;
        Err(not_yet())
    })
}

/// Registers memory for one connection only.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint.
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
        unsafe { resolve(connection) }?;
        check_region(start, length, flags, rma_handle)?;
        Err(not_yet())
    })
}

/// Ends a registration.
///
/// # Safety
/// `endpoint` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma_deregister(
    endpoint: *const cci_endpoint_t,
    rma_handle: *const cci_rma_handle_t,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        unsafe { CEndpoint::of(endpoint) }?;
        if rma_handle.is_null() {
            return Err(Failure::told(CCI_EINVAL, "cci_rma_deregister: the handle is NULL"));
        }
        Err(not_yet())
    })
}

/// Reads or writes a peer's memory.
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; `msg_ptr` points to `msg_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma(
    connection: *const cci_connection_t,
    msg_ptr: *const c_void,
    msg_len: u32,
    local_handle: *const cci_rma_handle_t,
    _local_offset: u64,
    remote_handle: *const cci_rma_handle_t,
    _remote_offset: u64,
    data_len: u64,
    _context: *const c_void,
    flags: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let (endpoint, connection) = unsafe { resolve(connection) }?;
        let (read, write) = (flags & CCI_FLAG_READ != 0, flags & CCI_FLAG_WRITE != 0);
        if local_handle.is_null() || remote_handle.is_null() || read == write || data_len == 0 {
            let text = "cci_rma: a handle is NULL, the length is 0, or the flags have not exactly one of READ and WRITE";
            return Err(Failure::told(CCI_EINVAL, text));
        }
        if msg_ptr.is_null() && msg_len > 0 {
            return Err(Failure::told(CCI_EINVAL, "cci_rma: msg_ptr is NULL"));
        }
        let (attribute, max_bytes) = endpoint
            .with(|endpoint, _| (endpoint.attribute(connection), endpoint.max_send_size(connection)))?;
        if attribute == Some(Attribute::Unreliable) {
            return Err(Failure::told(CCI_EINVAL, "cci_rma: the connection is unreliable"));
        }
        if max_bytes.is_some_and(|max_bytes| msg_len > max_bytes) {
            return Err(Failure::told(
                CCI_EMSGSIZE,
                "cci_rma: the message is longer than the connection takes",
            ));
        }
        Err(not_yet())
    })
}
