//! Memory in the Java process, and operations on that of peers.

use crate::agent::Line;
use crate::frame::{Reply, Request};
use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, RegionAddress, RegionHandle, Rma, RmaFlags, RmaKind, Segment,
};
use cci_testkit::conformance::{Grant, Refusal, Shared, Whose};
use std::sync::Arc;

/// Calls, as the agent counts them.
mod call {
    pub const ALLOCATE: u8 = 30;
    pub const LET_GO: u8 = 31;
    pub const READ: u8 = 32;
    pub const WRITE: u8 = 33;
    pub const OWN_ATOMIC: u8 = 34;
    pub const REGISTER: u8 = 35;
    pub const DEREGISTER: u8 = 36;
    pub const TRANSFER: u8 = 37;
    pub const ATOMIC: u8 = 38;
}

/// Memory that the Java program has.
#[derive(Clone)]
pub struct JavaMemory(Arc<Inner>);

struct Inner {
    line: Arc<Line>,
    number: u64,
    len_bytes: usize,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.line.end(Request::new(call::LET_GO).u64(self.number), |_| {});
    }
}

impl JavaMemory {
    pub fn new(line: &Arc<Line>, whose: Whose, len_bytes: usize) -> JavaMemory {
        let request = Request::new(call::ALLOCATE).bool(whose == Whose::Library).u64(len_bytes as u64);
        let number = line.do_it(request).u64();
        JavaMemory(Arc::new(Inner { line: line.clone(), number, len_bytes }))
    }

    pub fn register(&self, line: &Line, grant: &Grant<u64>) -> Result<RegionHandle, Refusal> {
        let rights = [Access::READ, Access::WRITE, Access::ATOMIC];
        let bits = rights.iter().enumerate().filter(|(_, right)| grant.access.contains(**right));
        let request = Request::new(call::REGISTER)
            .u64(self.0.number)
            .u64(grant.range.start as u64)
            .u64(grant.range.len() as u64)
            .u8(bits.fold(0, |bits, (place, _)| bits | 1 << place))
            .u64(grant.only.unwrap_or(0));
        let mut reply = line.ask(request)?;
        Ok(RegionHandle::from_message(reply.bytes()).expect("32 bytes"))
    }
}

impl Shared for JavaMemory {
    fn len_bytes(&self) -> usize {
        self.0.len_bytes
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        let request = Request::new(call::READ).u64(self.0.number).u64(offset as u64).u64(out.len() as u64);
        out.copy_from_slice(self.0.line.do_it(request).bytes());
    }

    fn write(&self, offset: usize, data: &[u8]) {
        self.0.line.do_it(Request::new(call::WRITE).u64(self.0.number).u64(offset as u64).bytes(data));
    }

    fn own_atomic(&self, offset: usize, atomic: Atomic) -> u64 {
        let request = Request::new(call::OWN_ATOMIC).u64(self.0.number).u64(offset as u64);
        self.0.line.do_it(change(request, atomic)).u64()
    }
}

fn change(request: Request, atomic: Atomic) -> Request {
    let kind = match atomic.kind {
        AtomicKind::FetchAdd => 0,
        AtomicKind::Swap => 1,
        AtomicKind::CompareSwap => 2,
        AtomicKind::Add => 3,
        AtomicKind::And => 4,
        AtomicKind::Or => 5,
        AtomicKind::Xor => 6,
    };
    let width = match atomic.width {
        AtomicWidth::Four => 4,
        AtomicWidth::Eight => 8,
    };
    request.u8(kind).u8(width).u64(atomic.operand).u64(atomic.compare)
}

pub fn deregister(line: &Line, handle: &RegionHandle) -> Result<(), Refusal> {
    line.ask(Request::new(call::DEREGISTER).raw(&handle.to_bytes())).map(drop)
}

pub fn rma(line: &Line, to: u64, rma: &Rma<'_>, is_waited_for: bool) -> Result<Reply, Refusal> {
    let head = Request::new(call::TRANSFER)
        .bool(rma.kind == RmaKind::Write)
        .bool(is_waited_for)
        .bool(rma.flags.contains(RmaFlags::SILENT))
        .bool(rma.flags.contains(RmaFlags::FENCE))
        .u64(to)
        .u64(rma.context);
    let request = segments(segments(head, rma.local), rma.remote).bool(rma.message.is_some());
    line.ask(match rma.message {
        Some(message) => request.bytes(message),
        None => request,
    })
}

fn segments(request: Request, list: &[Segment]) -> Request {
    let count = u32::try_from(list.len()).expect("the suite's lists are short");
    list.iter().fold(request.u32(count), |request, segment| {
        let request = request.raw(&segment.address.handle.to_bytes());
        request.u64(segment.address.offset).u64(segment.len_bytes)
    })
}

pub fn atomic(
    line: &Line,
    to: u64,
    (atomic, target, result): (Atomic, RegionAddress, Option<RegionAddress>),
    (context, flags): (u64, RmaFlags),
    is_waited_for: bool,
) -> Result<Reply, Refusal> {
    let request = Request::new(call::ATOMIC)
        .bool(is_waited_for)
        .bool(flags.contains(RmaFlags::SILENT))
        .bool(flags.contains(RmaFlags::FENCE))
        .u64(to)
        .u64(context);
    // Without a result, the place of its handle is empty.
    let place = result.map_or((RegionHandle::from_bytes([0; RegionHandle::BYTES]), 0), |result| {
        (result.handle, result.offset)
    });
    let request = change(request, atomic).raw(&target.handle.to_bytes()).u64(target.offset);
    line.ask(request.bool(result.is_some()).raw(&place.0.to_bytes()).u64(place.1))
}
