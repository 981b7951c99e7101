//! Bonded connections: two ways to one peer. Bandwidth adds up, one way may die in the middle, and everything still
//! arrives exactly once (CCI-032, SS-010).

use cci_proto::{Attribute, PathInfo, PathState};
use cci_testkit::rng::Rng;
use cci_testkit::sim::{
    Fault, Link, Net, NodePlan, Outage, Path, Plan, RmaWork, SECOND, Sizes, Talk, Workload, World,
};

const MS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000 * MS;

fn node(bonded: bool) -> NodePlan {
    NodePlan {
        memory_bytes_max: 8 << 20,
        sends_max: 8_192,
        poll_ns: 100,
        datagram_ns: 20,
        batch: 64,
        socket_bytes: 4 << 20,
        bonded,
        ..NodePlan::default()
    }
}

/// A network on which each interface is as fast, and each way as long, as it says.
fn net(seed: u64, bits_per_s: [u64; 2], delay_ns: [u64; 2]) -> (Net, Vec<(u64, Fault)>) {
    let mut net = Net::new(seed).delay_ns(delay_ns[0], 0);
    let slower = |path: &mut Path| path.delay_ns = delay_ns[1];
    net = net.path(SECOND, 1 + SECOND, slower).path(1 + SECOND, SECOND, slower);
    let mut links = Vec::new();
    for node in [0, 1] {
        for (interface, rate) in [(node, bits_per_s[0]), (node + SECOND, bits_per_s[1])] {
            // The queue takes a millisecond of the rate: what a switch has.
            let link = Link::new(rate, rate / 8 / 1_000);
            links.push((0, Fault::Links(interface, link.clone(), link)));
        }
    }
    (net, links)
}

/// Sends as much as it can until a time.
fn until(until_ns: u64, bytes: usize) -> Workload {
    Workload { until_ns, ..Workload::bulk(u32::MAX, bytes) }
}

fn world(net: Net, mut plan: Plan, faults: Vec<(u64, Fault)>) -> World {
    plan.faults.extend(faults);
    World::new(net, plan).unwrap_or_else(|what| panic!("{what}"))
}

/// Bits a second of messages that the server got between two times.
fn rate(world: &mut World, from_ns: u64, until_ns: u64) -> f64 {
    let run = |world: &mut World, at_ns| {
        world.run_until(at_ns).unwrap_or_else(|what| panic!("{what}"));
        world.ledger.sides.first().map_or(0, |side| side.flow.delivered_bytes)
    };
    let before = run(world, from_ns);
    let after = run(world, until_ns);
    (after - before) as f64 * 8.0 / ((until_ns - from_ns) as f64 / 1e9)
}

/// Both ways of the client's connection.
fn paths(world: &World) -> Option<[PathInfo; 2]> {
    world.endpoint(0)?.paths(world.ledger.sides.first()?.key?)
}

fn states(world: &World) -> Option<[PathState; 2]> {
    paths(world).map(|paths| paths.map(|path| path.state))
}

/// What one RU connection carries over these links, bonded or by its first way alone.
fn throughput(bonded: bool, attribute: Attribute, bits_per_s: [u64; 2], delay_ns: [u64; 2]) -> f64 {
    let (net, links) = net(3, bits_per_s, delay_ns);
    let plan = Plan::new(2, node(bonded));
    let plan = plan.talk(Talk::new(0, 1, attribute, until(400 * MS, 1_416), Workload::QUIET));
    let mut world = world(net, plan, links);
    let rate = rate(&mut world, 100 * MS, 400 * MS);
    if bonded {
        assert_eq!(states(&world), Some([PathState::Up; 2]));
    }
    world.run().unwrap_or_else(|what| panic!("{what}"));
    rate
}

