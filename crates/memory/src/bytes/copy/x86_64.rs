//! Copies by SSE2, which every such processor has, and by AVX2 for what is long, where it is there.

use core::arch::asm;

/// From here on the loop by 32-byte registers is worth asking whether the processor has them.
const AVX_BYTES: usize = 129;
/// From here on `rep movsb` is worth its start, where the processor says that it is fast and both sides lie alike.
const STRING_BYTES: usize = 32 << 10;

/// # Safety
///
/// See [`super::copy`].
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise, and the range of each arm.
    unsafe {
        match len {
            8..=16 => by_8(from, to, len),
            17..=32 => by_16(from, to, len),
            4..=7 => by_4(from, to, len),
            33..=64 => by_32(from, to, len),
            0 => {}
            1..=3 => by_1(from, to, len),
            _ => long(from, to, len),
        }
    }
}

/// # Safety
///
/// See [`super::copy_slice`].
#[inline(always)]
pub(super) unsafe fn copy_slice(from: &[u8], to: *mut u8) {
    // SAFETY: the caller's promise, and the slice's.
    unsafe { copy(from.as_ptr(), to, from.len()) }
}

/// # Safety
///
/// See [`super::many`].
#[inline(always)]
pub(super) unsafe fn many(blocks: impl Iterator<Item = (*const u8, *mut u8, usize)>) {
    // SAFETY: the caller's promise; the processor was asked for AVX2.
    unsafe {
        if std::is_x86_feature_detected!("avx2") {
            many_avx2(blocks);
        } else {
            blocks.for_each(|(from, to, len)| copy(from, to, len));
        }
    }
}

/// # Safety
///
/// The processor has AVX2; else as [`super::many`].
#[target_feature(enable = "avx2")]
unsafe fn many_avx2(blocks: impl Iterator<Item = (*const u8, *mut u8, usize)>) {
    for (from, to, len) in blocks {
        // SAFETY: the caller's promise, and the range of each arm.
        unsafe {
            match len {
                33..=64 => by_32_avx2(from, to, len),
                17..=32 => by_16_avx2(from, to, len),
                65..=128 => by_64_avx2(from, to, len),
                _ => copy(from, to, len),
            }
        }
    }
}

/// # Safety
///
/// See [`super::whole`].
#[inline(always)]
pub(super) unsafe fn whole<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: one load and one store of the `N` bytes that the caller has promised.
    unsafe {
        match N {
            1 => asm!("movzx {a:e}, byte ptr [{from}]", "mov byte ptr [{to}], {a:l}",
                from = in(reg) from, to = in(reg) to, a = out(reg) _, options(nostack, preserves_flags)),
            2 => asm!("movzx {a:e}, word ptr [{from}]", "mov word ptr [{to}], {a:x}",
                from = in(reg) from, to = in(reg) to, a = out(reg) _, options(nostack, preserves_flags)),
            4 => asm!("mov {a:e}, dword ptr [{from}]", "mov dword ptr [{to}], {a:e}",
                from = in(reg) from, to = in(reg) to, a = out(reg) _, options(nostack, preserves_flags)),
            8 => asm!("mov {a}, qword ptr [{from}]", "mov qword ptr [{to}], {a}",
                from = in(reg) from, to = in(reg) to, a = out(reg) _, options(nostack, preserves_flags)),
            16 => asm!("movups {a}, xmmword ptr [{from}]", "movups xmmword ptr [{to}], {a}",
                from = in(reg) from, to = in(reg) to, a = out(xmm_reg) _, options(nostack, preserves_flags)),
            _ => copy(from, to, N),
        }
    }
}

/// Four loads, each with its store, at multiples of the two strides.
macro_rules! four_blocks {
    ($mov:literal, $of:literal, $word:literal, $class:ident, $from:expr, $from_stride:expr, $to:expr, $to_stride:expr) => {
        asm!(
            concat!($mov, " ", $word, ", ", $of, " ptr [{from}]"),
            concat!($mov, " ", $of, " ptr [{to}], ", $word),
            concat!($mov, " ", $word, ", ", $of, " ptr [{from} + {from_1}]"),
            concat!($mov, " ", $of, " ptr [{to} + {to_1}], ", $word),
            concat!($mov, " ", $word, ", ", $of, " ptr [{from} + 2 * {from_1}]"),
            concat!($mov, " ", $of, " ptr [{to} + 2 * {to_1}], ", $word),
            concat!($mov, " ", $word, ", ", $of, " ptr [{from} + {from_3}]"),
            concat!($mov, " ", $of, " ptr [{to} + {to_3}], ", $word),
            from = in(reg) $from, from_1 = in(reg) $from_stride, from_3 = in(reg) $from_stride.wrapping_mul(3),
            to = in(reg) $to, to_1 = in(reg) $to_stride, to_3 = in(reg) $to_stride.wrapping_mul(3),
            word = out($class) _, options(nostack, preserves_flags),
        )
    };
}

