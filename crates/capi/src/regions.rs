//! Registered memory behind C pointers: handles that stay where they are, and memory of the library's own, known again by
//! its address.

use crate::connecting::resolve;
use crate::endpoint::{CEndpoint, Side};
use crate::guard::{Failure, guard};
use crate::types::*;
use cci::{Access, Connection, Foreign, Memory, Registration, RmaHandle};
use libc::{c_int, c_void};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Held by every registration of memory from `cci_rma_alloc`: as long as there is one, the memory may not be freed.
type InUse = Arc<()>;

/// Memory that `cci_rma_alloc` gave out.
struct Allocation {
    memory: Memory,
    in_use: InUse,
    /// Address of the endpoint that gave it, and whose end ends it.
    owner: usize,
}

/// Of the whole process, by first address: a program may register memory from one endpoint with another one, too.
static ALLOCATIONS: Mutex<BTreeMap<usize, Allocation>> = Mutex::new(BTreeMap::new());

fn allocations() -> MutexGuard<'static, BTreeMap<usize, Allocation>> {
    ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library's own memory that holds all of an address range, and where in it that is. None: the range is the
/// program's own.
fn library_memory(start: usize, length: usize) -> Result<Option<(Memory, Range<usize>, InUse)>, Failure> {
    let allocations = allocations();
    let Some(end) = start.checked_add(length) else {
        return Err(Failure::told(CCI_EINVAL, "registering memory: the length goes beyond any address"));
    };
    // Allocations don't overlap, so of those that begin before the range's end only the last can reach into it, unless
    // the range holds it whole.
    let Some((&first, found)) = allocations.range(..end).next_back() else { return Ok(None) };
    if first + found.memory.len() <= start {
        return Ok(None);
    }
    if start < first || end > first + found.memory.len() {
        let text = "registering memory: the range is partly memory from cci_rma_alloc and partly not";
        return Err(Failure::told(CCI_EINVAL, text));
    }
    Ok(Some((found.memory.clone(), start - first..end - first, Arc::clone(&found.in_use))))
}

const BLOCK: usize = 128;

type Block = Box<[UnsafeCell<cci_rma_handle_t>; BLOCK]>;

/// The handles of an endpoint's registrations, in blocks of 4 KiB that stay where they are until the endpoint is
/// destroyed: a program that deregisters twice reads a stale handle, not somebody else's memory.
#[derive(Default)]
pub(crate) struct Handles {
    /// `UnsafeCell`: the program reads the handles while we hold `&mut Handles`.
    blocks: Vec<Block>,
    /// Places not in use. Taken from the front and given back at the end, so that a place stays stale for long.
    free: VecDeque<usize>,
    registered: HashMap<RmaHandle, Registered>,
}

struct Registered {
    place: usize,
    _in_use: Option<InUse>,
}

impl Handles {
    fn insert(&mut self, handle: RmaHandle, in_use: Option<InUse>) -> *const cci_rma_handle_t {
        if self.free.is_empty() {
            let made = self.blocks.len() * BLOCK;
            self.free.extend(made..made + BLOCK);
            let empty = || UnsafeCell::new(cci_rma_handle_t { stuff: [0; 4] });
            self.blocks.push(Box::new(std::array::from_fn(|_| empty())));
        }
        let place = self.free.pop_front().unwrap_or_default();
        let at = self.blocks[place / BLOCK][place % BLOCK].get();
        // SAFETY: only we write handles, under the endpoint's lock, which we hold; the program has no right to what was
        // here, since it was deregistered. 32 bytes of either type are 32 bytes of the other.
        unsafe { at.cast::<[u8; RmaHandle::BYTES]>().write(handle.to_bytes()) };
        self.registered.insert(handle, Registered { place, _in_use: in_use });
        at.cast_const()
    }

