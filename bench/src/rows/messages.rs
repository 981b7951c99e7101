//! Messages: half round trips and rates, by size, on each device.

use super::{Against, Bound, Goal, Row, baseline_at_least, baseline_at_most, pair, with_peers};
use crate::args::By;
use crate::contestant::{Contestant, Worker};
use crate::peers::Peers;
use crate::work::{Placement, Work};

const SAME_HOST: Placement = Placement::SameHost;
const VIRTUAL_PAIR: Placement = Placement::VirtualPair;

/// The rows that measure messages.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let mut rows = Vec::new();
    shared_memory(&mut rows, peers);
    let udp = Family {
        name: "udp",
        over: "over UDP on loopback",
        contestants: &|| {
            with_peers(pair("plain UDP", By::PlainUdp, "cci udp", By::Udp, SAME_HOST), peers.udp())
        },
        half_trip_goals: &[baseline_at_most(1.15)],
        rate_goals: &[baseline_at_least(10.0)],
    };
    udp.add(&mut rows, &[8, 64, 1024], &[8, 64, 1024], 8);
    let tcp = Family {
        name: "tcp",
        over: "over TCP on loopback",
        contestants: &|| {
            with_peers(pair("plain TCP", By::PlainTcp, "cci tcp", By::Tcp, SAME_HOST), peers.tcp())
        },
        half_trip_goals: &[baseline_at_most(1.1)],
        rate_goals: &[],
    };
    tcp.add(&mut rows, &[8, 64, 1024], &[8, 64, 1024], 8);
    let eth = Family {
        name: "eth",
        over: "across a pair of virtual Ethernet interfaces",
        // The first baseline is what the goals are about; the other one is what the socket can do at best.
        contestants: &|| {
            let socket: Box<dyn Contestant> =
                Box::new(Worker::baseline("plain AF_XDP", By::PlainXdp, VIRTUAL_PAIR));
            with_peers(pair("plain UDP", By::PlainUdp, "cci eth", By::Eth, VIRTUAL_PAIR), vec![socket])
        },
        half_trip_goals: &[baseline_at_most(0.5)],
        rate_goals: &[baseline_at_least(6.0)],
    };
    eth.add(&mut rows, &[64, 1024], &[64, 1024], 64);
    for (name, title, baseline_name, by) in
        [("udp", "UDP", By::PlainUdp, By::Udp), ("tcp", "TCP", By::PlainTcp, By::Tcp)]
    {
        let family = Family {
            name: &format!("pair-{name}"),
            over: &format!("over {title} across a pair of virtual Ethernet interfaces"),
            contestants: &|| pair("plain sockets", baseline_name, "cci", by, VIRTUAL_PAIR),
            half_trip_goals: &[],
            rate_goals: &[],
        };
        family.add(&mut rows, &[64], &[64], 64);
    }
    rows
}

fn shared_memory(rows: &mut Vec<Row>, peers: &Peers) {
    let ours = || -> Box<dyn Contestant> { Box::new(Worker::ours("cci shm", By::Shm, SAME_HOST)) };
    let half_trips = Family {
        name: "shm",
        over: "over shared memory",
        contestants: &|| {
            let line = Box::new(Worker::baseline("cache line", By::CacheLine, SAME_HOST));
            with_peers(vec![line, ours()], peers.shared_memory())
        },
        half_trip_goals: &[
            baseline_at_most(1.5),
            Goal { against: Against::BestPeer, bound: Bound::AtMost(1.0) },
        ],
        rate_goals: &[],
    };
    half_trips.add(rows, &[8, 64, 512, 4096, 8192], &[], 8);
    let rates = Family {
        // A cache line has no rate: the peers are what there is to compare with.
        contestants: &|| with_peers(vec![ours()], peers.shared_memory()),
        half_trip_goals: &[],
        rate_goals: &[Goal { against: Against::BestPeer, bound: Bound::AtLeast(2.0) }],
        ..half_trips
    };
    rates.add(rows, &[], &[8, 64, 1024], 8);
}

/// Rows that differ in size only.
struct Family<'a> {
    name: &'a str,
    over: &'a str,
    contestants: &'a dyn Fn() -> Vec<Box<dyn Contestant>>,
    half_trip_goals: &'a [Goal],
    rate_goals: &'a [Goal],
}

impl Family<'_> {
    /// Rows for these lengths. Goals are promised for messages of one length.
    fn add(&self, rows: &mut Vec<Row>, half_trips: &[u32], rates: &[u32], goals_at: u32) {
        let goals = |len: u32, goals: &[Goal]| if len == goals_at { goals.to_vec() } else { Vec::new() };
        rows.extend(half_trips.iter().map(|&len| Row {
            name: format!("{}/half-trip/{len}", self.name),
            title: format!("Half round trip {}, {len} B", self.over),
            work: Work::HalfTrip { len },
            goals: goals(len, self.half_trip_goals),
            contestants: (self.contestants)(),
        }));
        rows.extend(rates.iter().map(|&len| Row {
            name: format!("{}/rate/{len}", self.name),
            title: format!("Messages a second {}, {len} B", self.over),
            work: Work::Rate { len },
            goals: goals(len, self.rate_goals),
            contestants: (self.contestants)(),
        }));
    }
}
