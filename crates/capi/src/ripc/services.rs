//! Services: the start, registering, and what programs wait on.

use super::live::{Descriptor, Live, Registered, Result, Wrong, guarded, wrong};
use super::progress;
use super::shared::{at_exit, in_child, lock, with};
use super::system::{EventFd, any_of, duplicate};
use cci_ripc::{ClaimError, Node, Options, ServiceName};
use libc::{c_char, c_int};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::Arc;
use std::time::Duration;

/// No service has this number.
const NOBODY: u16 = u16::MAX;
/// Random numbers that are tried.
const TRIES: u32 = 1_000;
/// How long a service looks for another one that it sends to, unless the program chooses another time.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long memory is lent.
const LEASE: Duration = Duration::from_secs(3_600);

/// Begins, unless that was done.
pub(super) fn begin() -> Result<()> {
    let mut locked = lock()?;
    if locked.is_some() {
        return Ok(());
    }
    let options = Options::default().fetched_bytes_max(0).fetch_on_receive(true).lease(LEASE);
    let node = Node::open(options).map_err(|error| Wrong(error.to_string()))?;
    let sleeper = node.sleeper().map_err(|error| Wrong(error.to_string()))?;
    let failed = |error: std::io::Error| Wrong(format!("no thread can be started: {error}"));
    let wake = Arc::new(EventFd::new().map_err(failed)?);
    // SAFETY: both functions may be called at any time.
    let rules = unsafe { libc::pthread_atfork(None, None, Some(in_child)) | libc::atexit(at_exit) };
    if rules != 0 {
        return wrong("there is no memory");
    }
    progress::start(wake.clone()).map_err(failed)?;
    *locked = Some(Box::new(Live::new(node, sleeper, wake)));
    Ok(())
}

fn number(id: c_int) -> Result<u16> {
    let number = u16::try_from(id).ok().filter(|number| *number != NOBODY);
    number.ok_or_else(|| Wrong(format!("{id} is no number of a service: those are 0 to 65534")))
}

/// Registers a service under a number, or makes it a member of a group.
fn register(live: &mut Live, number: u16, is_group: bool) -> std::result::Result<(), ClaimError> {
    let name = live.numbers.name(number);
    let service = if is_group { live.node.join(&name) } else { live.node.register(&name) }?;
    live.services
        .insert(number, Registered { service, is_group, resolve_timeout: RESOLVE_TIMEOUT, descriptor: None });
    Ok(())
}

fn register_number(id: c_int, is_group: bool) -> u8 {
    guarded(0, || {
        let number = number(id)?;
        begin()?;
        with(|live| {
            if live.numbers.is_given(number) {
                return wrong(format!("{number} is what this process calls another service"));
            }
            register(live, number, is_group).map_err(|error| Wrong(error.to_string()))?;
            Ok(1)
        })
    })
}

/// Begins.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_init() -> u8 {
    guarded(0, || begin().map(|()| 1))
}

/// Registers a service under a number that nobody has.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_register_random_service_id() -> u16 {
    guarded(NOBODY, || {
        begin()?;
        for _ in 0..TRIES {
            let mut bytes = [0_u8; 2];
            // SAFETY: so many bytes are there.
            let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 2, 0) };
            let id = u16::from_ne_bytes(bytes);
            if got != 2 || id == NOBODY {
                continue;
            }
            let done = with(|live| {
                if live.numbers.is_given(id) || live.services.contains_key(&id) {
                    return Ok(false);
                }
                match register(live, id, false) {
                    Ok(()) => Ok(true),
                    Err(ClaimError::Taken { .. }) => Ok(false),
                    Err(error) => wrong(error.to_string()),
                }
            })?;
            if done {
                return Ok(id);
            }
        }
        wrong("nearly all numbers are taken")
    })
}

/// Registers a service under a number.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_register_service_id(service_id: c_int) -> u8 {
    register_number(service_id, false)
}

/// Joins a group.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_register_multicast_service_id(service_id: c_int) -> u8 {
    register_number(service_id, true)
}

/// A name that a program gives.
///
/// # Safety
/// It is NULL or a string.
unsafe fn name_of(name: *const c_char) -> Result<ServiceName> {
    if name.is_null() {
        return wrong("the name is NULL");
    }
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    ServiceName::new(&name).map_err(|error| Wrong(error.to_string()))
}

/// What this process calls a name.
fn number_for(live: &mut Live, name: &ServiceName) -> Result<u16> {
    let Live { numbers, services, .. } = live;
    numbers
        .of(name, |number| services.contains_key(&number))
        .ok_or_else(|| Wrong("this process knows as many names as it may: 4,096".to_owned()))
}

