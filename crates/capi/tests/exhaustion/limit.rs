//! What can run out, and how it is made to.

use cci_testkit::conformance::DeviceUnderTest;

/// A resource.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    Descriptors,
    DescriptorsOfListener,
    AddressSpace,
    Allocations,
    LockedMemory,
    FileBytes,
    Threads,
}

const ALL: [Resource; 7] = [
    Resource::Descriptors,
    Resource::DescriptorsOfListener,
    Resource::AddressSpace,
    Resource::Allocations,
    Resource::LockedMemory,
    Resource::FileBytes,
    Resource::Threads,
];

impl Resource {
    pub fn name(self) -> &'static str {
        match self {
            Resource::Descriptors => "descriptors",
            Resource::DescriptorsOfListener => "descriptors-of-listener",
            Resource::AddressSpace => "address-space",
            Resource::Allocations => "allocations",
            Resource::LockedMemory => "locked-memory",
            Resource::FileBytes => "file-bytes",
            Resource::Threads => "threads",
        }
    }

    pub fn named(name: &str) -> Option<Resource> {
        ALL.into_iter().find(|resource| resource.name() == name)
    }

    /// Whether the device can run out of it.
    pub fn concerns(self, device: &DeviceUnderTest) -> bool {
        match self {
            Resource::Descriptors | Resource::AddressSpace | Resource::Allocations => true,
            // The others have no listener, or it has no descriptor for each client.
            Resource::DescriptorsOfListener => ["shm", "tcp4", "any"].contains(&device.name),
            Resource::LockedMemory => ["eth", "eth-driver"].contains(&device.name),
            Resource::FileBytes => ["shm", "udp4", "any"].contains(&device.name),
            Resource::Threads => ["shm", "udp4", "tcp4"].contains(&device.name),
        }
    }

    /// Whether the text of an error says what there was too little of.
    pub fn is_named_in(self, text: &str) -> bool {
        let any = |words: &[&str]| words.iter().any(|word| text.contains(word));
        match self {
            Resource::Descriptors | Resource::DescriptorsOfListener => any(&["descriptor"]),
            Resource::AddressSpace | Resource::Allocations => any(&["memory", "no send buffer free now"]),
            Resource::LockedMemory => any(&["ulimit -l"]),
            Resource::FileBytes => any(&["ulimit -f"]),
            Resource::Threads => any(&["thread"]),
        }
    }
}

type Which = libc::__rlimit_resource_t;

/// A limit of this process, and what it was before: that comes back when this is dropped.
pub struct Lowered {
    which: Which,
    before: libc::rlimit,
}

impl Lowered {
    pub fn to(which: Which, value: u64) -> Lowered {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a place for the limit; and the soft one is changed to what is below the hard one, or as it.
        unsafe {
            assert_eq!(libc::getrlimit(which, &mut before), 0);
            let lowered = libc::rlimit { rlim_cur: value.min(before.rlim_max), ..before };
            assert_eq!(libc::setrlimit(which, &lowered), 0);
        }
        Lowered { which, before }
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        // SAFETY: what it was before.
        assert_eq!(unsafe { libc::setrlimit(self.which, &self.before) }, 0);
    }
}

/// The lowest number that no descriptor has: with a limit of it no descriptor can be had, if none is above it.
pub fn lowest_descriptor() -> u64 {
    // SAFETY: a descriptor of our own.
    unsafe {
        let fd = libc::dup(1);
        assert!(fd >= 0);
        libc::close(fd);
        fd as u64
    }
}

/// What the address space has, bytes.
pub fn address_space_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("/proc is there");
    let pages: u64 = status.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}

/// This process may not lock memory beyond its limit any more, though it is root's.
pub fn give_up_locking() {
    #[repr(C)]
    struct Head {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Sets {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_IPC_LOCK: u32 = 14;
    let head = Head { version: VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    // SAFETY: the structures are those that version 3 of the calls reads and writes.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_capget, &head, &mut sets), 0);
        sets[0].effective &= !(1 << CAP_IPC_LOCK);
        assert_eq!(libc::syscall(libc::SYS_capset, &head, &sets), 0);
    }
}

/// This process becomes somebody else's who has nothing: limits of threads do not hold for root.
pub fn become_nobody() -> bool {
    const NOBODY: u32 = 65_534;
    // SAFETY: plain numbers.
    unsafe { libc::setresgid(NOBODY, NOBODY, NOBODY) == 0 && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0 }
}
