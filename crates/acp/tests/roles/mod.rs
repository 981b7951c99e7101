//! Tests that start their own program as the ranks of a job, each in a role.

#[path = "../../../am/tests/launch/mod.rs"]
mod launch;

#[allow(dead_code, reason = "not all tests draw numbers")]
pub mod draw;

pub use launch::launch;

use cci::{Foreign, Memory};
use cci_acp::GlobalMemory;
use cci_job::Job;
use std::env;
use std::process::Command;

/// What a rank shall do, and on which device; not set in the tests themselves.
pub const ROLE: &str = "CCI_TEST_ROLE";
/// The device.
pub const DEVICE: &str = "CCI_TEST_DEVICE";
const DEVICES: [&str; 4] = ["shm", "udp-lo", "tcp-lo", "any"];

/// This program again, in a role: its test `as_a_rank` does what the role is.
pub fn role(name: &'static str, device: &'static str) -> impl Fn() -> Command {
    move || {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "as_a_rank", "--nocapture"]).env(ROLE, name).env(DEVICE, device);
        command
    }
}

/// Runs a role on ranks of every device.
#[allow(dead_code, reason = "not all tests run on every device")]
pub fn all_ranks_do(name: &'static str, size: u32) {
    for device in DEVICES {
        let ranks = launch(size, role(name, device));
        let failed: Vec<_> = ranks.iter().filter(|rank| !rank.status.success()).collect();
        assert!(failed.is_empty(), "{device}: {failed:#?}");
    }
}

/// What a rank begins with: its part in the job and in global memory, on the device of the test.
#[allow(dead_code, reason = "not all ranks begin so")]
pub fn open(starter_bytes: usize, heap_bytes: usize) -> (Job, GlobalMemory) {
    let mut job = Job::join().unwrap();
    let context = cci::Context::new().unwrap();
    let device = context.device(&env::var(DEVICE).unwrap()).unwrap();
    let options = cci::Options::default();
    let global = GlobalMemory::open_with_heap(&mut job, device, options, starter_bytes, heap_bytes).unwrap();
    (job, global)
}

/// Bytes of this process that no file has, and its descriptors.
#[allow(dead_code, reason = "not all tests measure memory")]
pub fn held() -> (u64, usize) {
    let held = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = held.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    let anonymous_kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    (anonymous_kib * 1024, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Ends this process as nobody can keep it from.
#[allow(dead_code, reason = "not all tests have a rank that dies")]
pub fn die() -> ! {
    let id = std::process::id().to_string();
    let _ = Command::new("kill").args(["-KILL", &id]).status();
    unreachable!("SIGKILL has ended this process");
}

/// What a rank ends with: nobody has sent it anything that it should not have.
#[allow(dead_code, reason = "not all tests end together")]
pub fn close(mut global: GlobalMemory) {
    global.sync().unwrap();
    assert_eq!(global.faults(), 0);
    global.close().unwrap();
}

/// The bytes of a message.
#[allow(dead_code, reason = "not all tests have messages")]
pub fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number * 7 + at / 251) as u8).collect()
}

/// Memory of the program's own.
#[allow(dead_code, reason = "not all tests need some")]
pub fn heap(bytes: Vec<u8>) -> Memory {
    Memory::foreign(Foreign::owned(bytes.into_boxed_slice()))
}
