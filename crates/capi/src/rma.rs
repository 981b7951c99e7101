//! Remote memory access: reading, writing and changing a peer's memory. What is registered is in `regions`.

use crate::connecting::resolve;
use crate::connections::{bytes, context_of};
use crate::endpoint::CEndpoint;
use crate::guard::{Failure, guard};
use crate::handles::handle_of;
use crate::messages::check_silent_no_copy;
use crate::status::of_status;
use crate::types::*;
use cci::limits::RMA_SEGMENTS_MAX;
use cci::{
    Atomic, AtomicKind, AtomicWidth, Connection, RegionAddress, Rma, RmaFlags, RmaKind, Segment, Status,
};
use libc::{c_int, c_void};
use std::cell::RefCell;

/// Flags of an operation that are not about which way it goes.
const HOW: c_int = CCI_FLAG_BLOCKING | CCI_FLAG_NO_COPY | CCI_FLAG_SILENT | CCI_FLAG_FENCE;

/// Which way, from the flags.
fn kind_of(call: &str, flags: c_int) -> Result<RmaKind, Failure> {
    match flags & (CCI_FLAG_READ | CCI_FLAG_WRITE) {
        CCI_FLAG_READ => Ok(RmaKind::Read),
        CCI_FLAG_WRITE => Ok(RmaKind::Write),
        _ => {
            let text = format!("{call}: the flags must have exactly one of CCI_FLAG_READ and CCI_FLAG_WRITE");
            Err(Failure::with_text(CCI_EINVAL, text))
        }
    }
}

/// How, from the flags without those that say which way.
fn flags_of(
    call: &str,
    c_endpoint: &CEndpoint,
    connection: Connection,
    flags: c_int,
) -> Result<RmaFlags, Failure> {
    if flags & !HOW != 0 {
        return Err(Failure::with_text(CCI_EINVAL, format!("{call}: unknown flags {:#x}", flags & !HOW)));
    }
    let mut rust_flags = RmaFlags::NONE;
    if flags & CCI_FLAG_FENCE != 0 {
        rust_flags = rust_flags | RmaFlags::FENCE;
    }
    if flags & CCI_FLAG_SILENT != 0 {
        rust_flags = rust_flags | RmaFlags::SILENT;
        if flags & CCI_FLAG_NO_COPY != 0 {
            check_silent_no_copy(c_endpoint, connection)?;
        }
    }
    Ok(rust_flags)
}

/// How a blocking operation ended.
fn ended(call: &str, status: Status) -> Result<(), Failure> {
    match of_status(status) {
        CCI_SUCCESS => Ok(()),
        failed => Err(Failure::with_text(failed, format!("{call}, blocking: {status}"))),
    }
}

/// Starts an operation, and waits for its end if that is asked for.
fn start(
    call: &str,
    (c_endpoint, connection): (&CEndpoint, Connection),
    (local, remote): (&[Segment], &[Segment]),
    message: &[u8],
    context: *const c_void,
    flags: c_int,
) -> Result<(), Failure> {
    let kind = kind_of(call, flags)?;
    let how = flags & !(CCI_FLAG_READ | CCI_FLAG_WRITE);
    let rma = Rma {
        kind,
        local,
        remote,
        message: (!message.is_empty()).then_some(message),
        context: context_of(context),
        flags: if how == 0 { RmaFlags::NONE } else { flags_of(call, c_endpoint, connection, how)? },
    };
    if flags & CCI_FLAG_BLOCKING == 0 {
        return c_endpoint.with(|endpoint, _| endpoint.rma(connection, &rma).map_err(Failure::from))?;
    }
    c_endpoint.refuse_handler()?;
    let status = match c_endpoint.shared() {
        Some(shared) => shared.rma_blocking(connection, &rma)?,
        None => c_endpoint.with(|endpoint, _| endpoint.rma_blocking(connection, &rma))??,
    };
    ended(call, status)
}

/// Reads or writes a peer's memory (CCI-060 to CCI-064).
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; `msg_ptr` points to `msg_len` bytes; each handle is NULL
/// or points to a handle, or a copy of one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rma(
    connection: *const cci_connection_t,
    msg_ptr: *const c_void,
    msg_len: u32,
    local_handle: *const cci_rma_handle_t,
    local_offset: u64,
    remote_handle: *const cci_rma_handle_t,
    remote_offset: u64,
    data_len: u64,
    context: *const c_void,
    flags: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those of all four.
        let (at, local, remote, message) = unsafe {
            (
                resolve(connection)?,
                handle_of(local_handle)?,
                handle_of(remote_handle)?,
                bytes(msg_ptr, msg_len as usize)?,
            )
        };
        let local = [Segment::new(local, local_offset, data_len)];
        let remote = [Segment::new(remote, remote_offset, data_len)];
        start("cci_rma", at, (&local, &remote), message, context, flags)
    })
}

thread_local! {
/// Space for the segments of the calls of this thread, so that only the longest list yet costs an allocation.
    static SEGMENTS: RefCell<Vec<Segment>> = const { RefCell::new(Vec::new()) };
}

