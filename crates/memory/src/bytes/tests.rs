use std::cell::UnsafeCell;
use std::sync::Arc;
use std::thread;

use super::*;

/// Memory that everybody may write to, aligned to a line.
#[repr(align(64))]
struct Shared<const N: usize>(UnsafeCell<[u8; N]>);
// SAFETY: only reached by `Bytes`.
unsafe impl<const N: usize> Sync for Shared<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Send for Shared<N> {}

impl<const N: usize> Shared<N> {
    fn new() -> Shared<N> {
        Shared(UnsafeCell::new([0; N]))
    }
}

impl<const N: usize> Backing for Shared<N> {
    fn bytes(&self) -> Bytes {
        // SAFETY: the tests keep the value as long as they use it, and reach its bytes by `Bytes` only.
        unsafe { Bytes::new(NonNull::new(self.0.get().cast()).unwrap(), N) }
    }
}

/// Distinct for neighbours and not of any period that a copy by pieces has.
fn pattern(at: usize) -> u8 {
    (at * 7 + at / 251 + 1) as u8
}

fn all<const N: usize>(memory: &Shared<N>) -> Vec<u8> {
    let mut out = vec![0; N];
    assert!(memory.bytes().read(0, &mut out));
    out
}

/// Around every limit between two ways of copying; miri has only one, and little time.
#[cfg(miri)]
const LENGTHS: &[usize] = &[0, 1, 9, 30];
#[cfg(not(miri))]
const LENGTHS: &[usize] = &[
    0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 130, 159, 160, 161, 191,
    255, 256, 257, 300, 511, 512, 1000,
];

#[test]
fn every_length_at_every_alignment_and_nothing_beside_it() {
    const N: usize = if cfg!(miri) { 100 } else { 1200 };
    let memory = Shared::<N>::new();
    let step = if cfg!(miri) { 11 } else { 1 };
    for &len in LENGTHS {
        let data: Vec<u8> = (0..len).map(pattern).collect();
        for offset in (0..66).step_by(step) {
            assert!(memory.bytes().fill(0, N, 0xEE));
            assert!(memory.bytes().write(offset, &data));
            let seen = all(&memory);
            assert_eq!(seen[offset..offset + len], data, "{len} at {offset}");
            assert!(
                seen[..offset].iter().chain(&seen[offset + len..]).all(|&byte| byte == 0xEE),
                "{len} at {offset}"
            );
            let mut out = vec![0xDD; len + 2];
            assert!(memory.bytes().read(offset, &mut out[1..=len]));
            assert_eq!((out[0], out[len + 1]), (0xDD, 0xDD));
            assert_eq!(out[1..=len], data);
        }
    }
}

#[test]
fn pieces_are_copied_as_all_else_and_fetched_ahead_in_range_only() {
    const N: usize = 6000;
    let memory = Shared::<N>::new();
    for len in [0, 1, 1023, 1024, 1408, 4096, 4097, N] {
        let data: Vec<u8> = (0..len).map(pattern).collect();
        // The first place, and the last one, behind which no piece is.
        for offset in [0, N - len] {
            assert!(memory.bytes().fill(0, N, 0xEE));
            assert!(memory.bytes().write_piece(offset, &data));
            let seen = all(&memory);
            assert_eq!(seen[offset..offset + len], data, "{len} at {offset}");
            assert!(seen[..offset].iter().chain(&seen[offset + len..]).all(|&byte| byte == 0xEE));
            let mut out = vec![0xDD; len];
            assert!(memory.bytes().read_piece(offset, &mut out));
            assert_eq!(out, data);
        }
        let mut out = vec![0xDD; len];
        for offset in [N - len + 1, usize::MAX - len / 2, usize::MAX] {
            assert!(!memory.bytes().write_piece(offset, &data), "{len} at {offset}");
            assert!(!memory.bytes().read_piece(offset, &mut out), "{len} at {offset}");
        }
        assert!(out.iter().all(|&byte| byte == 0xDD));
    }
    let end = memory.bytes().as_ptr().as_ptr().wrapping_add(N);
    for (offset, len, ahead) in
        [(0, 1408, Some(2816)), (1776, 1408, Some(4592)), (1777, 1408, None), (0, 1023, None)]
    {
        let found = memory.bytes().ahead(offset, len).map(|at| end.addr() - at.as_ptr().addr());
        assert_eq!(found, ahead.map(|at| N - at), "{len} at {offset}");
    }
}

