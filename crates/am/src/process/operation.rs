//! One operation on memory of a rank.

use super::links::Links;
use super::registered::{Registered, address, find};
use super::results::{Results, Slot};
use crate::arithmetic::Change;
use crate::description::{Description, Piece};
use crate::error::{AmError, Result};
use crate::wire::Range;
use cci::{
    Access, Atomic, AtomicRefusal, Connection, Memory, RegionAddress, RegionHandle, Rma, RmaError, RmaFlags,
    RmaKind, Segment,
};
use cci_job::JobError;

/// Bytes that are copied at once within a process.
const COPY_BYTES: usize = 64 << 10;

/// Most pieces on each side that one operation of the core takes.
const PIECES_MAX: usize = 256;
const _: () = assert!(2 * PIECES_MAX <= cci::limits::RMA_SEGMENTS_MAX);

/// Which of two sides a transfer copies to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Writes to the remote memory.
    Put,
    /// Reads from it.
    Get,
}

/// A part of memory of this process.
#[derive(Clone, Debug)]
pub struct Part {
    /// The memory, which stays as long as the operation goes on.
    pub memory: Memory,
    /// Bytes from its beginning.
    pub offset: usize,
    /// How many bytes.
    pub len_bytes: usize,
}

/// Described data: `count` elements, the first of which has its origin at `origin`.
#[derive(Clone, Debug)]
pub struct Elements {
    /// How many elements.
    pub count: usize,
    /// What each is.
    pub description: Description,
}

/// A transfer between described data on both sides.
pub(crate) struct Described {
    pub transfer: Transfer,
    pub local: Memory,
    /// Bytes from the beginning of the local memory to the origin of its first element.
    pub origin: isize,
    pub here: Elements,
    /// Where the first remote element has its origin.
    pub remote_origin: u64,
    pub there: Elements,
    pub packed_bytes: usize,
    /// So many of these are done, and so many under way.
    pub done_bytes: usize,
    pub started_bytes: usize,
}

/// What an operation does.
pub(crate) enum Action {
    /// Copies between many pieces, some at a time.
    Described(Box<Described>),
    /// Copies to or from local memory.
    Transfer(Transfer, Part),
    /// Changes a word, by what is asked of the core next. What the word was goes to the slot.
    Atomic(Change, Atomic, Slot),
}

pub(crate) struct Operation {
    pub rank: u32,
    pub action: Action,
    pub remote: Range,
    /// The region that was made of the local memory for this operation.
    pub made: Option<RegionHandle>,
    pub has_asked_again: bool,
    pub cookie: u64,
}

impl Operation {
    /// The value that an atomic operation has found; 0 of others.
    pub fn found(&self, results: &Results) -> u64 {
        match self.action {
            Action::Atomic(.., slot) => results.value(slot),
            Action::Transfer(..) | Action::Described(_) => 0,
        }
    }

    /// What was started of it has ended well. Returns whether there is more of it.
    pub fn goes_on(&mut self, results: &Results) -> bool {
        match &mut self.action {
            Action::Transfer(..) => false,
            Action::Described(described) => {
                described.done_bytes += std::mem::take(&mut described.started_bytes);
                described.done_bytes < described.packed_bytes
            }
            Action::Atomic(change, attempt, slot) => {
                let found = results.value(*slot);
                let has_failed = change.has_failed(attempt, found);
                if has_failed {
                    *attempt = change.attempt(found);
                }
                has_failed
            }
        }
    }

