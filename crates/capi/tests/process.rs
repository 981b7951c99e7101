//! What only a program with unsafe code can do to the library: change its mappings behind the library's back, and fork.
//! Rust programs do it through libc just as C programs do, so these are tests of crate `cci`; its own have no unsafe code.

use cci::{
    Access, Attribute, Connection, Context, Device, Endpoint, Event, Foreign, Memory, Options, RegionAddress,
    RegionHandle, RegisterError, RmaError, RmaFlags, SendFlags, SharedEndpoint, Status,
};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const PAGE: usize = 4096;
const READ: i32 = libc::PROT_READ;
const WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

fn udp() -> Device {
    let context =
        Context::from_text("[u]\ntransport = udp\nip = 127.0.0.1\n", Path::new("test.ini")).unwrap();
    context.devices()[0].clone()
}

fn shm() -> Device {
    let context = Context::from_text("[m]\ntransport = shm\n", Path::new("test.ini")).unwrap();
    context.devices()[0].clone()
}

fn endpoint() -> Endpoint {
    Endpoint::create(&udp(), Options::default()).unwrap()
}

/// Some pages of this process, to be changed at will.
struct Pages {
    start: *mut u8,
    len: usize,
}

impl Pages {
    /// Far from where the kernel puts what other threads map meanwhile: what is unmapped here must stay so.
    fn map(count: usize, protection: i32) -> Pages {
        static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
        let start = NEXT.fetch_add(1 << 30, Ordering::Relaxed) as *mut u8;
        Pages { start: map(start, count * PAGE, protection), len: count * PAGE }
    }

    fn memory(&self) -> Memory {
        // SAFETY: the tests touch these pages through the library only, and where they are not mapped, that is what is
        // tested: that nothing is touched then.
        Memory::foreign(unsafe { Foreign::new(NonNull::new(self.start).unwrap(), self.len) })
    }

    fn unmap(&self) {
        // SAFETY: mapped by `map`, and nothing points into it that is used while it is not mapped.
        assert_eq!(unsafe { libc::munmap(self.start.cast(), self.len) }, 0);
    }

    fn map_again(&self, protection: i32) {
        assert_eq!(map(self.start, self.len, protection), self.start);
    }

