//! Processes that are killed, crash and stop at any instant, on every device: see `cci_testkit::crash`.
//!
//! `CCI_KILLS` says how many in all (a few hundred if not given), `CCI_KILLS_DEVICE` on which device alone,
//! `CCI_KILLS_SEED` another course of things. It is here, with the C interface, because a real crash takes unsafe code.

use cci_testkit::crash::{self, plans, run};
use cci_testkit::figures;
use std::time::Instant;

/// Not a test: a process of a campaign, when the harness starts this program for it.
#[test]
fn victim() {
    // SAFETY: none. The process is to be ended by the system for reaching where nothing is.
    crash::victim(|| unsafe { std::ptr::null_mut::<u8>().write_volatile(1) });
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn crashes_leave_nothing_behind_and_harm_nobody() {
    let victims = number("CCI_KILLS").unwrap_or(240) as u32;
    let seed = number("CCI_KILLS_SEED").unwrap_or(20_261_121);
    let only = std::env::var("CCI_KILLS_DEVICE").ok();
    for plan in plans() {
        let name = plan.device.name;
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let victims = if only.is_some() { victims } else { (victims * plan.share).div_ceil(1_000) };
        let start = Instant::now();
        let Some(casualties) = run(&plan, victims, seed) else { continue };
        println!("{name}: {casualties:?} in {:.1?}", start.elapsed());
        figures::note("faults.kills", u64::from(casualties.killed));
        figures::note("faults.crashes", u64::from(casualties.crashed));
        figures::note("faults.pauses", u64::from(casualties.paused));
        figures::note("faults.stops", u64::from(casualties.stopped));
        figures::note("faults.operations", casualties.good + casualties.failed);
    }
}
