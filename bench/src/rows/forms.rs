//! The forms of the interface side by side: C beside Rust, locked beside unlocked.

use super::{Goal, Row, baseline_at_least, baseline_at_most};
use crate::args::By;
use crate::c_program::CProgram;
use crate::contestant::{Contestant, Worker};
use crate::work::{Placement, Work};

const LEN: u32 = 8;

/// The rows that compare CCI's forms with each other.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (device, plain, locked) in [("shm", By::Shm, By::ShmLocked), ("udp", By::Udp, By::UdpLocked)] {
        let plain =
            || -> Box<dyn Contestant> { Box::new(Worker::baseline("Rust", plain, Placement::SameHost)) };
        let c = || -> Box<dyn Contestant> { Box::new(CProgram::over(device)) };
        let locked =
            || -> Box<dyn Contestant> { Box::new(Worker::ours("Rust, locked", locked, Placement::SameHost)) };
        for (work, what, bound) in [
            (Work::HalfTrip { len: LEN }, "half-trip", baseline_at_most(1.05)),
            (Work::Rate { len: LEN }, "rate", baseline_at_least(0.95)),
        ] {
            rows.push(row(
                &format!("{device}/c/{what}/{LEN}"),
                "C beside Rust",
                device,
                work,
                vec![bound],
                vec![plain(), c()],
            ));
            rows.push(row(
                &format!("{device}/locked/{what}/{LEN}"),
                "Locked beside unlocked",
                device,
                work,
                Vec::new(),
                vec![plain(), locked()],
            ));
        }
    }
    rows
}

fn row(
    name: &str,
    title: &str,
    device: &str,
    work: Work,
    goals: Vec<Goal>,
    contestants: Vec<Box<dyn Contestant>>,
) -> Row {
    let what = match work {
        Work::HalfTrip { .. } => "half round trip",
        _ => "messages a second",
    };
    Row {
        name: name.to_owned(),
        title: format!("{title}: {what}, {device}, {LEN} B"),
        work,
        goals,
        contestants,
    }
}
