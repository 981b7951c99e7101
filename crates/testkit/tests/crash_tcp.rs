//! Peers over TCP that die at any instruction.
#![forbid(unsafe_code)]

use cci_testkit::crash_peers::{self, Plan};
use std::time::Duration;

/// Not a test: the process to be killed, when the harness starts this program for it.
#[test]
fn victim() {
    crash_peers::victim();
}

/// One test, not two: descriptors are counted for the whole process.
#[test]
fn killed_peers_leave_nothing_behind_and_harm_nobody() {
    let context = cci::Context::new().expect("devices");
    if context.device("tcp-lo").is_none() {
        println!("skipped: no loopback interface is up here");
        return;
    }
    let plan = Plan {
        device: "tcp-lo",
        kills: 40,
        seed: 20_261_121,
        // Longer than any death takes to be noticed: the kernel tells.
        send_timeout: Duration::from_secs(8),
        noticed_within: Duration::from_secs(4),
        kernel_reports_death: true,
    };
    let casualties = crash_peers::kill_clients(&plan);
    println!("clients: {casualties:?}");
    assert!(casualties.received > 20 && casualties.exchanges > 1_000, "{casualties:?}");
    let casualties = crash_peers::kill_servers(&Plan { kills: 25, seed: 5, ..plan });
    println!("servers: {casualties:?}");
}