#[test]
fn bandwidth_adds_up() {
    for attribute in [Attribute::ReliableUnordered, Attribute::ReliableOrdered] {
        for (bits_per_s, delay_ns, least) in [
            ([1_000_000_000, 1_000_000_000], [50_000, 50_000], 1.7),
            ([100_000_000, 100_000_000], [500_000, 500_000], 1.7),
            ([1_000_000_000, 1_000_000_000], [20_000, 200_000], 1.6),
            ([1_000_000_000, 400_000_000], [50_000, 50_000], 1.25),
            ([400_000_000, 1_000_000_000], [50_000, 50_000], 2.2),
            // So slow a way as the second is in the way: the first is used as well as without it.
            ([1_000_000_000, 10_000_000], [50_000, 20 * MS], 0.9),
        ] {
            let one = throughput(false, attribute, bits_per_s, delay_ns);
            let two = throughput(true, attribute, bits_per_s, delay_ns);
            println!(
                "{attribute:?} {bits_per_s:?} bit/s, {delay_ns:?} ns: {:.0} Mbit/s alone, {:.0} bonded: {:.2} times",
                one / 1e6,
                two / 1e6,
                two / one
            );
            assert!(two >= least * one, "{bits_per_s:?} {delay_ns:?}: {two:.0} of {one:.0}");
        }
    }
}

#[test]
fn a_way_that_dies_loses_nothing_and_is_used_again() {
    for dead in [0, SECOND] {
        let (mut net, links) = net(5, [200_000_000; 2], [100_000; 2]);
        net = net.partition(dead, 1 + dead, 200 * MS, 1_000 * MS);
        let talk = Talk::new(0, 1, Attribute::ReliableUnordered, until(3_000 * MS, 1_416), Workload::QUIET);
        let mut world = world(net, Plan::new(2, node(true)).talk(talk), links);
        let before = rate(&mut world, 100 * MS, 200 * MS);
        assert_eq!(states(&world), Some([PathState::Up; 2]));
        // From 20 ms after the cut on, the other way alone is in use.
        let meanwhile = rate(&mut world, 220 * MS, 900 * MS);
        assert_eq!(states(&world).map(|states| states[dead / SECOND]), Some(PathState::Down));
        let after = rate(&mut world, 2_000 * MS, 3_000 * MS);
        assert_eq!(states(&world), Some([PathState::Up; 2]));
        println!(
            "interface {dead} down for 800 ms: {:.0}, {:.0}, {:.0} Mbit/s before, meanwhile, after",
            before / 1e6,
            meanwhile / 1e6,
            after / 1e6
        );
        assert!(meanwhile > 0.45 * before && after > 0.95 * before);
        assert_eq!(world.endpoint(0).map(|end| end.counters().paths_lost), Some(1));
        world.run().unwrap_or_else(|what| panic!("{what}"));
    }
}

