//! Opening and ending endpoints: where the library's list of them meets what they are.

use crate::endpoint::{CEndpoint, Mode, text};
use crate::guard::{Failure, guard};
use crate::library;
use crate::types::*;
use cci::{Device, Options};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// [`create_with`] options that hold for every device, and nothing else to do.
///
/// # Safety
/// `endpoint` and `fd` are NULL or point to places to be written.
pub(crate) unsafe fn create(
    device: *const cci_device_t,
    options: Options,
    progress_thread: bool,
    endpoint: *mut *const cci_endpoint_t,
    fd: *mut cci_os_handle_t,
) -> Result<(), Failure> {
    // SAFETY: the caller's promises are the same.
    unsafe { create_with(device, |_| Ok(options), progress_thread, (endpoint, fd), |_| Ok(())) }
}

/// Creates an endpoint, enters it and gives it out. `endpoint` and `fd` are the caller's pointers, checked here. `options` gives those for a
/// device; `finish` is called with the endpoint before the program gets it.
///
/// # Safety
/// `endpoint` and `fd` are NULL or point to places to be written.
pub(crate) unsafe fn create_with(
    device: *const cci_device_t,
    options: impl FnOnce(&Device) -> Result<Options, Failure>,
    progress_thread: bool,
    (endpoint, fd): (*mut *const cci_endpoint_t, *mut cci_os_handle_t),
    finish: impl FnOnce(&CEndpoint) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if endpoint.is_null() {
        return Err(Failure::with_text(CCI_EINVAL, "creating an endpoint: the place for it is NULL"));
    }
    let created = library::with(|library| {
        let (device, public) = library.devices.find(device)?;
        let mode = match (library.is_single_threaded(), progress_thread) {
            (false, false) => Mode::Locking,
            (false, true) => Mode::ProgressThread,
            (true, false) => Mode::SingleThreaded,
            (true, true) => {
                let text = "a progress thread needs locks: initialise without CCI_INIT_SINGLE_THREADED";
                return Err(Failure::with_text(CCI_EINVAL, text));
            }
        };
        let options = options(&device)?;
        CEndpoint::create(&device, public, mode, options)
    })?;
    finish(&created)?;
    if !fd.is_null() {
        let raw = created.with(|endpoint, _| endpoint.os_handle().as_raw_fd())?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { fd.write(raw) };
    }
    let created = Box::into_raw(created);
    // The address is turned back into a pointer if `cci_finalize` finds the endpoint still open.
    let _ = created.expose_provenance();
    if !library::enter(created) {
        // SAFETY: just made, and nobody has seen it.
        unsafe { CEndpoint::destroy(created) };
        return Err(Failure::with_text(CCI_ERROR, "CCI was finalized while the endpoint was created"));
    }
    // SAFETY: not NULL, and the caller's to be written.
    unsafe { endpoint.write(created.cast::<cci_endpoint_t>().cast_const()) };
    Ok(())
}

/// Opens an endpoint.
///
/// # Safety
/// `device` is NULL or came from `cci_get_devices`; `endpoint` and `fd` are NULL or point to places to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_create_endpoint(
    device: *const cci_device_t,
    _flags: c_int,
    endpoint: *mut *const cci_endpoint_t,
    fd: *mut cci_os_handle_t,
) -> c_int {
    // SAFETY: the caller's promises are `create`'s.
    guard(|| unsafe { create(device, Options::default(), false, endpoint, fd) })
}

/// The service that a program asks for. None where it names this host, as some published programs do: any port or name will do.
pub(crate) fn port_or_name(service: &str) -> Option<String> {
    let is_local_address = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    let is_this_host = service.eq_ignore_ascii_case("localhost")
        || service.parse().is_ok_and(is_local_address)
        || host_name().is_some_and(|name| name.eq_ignore_ascii_case(service));
    (!is_this_host).then(|| service.to_owned())
}

/// What this host calls itself.
fn host_name() -> Option<String> {
    let mut name = [0_u8; 256];
    // SAFETY: the buffer is there, and as long as it is said to be.
    let status = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let name = CStr::from_bytes_until_nul(&name).ok().filter(|name| status == 0 && !name.is_empty())?;
    name.to_str().ok().map(str::to_owned)
}

/// Opens an endpoint at a service.
///
/// # Safety
/// What [`cci_create_endpoint`] requires; and `service` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_create_endpoint_at(
    device: *const cci_device_t,
    service: *const c_char,
    _flags: c_int,
    endpoint: *mut *const cci_endpoint_t,
    fd: *mut cci_os_handle_t,
) -> c_int {
    guard(|| {
        // SAFETY: NULL or a C string, says the caller.
        let service = unsafe { text(service, "cci_create_endpoint_at: service") }?;
        let options = Options::default().service(port_or_name(service));
        // SAFETY: the caller's promises are `create`'s.
        unsafe { create(device, options, false, endpoint, fd) }
    })
}

/// Ends an endpoint.
///
/// # Safety
/// No other thread is in a call that uses the endpoint or one of its connections.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_destroy_endpoint(endpoint: *const cci_endpoint_t) -> c_int {
    guard(|| {
        let endpoint = endpoint.cast::<CEndpoint>().cast_mut();
        if !library::leave(endpoint) {
            return Err(Failure::with_text(CCI_EINVAL, "cci_destroy_endpoint: not an open endpoint"));
        }
        // SAFETY: it was in the table of open endpoints, and only the caller that took it out comes here.
        if let Err(failure) = unsafe { &*endpoint }.refuse_handler() {
            library::enter(endpoint);
            return Err(failure);
        }
        // SAFETY: as above, and no handler of this thread's is within it.
        unsafe { CEndpoint::destroy(endpoint) };
        Ok(())
    })
}
