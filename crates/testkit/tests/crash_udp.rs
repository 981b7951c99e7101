//! Peers over UDP that die at any instruction.
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
    if context.device("udp-lo").is_none() {
        println!("skipped: no loopback interface is up here");
        return;
    }
    // Each death costs a send time-out.
    let plan = Plan {
        device: "udp-lo",
        kills: 20,
        seed: 20_261_120,
        send_timeout: Duration::from_millis(200),
        noticed_within: Duration::from_secs(10),
        kernel_reports_death: false,
    };
    let casualties = crash_peers::kill_clients(&plan);
    println!("clients: {casualties:?}");
    assert!(casualties.received > 20 && casualties.exchanges > 1_000, "{casualties:?}");
    let casualties = crash_peers::kill_servers(&Plan { kills: 12, seed: 4, ..plan });
    println!("servers: {casualties:?}");
}
