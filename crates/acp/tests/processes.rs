//! The global address space among real processes.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

#[path = "../../am/tests/launch/mod.rs"]
mod launch;

use cci_acp::{AcpError, GlobalAddress, GlobalMemory};
use cci_job::Job;
use launch::launch;
use std::env;
use std::process::Command;

/// What a rank shall do, and on which device; not set in the tests themselves.
const ROLE: &str = "CCI_TEST_ROLE";
const DEVICE: &str = "CCI_TEST_DEVICE";
const DEVICES: [&str; 4] = ["shm", "udp-lo", "tcp-lo", "any"];
const STARTER_BYTES: usize = 10_240;

/// This program again, in a role.
fn role(name: &'static str, device: &'static str) -> impl Fn() -> Command {
    move || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "as_a_rank", "--nocapture"]).env(ROLE, name).env(DEVICE, device);
        command
    }
}

/// Runs a role on ranks of every device.
fn all_ranks_do(name: &'static str, size: u32) {
    for device in DEVICES {
        for rank in launch(size, role(name, device)) {
            assert!(rank.status.success(), "{device}: {rank:?}");
        }
    }
}

fn open() -> (Job, GlobalMemory) {
    let mut job = Job::join().unwrap();
    let context = cci::Context::new().unwrap();
    let device = context.device(&env::var(DEVICE).unwrap()).unwrap();
    let global = GlobalMemory::open(&mut job, device, cci::Options::default(), STARTER_BYTES).unwrap();
    (job, global)
}

/// Not a test where nothing has started it: what ranks do.
#[test]
fn as_a_rank() {
    if env::var(ROLE).as_deref() == Ok("addresses") {
        addresses();
    }
}

/// Global addresses lead back to what they were made of, and to nothing else.
fn addresses() {
    let (job, mut global) = open();
    let (rank, size) = (job.rank(), job.size());
    assert_eq!((global.rank(), global.size()), (rank, size));
    for other in 0..size {
        let starter = global.starter(other).unwrap();
        assert_eq!((starter.rank(), starter.color()), (other, 0));
        let local = global.local(starter);
        if other == rank {
            let (memory, offset) = local.unwrap();
            assert_eq!((memory.as_ptr(), offset), (global.starter_memory().as_ptr(), 0));
        } else {
            assert!(
                matches!(local, Err(AcpError::Argument(_))),
                "memory of another rank has no address here"
            );
        }
    }
    assert!(matches!(global.starter(size), Err(AcpError::Rank { .. })));
    let memory = global.allocate(100_000).unwrap();
    for color in 0..global.colors() {
        let key = global.register(&memory, color).unwrap();
        let start = global.address(key, 0).unwrap();
        assert_eq!((start.rank(), start.color()), (rank, color));
        let inside = GlobalAddress::from_bits(start.to_bits() + 77_777).unwrap();
        assert_eq!(global.address(key, 77_777).unwrap(), inside);
        let (found, offset) = global.local(inside).unwrap();
        assert_eq!((found.as_ptr(), offset), (memory.as_ptr(), 77_777));
        assert!(global.address(key, 100_000).is_ok() && global.address(key, 100_001).is_err());
        assert!(matches!(global.local(start.checked_add(100_001).unwrap()), Err(AcpError::NotRegistered(_))));
        global.unregister(key).unwrap();
        assert!(matches!(global.unregister(key), Err(AcpError::Argument(_))), "twice");
        assert!(global.address(key, 0).is_err() && global.local(inside).is_err());
    }
    assert!(matches!(global.register(&memory, global.colors()), Err(AcpError::Argument(_))));
    for _ in 0..20 {
        global.sync().unwrap();
    }
    global.close().unwrap();
}

#[test]
fn addresses_lead_back_to_memory() {
    all_ranks_do("addresses", 3);
}
