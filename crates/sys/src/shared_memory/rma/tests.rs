use std::io::ErrorKind;
use std::os::fd::AsFd;

use rustix::fs::SealFlags;

use super::*;

fn dup(memory: &SharedMemory) -> OwnedFd {
    memory.fd().unwrap().as_fd().try_clone_to_owned().unwrap()
}

fn byte(memory: &SharedMemory, at: usize) -> u8 {
    let mut out = [0];
    assert!(memory.bytes().read(at, &mut out));
    out[0]
}

#[test]
fn memory_comes_in_whole_zeroed_pages_and_peers_map_it() {
    let made = SharedMemory::create_for_rma(5000).unwrap();
    assert_eq!(made.len(), 5000usize.next_multiple_of(rustix::param::page_size()));
    assert_eq!((made.page_bytes(), made.is_huge()), (rustix::param::page_size(), false));
    let theirs = SharedMemory::open_rma(dup(&made), made.len()).unwrap();
    assert!((0..made.len()).all(|at| byte(&theirs, at) == 0));
    assert!(theirs.bytes().write(4321, b"hello"));
    assert_eq!(byte(&made, 4321), b'h');
    assert!(SharedMemory::create_for_rma(0).is_err() && SharedMemory::create_for_rma(usize::MAX).is_err());
}

#[test]
fn memory_lies_where_it_is_wanted_or_not_at_all() {
    let free = SharedMemory::create_for_rma(3 * rustix::param::page_size()).unwrap();
    let address = NonZeroUsize::new(free.as_ptr().addr().get()).unwrap();
    let taken = SharedMemory::create_for_rma_at(5_000, address).unwrap_err();
    assert_eq!(taken.errno(), Some(libc::EEXIST), "{taken}");
    drop(free);
    // Another thread may take the address first.
    match SharedMemory::create_for_rma_at(5_000, address) {
        Ok(made) => {
            assert_eq!(
                (made.as_ptr().addr(), made.len()),
                (address, 5_000_usize.next_multiple_of(rustix::param::page_size()))
            );
            assert_eq!(byte(&made, 4_999), 0);
        }
        Err(error) => assert_eq!(error.errno(), Some(libc::EEXIST), "{error}"),
    }
    let crooked = SharedMemory::create_for_rma_at(1, address.checked_add(1).unwrap()).unwrap_err();
    assert_eq!(crooked.errno(), Some(libc::EINVAL));
}

/// On a machine without huge pages too: that is the point.
#[test]
fn large_memory_is_made_with_or_without_huge_pages() {
    let huge = huge_page_bytes(usize::MAX);
    let made = SharedMemory::create_for_rma(5 << 20).unwrap();
    match made.is_huge() {
        true => assert!(made.len().is_multiple_of(huge.unwrap()) && made.page_bytes() == huge.unwrap()),
        false => assert_eq!(made.len(), 5 << 20),
    }
    assert!(made.bytes().fill(0, made.len(), 3));
    let theirs = SharedMemory::open_rma(dup(&made), made.len()).unwrap();
    assert_eq!(byte(&theirs, made.len() - 1), 3);
    assert!(!SharedMemory::create_for_rma_small(5 << 20).unwrap().is_huge());
}

/// Files of huge pages can be made where no page is free for them: what they are is seen, and that they can't be filled.
#[test]
fn a_file_of_huge_pages_without_pages_is_an_error_and_no_sigbus() {
    const LEN: usize = 1 << 40;
    let Ok(fd) = memfd("cci-test", MemfdFlags::HUGETLB) else { return };
    rustix::fs::ftruncate(&fd, LEN as u64).unwrap();
    rustix::fs::fcntl_add_seals(&fd, LENGTH_SEALS).unwrap();
    assert!(rustix::fs::fstatfs(&fd).unwrap().f_bsize as usize > rustix::param::page_size());
    let sparse = SharedMemory::open_rma(fd, LEN).unwrap_err();
    assert!(sparse.to_string().contains("sparse"), "no memfd like others, but one: {sparse}");
    let full = SharedMemory::create_huge(LEN, 2 << 20).unwrap_err();
    assert!(matches!(full.errno(), Some(libc::ENOSPC | libc::ENOMEM)), "{full}");
}

#[test]
fn free_huge_pages_are_read_from_the_kernels_table() {
    let table = |free| format!("MemFree: 3 kB\nHugePages_Free:    {free}\nHugepagesize:       2048 kB\n");
    assert_eq!([4, 0].map(|free| huge_page_size(&table(free))), [Some(2 << 20); 2]);
    assert_eq!([4, 0].map(|free| has_free_huge_pages(&table(free))), [true, false]);
    let none = ["", "HugePages_Free: x\nHugepagesize: 0 kB"];
    assert!(none.iter().all(|table| huge_page_size(table).is_none() && !has_free_huge_pages(table)));
    assert_eq!(huge_page_bytes(4096), None, "no system has huge pages of this size");
}

