//! Promises of remote memory access looked at one by one, in networks made for the purpose.

use cci_proto::{Attribute, Status};
use cci_testkit::sim::{
    Fault, HangUp, Link, Net, NodePlan, Plan, Reading, Report, RmaWork, Talk, Workload, World,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const RELIABLE: [Attribute; 2] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered];

fn world(net: Net, plan: Plan) -> World {
    World::new(net, plan).unwrap_or_else(|what| panic!("{what}"))
}

fn run_until(world: &mut World, until_ns: u64) {
    world.run_until(until_ns).unwrap_or_else(|what| panic!("{what}"));
}

fn finish(world: &mut World) -> Report {
    world.run().unwrap_or_else(|what| panic!("{what}"))
}

fn talk(attribute: Attribute, up: Workload) -> Talk {
    Talk::new(0, 1, attribute, up, Workload::QUIET)
}

fn pair() -> Plan {
    Plan::new(2, NodePlan { memory_bytes_max: 4 << 20, ..NodePlan::default() })
}

/// 1 Gbit/s, 100 µs, with room for one bandwidth-delay product in the queue.
fn bottleneck() -> Net {
    Net::new(21).delay_ns(50_000, 0).links(Link::UNLIMITED, Link::new(1_000_000_000, 12_500))
}

fn ended(world: &World, side: usize, status: Status) -> usize {
    world.ledger.rma.sides[side].ops.iter().filter(|op| op.status == Some(status)).count()
}

#[test]
fn a_message_waits_for_no_more_than_what_is_in_flight() {
    for attribute in RELIABLE {
        let up =
            Workload { gap_ns: 200_000, rma: RmaWork::writes(1, 30_000_000), ..Workload::bulk(1_000, 8) };
        let mut world = world(bottleneck(), pair().talk(talk(attribute, up)));
        let mut behind_most = 0;
        for at in 5..200 {
            run_until(&mut world, at * MS);
            let flow = &world.ledger.sides[0].flow;
            behind_most = behind_most.max(flow.msgs.len() as u64 - flow.delivered);
        }
        assert_eq!(world.ledger.rma.sides[0].outstanding, 1, "the write must have gone on all the time");
        // A message each 200 µs: the round trip and a full queue are 200 µs, and a loss may hold up what is behind it.
        assert!(behind_most <= 8, "{attribute:?}: {behind_most} messages were behind");
        finish(&mut world);
    }
}

/// How long one write of 4 MB takes.
fn write_beside(messages: Workload) -> u64 {
    let up = Workload { rma: RmaWork::writes(1, 4_000_000), ..messages };
    let mut world = world(bottleneck(), pair().talk(talk(Attribute::ReliableOrdered, up)));
    run_until(&mut world, 5 * SECOND);
    let side = &world.ledger.rma.sides[0];
    assert_eq!(side.outstanding, 0, "a write starves beside messages");
    side.last_completion_ns - side.ops[0].started_ns
}

#[test]
fn a_flood_of_messages_does_not_starve_a_write() {
    let alone = write_beside(Workload::QUIET);
    let beside = write_beside(Workload { until_ns: 5 * SECOND, ..Workload::bulk(u32::MAX, 1_400) });
    // It gets a share of the window that is reserved for it: 16 of 256 bundles.
    assert!(beside < alone * 20, "{alone} ns alone, {beside} ns beside a flood");
}

#[test]
fn a_program_that_takes_no_messages_slows_no_write_of_another_connection() {
    let took = |deaf: bool| {
        let mut plan =
            pair().talk(talk(Attribute::ReliableOrdered, Workload::rma(RmaWork::writes(20, 200_000))));
        plan.nodes[1].reading = if deaf { Reading::Deaf { until_ns: SECOND } } else { Reading::Instant };
        plan = plan.talk(talk(Attribute::ReliableOrdered, Workload::bulk(3_000, 500)));
        let mut world = world(Net::new(22).delay_ns(20_000, 0), plan);
        finish(&mut world);
        let sides = world.ledger.rma.sides.iter().filter(|side| !side.ops.is_empty());
        sides.map(|side| side.last_completion_ns).max().unwrap_or(0)
    };
    let (ready, deaf) = (took(false), took(true));
    assert!(deaf < ready * 2, "{ready} ns with a reader, {deaf} ns without");
}

#[test]
fn what_was_started_before_hanging_up_is_finished() {
    for loss_pct in [0.0, 10.0] {
        for rma in [RmaWork::writes(300, 5_000), RmaWork::reads(300, 5_000)] {
            let rma = RmaWork { message_pct: 50.0, region_bytes: 2 << 20, ..rma };
            let mut talk = talk(Attribute::ReliableUnordered, Workload::rma(rma));
            talk.hang_up = HangUp::Linger;
            let mut world =
                world(Net::new(23).loss_pct(loss_pct).delay_ns(100_000, 10_000), pair().talk(talk));
            finish(&mut world);
            assert_eq!(ended(&world, 0, Status::Success), 300);
        }
    }
}

/// How operations end when the peer's machine goes down in the middle, and comes back or not.
fn crash(back_ns: Option<u64>, reads: bool) -> (World, u64) {
    let node = NodePlan { send_timeout_ns: 300 * MS, memory_bytes_max: 4 << 20, ..NodePlan::default() };
    let mut plan = Plan::new(2, node);
    plan.all_succeed = false;
    plan.faults.push((10 * MS, Fault::Crash(1)));
    plan.faults.extend(back_ns.map(|at_ns| (at_ns, Fault::Restart(1))));
    let rma = if reads { RmaWork::reads(2_000, 100_000) } else { RmaWork::writes(2_000, 100_000) };
    let rma = RmaWork { region_bytes: 4_000_000, ..rma };
    let mut world = world(bottleneck(), plan.talk(talk(Attribute::ReliableOrdered, Workload::rma(rma))));
    finish(&mut world);
    let end_ns = world.ledger.rma.sides[0].last_completion_ns;
    (world, end_ns)
}

#[test]
fn a_dead_peer_ends_every_operation() {
    for reads in [false, true] {
        let (world, end_ns) = crash(None, reads);
        assert!(ended(&world, 0, Status::Success) > 0 && ended(&world, 0, Status::TimedOut) > 0);
        assert!((300 * MS..900 * MS).contains(&end_ns), "reads: {reads}: the last ended at {end_ns} ns");
        let (world, end_ns) = crash(Some(20 * MS), reads);
        assert!(ended(&world, 0, Status::Disconnected) > 0, "a restarted peer is noticed sooner");
        assert!(end_ns < 300 * MS, "reads: {reads}: the last ended at {end_ns} ns");
    }
}

#[test]
fn an_endpoint_reads_and_writes_both_ways_at_once() {
    let both = RmaWork {
        atomic_pct: 10.0,
        read_pct: 50.0,
        message_pct: 20.0,
        fence_pct: 2.0,
        again_pct: 10.0,
        segments_max: 40,
        bytes_min: 1,
        ..RmaWork::writes(400, 60_000)
    };
    for attribute in RELIABLE {
        let mut talk = talk(attribute, Workload::rma(both));
        talk.down = Workload { rma: both, ..Workload::bulk(2_000, 300) };
        let net = Net::new(24).loss_pct(3.0).duplicate_pct(3.0).delay_ns(100_000, 400_000);
        let mut world = world(net, pair().talk(talk));
        let report = finish(&mut world);
        let done = &report.rma;
        assert!(done.writes > 200 && done.reads > 200 && done.atomics > 30, "{done:?}");
        assert_eq!(report.rma.refused + report.rma.failed, 0);
    }
}
