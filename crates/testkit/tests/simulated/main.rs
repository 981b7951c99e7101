//! Promises looked at one by one, and figures: whole endpoints in networks made for the purpose.

mod bond;
mod cost;
mod promises;
mod rma;
mod table;
mod throughput;

use cci::{Attribute, Status};
use cci_testkit::whole::{
    Act, End, Job, Machine, Report, Scenario, Step, Talk, Watched, Weather, run_watched,
};

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const SECOND: u64 = 1_000 * MS;
const RELIABLE: [Attribute; 2] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered];

fn at(at_ns: u64, act: Act) -> Step {
    Step { at_ns, act }
}

/// A talk from machine 0 to machine 1, and what the client does in it.
fn talk(attribute: Attribute, acts: Vec<Act>) -> Vec<Step> {
    let connect = Act::Connect(Talk::new(0, 0, 1, attribute));
    std::iter::once(connect).chain(acts).map(|act| at(0, act)).collect()
}

fn send(job: Job) -> Act {
    Act::Send(0, End::Client, job)
}

/// One message of 100 B each 10 µs.
fn steady(messages: u32) -> Job {
    Job { gap_ns: 10 * US, ..Job::bulk(messages, 100) }
}

/// A machine that has enough of everything.
fn rich() -> Machine {
    Machine {
        recv_buffers: 2_048,
        send_buffers: 8_192,
        rma_operations: 4_096,
        memory_bytes_max: 64 << 20,
        poll_ns: 200,
        batch: 64,
        socket_bytes: 4 << 20,
        ..Machine::default()
    }
}

/// Runs steps; the network stays as it is until a time, and `look` sees the run at some times and at its end.
fn watched(
    (machines, machine, weather): (usize, Machine, Weather),
    mut steps: Vec<Step>,
    until_ns: u64,
    at_ns: &[u64],
    look: &mut dyn FnMut(usize, Watched<'_>),
) -> Report {
    steps.push(at(until_ns, Act::Replay(0)));
    let scenario = Scenario::plain(machines, &machine, weather, steps);
    run_watched(&scenario, at_ns, look).unwrap_or_else(|broken| panic!("{broken}"))
}

/// How many ended so, and when the last did.
fn count(ended: &[(u64, Status)], status: Status) -> usize {
    ended.iter().filter(|(_, is)| *is == status).count()
}

/// When the last of them ended.
fn last_ns(ended: &[(u64, Status)]) -> u64 {
    ended.last().map_or(0, |(at_ns, _)| *at_ns)
}
