//! What the process has one of: whether CCI is initialised, its devices, and the endpoints that are open.

use crate::devices::Devices;
use crate::endpoint::CEndpoint;
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::Context;
use libc::c_int;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Between the first `cci_init` and the last `cci_finalize`.
pub(crate) struct Library {
    /// `cci_init`s not yet matched.
    users: u32,
    flags: u32,
    pub devices: Devices,
    /// Addresses of the endpoints that are open: so that destroying one twice is an error and nothing worse.
    endpoints: HashSet<usize>,
    /// The messengers that are open, and how each is closed.
    messengers: HashMap<usize, Close>,
}

/// Closes what has this address, which nobody else uses any more.
pub(crate) type Close = unsafe fn(usize);

static LIBRARY: Mutex<Option<Library>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<Library>> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` on the library, if it is initialised. Not on the data path.
pub(crate) fn with<R>(f: impl FnOnce(&mut Library) -> Result<R, Failure>) -> Result<R, Failure> {
    match lock().as_mut() {
        Some(library) => f(library),
        None => Err(Failure::with_text(CCI_ERROR, "CCI is not initialised: call cci_init first")),
    }
}

impl Library {
    pub fn is_single_threaded(&self) -> bool {
        self.flags & CCI_INIT_SINGLE_THREADED != 0
    }

    fn caps(&self) -> u32 {
        if self.is_single_threaded() { 0 } else { CCI_CAP_THREAD_SAFE }
    }
}

/// Enters an endpoint; false if CCI was finalised meanwhile.
pub(crate) fn enter(endpoint: *const CEndpoint) -> bool {
    lock().as_mut().is_some_and(|library| library.endpoints.insert(endpoint.addr()))
}

/// Takes an endpoint out; true for the one caller that may now destroy it.
pub(crate) fn leave(endpoint: *const CEndpoint) -> bool {
    lock().as_mut().is_some_and(|library| library.endpoints.remove(&endpoint.addr()))
}

/// Enters a messenger; false if CCI was finalised meanwhile.
pub(crate) fn enter_messenger(address: usize, close: Close) -> bool {
    lock().as_mut().is_some_and(|library| library.messengers.insert(address, close).is_none())
}

/// Takes a messenger out; true for the one caller that may now close it.
pub(crate) fn leave_messenger(address: usize) -> bool {
    lock().as_mut().is_some_and(|library| library.messengers.remove(&address).is_some())
}

/// Initialises CCI; counted.
///
/// # Safety
/// `caps` is NULL or points to a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_init(abi_ver: u32, flags: u32, caps: *mut u32) -> c_int {
    guard(|| {
        if caps.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_init: caps is NULL"));
        }
        if abi_ver != CCI_ABI_VERSION {
            let text = format!(
                "cci_init: interface version {abi_ver} asked for, this library has {CCI_ABI_VERSION}"
            );
            return Err(Failure::with_text(CCI_EINVAL, text));
        }
        if flags & !CCI_INIT_SINGLE_THREADED != 0 {
            return Err(Failure::with_text(CCI_EINVAL, format!("cci_init: unknown flags {flags:#x}")));
        }
        let mut library = lock();
        let library = match library.as_mut() {
            Some(library) => library,
            None => library.insert(first(flags)?),
        };
        if library.flags != flags {
            return Err(Failure::with_text(CCI_EINVAL, "cci_init: already initialised with other flags"));
        }
        library.users += 1;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { caps.write(library.caps()) };
        Ok(())
    })
}

fn first(flags: u32) -> Result<Library, Failure> {
    let devices = Devices::new(&Context::new()?);
    Ok(Library { users: 0, flags, devices, endpoints: HashSet::new(), messengers: HashMap::new() })
}

/// Ends CCI; the last one destroys endpoints that are still open.
///
/// # Safety
/// No other thread is in a call that uses a handle of the library's when this is the last one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_finalize() -> c_int {
    guard(|| {
        let ended = {
            let mut library = lock();
            let Some(users) = library.as_mut().map(|library| &mut library.users) else {
                return Err(Failure::with_text(CCI_ERROR, "cci_finalize: CCI is not initialised"));
            };
            *users -= 1;
            if *users == 0 { library.take() } else { None }
        };
        let Some(ended) = ended else { return Ok(()) };
        for (address, close) in ended.messengers {
            // SAFETY: it was in the set, which is this call's alone now: it is open and nobody else closes it.
            unsafe { close(address) };
        }
        for address in ended.endpoints {
            // SAFETY: it was in the set, which is ours alone now: it is open and nobody else destroys it.
            unsafe { CEndpoint::destroy(std::ptr::with_exposed_provenance_mut(address)) };
        }
        Ok(())
    })
}

/// Gives the devices, highest priority first, NULL-ended.
///
/// # Safety
/// `devices` is NULL or points to a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_get_devices(devices: *mut *const *const cci_device_t) -> c_int {
    guard(|| {
        if devices.is_null() {
            return Err(Failure::with_text(CCI_EINVAL, "cci_get_devices: devices is NULL"));
        }
        with(|library| {
            // SAFETY: not NULL, and the caller's to be written.
            unsafe { devices.write(library.devices.list.as_ptr()) };
            Ok(())
        })
    })
}
