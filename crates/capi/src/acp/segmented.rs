//! Segmented buffers.

use super::ends::Buffer;
use super::failure::{Result, Wrong, wrong};
use super::live::{Live, call};
use super::management::foreign;
use cci_acp::{GlobalMemory, Indices, SegmentDestination, SegmentSource, Segments};
use libc::{c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// Whether a question has the answer yes, as C programs ask it.
const YES: c_int = 0;
const NO: c_int = 1;

/// The global memory, and a buffer that was not freed.
fn found(live: &mut Live, segbuf: *mut c_void) -> Result<(&mut GlobalMemory, &Buffer)> {
    let buffer = live.ends.buffers.get(&segbuf.addr());
    let buffer = buffer.ok_or_else(|| Wrong("there is no such segmented buffer, or it was freed".into()))?;
    Ok((&mut live.global, buffer))
}

fn source(buffer: &Buffer) -> Result<&SegmentSource> {
    match buffer {
        Buffer::Source(source) => Ok(source),
        Buffer::Destination(_) => wrong("this process is the destination"),
    }
}

fn destination(buffer: &Buffer) -> Result<&SegmentDestination> {
    match buffer {
        Buffer::Destination(destination) => Ok(destination),
        Buffer::Source(_) => wrong("this process is the source"),
    }
}

fn create(
    (buf, segsize, segnum): (*mut c_void, usize, usize),
    make: impl FnOnce(&mut GlobalMemory, &cci::Memory, Segments) -> cci_acp::Result<Buffer>,
) -> *mut c_void {
    call(null_mut(), |live| {
        let segments = Segments { count: segnum as u64, bytes: segsize as u64 };
        // SAFETY: as the callers' callers promise.
        let memory = unsafe { foreign(buf, segments.len_bytes()?) }?;
        let buffer = make(&mut live.global, &memory, segments)?;
        let number = live.ends.number();
        live.ends.buffers.insert(number, buffer);
        Ok(without_provenance_mut(number))
    })
}

/// Makes the source of a segmented buffer.
///
/// # Safety
/// The memory has `segsize` × `segnum` bytes, and stays mapped until the buffer was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acp_create_src_segbuf(
    dst_rank: c_int,
    buf: *mut c_void,
    segsize: usize,
    segnum: usize,
) -> *mut c_void {
    create((buf, segsize, segnum), |global, memory, segments| {
        SegmentSource::create(global, dst_rank.cast_unsigned(), memory, segments).map(Buffer::Source)
    })
}

/// Makes the destination of a segmented buffer.
///
/// # Safety
/// The memory has `segsize` × `segnum` bytes, stays mapped until the buffer was freed, and belongs to the library where no segment is to be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acp_create_dst_segbuf(
    src_rank: c_int,
    buf: *mut c_void,
    segsize: usize,
    segnum: usize,
) -> *mut c_void {
    create((buf, segsize, segnum), |global, memory, segments| {
        SegmentDestination::create(global, src_rank.cast_unsigned(), memory, segments)
            .map(Buffer::Destination)
    })
}

/// Waits for the other end.
#[unsafe(no_mangle)]
pub extern "C" fn acp_connect_segbuf(segbuf: *mut c_void) -> c_int {
    call(-1, |live| {
        match found(live, segbuf)? {
            (global, Buffer::Source(source)) => source.connect(global)?,
            (global, Buffer::Destination(destination)) => destination.connect(global)?,
        }
        Ok(0)
    })
}

/// Whether both ends are there.
#[unsafe(no_mangle)]
pub extern "C" fn acp_isconnected_segbuf(segbuf: *mut c_void) -> c_int {
    call(-1, |live| {
        let is_connected = match found(live, segbuf)? {
            (global, Buffer::Source(source)) => source.is_connected(global),
            (global, Buffer::Destination(destination)) => destination.is_connected(global),
        };
        Ok(if is_connected { YES } else { NO })
    })
}

/// Publishes the segment at the tail.
#[unsafe(no_mangle)]
pub extern "C" fn acp_ack_segbuf(segbuf: *mut c_void) -> c_int {
    call(-1, |live| {
        let (global, buffer) = found(live, segbuf)?;
        source(buffer)?.publish(global)?;
        Ok(0)
    })
}

/// Releases the segment at the head.
#[unsafe(no_mangle)]
pub extern "C" fn acp_ready_segbuf(segbuf: *mut c_void) -> c_int {
    call(-1, |live| {
        let (global, buffer) = found(live, segbuf)?;
        destination(buffer)?.release(global)?;
        Ok(0)
    })
}

/// Whether there is room at the source.
#[unsafe(no_mangle)]
pub extern "C" fn acp_isready_segbuf(segbuf: *mut c_void) -> c_int {
    call(-1, |live| {
        let (global, buffer) = found(live, segbuf)?;
        Ok(if source(buffer)?.has_room(global)? { YES } else { NO })
    })
}

/// Whether there is data at the destination.
#[unsafe(no_mangle)]
pub extern "C" fn acp_isacked_segbuf(segbuf: *mut c_void) -> c_int {
    call(-1, |live| {
        let (global, buffer) = found(live, segbuf)?;
        Ok(if destination(buffer)?.has_data(global)? { YES } else { NO })
    })
}

fn index(segbuf: *mut c_void, which: impl FnOnce(Indices) -> u64) -> i64 {
    call(-1, |live| {
        let indices = match found(live, segbuf)? {
            (global, Buffer::Source(source)) => source.indices(global)?,
            (global, Buffer::Destination(destination)) => destination.indices(global)?,
        };
        Ok(which(indices).cast_signed())
    })
}

/// How many segments were released.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_segbuf_head(segbuf: *mut c_void) -> i64 {
    index(segbuf, |indices| indices.head)
}

/// How many segments were published.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_segbuf_tail(segbuf: *mut c_void) -> i64 {
    index(segbuf, |indices| indices.tail)
}

/// How many segments are at the destination.
#[unsafe(no_mangle)]
pub extern "C" fn acp_query_segbuf_sent(segbuf: *mut c_void) -> i64 {
    index(segbuf, |indices| indices.sent)
}

/// Ends the connection.
#[unsafe(no_mangle)]
pub extern "C" fn acp_disconnect_segbuf(segbuf: *mut c_void) -> c_int {
    call(-1, |live| {
        match found(live, segbuf)? {
            (global, Buffer::Source(source)) => source.disconnect(global)?,
            (global, Buffer::Destination(destination)) => destination.disconnect(global)?,
        }
        Ok(0)
    })
}

/// Frees an end.
#[unsafe(no_mangle)]
pub extern "C" fn acp_free_segbuf(segbuf: *mut c_void) -> c_int {
    call(-1, |live| {
        found(live, segbuf)?;
        match live.ends.buffers.remove(&segbuf.addr()) {
            Some(Buffer::Source(source)) => source.free(&mut live.global)?,
            Some(Buffer::Destination(destination)) => destination.free(&mut live.global)?,
            None => {}
        }
        Ok(0)
    })
}
