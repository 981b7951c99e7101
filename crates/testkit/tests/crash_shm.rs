//! Peers over shared memory that die at any instruction.
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
    let plan = Plan {
        device: "shm",
        kills: 250,
        seed: 20_261_120,
        send_timeout: Duration::from_secs(5),
        noticed_within: Duration::from_secs(5),
        kernel_reports_death: true,
    };
    let casualties = crash_peers::kill_clients(&plan);
    println!("clients: {casualties:?}");
    assert!(casualties.received > 1_000 && casualties.exchanges > 1_000, "{casualties:?}");
    let casualties = crash_peers::kill_servers(&Plan { kills: 150, seed: 4, ..plan });
    println!("servers: {casualties:?}");
    let casualties = crash_peers::stop_clients(&Plan {
        kills: 5,
        seed: 5,
        send_timeout: Duration::from_millis(100),
        ..plan
    });
    println!("stopped: {casualties:?}");
    assert!(casualties.failed_sends > 0, "{casualties:?}");
}