/// One way works again just when the other dies, so that the first probe of the other finds no way in use but that one.
#[test]
fn a_way_that_dies_before_the_other_is_used_again_is_given_up() {
    for dead in [0, SECOND] {
        let other = SECOND - dead;
        let (mut net, links) = net(6, [200_000_000; 2], [100_000; 2]);
        net = net.partition(dead, 1 + dead, 200 * MS, 1_000 * MS);
        net = net.partition(other, 1 + other, 1_000 * MS, u64::MAX);
        let traffic = until(3_000 * MS, 1_416);
        let mut plan = Plan::new(2, node(true));
        plan = plan.talk(Talk::new(0, 1, Attribute::ReliableOrdered, traffic, Workload::QUIET));
        plan.all_succeed = true;
        let mut world = world(net, plan, links);
        let after = rate(&mut world, 2_000 * MS, 3_000 * MS);
        println!("interface {dead} up when {other} died: {:.0} Mbit/s after", after / 1e6);
        assert_eq!(states(&world).map(|states| states[other / SECOND]), Some(PathState::Down));
        assert!(after > 0.7 * 160e6, "{after:.0}");
        world.run().unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn a_way_that_dies_in_one_direction_loses_nothing() {
    for (source, target) in [(SECOND, 1 + SECOND), (1 + SECOND, SECOND), (0, 1), (1, 0)] {
        let (mut net, links) = net(9, [200_000_000; 2], [100_000; 2]);
        let outage =
            Outage { from_ns: 200 * MS, until_ns: 1_500 * MS, source: Some(source), target: Some(target) };
        net = net.outage(outage);
        let talk =
            Talk::new(0, 1, Attribute::ReliableUnordered, until(2_500 * MS, 1_416), until(2_500 * MS, 500));
        let mut world = world(net, Plan::new(2, node(true)).talk(talk), links);
        let meanwhile = rate(&mut world, 300 * MS, 1_400 * MS);
        let after = rate(&mut world, 2_200 * MS, 2_500 * MS);
        println!("{source}>{target} dead: {:.0} Mbit/s meanwhile, {:.0} after", meanwhile / 1e6, after / 1e6);
        assert!(meanwhile > 0.7 * 160e6 && after > 1.3 * 160e6, "{meanwhile:.0} {after:.0}");
        world.run().unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn a_dead_first_interface_does_not_prevent_connecting() {
    let (mut net, links) = net(1, [0; 2], [100_000; 2]);
    net = net.partition(0, 1, 0, 500 * MS);
    let messages = Workload { gap_ns: MS, ..Workload::bulk(1_000, 100) };
    let talk = Talk::new(0, 1, Attribute::ReliableUnordered, messages, Workload::QUIET);
    let mut world = world(net, Plan::new(2, node(true)).talk(talk), links);
    world.run_until(200 * MS).unwrap_or_else(|what| panic!("{what}"));
    let [first, second] = paths(&world).unwrap_or_else(|| panic!("no bonded connection after 200 ms"));
    // What answered is the first way; the other is asked for until it is there.
    assert_eq!((first.to.map(|to| to.via()), first.state), (Some(1), PathState::Up));
    assert_eq!((second.to.map(|to| to.via()), second.state), (Some(0), PathState::Unproved));
    world.run_until(1_000 * MS).unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(states(&world), Some([PathState::Up; 2]));
    world.run().unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn only_when_both_ways_are_dead_is_the_connection_broken() {
    let quick = NodePlan { send_timeout_ns: 400 * MS, keepalive_ns: 200 * MS, ..node(true) };
    let messages = Workload { gap_ns: 20 * MS, ..Workload::bulk(500, 100) };
    let talk = |down| Talk::new(0, 1, Attribute::ReliableUnordered, messages.clone(), down);
    // One after the other, for longer than anyone waits: nothing is noticed.
    let (mut turns, links) = net(2, [0; 2], [100_000; 2]);
    turns = turns.partition(0, 1, 100 * MS, 3_000 * MS);
    turns = turns.partition(SECOND, 1 + SECOND, 4_000 * MS, 8_000 * MS);
    let mut plan = Plan::new(2, quick.clone()).talk(talk(Workload::QUIET));
    plan.all_succeed = true;
    world(turns, plan, links).run().unwrap_or_else(|what| panic!("{what}"));
    // Both: the sends time out, and the connection ends.
    let (mut both, links) = net(2, [0; 2], [100_000; 2]);
    both = both.partition(0, 1, 100 * MS, u64::MAX).partition(SECOND, 1 + SECOND, 100 * MS, u64::MAX);
    let mut plan = Plan::new(2, quick).talk(talk(Workload::QUIET));
    plan.all_succeed = false;
    let mut world = world(both, plan, links);
    world.run().unwrap_or_else(|what| panic!("{what}"));
    assert_eq!(world.endpoint(0).map(|end| end.counters().connections_broken), Some(1));
}

/// Trouble on both ways, drawn from a seed: nothing that the other way could not make good.
fn trouble(seed: u64) -> (Net, Plan, Vec<(u64, Fault)>) {
    let mut rng = Rng::new(seed);
    let rates = [0, 100_000_000, 1_000_000_000, 10_000_000_000];
    let delays = [1_000, 20_000, 100_000, MS, 10 * MS];
    let (mut net, links) =
        net(rng.next_u64(), [rng.pick(&rates), rng.pick(&rates)], [rng.pick(&delays), rng.pick(&delays)]);
    for (source, target) in [(0, 1), (1, 0), (SECOND, 1 + SECOND), (1 + SECOND, SECOND)] {
        let mut draw = Rng::new(rng.next_u64());
        net = net.path(source, target, |path| {
            path.loss_pct = draw.pick(&[0.0, 0.0, 1.0, 5.0, 20.0]);
            path.duplicate_pct = draw.pick(&[0.0, 1.0, 20.0]);
            path.jitter_ns = draw.pick(&[0, 0, 10_000, path.delay_ns]);
            path.reorder_pct = draw.pick(&[0.0, 0.0, 5.0]);
            path.reorder_ns = draw.pick(&[5_000, 100_000, 5 * MS]);
        });
    }
    // One interface at a time is away, in one direction or both.
    let mut at_ns = rng.below(50 * MS);
    for _ in 0..rng.below(4) {
        let until_ns = at_ns + rng.pick(&[MS, 20 * MS, 300 * MS, 3 * SECOND_NS]);
        let rail = SECOND * rng.below(2) as usize;
        let outage = Outage { from_ns: at_ns, until_ns, source: Some(rail), target: Some(1 + rail) };
        net = match rng.below(3) {
            0 => net.outage(outage),
            1 => net.outage(Outage { source: outage.target, target: outage.source, ..outage }),
            _ => net.partition(rail, 1 + rail, at_ns, until_ns),
        };
        // Sometimes the next one goes before this one is used again.
        at_ns = until_ns + rng.pick(&[0, 20 * MS, SECOND_NS]) + rng.below(SECOND_NS / 2);
    }
    let mut plan = Plan::new(2, NodePlan { send_timeout_ns: 100 * SECOND_NS, ..node(true) });
    plan.all_succeed = true;
    for node in &mut plan.nodes {
        node.socket_bytes = rng.pick(&[20_000, 212_992, 4 << 20]);
        node.datagram_bytes_max = rng.pick(&[1_152, 1_472, 4_096]);
        node.batch = rng.pick(&[1, 4, 32]);
        node.keepalive_ns = if rng.pct(30.0) { 60 * SECOND_NS } else { 0 };
    }
    for _ in 0..rng.range(1, 3) {
        let attribute = rng.pick(&[
            Attribute::ReliableUnordered,
            Attribute::ReliableUnordered,
            Attribute::ReliableOrdered,
        ]);
        let (up, down) = (workload(&mut rng), workload(&mut rng));
        let client = rng.below(2) as usize;
        plan.talks.push(Talk {
            start_ns: rng.below(20 * MS),
            ..Talk::new(client, 1 - client, attribute, up, down)
        });
    }
    let mut faults = links;
    if rng.pct(30.0) {
        plan.record = true;
        for _ in 0..rng.range(3, 20) {
            let at_ns = rng.range(0, 30 * MS) * rng.pick(&[1, 1, 10, 100]);
            let count = rng.range(1, 30) as u32;
            faults.push((
                at_ns,
                match rng.below(3) {
                    0 => Fault::Replay(count),
                    1 => Fault::Forge(count),
                    _ => Fault::ReplayElsewhere(count),
                },
            ));
        }
    }
    (net, plan, faults)
}

fn workload(rng: &mut Rng) -> Workload {
    let bytes_max = rng.pick(&[16, 3_000, 100_000]);
    let rma = RmaWork {
        operations: rng.range(1, 60) as u32,
        bytes_max,
        region_bytes: 4 * bytes_max + 4_000,
        outstanding_max: rng.pick(&[1, 20, 200]),
        read_pct: rng.pick(&[0.0, 50.0, 100.0]),
        atomic_pct: rng.pick(&[0.0, 20.0, 100.0]),
        message_pct: rng.pick(&[0.0, 10.0]),
        fence_pct: rng.pick(&[0.0, 5.0]),
        gap_ns: rng.pick(&[0, 0, 100_000, 5 * MS]),
        ..RmaWork::writes(1, 1)
    };
    Workload {
        messages: rng.range(0, 400) as u32,
        sizes: if rng.pct(50.0) { Sizes::Between(8, 3_000) } else { Sizes::Fixed(64) },
        gap_ns: rng.pick(&[0, 0, 20_000, 2 * MS]),
        burst: rng.pick(&[1, 8]),
        rma: if rng.pct(70.0) { rma } else { RmaWork::NONE },
        ..Workload::QUIET
    }
}

/// `CCI_SIM_SEEDS=N` runs N seeds, `CCI_SIM_SEED=S` only S, with `CCI_SIM_TRACE=1` and the last 4,000 datagrams.
#[test]
fn every_seed_keeps_the_promises() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("CCI_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("CCI_SIM_SEEDS").unwrap_or(300),
    };
    let (mut failed, mut bonded) = (Vec::new(), 0);
    for seed in seeds.clone() {
        let (net, plan, faults) = trouble(seed);
        let mut world = world(net, plan, faults);
        if let Err(what) = world.run() {
            println!("seed {seed}: {what}");
            failed.push(seed);
        }
        bonded += world.endpoint(0).map_or(0, |end| end.counters().paths_lost);
    }
    println!("{} seeds, a way was lost {bonded} times", seeds.end - seeds.start);
    assert!(failed.is_empty(), "failed: {failed:?}");
}
