//! Which memory an endpoint's handles name.

use super::Endpoint;
use crate::engine::registrations::Known;
use crate::error::{RegisterError, RmaError};
use crate::rma::{Access, Memory, RegionHandle, Registration};
use crate::transport::RegionChange;
use cci_memory::bytes::Bytes;
use cci_proto::RemoteAddress;
use cci_sys::SysError;
use cci_sys::memory::{self, RmaMemory};
use std::ops::Range;

impl Endpoint {
    /// Memory of the library's own, zeroed and page-aligned, in huge pages where the system has them. Processes on the
    /// same host that may access a region of it map it, so that their operations are plain copies. It counts as
    /// memory of this endpoint, beside its cap.
    ///
    /// # Errors
    /// [`RegisterError::Length`] for 0 bytes, [`RegisterError::System`].
    pub fn allocate(&mut self, len_bytes: usize) -> Result<Memory, RegisterError> {
        self.check_process().map_err(RegisterError::System)?;
        if len_bytes == 0 {
            return Err(RegisterError::Length);
        }
        let segment = RmaMemory::create(len_bytes)?;
        Ok(Memory::library(segment, self.core.rma_bill.clone(), len_bytes))
    }

    /// Registers memory, or a part of it: from now on the handle names it, here and at the peers that are told the
    /// handle (CCI-055 to CCI-057). `what` may be just an [`Access`]. The same memory may be registered
    /// any number of times.
    ///
    /// Memory that is not the library's is checked: all of it must be mapped, and writable where peers may write. What
    /// was checked is remembered, so that registering it again costs no check, and some of what is no longer registered,
    /// too (`Options::idle_registered_bytes_max`): see [`Endpoint::forget_registrations`].
    ///
    /// # Errors
    /// [`RegisterError`]; nothing changed.
    pub fn register(
        &mut self,
        memory: &Memory,
        what: impl Into<Registration>,
    ) -> Result<RegionHandle, RegisterError> {
        self.check_process().map_err(RegisterError::System)?;
        let Registration { range, access, only } = what.into();
        let range = range.unwrap_or(0..memory.len());
        if range.is_empty() {
            return Err(RegisterError::Length);
        }
        if range.end > memory.len() {
            return Err(RegisterError::Range { end: range.end, len_bytes: memory.len() });
        }
        if let Some(connection) = only
            && self.core.conn(connection).is_none()
        {
            return Err(RegisterError::UnknownConnection);
        }
        let part = memory.bytes().part(range.start, range.len());
        let part = part.ok_or(RegisterError::Range { end: range.end, len_bytes: memory.len() })?;
        if !memory.is_library() {
            self.core
                .registrations
                .acquire(addresses(part), need(access), check)
                .map_err(RegisterError::NotMapped)?;
        }
        let entered = self.core.regions.insert(memory, range, access, only);
        if !matches!(entered, Ok(Some(_))) && !memory.is_library() {
            self.core.registrations.release(addresses(part));
        }
        entered?.ok_or(RegisterError::TooMany)
    }

    /// Ends a registration. When this returns, no peer reads or changes the region any more, not even one in the middle
    /// of an operation, whose rest then fails with [`Status::RmaHandle`](crate::Status::RmaHandle).
    ///
    /// # Errors
    /// [`RegisterError::Unknown`]: the handle names no region of this endpoint.
    pub fn deregister(&mut self, handle: &RegionHandle) -> Result<(), RegisterError> {
        self.check_process().map_err(RegisterError::System)?;
        let region = self.core.regions.remove(handle).ok_or(RegisterError::Unknown)?;
        let change = RegionChange::Removed { id: handle.region(), region: &region };
        self.transport.region(&mut self.core, &change);
        if !region.memory.is_library() {
            self.core.registrations.release(addresses(region.bytes));
        }
        Ok(())
    }

    /// Says that the program has unmapped, remapped or protected memory at these addresses, or will: what is remembered of
    /// them is forgotten, and the next registration there checks again. Regions that are registered stay so.
    ///
    /// Only needed by programs that may afterwards register addresses that are not mapped as they should be, and
    /// rely on being refused: the library does not watch their mappings (CCI-058). Memory that is mapped as
    /// [`Foreign`](crate::Foreign) demands can be registered without, whatever was there before.
    pub fn forget_registrations(&mut self, start: *const u8, len_bytes: usize) {
        self.core.registrations.forget(start.addr()..start.addr().saturating_add(len_bytes));
    }

    /// Whether `len_bytes` from `at` on are a region's of this endpoint's, and may be written if an operation is to put
    /// something there. The first such operation has the region checked, if no right of peers' to write has.
    pub(super) fn check_local(
        &mut self,
        at: RemoteAddress,
        len_bytes: u64,
        written: bool,
    ) -> Result<(), RmaError> {
        if self.core.regions.local(at, len_bytes).is_none() {
            return Err(RmaError::LocalHandle);
        }
        match self.core.regions.unknown_target(at).filter(|_| written) {
            Some(part) => self.check_target(at, part),
            None => Ok(()),
        }
    }

    #[cold]
    fn check_target(&mut self, at: RemoteAddress, part: Bytes) -> Result<(), RmaError> {
        let checked = self.core.registrations.need(addresses(part), Known::Writable, check);
        checked.map_err(|_| RmaError::LocalHandle)?;
        self.core.regions.set_target(at);
        Ok(())
    }
}

/// What must be known of the memory before peers get these rights. A region without the right to be written may still
/// be where an operation of the owner's puts something: that is checked when it is first done, since it makes the pages
/// of a mapped file dirty.
fn need(access: Access) -> Known {
    let written = access.contains(Access::WRITE) || access.contains(Access::ATOMIC);
    if written { Known::Writable } else { Known::Readable }
}

fn addresses(part: Bytes) -> Range<usize> {
    let start = part.as_ptr().addr().get();
    start..start + part.len()
}

/// Asks the kernel about pages; costly, since it brings all of them in.
fn check(pages: Range<usize>, need: Known) -> Result<(), SysError> {
    memory::check_mapped(std::ptr::without_provenance(pages.start), pages.len(), need == Known::Writable)
}
