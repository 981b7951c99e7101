//! Memory that `cci_rma_alloc` and `cci_messenger_alloc` gave out, known again by its address.

use crate::guard::Failure;
use crate::types::*;
use cci::Memory;
use libc::c_void;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Held by every registration of such memory that the program has made: as long as there is one, the memory may not be freed.
pub(crate) type InUse = Arc<()>;

/// Memory that a program was given.
struct Allocation {
    memory: Memory,
    in_use: InUse,
    /// Address of the endpoint or messenger that gave it, and whose end ends it.
    owner: usize,
}

/// Of the whole process, by first address: a program may use memory from one endpoint or messenger with another one, too.
static ALLOCATIONS: Mutex<BTreeMap<usize, Allocation>> = Mutex::new(BTreeMap::new());

fn allocations() -> MutexGuard<'static, BTreeMap<usize, Allocation>> {
    ALLOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library's own memory that holds all of an address range, and where in it that is. None: the range is the
/// program's own.
pub(crate) fn library_memory(
    start: usize,
    length: usize,
) -> Result<Option<(Memory, Range<usize>, InUse)>, Failure> {
    let allocations = allocations();
    let Some(end) = start.checked_add(length) else {
        return Err(Failure::with_text(CCI_EINVAL, "registering memory: the length goes beyond any address"));
    };
    // Allocations don't overlap, so of those that begin before the range's end only the last can reach into it, unless
    // the range holds it whole.
    let Some((&first, found)) = allocations.range(..end).next_back() else { return Ok(None) };
    if first + found.memory.len() <= start {
        return Ok(None);
    }
    if start < first || end > first + found.memory.len() {
        let text = "registering memory: the range is partly memory of the library and partly not";
        return Err(Failure::with_text(CCI_EINVAL, text));
    }
    Ok(Some((found.memory.clone(), start - first..end - first, Arc::clone(&found.in_use))))
}

/// The length of memory that a program asks for.
pub(crate) fn length_of(length: u64) -> Result<usize, Failure> {
    if length == 0 {
        return Err(Failure::with_text(CCI_EINVAL, "allocating memory: the length is 0"));
    }
    // No memory is longer than that.
    let length = usize::try_from(length).ok().filter(|length| isize::try_from(*length).is_ok());
    length.ok_or_else(|| {
        Failure::with_text(CCI_ENOMEM, "allocating memory: more than this machine can address")
    })
}

/// Enters memory that is given to the program. Returns where it starts.
pub(crate) fn give(memory: Memory, owner: usize) -> *mut c_void {
    let start = memory.as_ptr();
    allocations().insert(start.addr(), Allocation { memory, in_use: Arc::new(()), owner });
    start.cast()
}

/// Takes memory back that starts here. It stays mapped until what is under way in it has ended.
pub(crate) fn take_back(start: *mut c_void, owner: usize) -> Result<Memory, Failure> {
    let mut allocations = allocations();
    let Some(found) = allocations.get(&start.addr()).filter(|found| found.owner == owner) else {
        let text = "freeing memory: not the start of memory that was allocated here";
        return Err(Failure::with_text(CCI_EINVAL, text));
    };
    // Registering clones under the lock that we hold: nobody comes in between.
    if Arc::strong_count(&found.in_use) > 1 {
        let text = "freeing memory: it is registered; deregister it first";
        return Err(Failure::with_text(CCI_EBUSY, text));
    }
    let taken = allocations.remove(&start.addr());
    taken.map(|taken| taken.memory).ok_or(Failure::code(CCI_EINVAL))
}

/// An endpoint or messenger ends, and with it the memory that it gave out.
pub(crate) fn forget(owner: usize) {
    // What others have registered stays mapped until they are done with it.
    allocations().retain(|_, found| found.owner != owner);
}
