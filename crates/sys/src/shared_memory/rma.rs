//! Memory for remote access: whole pages, huge where there are some, that peers map and its maker can take back.

use std::fs;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

use cci_memory::bytes::{Backing, Bytes};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags};

use super::{LENGTH_SEALS, SharedMemory, WRITABLE, allocate, check, memfd, set_len, take_pages};
use crate::error::{Result, SysError, Tried};

const NAME: &str = "cci-rma";

impl Backing for SharedMemory {
    fn bytes(&self) -> Bytes {
        // SAFETY: mapped readable and writable (`SharedMemoryReader` gives out none) as long as this value lives, and what
        // replaces the pages (`detach`) lies at the same address. A ring's end, which has plain copies of its own, has
        // taken the memory by value.
        unsafe { Bytes::new(self.as_ptr(), self.len()) }
    }
}

impl SharedMemory {
    /// Makes zeroed, allocated, length-sealed memory of at least `len_bytes` (above 0), rounded up to whole
    /// pages: [`len`](Self::len) is what it became.
    ///
    /// The pages are huge ones if the length fills one and the system has enough of them free; otherwise normal ones, for
    /// which transparent huge pages are asked for. That there are no huge pages is no error.
    /// `ENOMEM`/`ENOSPC`: the memory does not suffice.
    ///
    /// A peer that was given the descriptor may punch a hole in it (one may not seal against that what it should
    /// write to). In normal pages this costs zeros; in huge ones the next access takes a free huge page, and
    /// **is a SIGBUS if there is none**. So huge ones are for peers that are trusted that far (the same user).
    pub fn create_for_rma(len_bytes: usize) -> Result<SharedMemory> {
        match huge_page_bytes(len_bytes) {
            Some(huge) => SharedMemory::create_huge(len_bytes, huge),
            None => Err(SysError::refused("find huge pages", "none that this fills")),
        }
        .or_else(|_| SharedMemory::create_small(len_bytes))
    }

    /// Makes memory as [`create_for_rma`](Self::create_for_rma) does, but never in reserved huge pages: for peers that are not trusted.
    pub fn create_for_rma_small(len_bytes: usize) -> Result<SharedMemory> {
        SharedMemory::create_small(len_bytes)
    }

    /// Makes memory as [`create_for_rma`](Self::create_for_rma) does, at an address that is a multiple of its pages.
    /// `EEXIST`: something is mapped there.
    pub fn create_for_rma_at(len_bytes: usize, address: NonZeroUsize) -> Result<SharedMemory> {
        let make = |page_bytes, kind| {
            let len = whole_pages(len_bytes, page_bytes)?;
            SharedMemory::map_at(new_file(len, kind)?, len, WRITABLE, Some(address))
        };
        if let Some(huge) = huge_page_bytes(len_bytes)
            && address.get().is_multiple_of(huge)
            && let Ok(memory) = make(huge, MemfdFlags::HUGETLB)
        {
            return Ok(memory);
        }
        let memory = make(rustix::param::page_size(), MemfdFlags::empty())?;
        advise_huge(memory.as_ptr().as_ptr(), memory.len());
        Ok(memory)
    }

    fn create_huge(len_bytes: usize, page_bytes: usize) -> Result<SharedMemory> {
        let len = whole_pages(len_bytes, page_bytes)?;
        let fd = new_file(len, MemfdFlags::HUGETLB)?;
        SharedMemory::map(fd, len, WRITABLE)
    }

    fn create_small(len_bytes: usize) -> Result<SharedMemory> {
        let len = whole_pages(len_bytes, rustix::param::page_size())?;
        let fd = new_file(len, MemfdFlags::empty())?;
        let memory = SharedMemory::map(fd, len, WRITABLE)?;
        advise_huge(memory.as_ptr().as_ptr(), len);
        Ok(memory)
    }

    /// Maps memory for remote access that a peer sent, after the checks of [`open`](Self::open). It may lie in huge pages.
    pub fn open_rma(fd: OwnedFd, len_bytes: usize) -> Result<SharedMemory> {
        check(&fd, len_bytes)?;
        let memory = SharedMemory::map(fd, len_bytes, WRITABLE)?;
        advise_huge(memory.as_ptr().as_ptr(), len_bytes);
        Ok(memory)
    }

    /// Bytes of its pages, as reserved: transparent huge pages, which come and go, do not count.
    /// The system's page after [`drop_fd`](Self::drop_fd), as then nobody knows any more.
    pub fn page_bytes(&self) -> usize {
        let small = rustix::param::page_size();
        // For hugetlbfs this is its page size, for tmpfs the system's.
        let known = self.fd().and_then(|fd| rustix::fs::fstatfs(fd).ok());
        known.and_then(|stat| usize::try_from(stat.f_bsize).ok()).unwrap_or(small).max(small)
    }

    /// Whether it lies in reserved huge pages.
    pub fn is_huge(&self) -> bool {
        self.page_bytes() > rustix::param::page_size()
    }

