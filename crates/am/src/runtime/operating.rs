//! How operations on memory are started, and when their callbacks run.

use super::callback::Callback;
use super::{Runtime, waiting};
use crate::arithmetic::Change;
use crate::error::{AmError, Result};
use crate::limits::{ENDED_MAX, OPERATIONS_MAX};
use crate::process::{Elements, Part, Process, Transfer};
use cci::Memory;

// There is one function for all callbacks, so that the copy is compiled into it.
#[inline(never)]
pub(super) fn put(runtime: &mut Runtime, rank: u32, remote: u64, local: &Part, done: Callback) -> Result<()> {
    transfer(runtime, Transfer::Put, rank, remote, local, done)
}

#[inline(never)]
pub(super) fn get(runtime: &mut Runtime, rank: u32, remote: u64, local: &Part, done: Callback) -> Result<()> {
    transfer(runtime, Transfer::Get, rank, remote, local, done)
}

#[inline(always)]
fn transfer(
    runtime: &mut Runtime,
    transfer: Transfer,
    rank: u32,
    remote: u64,
    local: &Part,
    done: Callback,
) -> Result<()> {
    if may_end(runtime) && runtime.process.transfer_at_once(transfer, rank, remote, local) {
        runtime.callbacks.push_ended(done, 0);
        return Ok(());
    }
    transfer_later(runtime, transfer, rank, remote, local, done)
}

#[inline(never)]
fn transfer_later(
    runtime: &mut Runtime,
    transfer: Transfer,
    rank: u32,
    remote: u64,
    local: &Part,
    done: Callback,
) -> Result<()> {
    start_or_end(runtime, |process, cookie| process.transfer(transfer, rank, remote, local, cookie), done)
}

pub(super) fn transfer_described(
    runtime: &mut Runtime,
    transfer: Transfer,
    rank: u32,
    (remote, there): (u64, Elements),
    (local, origin, here): (&Memory, isize, Elements),
    done: Callback,
) -> Result<()> {
    let start = |process: &mut Process, cookie| {
        let (there, here) = ((remote, there.clone()), (local, origin, here.clone()));
        process.transfer_described(transfer, rank, there, here, cookie)
    };
    start_or_end(runtime, start, done)
}

/// Changes a word at once if possible, and otherwise later.
#[inline(always)]
pub(super) fn atomic(
    runtime: &mut Runtime,
    rank: u32,
    remote: u64,
    change: Change,
    done: Callback,
) -> Result<()> {
    let fetched = if may_end(runtime) { runtime.process.fetch_at_once(rank, remote, change) } else { None };
    match fetched {
        Some(Ok(value)) => runtime.callbacks.push_ended(done, value),
        Some(Err(error)) => fail(runtime, error, done),
        None => return atomic_later(runtime, rank, remote, change, done),
    }
    Ok(())
}

#[inline(never)]
fn atomic_later(runtime: &mut Runtime, rank: u32, remote: u64, change: Change, done: Callback) -> Result<()> {
    start_or_end(runtime, |process, cookie| process.atomic(rank, remote, change, cookie), done)
}

/// Whether there is space for the callback of one more operation that has ended when it is started.
#[inline]
fn may_end(runtime: &Runtime) -> bool {
    runtime.callbacks.ended() < if runtime.is_handling { OPERATIONS_MAX } else { ENDED_MAX }
}

/// Ends an operation that failed when it was started.
#[cold]
fn fail(runtime: &mut Runtime, error: AmError, done: Callback) {
    let cookie = runtime.callbacks.number();
    runtime.callbacks.keep(cookie, done);
    runtime.process.end_later(cookie, error);
}

/// Starts an operation when there is space, and keeps its callback.
pub(super) fn start(
    runtime: &mut Runtime,
    start: impl Fn(&mut Process, u64) -> Result<()>,
    done: Callback,
) -> Result<()> {
    start_or_end(runtime, |process, cookie| start(process, cookie).map(|()| None), done)
}

/// Starts an operation when there is space. Its callback is kept, or called now if the operation has ended at once, with a value.
fn start_or_end(
    runtime: &mut Runtime,
    start: impl Fn(&mut Process, u64) -> Result<Option<u64>>,
    done: Callback,
) -> Result<()> {
    let cookie = runtime.callbacks.number();
    let start = |runtime: &mut Runtime| {
        if !may_end(runtime) {
            return Err(AmError::WouldBlock);
        }
        start(&mut runtime.process, cookie)
    };
    match waiting::for_space(runtime, start)? {
        Some(value) => runtime.callbacks.push_ended(done, value),
        None => runtime.callbacks.keep(cookie, done),
    }
    Ok(())
}