/// # Safety
///
/// See [`super::four`].
#[inline(always)]
pub(super) unsafe fn four<const N: usize>(
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: isize,
) {
    // SAFETY: four times one load and one store of the `N` bytes that the caller has promised.
    unsafe {
        match N {
            4 => four_blocks!("mov", "dword", "{word:e}", reg, from, from_stride, to, to_stride),
            8 => four_blocks!("mov", "qword", "{word}", reg, from, from_stride, to, to_stride),
            16 => four_blocks!("movups", "xmmword", "{word}", xmm_reg, from, from_stride, to, to_stride),
            _ => {
                for at in 0..4_isize {
                    let (from_at, to_at) = (from_stride.wrapping_mul(at), to_stride.wrapping_mul(at));
                    copy(from.wrapping_offset(from_at), to.wrapping_offset(to_at), N);
                }
            }
        }
    }
}

// Each of these loads all that it copies before it stores any of it, so overlap does not matter. The second part ends
// where the bytes do and may lie over the first.

/// # Safety
///
/// `len` is 1 to 3; else as [`super::copy`].
#[inline(always)]
unsafe fn by_1(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the first, middle and last byte.
    unsafe {
        asm!(
            "movzx {a:e}, byte ptr [{from}]",
            "movzx {b:e}, byte ptr [{from} + {half}]",
            "movzx {c:e}, byte ptr [{from} + {len} - 1]",
            "mov byte ptr [{to}], {a:l}",
            "mov byte ptr [{to} + {half}], {b:l}",
            "mov byte ptr [{to} + {len} - 1], {c:l}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len, half = in(reg) len / 2,
            a = out(reg) _, b = out(reg) _, c = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 4 to 8; else as [`super::copy`].
#[inline(always)]
unsafe fn by_4(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two parts of 4 bytes that `len` holds.
    unsafe {
        asm!(
            "mov {a:e}, dword ptr [{from}]",
            "mov {b:e}, dword ptr [{from} + {len} - 4]",
            "mov dword ptr [{to}], {a:e}",
            "mov dword ptr [{to} + {len} - 4], {b:e}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len, a = out(reg) _, b = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 8 to 16; else as [`super::copy`].
#[inline(always)]
unsafe fn by_8(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two parts of 8 bytes that `len` holds.
    unsafe {
        asm!(
            "mov {a}, qword ptr [{from}]",
            "mov {b}, qword ptr [{from} + {len} - 8]",
            "mov qword ptr [{to}], {a}",
            "mov qword ptr [{to} + {len} - 8], {b}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len, a = out(reg) _, b = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 16 to 32; else as [`super::copy`].
#[inline(always)]
unsafe fn by_16(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two parts of 16 bytes that `len` holds.
    unsafe {
        asm!(
            "movups {a}, xmmword ptr [{from}]",
            "movups {b}, xmmword ptr [{from} + {len} - 16]",
            "movups xmmword ptr [{to}], {a}",
            "movups xmmword ptr [{to} + {len} - 16], {b}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len, a = out(xmm_reg) _, b = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 32 to 64; else as [`super::copy`].
#[inline(always)]
unsafe fn by_32(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two parts of 32 bytes that `len` holds.
    unsafe {
        asm!(
            "movups {a}, xmmword ptr [{from}]",
            "movups {b}, xmmword ptr [{from} + 16]",
            "movups {c}, xmmword ptr [{from} + {len} - 32]",
            "movups {d}, xmmword ptr [{from} + {len} - 16]",
            "movups xmmword ptr [{to}], {a}",
            "movups xmmword ptr [{to} + 16], {b}",
            "movups xmmword ptr [{to} + {len} - 32], {c}",
            "movups xmmword ptr [{to} + {len} - 16], {d}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 64 to 128; else as [`super::copy`].
#[inline(always)]
unsafe fn by_64(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two parts of 64 bytes that `len` holds.
    unsafe {
        asm!(
            "movups {a}, xmmword ptr [{from}]",
            "movups {b}, xmmword ptr [{from} + 16]",
            "movups {c}, xmmword ptr [{from} + 32]",
            "movups {d}, xmmword ptr [{from} + 48]",
            "movups {e}, xmmword ptr [{from} + {len} - 64]",
            "movups {f}, xmmword ptr [{from} + {len} - 48]",
            "movups {g}, xmmword ptr [{from} + {len} - 32]",
            "movups {h}, xmmword ptr [{from} + {len} - 16]",
            "movups xmmword ptr [{to}], {a}",
            "movups xmmword ptr [{to} + 16], {b}",
            "movups xmmword ptr [{to} + 32], {c}",
            "movups xmmword ptr [{to} + 48], {d}",
            "movups xmmword ptr [{to} + {len} - 64], {e}",
            "movups xmmword ptr [{to} + {len} - 48], {f}",
            "movups xmmword ptr [{to} + {len} - 32], {g}",
            "movups xmmword ptr [{to} + {len} - 16], {h}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
            e = out(xmm_reg) _, f = out(xmm_reg) _, g = out(xmm_reg) _, h = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 16 to 32; else as [`super::copy`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn by_16_avx2(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two parts of 16 bytes that `len` holds.
    unsafe {
        asm!(
            "vmovdqu {a}, xmmword ptr [{from}]",
            "vmovdqu {b}, xmmword ptr [{from} + {len} - 16]",
            "vmovdqu xmmword ptr [{to}], {a}",
            "vmovdqu xmmword ptr [{to} + {len} - 16], {b}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len, a = out(xmm_reg) _, b = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 32 to 64; else as [`super::copy`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn by_32_avx2(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two parts of 32 bytes that `len` holds.
    unsafe {
        asm!(
            "vmovdqu {a}, ymmword ptr [{from}]",
            "vmovdqu {b}, ymmword ptr [{from} + {len} - 32]",
            "vmovdqu ymmword ptr [{to}], {a}",
            "vmovdqu ymmword ptr [{to} + {len} - 32], {b}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len, a = out(ymm_reg) _, b = out(ymm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 64 to 128; else as [`super::copy`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn by_64_avx2(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: two parts of 64 bytes that `len` holds.
    unsafe {
        asm!(
            "vmovdqu {a}, ymmword ptr [{from}]",
            "vmovdqu {b}, ymmword ptr [{from} + 32]",
            "vmovdqu {c}, ymmword ptr [{from} + {len} - 64]",
            "vmovdqu {d}, ymmword ptr [{from} + {len} - 32]",
            "vmovdqu ymmword ptr [{to}], {a}",
            "vmovdqu ymmword ptr [{to} + 32], {b}",
            "vmovdqu ymmword ptr [{to} + {len} - 64], {c}",
            "vmovdqu ymmword ptr [{to} + {len} - 32], {d}",
            from = in(reg) from, to = in(reg) to, len = in(reg) len,
            a = out(ymm_reg) _, b = out(ymm_reg) _, c = out(ymm_reg) _, d = out(ymm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
///
/// `len` is 65 or more; else as [`super::copy`].
#[inline(never)]
unsafe fn long(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise; each way copies those `len` bytes, and has its condition just checked.
    unsafe {
        if len <= 128 {
            by_64(from, to, len);
        } else if to.addr().wrapping_sub(from.addr()) < len {
            backward(from, to, len);
        } else if len >= STRING_BYTES
            && (from.addr() ^ to.addr()).is_multiple_of(64)
            && std::is_x86_feature_detected!("ermsb")
        {
            forward_string(from, to, len);
        } else if len >= AVX_BYTES && std::is_x86_feature_detected!("avx2") {
            forward_avx2(from, to, len);
        } else {
            forward(from, to, len);
        }
    }
}

/// # Safety
///
/// `to` does not lie in `from + 1..from + len`; else as [`super::copy`].
unsafe fn forward(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the parts follow each other and end where the bytes do.
    unsafe {
        let mut done = 0;
        while len - done > 64 {
            by_32(from.add(done), to.add(done), 64);
            done += 64;
        }
        copy(from.add(done), to.add(done), len - done);
    }
}

/// # Safety
///
/// `from` does not lie in `to + 1..to + len`; else as [`super::copy`].
unsafe fn backward(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the parts follow each other downwards, and the last starts where the bytes do.
    unsafe {
        let mut remaining = len;
        while remaining > 64 {
            remaining -= 64;
            by_32(from.add(remaining), to.add(remaining), 64);
        }
        copy(from, to, remaining);
    }
}

/// Head and tail are loaded first and stored last: then what they overlap with, of source or target, does not matter.
///
/// # Safety
///
/// The processor has AVX2, `len` is 129 or more, `to` does not lie in `from + 1..from + len`; else as [`super::copy`].
unsafe fn forward_avx2(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the loop runs from the first aligned address of the target, at most 32 bytes in, while 128 bytes are left;
    // the tail is the last 128 bytes.
    unsafe {
        asm!(
            "vmovdqu ymm4, ymmword ptr [rsi]",
            "vmovdqu ymm5, ymmword ptr [rsi + rcx - 128]",
            "vmovdqu ymm6, ymmword ptr [rsi + rcx - 96]",
            "vmovdqu ymm7, ymmword ptr [rsi + rcx - 64]",
            "vmovdqu ymm8, ymmword ptr [rsi + rcx - 32]",
            "mov r8, rdi",                 // where the head goes
            "lea r9, [rdi + rcx - 128]",   // where the tail goes
            "sub rsi, rdi",                // the source, from here on relative to the target
            "add rdi, 32",
            "and rdi, -32",
            "cmp rdi, r9",
            "jae 3f",
            ".p2align 4",
            "2:",
            "vmovdqu ymm0, ymmword ptr [rdi + rsi]",
            "vmovdqu ymm1, ymmword ptr [rdi + rsi + 32]",
            "vmovdqu ymm2, ymmword ptr [rdi + rsi + 64]",
            "vmovdqu ymm3, ymmword ptr [rdi + rsi + 96]",
            "vmovdqa ymmword ptr [rdi], ymm0",
            "vmovdqa ymmword ptr [rdi + 32], ymm1",
            "vmovdqa ymmword ptr [rdi + 64], ymm2",
            "vmovdqa ymmword ptr [rdi + 96], ymm3",
            "add rdi, 128",
            "cmp rdi, r9",
            "jb 2b",
            "3:",
            "vmovdqu ymmword ptr [r8], ymm4",
            "vmovdqu ymmword ptr [r9], ymm5",
            "vmovdqu ymmword ptr [r9 + 32], ymm6",
            "vmovdqu ymmword ptr [r9 + 64], ymm7",
            "vmovdqu ymmword ptr [r9 + 96], ymm8",
            "vzeroupper",
            inout("rsi") from => _, inout("rdi") to => _, inout("rcx") len => _,
            clobber_abi("sysv64"),
            options(nostack),
        );
    }
}

/// What the processor's microcode makes of one instruction: the best there is for long copies whose two sides lie alike
/// in their cache lines, up to 1.3 times the loop; otherwise some processors crawl.
///
/// # Safety
///
/// As for [`forward`].
unsafe fn forward_string(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `len` bytes from the one to the other; the direction flag is clear between calls, as the ABI has it.
    unsafe {
        asm!("rep movsb", inout("rsi") from => _, inout("rdi") to => _, inout("rcx") len => _,
            options(nostack, preserves_flags));
    }
}

/// # Safety
///
/// See [`super::fill`].
pub(super) unsafe fn fill(to: *mut u8, byte: u8, len: usize) {
    // SAFETY: `len` bytes from `to` on; the direction flag is clear between calls, as the ABI has it.
    unsafe {
        asm!("rep stosb", inout("rdi") to => _, inout("rcx") len => _, in("al") byte,
            options(nostack, preserves_flags));
    }
}

/// Bytes that the processor fetches at once.
const LINE_BYTES: usize = 64;

/// See [`super::fetch_to_read`].
#[inline(always)]
pub(super) fn fetch_to_read(from: *const u8, len: usize) {
    for at in (0..len).step_by(LINE_BYTES) {
        // SAFETY: a hint, which never faults and changes nothing that a program sees, whatever the address.
        unsafe {
            asm!("prefetcht0 [{}]", in(reg) from.wrapping_add(at), options(nostack, preserves_flags, readonly));
        }
    }
}

/// See [`super::fetch_to_write`].
#[inline(always)]
pub(super) fn fetch_to_write(to: *mut u8, len: usize) {
    for at in (0..len).step_by(LINE_BYTES) {
        // SAFETY: a hint, which never faults and changes nothing that a program sees, whatever the address.
        unsafe {
            asm!("prefetchw [{}]", in(reg) to.wrapping_add(at), options(nostack, preserves_flags, readonly));
        }
    }
}
