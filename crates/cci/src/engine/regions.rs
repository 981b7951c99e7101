//! The regions of an endpoint: what is registered, who may do what with it. Every access of a peer's is checked here,
//! against this table and nothing else.

use crate::event::Connection;
use crate::rma::{Access, Memory, RmaHandle, atomic_op};
use cci_proto::{Atomic, RmaPlace, RmaRefusal};
use cci_ring::memory::{AtomicRefusal, Bytes};
use cci_ring::slab::{Key, Slab};
use cci_sys::{SysError, random};
use std::ops::Range;

/// One registered region.
pub(crate) struct Region {
    /// Exactly the registered bytes.
    pub bytes: Bytes,
    pub key: u64,
    pub access: Access,
    /// Only over this connection.
    pub only: Option<Connection>,
    /// Where in `memory` it begins.
    #[expect(dead_code, reason = "for the transport that maps it")]
    pub start: usize,
    /// Keeps the memory alive.
    #[expect(dead_code, reason = "kept alive")]
    pub memory: Memory,
}

/// See the module.
pub(crate) struct Regions {
    table: Slab<Region>,
    /// Accesses of peers that were refused.
    pub refused: u64,
}

/// Regions of one endpoint.
pub(crate) const REGIONS_MAX: u32 = 1 << 20;

impl Regions {
    pub fn new() -> Regions {
        Regions { table: Slab::new(REGIONS_MAX), refused: 0 }
    }

    /// Enters a region. None: the table is full. The range was checked.
    pub fn insert(
        &mut self,
        memory: &Memory,
        range: Range<usize>,
        access: Access,
        only: Option<Connection>,
    ) -> Result<Option<RmaHandle>, SysError> {
        let key = random::u64()?;
        let len = range.end.saturating_sub(range.start);
        let Some(bytes) = memory.bytes().part(range.start, len) else { return Ok(None) };
        let region = Region { bytes, key, access, only, start: range.start, memory: memory.clone() };
        let made = self.table.insert(region).ok();
        Ok(made.map(|place| RmaHandle::new(place.to_bits(), len as u64, key, access)))
    }

    /// Takes a region out; None: the handle names none of ours.
    pub fn remove(&mut self, handle: &RmaHandle) -> Option<Region> {
        self.named(handle.region(), handle.key())?;
        self.table.remove(Key::from_bits(handle.region()))
    }

    fn named(&self, region: u64, key: u64) -> Option<&Region> {
        self.table.get(Key::from_bits(region)).filter(|region| region.key == key)
    }

    /// The region that a place of the owner's own names.
    #[inline]
    pub fn local(&self, at: RmaPlace, len_bytes: u64) -> Option<(Bytes, usize)> {
        let region = self.named(at.region, at.key)?;
        in_range(region, at.offset, len_bytes)
    }

    /// The same for a peer that comes over `connection` and needs `need`.
    #[inline]
    pub fn peer(
        &mut self,
        connection: Connection,
        at: RmaPlace,
        len_bytes: u64,
        need: Access,
    ) -> Result<(Bytes, usize), RmaRefusal> {
        let found = self.granted(connection, at.region, at.key, need);
        let found = found.and_then(|region| in_range(region, at.offset, len_bytes));
        if found.is_none() {
            self.refused += 1;
        }
        found.ok_or(RmaRefusal::Handle)
    }

    /// A region that this peer may use so.
    pub fn granted(&self, connection: Connection, region: u64, key: u64, need: Access) -> Option<&Region> {
        let region = self.named(region, key)?;
        let scope = region.only.is_none_or(|only| only == connection);
        (scope && region.access.contains(need)).then_some(region)
    }

    /// An atomic operation of a peer's.
    pub fn peer_atomic(
        &mut self,
        connection: Connection,
        at: RmaPlace,
        atomic: Atomic,
    ) -> Result<u64, RmaRefusal> {
        let (bytes, offset) = self.peer(connection, at, atomic.width.bytes() as u64, Access::ATOMIC)?;
        bytes.atomic(offset, atomic_op(atomic)).map_err(|refusal| match refusal {
            AtomicRefusal::OutOfRange => RmaRefusal::Handle,
            AtomicRefusal::Misaligned => RmaRefusal::Operation,
        })
    }

    pub fn len(&self) -> u32 {
        self.table.len()
    }

    pub fn bytes(&self) -> u64 {
        self.table.bytes() as u64
    }
}

#[inline]
fn in_range(region: &Region, offset: u64, len_bytes: u64) -> Option<(Bytes, usize)> {
    let end = offset.checked_add(len_bytes)?;
    (end <= region.bytes.len() as u64).then_some((region.bytes, offset as usize))
}
