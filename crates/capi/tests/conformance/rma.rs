//! Remote memory through the C interface.

use super::{CConn, CPort, last_error, pointer, refused, status_of};
use cci::{
    Access, Atomic, AtomicKind, AtomicWidth, Foreign, Memory, RegionAddress, RegionHandle, Rma, RmaFlags,
    RmaKind, Segment, Status,
};
use cci_capi::types::*;
use cci_capi::*;
use cci_testkit::conformance::{Grant, Refusal, Shared, Whose};
use libc::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null, null_mut};

/// Memory to be registered, looked at through the copies and atomics of the Rust interface: C's own would race with
/// peers. Memory from `cci_rma_alloc` goes with its endpoint.
#[derive(Clone, Debug)]
pub struct CMemory(Memory);

impl Shared for CMemory {
    fn len_bytes(&self) -> usize {
        self.0.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) {
        assert!(self.0.read(offset, out), "in range");
    }

    fn write(&self, offset: usize, data: &[u8]) {
        assert!(self.0.write(offset, data), "in range");
    }

    fn own_atomic(&self, offset: usize, atomic: Atomic) -> u64 {
        self.0.atomic(offset, atomic).expect("in range and aligned")
    }
}

/// The handle as C has it.
fn to_c(handle: &RegionHandle) -> cci_rma_handle_t {
    let mut stuff = [0; 4];
    let bytes = handle.to_bytes();
    for (word, eight) in stuff.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(eight.try_into().expect("eight bytes"));
    }
    cci_rma_handle_t { stuff }
}

fn flags_to_c(flags: RmaFlags) -> c_int {
    let silent = if flags.contains(RmaFlags::SILENT) { CCI_FLAG_SILENT } else { 0 };
    let fence = if flags.contains(RmaFlags::FENCE) { CCI_FLAG_FENCE } else { 0 };
    silent | fence
}

fn operation(kind: AtomicKind) -> cci_atomic_op_t {
    match kind {
        AtomicKind::FetchAdd => CCI_ATOMIC_FETCH_ADD,
        AtomicKind::Swap => CCI_ATOMIC_SWAP,
        AtomicKind::CompareSwap => CCI_ATOMIC_COMPARE_SWAP,
        AtomicKind::Add => CCI_ATOMIC_ADD,
        AtomicKind::And => CCI_ATOMIC_AND,
        AtomicKind::Or => CCI_ATOMIC_OR,
        AtomicKind::Xor => CCI_ATOMIC_XOR,
    }
}

/// What a blocking call gave: how the operation ended, or why it was not started.
fn blocking(status: c_int) -> Result<Status, Refusal> {
    match status_of(status) {
        // C has one number for both: an operation refused, and one that was under way when the peer left.
        Some(Status::Disconnected) | None => refused(status).map(|()| Status::Success),
        Some(status) => Ok(status),
    }
}

/// Calls `cci_rma` where that can say it, and `cci_rmav` where not.
fn rma(to: CConn, rma: &Rma<'_>, flags: c_int) -> c_int {
    let direction = match rma.kind {
        RmaKind::Read => CCI_FLAG_READ,
        RmaKind::Write => CCI_FLAG_WRITE,
    };
    let flags = flags | direction | flags_to_c(rma.flags);
    let (msg_ptr, msg_len) = rma.message.map_or((null(), 0), |bytes| (bytes.as_ptr(), bytes.len() as u32));
    let context = pointer(rma.context);
    if let ([local], [remote]) = (rma.local, rma.remote)
        && local.len_bytes == remote.len_bytes
    {
        let (local_handle, remote_handle) = (to_c(&local.address.handle), to_c(&remote.address.handle));
        let (local_offset, remote_offset) = (local.address.offset, remote.address.offset);
        // SAFETY: a connection of ours, a message as long as said, and two handles.
        return unsafe {
            let len = local.len_bytes;
            cci_rma(
                to.0,
                msg_ptr.cast(),
                msg_len,
                &local_handle,
                local_offset,
                &remote_handle,
                remote_offset,
                len,
                context,
                flags,
            )
        };
    }
    let handles = |segments: &[Segment]| -> Vec<cci_rma_handle_t> {
        segments.iter().map(|segment| to_c(&segment.address.handle)).collect()
    };
    let segments = |segments: &[Segment], handles: &[cci_rma_handle_t]| -> Vec<cci_rma_segment_t> {
        let both = segments.iter().zip(handles);
        let segment = |(segment, handle): (&Segment, _)| cci_rma_segment_t {
            handle: std::ptr::from_ref(handle),
            offset: segment.address.offset,
            length: segment.len_bytes,
        };
        both.map(segment).collect()
    };
    let (local_handles, remote_handles) = (handles(rma.local), handles(rma.remote));
    let (local, remote) = (segments(rma.local, &local_handles), segments(rma.remote, &remote_handles));
    let (locals, remotes) = (local.len() as u32, remote.len() as u32);
    // SAFETY: a connection of ours, a message as long as said, and lists as long as said, of handles.
    unsafe {
        cci_rmav(
            to.0,
            msg_ptr.cast(),
            msg_len,
            local.as_ptr(),
            locals,
            remote.as_ptr(),
            remotes,
            context,
            flags,
        )
    }
}

