//! Memory for remote access: the library's own, and whether the program's is really there.

use std::io;
use std::num::NonZeroUsize;
use std::ops::{Deref, DerefMut};

use cci_memory::bytes::{Backing, Bytes};
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::error::{Result, SysError};
use crate::shared_memory::SharedMemory;

/// Zeroed memory of whole pages that peers on the same host can map; see [`SharedMemory::create_for_rma`].
#[derive(Debug)]
pub struct RmaMemory(SharedMemory);

impl RmaMemory {
    /// At least `len_bytes`, above 0.
    pub fn create(len_bytes: usize) -> Result<RmaMemory> {
        SharedMemory::create_for_rma(len_bytes).map(RmaMemory)
    }

    /// At least `len_bytes`, above 0, at an address that is a multiple of a page's. `EEXIST`: something is mapped there.
    pub fn create_at(len_bytes: usize, address: NonZeroUsize) -> Result<RmaMemory> {
        SharedMemory::create_for_rma_at(len_bytes, address).map(RmaMemory)
    }

    /// All of it, in bytes: whole pages.
    pub fn len_bytes(&self) -> usize {
        self.0.len()
    }

    /// What is granted to peers, and taken back ([`SharedMemory::detach`]).
    #[inline]
    pub fn shared(&self) -> &SharedMemory {
        &self.0
    }
}

impl Backing for RmaMemory {
    fn bytes(&self) -> Bytes {
        self.0.bytes()
    }
}

/// Memory as [`RmaMemory`] has it, which nobody else can reach: it has no descriptor to share, so plain slices of it are sound.
#[derive(Debug)]
pub struct PrivateMemory(SharedMemory);

impl PrivateMemory {
    /// At least `len_bytes`, above 0, of zeros.
    pub fn create(len_bytes: usize) -> Result<PrivateMemory> {
        let mut memory = SharedMemory::create_for_rma(len_bytes)?;
        memory.drop_fd();
        Ok(PrivateMemory(memory))
    }
}

impl Deref for PrivateMemory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped and initialised (zeroed by the kernel) as long as `self`; only `deref_mut` leads to a writer.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

impl DerefMut for PrivateMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped and initialised as long as `self`; no descriptor of it exists, so nothing but `&mut self` reaches it.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

const WHAT: &str = "use memory for remote access";

/// The system's page, bytes: what mappings and [`check_mapped`] are made of.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Whether all of `len` bytes from `ptr` on are mapped in this process and may be read (and written, if `writable`).
///
/// Takes any pointer: nothing is dereferenced, the kernel is asked. It also brings the pages in (`MADV_POPULATE_*`), without
/// changing a byte, so that the first transfer meets no page fault. A kernel before 5.14 is only asked whether something
/// is mapped there.
///
/// What it says holds as long as the program leaves its mappings alone.
///
/// # Errors
///
/// `EFAULT`: not all of it is mapped, or it is mapped beyond the end of its file. `EACCES`: mapped, but not so
/// accessible, or not normal memory. `ENOMEM`: there is no memory to bring it in.
pub fn check_mapped(ptr: *const u8, len: usize, writable: bool) -> Result<()> {
    if len == 0 {
        return Ok(());
    }
    let advice = if writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    check_pages(ptr.addr(), len, advice).map_err(|errno| {
        let how = if writable { "writable" } else { "readable" };
        let why = match errno {
            Errno::FAULT => "not all of it is mapped",
            Errno::ACCESS => "not all of it is normal memory with that access",
            Errno::NOMEM => "no memory for its pages",
            _ => "the kernel did not take the question",
        };
        SysError::new(WHAT, io::Error::from(errno))
            .on(format_args!("{len} bytes at {:#x}, to be {how}: {why}", ptr.addr()))
    })
}

fn check_pages(addr: usize, len: usize, advice: Advice) -> std::result::Result<(), Errno> {
    let page_bytes = page_bytes();
    let start = addr - addr % page_bytes;
    let end = addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(page_bytes));
    let len = end.ok_or(Errno::FAULT)? - start;
    let start = std::ptr::without_provenance_mut::<u8>(start);
    loop {
        // SAFETY: populating changes no byte that a program can see; where nothing is mapped it is an error.
        let done = unsafe { madvise(start.cast(), len, advice) };
        return match done {
            Ok(()) => Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => continue,
            // Both "not mapped" and "out of memory", and both "no such access" and "no such advice".
            Err(Errno::NOMEM) => mapped(start, len, page_bytes).and(Err(Errno::NOMEM)),
            Err(Errno::INVAL) if is_known(advice) => mapped(start, len, page_bytes).and(Err(Errno::ACCESS)),
            Err(Errno::INVAL) => mapped(start, len, page_bytes),
            Err(other) => Err(other),
        };
    }
}

