//! Peers that die or stop at any instruction of a remote memory operation.
#![forbid(unsafe_code)]

use cci_testkit::crash_rma::{self, Casualties, Plan};
use std::time::{Duration, Instant};

/// Not a test: the process to be killed, when the harness starts this program for it.
#[test]
fn victim() {
    crash_rma::victim();
}

fn all(plan: Plan, stops: u32) {
    let Plan { device, .. } = plan;
    let started = Instant::now();
    let report = |what: &str, casualties: Casualties| {
        println!("{device}, {what}, by {:?}: {casualties:?}", started.elapsed())
    };
    let casualties = crash_rma::kill_initiators(&plan);
    report("initiators killed", casualties);
    assert!(casualties.early < plan.kills / 4 && casualties.torn > plan.kills / 10, "{casualties:?}");
    let casualties = crash_rma::kill_targets(&plan);
    report("targets killed", casualties);
    assert!(
        casualties.early < plan.kills / 4 && casualties.failed > 0 && casualties.good > 100,
        "{casualties:?}"
    );
    let plan = Plan { kills: stops, seed: plan.seed + 1, ..plan };
    // A peer that maps our memory is to be stopped in the middle of a copy once at least.
    for again in 1.. {
        let casualties = crash_rma::stop_initiators(&plan);
        report("initiators stopped", casualties);
        if device != "shm" || casualties.detached > 0 {
            break;
        }
        assert!(again < 6, "never in the middle of a copy: {casualties:?}");
    }
    let stopped = Plan { send_timeout: Duration::from_millis(100), ..plan };
    report("targets stopped", crash_rma::stop_targets(&stopped));
}

/// One test, not several: descriptors are counted for the whole process.
#[test]
fn deaths_in_the_middle_of_a_transfer_harm_nobody() {
    let plan = Plan {
        device: "shm",
        kills: 150,
        seed: 20_261_121,
        send_timeout: Duration::from_secs(5),
        noticed_within: Duration::from_secs(5),
    };
    all(plan, 40);
    all(Plan { device: "shm-pull", kills: 100, seed: 1, ..plan }, 8);
    all(Plan { device: "shm-ring", kills: 100, seed: 2, ..plan }, 8);
    all(Plan { device: "tcp4", kills: 60, seed: 4, ..plan }, 8);
    // Each death costs a send time-out.
    let slow = Plan { device: "udp4", kills: 20, seed: 3, ..plan };
    let slow =
        Plan { send_timeout: Duration::from_millis(200), noticed_within: Duration::from_secs(10), ..slow };
    all(slow, 4);
}