#[test]
fn what_is_not_sealed_or_not_that_long_is_refused() {
    let made = SharedMemory::create_for_rma(8192).unwrap();
    assert_eq!(SharedMemory::open_rma(dup(&made), 4096).unwrap_err().kind(), ErrorKind::InvalidData);
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW] {
        let fd = memfd("cci-test", MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&fd, 8192).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        assert_eq!(SharedMemory::open_rma(fd, 8192).unwrap_err().kind(), ErrorKind::InvalidData, "{seals:?}");
    }
}

#[test]
fn after_detach_the_old_pages_are_the_peers_alone() {
    let made = SharedMemory::create_for_rma(3 << 20).unwrap();
    let theirs = SharedMemory::open_rma(dup(&made), made.len()).unwrap();
    let (at, number) = (made.as_ptr(), made.fd().unwrap().as_raw_fd());
    for (index, value) in [(0, 1), (4096, 2), (made.len() - 1, 3)] {
        assert!(made.bytes().write(index, &[value]));
    }
    made.detach().unwrap();
    assert_eq!((made.as_ptr(), made.fd().unwrap().as_raw_fd()), (at, number));
    assert_eq!([0, 4096, made.len() - 1].map(|index| byte(&made, index)), [1, 2, 3], "the content stays");

    assert!(theirs.bytes().fill(0, theirs.len(), 9));
    assert_eq!([0, 4096, made.len() - 1].map(|index| byte(&made, index)), [1, 2, 3], "out of their reach");
    assert!(made.bytes().write(0, &[7]));
    assert_eq!(byte(&theirs, 0), 9, "and out of their sight");

    let granted = SharedMemory::open_rma(dup(&made), made.len()).unwrap();
    assert!(granted.bytes().write(5, &[5]));
    assert_eq!((byte(&granted, 0), byte(&made, 5)), (7, 5), "later grants are of the new memory");
    made.detach().unwrap();
    assert_eq!((byte(&made, 0), byte(&made, 5)), (7, 5), "and again");
}

/// Other threads read on while the pages are replaced: nothing faults, and what they read is old or new, which is equal.
#[test]
fn readers_do_not_notice_a_detach() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let made = SharedMemory::create_for_rma(1 << 20).unwrap();
    assert!(made.bytes().fill(0, made.len(), 0x5A));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = vec![0; 1 << 16];
            while !done.load(Ordering::Relaxed) {
                for at in (0..made.len()).step_by(out.len()) {
                    assert!(made.bytes().read(at, &mut out));
                    assert!(out.iter().all(|&byte| byte == 0x5A));
                }
            }
        });
        for _ in 0..100 {
            made.detach().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_fork_child_gets_nothing_of_it_after_a_detach_either() {
    let made = SharedMemory::create_for_rma(8192).unwrap();
    made.detach().unwrap();
    // SAFETY: the child makes a system call and leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let mut resident = [0; 2];
        // SAFETY: only asks about the range; `resident` has a byte for each of its pages.
        let known = unsafe { libc::mincore(made.as_ptr().as_ptr().cast(), 8192, resident.as_mut_ptr()) };
        // SAFETY: ends the child without running the test runner's exit handlers.
        unsafe { libc::_exit(if known == -1 { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_control_page_is_only_its_makers_to_write() {
    let made = SharedMemory::create_read_only_for_others(4096).unwrap();
    let fd = dup(&made);
    let theirs = SharedMemory::open_read_only(dup(&made), 4096).unwrap();
    assert!(made.bytes().write(8, &0x1234u64.to_ne_bytes()), "ours to write, still");
    assert_eq!((theirs.load(8), theirs.len()), (Ok(0x1234), 4096));
    assert!(theirs.load(9).is_err() && theirs.load(4096).is_err() && !theirs.read(4096, &mut [0]));

    assert_eq!(SharedMemory::open(dup(&made), 4096).unwrap_err().errno(), Some(libc::EPERM));
    assert_eq!(SharedMemory::open_rma(dup(&made), 4096).unwrap_err().errno(), Some(libc::EPERM));
    assert!(rustix::io::pwrite(&fd, b"x", 0).is_err());
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&fd, hole, 0, 4096), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::PERM));
    assert_eq!(theirs.load(8), Ok(0x1234));
    assert_eq!(SharedMemory::open_read_only(dup(&made), 8192).unwrap_err().kind(), ErrorKind::InvalidData);
    assert!(SharedMemory::open_read_only(std::fs::File::open("/dev/null").unwrap().into(), 4096).is_err());
}