    fn remove(&mut self, handle: &RmaHandle) {
        if let Some(Registered { place, .. }) = self.registered.remove(handle) {
            self.free.push_back(place);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.blocks.len() * size_of::<[cci_rma_handle_t; BLOCK]>()
            + self.free.capacity() * size_of::<usize>()
            + self.registered.capacity() * size_of::<(RmaHandle, Registered)>()
    }
}

const _: () = assert!(size_of::<cci_rma_handle_t>() == RmaHandle::BYTES);

/// What a program's handle says: any 32 bytes, at any address.
///
/// # Safety
/// `handle` is NULL or points to 32 bytes.
#[inline]
pub(crate) unsafe fn handle_of(handle: *const cci_rma_handle_t) -> Result<RmaHandle, Failure> {
    if handle.is_null() {
        return Err(Failure::told(CCI_EINVAL, "the RMA handle is NULL"));
    }
    // SAFETY: as the caller promises; a copy may lie anywhere in a message, so its alignment is not relied on.
    Ok(RmaHandle::from_bytes(unsafe { handle.cast::<[u8; RmaHandle::BYTES]>().read_unaligned() }))
}

fn access_of(flags: c_int) -> Result<Access, Failure> {
    let known =
        [(CCI_FLAG_READ, Access::READ), (CCI_FLAG_WRITE, Access::WRITE), (CCI_FLAG_ATOMIC, Access::ATOMIC)];
    let mut rest = flags;
    let mut access = Access::LOCAL;
    for (flag, right) in known {
        if flags & flag != 0 {
            access = access | right;
            rest &= !flag;
        }
    }
    if rest != 0 {
        return Err(Failure::told(
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
/// writable as peers may write, until it is deregistered or `owner` destroyed.
unsafe fn register(
    owner: &CEndpoint,
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
        return Err(Failure::told(CCI_EINVAL, text));
    };
    let access = access_of(flags)?;
    let (memory, range, in_use) = match library_memory(base.addr().get(), length)? {
        Some((memory, range, in_use)) => (memory, Some(range), Some(in_use)),
        // SAFETY: the program promises it, by the description of `cci_rma_register`.
        None => (Memory::foreign(unsafe { Foreign::new(base, length) }), None, None),
    };
    let handle = owner.with(|endpoint, side| {
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
        let (owner, connection) = unsafe { resolve(connection) }?;
        // SAFETY: as the caller promises.
        unsafe { register(owner, Some(connection), start, length, flags, rma_handle) }
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
        let (owner, handle) = unsafe { (CEndpoint::of(endpoint)?, handle_of(rma_handle)?) };
        owner.with(|endpoint, side: &mut Side| {
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
        let owner = unsafe { CEndpoint::of(endpoint) }?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        owner.with(|endpoint, _| endpoint.forget_registrations(start.cast(), length))
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
        let owner = unsafe { CEndpoint::of(endpoint) }?;
        if start.is_null() || length == 0 {
            return Err(Failure::told(CCI_EINVAL, "cci_rma_alloc: start is NULL, or the length is 0"));
        }
        let length = usize::try_from(length)
            .map_err(|_| Failure::told(CCI_ENOMEM, "cci_rma_alloc: more than this machine can address"))?;
        let memory = owner.with(|endpoint, _| endpoint.allocate(length))??;
        let address = memory.as_ptr();
        let allocation = Allocation { memory, in_use: Arc::new(()), owner: endpoint.addr() };
        allocations().insert(address.addr(), allocation);
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { start.write(address.cast()) };
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
        let mut allocations = allocations();
        let found = allocations.get(&start.addr()).filter(|found| found.owner == endpoint.addr());
        let Some(found) = found else {
            let text = "cci_rma_free: not the start of memory that cci_rma_alloc gave out for this endpoint";
            return Err(Failure::told(CCI_EINVAL, text));
        };
        // Registering clones under the lock that we hold: nobody comes in between.
        if Arc::strong_count(&found.in_use) > 1 {
            return Err(Failure::told(
                CCI_EBUSY,
                "cci_rma_free: the memory is registered; deregister it first",
            ));
        }
        let freed = allocations.remove(&start.addr());
        drop(allocations);
        drop(freed);
        Ok(())
    })
}

/// An endpoint ends, and with it the memory that it gave out.
pub(crate) fn forget(endpoint: *const cci_endpoint_t) {
    // What other endpoints have registered stays mapped until they are done with it.
    allocations().retain(|_, found| found.owner != endpoint.addr());
}
