//! Remote memory access: starting operations.

use super::Endpoint;
use crate::connection::{Connection, Status};
use crate::engine::core::{ConnState, OperationOp, SendOp};
use crate::error::RmaError;
use crate::limits;
use crate::options::Attribute;
use crate::rma::{RegionAddress, Rma, RmaFlags, Segment};
use crate::transport::{Action, AtomicRequest, Operation, RmaRequest, Started};
use cci_proto::{Atomic, RemoteAddress, RmaKind, RmaSegment};
use cci_sys::clock;

impl Endpoint {
    /// Writes `len_bytes` of local memory to a peer's. The operation ends in exactly one [`Event::Send`](crate::Event::Send) with
    /// `context`, when all of it has been written. The local memory must not change until then.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    #[inline]
    pub fn rma_write(
        &mut self,
        connection: Connection,
        from: RegionAddress,
        to: RegionAddress,
        len_bytes: u64,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), RmaError> {
        self.rma_simple(RmaKind::Write, connection, &from, &to, len_bytes, context, flags)
    }

    /// Reads `len_bytes` of a peer's memory into local memory. The operation ends in exactly one [`Event::Send`](crate::Event::Send)
    /// with `context`, when all of it has arrived. The local memory must not be used until then.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    #[inline]
    pub fn rma_read(
        &mut self,
        connection: Connection,
        into: RegionAddress,
        from: RegionAddress,
        len_bytes: u64,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), RmaError> {
        self.rma_simple(RmaKind::Read, connection, &into, &from, len_bytes, context, flags)
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "what a read and a write have in common")]
    fn rma_simple(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        local: &RegionAddress,
        remote: &RegionAddress,
        len_bytes: u64,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), RmaError> {
        if self.copy_mapped(kind, connection, local, remote, len_bytes, flags) {
            if !flags.contains(RmaFlags::SILENT) {
                self.ended_mapped(connection, SendOp { context, silent: false }, Status::Success);
            }
            return Ok(());
        }
        self.rma_segment(kind, connection, *local, *remote, len_bytes, context, flags)
    }

    #[expect(clippy::too_many_arguments, reason = "what a read and a write have in common")]
    #[inline(never)]
    fn rma_segment(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        local: RegionAddress,
        remote: RegionAddress,
        len_bytes: u64,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), RmaError> {
        self.check_operation_quota(connection, flags)?;
        let (link, _, is_ordered) = self.rma_link(connection, flags)?;
        let op = OperationOp { context, silent: flags.contains(RmaFlags::SILENT), is_ordered };
        if len_bytes == 0 || remote.offset.checked_add(len_bytes).is_none() {
            return Err(RmaError::Lengths);
        }
        let segment = RmaSegment { local: remote_address(local), remote: remote_address(remote), len_bytes };
        self.check_local(segment.local, len_bytes, kind == RmaKind::Read)?;
        if is_beyond(remote, len_bytes) {
            self.refused_at_once::<false>(connection, link, op);
        } else {
            let fence = flags.contains(RmaFlags::FENCE);
            let request = RmaRequest { kind, segments: &[segment], message: None, fence };
            self.begin::<false>(connection, link, Operation { action: Action::Transfer(request), op })?;
        }
        self.core.counters.count_rma(kind, len_bytes);
        Ok(())
    }

    /// Starts a read or write of any shape, on a reliable connection (CCI-054). Unless it is silent, it ends in exactly one
    /// [`Event::Send`](crate::Event::Send) with its context: with [`Status::Success`] when it is complete at the target, or with
    /// [`Status::RmaHandle`] if the target refused a handle, a range or a right. An access that was refused has touched nothing. On a
    /// reliable ordered connection, completions come in the order in which operations and messages were started; the data itself may
    /// arrive in any order (CCI-062).
    ///
    /// # Errors
    /// After any [`RmaError`], nothing was started and no event will come. After `WouldBlock`, get events and try again.
    pub fn rma(&mut self, connection: Connection, rma: &Rma<'_>) -> Result<(), RmaError> {
        if let (&[local], &[remote], None) = (rma.local, rma.remote, rma.message)
            && local.len_bytes == remote.len_bytes
        {
            let Rma { kind, context, flags, .. } = *rma;
            let (local, remote, len_bytes) = (&local.address, &remote.address, local.len_bytes);
            return self.rma_simple(kind, connection, local, remote, len_bytes, context, flags);
        }
        self.check_operation_quota(connection, rma.flags)?;
        self.start_rma(connection, rma)
    }

    /// Does what [`Endpoint::rma`] does, and waits for the completion. Returns how the operation ended, and raises no event. If there is no
    /// space for the operation, this waits for space for up to the connection's send timeout.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    pub fn rma_blocking(&mut self, connection: Connection, rma: &Rma<'_>) -> Result<Status, RmaError> {
        let context =
            self.start_when_possible(connection, |endpoint| endpoint.try_start_rma(connection, rma))?;
        Ok(self.wait_for_blocking(context))
    }

    /// Changes 4 or 8 bytes of a peer's memory atomically, exactly once. It is atomic with regard to all other such operations, and over
    /// shared memory also with regard to the target's own CPU (CCS-062). If there is a `result`, the value from before is written to that
    /// address: always 8 bytes in the machine's byte order, with zeros above a 4-byte value. The target must be aligned to its width;
    /// otherwise the operation ends with [`Status::RmaOperation`]. In all else it does what [`Endpoint::rma`] does.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    pub fn atomic(
        &mut self,
        connection: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), RmaError> {
        if self.may_be_mapped(connection, flags) && !is_beyond(target, atomic.width.bytes() as u64) {
            let (at, result) = (remote_address(target), result.map(remote_address));
            if let Some(status) = self.core.regions.pairs.atomic(connection, atomic, at, result) {
                self.core.counters.atomics += 1;
                let op = SendOp { context, silent: flags.contains(RmaFlags::SILENT) };
                self.ended_mapped(connection, op, status);
                return Ok(());
            }
        }
        self.check_operation_quota(connection, flags)?;
        self.start_atomic::<false>(connection, atomic, target, result, context, flags).map(|_| ())
    }

    /// Does what [`Endpoint::atomic`] does, and waits for the completion. Returns how the operation ended, and raises no event.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    pub fn atomic_blocking(
        &mut self,
        connection: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        flags: RmaFlags,
    ) -> Result<Status, RmaError> {
        let context = self.start_when_possible(connection, |endpoint| {
            endpoint.try_start_atomic(connection, atomic, target, result, flags)
        })?;
        Ok(self.wait_for_blocking(context))
    }

    fn check_operation_quota(&self, connection: Connection, flags: RmaFlags) -> Result<(), RmaError> {
        let has = self.core.has_operation_quota(connection, flags.contains(RmaFlags::SILENT));
        has.then_some(()).ok_or(RmaError::WouldBlock)
    }

    fn start_when_possible(
        &mut self,
        connection: Connection,
        mut start: impl FnMut(&mut Endpoint) -> Result<u64, RmaError>,
    ) -> Result<u64, RmaError> {
        let until_ns = self.space_until_ns(connection);
        loop {
            match start(self) {
                Err(RmaError::WouldBlock) if clock::now_ns() < until_ns => self.pause_for_space(),
                other => return other,
            }
        }
    }

    pub(crate) fn try_start_rma(&mut self, connection: Connection, rma: &Rma<'_>) -> Result<u64, RmaError> {
        let context = self.next_blocking();
        let rma = Rma { context, flags: without_silent(rma.flags), ..*rma };
        let started = self.start_rma(connection, &rma);
        self.blocking_started(context, started)
    }

    pub(crate) fn try_start_atomic(
        &mut self,
        connection: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        flags: RmaFlags,
    ) -> Result<u64, RmaError> {
        let context = self.next_blocking();
        let flags = without_silent(flags);
        let started =
            self.start_atomic::<false>(connection, atomic, target, result, context, flags).map(|_| ());
        self.blocking_started(context, started)
    }

    fn blocking_started(&mut self, context: u64, started: Result<(), RmaError>) -> Result<u64, RmaError> {
        if started.is_err() {
            self.core.caught.stop_blocking(context);
        }
        started.map(|()| context)
    }

    /// Starts an operation as [`Endpoint::rma`] does. If all of it is done at once, as over memory that is mapped, returns how it ended; no
    /// event will come then.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    pub fn rma_at_once(&mut self, connection: Connection, rma: &Rma<'_>) -> Result<Option<Status>, RmaError> {
        if let (&[local], &[remote], None) = (rma.local, rma.remote, rma.message)
            && local.len_bytes == remote.len_bytes
            && self.copy_mapped(
                rma.kind,
                connection,
                &local.address,
                &remote.address,
                local.len_bytes,
                rma.flags | RmaFlags::SILENT,
            )
        {
            return Ok(Some(Status::Success));
        }
        self.check_operation_quota(connection, rma.flags)?;
        self.start_transfer::<true>(connection, rma)
    }

    /// Starts an operation as [`Endpoint::atomic`] does. If it is done at once, returns how it ended; no event will come then.
    ///
    /// # Errors
    /// Those of [`Endpoint::rma`].
    pub fn atomic_at_once(
        &mut self,
        connection: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<Option<Status>, RmaError> {
        // The end is returned: no completion has to take its turn.
        if self.may_be_mapped(connection, flags | RmaFlags::SILENT)
            && !is_beyond(target, atomic.width.bytes() as u64)
        {
            let (at, result) = (remote_address(target), result.map(remote_address));
            if let Some(status) = self.core.regions.pairs.atomic(connection, atomic, at, result) {
                self.core.counters.atomics += 1;
                return Ok(Some(status));
            }
        }
        self.check_operation_quota(connection, flags)?;
        self.start_atomic::<true>(connection, atomic, target, result, context, flags)
    }

    fn start_rma(&mut self, connection: Connection, rma: &Rma<'_>) -> Result<(), RmaError> {
        self.start_transfer::<false>(connection, rma).map(|_| ())
    }

    /// Starts a transfer. If it has ended, returns how for those that want to know `AT_ONCE`; others get an event.
    #[inline(always)]
    fn start_transfer<const AT_ONCE: bool>(
        &mut self,
        connection: Connection,
        rma: &Rma<'_>,
    ) -> Result<Option<Status>, RmaError> {
        let (link, mss, is_ordered) = self.rma_link(connection, rma.flags)?;
        let op =
            OperationOp { context: rma.context, silent: rma.flags.contains(RmaFlags::SILENT), is_ordered };
        if let Some(message) = rma.message
            && message.len() > mss as usize
        {
            return Err(RmaError::TooLong { len_bytes: message.len(), max_bytes: mss });
        }
        let mut segments = std::mem::take(&mut self.rma_segments);
        let started = self.match_segments(rma, &mut segments).and_then(|()| {
            if rma.remote.iter().any(|segment| is_beyond(segment.address, segment.len_bytes)) {
                return Ok(self.refused_at_once::<AT_ONCE>(connection, link, op));
            }
            let fence = rma.flags.contains(RmaFlags::FENCE);
            let request = RmaRequest { kind: rma.kind, segments: &segments, message: rma.message, fence };
            self.begin::<AT_ONCE>(connection, link, Operation { action: Action::Transfer(request), op })
        });
        if started.is_ok() {
            let len_bytes: u64 = segments.iter().map(|segment| segment.len_bytes).sum();
            self.core.counters.count_rma(rma.kind, len_bytes);
        }
        segments.clear();
        self.rma_segments = segments;
        started
    }

    /// Starts an atomic operation. If it has ended, returns how for those that want to know `AT_ONCE`; others get an event.
    #[inline(always)]
    fn start_atomic<const AT_ONCE: bool>(
        &mut self,
        connection: Connection,
        atomic: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<Option<Status>, RmaError> {
        let (link, _, is_ordered) = self.rma_link(connection, flags)?;
        let op = OperationOp { context, silent: flags.contains(RmaFlags::SILENT), is_ordered };
        let result = result.map(remote_address);
        if let Some(result) = result {
            self.check_local(result, 8, true)?;
        }
        // Reads and writes are checked for such an overflow while they are split into segments.
        if target.offset.checked_add(atomic.width.bytes() as u64).is_none() {
            return Err(RmaError::Lengths);
        }
        if is_beyond(target, atomic.width.bytes() as u64) {
            let refused = self.refused_at_once::<AT_ONCE>(connection, link, op);
            self.core.counters.atomics += 1;
            return Ok(refused);
        }
        let fence = flags.contains(RmaFlags::FENCE);
        let request = AtomicRequest { atomic, target: remote_address(target), result, fence };
        let operation = Operation { action: Action::Atomic(request), op };
        let ended = self.begin::<AT_ONCE>(connection, link, operation)?;
        self.core.counters.atomics += 1;
        Ok(ended)
    }

    /// Ends an operation that reaches beyond its region, by the length that the handle itself gives. The target would refuse it, too,
    /// but perhaps only after the part that is within the region has been written.
    #[cold]
    fn refused_at_once<const AT_ONCE: bool>(
        &mut self,
        connection: Connection,
        link: u64,
        op: OperationOp,
    ) -> Option<Status> {
        let status = Status::RmaHandle;
        if !AT_ONCE {
            let sends = self.transport.unreported(link).unwrap_or(0);
            self.core.end_unentered(connection, op, status, sends);
        }
        self.touched();
        AT_ONCE.then_some(status)
    }

    /// Returns the link of a connection that is open and reliable, its MSS, and whether it is ordered. Reserves what an operation needs to
    /// wait for its turn. A fenced operation has to come after the sends that still wait for space, so it has to be tried again later.
    fn rma_link(&mut self, connection: Connection, flags: RmaFlags) -> Result<(u64, u32, bool), RmaError> {
        if !self.is_ours() {
            return Err(RmaError::OtherProcess);
        }
        let Some(conn) = self.core.conn(connection) else { return Err(RmaError::UnknownConnection) };
        match conn.state {
            ConnState::Open => {}
            ConnState::Connecting | ConnState::Accepting => return Err(RmaError::UnknownConnection),
            _ => return Err(RmaError::Disconnected),
        }
        if !conn.attribute.is_reliable() {
            return Err(RmaError::Unreliable);
        }
        let is_ordered = conn.attribute == Attribute::ReliableOrdered;
        let (link, mss) = (conn.link, conn.mss());
        if !self.core.order.reserve_operation()
            || flags.contains(RmaFlags::FENCE) && self.core.waiting.holds(connection)
        {
            return Err(RmaError::WouldBlock);
        }
        Ok((link, mss, is_ordered))
    }

    /// Has the transport start an operation. If it has ended, returns how for those that want to know `AT_ONCE`; others get an event.
    #[inline(always)]
    fn begin<const AT_ONCE: bool>(
        &mut self,
        connection: Connection,
        link: u64,
        operation: Operation<'_>,
    ) -> Result<Option<Status>, RmaError> {
        let started = self.transport.start(&mut self.core, connection, link, &operation)?;
        let mut ended = None;
        if let Started::Done { status, sends } = started {
            if status == Status::Success {
                self.learn(connection, link, &operation.action);
            }
            if AT_ONCE {
                ended = Some(status);
            } else if !operation.op.ends_unseen(status) {
                self.core.end_unentered(connection, operation.op, status, sends);
            }
        }
        self.touched();
        Ok(ended)
    }

    /// Splits an operation into runs that are contiguous on both sides.
    fn match_segments(&mut self, rma: &Rma<'_>, into: &mut Vec<RmaSegment>) -> Result<(), RmaError> {
        let Rma { kind, local, remote, .. } = *rma;
        let sum = |segments: &[Segment]| {
            segments.iter().try_fold(0_u64, |sum, segment| sum.checked_add(segment.len_bytes))
        };
        let (local_bytes, remote_bytes) = (sum(local), sum(remote));
        if local_bytes != remote_bytes || matches!(local_bytes, None | Some(0)) {
            return Err(RmaError::Lengths);
        }
        for segment in local {
            self.check_local(remote_address(segment.address), segment.len_bytes, kind == RmaKind::Read)?;
        }
        let mut locals = local.iter().filter(|segment| segment.len_bytes > 0).copied();
        let mut remotes = remote.iter().filter(|segment| segment.len_bytes > 0).copied();
        let (mut local_segment, mut remote_segment) = (locals.next(), remotes.next());
        while let (Some(l), Some(r)) = (local_segment.as_mut(), remote_segment.as_mut()) {
            let len_bytes = l.len_bytes.min(r.len_bytes);
            if into.len() == limits::RMA_SEGMENTS_MAX {
                return Err(RmaError::TooManySegments { max: limits::RMA_SEGMENTS_MAX });
            }
            into.push(RmaSegment {
                local: remote_address(l.address),
                remote: remote_address(r.address),
                len_bytes,
            });
            for segment in [&mut *l, &mut *r] {
                segment.len_bytes -= len_bytes;
                let offset = segment.address.offset.checked_add(len_bytes);
                segment.address.offset = offset.ok_or(RmaError::Lengths)?;
            }
            if l.len_bytes == 0 {
                local_segment = locals.next();
            }
            if r.len_bytes == 0 {
                remote_segment = remotes.next();
            }
        }
        Ok(())
    }
}

fn without_silent(flags: RmaFlags) -> RmaFlags {
    if flags.contains(RmaFlags::FENCE) { RmaFlags::FENCE } else { RmaFlags::NONE }
}

/// Whether the range reaches beyond the region, by the length that the handle gives.
pub(super) fn is_beyond(address: RegionAddress, len_bytes: u64) -> bool {
    address.offset.checked_add(len_bytes).is_none_or(|end| end > address.handle.len_bytes())
}

pub(super) fn remote_address(address: RegionAddress) -> RemoteAddress {
    RemoteAddress { region: address.handle.region(), key: address.handle.key(), offset: address.offset }
}
