//! This process's side of operations.

use super::descriptions::{Data, Described};
use super::live::Live;
use super::operations::Ending;
use super::status::{Code, Result};
use cci::{Foreign, Memory};
use cci_am::description::{Description, Readable};
use cci_am::limits::OPERATIONS_MAX;
use cci_am::process::Transfer;
use cci_am::{Elements, Part};
use std::ptr::NonNull;

/// Memory of the program's.
///
/// # Safety
/// It stays mapped, and is used by atomics or not at all, as long as the value lives.
pub(super) unsafe fn foreign(start: NonNull<u8>, len_bytes: usize) -> Memory {
    // SAFETY: as the caller promises.
    Memory::foreign(unsafe { Foreign::new(start, len_bytes) })
}

/// Starts an operation, and keeps what is to be done at its end.
pub(super) fn start(
    live: &mut Live,
    ending: Ending,
    start: impl FnOnce(&mut Live, u64) -> Result<()>,
) -> Result<()> {
    let cookie = live.operations.insert(ending);
    start(live, cookie).inspect_err(|_| drop(live.operations.remove(cookie)))
}

/// Starts an operation that may end at once, with a value. Callbacks that wait are bounded, and so are messages that follow
/// operations: it is `AGAIN` where there are too many.
pub(super) fn start_or_end(
    live: &mut Live,
    ending: Ending,
    start: impl FnOnce(&mut Live, u64) -> Result<Option<u64>>,
) -> Result<()> {
    let has_too_many_following = ending.then.is_some() && live.following.count() >= OPERATIONS_MAX;
    if live.due.len() >= OPERATIONS_MAX || has_too_many_following {
        return Err(Code::AGAIN);
    }
    let cookie = live.operations.insert(ending);
    let started = start(live, cookie).inspect_err(|_| drop(live.operations.remove(cookie)))?;
    if let Some(value) = started {
        live.end(cookie, Ok(value));
    }
    Ok(())
}

/// This process's side of a transfer.
pub(super) enum Local {
    /// No bytes.
    Nothing,
    /// The memory that the data lie in, from their first byte on.
    InPlace(Memory),
    /// Data by addresses, which may lie far from each other: packed.
    Packed(Memory),
}

impl Local {
    /// # Safety
    /// What is described is mapped, and stays so as long as the value lives.
    pub unsafe fn new(transfer: Transfer, here: &Data) -> Result<Local> {
        let Some(place) = &here.place else { return Ok(Local::Nothing) };
        if !here.described.is_absolute {
            // SAFETY: as the caller promises.
            return Ok(Local::InPlace(unsafe { foreign(place.start, place.len_bytes) }));
        }
        let mut packed = vec![0; here.len_bytes];
        if transfer == Transfer::Put {
            // SAFETY: as the caller promises.
            let (bytes, origin) = unsafe { here.bytes() }.ok_or(Code::ARG)?;
            let Described { description, .. } = &here.described;
            description.pack(Readable::from(bytes), origin, here.count, 0, &mut packed)?;
        }
        Ok(Local::Packed(Memory::foreign(Foreign::owned(packed.into_boxed_slice()))))
    }

    /// The memory, where the origin of the first element is in it, and the elements. None: there are no bytes.
    pub fn elements(&self, here: &Data) -> Result<Option<(&Memory, isize, Elements)>> {
        Ok(match self {
            Local::Nothing => None,
            Local::InPlace(memory) => {
                Some((memory, here.place.as_ref().map_or(0, |place| place.origin), here.elements()))
            }
            Local::Packed(memory) => {
                let description = Description::bytes(here.len_bytes)?;
                Some((memory, 0, Elements { count: 1, description }))
            }
        })
    }

    /// Starts a transfer between this side and `there`.
    pub fn start(
        &self,
        live: &mut Live,
        transfer: Transfer,
        rank: u32,
        there: &Data,
        here: &Data,
        cookie: u64,
    ) -> Result<Option<u64>> {
        let remote = there.buffer.addr() as u64;
        let Some((memory, origin, elements)) = self.elements(here)? else {
            let nothing =
                Part { memory: Memory::foreign(Foreign::owned(Box::default())), offset: 0, len_bytes: 0 };
            return Ok(live.process.transfer(transfer, rank, remote, &nothing, cookie)?);
        };
        let is_row = |elements: &Elements| elements.description.is_contiguous(elements.count);
        let remote_elements = there.elements();
        if is_row(&elements) && is_row(&remote_elements) {
            let first = there.place.as_ref().map_or(remote, |place| place.start.addr().get() as u64);
            let part = Part { memory: memory.clone(), offset: 0, len_bytes: here.len_bytes };
            return Ok(live.process.transfer(transfer, rank, first, &part, cookie)?);
        }
        let (there, here) = ((remote, remote_elements), (memory, origin, elements));
        Ok(live.process.transfer_described(transfer, rank, there, here, cookie)?)
    }
}
