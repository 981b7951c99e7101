//! The memory that peers can reach: allocating and registering it.

use super::Endpoint;
use crate::engine::registrations::Known;
use crate::error::{RegisterError, RmaError};
use crate::rma::{Access, Memory, RegionHandle, Registration};
use crate::transport::RegionChange;
use cci_memory::bytes::Bytes;
use cci_proto::RemoteAddress;
use cci_sys::SysError;
use cci_sys::memory::{self, RmaMemory};
use std::num::NonZeroUsize;
use std::ops::Range;

impl Endpoint {
    /// Allocates memory of the library's own, zeroed and page-aligned, in huge pages where the system has them. Processes on the same
    /// host that may access a region of it map it, so that their operations are plain copies. It counts as memory of this endpoint,
    /// and raises its cap.
    ///
    /// # Errors
    /// [`RegisterError::Length`] for 0 bytes, and [`RegisterError::System`] if the system refuses.
    pub fn allocate(&mut self, len_bytes: usize) -> Result<Memory, RegisterError> {
        self.allocate_with(len_bytes, RmaMemory::create)
    }

    /// Allocates memory for remote access at an address that the program chooses, a multiple of a page: processes that agree on one have
    /// memory at the same address in each.
    ///
    /// # Errors
    /// Those of [`Endpoint::allocate`]. [`RegisterError::System`] with `EEXIST`: something is mapped there.
    pub fn allocate_at(&mut self, len_bytes: usize, address: NonZeroUsize) -> Result<Memory, RegisterError> {
        self.allocate_with(len_bytes, |len_bytes| RmaMemory::create_at(len_bytes, address))
    }

    fn allocate_with(
        &mut self,
        len_bytes: usize,
        create: impl FnOnce(usize) -> Result<RmaMemory, SysError>,
    ) -> Result<Memory, RegisterError> {
        self.check_process().map_err(RegisterError::System)?;
        if len_bytes == 0 {
            return Err(RegisterError::Length);
        }
        let segment = create(len_bytes)?;
        Ok(Memory::library(segment, self.core.rma_bill.clone(), len_bytes))
    }

    /// Registers memory, or a part of it. From now on the handle that is returned names this region, here and at the peers that know
    /// the handle (CCI-055 to CCI-057). `what` may be just an [`Access`]. Memory may be registered any number of times.
    ///
    /// Memory that is not the library's is checked: all of it must be mapped, and writable if peers may write. The endpoint remembers
    /// what it has checked, so that registering it again costs no check, even for some time after it was deregistered
    /// (`Options::idle_registered_bytes_max`): see [`Endpoint::forget_registrations`].
    ///
    /// The bytes of a file can be registered with [`Access::READ`] only: see [`Memory::file`].
    ///
    /// Where a region is for one connection only, the peer's library may learn of it at once, before the program sends the handle: on one host,
    /// what that peer then does with the memory needs no question.
    ///
    /// # Errors
    /// After any [`RegisterError`], nothing has changed.
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
        if memory.is_file() && access != Access::READ {
            return Err(RegisterError::ReadOnly);
        }
        let foreign = memory.is_foreign().then(|| memory.bytes().part(range.start, range.len())).flatten();
        if let Some(part) = foreign {
            self.core
                .registrations
                .acquire(addresses(part), need(access), check)
                .map_err(RegisterError::NotMapped)?;
        }
        let is_shown = !memory.is_foreign() && access != Access::LOCAL;
        let entered = self.core.regions.insert(memory, range, access, only);
        if !matches!(entered, Ok(Some(_)))
            && let Some(part) = foreign
        {
            self.core.registrations.release(addresses(part));
        }
        let handle = entered?.ok_or(RegisterError::TooMany)?;
        if is_shown && let Some(link) = only.and_then(|only| self.core.conn(only)).map(|conn| conn.link) {
            self.transport.region_for(&mut self.core, link, handle.region());
        }
        Ok(handle)
    }

    /// Whether the peer that a region is for maps it, and so reads there without a request.
    pub(crate) fn is_mapped_by_peer(&self, handle: &RegionHandle) -> bool {
        self.core.regions.is_mapped(handle)
    }

    /// Ends a registration. When this returns, no peer reads or changes the region any more. An operation that was in progress fails
    /// with [`Status::RmaHandle`](crate::Status::RmaHandle) for the remaining part.
    ///
    /// # Errors
    /// [`RegisterError::Unknown`] if the handle names no region of this endpoint, and [`RegisterError::System`] in another process.
    pub fn deregister(&mut self, handle: &RegionHandle) -> Result<(), RegisterError> {
        self.check_process().map_err(RegisterError::System)?;
        let region = self.core.regions.remove(handle).ok_or(RegisterError::Unknown)?;
        let change = RegionChange::Removed { id: handle.region(), region: &region };
        self.transport.region(&mut self.core, &change);
        if region.memory.is_foreign() {
            self.core.registrations.release(addresses(region.bytes));
        }
        Ok(())
    }

    /// Forgets what was checked of these addresses, so that the next registration there checks again. Regions that are registered stay
    /// so. A program calls this when it has unmapped, remapped or protected memory there, or is about to.
    ///
    /// It is needed only by programs that may register addresses that are not mapped as they should be, and rely on being refused, as
    /// the library does not watch their mappings (CCI-058). Memory that is mapped as [`Foreign`](crate::Foreign) demands can be
    /// registered in any case, whatever was there before.
    pub fn forget_registrations(&mut self, start: *const u8, len_bytes: usize) {
        self.core.registrations.forget(start.addr()..start.addr().saturating_add(len_bytes));
    }

    /// Checks that `len_bytes` from `at` on are within a region of this endpoint, and are writable if an operation is to write there
    /// (`written`). The memory is checked by the first such operation, unless it was when the region was registered.
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

    /// Checks that the memory of a region is writable, and remembers it.
    #[cold]
    fn check_target(&mut self, at: RemoteAddress, part: Bytes) -> Result<(), RmaError> {
        let checked = self.core.registrations.need(addresses(part), Known::Writable, check);
        checked.map_err(|_| RmaError::LocalHandle)?;
        self.core.regions.set_target(at);
        Ok(())
    }
}

/// What must be known of memory before peers get these rights. Where peers may not write, operations of this endpoint still may; that
/// the memory is writable is checked only before the first of them, since the check makes the pages of a mapped file dirty.
fn need(access: Access) -> Known {
    let written = access.contains(Access::WRITE) || access.contains(Access::ATOMIC);
    if written { Known::Writable } else { Known::Readable }
}

/// The addresses of a part of memory.
fn addresses(part: Bytes) -> Range<usize> {
    let start = part.as_ptr().addr().get();
    start..start + part.len()
}

/// Asks the kernel whether pages are mapped. It is costly, since it brings all of them in.
fn check(pages: Range<usize>, need: Known) -> Result<(), SysError> {
    memory::check_mapped(std::ptr::without_provenance(pages.start), pages.len(), need == Known::Writable)
}
