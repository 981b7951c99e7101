//! Small operations on memory that is mapped: plain copies, without the transport, between two regions that were used before.

use super::Endpoint;
use super::rma::{is_beyond, remote_address};
use crate::connection::{Connection, Status};
use crate::engine::core::{ConnState, SendOp};
use crate::engine::mapped_pairs::{Kept, Known, Lost, MappedRegion};
use crate::options::Attribute;
use crate::rma::{BlockRun, Memory, RegionAddress, RegionHandle, RmaFlags};
use crate::transport::{Action, AtomicRequest, RmaRequest};
use cci_proto::{Atomic, RemoteAddress, RmaKind};

/// A peer's mapped region, as [`Endpoint::mapped_target`] has found it, so that operations on it need not look for it. Once the region or its
/// connection has ended, operations on it do nothing, and return that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedTarget(Kept);

impl Endpoint {
    /// Does an operation by a plain copy, if both regions were used before and nothing has to come first. False: nothing was
    /// started.
    #[inline(always)]
    pub(super) fn copy_mapped(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        local: &RegionAddress,
        remote: &RegionAddress,
        len_bytes: u64,
        flags: RmaFlags,
    ) -> bool {
        let copied = self.may_be_mapped(connection, flags)
            && !is_beyond(*remote, len_bytes)
            && self.core.regions.pairs.copy(
                kind,
                connection,
                remote_address(*local),
                remote_address(*remote),
                len_bytes,
            );
        if copied {
            self.core.counters.count_rma(kind, len_bytes);
        }
        copied
    }

    /// Copies blocks between local memory, which need not be registered, and a peer's region that is mapped, as those of library memory on the
    /// same host are once they were used. All blocks are there when this returns; no event will come. False: that is not possible, or not at
    /// the moment, and some blocks may have been copied; [`Endpoint::rma`] can do it, or returns what is wrong. Blocks of up to 1 MiB together
    /// may be copied in one call.
    #[inline]
    pub fn copy_blocks_at_once(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        local: &Memory,
        region: RegionHandle,
        runs: &[BlockRun],
    ) -> bool {
        let Some(remote) = self.known(connection, &RegionAddress::new(region, 0)) else { return false };
        let copied =
            local.is_own_process() && self.core.regions.pairs.copy_blocks(kind, &local.bytes(), remote, runs);
        if copied {
            let len_bytes: usize = runs.iter().map(|run| run.len_bytes * run.count).sum();
            self.core.counters.count_rma(kind, len_bytes as u64);
        }
        copied
    }

    /// Writes bytes, 1 MiB at most, to a peer's region that is mapped, as [`Endpoint::copy_blocks_at_once`] does with local memory. They are there when
    /// this returns. False: that is not possible, or not now, and some may have been written.
    #[inline]
    pub fn write_at_once(&mut self, connection: Connection, bytes: &[u8], target: RegionAddress) -> bool {
        let Some(remote) = self.known(connection, &target) else { return false };
        let written = self.core.regions.pairs.put(bytes, (remote, target.offset));
        if written {
            self.core.counters.count_rma(RmaKind::Write, bytes.len() as u64);
        }
        written
    }

    /// Reads bytes, 1 MiB at most, from a peer's region that is mapped, as [`Endpoint::copy_blocks_at_once`] does into local memory. They are here
    /// when this returns. False: that is not possible, or not now, and some may have been read.
    #[inline]
    pub fn read_at_once(&mut self, connection: Connection, source: RegionAddress, bytes: &mut [u8]) -> bool {
        let Some(remote) = self.known(connection, &source) else { return false };
        let read = self.core.regions.pairs.get((remote, source.offset), bytes);
        if read {
            self.core.counters.count_rma(RmaKind::Read, bytes.len() as u64);
        }
        read
    }

    /// Copies 1 MiB at most between local memory, which need not be registered, from `local_offset` bytes on, and a peer's region that is mapped, as
    /// [`Endpoint::copy_blocks_at_once`] does with many blocks.
    #[inline]
    pub fn copy_at_once(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        (local, local_offset): (&Memory, usize),
        target: RegionAddress,
        len_bytes: usize,
    ) -> bool {
        let Some(remote) = self.known(connection, &target) else { return false };
        let (local_bytes, target) = (local.bytes(), (remote, target.offset));
        let copied = local.is_own_process()
            && self.core.regions.pairs.copy_block(kind, (&local_bytes, local_offset), target, len_bytes);
        if copied {
            self.core.counters.count_rma(kind, len_bytes as u64);
        }
        copied
    }

    /// Changes a value in a peer's region that is mapped, as [`Endpoint::atomic`] does, and returns the value from before. None: that is not
    /// possible, or not now, and nothing was done. An error: the region's pages were replaced meanwhile, so that nobody knows whether the value
    /// was changed.
    // Always inlined: with a second caller, which counts barriers, an addition of CCS took 6 % more instructions.
    #[inline(always)]
    pub fn fetch_at_once(
        &mut self,
        connection: Connection,
        atomic: Atomic,
        target: RegionAddress,
    ) -> Option<Result<u64, Status>> {
        let known = self.known(connection, &target)?;
        let before = self.core.regions.pairs.fetch(atomic, (known, target.offset))?;
        self.core.counters.atomics += 1;
        Some(before.map_err(|Lost| Status::TimedOut))
    }

