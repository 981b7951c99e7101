//! `Bytes` against `memcpy`: nanoseconds per copy, by length, with both sides in the cache and with neither.
//!
//! `cargo run --release -p cci-memory --example copies` on an idle machine; rounds of both alternate, and the best counts.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use std::ptr::NonNull;
use std::time::Instant;

use cci_memory::bytes::Bytes;

const AREA_BYTES: usize = 128 << 20;
const PAGE_BYTES: usize = 4096;
const ROUNDS: usize = 15;

type Copy = fn(&Bytes, &Bytes, usize, usize);

#[inline(never)]
fn memcpy(to: &Bytes, from: &Bytes, offset: usize, len: usize) {
    let (to, from) = (to.part(offset, len).unwrap(), from.part(offset, len).unwrap());
    // SAFETY: two areas of at least this length, which only this thread uses.
    unsafe { to.as_ptr().copy_from_nonoverlapping(from.as_ptr(), std::hint::black_box(len)) };
}

#[inline(never)]
fn bytes(to: &Bytes, from: &Bytes, offset: usize, len: usize) {
    assert!(to.copy_from(offset, from, offset, std::hint::black_box(len)));
}

/// Nanoseconds per copy of `len` bytes: again and again the same, or each a page or more further.
fn time(copy: Copy, to: &Bytes, from: &Bytes, len: usize, cold: bool) -> f64 {
    let step = if cold { len.next_multiple_of(PAGE_BYTES) } else { 0 };
    let count = if cold { AREA_BYTES / 2 / step } else { (32 << 20) / len.max(256) };
    copy(to, from, 0, len);
    let start = Instant::now();
    for index in 0..count {
        copy(to, from, index * step, len);
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn main() {
    let mut areas = [vec![1u8; AREA_BYTES + PAGE_BYTES], vec![2u8; AREA_BYTES + PAGE_BYTES]];
    let [to, from] = areas.each_mut().map(|area| {
        let start = area.as_ptr().align_offset(PAGE_BYTES);
        // SAFETY: inside of the vector, which outlives the value and is not used otherwise.
        unsafe { Bytes::new(NonNull::from(&mut area[start]), AREA_BYTES) }
    });
    println!("{:>9} {:>6} {:>12} {:>12} {:>8}", "bytes", "cache", "memcpy ns", "Bytes ns", "ratio");
    for len in [8, 64, 512, 4 << 10, 64 << 10, 1 << 20, 4 << 20] {
        for cold in [false, true] {
            let mut best = [f64::MAX; 2];
            for _ in 0..ROUNDS {
                for (best, copy) in best.iter_mut().zip([memcpy as Copy, bytes]) {
                    *best = best.min(time(copy, &to, &from, len, cold));
                }
            }
            let [theirs, ours] = best;
            let cache = if cold { "cold" } else { "warm" };
            println!("{len:>9} {cache:>6} {theirs:>12.1} {ours:>12.1} {:>8.2}", theirs / ours);
        }
    }
}
