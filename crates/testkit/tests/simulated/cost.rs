//! What loss and reordering cost, in datagrams: a table under git, so that no change makes it worse unnoticed.
//!
//! Why jitter is in it: a sender that takes every reordering for a loss passes every correctness test and sends everything twice.

use super::{MS, SECOND, US, at, rich, send, table, talk, watched};
use cci::Attribute;
use cci_testkit::whole::{Act, End, Job, Kinds, Operating, Weather};
use std::fmt::Write as _;

struct Cost {
    datagrams: f64,
    again: f64,
    spurious: f64,
}

/// Datagrams in both directions, retransmissions and needless ones, in so many units.
fn cost(attribute: Attribute, act: Act, weather: Weather, units: f64) -> Cost {
    let mut cost = Cost { datagrams: 0.0, again: 0.0, spurious: 0.0 };
    let mut steps = talk(attribute, Vec::new());
    steps.push(at(MS, act));
    watched((2, rich(), weather), steps, 3_000 * SECOND, &[], &mut |_, mut run| {
        let mut sum = |name| (0..2).map(|machine| run.counter(machine, name)).sum::<u64>() as f64 / units;
        (cost.again, cost.spurious) = (sum("retransmissions"), sum("retransmissions_spurious"));
        cost.datagrams = run.datagrams()[0] as f64 / units;
    });
    cost
}

fn row(table: &mut String, what: &str, weather: &Weather, Cost { datagrams, again, spurious }: &Cost) {
    let _ = writeln!(
        table,
        "{what:<25} {:>9}  {:>8}  {datagrams:>9.1}  {again:>7.1}  {spurious:>8.1}",
        weather.jitter_ns / US,
        weather.loss_pct,
    );
}

fn weather(jitter_ns: u64, loss_pct: f64) -> Weather {
    // Datagrams of one batch leave one after the other.
    Weather { jitter_ns, loss_pct, link_bits_per_s: 10_000_000_000, ..Weather::default() }
}

#[test]
fn cost_of_loss() {
    let mut table = String::from(
        "Datagrams sent per 1,000 messages, both directions, handshake included; of these sent again; of these\n\
         needlessly, as far as the sender knows. One connection, 20 us round trip without jitter, 10 Gbit/s.\n\
         \"8 B\": as fast as they are taken, packed. \"8 B, 1 each 20 us\": not packed. \"1,416 B\": one fills a datagram.\n\n",
    );
    let _ = writeln!(table, "type messages             jitter_us  loss_pct  datagrams    again  needless");
    for (name, attribute) in [("RO", Attribute::ReliableOrdered), ("RU", Attribute::ReliableUnordered)] {
        for (what, bytes, gap_ns) in [("8 B", 8, 0), ("8 B, 1 each 20 us", 8, 20 * US), ("1,416 B", 1_416, 0)]
        {
            let is_packed = bytes == 8 && gap_ns == 0;
            let messages = if is_packed { 40_000 } else { 4_000 };
            for jitter_ns in [0, US, 100 * US] {
                for loss_pct in [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0] {
                    let weather = weather(jitter_ns, loss_pct);
                    let job = Job { gap_ns, ..Job::bulk(messages, bytes) };
                    let cost = cost(attribute, send(job), weather.clone(), f64::from(messages) / 1_000.0);
                    row(&mut table, &format!("{name}   {what}"), &weather, &cost);
                    judge(&cost, is_packed, &weather, what);
                }
            }
        }
    }
    remote_memory(&mut table);
    table::check("cost_of_loss.txt", &table);
}

/// The cost of remote memory access: per MB of one long operation, and per 1,000 small ones.
fn remote_memory(table: &mut String) {
    let _ = writeln!(
        table,
        "\nDatagrams per MB of one remote operation of 8 MB, and per 1,000 of 20,000 small ones; the network as above.\n"
    );
    let _ = writeln!(table, "operations                jitter_us  loss_pct  datagrams    again  needless");
    for (what, operating, units) in [
        ("write, 8 MB", Operating::of(Kinds::Writes, 1, 8_000_000, 1), 8.0),
        ("read, 8 MB", Operating::of(Kinds::Reads, 1, 8_000_000, 1), 8.0),
        ("writes, 8 B", Operating::of(Kinds::Writes, 20_000, 8, 2_000), 20.0),
        ("reads, 8 B", Operating::of(Kinds::Reads, 20_000, 8, 2_000), 20.0),
        ("additions", Operating::of(Kinds::Additions, 20_000, 8, 2_000), 20.0),
    ] {
        for jitter_ns in [0, 100 * US] {
            for loss_pct in [0.0, 1.0, 5.0, 20.0] {
                let weather = weather(jitter_ns, loss_pct);
                let act = Act::Operate(0, End::Client, operating.clone());
                let cost = cost(Attribute::ReliableUnordered, act, weather.clone(), units);
                row(table, what, &weather, &cost);
                // What is lost is sent again, and no more: never the whole.
                let share = loss_pct / 100.0;
                let again_max = cost.datagrams * (share / (1.0 - share) * 1.5 + 0.05) + 1.0;
                assert!(
                    cost.again <= again_max,
                    "{what}, loss {loss_pct} %: {:.1} again, bound {again_max:.1}",
                    cost.again
                );
            }
        }
    }
}

/// Bounds that hold whatever the table says, so that nobody blesses an absurdity.
fn judge(cost: &Cost, is_packed: bool, weather: &Weather, what: &str) {
    let bundles = if is_packed { 1_000.0 / 80.0 } else { 1_000.0 };
    let what = format!("{what}, loss {} %, jitter {} ns", weather.loss_pct, weather.jitter_ns);
    // A bundle goes 1 / (1 - p) times on average; half as much again for what nobody can know.
    let share = weather.loss_pct / 100.0;
    let needless = if weather.jitter_ns > US { 0.05 } else { 0.01 };
    let again_max = bundles * (share / (1.0 - share) * 1.5 + needless) + 1.0;
    assert!(cost.again <= again_max, "{what}: {:.1} sent again, bound {again_max:.1}", cost.again);
    let all_max = (bundles + again_max) * 2.2 + 10.0;
    assert!(cost.datagrams <= all_max, "{what}: {:.1} datagrams, bound {all_max:.1}", cost.datagrams);
}