fn atomic(
    to: CConn,
    atomic: Atomic,
    target: RegionAddress,
    result: Option<RegionAddress>,
    context: u64,
    flags: c_int,
) -> c_int {
    let width = match atomic.width {
        AtomicWidth::Four => 4,
        AtomicWidth::Eight => 8,
    };
    let remote_handle = to_c(&target.handle);
    let local_handle = result.map(|result| to_c(&result.handle));
    // SAFETY: a connection of ours, a handle, and another or NULL.
    unsafe {
        cci_atomic(
            to.0,
            operation(atomic.kind),
            width,
            atomic.operand,
            atomic.compare,
            &remote_handle,
            target.offset,
            local_handle.as_ref().map_or(null(), std::ptr::from_ref),
            result.map_or(0, |result| result.offset),
            pointer(context),
            flags,
        )
    }
}

/// What `Port` asks for.
impl CPort {
    pub fn memory_of(&mut self, whose: Whose, len_bytes: usize) -> CMemory {
        let memory = match whose {
            Whose::Library => {
                let mut start = null_mut();
                // SAFETY: an open endpoint and a place for a pointer.
                let status = unsafe { cci_rma_alloc(self.endpoint, len_bytes as u64, &mut start) };
                assert_eq!(status, CCI_SUCCESS, "{}", last_error());
                let start = NonNull::new(start.cast()).expect("not NULL");
                // SAFETY: the library's, until the endpoint goes; the suite asks nothing of it afterwards.
                Memory::foreign(unsafe { Foreign::new(start, len_bytes) })
            }
            Whose::Foreign => Memory::foreign(Foreign::owned(vec![0; len_bytes].into_boxed_slice())),
        };
        // It must be there as long as it is registered, even if the suite has let go of it.
        self.registered.push(memory.clone());
        CMemory(memory)
    }

    pub fn register_part(&mut self, memory: &CMemory, grant: Grant<CConn>) -> Result<RegionHandle, Refusal> {
        let mut flags = 0;
        for (access, flag) in [
            (Access::READ, CCI_FLAG_READ),
            (Access::WRITE, CCI_FLAG_WRITE),
            (Access::ATOMIC, CCI_FLAG_ATOMIC),
        ] {
            flags |= if grant.access.contains(access) { flag } else { 0 };
        }
        if grant.range.end > memory.0.len() {
            // C has no words for it: it knows no memory, only a range.
            return Err(Refusal::BadArgument);
        }
        let start = memory.0.as_ptr().wrapping_add(grant.range.start).cast();
        let len = grant.range.len() as u64;
        let mut handle = null();
        // SAFETY: an open endpoint, or a connection of ours, memory that stays, and a place for a pointer.
        let status = unsafe {
            match grant.only {
                Some(only) => cci_rma_register_conn(only.0, start, len, flags, &mut handle),
                None => cci_rma_register(self.endpoint, start, len, flags, &mut handle),
            }
        };
        refused(status)?;
        // SAFETY: a handle that was just made.
        Ok(RegionHandle::from_bytes(unsafe { handle.cast::<[u8; RegionHandle::BYTES]>().read() }))
    }

    pub fn register_part_of_file(
        &mut self,
        file: &File,
        grant: Grant<CConn>,
    ) -> Result<RegionHandle, Refusal> {
        if grant.access != Access::READ {
            // C has no words for it: files are registered for peers to read.
            return Err(Refusal::BadArgument);
        }
        let only = grant.only.map_or(null(), |only| only.0);
        let (offset, len) = (grant.range.start as u64, grant.range.len() as u64);
        let mut handle = null();
        // SAFETY: an open endpoint, a connection of ours or none, and a place for a pointer.
        refused(unsafe {
            cci_rma_register_file(self.endpoint, only, file.as_raw_fd(), offset, len, &mut handle)
        })?;
        // SAFETY: a handle that was just made.
        Ok(RegionHandle::from_bytes(unsafe { handle.cast::<[u8; RegionHandle::BYTES]>().read() }))
    }

    pub fn deregister_handle(&mut self, handle: &RegionHandle) -> Result<(), Refusal> {
        // SAFETY: an open endpoint, and a handle.
        refused(unsafe { cci_rma_deregister(self.endpoint, &to_c(handle)) })
    }

    pub fn start_rma(&mut self, to: CConn, wanted: &Rma<'_>) -> Result<(), Refusal> {
        refused(rma(to, wanted, 0))
    }

    pub fn wait_rma(&mut self, to: CConn, wanted: &Rma<'_>) -> Result<Status, Refusal> {
        blocking(rma(to, wanted, CCI_FLAG_BLOCKING))
    }

    pub fn start_atomic(
        &mut self,
        to: CConn,
        wanted: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
        context: u64,
        flags: RmaFlags,
    ) -> Result<(), Refusal> {
        refused(atomic(to, wanted, target, result, context, flags_to_c(flags)))
    }

    pub fn wait_atomic(
        &mut self,
        to: CConn,
        wanted: Atomic,
        target: RegionAddress,
        result: Option<RegionAddress>,
    ) -> Result<Status, Refusal> {
        blocking(atomic(to, wanted, target, result, 0, CCI_FLAG_BLOCKING))
    }
}