    /// Finds a peer's region that is mapped, for [`Endpoint::copy_mapped_at_once`] and [`Endpoint::fetch_mapped_at_once`]. None: it is not mapped,
    /// or more regions are in use than the endpoint remembers. [`Endpoint::copy_at_once`] may do it, and [`Endpoint::rma`] does.
    pub fn mapped_target(&mut self, connection: Connection, region: RegionHandle) -> Option<MappedTarget> {
        let known = self.known(connection, &RegionAddress::new(region, 0))?;
        self.core.regions.pairs.keep(known).map(MappedTarget)
    }

    /// Copies as [`Endpoint::copy_at_once`] does, with a region that was found before, `offset` bytes from its beginning on. False: for the same
    /// reasons, or because it has to be found again: its connection has ended, its peer has taken it back, or too many others were used.
    #[inline(always)]
    pub fn copy_mapped_at_once(
        &mut self,
        kind: RmaKind,
        (local, local_offset): (&Memory, usize),
        (target, offset): (&MappedTarget, u64),
        len_bytes: usize,
    ) -> bool {
        if !self.may_be_target(target) || !local.is_own_process() {
            return false;
        }
        let (local, target) = ((&local.bytes(), local_offset), (&target.0, offset));
        let copied = self.core.regions.pairs.copy_kept(kind, local, target, len_bytes);
        if copied {
            self.core.counters.count_rma(kind, len_bytes as u64);
        }
        copied
    }

    /// Writes bytes as [`Endpoint::write_at_once`] does, to a region that was found before, `offset` bytes from its beginning on. False: for the
    /// reasons of [`Endpoint::copy_mapped_at_once`].
    #[inline]
    pub fn write_mapped_at_once(&mut self, bytes: &[u8], (target, offset): (&MappedTarget, u64)) -> bool {
        let written =
            self.may_be_target(target) && self.core.regions.pairs.put_kept(bytes, (&target.0, offset));
        if written {
            self.core.counters.count_rma(RmaKind::Write, bytes.len() as u64);
        }
        written
    }

    /// Reads bytes as [`Endpoint::read_at_once`] does, from a region that was found before, `offset` bytes from its beginning on. False: for the
    /// reasons of [`Endpoint::copy_mapped_at_once`].
    #[inline]
    pub fn read_mapped_at_once(&mut self, (target, offset): (&MappedTarget, u64), bytes: &mut [u8]) -> bool {
        let read = self.may_be_target(target) && self.core.regions.pairs.get_kept((&target.0, offset), bytes);
        if read {
            self.core.counters.count_rma(RmaKind::Read, bytes.len() as u64);
        }
        read
    }

    /// Changes a value as [`Endpoint::fetch_at_once`] does, in a region that was found before, `offset` bytes from its beginning. None: for the same
    /// reasons, or because it has to be found again.
    #[inline(always)]
    pub fn fetch_mapped_at_once(
        &mut self,
        atomic: Atomic,
        (target, offset): (&MappedTarget, u64),
    ) -> Option<Result<u64, Status>> {
        if !self.may_be_target(target) {
            return None;
        }
        let before = self.core.regions.pairs.fetch_kept(atomic, (&target.0, offset))?;
        self.core.counters.atomics += 1;
        Some(before.map_err(|Lost| Status::TimedOut))
    }

    /// Whether operations on a region that was found before may be done now, if it is still among those that are remembered: these are on open
    /// connections.
    #[inline(always)]
    fn may_be_target(&self, target: &MappedTarget) -> bool {
        let is_open = || {
            let connection = self.core.regions.pairs.connection(&target.0);
            let conn = |connection| self.core.conn(connection);
            connection.is_none_or(|on| conn(on).is_some_and(|conn| conn.state == ConnState::Open))
        };
        debug_assert!(is_open(), "a connection that ends takes its pairs along");
        self.is_ours() && self.core.order.is_empty()
    }

