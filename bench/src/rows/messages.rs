//! Messages: half round trips and rates, by size.

use super::{Against, Bound, Goal, Row};
use crate::args::By;
use crate::contestant::{Contestant, Worker};
use crate::peers::Peers;
use crate::work::{Place, Work};

/// See the module.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let work = Work::HalfTrip { len: 8 };
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        Box::new(Worker::floor("cache line", By::CacheLine, Place::Here)),
        Box::new(Worker::ours("cci shm", By::Shm, Place::Here)),
    ];
    contestants.extend(peers.shared_memory());
    vec![Row {
        name: "shm/half-trip/8".to_owned(),
        title: "Half round trip over shared memory, 8 B".to_owned(),
        work,
        goals: vec![
            Goal { against: Against::Floor, bound: Bound::AtMost(1.5) },
            Goal { against: Against::BestPeer, bound: Bound::AtMost(1.0) },
        ],
        contestants,
    }]
}
