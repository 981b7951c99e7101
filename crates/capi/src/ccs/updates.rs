//! Changes of memory that its process makes: accumulations and indexed puts.

use super::arithmetic;
use super::descriptions::Data;
use super::dispatch::until_space;
use super::live::lock;
use super::local::{Local, foreign, start};
use super::operations::{Callback, Ending, Outcome, Pointer};
use super::status::{Code, Result, call, place};
use super::types::*;
use cci::{Foreign, Memory};
use cci_am::Part;
use cci_am::process::Transfer;
use libc::{c_int, c_void};

fn rank_of(node: c_int) -> Result<u32> {
    u32::try_from(node).map_err(|_| Code::RANGE)
}

fn ending(callback: CCS_callback_t, arg: Pointer) -> Ending {
    Ending { callback: callback.map(Callback::Plain), arg, result: Outcome::Nothing, then: None }
}

/// Changes elements of a process's memory by as many of this one's.
///
/// # Safety
/// What is described of this process's memory stays as it is until the operation has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_accumulate(
    node: c_int,
    remote_buf: *mut c_void,
    remote_count: usize,
    remote_desc: CCS_datadesc_t,
    local_buf: *const c_void,
    local_count: usize,
    local_desc: CCS_datadesc_t,
    op: CCS_op_t,
    r#type: CCS_type_t,
    callback: CCS_callback_t,
    cb_arg: *mut c_void,
) -> c_int {
    call(|| {
        drop(lock()?);
        let what = (arithmetic::accumulation(op)?, arithmetic::number(r#type)?);
        let there = Data::new(remote_buf, remote_count, remote_desc)?;
        let here = Data::new(local_buf, local_count, local_desc)?;
        if there.len_bytes != here.len_bytes || !here.len_bytes.is_multiple_of(what.1.len_bytes()) {
            return Err(Code::ARG);
        }
        let (rank, arg) = (rank_of(node)?, Pointer(cb_arg));
        // SAFETY: as the caller promises.
        let local = unsafe { Local::new(Transfer::Put, &here) }?;
        let nothing = Memory::foreign(Foreign::owned(Box::default()));
        until_space(|live| {
            start(live, ending(callback, arg), |live, cookie| {
                let (memory, origin, elements) =
                    local.elements(&here)?.unwrap_or((&nothing, 0, here.elements()));
                let there = (there.buffer.addr() as u64, there.elements());
                Ok(live.process.accumulate(what, rank, there, (memory, origin, elements), cookie)?)
            })
        })
    })
}

/// Puts bytes to where a pointer of a process's points, and moves it on.
///
/// # Safety
/// The bytes stay as they are until the operation has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_indexed_put(
    node: c_int,
    remote_pointer: *mut c_void,
    local_buf: *const c_void,
    bytes: usize,
    callback: CCS_callback_t,
    cb_arg: *mut c_void,
) -> c_int {
    call(|| {
        drop(lock()?);
        let pointer = place(remote_pointer)?.addr().get() as u64;
        let (rank, arg) = (rank_of(node)?, Pointer(cb_arg));
        let memory = match bytes {
            0 => Memory::foreign(Foreign::owned(Box::default())),
            _ => {
                let start = place(local_buf.cast_mut())?;
                start.addr().get().checked_add(bytes).ok_or(Code::ARG)?;
                // SAFETY: as the caller promises.
                unsafe { foreign(start.cast(), bytes) }
            }
        };
        until_space(|live| {
            let part = Part { memory: memory.clone(), offset: 0, len_bytes: bytes };
            start(live, ending(callback, arg), |live, cookie| {
                Ok(live.process.indexed_put(rank, pointer, part, cookie)?)
            })
        })
    })
}