    /// Puts fresh memory with the same content in place of ours, at the same address: whoever still has the old pages
    /// mapped, or their descriptor, can neither change nor see ours from now on. [`fd`](Self::fd) keeps its number
    /// and stands for the new memory, which is what later grants hand out.
    ///
    /// Accesses by other threads of this process meet the old or the new pages, never nothing. But what they
    /// **write while this call runs may be lost**, as the content is copied before the pages are replaced; so may be what
    /// the peer writes. A call at a time. Costs a copy, and the memory twice while it runs.
    ///
    /// # Errors
    ///
    /// `ENOMEM`/`ENOSPC`: there is no memory for it, and everything is as it was. `Unsupported`: in a fork child.
    pub fn detach(&self) -> Result<()> {
        const WHAT: &str = "take shared memory back";
        if !crate::process::fork::same_process(self.made_by) {
            let child = std::io::Error::new(std::io::ErrorKind::Unsupported, "not mapped in a fork child");
            return Err(SysError::new(WHAT, child));
        }
        #[cfg(feature = "simulated")]
        cci_memory::simulated::unmap(self.as_ptr().as_ptr(), self.len());
        let len = self.len();
        let huge = if self.is_huge() { MemfdFlags::HUGETLB } else { MemfdFlags::empty() };
        // Normal pages in place of huge ones are better than a peer that keeps its access.
        let fresh = new_file(len, huge).or_else(|_| new_file(len, MemfdFlags::empty()))?;
        let fresh = SharedMemory::map(fresh, len, WRITABLE)?;
        let copied = fresh.bytes().copy_from(0, &self.bytes(), 0, len);
        debug_assert!(copied, "both are {len} bytes long");
        let file = fresh.fd().ok_or_else(|| SysError::refused(WHAT, "the new memory has no descriptor"))?;
        let at = self.as_ptr().as_ptr();
        // SAFETY: replaces exactly the mapping that this value owns, by memory of the same length and rights; the
        // kernel does it under the lock that page faults wait for. Pointers into it stay good.
        unsafe { rustix::mm::mmap(at.cast(), len, WRITABLE, MapFlags::SHARED | MapFlags::FIXED, file, 0) }
            .tried("replace shared memory (mmap)")?;
        // SAFETY: the range is exactly that mapping.
        unsafe { rustix::mm::madvise(at.cast(), len, Advice::LinuxDontFork) }
            .tried("keep shared memory out of fork children (madvise)")?;
        advise_huge(at, len);
        if let Some(old) = self.fd() {
            // In place, so that the number stays and nobody's borrow of it dangles.
            // SAFETY: both are open; the old number is ours, and what it stood for is closed with that.
            if unsafe { libc::dup3(file.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
                return Err(SysError::last("replace the descriptor of shared memory (dup3)"));
            }
        }
        Ok(())
    }
}

/// A sealed file of `len` bytes, allocated.
fn new_file(len: usize, more: MemfdFlags) -> Result<OwnedFd> {
    let on = |error: SysError| error.on(format_args!("{NAME}, {len} bytes"));
    let fd = memfd(NAME, more).tried("create shared memory (memfd_create)").map_err(on)?;
    set_len(&fd, len).tried("size shared memory (ftruncate)").map_err(on)?;
    // Huge pages are not among the memory that is free for others: the kernel reports at once when there are too few.
    let take = if more.contains(MemfdFlags::HUGETLB) { take_pages } else { allocate };
    take(&fd, len).tried("allocate shared memory (fallocate)").map_err(on)?;
    rustix::fs::fcntl_add_seals(&fd, LENGTH_SEALS).tried("seal shared memory (F_ADD_SEALS)").map_err(on)?;
    Ok(fd)
}

fn whole_pages(len: usize, page_bytes: usize) -> Result<usize> {
    const WHAT: &str = "create shared memory";
    match len.checked_next_multiple_of(page_bytes) {
        Some(whole) if len > 0 && whole <= isize::MAX as usize => Ok(whole),
        _ => Err(SysError::new(WHAT, Errno::INVAL)),
    }
}

/// A wish; where the system has no transparent huge pages for shared memory, nothing happens.
fn advise_huge(at: *mut u8, len: usize) {
    // SAFETY: the range is a mapping of ours, and the advice changes no byte of it.
    let _ = unsafe { rustix::mm::madvise(at.cast(), len, Advice::LinuxHugepage) };
}

/// The size of the system's default huge pages, if so many bytes fill one and any of them are free.
fn huge_page_bytes(len_bytes: usize) -> Option<usize> {
    // It stays as long as the system runs. To read the table takes as long as to make several pages.
    static SIZE: OnceLock<usize> = OnceLock::new();
    let read = || fs::read_to_string("/proc/meminfo").ok();
    let size = match SIZE.get() {
        Some(&size) => size,
        None => {
            let size = huge_page_size(&read()?)?;
            *SIZE.get_or_init(|| size)
        }
    };
    (len_bytes >= size && has_free_huge_pages(&read()?)).then_some(size)
}

fn huge_page_size(meminfo: &str) -> Option<usize> {
    let bytes = number_of(meminfo, "Hugepagesize")?.checked_mul(1024);
    bytes.filter(|bytes| bytes.is_power_of_two())
}

fn has_free_huge_pages(meminfo: &str) -> bool {
    number_of(meminfo, "HugePages_Free").is_some_and(|free| free > 0)
}

fn number_of(meminfo: &str, key: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
