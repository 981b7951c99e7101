//! One-sided memory.

use super::arithmetic;
use super::contexts;
use super::descriptions::Data;
use super::dispatch::{until_space, wait_until};
use super::here::check_may_wait;
use super::job::barrier;
use super::live::lock;
use super::local::{Local, foreign, start_or_end};
use super::messages;
use super::operations::{Callback, Ending, Outcome, Pointer};
use super::status::{Code, Result, call};
use super::types::*;
use cci::{Atomic, AtomicKind, AtomicWidth};
use cci_am::process::{Following, Transfer};
use cci_am::{Change, Number, Reduction};
use libc::{c_int, c_void};
use std::ptr::NonNull;

fn bounds(addr: *mut c_void, len: usize) -> Result<(NonNull<u8>, usize)> {
    let start = NonNull::new(addr.cast()).filter(|_| len > 0).ok_or(Code::ARG)?;
    start.addr().get().checked_add(len).ok_or(Code::ARG)?;
    Ok((start, len))
}

/// Lets all processes of the job access memory.
///
/// # Safety
/// The memory stays mapped until it was deregistered as often.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_register_mem(addr: *mut c_void, len: usize) -> c_int {
    call(|| {
        let mut live = lock()?;
        let (start, len) = bounds(addr, len)?;
        // SAFETY: as the caller promises.
        let memory = unsafe { foreign(start, len) };
        Ok(live.process.register_memory(&memory)?)
    })
}

/// Takes one registration back.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_deregister_mem(addr: *mut c_void, len: usize) -> c_int {
    call(|| {
        let mut live = lock()?;
        let (start, len) = bounds(addr, len)?;
        Ok(live.process.deregister_memory(start.addr().get() as u64, len)?)
    })
}

/// One side of a transfer, as the program says it.
pub(super) type Side = (*mut c_void, usize, CCS_datadesc_t);

/// Starts a put or a get.
///
/// # Safety
/// What is described of this process's memory stays mapped until the operation has ended.
unsafe fn transfer(
    transfer: Transfer,
    node: c_int,
    (remote, remote_count, remote_desc): Side,
    (local, local_count, local_desc): Side,
    (callback, arg): (CCS_callback_t, *mut c_void),
    then: Option<&Following>,
) -> Result<()> {
    drop(lock()?);
    let there = Data::new(remote, remote_count, remote_desc)?;
    let here = Data::new(local, local_count, local_desc)?;
    if there.len_bytes != here.len_bytes {
        return Err(Code::ARG);
    }
    let rank = u32::try_from(node).map_err(|_| Code::RANGE)?;
    let (callback, arg) = (callback.map(Callback::Plain), Pointer(arg));
    // SAFETY: as the caller promises.
    let local = unsafe { Local::new(transfer, &here) }?;
    until_space(|live| {
        let result = match (&local, transfer) {
            (Local::Packed(packed), Transfer::Get) => Outcome::Unpack {
                packed: packed.clone(),
                to: Pointer(here.buffer.cast_mut()),
                count: here.count,
                description: here.described.description.clone(),
            },
            _ => Outcome::Nothing,
        };
        start_or_end(live, Ending { callback, arg, result, then: then.cloned() }, |live, cookie| {
            local.start(live, transfer, rank, &there, &here, cookie)
        })
    })
}

/// Writes to memory of a process.
///
/// # Safety
/// What is described of this process's memory stays as it is until the operation has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_put(
    node: c_int,
    remote_buf: *mut c_void,
    remote_count: usize,
    remote_desc: CCS_datadesc_t,
    local_buf: *const c_void,
    local_count: usize,
    local_desc: CCS_datadesc_t,
    callback: CCS_callback_t,
    cb_arg: *mut c_void,
) -> c_int {
    let remote = (remote_buf, remote_count, remote_desc);
    let local = (local_buf.cast_mut(), local_count, local_desc);
    // SAFETY: as the caller promises.
    call(|| unsafe { transfer(Transfer::Put, node, remote, local, (callback, cb_arg), None) })
}

/// Writes to memory of a process, and has a handler run there when the data are there.
///
/// # Safety
/// What is described of this process's memory stays as it is until the operation has ended; `args` has `nargs` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_put_am(
    node: c_int,
    remote_buf: *mut c_void,
    remote_count: usize,
    remote_desc: CCS_datadesc_t,
    local_buf: *const c_void,
    local_count: usize,
    local_desc: CCS_datadesc_t,
    callback: CCS_callback_t,
    cb_arg: *mut c_void,
    context: CCS_context_t,
    handler_id: c_int,
    nargs: c_int,
    args: *const CCS_arg_t,
) -> c_int {
    let remote = (remote_buf, remote_count, remote_desc);
    let local = (local_buf.cast_mut(), local_count, local_desc);
    call(|| {
        let context = contexts::find(&*lock()?, context)?;
        // SAFETY: as the caller promises.
        let (handler, args) = unsafe { messages::handler_and_args(handler_id, (nargs, args)) }?;
        let rank = u32::try_from(node).map_err(|_| Code::RANGE)?;
        let then = Following { context, rank, handler, args: args.to_vec() };
        // SAFETY: as the caller promises.
        unsafe { transfer(Transfer::Put, node, remote, local, (callback, cb_arg), Some(&then)) }
    })
}

