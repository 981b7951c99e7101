//! Latency under load: at a tenth, a half and four fifths of the highest rate that each can do itself.

use super::{Row, pair};
use crate::args::By;
use crate::contestant::{Contestant, Worker};
use crate::work::{Placement, Work};

const LEN: u32 = 64;

/// Makes the contestants of one row.
type Makers<'a> = &'a dyn Fn() -> Vec<Box<dyn Contestant>>;

/// The rows that measure latency under load.
pub fn rows() -> Vec<Row> {
    let families: [(&str, &str, Makers<'_>); 4] = [
        ("shm", "over shared memory", &|| {
            vec![Box::new(Worker::ours("cci shm", By::Shm, Placement::SameHost))]
        }),
        ("udp", "over UDP on loopback", &|| {
            pair("plain UDP", By::PlainUdp, "cci udp", By::Udp, Placement::SameHost)
        }),
        ("tcp", "over TCP on loopback", &|| {
            pair("plain TCP", By::PlainTcp, "cci tcp", By::Tcp, Placement::SameHost)
        }),
        ("eth", "across a pair of virtual Ethernet interfaces", &|| {
            pair("plain UDP", By::PlainUdp, "cci eth", By::Eth, Placement::VirtualPair)
        }),
    ];
    let mut rows = Vec::new();
    for (name, over, contestants) in families {
        rows.extend([10, 50, 80].map(|percent| Row {
            name: format!("{name}/loaded/{percent}"),
            title: format!("Round trip {over} at {percent} % of the highest rate, {LEN} B"),
            work: Work::Loaded { len: LEN, percent },
            goals: Vec::new(),
            contestants: contestants(),
        }));
    }
    rows
}