#[test]
fn overlap_is_as_with_memmove() {
    const N: usize = if cfg!(miri) { 200 } else { 1400 };
    let memory = Shared::<N>::new();
    let start: Vec<u8> = (0..N).map(pattern).collect();
    let step = if cfg!(miri) { 13 } else { 1 };
    let from = if cfg!(miri) { 60 } else { 150 };
    for &len in LENGTHS {
        for to in (0..2 * from).step_by(step) {
            assert!(memory.bytes().write(0, &start));
            assert!(memory.bytes().copy_from(to, &memory.bytes(), from, len));
            let mut expected = start.clone();
            expected.copy_within(from..from + len, to);
            assert_eq!(all(&memory), expected, "{len} to {to}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "long copies, which miri makes by the code of the short ones")]
fn long_copies_with_and_without_overlap() {
    const N: usize = 300_000;
    let memory = Box::new(Shared::<N>::new());
    let start: Vec<u8> = (0..N).map(pattern).collect();
    for len in [4096, 32_767, 32_768, 32_769, 65_536 + 3, 200_000] {
        for (to, from) in
            [(0, 64), (64, 0), (0, 1), (1, 0), (0, 4096), (4096, 0), (13, 77), (90_001, 5), (5, 90_000)]
        {
            assert!(memory.bytes().write(0, &start));
            assert!(memory.bytes().copy_from(to, &memory.bytes(), from, len));
            let mut expected = start.clone();
            expected.copy_within(from..from + len, to);
            assert!(all(&memory) == expected, "{len} bytes from {from} to {to}");
        }
    }
}

#[test]
fn out_of_range_does_nothing() {
    let memory = Shared::<64>::new();
    let bytes = memory.bytes();
    let op = |kind| AtomicOp { kind, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    for (offset, len) in [(0, 65), (64, 1), (65, 0), (1, 64), (usize::MAX, 1), (usize::MAX, 2), (1 << 63, 64)]
    {
        let mut out = vec![9; len];
        assert!(!bytes.read(offset, &mut out));
        assert!(out.iter().all(|&byte| byte == 9));
        assert!(!bytes.write(offset, &out));
        assert!(!bytes.fill(offset, len, 9));
        assert!(!bytes.copy_from(offset, &bytes, 0, len) && !bytes.copy_from(0, &bytes, offset, len));
        assert!(bytes.part(offset, len).is_none());
    }
    for len in [usize::MAX, usize::MAX - 63, 1 << 63] {
        assert!(
            !bytes.fill(1, len, 9) && !bytes.copy_from(1, &bytes, 1, len) && bytes.part(1, len).is_none()
        );
    }
    for offset in [57, 64, usize::MAX, usize::MAX - 7] {
        assert_eq!(bytes.atomic(offset, op(AtomicKind::Add)), Err(AtomicRefusal::OutOfRange));
    }
    assert_eq!(all(&memory), [0; 64]);
    assert!(bytes.write(64, &[]) && bytes.part(64, 0).is_some_and(|part| part.is_empty()));
    let part = bytes.part(8, 16).unwrap();
    assert!(part.write(15, &[1]) && !part.write(16, &[1]));
    assert_eq!(part.atomic(16, op(AtomicKind::Add)), Err(AtomicRefusal::OutOfRange));
}

#[test]
fn atomics_of_both_widths() {
    let memory = Shared::<64>::new();
    let bytes = memory.bytes();
    let run = |offset, kind, width, operand, compare| {
        bytes.atomic(offset, AtomicOp { kind, width, operand, compare })
    };
    let before = 0xFFFF_FFFF_0000_00F0;
    for (kind, operand, compare, after) in [
        (AtomicKind::Load, 5, 0, before),
        (AtomicKind::Add, 1 << 32, 0, 0xF0),
        (AtomicKind::Swap, 5, 0, 5),
        (AtomicKind::CompareSwap, 5, before, 5),
        (AtomicKind::CompareSwap, 5, before + 1, before),
        (AtomicKind::And, 0x30, 0, 0x30),
        (AtomicKind::Or, 0xF, 0, before | 0xF),
        (AtomicKind::Xor, u64::MAX, 0, !before),
    ] {
        run(8, AtomicKind::Swap, AtomicWidth::Eight, before, 0).unwrap();
        assert_eq!(run(8, kind, AtomicWidth::Eight, operand, compare), Ok(before), "{kind:?}");
        assert_eq!(run(8, AtomicKind::Load, AtomicWidth::Eight, 0, 0), Ok(after), "{kind:?}");
        // Four bytes: the same on the low half, and the neighbour stays.
        let low = |value: u64| value & 0xFFFF_FFFF;
        run(20, AtomicKind::Swap, AtomicWidth::Four, before, 0).unwrap();
        assert_eq!(run(20, kind, AtomicWidth::Four, operand, compare), Ok(low(before)), "{kind:?}");
        let expected = match (kind, operand == 1 << 32) {
            (AtomicKind::Add, true) => low(before),
            _ => low(after),
        };
        assert_eq!(run(20, AtomicKind::Load, AtomicWidth::Four, 0, 0), Ok(expected), "{kind:?}");
    }
    // miri breaks down on words that become bytes.
    let seen = if cfg!(miri) { vec![0; 64] } else { all(&memory) };
    assert!(seen[..8].iter().chain(&seen[16..20]).chain(&seen[24..]).all(|&byte| byte == 0));
    for offset in [1, 2, 4, 7] {
        assert_eq!(run(offset, AtomicKind::Add, AtomicWidth::Eight, 1, 0), Err(AtomicRefusal::Misaligned));
    }
    assert_eq!(run(2, AtomicKind::Add, AtomicWidth::Four, 1, 0), Err(AtomicRefusal::Misaligned));
    // By address: an odd base makes odd offsets good.
    let odd = bytes.part(4, 32).unwrap();
    let add = AtomicOp { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    assert_eq!(odd.atomic(0, add), Err(AtomicRefusal::Misaligned));
    assert!(odd.atomic(4, add).is_ok());
}

#[test]
fn a_word_is_found_where_there_is_one() {
    let memory = Shared::<64>::new();
    let bytes = memory.bytes();
    let swap = AtomicOp { kind: AtomicKind::Swap, width: AtomicWidth::Eight, operand: 7, compare: 0 };
    let (first, last) = (bytes.word(0).unwrap(), bytes.word(56).unwrap());
    assert_eq!(bytes.atomic(56, swap), Ok(0));
    assert_eq!((first.load(), last.load()), (0, 7));
    for (offset, refusal) in [
        (57, AtomicRefusal::OutOfRange),
        (usize::MAX, AtomicRefusal::OutOfRange),
        (4, AtomicRefusal::Misaligned),
    ] {
        assert_eq!(bytes.word(offset).err(), Some(refusal), "{offset}");
    }
    // By address, as for operations on it.
    let odd = bytes.part(4, 32).unwrap();
    assert_eq!((odd.word(0).err(), odd.word(4).map(Word::load)), (Some(AtomicRefusal::Misaligned), Ok(0)));
}

#[test]
fn many_threads_count_right_on_one_word() {
    const EACH: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let memory = Arc::new(Shared::<64>::new());
    let threads: Vec<_> = (0..4)
        .map(|index| {
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                let width = if index % 2 == 0 { AtomicWidth::Eight } else { AtomicWidth::Four };
                let offset = if index % 2 == 0 { 8 } else { 16 };
                for _ in 0..EACH {
                    let op = AtomicOp { kind: AtomicKind::Add, width, operand: 1, compare: 0 };
                    memory.bytes().atomic(offset, op).unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let load = AtomicOp { kind: AtomicKind::Load, width: AtomicWidth::Eight, operand: 0, compare: 0 };
    assert_eq!(memory.bytes().atomic(8, load), Ok(2 * EACH));
    assert_eq!(memory.bytes().atomic(16, load), Ok(2 * EACH));
}

/// Racing copies are no undefined behaviour (miri looks, at bytes) and aligned words of 8 bytes move whole.
#[test]
fn racing_copies_of_a_word_never_tear() {
    const EACH: usize = if cfg!(miri) { 100 } else { 100_000 };
    let memory = Arc::new(Shared::<64>::new());
    let writer = {
        let memory = Arc::clone(&memory);
        thread::spawn(move || {
            #[repr(align(8))]
            struct Word([u8; 8]);
            for round in 0..EACH {
                assert!(memory.bytes().write(8, &Word([round as u8; 8]).0));
            }
        })
    };
    let own = Shared::<8>::new();
    for _ in 0..EACH {
        assert!(own.bytes().copy_from(0, &memory.bytes(), 8, 8));
        let word = all(&own);
        assert!(cfg!(miri) || word.iter().all(|&byte| byte == word[0]), "{word:?}");
    }
    writer.join().unwrap();
}

#[test]
fn foreign_memory_is_what_the_program_lent() {
    let mut block = [0u64; 4];
    {
        // SAFETY: `block` outlives the value and is not looked at meanwhile.
        let lent: Arc<dyn Backing> = Arc::new(unsafe { Foreign::new(NonNull::from(&mut block).cast(), 32) });
        assert!(lent.bytes().write(8, &7u64.to_ne_bytes()) && !lent.bytes().write(25, &[0; 8]));
    }
    assert_eq!(block, [0, 7, 0, 0]);
}

#[test]
fn owned_memory_is_reached_and_freed() {
    let lent = Foreign::owned(vec![5; 100].into_boxed_slice());
    let (bytes, mut out) = (lent.bytes(), [0; 100]);
    assert!(bytes.write(99, &[6]) && bytes.read(0, &mut out));
    assert!(out[..99] == [5; 99] && out[99] == 6 && bytes.len() == 100);
    let given_back = Foreign::owned(vec![7; 3].into_boxed_slice());
    assert!(given_back.bytes().write(1, &[8]));
    assert_eq!(given_back.into_owned().as_deref(), Some(&[7, 8, 7][..]));
    // miri sees whether it is freed, and freed once.
    std::thread::spawn(move || drop(lent)).join().unwrap();
}

/// The code for other processors, compared on this one.
#[test]
fn portable_copies_agree() {
    let start: Vec<u8> = (0..200).map(pattern).collect();
    for len in [0, 1, 7, 8, 9, 24, 25, 64, 99] {
        for (to, from) in [(0, 8), (8, 0), (3, 3), (3, 11), (11, 3), (5, 0), (0, 5), (1, 2), (2, 1), (100, 3)]
        {
            let mut block = start.clone();
            let base = block.as_mut_ptr();
            // SAFETY: both ranges lie in the block.
            unsafe { copy::portable::copy(base.add(from), base.add(to), len) };
            let mut expected = start.clone();
            expected.copy_within(from..from + len, to);
            assert_eq!(block, expected, "{len} from {from} to {to}");
        }
    }
    for offset in [0, 3, 8] {
        let mut block = [0; 100];
        // SAFETY: inside of the block.
        unsafe { copy::portable::copy_slice(&start[offset..90], block.as_mut_ptr().add(offset)) };
        assert_eq!(block[offset..90], start[offset..90]);
    }
    let mut block = [1; 10];
    // SAFETY: inside of the block.
    unsafe { copy::portable::fill(block.as_mut_ptr().add(2), 7, 3) };
    assert_eq!(block, [1, 1, 7, 7, 7, 1, 1, 1, 1, 1]);
}
