//! The forms of the interface side by side: C beside Rust, locked beside unlocked.

use super::{Contestants, Goal, Row, baseline, baseline_at_least, baseline_at_most, ours};
use crate::args::By;
use crate::c_program::CProgram;
use crate::work::Work;

const LEN: u32 = 8;

/// The rows that compare CCI's forms with each other.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (device, plain, locked) in [("shm", By::Shm, By::ShmLocked), ("udp", By::Udp, By::UdpLocked)] {
        for (work, name, what, bound) in [
            (Work::HalfTrip { len: LEN }, "half-trip", "half round trip", baseline_at_most(1.05)),
            (Work::Rate { len: LEN }, "rate", "messages a second", baseline_at_least(0.95)),
            (
                Work::Stream { len: LEN },
                "stream",
                "messages a second in bursts, by handler",
                baseline_at_least(0.95),
            ),
        ] {
            let mut row = |form: &str, title: &str, contestants: Contestants, goals: &[Goal]| {
                let title = format!("{title}: {what}, {device}, {LEN} B");
                let row = Row::new(format!("{device}/{form}/{name}/{LEN}"), title, work, contestants);
                rows.push(row.with_goals(goals));
            };
            let rust = || baseline("Rust", plain);
            row("c", "C beside Rust", vec![rust(), Box::new(CProgram::over(device))], &[bound]);
            if !matches!(work, Work::Stream { .. }) {
                row("locked", "Locked beside unlocked", vec![rust(), ours("Rust, locked", locked)], &[]);
            }
        }
    }
    rows
}
