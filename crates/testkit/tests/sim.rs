//! Whole endpoints in simulation: thousands of scenarios, each judged at every step.
//!
//! `CCI_WORLD_SEEDS=N` runs N seeds from `CCI_WORLD_FIRST` on, `CCI_WORLD_SEED=S` only seed S; with `CCI_WORLD_TRACE=1` a
//! failure shows all that happened before it. `cargo xtask sim` sets them.

use cci_testkit::whole::{
    Act, Answer::Accept, Broken, Death, End, Fabric, GlobalReport, Hold, Job, Kinds, Limits, Machine,
    MessengerReport, Operating, RankPlan, RankReport, Report, Sabotage, Scenario, Step, Talk, Weather,
    catch_panic, replay, run, run_global, run_messengers, run_messengers_until_death, run_ranks,
    run_with_trace, shrink,
};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const DATAGRAM_SEEDS: u64 = 500;
const SHARED_MEMORY_SEEDS: u64 = 500;
const STREAM_SEEDS: u64 = 250;
/// Over each kind of network.
const MESSENGER_SEEDS: u64 = 40;
/// Over each kind of network.
const RANK_SEEDS: u64 = 60;
/// Over each kind of network.
const GLOBAL_SEEDS: u64 = 40;
/// Failures after which the rest is not worth the time.
const FAILURES_MAX: usize = 10;

fn from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn attempt(scenario: &Scenario) -> Result<Report, Broken> {
    guarded(scenario, run)
}

/// A panic of the library's is a broken promise like any other.
fn guarded(
    scenario: &Scenario,
    run: impl FnOnce(&Scenario) -> Result<Report, Broken>,
) -> Result<Report, Broken> {
    catch_panic(scenario.fabric, scenario.seed, || run(scenario))
        .unwrap_or_else(|text| Err(Broken { rule: "panic", at_ns: 0, what: text, lines: Vec::new() }))
}

/// Everything worth knowing of a failure: the least scenario that fails so, and what happened in it.
fn explain(seed: u64, scenario: &Scenario, broken: Broken) -> String {
    let first = broken.to_string();
    let limits = Limits { runs: 600, time: Duration::from_secs(40) };
    let least = shrink(scenario, broken, |scenario| attempt(scenario).err(), limits);
    let steps: Vec<String> = least.scenario.steps.iter().map(|step| format!("  {step:?}")).collect();
    let mut text = format!(
        "seed {seed}: {first}\nleast scenario, after {} runs: {} of {} steps\n{}\n{:?}, weather {:?}\nwhich breaks: {}\n",
        least.runs,
        least.scenario.steps.len(),
        scenario.steps.len(),
        steps.join("\n"),
        least.scenario.fabric,
        least.scenario.weather,
        least.broken,
    );
    if let Err(broken) = guarded(&least.scenario, run_with_trace) {
        let lines_max = if from_env("CCI_WORLD_TRACE").is_some() { usize::MAX } else { 60 };
        let from = broken.lines.len().saturating_sub(lines_max);
        text += &broken.lines[from..].join("\n");
    }
    text + &format!("\nreplay: {}\n", replay(scenario.fabric, seed))
}

#[test]
fn every_seed_of_datagrams_keeps_the_promises() {
    let sum = run_seeds("datagrams", DATAGRAM_SEEDS, Scenario::draw);
    cci_testkit::figures::note("simulation.endpoints", sum.endpoints);
    cci_testkit::figures::note("simulation.messages", sum.messages);
    cci_testkit::figures::note("simulation.operations", sum.operations);
    cci_testkit::figures::note("simulation.datagrams", sum.datagrams);
}

#[test]
fn every_seed_of_shared_memory_keeps_the_promises() {
    run_seeds("shared-memory", SHARED_MEMORY_SEEDS, Scenario::draw_shared);
}

#[test]
fn every_seed_of_streams_keeps_the_promises() {
    run_seeds("streams", STREAM_SEEDS, Scenario::draw_streams);
}

