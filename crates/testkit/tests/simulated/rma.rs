//! Promises of remote memory access.

use super::{MS, RELIABLE, SECOND, US, at, count, last_ns, rich, send, talk, watched};
use cci::{Attribute, Status};
use cci_testkit::whole::{Act, End, Hold, Job, Kinds, Machine, Operating, Step, Talk, Weather};

/// A talk in which the client works in the server's memory, once both ends are there.
fn operating(attribute: Attribute, operating: Operating) -> Vec<Step> {
    let mut steps = talk(attribute, Vec::new());
    steps.push(at(MS, Act::Operate(0, End::Client, operating)));
    steps
}

/// 1 Gbit/s, 100 µs, with room for one bandwidth-delay product in the queue.
fn bottleneck() -> Weather {
    Weather {
        delay_ns: 50 * US,
        inward_bits_per_s: 1_000_000_000,
        link_queue_bytes: 12_500,
        ..Weather::default()
    }
}

#[test]
fn a_message_waits_for_no_more_than_what_is_in_flight() {
    for attribute in RELIABLE {
        let job = Job { gap_ns: 200 * US, ..Job::bulk(1_000, 8) };
        let mut steps = operating(attribute, Operating::of(Kinds::Writes, 1, 15_000_000, 1));
        steps.push(at(0, send(job)));
        let times: Vec<u64> = (5..100).map(|at| at * MS).collect();
        watched((2, rich(), bottleneck()), steps, SECOND, &times, &mut |number, run| {
            if number < times.len() {
                let behind = run.sent(0, End::Client) - run.delivered(0, End::Client).0;
                assert!(
                    run.outstanding(0, End::Client) > 0,
                    "the write must have gone on all the time, {number}"
                );
                // A message each 200 µs: round trip and a full queue are 200 µs, and a loss may hold up what is behind it.
                assert!(behind <= 8, "{attribute:?}: {behind} messages were behind");
            }
        });
    }
}

/// How long one write of 4 MB takes.
fn write_beside(messages: Option<Job>) -> u64 {
    let mut steps = operating(Attribute::ReliableOrdered, Operating::of(Kinds::Writes, 1, 4_000_000, 1));
    // The write's own connection floods itself.
    steps.extend(messages.map(|job| at(MS, send(job))));
    let mut end_ns = 0;
    let times: Vec<u64> = (1..5_000).map(|at| at * MS).collect();
    watched((2, rich(), bottleneck()), steps, 6 * SECOND, &times, &mut |_, run| {
        if end_ns == 0 && run.operations_ended(0, End::Client) > 0 {
            end_ns = run.now_ns();
        }
    });
    assert!((1..5 * SECOND).contains(&end_ns), "a write starves beside messages");
    end_ns - MS
}

#[test]
fn a_flood_of_messages_does_not_starve_a_write() {
    let alone = write_beside(None);
    let beside = write_beside(Some(Job::bulk(200_000, 1_400)));
    // It gets a share of the window that is reserved for it: 16 of 256 bundles.
    assert!(beside < alone * 20, "{alone} ns alone, {beside} ns beside a flood");
}

#[test]
fn a_program_that_takes_no_messages_slows_no_write_of_another_connection() {
    let took = |deaf: bool| {
        let mut steps = operating(Attribute::ReliableOrdered, Operating::of(Kinds::Writes, 20, 200_000, 4));
        steps.push(at(0, Act::Connect(Talk::new(1, 0, 1, Attribute::ReliableOrdered))));
        steps.push(at(0, Act::Send(1, End::Client, Job::bulk(3_000, 500))));
        if deaf {
            steps.push(at(0, Act::Hold(1, Hold::Together(SECOND), SECOND - 1)));
        }
        let machine = Machine { recv_buffers: 8, ..rich() };
        let weather = Weather { delay_ns: 20 * US, ..Weather::default() };
        let mut last = 0;
        watched((2, machine, weather), steps, 2 * SECOND, &[], &mut |_, run| {
            last = last_ns(&run.ended(0, End::Client));
        });
        last
    };
    let (ready, deaf) = (took(false), took(true));
    assert!(deaf < ready * 2, "{ready} ns with a reader, {deaf} ns without");
}

