//! Promises looked at one by one, in networks made for the purpose.

use cci_proto::{Attribute, Status};
use cci_testkit::sim::{
    Fault, HangUp, Net, NodePlan, Outage, Plan, Reading, Role, SideState, Sizes, Talk, Workload, World,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn world(net: Net, plan: Plan) -> World {
    World::new(net, plan).unwrap_or_else(|what| panic!("{what}"))
}

fn run_until(world: &mut World, until_ns: u64) {
    world.run_until(until_ns).unwrap_or_else(|what| panic!("{what}"));
}

fn finish(world: &mut World) -> cci_testkit::sim::Report {
    world.run().unwrap_or_else(|what| panic!("{what}"))
}

/// One message of 100 B each 10 µs.
fn steady(messages: u32) -> Workload {
    Workload { gap_ns: 10_000, ..Workload::bulk(messages, 100) }
}

fn statuses(world: &World, side: usize, status: Status) -> usize {
    world.ledger.sides[side].flow.msgs.iter().filter(|msg| msg.status == Some(status)).count()
}

/// Deliveries when half of the messages sent after a loss have arrived, but the loss cannot be repaired yet.
fn delivered_past_a_loss(attribute: Attribute) -> (u64, u64) {
    // One way 1 ms; what leaves from 20.0 to 20.3 ms is lost; before 22 ms the sender cannot have heard of it.
    let outage = Outage { from_ns: 20 * MS, until_ns: 20 * MS + 300_000, source: Some(0), target: Some(1) };
    let net = Net::new(1).delay_ns(MS, 0).outage(outage);
    let mut world = world(
        net,
        Plan::new(2, NodePlan::default()).talk(Talk::new(0, 1, attribute, steady(3_000), Workload::QUIET)),
    );
    run_until(&mut world, 21 * MS);
    let before = world.ledger.sides[0].flow.delivered;
    run_until(&mut world, 22 * MS);
    let after = world.ledger.sides[0].flow.delivered;
    assert!(world.net_counts().outage > 0, "nothing was lost");
    finish(&mut world);
    (before, after)
}

#[test]
fn unordered_goes_past_a_loss_and_ordered_waits() {
    let (before, after) = delivered_past_a_loss(Attribute::ReliableUnordered);
    assert!(
        after >= before + 40,
        "RU delivered {before}, then {after}: it waits for what it need not wait for"
    );
    let (before, after) = delivered_past_a_loss(Attribute::ReliableOrdered);
    assert!(after <= before + 1, "RO delivered {before}, then {after}: past a loss");
}

#[test]
fn unreliable_loses_what_the_network_loses_and_no_more() {
    let net = Net::new(2).loss_pct(10.0);
    let plan = Plan::new(2, NodePlan::default());
    let mut world =
        world(net, plan.talk(Talk::new(0, 1, Attribute::Unreliable, steady(5_000), Workload::QUIET)));
    finish(&mut world);
    let flow = &world.ledger.sides[0].flow;
    assert_eq!(statuses(&world, 0, Status::Success), 5_000, "unreliable sends complete when they have left");
    assert!((4_300..4_700).contains(&flow.delivered), "{} of 5,000 at 10 % loss", flow.delivered);
    let counters = world.endpoint(0).map(|endpoint| endpoint.counters().clone()).unwrap_or_default();
    assert_eq!(counters.retransmissions, 0);
}

#[test]
fn nothing_is_sent_needlessly_on_a_good_network() {
    let plan = Plan::new(2, NodePlan::default());
    let up = Workload { sizes: Sizes::Between(0, 500), ..Workload::bulk(10_000, 0) };
    let mut world = world(
        Net::new(3).delay_ns(10_000, 0),
        plan.talk(Talk::new(0, 1, Attribute::ReliableOrdered, up.clone(), up)),
    );
    finish(&mut world);
    for node in 0..2 {
        let counters = world.endpoint(node).map(|endpoint| endpoint.counters().clone()).unwrap_or_default();
        assert_eq!(
            (counters.retransmissions, counters.probe_timeouts, counters.faults()),
            (0, 0, 0),
            "node {node}"
        );
    }
}

/// When the last message from node 0 to node 2 is complete, with or without a talk to a deaf node 1.
fn completion_beside(deaf: bool) -> u64 {
    let mut plan = Plan::new(3, NodePlan { memory_bytes_max: 2 << 20, ..NodePlan::default() });
    plan.nodes[1].reading = Reading::Deaf { until_ns: 2 * SECOND };
    plan = plan.talk(Talk::new(0, 2, Attribute::ReliableOrdered, steady(20_000), Workload::QUIET));
    if deaf {
        plan = plan.talk(Talk::new(
            0,
            1,
            Attribute::ReliableOrdered,
            Workload::bulk(3_000, 500),
            Workload::QUIET,
        ));
    }
    let mut world = world(Net::new(4).delay_ns(20_000, 0), plan);
    finish(&mut world);
    let to_two =
        world.ledger.sides.iter().position(|side| side.conversation == 0 && side.role == Role::Client);
    world.ledger.sides[to_two.unwrap_or(0)].flow.last_completion_ns
}

#[test]
fn a_receiver_that_is_not_ready_slows_nobody_else() {
    let (alone, beside) = (completion_beside(false), completion_beside(true));
    assert!(beside < alone + alone / 10, "{alone} ns alone, {beside} ns beside a deaf receiver");
}

#[test]
fn not_ready_until_the_send_timeout_says_so_and_the_connection_lives() {
    let mut plan = Plan::new(2, NodePlan { send_timeout_ns: 50 * MS, ..NodePlan::default() });
    plan.nodes[1].reading = Reading::Deaf { until_ns: 2 * SECOND };
    plan.all_succeed = false;
    // More than the receiver can hold for it, then a few when it listens again.
    let up = Workload { gap_ns: 3 * SECOND, burst: 3_000, ..Workload::bulk(3_010, 1_400) };
    let mut world =
        world(Net::new(5), plan.talk(Talk::new(0, 1, Attribute::ReliableOrdered, up, Workload::QUIET)));
    finish(&mut world);
    let (refused, fine) =
        (statuses(&world, 0, Status::ReceiverNotReady), statuses(&world, 0, Status::Success));
    assert!(refused > 0, "nobody was told");
    assert_eq!(refused + fine, 3_010, "{:?}", world.ledger.sides[0].flow.msgs.last());
    let last = world.ledger.sides[0].flow.msgs.last().and_then(|msg| msg.status);
    assert_eq!(last, Some(Status::Success), "the connection works once the receiver listens");
}

#[test]
fn a_dead_peer_ends_every_send_with_timed_out() {
    let mut plan = Plan::new(2, NodePlan { send_timeout_ns: 300 * MS, ..NodePlan::default() });
    plan.all_succeed = false;
    plan.faults.push((10 * MS, Fault::Crash(1)));
    let talk = Talk::new(0, 1, Attribute::ReliableUnordered, steady(100_000), Workload::QUIET);
    let mut world = world(Net::new(6), plan.talk(talk));
    finish(&mut world);
    assert!(statuses(&world, 0, Status::TimedOut) > 0);
    let end_ns = world.ledger.sides[0].flow.last_completion_ns;
    assert!((300 * MS..800 * MS).contains(&end_ns), "the last send ended at {end_ns} ns");
}

#[test]
fn a_restarted_peer_is_noticed_long_before_the_send_timeout() {
    let mut plan = Plan::new(2, NodePlan { send_timeout_ns: 30 * SECOND, ..NodePlan::default() });
    plan.all_succeed = false;
    plan.faults.push((10 * MS, Fault::Crash(1)));
    plan.faults.push((20 * MS, Fault::Restart(1)));
    let talk = Talk::new(0, 1, Attribute::ReliableOrdered, steady(100_000), Workload::QUIET);
    let mut world = world(Net::new(7), plan.talk(talk));
    finish(&mut world);
    assert!(statuses(&world, 0, Status::Disconnected) > 0);
    let end_ns = world.ledger.sides[0].flow.last_completion_ns;
    assert!(end_ns < 2 * SECOND, "the last send ended at {end_ns} ns");
}

#[test]
fn the_past_of_another_connection_has_no_effect() {
    let mut plan = Plan::new(2, NodePlan::default());
    plan.record = true;
    for (start_ns, attribute) in [
        (0, Attribute::ReliableOrdered),
        (100 * MS, Attribute::ReliableOrdered),
        (100 * MS, Attribute::Unreliable),
    ] {
        let mut talk = Talk::new(0, 1, attribute, steady(1_000), steady(1_000));
        talk.start_ns = start_ns;
        plan.talks.push(talk);
    }
    // Everything of the first connection once more, while the other two talk; and everything once more at the very end.
    plan.faults.push((103 * MS, Fault::ReplayBetween(0, 90 * MS)));
    plan.faults.push((10 * SECOND, Fault::ReplayBetween(0, 9 * SECOND)));
    plan.faults.push((5_000 * SECOND, Fault::ReplayBetween(0, 9 * SECOND)));
    plan.end_ns = 6_000 * SECOND;
    plan.give_up_ns = 5_500 * SECOND;
    let mut world = world(Net::new(8), plan);
    finish(&mut world);
    let ups = |state| world.ledger.sides.iter().filter(|side| side.state == state).count();
    assert_eq!(
        world
            .ledger
            .sides
            .iter()
            .filter(|side| side.role == Role::Client && side.state == SideState::Closed)
            .count(),
        3
    );
    // Whatever was accepted for a request out of the past must have failed, not come up.
    assert_eq!(ups(SideState::Closed), 6, "a replayed handshake came up");
}

#[test]
fn forgeries_are_counted_and_nothing_else() {
    let mut plan = Plan::new(3, NodePlan::default());
    plan.record = true;
    for (client, server) in [(0, 1), (1, 2), (2, 0)] {
        plan.talks.push(Talk::new(client, server, Attribute::ReliableOrdered, steady(3_000), steady(3_000)));
    }
    for at in 1..=60 {
        plan.faults.push((at * MS / 2, Fault::Forge(100)));
    }
    let mut world = world(Net::new(9), plan);
    finish(&mut world);
    let faults: u64 =
        (0..3).filter_map(|node| world.endpoint(node)).map(|endpoint| endpoint.counters().faults()).sum();
    assert!(faults > 1_000, "only {faults} faults counted");
}

#[test]
fn a_request_that_nobody_hears_fails_in_time() {
    let mut plan = Plan::new(2, NodePlan::default());
    plan.all_succeed = false;
    plan.faults.push((0, Fault::Crash(1)));
    let mut talk = Talk::new(0, 1, Attribute::ReliableOrdered, Workload::QUIET, Workload::QUIET);
    talk.connect_timeout_ns = Some(700 * MS);
    talk.start_ns = MS;
    let mut world = world(Net::new(10), plan.talk(talk));
    run_until(&mut world, 701 * MS - 1);
    assert_eq!(world.ledger.sides[0].state, SideState::Pending);
    run_until(&mut world, 720 * MS);
    assert_eq!(world.ledger.sides[0].state, SideState::Failed);
    finish(&mut world);
}

#[test]
fn what_was_said_before_hanging_up_arrives() {
    for loss_pct in [0.0, 10.0] {
        let mut talk =
            Talk::new(0, 1, Attribute::ReliableOrdered, Workload::bulk(2_000, 700), Workload::QUIET);
        talk.hang_up = HangUp::Linger;
        let net = Net::new(12).loss_pct(loss_pct).delay_ns(100_000, 10_000);
        let mut world = world(net, Plan::new(2, NodePlan::default()).talk(talk));
        finish(&mut world);
        assert_eq!(world.ledger.sides[0].flow.delivered, 2_000);
    }
}

#[test]
fn a_path_narrower_than_the_interface_still_carries_everything() {
    let net = Net::new(13).mtu_bytes(1_200);
    let up = Workload { sizes: Sizes::Between(0, 1_400), ..Workload::bulk(2_000, 0) };
    let plan = Plan::new(2, NodePlan::default());
    let mut world = world(net, plan.talk(Talk::new(0, 1, Attribute::ReliableOrdered, up.clone(), up)));
    let report = finish(&mut world);
    assert!(report.net.too_long > 0 && report.net.too_long < 600, "{:?}", report.net);
}

#[test]
fn keepalive_speaks_once_and_ends_nothing() {
    let mut plan = Plan::new(2, NodePlan { keepalive_ns: 50 * MS, ..NodePlan::default() });
    plan.all_succeed = false;
    plan.give_up_ns = 10 * SECOND;
    let outage = Outage { from_ns: 300 * MS, until_ns: 5 * SECOND, source: None, target: None };
    // One message before the silence, one long after it.
    let up = Workload { gap_ns: 8 * SECOND, ..Workload::bulk(2, 8) };
    let mut world = world(
        Net::new(14).outage(outage),
        plan.talk(Talk::new(0, 1, Attribute::ReliableOrdered, up, Workload::QUIET)),
    );
    run_until(&mut world, 290 * MS);
    assert_eq!(
        world.ledger.sides[0].silences + world.ledger.sides[1].silences,
        0,
        "raised though the peer answers"
    );
    finish(&mut world);
    assert_eq!((world.ledger.sides[0].silences, world.ledger.sides[1].silences), (1, 1));
    assert_eq!(statuses(&world, 0, Status::Success), 2, "the connection survives the silence");
}

#[test]
fn what_was_refused_and_given_up_cannot_arrive_late() {
    let mut plan = Plan::new(2, NodePlan { send_timeout_ns: 200 * MS, ..NodePlan::default() });
    plan.nodes[1].reading = Reading::Deaf { until_ns: 2 * SECOND };
    plan.all_succeed = false;
    plan.record = true;
    // The receiver is ready again, and the sender, 10 ms away, does not know it yet: now old copies come.
    plan.faults.push((2 * SECOND - 9 * MS, Fault::ReplayBetween(0, 600 * MS)));
    let up = Workload { gap_ns: 3 * SECOND, burst: 600, ..Workload::bulk(610, 1_400) };
    let talk = Talk::new(0, 1, Attribute::ReliableOrdered, up, Workload::QUIET);
    let mut world = world(Net::new(15).delay_ns(10 * MS, 0), plan.talk(talk));
    finish(&mut world);
    assert!(statuses(&world, 0, Status::ReceiverNotReady) > 0, "nobody was told");
}