/// Runs seeds, and answers what they did together.
fn run_seeds(fabric: &str, seeds_default: u64, draw: fn(u64) -> Scenario) -> Report {
    let only = from_env("CCI_WORLD_SEED");
    let first = only.or_else(|| from_env("CCI_WORLD_FIRST")).unwrap_or(1);
    let seeds = if only.is_some() { 1 } else { from_env("CCI_WORLD_SEEDS").unwrap_or(seeds_default) };
    let next = AtomicU64::new(first);
    let done = Mutex::new((Report::default(), 0u64, Vec::new(), Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + seeds || done.lock().unwrap().2.len() >= FAILURES_MAX {
                return;
            }
            let scenario = draw(seed);
            let began = Instant::now();
            let result = attempt(&scenario);
            let mut done = done.lock().unwrap();
            done.3.push((began.elapsed(), seed));
            match result {
                Ok(report) => {
                    done.1 = done.1.max(report.endpoints);
                    let sum = &mut done.0;
                    sum.endpoints += report.endpoints;
                    sum.sides += report.sides;
                    sum.messages += report.messages;
                    sum.operations += report.operations;
                    sum.failures += report.failures;
                    sum.datagrams += report.datagrams;
                    sum.lost += report.lost;
                    sum.polls += report.polls;
                    sum.end_ns += report.end_ns;
                }
                Err(broken) => done.2.push((seed, broken)),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(2);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (sum, most, mut failed, mut times) = done.into_inner().unwrap();
    times.sort_unstable();
    println!(
        "{seeds} seeds of {fabric}, {} s of virtual time, at most {most} endpoints: {sum:?}",
        sum.end_ns / 1_000_000_000
    );
    println!("longest: {:?}", times.iter().rev().take(5).collect::<Vec<_>>());
    cci_testkit::figures::note(&format!("simulation.seeds.{fabric}"), seeds);
    failed.sort_by_key(|(seed, _)| *seed);
    for (seed, broken) in &failed {
        let line = broken.to_string();
        println!("seed {seed}: {}", line.lines().next().unwrap_or_default());
    }
    if let Some((seed, broken)) = failed.into_iter().next() {
        panic!("{}", explain(seed, &draw(seed), broken));
    }
    sum
}

/// Messengers over each kind of network: each message and call ends once, what comes is what was sent, caps hold, and nothing is left.
#[test]
fn every_seed_of_messengers_keeps_the_promises() {
    let streams = Fabric::Streams { any: false, fault_per_calls: 0 };
    let shared = |is_weak| Fabric::SharedMemory { is_weak, fault_per_calls: 0 };
    let only = from_env("CCI_WORLD_SEED");
    let first = only.or_else(|| from_env("CCI_WORLD_FIRST")).unwrap_or(1);
    let seeds =
        if only.is_some() { 1 } else { from_env("CCI_WORLD_SEEDS").unwrap_or(MESSENGER_SEEDS).min(10_000) };
    let mut failed = Vec::new();
    for fabric in [Fabric::Datagrams, shared(false), shared(true), streams] {
        let mut sum = MessengerReport::default();
        for seed in first..first + seeds {
            let report = catch_panic(fabric, seed, || run_messengers(fabric, seed))
                .unwrap_or_else(|text| Err(format!("{fabric:?}, seed {seed}: a panic: {text}")));
            let report = match report {
                Ok(report) => report,
                Err(what) => {
                    println!("{what}");
                    failed.push(what);
                    continue;
                }
            };
            sum.messages += report.messages;
            sum.calls += report.calls;
            sum.failures += report.failures;
            sum.crashes += report.crashes;
            sum.turns += report.turns;
        }
        println!("{seeds} seeds of messengers over {fabric:?}: {sum:?}");
        // One seed need not do everything.
        let is_enough =
            only.is_some() || sum.messages > seeds && sum.calls > seeds && sum.failures > seeds / 2;
        assert!(is_enough, "{sum:?}");
        let (once, again) = (run_messengers(fabric, first), run_messengers(fabric, first));
        assert!(once == again, "seed {first}: {once:?}, then {again:?}");
    }
    assert!(failed.is_empty(), "{} seeds failed, first {}", failed.len(), failed[0]);
}

/// Ranks of jobs over each kind of network: messages come once, in order and to the right handler, whenever that is registered; changes of
/// memory are made once and whole; members of a team get the same of a collective; the death of a rank ends what was with it, and nothing else.
#[test]
fn every_seed_of_ranks_keeps_the_promises() {
    let streams = Fabric::Streams { any: false, fault_per_calls: 0 };
    let shared = |is_weak| Fabric::SharedMemory { is_weak, fault_per_calls: 0 };
    let only = from_env("CCI_WORLD_SEED");
    let first = only.or_else(|| from_env("CCI_WORLD_FIRST")).unwrap_or(1);
    let seeds =
        if only.is_some() { 1 } else { from_env("CCI_WORLD_SEEDS").unwrap_or(RANK_SEEDS).min(10_000) };
    let attempt = |fabric: Fabric, plan: &RankPlan| {
        let ran = catch_panic(fabric, plan.seed(), || run_ranks(plan));
        ran.unwrap_or_else(|text| Err(format!("a panic of {plan:?}: {text}")))
    };
    for fabric in [Fabric::Datagrams, shared(false), shared(true), streams] {
        let mut sum = RankReport::default();
        for seed in first..first + seeds {
            let plan = RankPlan::draw(fabric, seed);
            let report = attempt(fabric, &plan).unwrap_or_else(|what| {
                let least = plan.clone().shrink(|plan| attempt(fabric, plan).is_err());
                panic!("{what}\nleast plan: {least:?}\nits failure: {:?}", attempt(fabric, &least));
            });
            sum.messages += report.messages;
            sum.operations += report.operations;
            sum.collectives += report.collectives;
            sum.crashes += report.crashes;
            sum.turns += report.turns;
        }
        println!("{seeds} seeds of ranks over {fabric:?}: {sum:?}");
        // One seed need not do everything.
        let is_enough = only.is_some()
            || sum.messages > 10 * seeds
                && sum.operations > seeds
                && sum.collectives > seeds
                && sum.crashes > 0;
        assert!(is_enough, "{sum:?}");
        let plan = RankPlan::draw(fabric, first);
        assert_eq!(run_ranks(&plan), run_ranks(&plan), "seed {first}");
    }
}

/// Global memory over each kind of network, of which datagrams are lost, come late, and come twice: each copy and each atomic operation is done
/// once, in its order, every byte is as it was written, and so are messages of channels and segments of buffers.
#[test]
fn every_seed_of_global_memory_keeps_the_promises() {
    let streams = Fabric::Streams { any: false, fault_per_calls: 0 };
    let shared = |is_weak| Fabric::SharedMemory { is_weak, fault_per_calls: 0 };
    let only = from_env("CCI_WORLD_SEED");
    let first = only.or_else(|| from_env("CCI_WORLD_FIRST")).unwrap_or(1);
    let seeds =
        if only.is_some() { 1 } else { from_env("CCI_WORLD_SEEDS").unwrap_or(GLOBAL_SEEDS).min(10_000) };
    for fabric in [Fabric::Datagrams, shared(false), shared(true), streams] {
        let mut sum = GlobalReport::default();
        for seed in first..first + seeds {
            let report = catch_panic(fabric, seed, || run_global(fabric, seed))
                .unwrap_or_else(|text| Err(format!("{fabric:?}, seed {seed}: a panic: {text}")))
                .unwrap_or_else(|what| panic!("{what}"));
            sum.copies += report.copies;
            sum.atomics += report.atomics;
            sum.messages += report.messages;
            sum.segments += report.segments;
            sum.turns += report.turns;
        }
        println!("{seeds} seeds of global memory over {fabric:?}: {sum:?}");
        // One seed need not do everything.
        let [copies, atomics, came] =
            [sum.copies, sum.atomics, sum.messages.min(sum.segments)].map(|sum| sum / seeds);
        let is_much = copies > 10 && atomics > 5 && came > 10;
        assert!(only.is_some() || is_much, "{sum:?}");
        assert_eq!(run_global(fabric, first), run_global(fabric, first), "seed {first}");
    }
}

/// Seed 206 of ranks over streams: a rank died while its bytes were fetched for an indexed put, and the pointer moved on over what had come.
#[test]
fn an_indexed_put_of_a_rank_that_dies_moves_nothing() {
    let streams = Fabric::Streams { any: false, fault_per_calls: 0 };
    run_ranks(&RankPlan::draw(streams, 206)).unwrap_or_else(|what| panic!("{what}"));
}

/// Seed 1001078 of ranks over streams: time went in long steps while a record was carried through small buffers, until it was overdue.
#[test]
fn a_record_in_small_buffers_is_carried_before_it_is_overdue() {
    let streams = Fabric::Streams { any: false, fault_per_calls: 0 };
    run_ranks(&RankPlan::draw(streams, 1_001_078)).unwrap_or_else(|what| panic!("{what}"));
}

/// Each machine dies at each of the steps in which long messages and a call are on their way.
#[test]
fn messengers_survive_a_death_at_every_step() {
    let shared = |is_weak| Fabric::SharedMemory { is_weak, fault_per_calls: 0 };
    let streams = Fabric::Streams { any: false, fault_per_calls: 0 };
    // A turn has many places to die in the middle of, of which a seed tries one.
    for (fabric, seeds) in [(Fabric::Datagrams, 1), (shared(false), 10), (shared(true), 10), (streams, 2)] {
        for machine in [0, 2] {
            for seed in 1..=from_env("CCI_WORLD_SEEDS").unwrap_or(seeds) {
                let (started, mut after_steps) = (Instant::now(), 1);
                let lives = loop {
                    let death = Death { machine, after_steps };
                    let report = run_messengers_until_death(fabric, seed, death);
                    let report = report.unwrap_or_else(|what| panic!("{what}"));
                    if report.crashes == 0 {
                        break report;
                    }
                    after_steps += 1;
                };
                println!(
                    "{fabric:?}, machine {machine}: {after_steps} steps, {:?}, {lives:?}",
                    started.elapsed()
                );
                assert!((lives.messages, lives.calls) == (2, 1) || lives.failures > 0, "{lives:?}");
                assert!(after_steps > 4, "a death at each of several steps");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1..=60 {
        for scenario in [Scenario::draw(seed), Scenario::draw_shared(seed), Scenario::draw_streams(seed)] {
            let (once, again) = (attempt(&scenario), attempt(&scenario));
            assert_eq!(once.ok(), again.ok(), "seed {seed}, {:?}", scenario.fabric);
        }
    }
}

/// A destructor that panics while another panic unwinds ends the program, which is a process of its own here.
#[test]
fn a_run_that_ends_the_program_has_said_its_seed() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("the second panic");
        }
    }
    let ends = "CCI_WORLD_ENDS";
    if std::env::var_os(ends).is_some() {
        let _ = catch_panic(Fabric::Datagrams, 4_711, || {
            let _panics = Panics;
            panic!("the first panic");
        });
        return;
    }
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "a_run_that_ends_the_program_has_said_its_seed"]).env(ends, "1");
    let output = program.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it should have ended: {text}");
    assert!(text.contains(&replay(Fabric::Datagrams, 4_711)), "{text}");
}

/// Machines 0 and 1, and a talk from 0 to 1 as the first of these steps.
fn pair(attribute: cci::Attribute, steps: Vec<Step>) -> Scenario {
    let connect = Step { at_ns: 0, act: Act::Connect(Talk::new(0, 0, 1, attribute)) };
    let steps = std::iter::once(connect).chain(steps).collect();
    Scenario::plain(2, &Machine::default(), Weather::default(), steps)
}

/// Seed 197 of the first draw: on a way that had become narrower, messages as long as `max_send_size` said were refused.
#[test]
fn a_way_that_becomes_narrower_takes_messages_as_long_as_was_agreed() {
    for attribute in
        [cci::Attribute::ReliableOrdered, cci::Attribute::ReliableUnordered, cci::Attribute::Unreliable]
    {
        let job = Job {
            messages: 20,
            bytes_min: 9_000,
            bytes_max: 9_000,
            silent_pct: 0.0,
            burst: 4,
            gap_ns: 1_000,
        };
        let scenario = pair(
            attribute,
            vec![
                Step { at_ns: 50_000_000, act: Act::Narrow(0, 1, 1_152) },
                Step { at_ns: 51_000_000, act: Act::Send(0, End::Client, job) },
            ],
        );
        let report = run(&scenario).unwrap_or_else(|broken| panic!("{broken}"));
        // The first is lost to the discovery, where nobody repeats it.
        assert!(report.messages >= 19, "{report:?}");
    }
}

/// Seed 46 of shared memory: two connections on one link, one of which ends while an operation of it has a time limit. The limit
/// stayed, in the past, and the endpoint never slept again.
#[test]
fn what_was_due_on_a_connection_that_has_ended_keeps_nobody_awake() {
    let talk = |number, at_ns| {
        let talk = Talk {
            number,
            client: 0,
            server: 1,
            attribute: cci::Attribute::ReliableUnordered,
            request_bytes: 1_024,
            timeout_ns: Some(100_000_000),
            answer: Accept,
            answer_ns: 10_000,
        };
        Step { at_ns, act: Act::Connect(talk) }
    };
    let send = |at_ns, talk, messages, burst| {
        let job = Job { messages, bytes_min: 8, bytes_max: 1_000, silent_pct: 0.0, burst, gap_ns: 0 };
        Step { at_ns, act: Act::Send(talk, End::Client, job) }
    };
    let operating = Operating {
        operations: 1,
        bytes: 18_831,
        places: 8,
        segments_max: 7,
        kinds: Kinds::Common,
        outstanding_max: 3,
        draw: 9_146_423_996_276_013_109,
    };
    let steps = vec![
        talk(2, 1_821_786_949),
        Step { at_ns: 2_019_888_416, act: Act::Hold(1, Hold::Each(5_000_000_000), 2_000_000_000) },
        talk(3, 2_726_983_738),
        send(3_069_229_479, 2, 6, 1),
        Step { at_ns: 4_329_706_457, act: Act::Operate(2, End::Client, operating) },
        send(4_361_993_966, 3, 1, 8),
    ];
    let scenario = Scenario::draw_shared(46);
    run(&Scenario { steps, ..scenario }).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Seed 1,001,491: recorded datagrams of a client with two addresses, sent again from its other address, made the server accept it
/// twice. The client confirmed one of the two.
#[test]
fn what_is_replayed_from_another_address_may_be_accepted_twice() {
    let scenario = Scenario::draw(1_001_491);
    run(&scenario).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Seed 1,000,673 of shared memory: a peer took a message and stalled between two looks at its position. The overdue message behind
/// that one was taken back, and completed first.
#[test]
fn what_was_taken_completes_before_what_is_taken_back() {
    let scenario = Scenario::draw_shared(1_000_673);
    run(&scenario).unwrap_or_else(|broken| panic!("{broken}"));
}

/// The first seed from which a sabotaged run breaks one of `rules`, shrunk.
fn found(sabotage: Sabotage, rules: &[&str]) -> (usize, usize) {
    for seed in 1..=60 {
        let scenario = Scenario { sabotage: Some(sabotage), ..Scenario::draw(seed) };
        let Err(broken) = attempt(&scenario) else { continue };
        if !rules.contains(&broken.rule) || scenario.steps.len() < 8 {
            continue;
        }
        let limits = Limits { runs: 300, time: Duration::from_secs(20) };
        let least = shrink(&scenario, broken, |scenario| attempt(scenario).err(), limits);
        println!("{sabotage:?}: {} steps become {:?}", scenario.steps.len(), least.scenario.steps);
        return (scenario.steps.len(), least.scenario.steps.len());
    }
    panic!("{sabotage:?} was never found");
}

#[test]
fn what_is_broken_on_purpose_is_found_and_shrunk() {
    for (sabotage, rules) in [
        (Sabotage::Repeat(7), &["delivery"][..]),
        (Sabotage::LoseCompletion(5), &["completion", "starvation", "work", "end"]),
        (Sabotage::Flip(9), &["delivery"]),
    ] {
        let (before, after) = found(sabotage, rules);
        assert!(after <= 3 && after < before, "{sabotage:?}: {before} steps, then {after}");
    }
}