#[test]
fn what_was_started_before_hanging_up_is_finished() {
    for loss_pct in [0.0, 10.0] {
        for kinds in [Kinds::Writes, Kinds::Reads] {
            let work = Operating::of(kinds, 300, 5_000, 300);
            let mut steps = operating(Attribute::ReliableUnordered, work);
            steps.push(at(1_200 * US, Act::HangUp(0, End::Client)));
            let weather = Weather { delay_ns: 100 * US, jitter_ns: 10 * US, ..Weather::default() };
            steps.push(at(MS, Act::Storm(Weather { loss_pct, ..weather.clone() }, SECOND)));
            watched((2, rich(), weather), steps, 10 * SECOND, &[1_200 * US - 1], &mut |number, run| {
                if number == 0 {
                    let (ended, going_on) =
                        (run.ended(0, End::Client).len(), run.outstanding(0, End::Client));
                    assert_eq!(ended as u64 + going_on, 300, "all are started");
                    assert!(going_on > 0, "nothing is left to be finished");
                } else {
                    assert_eq!(count(&run.ended(0, End::Client), Status::Success), 300);
                }
            });
        }
    }
}

#[test]
fn a_dead_peer_ends_every_operation() {
    for kinds in [Kinds::Reads, Kinds::Writes] {
        for (down_ns, status, from_ns, until_ns) in [
            (5 * SECOND, Status::TimedOut, 300 * MS, 900 * MS),
            // A restarted peer is noticed sooner.
            (10 * MS, Status::Disconnected, 0, 300 * MS),
        ] {
            let machine = Machine { send_timeout_ns: 300 * MS, ..rich() };
            let mut steps = operating(Attribute::ReliableOrdered, Operating::of(kinds, 2_000, 20_000, 200));
            steps.push(at(10 * MS, Act::Crash(1, down_ns)));
            watched((2, machine, bottleneck()), steps, SECOND, &[], &mut |_, run| {
                let ended = run.ended(0, End::Client);
                let counts = [Status::Success, status].map(|status| count(&ended, status));
                assert!(!counts.contains(&0), "{kinds:?}: {counts:?}, {:?}", ended.last());
                let end_ns = last_ns(&ended);
                assert!((from_ns..until_ns).contains(&end_ns), "{kinds:?}: the last ended at {end_ns} ns");
            });
        }
    }
}

#[test]
fn an_endpoint_reads_and_writes_both_ways_at_once() {
    for attribute in RELIABLE {
        let both = Operating { segments_max: 40, ..Operating::of(Kinds::All, 400, 6_000, 20) };
        let mut steps = operating(attribute, both.clone());
        steps.push(at(MS, Act::Operate(0, End::Server, both)));
        steps.push(at(0, Act::Send(0, End::Server, Job::bulk(2_000, 300))));
        let weather = Weather {
            loss_pct: 3.0,
            duplicate_pct: 3.0,
            delay_ns: 100 * US,
            jitter_ns: 400 * US,
            ..Weather::default()
        };
        let report = watched((2, rich(), weather), steps, 10 * SECOND, &[], &mut |_, mut run| {
            for machine in 0..2 {
                let counters = run.endpoint(machine).map(|endpoint| endpoint.counters());
                let done = counters.map(|done| (done.rma_writes, done.rma_reads, done.atomics));
                assert!(
                    done.is_some_and(|done| done.0 > 50 && done.1 > 50 && done.2 > 15),
                    "machine {machine}: {done:?}"
                );
            }
        });
        assert!(report.operations > 600, "{report:?}");
    }
}
