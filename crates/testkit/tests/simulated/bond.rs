//! Bonded connections: two paths to one peer. Bandwidth adds up, one path may die in the middle, and everything still arrives
//! exactly once (CCI-032, SS-010). `tests/sim.rs` draws more trouble.

use super::{MS, RELIABLE, SECOND, US, at, count, rich, send, talk};
use cci::{Attribute, Status};
use cci_testkit::whole::{Act, End, Job, Machine, Scenario, Step, Watched, Weather, run_watched};

/// A link with a queue that takes a millisecond of its rate: what a switch has.
fn link(bits_per_s: u64, delay_ns: u64) -> Weather {
    Weather {
        delay_ns,
        link_bits_per_s: bits_per_s,
        inward_bits_per_s: bits_per_s,
        link_queue_bytes: bits_per_s / 8 / 1_000,
        ..Weather::default()
    }
}

/// Runs steps between two machines with two interfaces.
fn bonded(
    machine: Machine,
    [first, second]: [Weather; 2],
    mut steps: Vec<Step>,
    until_ns: u64,
    at_ns: &[u64],
    look: &mut dyn FnMut(usize, Watched<'_>),
) {
    steps.push(at(until_ns, Act::Replay(0)));
    let scenario = Scenario { second_weather: second, ..Scenario::plain(2, &machine, first, steps) };
    run_watched(&scenario, at_ns, look).unwrap_or_else(|broken| panic!("{broken}"));
}

fn two() -> Machine {
    Machine { is_bonded: true, ..rich() }
}

/// As much as it can until a time.
fn flood(attribute: Attribute, until_ns: u64) -> Vec<Step> {
    let mut steps = talk(attribute, vec![send(Job::bulk(u32::MAX, 1_416))]);
    steps.push(at(until_ns, Act::HangUp(0, End::Client)));
    steps
}

/// Whether the client's paths are up, in their order; the addresses that they begin at are in their names.
fn paths(run: &Watched<'_>) -> Vec<(String, bool)> {
    let mut paths: Vec<_> = run.explain(0, End::Client).into_iter().flat_map(|why| why.paths).collect();
    paths.sort_by(|one, other| one.path.cmp(&other.path));
    paths.into_iter().map(|path| (path.path, path.chosen)).collect()
}

/// Whether the path from this interface is up.
fn is_up(run: &Watched<'_>, interface: u8) -> bool {
    let from = format!("from 10.{interface}.");
    paths(run).iter().any(|(name, is_up)| *is_up && name.contains(&from))
}

/// Bits a second between looks at these times, of messages that the server got, and which interfaces' paths were up then.
fn rates(
    machine: Machine,
    weather: [Weather; 2],
    steps: Vec<Step>,
    times: &[u64],
) -> (Vec<f64>, Vec<[bool; 2]>) {
    let (mut bytes, mut up) = (Vec::new(), Vec::new());
    bonded(machine, weather, steps, 0, times, &mut |number, run| {
        if number < times.len() {
            bytes.push(run.delivered(0, End::Client).1);
            up.push([is_up(&run, 0), is_up(&run, 1)]);
        }
    });
    let rate =
        |(bytes, times): (&[u64], &[u64])| (bytes[1] - bytes[0]) as f64 * 8e9 / (times[1] - times[0]) as f64;
    (bytes.windows(2).zip(times.windows(2)).map(rate).collect(), up)
}

#[test]
fn bandwidth_adds_up() {
    for attribute in RELIABLE {
        for (bits_per_s, delay_ns, least) in [
            ([1_000_000_000, 1_000_000_000], [50 * US, 50 * US], 1.7),
            ([100_000_000, 100_000_000], [500 * US, 500 * US], 1.7),
            ([1_000_000_000, 1_000_000_000], [20 * US, 200 * US], 1.6),
            ([1_000_000_000, 400_000_000], [50 * US, 50 * US], 1.25),
            ([400_000_000, 1_000_000_000], [50 * US, 50 * US], 2.2),
            // So slow a path as the second is in the way: the first is used as well as without it.
            ([1_000_000_000, 10_000_000], [50 * US, 20 * MS], 0.9),
        ] {
            let rate = |is_bonded| {
                let machine = Machine { is_bonded, ..rich() };
                let weather = [0, 1].map(|at| link(bits_per_s[at], delay_ns[at]));
                let times = [100 * MS, 400 * MS];
                let (rates, up) = rates(machine, weather, flood(attribute, 401 * MS), &times);
                assert!(!is_bonded || up[1] == [true; 2], "{up:?}");
                rates[0]
            };
            let (one, two) = (rate(false), rate(true));
            println!("{attribute:?} {bits_per_s:?} bit/s, {delay_ns:?} ns: {one:.0} alone, {two:.0} bonded");
            assert!(two >= least * one, "{bits_per_s:?} {delay_ns:?}: {two:.0} of {one:.0}");
        }
    }
}

#[test]
fn a_path_that_dies_loses_nothing_and_is_used_again() {
    for dead in [0, 1] {
        let mut steps = flood(Attribute::ReliableUnordered, 3_001 * MS);
        steps.push(at(200 * MS, Act::Unplug(0, dead, 800 * MS)));
        // From 20 ms after the cut on, the other path alone is in use.
        let times = [100, 200, 220, 900, 2_000, 3_000].map(|ms| ms * MS - 1);
        let weather = [link(200_000_000, 100 * US), link(200_000_000, 100 * US)];
        let (rates, up) = rates(two(), weather, steps, &times);
        let (before, meanwhile, after) = (rates[0], rates[2], rates[4]);
        println!("interface {dead} down for 800 ms: {before:.0}, {meanwhile:.0}, {after:.0}");
        assert!(up[1] == [true; 2] && !up[3][usize::from(dead)] && up[5] == [true; 2], "{up:?}");
        assert!(meanwhile > 0.45 * before && after > 0.95 * before);
    }
}

/// One path works again just when the other dies, so that the first probe of the other finds no path in use but that one.
#[test]
fn a_path_that_dies_before_the_other_is_used_again_is_given_up() {
    for dead in [0, 1] {
        let other = 1 - dead;
        let mut steps = flood(Attribute::ReliableOrdered, 3_001 * MS);
        steps.push(at(200 * MS, Act::Unplug(0, dead, 800 * MS)));
        steps.push(at(1_000 * MS, Act::Unplug(0, other, 3_000 * MS)));
        let weather = [link(200_000_000, 100 * US), link(200_000_000, 100 * US)];
        let (rates, up) = rates(two(), weather, steps, &[2_000 * MS, 3_000 * MS]);
        assert!(!up[1][usize::from(other)], "{up:?}");
        assert!(rates[0] > 0.7 * 160e6, "interface {dead} up when {other} died: {:.0} after", rates[0]);
    }
}

#[test]
fn a_path_that_dies_in_one_direction_loses_nothing() {
    for (interface, from) in [(1, 0), (1, 1), (0, 0), (0, 1)] {
        let mut steps = flood(Attribute::ReliableUnordered, 2_501 * MS);
        steps.push(at(0, Act::Send(0, End::Server, Job::bulk(u32::MAX, 500))));
        steps.push(at(200 * MS, Act::Mute(from, interface, 1_300 * MS)));
        let times = [300, 1_400, 2_200, 2_500].map(|ms| ms * MS);
        let weather = [link(200_000_000, 100 * US), link(200_000_000, 100 * US)];
        let (rates, _) = rates(two(), weather, steps, &times);
        let (meanwhile, after) = (rates[0], rates[2]);
        println!("interface {interface} of machine {from} mute: {meanwhile:.0} meanwhile, {after:.0} after");
        assert!(meanwhile > 0.7 * 160e6 && after > 1.3 * 160e6, "{meanwhile:.0} {after:.0}");
    }
}

#[test]
fn a_dead_first_interface_does_not_prevent_connecting() {
    let mut steps =
        talk(Attribute::ReliableUnordered, vec![send(Job { gap_ns: MS, ..Job::bulk(1_000, 100) })]);
    steps.push(at(0, Act::Unplug(0, 0, 500 * MS)));
    let weather = [link(0, 100 * US), link(0, 100 * US)];
    let times = [200 * MS, 1_000 * MS];
    bonded(two(), weather, steps, 2 * SECOND, &times, &mut |number, run| match number {
        // What answered is the first path; the other is asked for until it is there.
        0 => assert_eq!([is_up(&run, 0), is_up(&run, 1)], [false, true], "{:?}", paths(&run)),
        1 => assert_eq!([is_up(&run, 0), is_up(&run, 1)], [true; 2], "{:?}", paths(&run)),
        _ => assert_eq!(count(&run.ended(0, End::Client), Status::Success), 1_000),
    });
}

#[test]
fn only_when_both_paths_are_dead_is_the_connection_broken() {
    let quick = Machine { send_timeout_ns: 400 * MS, keepalive_ns: Some(200 * MS), ..two() };
    let messages =
        || talk(Attribute::ReliableUnordered, vec![send(Job { gap_ns: 20 * MS, ..Job::bulk(500, 100) })]);
    let weather = || [link(0, 100 * US), link(0, 100 * US)];
    // One after the other, for longer than anyone waits: nothing is noticed.
    let mut steps = messages();
    steps.push(at(100 * MS, Act::Unplug(0, 0, 2_900 * MS)));
    steps.push(at(4_000 * MS, Act::Unplug(0, 1, 4_000 * MS)));
    bonded(quick.clone(), weather(), steps, 20 * SECOND, &[], &mut |_, mut run| {
        assert_eq!(count(&run.ended(0, End::Client), Status::Success), 500);
        assert_eq!(run.counter(0, "connections_broken"), 0);
    });
    // Both: the sends time out, and the connection ends.
    let mut steps = messages();
    steps.extend([0, 1].map(|interface| at(100 * MS, Act::Unplug(0, interface, 15 * SECOND))));
    bonded(quick, weather(), steps, 20 * SECOND, &[], &mut |_, mut run| {
        assert_eq!(run.counter(0, "connections_broken"), 1);
    });
}