    /// Does it on memory of this process itself.
    pub fn run_here(&mut self, registered: &[Registered]) -> Result<u64> {
        let Operation { rank, remote, action, .. } = self;
        let inside = |one: &Registered| Some((one.memory.clone(), one.region.offset(*remote)? as usize));
        let found = registered.iter().find_map(inside);
        let (there, at) = found.ok_or(AmError::NotRegistered { rank: *rank, address: remote.start })?;
        match action {
            Action::Described(described) => described.run_here(&there, at as isize, remote.start).map(|()| 0),
            Action::Transfer(transfer, local) => copy(*transfer, (&there, at), local).map(|()| 0),
            Action::Atomic(change, attempt, _) => loop {
                let found = there.atomic(at, *attempt).map_err(|refusal| match refusal {
                    AtomicRefusal::OutOfRange => {
                        AmError::NotRegistered { rank: *rank, address: remote.start }
                    }
                    _ => AmError::Argument("the address of an atomic operation is a multiple of its width"),
                })?;
                if !change.has_failed(attempt, found) {
                    return Ok(found);
                }
                *attempt = change.attempt(found);
            },
        }
    }
}

impl Described {
    /// The first byte that is used of the local memory, and how many there are up to the last one. They were checked to be inside.
    fn first_local(&self) -> usize {
        let span = self.here.description.span(self.here.count).unwrap_or(0..0);
        usize::try_from(self.origin.saturating_add(span.start)).unwrap_or_default()
    }

    fn local_bytes(&self) -> usize {
        self.here.description.span(self.here.count).map_or(0, |span| span.len())
    }

    /// The next pieces on both sides: equally many bytes.
    fn next_pieces(&self) -> (Vec<Piece>, Vec<Piece>, usize) {
        let take = |elements: &Elements, len_bytes: usize| {
            let mut pieces = Vec::new();
            let Elements { count, description } = elements;
            let bytes = description.pieces(*count, self.done_bytes, len_bytes, PIECES_MAX, &mut pieces);
            (pieces, bytes)
        };
        let (_, here) = take(&self.here, usize::MAX);
        let (there, bytes) = take(&self.there, here);
        let (here, bytes) = take(&self.here, bytes);
        (here, there, bytes)
    }

    /// Starts with the next pieces. `local` and `target` are where the first used bytes of both sides are in their regions.
    fn start_next(
        &mut self,
        links: &mut Links,
        connection: Connection,
        (local, first): (RegionAddress, usize),
        (target, start): (RegionAddress, u64),
        id: u64,
    ) -> Result<()> {
        let (here, there, bytes) = self.next_pieces();
        let segment = |base: RegionAddress, from_base: isize, piece: &Piece| {
            let offset = base.offset.wrapping_add_signed((from_base.wrapping_add(piece.at)) as i64);
            Segment::new(base.handle, offset, piece.len_bytes as u64)
        };
        let from_first = self.origin.wrapping_sub_unsigned(first);
        let here: Vec<Segment> = here.iter().map(|piece| segment(local, from_first, piece)).collect();
        let from_start = self.remote_origin.wrapping_sub(start).cast_signed() as isize;
        let there: Vec<Segment> = there.iter().map(|piece| segment(target, from_start, piece)).collect();
        let kind = match self.transfer {
            Transfer::Put => RmaKind::Write,
            Transfer::Get => RmaKind::Read,
        };
        let rma =
            Rma { kind, local: &here, remote: &there, message: None, context: id, flags: RmaFlags::NONE };
        outcome(links.endpoint().rma(connection, &rma))?;
        self.started_bytes = bytes;
        Ok(())
    }

    /// Does all of it on memory of this process, in which the remote address `start` is at `at`.
    fn run_here(&mut self, memory: &Memory, at: isize, start: u64) -> Result<()> {
        let origin = at.wrapping_add(self.remote_origin.wrapping_sub(start).cast_signed() as isize);
        while self.done_bytes < self.packed_bytes {
            let (here, there, bytes) = self.next_pieces();
            let mut packed = Vec::with_capacity(bytes);
            let (from, from_origin, from_pieces, to, to_origin, to_pieces) = match self.transfer {
                Transfer::Put => (&self.local, self.origin, &here, memory, origin, &there),
                Transfer::Get => (memory, origin, &there, &self.local, self.origin, &here),
            };
            let outside = || AmError::Range("described bytes are outside of their memory");
            for piece in from_pieces {
                let at = usize::try_from(from_origin.wrapping_add(piece.at)).map_err(|_| outside())?;
                let end = packed.len();
                packed.resize(end + piece.len_bytes, 0);
                let is_inside = packed.get_mut(end..).is_some_and(|bytes| from.read(at, bytes));
                is_inside.then_some(()).ok_or_else(outside)?;
            }
            let mut rest = &packed[..];
            for piece in to_pieces {
                let at = usize::try_from(to_origin.wrapping_add(piece.at)).map_err(|_| outside())?;
                let bytes = rest.split_off(..piece.len_bytes).ok_or_else(outside)?;
                to.write(at, bytes).then_some(()).ok_or_else(outside)?;
            }
            self.done_bytes += bytes;
        }
        Ok(())
    }
}

