//! Opening and closing messengers.

use super::handle::CMessenger;
use super::types::*;
use crate::allocations;
use crate::endpoint::{event_limit, text};
use crate::extensions::{Wanted, options_of};
use crate::guard::{Failure, guard};
use crate::library;
use crate::opening::port_or_name;
use crate::options::give_text;
use crate::types::*;
use cci::Endpoint;
use cci::messages::{Limits, Messenger};
use libc::{c_char, c_int};
use std::sync::Arc;

/// Opens a messenger on a device.
///
/// # Safety
/// `device` is NULL or came from `cci_get_devices`; `service` is NULL or a C string; `options` and `limits` are NULL or point to structs
/// of the size that their first fields say (see `cci_create_endpoint_with`); `messenger` and `fd` are NULL or places to be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_open(
    device: *const cci_device_t,
    service: *const c_char,
    options: *const cci_endpoint_options_t,
    limits: *const cci_messenger_limits_t,
    messenger: *mut *const cci_messenger_t,
    fd: *mut cci_os_handle_t,
) -> c_int {
    guard(|| {
        if messenger.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_messenger_open: messenger is NULL"));
        }
        // SAFETY: as the caller promises.
        let (Wanted { mut options, progress_thread }, limits) =
            unsafe { (options_of(options)?, limits_of(limits)?) };
        if progress_thread {
            return Err(Failure::with_text(
                CCI_EINVAL,
                "cci_messenger_open: messengers have no progress thread",
            ));
        }
        if !service.is_null() {
            // SAFETY: as the caller promises.
            options.service = port_or_name(unsafe { text(service, "service") }?);
        }
        let events_max = event_limit(&options);
        let opened = library::with(|library| {
            let (device, _) = library.devices.find(device)?;
            Ok(Messenger::new(Endpoint::create(&device, options)?, limits)?)
        })?;
        let opened = Box::new(CMessenger::new(opened, events_max));
        let descriptor = opened.fd;
        let opened = Box::into_raw(opened);
        // The address is turned back into a pointer when the messenger is closed.
        if !library::enter_messenger(opened.expose_provenance(), close) {
            // SAFETY: just made, and nobody has seen it.
            unsafe { close(opened.addr()) };
            return Err(Failure::with_text(CCI_ERROR, "CCI was finalized while the messenger was opened"));
        }
        // SAFETY: not NULL, and the caller's to be written.
        unsafe {
            if !fd.is_null() {
                fd.write(descriptor);
            }
            messenger.write(opened.cast_const().cast());
        }
        Ok(())
    })
}

/// # Safety
/// `given` is NULL or points to a struct of the size that its first field says.
unsafe fn limits_of(given: *const cci_messenger_limits_t) -> Result<Limits, Failure> {
    let limits = Limits::default();
    if given.is_null() {
        return Ok(limits);
    }
    // SAFETY: the size is the first field, and there is one, says the caller.
    if unsafe { given.cast::<u32>().read() } as usize != size_of::<cci_messenger_limits_t>() {
        let text = "the limits' size field must be sizeof(cci_messenger_limits_t)";
        return Err(Failure::with_text(CCI_EINVAL, text));
    }
    // SAFETY: all of the struct is there, says the caller.
    let given = unsafe { given.read_unaligned() };
    if given.reserved != 0 {
        return Err(Failure::with_text(CCI_EINVAL, "the limits' reserved field must be 0"));
    }
    let or = |given: u64, default: u64| if given == 0 { default } else { given };
    Ok(limits
        .whole_bytes_max(or(given.whole_bytes_max, limits.whole_bytes_max))
        .message_bytes_max(or(given.message_bytes_max, limits.message_bytes_max))
        .lent_bytes_max(or(given.lent_bytes_max, limits.lent_bytes_max))
        .staged_bytes_max(or(given.staged_bytes_max, limits.staged_bytes_max)))
}

/// Closes a messenger.
///
/// # Safety
/// `address` is that of a messenger that is open, nobody else uses it, and this is the only call for it.
unsafe fn close(address: usize) {
    let messenger = std::ptr::with_exposed_provenance_mut::<Arc<CMessenger>>(address);
    // SAFETY: made by `Box::into_raw` in `cci_messenger_open`; the rest is as the caller promises.
    let messenger = unsafe { Box::from_raw(messenger) };
    messenger.close();
    // Before the box, whose address names their owner.
    allocations::forget(address);
}

/// Closes a messenger.
///
/// # Safety
/// No other thread is in a call that uses the messenger.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_close(messenger: *const cci_messenger_t) -> c_int {
    guard(|| {
        if !library::leave_messenger(messenger.addr()) {
            return Err(Failure::with_text(CCI_EINVAL, "cci_messenger_close: not an open messenger"));
        }
        // SAFETY: it was in the table of open messengers, and only the caller that took it out comes here.
        unsafe { close(messenger.addr()) };
        Ok(())
    })
}

/// Gives the URI that others connect to.
///
/// # Safety
/// `messenger` is NULL or open; `uri` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_messenger_uri(
    messenger: *const cci_messenger_t,
    uri: *mut *mut c_char,
) -> c_int {
    guard(|| {
        // SAFETY: as the caller promises.
        let messenger = unsafe { CMessenger::of(messenger) }?;
        if uri.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_messenger_uri: uri is NULL"));
        }
        let copy = give_text(&messenger.uri)?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { uri.write(copy) };
        Ok(())
    })
}
