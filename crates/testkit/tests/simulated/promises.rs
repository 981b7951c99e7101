//! Promises of messages.

use super::{MS, SECOND, US, at, count, last_ns, rich, send, steady, talk, watched};
use cci::{Attribute, Status};
use cci_testkit::whole::{Act, End, Hold, Job, Machine, Talk, Weather};

/// Deliveries when half of the messages sent after a loss have arrived, but the loss cannot be repaired yet.
fn delivered_past_a_loss(attribute: Attribute) -> (u64, u64) {
    // One way 1 ms; what leaves from 20.0 to 20.3 ms is lost; before 22 ms the sender cannot have heard of it.
    let weather = Weather { delay_ns: MS, ..Weather::default() };
    let mut steps = talk(attribute, vec![send(steady(3_000))]);
    steps.push(at(20 * MS, Act::Outage(Some(0), Some(1), 300 * US)));
    let mut delivered = [0; 3];
    let times = [21 * MS, 22 * MS];
    watched((2, rich(), weather), steps, SECOND, &times, &mut |number, run| {
        delivered[number] = run.delivered(0, End::Client).0;
        assert!(run.datagrams()[1] > 0, "nothing was lost");
    });
    assert_eq!(delivered[2], 3_000);
    (delivered[0], delivered[1])
}

#[test]
fn unordered_goes_past_a_loss_and_ordered_waits() {
    let (before, after) = delivered_past_a_loss(Attribute::ReliableUnordered);
    assert!(after >= before + 40, "RU delivered {before}, then {after}: it stands still");
    let (before, after) = delivered_past_a_loss(Attribute::ReliableOrdered);
    assert!(after <= before + 1, "RO delivered {before}, then {after}: past a loss");
}

#[test]
fn unreliable_loses_what_the_network_loses_and_no_more() {
    let weather = Weather { loss_pct: 10.0, ..Weather::default() };
    let steps = talk(Attribute::Unreliable, vec![send(steady(5_000))]);
    watched((2, rich(), weather), steps, SECOND, &[], &mut |_, mut run| {
        let (delivered, _) = run.delivered(0, End::Client);
        assert_eq!(
            count(&run.ended(0, End::Client), Status::Success),
            5_000,
            "sends complete when they leave"
        );
        assert!((4_300..4_700).contains(&delivered), "{delivered} of 5,000 at 10 % loss");
        assert_eq!(run.counter(0, "retransmissions"), 0);
    });
}

#[test]
fn nothing_is_sent_needlessly_on_a_good_network() {
    let job = Job { bytes_min: 0, ..Job::bulk(10_000, 500) };
    let acts = vec![send(job.clone()), Act::Send(0, End::Server, job)];
    let steps = talk(Attribute::ReliableOrdered, acts);
    watched((2, rich(), Weather::default()), steps, SECOND, &[], &mut |_, mut run| {
        for machine in 0..2 {
            for name in ["retransmissions", "probe_timeouts"] {
                assert_eq!(run.counter(machine, name), 0, "{name} of machine {machine}");
            }
            let drops = run.endpoint(machine).map(|endpoint| endpoint.counters().drops).unwrap_or_default();
            assert!(drops.iter().all(|drop| drop.count == 0), "{drops:?}");
        }
    });
}

/// When the last message from machine 0 to machine 2 is complete, with or without a talk to a deaf machine 1.
fn completion_beside(deaf: bool) -> u64 {
    let mut steps = vec![
        at(0, Act::Connect(Talk::new(0, 0, 2, Attribute::ReliableOrdered))),
        at(0, send(steady(20_000))),
        at(0, Act::Hold(1, Hold::Together(2 * SECOND), 2 * SECOND)),
    ];
    if deaf {
        steps.push(at(0, Act::Connect(Talk::new(1, 0, 1, Attribute::ReliableOrdered))));
        steps.push(at(0, Act::Send(1, End::Client, Job::bulk(3_000, 500))));
    }
    let (machine, mut last) = (Machine { recv_buffers: 8, ..rich() }, 0);
    watched(
        (3, machine, Weather { delay_ns: 20 * US, ..Weather::default() }),
        steps,
        SECOND,
        &[],
        &mut |_, run| {
            last = last_ns(&run.ended(0, End::Client));
        },
    );
    last
}

