use std::io::ErrorKind;

use super::*;

fn dup(memory: &SharedMemory) -> OwnedFd {
    memory.fd().unwrap().try_clone_to_owned().unwrap()
}

#[test]
fn both_mappings_are_the_same_memory() {
    const LEN: usize = 1 << 20;
    let mut made = SharedMemory::create("cci-test", LEN).unwrap();
    let opened = SharedMemory::open(dup(&made), LEN).unwrap();
    made.drop_fd();
    assert!(made.fd().is_none());
    for at in [0, 4_095, 4_096, LEN - 1] {
        // SAFETY: inside both mappings; no other thread touches them.
        unsafe {
            assert_eq!(opened.as_ptr().add(at).read_volatile(), 0);
            made.as_ptr().add(at).write_volatile(7);
            assert_eq!(opened.as_ptr().add(at).read_volatile(), 7);
        }
    }
}

#[test]
fn length_cannot_change_afterwards() {
    let made = SharedMemory::create("cci-test", 8_192).unwrap();
    let fd = dup(&made);
    assert_eq!(rustix::fs::ftruncate(&fd, 4_096), Err(Errno::PERM));
    assert_eq!(rustix::fs::ftruncate(&fd, 16_384), Err(Errno::PERM));
    assert_eq!(rustix::fs::fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
}

#[test]
fn refuses_what_is_not_a_sealed_memfd_of_that_length() {
    let made = SharedMemory::create("cci-test", 8_192).unwrap();
    let wrong_len = SharedMemory::open(dup(&made), 4_096).unwrap_err();
    assert_eq!(wrong_len.kind(), ErrorKind::InvalidData);
    assert!(wrong_len.to_string().contains("8192 bytes where 4096"), "{wrong_len}");

    let some = [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW];
    for seals in some {
        let fd = memfd("cci-test", MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&fd, 8_192).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        assert_eq!(SharedMemory::open(fd, 8_192).unwrap_err().kind(), ErrorKind::InvalidData, "{seals:?}");
    }

    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert_eq!(SharedMemory::open(file.into(), 8_192).unwrap_err().kind(), ErrorKind::InvalidData);
    let (read_end, _write_end) = rustix::pipe::pipe().unwrap();
    assert!(SharedMemory::open(read_end, 8_192).is_err());
}

#[test]
fn impossible_lengths_are_errors() {
    assert!(SharedMemory::create("cci-test", 0).is_err());
    assert!(SharedMemory::create("cci-test", usize::MAX).is_err());
    // More than any machine has: an error now, not a SIGBUS later.
    let full = SharedMemory::create("cci-test", 1 << 46).unwrap_err();
    assert!(matches!(full.errno(), Some(libc::ENOSPC | libc::ENOMEM | libc::EFBIG)), "{full}");
    assert!(SharedMemory::create("nul\0inside", 4_096).is_err());
}

/// Also one whose only hole is a page: what is missing is charged to whoever touches it first.
#[test]
fn a_sparse_file_is_refused_and_stays_sparse() {
    const LEN: usize = 4 << 30;
    for (len, filled) in [(LEN, 0), (1 << 20, (1 << 20) - 4096)] {
        let fd = memfd("cci-test", MemfdFlags::empty()).unwrap();
        rustix::fs::ftruncate(&fd, len as u64).unwrap();
        if filled > 0 {
            rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, filled).unwrap();
        }
        rustix::fs::fcntl_add_seals(&fd, LENGTH_SEALS).unwrap();
        let copy = || fd.try_clone().unwrap();
        let refused = [
            SharedMemory::open(copy(), len).unwrap_err(),
            SharedMemory::open_rma(copy(), len).unwrap_err(),
            SharedMemory::open_read_only(copy(), len).unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
            assert!(error.to_string().contains("sparse"), "{error}");
        }
        assert_eq!(
            rustix::fs::fstat(&fd).unwrap().st_blocks as u64 * BLOCK_BYTES,
            filled,
            "nothing was allocated"
        );
    }
}

#[test]
fn a_fork_child_does_not_inherit_it_and_may_drop_it() {
    let made = SharedMemory::create("cci-test", 8_192).unwrap();
    // SAFETY: the child makes two system calls, drops a value that owns no heap memory, and leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let mut resident = [0; 2];
        // SAFETY: only asks about the range; `resident` has a byte for each of its pages.
        let known = unsafe { libc::mincore(made.as_ptr().as_ptr().cast(), 8_192, resident.as_mut_ptr()) };
        drop(made);
        // SAFETY: ends the child without running the test runner's exit handlers.
        unsafe { libc::_exit(if known == -1 { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "nothing is mapped there in the child");
    // SAFETY: inside the mapping, which the child's drop has left alone.
    unsafe { made.as_ptr().write_volatile(1) };
}
