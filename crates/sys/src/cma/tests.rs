use std::ptr::NonNull;

use super::*;

/// Memory of this process that only `Bytes` and system calls reach.
struct Block(Vec<u8>);

impl Block {
    fn bytes(&mut self) -> Bytes {
        // SAFETY: the tests use the value no longer than the block, and the block not while they use the value.
        unsafe { Bytes::new(NonNull::from(self.0.as_mut_slice()).cast(), self.0.len()) }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// A fork child that sleeps, with all the memory that we had; killed and reaped when dropped.
struct Child(u32);

impl Child {
    fn new() -> Child {
        // SAFETY: the child makes system calls only.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            // SAFETY: nothing but waiting; if nobody kills it, it ends by itself.
            unsafe {
                libc::alarm(60);
                loop {
                    libc::pause();
                }
            }
        }
        Child(pid as u32)
    }

    fn end(&self) {
        // SAFETY: our own child, not reaped before.
        unsafe { libc::kill(self.0 as i32, libc::SIGKILL) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
        let mut status = 0;
        // SAFETY: waits for our own child; `status` outlives the call.
        unsafe { libc::waitpid(self.0 as i32, &mut status, 0) };
    }
}

/// Reads all, by as many calls as it takes; answers how many these were.
fn read_all(pid: u32, remote: &[RemoteRange], local: &[Bytes]) -> io::Result<usize> {
    let (mut done, mut calls) = (0, 0);
    loop {
        match read_list(pid, remote, local, done)? {
            0 => return Ok(calls),
            count => (done, calls) = (done + count, calls + 1),
        }
    }
}

#[test]
fn another_processes_memory_is_read_as_it_is_there() {
    let mut source = pattern(100_000);
    let addr = source.as_ptr().addr() as u64;
    let child = Child::new();
    source.fill(0);
    let mut out = Block(vec![0; 100_010]);
    assert_eq!(read_from(child.0, addr + 3, &out.bytes(), 5, 99_990).unwrap(), 99_990);
    assert!(out.0[5..99_995] == pattern(100_000)[3..99_993], "the child's copy, not ours");
    assert!(out.0[..5].iter().chain(&out.0[99_995..]).all(|&byte| byte == 0));
    assert_eq!(read_from(child.0, addr, &out.bytes(), 0, 0).unwrap(), 0);
    let beyond = read_from(child.0, addr, &out.bytes(), 100_000, 11).unwrap_err();
    assert_eq!(beyond.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn lists_of_any_cut_are_read_in_bounded_calls() {
    let source = pattern(3 * CALL_BYTES_MAX + 1000);
    let base = source.as_ptr().addr() as u64;
    let child = Child::new();
    // Remote pieces of 1000 bytes, every other one, in more than a call takes; local ones cut elsewhere.
    let remote: Vec<_> = (0..300).map(|index| RemoteRange { addr: base + index * 2000, len: 1000 }).collect();
    let expected: Vec<u8> = (0..300).flat_map(|index| &source[index * 2000..][..1000]).copied().collect();
    let mut out = Block(vec![0; 300_000]);
    let all = out.bytes();
    let bounds = [0, 1, 1, 4096, 70_001, 299_999, 300_000];
    let local: Vec<_> =
        bounds.windows(2).map(|bound| all.part(bound[0], bound[1] - bound[0]).unwrap()).collect();
    assert_eq!(read_all(child.0, &remote, &local).unwrap(), 300usize.div_ceil(CALL_RANGES_MAX));
    assert!(out.0 == expected);

    let mut long = Block(vec![0; source.len()]);
    let whole = RemoteRange { addr: base, len: source.len() };
    assert_eq!(read_from(child.0, base, &long.bytes(), 0, source.len()).unwrap(), CALL_BYTES_MAX);
    assert_eq!(read_all(child.0, &[whole], &[long.bytes()]).unwrap(), 4);
    assert!(long.0 == source);
    assert_eq!(read_list(child.0, &[], &[long.bytes()], 0).unwrap(), 0);
    assert_eq!(read_list(child.0, &[whole], &[], 0).unwrap(), 0);
    assert_eq!(read_list(child.0, &[whole], &[long.bytes()], usize::MAX).unwrap(), 0);
}

#[test]
fn what_is_not_mapped_there_ends_a_read() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let page = rustix::param::page_size();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, whose second page is unmapped before anybody knows it.
    let base = unsafe {
        let base = mmap_anonymous(std::ptr::null_mut(), 2 * page, prot, MapFlags::PRIVATE).unwrap();
        munmap(base.byte_add(page), page).unwrap();
        base.cast::<u8>()
    };
    // SAFETY: the first page.
    unsafe { base.write_bytes(5, page) };
    let child = Child::new();
    let mut out = Block(vec![0; 2 * page]);
    let addr = base.addr() as u64;
    let got = read_from(child.0, addr + 10, &out.bytes(), 0, page).unwrap();
    assert_eq!(got, page - 10, "what there is");
    assert!(out.0[..got].iter().all(|&byte| byte == 5));
    assert_eq!(errno(read_from(child.0, addr + page as u64, &out.bytes(), 0, 1)), Some(libc::EFAULT));
    for addr in [0, 1, 1 << 47, 1 << 63, u64::MAX - 8, u64::MAX] {
        assert_eq!(errno(read_from(child.0, addr, &out.bytes(), 0, 64)), Some(libc::EFAULT), "{addr:#x}");
    }
    let wild = [RemoteRange { addr: u64::MAX, len: usize::MAX }];
    assert!(read_list(child.0, &wild, &[out.bytes()], 5).is_err());
    // SAFETY: what is left of the mapping.
    unsafe { munmap(base.cast(), page).unwrap() };
}

#[test]
fn a_probe_tells_right_from_wrong_and_measures() {
    let secret = Box::new(0x1234_5678_9ABC_DEF0u64);
    let addr = std::ptr::from_ref(&*secret).addr() as u64;
    let child = Child::new();
    let Probe::Works(cost) = probe(child.0, addr, *secret) else {
        panic!("{:?}", probe(child.0, addr, *secret))
    };
    println!("process_vm_readv: {} ns per call, {} ns per KiB", cost.ns_per_call, cost.ns_per_kib);
    assert!(cost.ns_per_call < 10_000_000 && cost.ns_per_kib < 10_000_000, "{cost:?}");

    assert_eq!(probe(child.0, addr, *secret + 1), Probe::Refused(Refusal::WrongValue));
    assert_eq!(probe(child.0, 4096, *secret), Probe::Refused(Refusal::BadAddress));
    for nobody in [0, i32::MAX as u32, u32::MAX] {
        assert_eq!(probe(nobody, addr, *secret), Probe::Refused(Refusal::NoSuchProcess), "{nobody}");
    }
    let refusal = Refusal::from(io::Error::from_raw_os_error(libc::EPERM));
    assert!(refusal == Refusal::NotPermitted && refusal.to_string().contains("not permitted"));
    assert_eq!(Refusal::from(io::Error::from_raw_os_error(libc::ENOSYS)), Refusal::NotSupported);
    assert_eq!(
        Refusal::Other(libc::ENOMEM).to_string(),
        io::Error::from_raw_os_error(libc::ENOMEM).to_string()
    );
}

/// A real refusal, where we are somebody who can become nobody.
#[test]
fn a_process_of_another_user_is_not_permitted() {
    if crate::process::uid() != 0 {
        return;
    }
    let secret = 0x0FED_CBA9_8765_4321u64;
    let addr = std::ptr::from_ref(&secret).addr() as u64;
    let ours = crate::process::pid();
    let mut out = Block(vec![0; 8]);
    let local = out.bytes();
    // SAFETY: the child makes system calls only and leaves by _exit.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: system calls on plain numbers.
        unsafe {
            let dropped =
                libc::setresgid(65_534, 65_534, 65_534) == 0 && libc::setresuid(65_534, 65_534, 65_534) == 0;
            let refused = errno(read_from(ours, addr, &local, 0, 8)) == Some(libc::EPERM);
            libc::_exit(if dropped && refused { 0 } else { 1 });
        }
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}

#[test]
fn a_process_is_alive_until_it_ended() {
    let child = Child::new();
    let process = Process::open(child.0).unwrap();
    assert!(process.is_alive() && process.pid() == child.0);
    child.end();
    let start = std::time::Instant::now();
    while process.is_alive() {
        assert!(start.elapsed().as_secs() < 10, "killed, and yet alive");
        std::thread::yield_now();
    }
    let mut out = Block(vec![0; 8]);
    let addr = std::ptr::from_ref(&start).addr() as u64;
    assert_eq!(
        errno(read_from(child.0, addr, &out.bytes(), 0, 8)),
        Some(libc::ESRCH),
        "a zombie has no memory"
    );
    drop(child);
    assert!(!process.is_alive(), "nor ever again");
    assert!(Process::open(0).is_err() && Process::open(u32::MAX).is_err());
}
