//! Descriptors, memory and more run out at every step of a program's life, on every device: each time the call that
//! wanted them returns an error that names them, nothing aborts, hangs or leaks, what is there goes on, and once there
//! are enough again the same program succeeds.
//!
//! Each device and resource has a process of its own, this program started anew, because limits are a process's, and so that an
//! abort is seen. `CCI_EXHAUSTION_STEPS` says in how many steps memory runs out, on all devices and their variants (fewer if not
//! given), `CCI_EXHAUSTION_DEVICE` on which device alone. It is here, with the C interface, because it takes unsafe code.

mod allocator;
mod child;
mod limit;
mod queue;
mod scene;

use cci_testkit::conformance::{self, DeviceUnderTest};
use cci_testkit::figures;
use limit::Resource;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is tested in a child: device and resource.
const DEVICE: &str = "CCI_EXHAUSTION_CHILD_DEVICE";
const RESOURCE: &str = "CCI_EXHAUSTION_CHILD_RESOURCE";
/// A child that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(300);

const DEVICES: [DeviceUnderTest; 12] = [
    conformance::SHM,
    conformance::SHM_PULL,
    conformance::SHM_RING,
    conformance::UDP4,
    conformance::UDP_BONDED,
    conformance::TCP4,
    conformance::ETH,
    conformance::ETH_PACKET,
    conformance::ETH_DRIVER,
    conformance::ANY,
    conformance::UDP_PSK,
    conformance::TCP_PSK,
];

const VARIANTS: [&str; 5] = ["shm-pull", "shm-ring", "eth-driver", "eth-packet", "tcp-psk"];

/// Not a test: a child, where the harness starts this program for it.
#[test]
fn child() {
    let (Ok(device), Ok(resource)) = (std::env::var(DEVICE), std::env::var(RESOURCE)) else { return };
    let device = DEVICES.iter().find(|about| about.name == device).expect("the harness names one");
    child::run(device, Resource::named(&resource).expect("the harness names one"));
}

/// Runs a child and shows what it says. Answers how often it ran out of something.
fn in_child(device: &DeviceUnderTest, resource: Resource) -> u64 {
    let mut child = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(DEVICE, device.name)
        .env(RESOURCE, resource.name())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let printed = read(Box::new(child.stdout.take().expect("piped")));
    let complained = read(Box::new(child.stderr.take().expect("piped")));
    let started = Instant::now();
    let ended = loop {
        if let Some(status) = child.try_wait().expect("our own child") {
            break Some(status);
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (printed, complained) = (printed.join().expect("reads"), complained.join().expect("reads"));
    let name = format!("{} {}", device.name, resource.name());
    assert!(ended.is_some_and(|status| status.success()), "{name}: {ended:?}\n{printed}\n{complained}");
    let mut times = 0;
    for line in printed.lines() {
        if let Some(count) = line.strip_prefix("TIMES ") {
            times = count.parse().expect("a number");
        } else if line.starts_with("  ") || line.starts_with("skipped") {
            println!("{line}");
        }
    }
    println!("{name}: {times} times, {:.1?}", started.elapsed());
    times
}

fn on_each_device(resource: Resource) {
    let only = std::env::var("CCI_EXHAUSTION_DEVICE").ok();
    // Variants of others are left out unless all is asked for.
    let all = only.is_some() || std::env::var_os("CCI_EXHAUSTION_STEPS").is_some();
    for device in DEVICES.iter().filter(|about| only.as_ref().is_none_or(|only| only == about.name)) {
        let is_variant = VARIANTS.contains(&device.name) && resource != Resource::LockedMemory;
        if resource.concerns(device) && (all || !is_variant) {
            figures::note("faults.exhaustions", in_child(device, resource));
        }
    }
}

#[test]
fn without_descriptors_calls_fail_and_the_endpoint_goes_on() {
    on_each_device(Resource::Descriptors);
}

#[test]
fn without_memory_calls_fail_and_the_endpoint_goes_on() {
    on_each_device(Resource::AddressSpace);
}

#[test]
fn failing_allocations_are_errors() {
    on_each_device(Resource::Allocations);
}

#[test]
fn without_locked_memory_frames_go_another_way_or_calls_fail() {
    on_each_device(Resource::LockedMemory);
}

#[test]
fn files_too_short_for_rings_are_errors_and_no_signal() {
    on_each_device(Resource::FileBytes);
}

#[test]
fn without_threads_the_endpoint_is_not_opened() {
    on_each_device(Resource::Threads);
}

#[test]
fn a_listener_without_descriptors_sleeps_and_recovers() {
    on_each_device(Resource::DescriptorsOfListener);
}