#[test]
fn a_receiver_that_is_not_ready_slows_nobody_else() {
    let (alone, beside) = (completion_beside(false), completion_beside(true));
    assert!(beside < alone + alone / 10, "{alone} ns alone, {beside} ns beside a deaf receiver");
}

/// Sends more than a deaf receiver can hold, then a few when it listens again.
fn to_a_deaf_receiver(send_timeout_ns: u64, delay_ns: u64, trouble: Option<Act>) {
    let machine = Machine { recv_buffers: 8, memory_bytes_max: 2 << 20, send_timeout_ns, ..rich() };
    let mut steps = talk(Attribute::ReliableOrdered, vec![send(Job::bulk(3_000, 1_400))]);
    steps.push(at(0, Act::Hold(1, Hold::Together(2 * SECOND), 2 * SECOND - 1)));
    steps.push(at(3 * SECOND, send(Job::bulk(10, 1_400))));
    steps.extend(trouble.map(|act| at(2 * SECOND - delay_ns, act)));
    let weather = Weather { delay_ns, ..Weather::default() };
    watched((2, machine, weather), steps, 10 * SECOND, &[], &mut |_, run| {
        let ended = run.ended(0, End::Client);
        let (refused, fine) = (count(&ended, Status::ReceiverNotReady), count(&ended, Status::Success));
        assert!(refused > 0, "nobody got an error");
        let overdue = count(&ended, Status::TimedOut);
        assert_eq!(refused + fine + overdue, 3_010, "{:?}", ended.last());
        assert_eq!(
            ended.last().map(|(_, status)| *status),
            Some(Status::Success),
            "the connection works again"
        );
    });
}

#[test]
fn not_ready_until_the_send_timeout_says_so_and_the_connection_lives() {
    to_a_deaf_receiver(50 * MS, 10 * US, None);
}

/// The receiver is ready again, and the sender does not know it yet: now old copies come. The judge knows what may still arrive.
#[test]
fn what_was_refused_and_given_up_cannot_arrive_late() {
    to_a_deaf_receiver(200 * MS, 10 * MS, Some(Act::Replay(4_000)));
}

/// How sends end when the peer's machine goes down, and comes back after so long.
fn crash(send_timeout_ns: u64, down_ns: u64, status: Status) -> u64 {
    let machine = Machine { send_timeout_ns, ..rich() };
    let mut steps = talk(Attribute::ReliableOrdered, vec![send(steady(100_000))]);
    steps.push(at(10 * MS, Act::Crash(1, down_ns)));
    let mut last = 0;
    watched((2, machine, Weather::default()), steps, SECOND, &[], &mut |_, run| {
        let ended = run.ended(0, End::Client);
        assert!(count(&ended, status) > 0, "{:?}", ended.last());
        last = last_ns(&ended);
    });
    last
}

#[test]
fn a_dead_peer_ends_every_send_with_timed_out() {
    let end_ns = crash(300 * MS, 5 * SECOND, Status::TimedOut);
    assert!((300 * MS..800 * MS).contains(&end_ns), "the last send ended at {end_ns} ns");
}

#[test]
fn a_restarted_peer_is_noticed_long_before_the_send_timeout() {
    let end_ns = crash(30 * SECOND, 10 * MS, Status::Disconnected);
    assert!(end_ns < 2 * SECOND, "the last send ended at {end_ns} ns");
}

#[test]
fn the_past_of_another_connection_has_no_effect() {
    let mut steps = Vec::new();
    let reliable = Attribute::ReliableOrdered;
    for (number, at_ns, attribute) in
        [(0, 0, reliable), (1, 100 * MS, reliable), (2, 100 * MS, Attribute::Unreliable)]
    {
        steps.push(at(at_ns, Act::Connect(Talk::new(number, 0, 1, attribute))));
        for end in [End::Client, End::Server] {
            steps.push(at(at_ns, Act::Send(number, end, steady(300))));
        }
    }
    steps.push(at(50 * MS, Act::HangUp(0, End::Client)));
    for at_ns in [101 * MS, 103 * MS, 10 * SECOND, 5_000 * SECOND] {
        steps.push(at(at_ns, Act::Replay(4_000)));
    }
    watched((2, rich(), Weather::default()), steps, 5_001 * SECOND, &[], &mut |_, mut run| {
        for machine in 0..2 {
            let made = run.endpoint(machine).map(|endpoint| endpoint.counters().connections_made);
            assert_eq!(made, Some(3), "a replayed handshake came up");
        }
    });
}