/// Registers a service under a name.
///
/// # Safety
/// `name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_register_named(name: *const c_char) -> u16 {
    guarded(NOBODY, || {
        // SAFETY: as the caller promises.
        let name = unsafe { name_of(name) }?;
        begin()?;
        with(|live| {
            let number = number_for(live, &name)?;
            register(live, number, false).map_err(|error| Wrong(error.to_string()))?;
            Ok(number)
        })
    })
}

/// The number by which this process calls a service that has a name.
///
/// # Safety
/// `name` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_number_of(name: *const c_char) -> u16 {
    guarded(NOBODY, || {
        // SAFETY: as the caller promises.
        let name = unsafe { name_of(name) }?;
        begin()?;
        with(|live| number_for(live, &name))
    })
}

/// The name of a service that has a number.
///
/// # Safety
/// `name` is NULL or has space for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripc_name_of(service_id: u16, name: *mut c_char, size: usize) -> u8 {
    guarded(1, || {
        let of = lock()?
            .as_ref()
            .map_or_else(|| ServiceName::number(service_id), |live| live.numbers.name(service_id));
        // SAFETY: as the caller promises.
        unsafe { write_text(of.as_str(), name, size) }
    })
}

/// Writes a text with a 0 at its end, if there is space for it.
///
/// # Safety
/// `to` is NULL or has space for `size` bytes.
pub(super) unsafe fn write_text(text: &str, to: *mut c_char, size: usize) -> Result<u8> {
    if to.is_null() || text.len() >= size {
        return wrong(format!("{text:?} has {} bytes with its end, and they do not fit", text.len() + 1));
    }
    // SAFETY: so much space is there, as the caller promises.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), text.len());
        to.add(text.len()).write(0);
    }
    Ok(0)
}

/// Takes a service back.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_unregister(service_id: u16) -> u8 {
    guarded(1, || {
        with(|live| {
            let Some(registered) = live.services.remove(&service_id) else {
                return wrong(format!("{service_id} is no service of this process"));
            };
            live.node.unregister(registered.service);
            live.partners.retain(|(id, _), _| *id != service_id);
            live.numbers.forget_receiver(service_id);
            live.calls.forget(service_id);
            Ok(0)
        })
    })
}

/// Says how long the sends of a service look for another one that is not connected.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_service_set_resolve_timeout(service_id: u16, timeout_ms: c_int) -> u8 {
    guarded(1, || {
        let timeout = time(timeout_ms, 0)?;
        with(|live| {
            live.registered(service_id)?;
            if let Some(registered) = live.services.get_mut(&service_id) {
                registered.resolve_timeout = timeout;
            }
            Ok(0)
        })
    })
}

/// Says for how long a service lends.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_service_set_lease(service_id: u16, lease_ms: c_int, disconnected_ms: c_int) -> u8 {
    guarded(1, || {
        let (lease, disconnected) = (time(lease_ms, 1)?, time(disconnected_ms, 0)?);
        with(|live| {
            let service = live.registered(service_id)?.service;
            live.node.set_lease(service, lease, disconnected)?;
            Ok(0)
        })
    })
}

/// A time that a program gives, of so many milliseconds at least.
fn time(ms: c_int, min_ms: u64) -> Result<Duration> {
    let given = u64::try_from(ms).ok().filter(|ms| *ms >= min_ms);
    given
        .map(Duration::from_millis)
        .ok_or_else(|| Wrong(format!("{ms} ms is no such time: give {min_ms} ms or more")))
}

/// What a program's loop waits on for a service.
#[unsafe(no_mangle)]
pub extern "C" fn ripc_descriptor(service_id: u16) -> c_int {
    guarded(-1, || {
        with(|live| {
            let failed = |error: std::io::Error| Wrong(format!("no descriptor can be had: {error}"));
            let node = live.node.os_handle().as_raw_fd();
            let Some(registered) = live.services.get_mut(&service_id) else {
                return wrong(format!("{service_id} is no service of this process"));
            };
            if registered.descriptor.is_none() {
                let waits = EventFd::new().map_err(failed)?;
                let fd = any_of(&[node, waits.raw()]).map_err(failed)?;
                registered.descriptor = Some(Descriptor { waits, is_readable: false, fd });
            }
            let fd = registered.descriptor.as_ref().map(|descriptor| &descriptor.fd);
            let fd = fd.map(|fd| duplicate(std::os::fd::AsFd::as_fd(fd)));
            fd.map_or_else(|| wrong("no descriptor"), |fd| Ok(fd.map_err(failed)?.into_raw_fd()))
        })
    })
}