    /// Where operations without a local region find this region of a peer; it is looked for if it is not remembered. `None`: it is not mapped,
    /// or the connection does not allow that now.
    #[inline(always)]
    fn known(&mut self, connection: Connection, at: &RegionAddress) -> Option<Known> {
        if !self.may_be_mapped(connection, RmaFlags::SILENT) {
            return None;
        }
        let remote = RemoteAddress { region: at.handle.region(), key: at.handle.key(), offset: 0 };
        match self.core.regions.pairs.known(connection, remote) {
            Some(known) => Some(known),
            None => self.look_for(connection, remote),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_for(&mut self, connection: Connection, remote: RemoteAddress) -> Option<Known> {
        let Endpoint { core, transport, .. } = self;
        let link = core.conn(connection)?.link;
        if !core.regions.pairs.wants(connection, None, remote) {
            return None;
        }
        let mapped = transport.mapped(link, remote.region, remote.key)?;
        core.regions.pairs.insert(connection, None, remote, mapped);
        core.regions.pairs.known(connection, remote)
    }

    /// Writes bytes, 1 MiB at most, to a peer's region that is mapped, as [`Endpoint::write_at_once`] does. It finds any number of regions, where
    /// [`Endpoint::write_at_once`] finds only the few that it remembers.
    // Not one function with that one: short operations took 8 % more instructions.
    #[inline(never)]
    pub fn write_long_at_once(
        &mut self,
        connection: Connection,
        bytes: &[u8],
        target: RegionAddress,
    ) -> bool {
        let remote = remote_address(target);
        self.long_at_once(RmaKind::Write, connection, remote, bytes.len(), |mapped| {
            mapped.put(bytes, remote.offset)
        })
    }

    /// Copies 1 MiB at most between local memory and a peer's region that is mapped, as [`Endpoint::copy_at_once`] does, and looks for the region as
    /// [`Endpoint::write_long_at_once`] does.
    #[inline(never)]
    pub fn copy_long_at_once(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        (local, local_offset): (&Memory, usize),
        target: RegionAddress,
        len_bytes: usize,
    ) -> bool {
        let remote = remote_address(target);
        local.is_own_process()
            && self.long_at_once(kind, connection, remote, len_bytes, |mapped| {
                mapped.copy_block(kind, (&local.bytes(), local_offset), remote.offset, len_bytes)
            })
    }

    /// Does an operation on a peer's region that is mapped. False: the operation returned that, or nothing was done.
    fn long_at_once(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        remote: RemoteAddress,
        len_bytes: usize,
        operation: impl FnOnce(&MappedRegion) -> bool,
    ) -> bool {
        if !self.may_be_mapped(connection, RmaFlags::SILENT) {
            return false;
        }
        let known = self.core.regions.pairs.known(connection, remote);
        let is_done = if let Some(known) = known.or_else(|| self.look_for(connection, remote)) {
            self.core.regions.pairs.mapped(known).is_some_and(operation)
        } else {
            let Endpoint { core, transport, .. } = self;
            let Some(link) = core.conn(connection).map(|conn| conn.link) else { return false };
            // What this finds keeps the memory mapped by itself, which takes several atomic additions behind the stores of the copy.
            let mapped = transport.mapped(link, remote.region, remote.key);
            mapped.is_some_and(|mapped| operation(&mapped))
        };
        let core = &mut self.core;
        if is_done {
            core.regions.pairs.done += 1;
            core.counters.count_rma(kind, len_bytes as u64);
        }
        is_done
    }

    /// Whether an operation may be done without the transport, as far as it is for the connection to say: nothing has to come
    /// before its completion, if it has one, or before the operation itself.
    #[inline(always)]
    pub(super) fn may_be_mapped(&self, connection: Connection, flags: RmaFlags) -> bool {
        if !self.is_ours() || flags.contains(RmaFlags::FENCE) || !self.core.order.is_empty() {
            return false;
        }
        let Some(conn) = self.core.conn(connection) else { return false };
        conn.state == ConnState::Open
            && (flags.contains(RmaFlags::SILENT)
                || self.would_complete(connection, conn.link, conn.attribute))
    }

    /// Whether the completion of an operation that is done at once would be the next one of its connection, and has space.
    #[inline(never)]
    fn would_complete(&self, connection: Connection, link: u64, attribute: Attribute) -> bool {
        let follows = || self.core.waiting.is_empty() && self.transport.unreported(link) == Some(0);
        self.core.has_operation_quota(connection, false)
            && (attribute != Attribute::ReliableOrdered || follows())
    }

    /// Raises the completion of an operation that was done without the transport.
    #[inline(never)]
    pub(super) fn ended_mapped(&mut self, connection: Connection, op: SendOp, status: Status) {
        self.core.raise_completion(connection, op, status);
        self.touched();
    }

    /// Remembers the two regions of an operation that was done at once, so that the next one between them is a plain copy.
    pub(super) fn learn(&mut self, connection: Connection, link: u64, action: &Action<'_>) {
        let (local, remote) = match *action {
            Action::Transfer(RmaRequest { segments: &[segment], message: None, .. }) => {
                (Some(segment.local), segment.remote)
            }
            Action::Atomic(AtomicRequest { target, result, .. }) => (result, target),
            Action::Transfer(_) => return,
        };
        let Endpoint { core, transport, .. } = self;
        if !core.regions.pairs.wants(connection, local, remote) {
            return;
        }
        let Some(mapped) = transport.mapped(link, remote.region, remote.key) else { return };
        let regions = &mut core.regions;
        let local = local.and_then(|at| regions.whole(at).map(|(bytes, is_target)| (at, bytes, is_target)));
        regions.pairs.insert(connection, local, remote, mapped);
    }
}
