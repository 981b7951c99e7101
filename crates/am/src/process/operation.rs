//! One operation on memory of a rank.

use super::links::Links;
use super::registered::{Registered, address, find};
use super::results::{Results, Slot};
use crate::error::{AmError, Result};
use crate::wire::Range;
use cci::{
    Access, Atomic, AtomicRefusal, Connection, Memory, RegionAddress, RegionHandle, RmaError, RmaFlags,
};
use cci_job::JobError;

/// Bytes that are copied at once within a process.
const COPY_BYTES: usize = 64 << 10;

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

/// What an operation does.
pub(crate) enum Action {
    /// Copies to or from local memory.
    Transfer(Transfer, Part),
    /// Changes a word. What it was goes to the slot.
    Atomic(Atomic, Slot),
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
            Action::Atomic(_, slot) => results.value(slot),
            Action::Transfer(..) => 0,
        }
    }

    /// Does it on memory of this process itself.
    pub fn run_here(&self, registered: &[Registered]) -> Result<u64> {
        let Operation { rank, remote, .. } = self;
        let inside = |one: &Registered| Some((one.memory.clone(), one.region.offset(*remote)? as usize));
        let found = registered.iter().find_map(inside);
        let (there, at) = found.ok_or(AmError::NotRegistered { rank: *rank, address: remote.start })?;
        match &self.action {
            Action::Transfer(transfer, local) => copy(*transfer, (&there, at), local).map(|()| 0),
            Action::Atomic(atomic, _) => there.atomic(at, *atomic).map_err(|refusal| match refusal {
                AtomicRefusal::OutOfRange => AmError::NotRegistered { rank: *rank, address: remote.start },
                _ => AmError::Argument("the address of an atomic operation is a multiple of its width"),
            }),
        }
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
    let started = match &operation.action {
        Action::Transfer(transfer, local) => {
            let at = local_address(links, registered, local, &mut operation.made)?;
            let (len, endpoint) = (local.len_bytes as u64, links.endpoint());
            match transfer {
                Transfer::Put => endpoint.rma_write(connection, at, target, len, id, RmaFlags::NONE),
                Transfer::Get => endpoint.rma_read(connection, at, target, len, id, RmaFlags::NONE),
            }
        }
        Action::Atomic(atomic, slot) => {
            let result = results.address(*slot);
            links.endpoint().atomic(connection, *atomic, target, result, id, RmaFlags::NONE)
        }
    };
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
