//! An allocator that looks into every block that is given back, for secrets that somebody has left there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Keys of this test. Each begins with [`MARK`] and its number.
pub const KEYS: usize = 40;
/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// What each key begins with. Nothing else in this process does.
const MARK: [u8; 4] = [0xc5, 0x1a, 0x9e, 0x77];
/// The key in hexadecimal digits, as in the file.
const MARK_HEX: &[u8; 8] = b"c51a9e77";
/// So much of a key is as good as all of it.
const TELLING_BYTES: usize = 16;

/// Key `number`, which is not kept anywhere.
pub const fn key(number: usize) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let mut at = 0;
    while at < KEY_BYTES {
        key[at] = match at {
            0..4 => MARK[at],
            4 => number as u8,
            _ => (number as u8).wrapping_mul(31).wrapping_add((at as u8).wrapping_mul(57)),
        };
        at += 1;
    }
    key
}

static LOOKS: AtomicBool = AtomicBool::new(false);
static BLOCKS: AtomicU64 = AtomicU64::new(0);
/// A bit for each key that was found in a block that was given back: as bytes, or as digits.
static FOUND: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// From now on blocks are looked into.
pub fn look() {
    LOOKS.store(true, Ordering::SeqCst);
}

/// A bit for each key that was found as bytes, and for each as digits; and in how many blocks it was looked for them.
pub fn found() -> ([u64; 2], u64) {
    LOOKS.store(false, Ordering::SeqCst);
    let of = |at: usize| FOUND[at].load(Ordering::SeqCst);
    ([of(0), of(1)], BLOCKS.load(Ordering::SeqCst))
}

fn digit(half: u8) -> u8 {
    if half < 10 { b'0' + half } else { b'a' + half - 10 }
}

/// The number of the key that these bytes are.
fn named(bytes: &[u8]) -> Option<usize> {
    let number = usize::from(*bytes.get(MARK.len())?);
    (number < KEYS && bytes.get(..TELLING_BYTES)? == &key(number)[..TELLING_BYTES]).then_some(number)
}

/// The number of the key that these digits are.
fn named_in_digits(text: &[u8]) -> Option<usize> {
    (0..KEYS).find(|number| {
        let key = key(*number);
        let digits = key[..TELLING_BYTES].iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
        text.len() >= 2 * TELLING_BYTES && digits.zip(text).all(|(digit, found)| digit == *found)
    })
}

fn search(block: &[u8]) {
    BLOCKS.fetch_add(1, Ordering::Relaxed);
    let mut at = 0;
    while let Some(rest) = block.get(at..) {
        // The rare first bytes first: this runs for every byte that is given back.
        let Some(next) = rest.iter().position(|byte| *byte == MARK[0] || *byte == MARK_HEX[0]) else {
            return;
        };
        let Some(package_folder) = rest.get(next..) else { return };
        if package_folder.starts_with(&MARK)
            && let Some(number) = named(package_folder)
        {
            FOUND[0].fetch_or(1 << number, Ordering::Relaxed);
        } else if package_folder.starts_with(MARK_HEX)
            && let Some(number) = named_in_digits(package_folder)
        {
            FOUND[1].fetch_or(1 << number, Ordering::Relaxed);
        }
        at += next + 1;
    }
}

struct Looking;

// SAFETY: everything goes to the system's allocator; blocks are only read before they go back.
unsafe impl GlobalAlloc for Looking {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one asked for. Zeros, so that a block holds nothing of an earlier one.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc_zeroed(layout) }
    }

    /// Always moves: what a block that grows leaves behind is given back, too.
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: a layout of the same alignment, as the caller promises; both are at least so long, and do not overlap.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
            if !new.is_null() {
                std::ptr::copy_nonoverlapping(at, new, layout.size().min(bytes));
                self.dealloc(at, layout);
            }
            new
        }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if LOOKS.load(Ordering::Relaxed) {
            // SAFETY: so long is the block, which was zeroed when it was given out, and nobody else has it any more.
            search(unsafe { std::slice::from_raw_parts(at, layout.size()) });
        }
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Looking = Looking;