/// Hands an operation to the endpoint. The local memory is registered for it, unless it is already.
pub(crate) fn start(
    links: &mut Links,
    registered: &[Registered],
    results: &Results,
    connection: Connection,
    operation: &mut Operation,
    target: RegionAddress,
    id: u64,
) -> Result<()> {
    let started = match &mut operation.action {
        Action::Described(described) => {
            let first = described.first_local();
            let part =
                Part { memory: described.local.clone(), offset: first, len_bytes: described.local_bytes() };
            let local = local_address(links, registered, &part, &mut operation.made)?;
            return described.start_next(
                links,
                connection,
                (local, first),
                (target, operation.remote.start),
                id,
            );
        }
        Action::Transfer(transfer, local) => {
            let at = local_address(links, registered, local, &mut operation.made)?;
            let (len, endpoint) = (local.len_bytes as u64, links.endpoint());
            match transfer {
                Transfer::Put => endpoint.rma_write(connection, at, target, len, id, RmaFlags::NONE),
                Transfer::Get => endpoint.rma_read(connection, at, target, len, id, RmaFlags::NONE),
            }
        }
        Action::Atomic(_, atomic, slot) => {
            let result = results.address(*slot);
            links.endpoint().atomic(connection, *atomic, target, result, id, RmaFlags::NONE)
        }
    };
    outcome(started)
}

fn outcome(started: Result<(), RmaError>) -> Result<()> {
    match started {
        Ok(()) => Ok(()),
        // The end of a connection is told by an event, after which the operation ends.
        Err(RmaError::WouldBlock | RmaError::Disconnected) => Err(AmError::Again),
        Err(RmaError::LocalHandle) => Err(AmError::Argument("the local memory is not writable")),
        Err(error) => {
            Err(JobError::Endpoint { what: "a remote operation".into(), error: Box::new(error) }.into())
        }
    }
}

fn local_address(
    links: &mut Links,
    registered: &[Registered],
    local: &Part,
    made: &mut Option<RegionHandle>,
) -> Result<RegionAddress> {
    let Part { memory, offset, len_bytes } = local;
    let range = Range { start: address(memory) + *offset as u64, len_bytes: *len_bytes as u64 };
    if let Some(region) = find(registered, range) {
        return Ok(RegionAddress::new(region.handle, region.offset(range).unwrap_or_default()));
    }
    let handle = match *made {
        Some(made) => made,
        None => *made.insert(links.endpoint().register(memory, Access::LOCAL)?),
    };
    Ok(RegionAddress::new(handle, *offset as u64))
}

/// Copies between memory of this process.
fn copy(transfer: Transfer, (there, at): (&Memory, usize), local: &Part) -> Result<()> {
    let mut buffer = vec![0; local.len_bytes.min(COPY_BYTES)];
    for done in (0..local.len_bytes).step_by(COPY_BYTES) {
        let some = buffer.len().min(local.len_bytes - done);
        let bytes = buffer.get_mut(..some).unwrap_or_default();
        let (from, from_at, to, to_at) = match transfer {
            Transfer::Put => (&local.memory, local.offset, there, at),
            Transfer::Get => (there, at, &local.memory, local.offset),
        };
        if !from.read(from_at + done, bytes) || !to.write(to_at + done, bytes) {
            return Err(AmError::Range("the local part ends behind its memory"));
        }
    }
    Ok(())
}
