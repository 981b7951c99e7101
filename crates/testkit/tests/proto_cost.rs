//! What loss and reordering cost, in datagrams: a table under git, so that no change makes it worse unnoticed.
//!
//! Why jitter is in it: a sender that takes every reordering for a loss passes every correctness test and sends everything twice.

mod common;

use std::fmt::Write as _;

use cci_proto::{Attribute, Counters};
use cci_testkit::sim::{Net, NodePlan, Plan, RmaWork, Talk, Workload, World};

struct Cost {
    datagrams: f64,
    again: f64,
    spurious: f64,
}

/// Datagrams in both directions, retransmissions and needless ones, per 1,000 messages.
fn cost(attribute: Attribute, bytes: usize, gap_ns: u64, loss_pct: f64, jitter_ns: u64) -> Cost {
    let messages = if bytes > 8 || gap_ns > 0 { 4_000 } else { 40_000 };
    let net = Net::new(7).loss_pct(loss_pct).delay_ns(10_000, jitter_ns);
    let up = Workload { gap_ns, ..Workload::bulk(messages, bytes) };
    let plan = Plan::new(2, NodePlan { memory_bytes_max: 4 << 20, ..NodePlan::default() });
    let plan = plan.talk(Talk::new(0, 1, attribute, up, Workload::QUIET));
    let mut world = World::new(net, plan).unwrap_or_else(|what| panic!("{what}"));
    let report = world.run().unwrap_or_else(|what| {
        panic!("{attribute:?} {bytes} B, gap {gap_ns} ns, loss {loss_pct} %, jitter {jitter_ns} ns: {what}")
    });
    let counters = world.endpoint(0).map(|endpoint| endpoint.counters().clone()).unwrap_or_default();
    let per = |count: u64| count as f64 * 1_000.0 / f64::from(messages);
    Cost {
        datagrams: per(report.net.sent),
        again: per(counters.retransmissions),
        spurious: per(counters.retransmissions_spurious),
    }
}

#[test]
fn cost_of_loss() {
    let mut table = String::from(
        "Datagrams sent per 1,000 messages, both directions, handshake and farewell included; of these sent again; of these\n\
         needlessly, as far as the sender knows. One connection, 20 us round trip without jitter, no rate limit.\n\
         \"8 B\": as fast as they are taken, packed. \"8 B, 1 each 20 us\": not packed. \"1,416 B\": one fills a datagram.\n\n",
    );
    let _ = writeln!(table, "type messages            jitter_us  loss_pct  datagrams    again  needless");
    for (name, attribute) in [("RO", Attribute::ReliableOrdered), ("RU", Attribute::ReliableUnordered)] {
        for (what, bytes, gap_ns) in [("8 B", 8, 0), ("8 B, 1 each 20 us", 8, 20_000), ("1,416 B", 1_416, 0)]
        {
            for jitter_ns in [0, 1_000, 100_000] {
                for loss_pct in [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0] {
                    let cost = cost(attribute, bytes, gap_ns, loss_pct, jitter_ns);
                    let _ = writeln!(
                        table,
                        "{name}   {what:<20} {:>9}  {loss_pct:>8}  {:>9.1}  {:>7.1}  {:>8.1}",
                        jitter_ns / 1_000,
                        cost.datagrams,
                        cost.again,
                        cost.spurious
                    );
                    judge(&cost, bytes, gap_ns, loss_pct, jitter_ns);
                }
            }
        }
    }
    remote_memory(&mut table);
    common::check_table("cost_of_loss.txt", &table);
}

/// The cost of remote memory access: per MB of one long operation, and per 1,000 small ones.
fn remote_memory(table: &mut String) {
    let _ = writeln!(
        table,
        "\nDatagrams per MB of one remote operation of 8 MB, and per 1,000 of 20,000 small ones; the network as above.\n"
    );
    let _ = writeln!(table, "operations                jitter_us  loss_pct  datagrams    again  needless");
    let small = |rma| RmaWork { outstanding_max: 2_000, region_bytes: 1 << 20, ..rma };
    let atomics = RmaWork { atomic_pct: 100.0, ..RmaWork::writes(20_000, 8) };
    for (what, rma, units) in [
        ("write, 8 MB", RmaWork::writes(1, 8_000_000), 8),
        ("read, 8 MB", RmaWork::reads(1, 8_000_000), 8),
        ("writes, 8 B", small(RmaWork::writes(20_000, 8)), 20),
        ("reads, 8 B", small(RmaWork::reads(20_000, 8)), 20),
        ("atomics, 4 and 8 B", small(atomics), 20),
    ] {
        for jitter_ns in [0, 100_000] {
            for loss_pct in [0.0, 1.0, 5.0, 20.0] {
                let net = Net::new(7).loss_pct(loss_pct).delay_ns(10_000, jitter_ns);
                let (up, down) = (Workload::rma(rma), Workload::QUIET);
                let plan = Plan::new(2, NodePlan { memory_bytes_max: 4 << 20, ..NodePlan::default() });
                let plan = plan.talk(Talk::new(0, 1, Attribute::ReliableUnordered, up, down));
                let mut world = World::new(net, plan).unwrap_or_else(|what| panic!("{what}"));
                let report = world.run().unwrap_or_else(|wrong| {
                    panic!("{what}, loss {loss_pct} %, jitter {jitter_ns} ns: {wrong}")
                });
                let sum = |of: fn(&Counters) -> u64| -> f64 {
                    let endpoints = (0..2).filter_map(|node| world.endpoint(node));
                    endpoints.map(|endpoint| of(endpoint.counters())).sum::<u64>() as f64 / f64::from(units)
                };
                let (all, again) =
                    (report.net.sent as f64 / f64::from(units), sum(|all| all.retransmissions));
                let _ = writeln!(
                    table,
                    "{what:<25} {:>9}  {loss_pct:>8}  {all:>9.1}  {again:>7.1}  {:>8.1}",
                    jitter_ns / 1_000,
                    sum(|all| all.retransmissions_spurious)
                );
                // What is lost is sent again, and no more: never the whole.
                let share = loss_pct / 100.0;
                let again_max = sum(|all| all.bundles_sent) * (share / (1.0 - share) * 1.5 + 0.05) + 1.0;
                assert!(
                    again <= again_max,
                    "{what}, loss {loss_pct} %: {again:.1} again, bound {again_max:.1}"
                );
            }
        }
    }
}

/// Bounds that hold whatever the table says, so that nobody blesses an absurdity.
fn judge(cost: &Cost, bytes: usize, gap_ns: u64, loss_pct: f64, jitter_ns: u64) {
    let bundles = if bytes > 8 || gap_ns > 0 { 1_000.0 } else { 1_000.0 / 80.0 };
    let what = format!("{bytes} B, gap {gap_ns} ns, loss {loss_pct} %, jitter {jitter_ns} ns");
    // A bundle goes 1 / (1 - p) times on average; half as much again for what nobody can know.
    let share = loss_pct / 100.0;
    let again_max =
        bundles * (share / (1.0 - share) * 1.5 + if jitter_ns > 1_000 { 0.05 } else { 0.01 }) + 1.0;
    assert!(cost.again <= again_max, "{what}: {:.1} sent again, bound {again_max:.1}", cost.again);
    let all_max = (bundles + again_max) * 2.2 + 10.0;
    assert!(cost.datagrams <= all_max, "{what}: {:.1} datagrams, bound {all_max:.1}", cost.datagrams);
}