/// Appends the segments of a list of the program's to `into`.
///
/// # Safety
/// `segments` points to `count` segments, whose handles are NULL or point to handles.
unsafe fn take_segments(
    segments: *const cci_rma_segment_t,
    count: u32,
    into: &mut Vec<Segment>,
) -> Result<(), Failure> {
    if segments.is_null() || count == 0 || count as usize > RMA_SEGMENTS_MAX {
        let text =
            format!("cci_rmav: a list is NULL, has no pieces, or has more than {RMA_SEGMENTS_MAX} of them");
        return Err(Failure::with_text(CCI_EINVAL, text));
    }
    for at in 0..count as usize {
        // SAFETY: the caller promises `count` segments.
        let segment = unsafe { segments.add(at).read() };
        // SAFETY: the caller promises this of each segment's handle.
        let handle = unsafe { handle_of(segment.handle) }?;
        into.push(Segment::new(handle, segment.offset, segment.length));
    }
    Ok(())
}

/// Reads or writes a peer's memory, gathered and scattered.
///
/// # Safety
/// What [`cci_rma`] requires; and the lists have as many segments as their counts say, whose handles are NULL or point to handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_rmav(
    connection: *const cci_connection_t,
    msg_ptr: *const c_void,
    msg_len: u32,
    local: *const cci_rma_segment_t,
    local_count: u32,
    remote: *const cci_rma_segment_t,
    remote_count: u32,
    context: *const c_void,
    flags: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those of both.
        let (at, message) = unsafe { (resolve(connection)?, bytes(msg_ptr, msg_len as usize)?) };
        let mut segments = SEGMENTS.try_with(RefCell::take).unwrap_or_default();
        // SAFETY: as the caller promises of both lists.
        let taken = unsafe {
            take_segments(local, local_count, &mut segments)
                .and_then(|()| take_segments(remote, remote_count, &mut segments))
        };
        let started = taken.and_then(|()| {
            let lists = segments.split_at(local_count as usize);
            start("cci_rmav", at, lists, message, context, flags)
        });
        segments.clear();
        // A thread that is ending keeps nothing.
        let _ = SEGMENTS.try_with(|kept| kept.replace(segments));
        started
    })
}

fn atomic_of(op: cci_atomic_op_t, width: u32, operand: u64, compare: u64) -> Result<Atomic, Failure> {
    let kind = match op {
        CCI_ATOMIC_FETCH_ADD => AtomicKind::FetchAdd,
        CCI_ATOMIC_SWAP => AtomicKind::Swap,
        CCI_ATOMIC_COMPARE_SWAP => AtomicKind::CompareSwap,
        CCI_ATOMIC_ADD => AtomicKind::Add,
        CCI_ATOMIC_AND => AtomicKind::And,
        CCI_ATOMIC_OR => AtomicKind::Or,
        CCI_ATOMIC_XOR => AtomicKind::Xor,
        other => {
            return Err(Failure::with_text(CCI_EINVAL, format!("cci_atomic: there is no operation {other}")));
        }
    };
    let width = match width {
        4 => AtomicWidth::Four,
        8 => AtomicWidth::Eight,
        other => {
            return Err(Failure::with_text(
                CCI_EINVAL,
                format!("cci_atomic: the width is 4 or 8, not {other}"),
            ));
        }
    };
    Ok(Atomic { kind, width, operand, compare })
}

/// True for operations that give the value from before.
const fn has_result(kind: AtomicKind) -> bool {
    match kind {
        AtomicKind::FetchAdd | AtomicKind::Swap | AtomicKind::CompareSwap => true,
        AtomicKind::Add | AtomicKind::And | AtomicKind::Or | AtomicKind::Xor => false,
    }
}

/// Changes 4 or 8 bytes of a peer's memory atomically (CCS-062).
///
/// # Safety
/// `connection` is NULL or a connection of an open endpoint; each handle is NULL or points to a handle, or a copy of
/// one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cci_atomic(
    connection: *const cci_connection_t,
    op: cci_atomic_op_t,
    width: u32,
    operand: u64,
    compare: u64,
    target_handle: *const cci_rma_handle_t,
    target_offset: u64,
    result_handle: *const cci_rma_handle_t,
    result_offset: u64,
    context: *const c_void,
    flags: c_int,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promises are those of both.
        let ((c_endpoint, connection), target) = unsafe { (resolve(connection)?, handle_of(target_handle)?) };
        let target = RegionAddress::new(target, target_offset);
        let atomic = atomic_of(op, width, operand, compare)?;
        let result = if result_handle.is_null() {
            None
        } else if has_result(atomic.kind) {
            // SAFETY: as the caller promises.
            Some(RegionAddress::new(unsafe { handle_of(result_handle) }?, result_offset))
        } else {
            let text =
                "cci_atomic: CCI_ATOMIC_ADD, AND, OR and XOR have no result; result_handle must be NULL";
            return Err(Failure::with_text(CCI_EINVAL, text));
        };
        let rust_flags = match flags {
            0 => RmaFlags::NONE,
            _ => flags_of("cci_atomic", c_endpoint, connection, flags)?,
        };
        if flags & CCI_FLAG_BLOCKING == 0 {
            let context = context_of(context);
            return c_endpoint.with(|endpoint, _| {
                let started = endpoint.atomic(connection, atomic, target, result, context, rust_flags);
                started.map_err(Failure::from)
            })?;
        }
        c_endpoint.refuse_handler()?;
        let status = match c_endpoint.shared() {
            Some(shared) => shared.atomic_blocking(connection, atomic, target, result, rust_flags)?,
            None => c_endpoint.with(|endpoint, _| {
                endpoint.atomic_blocking(connection, atomic, target, result, rust_flags)
            })??,
        };
        ended("cci_atomic", status)
    })
}