    fn protect(&self, protection: i32) {
        // SAFETY: as above.
        assert_eq!(unsafe { libc::mprotect(self.start.cast(), self.len, protection) }, 0);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: as above; where nothing is mapped any more, nothing happens.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

fn map(at: *mut u8, len: usize, protection: i32) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: new memory, never in place of other.
    let start = unsafe { libc::mmap(at.cast(), len, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start.cast()
}

/// Hits, misses and idle bytes of the registration cache.
fn cache(endpoint: &Endpoint) -> (u64, u64, u64) {
    let counters = endpoint.counters();
    (counters.registration_hits, counters.registration_misses, counters.registrations_idle_bytes)
}

/// Registers and deregisters.
fn pass(endpoint: &mut Endpoint, memory: &Memory, access: Access) -> Result<(), RegisterError> {
    let handle = endpoint.register(memory, access)?;
    endpoint.deregister(&handle)
}

#[test]
fn what_is_not_mapped_or_not_writable_is_not_registered() {
    let mut endpoint = endpoint();
    let pages = Pages::map(3, READ);
    let memory = pages.memory();
    assert!(pass(&mut endpoint, &memory, Access::READ).is_ok());
    for access in [Access::WRITE, Access::ATOMIC, Access::ALL] {
        let refused = pass(&mut endpoint, &memory, access);
        assert!(matches!(refused, Err(RegisterError::NotMapped(_))), "{access:?}: {refused:?}");
    }
    pages.protect(WRITE);
    assert!(pass(&mut endpoint, &memory, Access::ALL).is_ok());
    let elsewhere = Pages::map(3, WRITE);
    let hole = Pages { start: elsewhere.start.wrapping_add(PAGE), len: PAGE };
    hole.unmap();
    let refused = pass(&mut endpoint, &elsewhere.memory(), Access::READ).unwrap_err();
    println!("{refused}");
    assert!(matches!(refused, RegisterError::NotMapped(_)));
    let counters = endpoint.counters();
    assert_eq!((counters.regions, counters.registrations_idle_bytes), (0, 3 * PAGE as u64));
}

#[test]
fn memory_registered_again_is_not_checked_again() {
    let mut endpoint = endpoint();
    let pages = Pages::map(4, WRITE);
    let memory = pages.memory();
    let handle = endpoint.register(&memory, Access::ALL).unwrap();
    let part = cci::Registration { range: Some(5..PAGE), access: Access::READ, only: None };
    assert!(endpoint.register(&memory, part).is_ok());
    assert_eq!(cache(&endpoint), (1, 1, 0));
    endpoint.deregister(&handle).unwrap();
    assert!(
        matches!(endpoint.deregister(&handle), Err(RegisterError::Unknown)),
        "the region is gone at once"
    );
    assert_eq!(cache(&endpoint), (1, 1, 3 * PAGE as u64));
    assert!(pass(&mut endpoint, &memory, Access::ALL).is_ok());
    assert_eq!(cache(&endpoint), (2, 1, 3 * PAGE as u64));
    // The library's own memory needs neither.
    let own = endpoint.allocate(PAGE).unwrap();
    assert!(pass(&mut endpoint, &own, Access::ALL).is_ok());
    assert_eq!(cache(&endpoint), (2, 1, 3 * PAGE as u64));
}

#[test]
fn a_cap_of_zero_checks_every_time() {
    let options = Options::default().idle_registered_bytes_max(0);
    let mut endpoint = Endpoint::create(&udp(), options).unwrap();
    let pages = Pages::map(4, WRITE);
    let memory = pages.memory();
    for _ in 0..3 {
        assert!(pass(&mut endpoint, &memory, Access::ALL).is_ok());
    }
    assert_eq!(cache(&endpoint), (0, 3, 0));
    pages.unmap();
    assert!(matches!(pass(&mut endpoint, &memory, Access::ALL), Err(RegisterError::NotMapped(_))));
}

#[test]
fn the_cap_holds() {
    let options = Options::default().idle_registered_bytes_max(10 * PAGE as u64);
    let mut endpoint = Endpoint::create(&udp(), options).unwrap();
    let all: Vec<Pages> = (0..20).map(|_| Pages::map(3, WRITE)).collect();
    for pages in &all {
        assert!(pass(&mut endpoint, &pages.memory(), Access::ALL).is_ok());
        assert!(endpoint.counters().registrations_idle_bytes <= 10 * PAGE as u64);
    }
    assert!(endpoint.counters().registration_evictions >= 5);
}

/// The documented behaviour of a stale entry: it is taken on trust; what was promised, forgetting, ends that.
#[test]
fn an_entry_is_stale_after_unmapping_until_it_is_forgotten() {
    let mut endpoint = endpoint();
    let pages = Pages::map(2, WRITE);
    let memory = pages.memory();
    assert!(pass(&mut endpoint, &memory, Access::ALL).is_ok());
    pages.unmap();
    // Not checked, so not refused. Nothing touches it.
    assert!(pass(&mut endpoint, &memory, Access::ALL).is_ok());
    endpoint.forget_registrations(pages.start, pages.len);
    assert_eq!(endpoint.counters().registrations_idle_bytes, 0);
    assert!(matches!(pass(&mut endpoint, &memory, Access::READ), Err(RegisterError::NotMapped(_))));
    pages.map_again(READ);
    assert!(matches!(pass(&mut endpoint, &memory, Access::WRITE), Err(RegisterError::NotMapped(_))));
    assert!(pass(&mut endpoint, &memory, Access::READ).is_ok());
}

/// Connects two endpoints; the connection of `a`.
fn connect(a: &mut Endpoint, b: &mut Endpoint) -> Connection {
    let uri = b.uri().to_owned();
    a.connect(&uri, b"", Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
    let start = Instant::now();
    let (mut ours, mut accepted) = (None, false);
    while start.elapsed() < PATIENCE {
        match b.next_event() {
            Some(Event::ConnectRequest(request)) => b.accept(request, 2).unwrap(),
            Some(Event::Accept { .. }) => accepted = true,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        if let Some(Event::Connect { result, .. }) = a.next_event() {
            ours = Some(result.unwrap());
        }
        if let Some(ours) = ours.filter(|_| accepted) {
            return ours;
        }
    }
    panic!("not connected in {PATIENCE:?}");
}

fn end_of(a: &mut Endpoint, b: &mut Endpoint) -> Status {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        b.progress();
        if let Some(Event::Send { status, .. }) = a.next_event() {
            return status;
        }
    }
    panic!("no end in {PATIENCE:?}");
}

fn bytes(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    assert!(memory.read(0, &mut bytes));
    bytes
}

#[test]
fn a_stale_entry_reaches_what_is_mapped_now() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let ours = connect(&mut a, &mut b);
    let from = a.allocate(2 * PAGE).unwrap();
    assert!(from.write(0, &vec![7; 2 * PAGE]));
    let local = a.register(&from, Access::LOCAL).unwrap();
    let write = |a: &mut Endpoint, b: &mut Endpoint, to: RegionHandle| {
        let (from, to) = (RegionAddress::new(local, 0), RegionAddress::new(to, 0));
        a.rma_write(ours, from, to, 2 * PAGE as u64, 3, RmaFlags::NONE).unwrap();
        end_of(a, b)
    };
    let pages = Pages::map(2, WRITE);
    let memory = pages.memory();
    let before = b.register(&memory, Access::ALL).unwrap();
    assert_eq!(write(&mut a, &mut b, before), Status::Success);
    b.deregister(&before).unwrap();
    pages.unmap();
    pages.map_again(WRITE);
    assert_eq!(bytes(&memory), vec![0; 2 * PAGE]);
    // The old handle opens nothing, though the memory idles in the cache.
    assert_eq!(write(&mut a, &mut b, before), Status::RmaHandle);
    assert_eq!(bytes(&memory), vec![0; 2 * PAGE]);
    let after = b.register(&memory, Access::ALL).unwrap();
    assert_eq!(cache(&b), (1, 1, 0));
    assert_eq!(write(&mut a, &mut b, after), Status::Success);
    assert_eq!(bytes(&memory), vec![7; 2 * PAGE]);
}

#[test]
fn nothing_is_read_into_memory_that_can_not_be_written() {
    let (mut a, mut b) = (endpoint(), endpoint());
    let ours = connect(&mut a, &mut b);
    let target = b.allocate(PAGE).unwrap();
    assert!(target.write(0, &[9; PAGE]));
    let remote = b.register(&target, Access::ALL).unwrap();
    let pages = Pages::map(1, READ);
    let memory = pages.memory();
    for access in [Access::LOCAL, Access::READ] {
        pages.protect(READ);
        a.forget_registrations(pages.start, pages.len);
        let local = a.register(&memory, access).unwrap();
        let (package_folder, there) = (RegionAddress::new(local, 0), RegionAddress::new(remote, 0));
        let len_bytes = PAGE as u64;
        // It may be written to the peer, and not read into.
        a.rma_write(ours, package_folder, there, 8, 1, RmaFlags::NONE).unwrap();
        assert_eq!(end_of(&mut a, &mut b), Status::Success);
        assert_eq!(
            a.rma_read(ours, package_folder, there, len_bytes, 2, RmaFlags::NONE),
            Err(RmaError::LocalHandle)
        );
        let add = cci::Atomic {
            kind: cci::AtomicKind::FetchAdd,
            width: cci::AtomicWidth::Eight,
            operand: 1,
            compare: 0,
        };
        assert_eq!(
            a.atomic(ours, add, there, Some(package_folder), 3, RmaFlags::NONE),
            Err(RmaError::LocalHandle)
        );
        pages.protect(WRITE);
        a.rma_read(ours, package_folder, there, len_bytes, 4, RmaFlags::NONE).unwrap();
        assert_eq!(end_of(&mut a, &mut b), Status::Success);
        assert_eq!(bytes(&memory), bytes(&target));
        a.deregister(&local).unwrap();
    }
}

/// Forks; the child drops what it has of the endpoint and ends. Says how it ended.
fn fork_and_drop(shared: SharedEndpoint) -> (SharedEndpoint, i32) {
    // SAFETY: the child only drops a value and leaves by _exit. Of what dropping needs, the C library puts its allocator in
    // order for a child; and that no lock of the endpoint's is needed is what is tested.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: a child that hangs is ended by the signal, which the parent sees.
        unsafe { libc::alarm(10) };
        drop(shared);
        // SAFETY: ends the child without running the test runner's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    (shared, status)
}

#[test]
fn a_fork_child_has_no_progress_thread_and_does_not_disturb_its_parents() {
    for device in [shm(), udp()] {
        let mut target = SharedEndpoint::with_progress_thread(&device, Options::default()).unwrap();
        let mut peer = Endpoint::create(&device, Options::default()).unwrap();
        let ours = target.with(|endpoint| connect(&mut peer, endpoint));
        for round in 0..40_u64 {
            // With the thread at its nap, and asleep on the descriptors.
            std::thread::sleep(Duration::from_micros(round % 8 * 400));
            let (kept, status) = fork_and_drop(target);
            target = kept;
            assert_eq!(status, 0, "round {round}: the child did not end by itself");
            // The parent's thread still serves the peer, with the program doing nothing.
            peer.send(ours, b"are you there?", round, SendFlags::NONE).unwrap();
            let event = peer.wait(Some(PATIENCE)).unwrap();
            assert!(matches!(event, Some(Event::Send { status: Status::Success, .. })), "{event:?}");
        }
        let came = std::iter::from_fn(|| target.next_event()).count();
        assert_eq!(came, 40);
    }
}
