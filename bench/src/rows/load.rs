//! Latency under load: at a tenth, a half and four fifths of the highest rate that each can do itself.

use super::{Makes, Row, across_a_pair, baseline, ours};
use crate::args::By;
use crate::work::Work;

const LEN: u32 = 64;

/// The rows that measure latency under load.
pub fn rows() -> Vec<Row> {
    let families: [(&str, &str, Makes); 4] = [
        ("shm", "over shared memory", || vec![ours("cci shm", By::Shm)]),
        ("udp", "over UDP on loopback", || {
            vec![baseline("plain UDP", By::PlainUdp), ours("cci udp", By::Udp)]
        }),
        ("tcp", "over TCP on loopback", || {
            vec![baseline("plain TCP", By::PlainTcp), ours("cci tcp", By::Tcp)]
        }),
        ("eth", "across a pair of virtual Ethernet interfaces", || {
            across_a_pair(("plain UDP", By::PlainUdp), ("cci eth", By::Eth))
        }),
    ];
    let row = |(name, over, contestants): (&str, &str, Makes), percent: u32| {
        let title = format!("Round trip {over} at {percent} % of the highest rate, {LEN} B");
        Row::new(format!("{name}/loaded/{percent}"), title, Work::Loaded { len: LEN, percent }, contestants())
    };
    families.into_iter().flat_map(|family| [10, 50, 80].map(|percent| row(family, percent))).collect()
}