/// Whether the kernel knows `advice`: with no bytes to do it on, it still looks at the number.
fn is_known(advice: Advice) -> bool {
    // SAFETY: concerns no byte at all.
    unsafe { madvise(std::ptr::null_mut(), 0, advice) }.is_ok()
}

/// `EFAULT` unless something is mapped at each of these pages.
fn mapped(start: *mut u8, len: usize, page_bytes: usize) -> std::result::Result<(), Errno> {
    /// Pages asked about in one call; its answer takes a byte for each.
    const PAGES: usize = 1024;
    let mut answer = [0u8; PAGES];
    for done in (0..len).step_by(PAGES * page_bytes) {
        let at = start.wrapping_add(done).cast();
        let bytes = (len - done).min(PAGES * page_bytes);
        // SAFETY: only asks about the range; `answer` has a byte for each of its pages.
        if unsafe { libc::mincore(at, bytes, answer.as_mut_ptr()) } != 0 {
            return match io::Error::last_os_error().raw_os_error() {
                Some(libc::ENOMEM) | Some(libc::EINVAL) => Err(Errno::FAULT),
                other => Err(Errno::from_raw_os_error(other.unwrap_or(libc::EFAULT))),
            };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    /// Three pages: writable, only readable, not mapped.
    fn three_kinds() -> (*mut u8, usize) {
        let page = rustix::param::page_size();
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of which the last page is unmapped and the middle one made read-only; nobody knows it.
        unsafe {
            let base = mmap_anonymous(std::ptr::null_mut(), 3 * page, prot, MapFlags::PRIVATE).unwrap();
            mprotect(base.byte_add(page), page, MprotectFlags::READ).unwrap();
            munmap(base.byte_add(2 * page), page).unwrap();
            (base.cast(), page)
        }
    }

    fn errno(ptr: *const u8, len: usize, writable: bool) -> Option<i32> {
        check_mapped(ptr, len, writable).err().map(|error| error.errno().unwrap())
    }

    #[test]
    fn says_what_is_there() {
        let (base, page) = three_kinds();
        let at = |offset: usize| base.wrapping_add(offset).cast_const();
        assert_eq!(errno(at(1), page - 1, true), None);
        assert_eq!(errno(at(page - 1), page + 1, false), None, "readable to the last byte");
        assert_eq!(errno(at(page - 1), 2, true), Some(libc::EACCES));
        assert_eq!(errno(at(page), 1, true), Some(libc::EACCES));
        assert_eq!(errno(at(2 * page - 1), 2, false), Some(libc::EFAULT));
        let error = check_mapped(at(2 * page - 1), 2, false).unwrap_err();
        assert!(error.to_string().contains("not all of it is mapped"), "{error}");
        // SAFETY: what is left of the mapping.
        unsafe { munmap(base.cast(), 2 * page).unwrap() };
    }

    #[test]
    fn takes_any_pointer() {
        for addr in [0, 1, 4096, 1 << 47, 1 << 63, usize::MAX - 4096, usize::MAX] {
            let ptr = std::ptr::without_provenance(addr);
            assert_eq!(check_mapped(ptr, 0, true).ok(), Some(()));
            for len in [1, 4096, 1 << 40, usize::MAX] {
                for writable in [false, true] {
                    let found = errno(ptr, len, writable);
                    assert_eq!(found, Some(libc::EFAULT), "{len} at {addr:#x}");
                }
            }
        }
        let ours = vec![1u8; 100_000];
        assert_eq!(errno(ours.as_ptr(), ours.len(), true), None);
        assert!(ours.iter().all(|&byte| byte == 1));
        assert_eq!(errno(says_what_is_there as fn() as *const u8, 1, true), Some(libc::EACCES), "code");
    }

    #[test]
    fn beyond_the_end_of_a_file_there_is_nothing() {
        let page = rustix::param::page_size();
        let fd = rustix::fs::memfd_create("cci-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, page as u64).unwrap();
        // SAFETY: a new mapping that nothing touches.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), 2 * page, ProtFlags::READ, MapFlags::SHARED, &fd, 0)
                .unwrap()
        };
        assert_eq!(errno(base.cast(), page, false), None);
        assert_eq!(errno(base.cast(), page + 1, false), Some(libc::EFAULT));
        // SAFETY: the mapping just made.
        unsafe { munmap(base, 2 * page).unwrap() };
    }

    #[test]
    fn an_old_kernel_is_asked_what_is_mapped() {
        let (base, page) = three_kinds();
        assert_eq!(mapped(base, 2 * page, page), Ok(()));
        assert_eq!(mapped(base, 3 * page, page), Err(Errno::FAULT));
        assert!(is_known(Advice::LinuxPopulateRead) || mapped(base, page, page).is_ok());
        // SAFETY: what is left of the mapping.
        unsafe { munmap(base.cast(), 2 * page).unwrap() };
    }
}