/// Reads from memory of a process.
///
/// # Safety
/// What is described of this process's memory is the operation's until it has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_get(
    node: c_int,
    remote_buf: *const c_void,
    remote_count: usize,
    remote_desc: CCS_datadesc_t,
    local_buf: *mut c_void,
    local_count: usize,
    local_desc: CCS_datadesc_t,
    callback: CCS_callback_t,
    cb_arg: *mut c_void,
) -> c_int {
    let remote = (remote_buf.cast_mut(), remote_count, remote_desc);
    let local = (local_buf, local_count, local_desc);
    // SAFETY: as the caller promises.
    call(|| unsafe { transfer(Transfer::Get, node, remote, local, (callback, cb_arg), None) })
}

/// Waits until operations on a process's memory have ended; of all, without a rank.
fn fence(rank: Option<u32>) -> Result<()> {
    check_may_wait()?;
    if lock()?.process.operations(rank) > 0 {
        wait_until(|live| Ok((live.process.operations(rank) == 0).then_some(())))?;
    }
    // Their callbacks run before a fence returns, where they may; and whoever only puts and fences makes progress for others here.
    super::dispatch::poll().map(drop)
}

/// Waits until all operations of this process on a process's memory are complete there.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_fence(node: c_int) -> c_int {
    call(|| {
        let size = lock()?.process.size();
        let rank = u32::try_from(node).ok().filter(|&rank| rank < size).ok_or(Code::RANGE)?;
        fence(Some(rank))
    })
}

/// Waits until all operations of this process are complete.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_fence_all() -> c_int {
    call(|| fence(None))
}

/// Waits until all operations of all processes are complete.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_gfence() -> c_int {
    call(|| {
        fence(None)?;
        barrier()
    })
}

/// A word of the program's, zeros above it.
///
/// # Safety
/// It is NULL, or there.
unsafe fn word(at: *const c_void, len_bytes: usize) -> Result<u64> {
    let at: NonNull<c_void> = super::status::place(at.cast_mut())?;
    // SAFETY: as the caller promises; it need not be aligned.
    Ok(unsafe {
        match len_bytes {
            4 => at.cast::<u32>().read_unaligned().into(),
            _ => at.cast::<u64>().read_unaligned(),
        }
    })
}

/// Changes a word of a process's memory atomically.
///
/// # Safety
/// `operand` and `compare` are NULL or words of this type; `result` is NULL or a place for one, the operation's until it has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_atomic(
    node: c_int,
    remote: *mut c_void,
    op: CCS_op_t,
    r#type: CCS_type_t,
    operand: *const c_void,
    compare: *const c_void,
    result: *mut c_void,
    callback: CCS_callback_t,
    cb_arg: *mut c_void,
) -> c_int {
    call(|| {
        drop(lock()?);
        let number = arithmetic::number(r#type)?;
        let len_bytes = number.len_bytes();
        let width = if len_bytes == 4 { AtomicWidth::Four } else { AtomicWidth::Eight };
        let is_float = matches!(number, Number::F32 | Number::F64);
        // SAFETY: as the caller promises.
        let operand = if op == CCS_OP_FETCH { 0 } else { unsafe { word(operand, len_bytes) }? };
        // SAFETY: as the caller promises.
        let compare = if op == CCS_OP_CAS { unsafe { word(compare, len_bytes) }? } else { 0 };
        let core = |kind| Change::Core(Atomic { kind, width, operand, compare });
        let change = match op {
            // To add nothing changes nothing.
            CCS_OP_FETCH => core(AtomicKind::FetchAdd),
            CCS_OP_SET => core(AtomicKind::Swap),
            CCS_OP_CAS => core(AtomicKind::CompareSwap),
            CCS_OP_ADD if is_float => Change::Reduce(number, Reduction::Add, operand),
            CCS_OP_MIN => Change::Reduce(number, Reduction::Min, operand),
            CCS_OP_MAX => Change::Reduce(number, Reduction::Max, operand),
            CCS_OP_ADD => core(AtomicKind::FetchAdd),
            CCS_OP_AND if !is_float => core(AtomicKind::And),
            CCS_OP_OR if !is_float => core(AtomicKind::Or),
            CCS_OP_XOR if !is_float => core(AtomicKind::Xor),
            _ => return Err(Code::ARG),
        };
        let remote = super::status::place(remote)?.addr().get() as u64;
        let rank = u32::try_from(node).map_err(|_| Code::RANGE)?;
        let (callback, arg) = (callback.map(Callback::Plain), Pointer(cb_arg));
        until_space(|live| {
            let result = match result.is_null() {
                true => Outcome::Nothing,
                false => Outcome::Word(Pointer(result), len_bytes),
            };
            start_or_end(live, Ending { callback, arg, result, then: None }, |live, cookie| {
                Ok(live.process.atomic(rank, remote, change, cookie)?)
            })
        })
    })
}
