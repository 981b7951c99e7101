//! Messages: half round trips and rates, by size, on each device.

use super::{
    Against, Bound, Contestants, Goal, Row, across_a_pair, baseline, baseline_at_least, baseline_at_most,
    best_peer_at_least, best_peer_at_most, ours, with_peers,
};
use crate::args::By;
use crate::contestant::Worker;
use crate::peers::Peers;
use crate::work::{Placement, Work};

/// The rows that measure messages.
pub fn rows(peers: &Peers) -> Vec<Row> {
    let mut rows = Vec::new();
    shared_memory(&mut rows, peers);
    let udp = Family {
        name: "udp",
        over: "over UDP on loopback",
        contestants: &|| {
            with_peers(vec![baseline("plain UDP", By::PlainUdp), ours("cci udp", By::Udp)], peers.udp())
        },
        half_trip_goals: &[baseline_at_most(1.15)],
        rate_goals: &[baseline_at_least(10.0)],
    };
    udp.add(&mut rows, &[8, 64, 1024], &[8, 64, 1024], 8);
    let tcp = Family {
        name: "tcp",
        over: "over TCP on loopback",
        contestants: &|| {
            with_peers(vec![baseline("plain TCP", By::PlainTcp), ours("cci tcp", By::Tcp)], peers.tcp())
        },
        half_trip_goals: &[baseline_at_most(1.08)],
        rate_goals: &[],
    };
    tcp.add(&mut rows, &[8, 64, 1024], &[8, 64, 1024], 8);
    let eth = Family {
        name: "eth",
        over: "across a pair of virtual Ethernet interfaces",
        // The other baseline is what the socket can do at best.
        contestants: &|| {
            let socket = Worker::baseline("plain AF_XDP", By::PlainXdp, Placement::VirtualPair);
            let pair = across_a_pair(("plain UDP", By::PlainUdp), ("cci eth", By::Eth));
            with_peers(pair, vec![Box::new(socket)])
        },
        half_trip_goals: &[
            baseline_at_most(0.5),
            Goal { against: Against::OtherBaseline, bound: Bound::AtMost(1.1) },
        ],
        rate_goals: &[baseline_at_least(6.0)],
    };
    rows.extend(streams(peers));
    eth.add(&mut rows, &[64, 1024], &[64, 1024], 64);
    for (name, title, plain, by) in
        [("udp", "UDP", By::PlainUdp, By::Udp), ("tcp", "TCP", By::PlainTcp, By::Tcp)]
    {
        let family = Family {
            name: &format!("pair-{name}"),
            over: &format!("over {title} across a pair of virtual Ethernet interfaces"),
            contestants: &|| across_a_pair(("plain sockets", plain), ("cci", by)),
            half_trip_goals: &[],
            rate_goals: &[],
        };
        family.add(&mut rows, &[64], &[64], 64);
    }
    rows
}

fn shared_memory(rows: &mut Vec<Row>, peers: &Peers) {
    let half_trips = Family {
        name: "shm",
        over: "over shared memory",
        contestants: &|| {
            let contestants = vec![baseline("cache line", By::CacheLine), ours("cci shm", By::Shm)];
            with_peers(contestants, peers.shared_memory())
        },
        half_trip_goals: &[baseline_at_most(1.5), best_peer_at_most(0.9)],
        rate_goals: &[],
    };
    half_trips.add(rows, &[8, 64, 512, 4096, 8192], &[], 8);
    rows.push(loans(peers));
    let rates = Family {
        // A cache line has no rate: the peers are what there is to compare with.
        contestants: &|| with_peers(vec![ours("cci shm", By::Shm)], peers.shared_memory()),
        half_trip_goals: &[],
        rate_goals: &[Goal { against: Against::BestMessagePasser, bound: Bound::AtLeast(1.5) }],
        ..half_trips
    };
    rates.add(rows, &[], &[8, 64, 1024], 8);
}

/// Long messages that are handed over where they were written, by those who can, beside what the others do.
fn loans(peers: &Peers) -> Row {
    let len = 8192;
    let ours = Worker::ours("cci shm", By::Shm, Placement::SameHost).doing(Work::LoanTrip { len });
    let title = format!("Half round trip over shared memory by loan, {len} B");
    let contestants = with_peers(vec![Box::new(ours)], peers.shared_memory());
    let row = Row::new(format!("shm/loan-trip/{len}"), title, Work::HalfTrip { len }, contestants);
    row.with_goals(&[best_peer_at_most(1.0)])
}

/// Messages in bursts, received by a handler, beside what the peers do at their best.
fn streams(peers: &Peers) -> Vec<Row> {
    let with_ours = |name, by, len, peers| {
        let ours = Worker::ours(name, by, Placement::SameHost).doing(Work::Stream { len });
        with_peers(vec![Box::new(ours)], peers)
    };
    let shm = |len| with_ours("cci shm", By::Shm, len, peers.shared_memory());
    let udp = |len| with_ours("cci udp", By::Udp, len, peers.udp());
    let tcp = |len| with_ours("cci tcp", By::Tcp, len, peers.tcp());
    let row = |name: &str, over: &str, len: u32, contestants: Contestants, goal: Goal| {
        let title = format!("Messages a second in bursts, by handler, {over}, {len} B");
        Row::new(format!("{name}/stream/{len}"), title, Work::Rate { len }, contestants).with_goals(&[goal])
    };
    vec![
        row("shm", "over shared memory", 8, shm(8), best_peer_at_least(2.0)),
        row("shm", "over shared memory", 1024, shm(1024), best_peer_at_least(1.2)),
        row("udp", "over UDP on loopback", 8, udp(8), best_peer_at_least(1.5)),
        row("tcp", "over TCP on loopback", 8, tcp(8), best_peer_at_least(2.0)),
    ]
}

/// Rows that differ in size only.
struct Family<'a> {
    name: &'a str,
    over: &'a str,
    contestants: &'a dyn Fn() -> Contestants,
    half_trip_goals: &'a [Goal],
    rate_goals: &'a [Goal],
}

impl Family<'_> {
    /// Rows for these lengths. Goals are promised for messages of one length.
    fn add(&self, rows: &mut Vec<Row>, half_trips: &[u32], rates: &[u32], goals_at: u32) {
        let mut row = |name: &str, title: &str, len: u32, work: Work, goals: &[Goal]| {
            let (name, title) =
                (format!("{}/{name}/{len}", self.name), format!("{title} {}, {len} B", self.over));
            let row = Row::new(name, title, work, (self.contestants)());
            rows.push(row.with_goals(if len == goals_at { goals } else { &[] }));
        };
        for &len in half_trips {
            row("half-trip", "Half round trip", len, Work::HalfTrip { len }, self.half_trip_goals);
        }
        for &len in rates {
            row("rate", "Messages a second", len, Work::Rate { len }, self.rate_goals);
        }
    }
}
