//! An allocator that fails when it is asked to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// From so many bytes on an allocation that fails is an error of the library's, never an abort. What is smaller is
/// fixed in size, or one entry of something, and Rust's own rule holds: see docs/reliability.md.
pub const LARGE_BYTES: usize = 32 << 10;

struct Failing;

thread_local! {
    /// Large allocations of this thread so far, and which of them fails: 0 for none.
    static COUNT: Cell<u64> = const { Cell::new(0) };
    static FAILS: Cell<u64> = const { Cell::new(0) };
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

/// The `number`th large allocation of this thread from now on fails. 0: none does.
pub fn fail(number: u64) {
    if number > 0 {
        COUNT.set(0);
        FAILED.set(false);
    }
    FAILS.set(number);
}

/// Whether the one that was to fail did.
pub fn has_failed() -> bool {
    FAILED.get()
}

fn fails(bytes: usize) -> bool {
    if bytes < LARGE_BYTES || FAILS.try_with(Cell::get).unwrap_or(0) == 0 {
        return false;
    }
    let count = COUNT.get() + 1;
    COUNT.set(count);
    let fails = count == FAILS.get();
    FAILED.set(FAILED.get() || fails);
    if fails && std::env::var_os("CCI_EXHAUSTION_TRACE").is_some() {
        let number = FAILS.replace(0);
        println!(
            "allocation {number} of {bytes} bytes fails:\n{}",
            std::backtrace::Backtrace::force_capture()
        );
        FAILS.set(number);
    }
    fails
}

// SAFETY: what is small goes to the system's allocator unchanged; what is large is whole pages of its own, mapped and unmapped
// here with the same length, aligned to a page, which is as much as anybody asks for (asserted).
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE_BYTES {
            return if fails(layout.size()) { std::ptr::null_mut() } else { map(layout) };
        }
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE_BYTES {
            // SAFETY: as asked for; what is mapped anew is zeros.
            return unsafe { self.alloc(layout) };
        }
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.size().max(bytes) < LARGE_BYTES {
            // SAFETY: the caller's promise is the one asked for.
            return unsafe { System.realloc(at, layout, bytes) };
        }
        // SAFETY: a layout of the same alignment, as the caller promises; both are at least so long, and do not overlap.
        unsafe {
            let grown = Layout::from_size_align_unchecked(bytes, layout.align());
            let new = self.alloc(grown);
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(at, new, layout.size().min(bytes));
                self.dealloc(at, layout);
            }
            new
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if layout.size() >= LARGE_BYTES {
            // SAFETY: mapped by `map` with this length, and not used any more.
            unsafe { libc::munmap(at.cast(), layout.size()) };
            return;
        }
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Memory that the limit of the address space counts to the page, wherever the C library would have found some.
fn map(layout: Layout) -> *mut u8 {
    assert!(layout.align() <= 4096, "{layout:?}");
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel likes touches no memory that exists.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), layout.size(), rights, kind, -1, 0) };
    if at == libc::MAP_FAILED { std::ptr::null_mut() } else { at.cast() }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;
