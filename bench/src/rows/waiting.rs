//! Both sides asleep until there is something.

use super::{Contestants, Makes, Row, baseline, baseline_at_most, ours};
use crate::args::By;
use crate::work::Work;

const LEN: u32 = 8;

/// `Endpoint::wait` spins for a while where that has paid, which is the library's offer to those who wait; the rows of
/// the descriptor are those in which both sides surely sleep.
pub fn rows() -> Vec<Row> {
    let families: [(&str, &str, Makes, By, By); 3] = [
        (
            "shm",
            "over shared memory",
            || vec![baseline("eventfd", By::Eventfd), baseline("futex", By::Futex)],
            By::Shm,
            By::ShmHandle,
        ),
        (
            "udp",
            "over UDP on loopback",
            || vec![baseline("plain recv", By::PlainUdp)],
            By::Udp,
            By::UdpHandle,
        ),
        (
            "tcp",
            "over TCP on loopback",
            || vec![baseline("plain read", By::PlainTcp)],
            By::Tcp,
            By::TcpHandle,
        ),
    ];
    let row = |name: String, how: &str, over: &str, mut contestants: Contestants, cci| {
        contestants.push(cci);
        let title = format!("Half round trip {how}, {over}, {LEN} B");
        let row = Row::new(format!("{name}/{LEN}"), title, Work::BlockingTrip { len: LEN }, contestants);
        row.with_goals(&[baseline_at_most(1.15)])
    };
    let rows = families.into_iter().flat_map(|(name, over, baselines, wait, handle)| {
        let (wait, handle) = (ours("cci wait", wait), ours("cci descriptor", handle));
        [
            row(format!("{name}/wait"), "waiting", over, baselines(), wait),
            row(format!("{name}/wait-handle"), "asleep on the descriptor", over, baselines(), handle),
        ]
    });
    rows.collect()
}