#[test]
fn forgeries_are_counted_and_nothing_else() {
    let mut steps = Vec::new();
    for (number, client, server) in [(0, 0, 1), (1, 1, 2), (2, 2, 0)] {
        steps.push(at(0, Act::Connect(Talk::new(number, client, server, Attribute::ReliableOrdered))));
        for end in [End::Client, End::Server] {
            steps.push(at(0, Act::Send(number, end, steady(3_000))));
        }
    }
    steps.extend((1..=60).map(|number| at(number * MS / 2, Act::Forge(100))));
    watched((3, rich(), Weather::default()), steps, SECOND, &[], &mut |_, mut run| {
        let drops = |machine| run.endpoint(machine).map(|endpoint| endpoint.counters().drops);
        let drops: u64 = (0..3).filter_map(drops).flatten().map(|drop| drop.count).sum();
        assert!(drops > 1_000, "only {drops} counted");
    });
}

#[test]
fn a_request_that_nobody_hears_fails_in_time() {
    let talk = Talk { timeout_ns: Some(700 * MS), ..Talk::new(0, 0, 1, Attribute::ReliableOrdered) };
    let steps = vec![at(0, Act::Crash(1, SECOND)), at(MS, Act::Connect(talk))];
    let times = [701 * MS - 1, 720 * MS];
    watched((2, rich(), Weather::default()), steps, SECOND, &times, &mut |number, run| {
        let wanted = [None, Some(false), Some(false)][number];
        assert_eq!(run.is_connected(0, End::Client), wanted);
    });
}

#[test]
fn what_was_said_before_hanging_up_arrives() {
    for loss_pct in [0.0, 10.0] {
        let mut steps = talk(Attribute::ReliableOrdered, vec![send(Job::bulk(2_000, 700))]);
        steps.push(at(700 * US, Act::HangUp(0, End::Client)));
        let weather = Weather { delay_ns: 100 * US, jitter_ns: 10 * US, ..Weather::default() };
        steps.push(at(700 * US, Act::Storm(Weather { loss_pct, ..weather.clone() }, SECOND)));
        watched((2, rich(), weather), steps, 10 * SECOND, &[700 * US - 1], &mut |number, run| {
            assert_eq!(run.sent(0, End::Client), 2_000);
            let (delivered, _) = run.delivered(0, End::Client);
            assert_eq!(delivered == 2_000, number == 1, "{delivered}, loss {loss_pct} %");
        });
    }
}

#[test]
fn a_path_narrower_than_the_interface_still_carries_everything() {
    let job = Job { bytes_min: 0, ..Job::bulk(2_000, 1_400) };
    let mut steps = talk(Attribute::ReliableOrdered, vec![send(job.clone()), Act::Send(0, End::Server, job)]);
    steps.extend([(0, 1), (1, 0)].map(|(from, to)| at(0, Act::Narrow(from, to, 1_200))));
    watched((2, rich(), Weather::default()), steps, SECOND, &[], &mut |_, mut run| {
        for (machine, end) in [(0, End::Client), (1, End::Server)] {
            assert_eq!(run.delivered(0, end).0, 2_000);
            assert_eq!(run.counter(machine, "paths_narrowed"), 1, "machine {machine}");
        }
    });
}

#[test]
fn keepalive_speaks_once_and_ends_nothing() {
    let machine = Machine { keepalive_ns: Some(50 * MS), ..rich() };
    let mut steps = talk(Attribute::ReliableOrdered, vec![send(Job::bulk(1, 8))]);
    steps.push(at(300 * MS, Act::Outage(None, None, 4_700 * MS)));
    steps.push(at(8 * SECOND, send(Job::bulk(1, 8))));
    watched((2, machine, Weather::default()), steps, 9 * SECOND, &[290 * MS], &mut |number, run| {
        for end in [End::Client, End::Server] {
            assert_eq!(run.keepalives_left(0, end), [1, 0][number], "{end:?}");
        }
        if number == 1 {
            let ended = run.ended(0, End::Client);
            assert_eq!(count(&ended, Status::Success), 2, "the connection survives the silence");
        }
    });
}
