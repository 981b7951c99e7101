//! What the basic layer takes (Table I of the paper): resident above an endpoint of the core, and for each further process of the job.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that prints what it has found")]

use allocation_counter::measure;
use cci::{Context, Endpoint, Options};
use cci_acp::GlobalMemory;
use cci_job::Ranks;
use std::process::Command;
use std::{env, fs};

/// Which device a process measures; not set in the test itself.
const DEVICE: &str = "CCI_TEST_DEVICE";
/// The paper's: bytes for each process, and those that do not grow.
const PAPERS_EACH: u64 = 176;
const PAPERS_CONSTANT: u64 = 2 << 20;
/// Each is a host of its own: none has the addresses for others, as ranks of one host do.
const FEW: u32 = 2;
const MANY: u32 = 1_000_000;
const STARTER_BYTES: usize = 10_240;
const HEAP_BYTES: usize = 64 << 20;
const KIB: u64 = 1 << 10;

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() * KIB
}

fn smallest() -> Options {
    Options::default().recv_buffers(16)
}

fn endpoint(device: &str) -> Endpoint {
    Endpoint::create(Context::new().unwrap().device(device).unwrap(), smallest()).unwrap()
}

/// What is allocated for a rank of so many, beside its endpoint.
fn allocated_bytes(device: &str, size: u32) -> u64 {
    let endpoint = endpoint(device);
    let mut global = None;
    let info = measure(|| {
        let ranks = Ranks::of_many(endpoint, size).unwrap();
        global = Some(GlobalMemory::over(ranks, STARTER_BYTES, HEAP_BYTES).unwrap());
    });
    info.bytes_current.unsigned_abs()
}

/// Not a test where nothing has started it: on one device, in a process of its own, since what was freed before is used again.
#[test]
fn on_one_device() {
    let Ok(device) = env::var(DEVICE) else { return };
    let before = resident_bytes();
    let endpoint = endpoint(&device);
    let with_endpoint = resident_bytes();
    let ranks = Ranks::of_many(endpoint, FEW).unwrap();
    let global = GlobalMemory::over(ranks, STARTER_BYTES, HEAP_BYTES).unwrap();
    let constant = resident_bytes().saturating_sub(with_endpoint);
    drop(global);
    let (few, many) = (allocated_bytes(&device, FEW), allocated_bytes(&device, MANY));
    let each = (many - few).div_ceil(u64::from(MANY - FEW));
    println!(
        "{device}: an endpoint of the core {} KiB, the basic layer above it {} KiB and {each} bytes for each process; {MANY} processes: {} MB, \
         the paper's {} MB",
        with_endpoint.saturating_sub(before) / KIB,
        constant / KIB,
        (constant + each * u64::from(MANY)) / 1_000_000,
        (PAPERS_CONSTANT + PAPERS_EACH * u64::from(MANY)) / 1_000_000,
    );
    assert!(each <= PAPERS_EACH, "{device}: {each} bytes for each process");
    assert!(constant <= PAPERS_CONSTANT, "{device}: {constant} bytes");
}

#[test]
fn the_basic_layer_takes_no_more_than_the_papers() {
    for device in ["shm", "udp-lo", "tcp-lo", "any"] {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "on_one_device", "--nocapture"]).env(DEVICE, device);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("bytes for each process"), "{output:?}");
        print!("{said}");
    }
}
