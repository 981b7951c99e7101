//! Memory that `cci_rma_alloc` gave out, known again by its address.

use crate::guard::Failure;
use crate::types::*;
use cci::Memory;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Held by every registration of memory from `cci_rma_alloc`: as long as there is one, the memory may not be freed.
pub(crate) type InUse = Arc<()>;

/// Memory that `cci_rma_alloc` gave out.
pub(crate) struct Allocation {
    pub memory: Memory,
    pub in_use: InUse,
    /// Address of the endpoint that gave it, and whose end ends it.
    pub owner: usize,
}

/// Of the whole process, by first address: a program may register memory from one endpoint with another one, too.
static ALLOCATIONS: Mutex<BTreeMap<usize, Allocation>> = Mutex::new(BTreeMap::new());

pub(crate) fn allocations() -> MutexGuard<'static, BTreeMap<usize, Allocation>> {
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
        let text = "registering memory: the range is partly memory from cci_rma_alloc and partly not";
        return Err(Failure::with_text(CCI_EINVAL, text));
    }
    Ok(Some((found.memory.clone(), start - first..end - first, Arc::clone(&found.in_use))))
}

/// An endpoint ends, and with it the memory that it gave out.
pub(crate) fn forget(endpoint: *const cci_endpoint_t) {
    // What other endpoints have registered stays mapped until they are done with it.
    allocations().retain(|_, found| found.owner != endpoint.addr());
}
