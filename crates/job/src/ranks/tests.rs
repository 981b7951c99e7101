//! Ranks of one process, with endpoints of their own.

use super::*;
use cci::{Attribute, ConnectFailure, Context, SendFlags};
use std::process::Command;

/// Connecting takes far less.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// A test that gets nowhere ends by this.
const ROUNDS_MAX: u64 = 200_000_000;

fn ranks(device: &str, count: u32) -> Vec<Ranks> {
    ranks_with(device, count, &Options::default())
}

fn ranks_with(device: &str, count: u32, options: &Options) -> Vec<Ranks> {
    let context = Context::new().unwrap();
    let endpoint = |_| Endpoint::create(context.device(device).unwrap(), options.clone()).unwrap();
    Ranks::of_one_process((0..count).map(endpoint).collect()).unwrap()
}

/// Turns all until `done`, and gives it every event with the rank that got it.
pub(super) fn run(all: &mut [Ranks], mut done: impl FnMut(&mut [Ranks], u32, Option<RankEvent>) -> bool) {
    let start = Instant::now();
    for _ in 0..ROUNDS_MAX {
        for rank in 0..all.len() {
            let event = all[rank].next_event();
            if done(all, rank as u32, event) {
                return;
            }
        }
        assert!(start.elapsed() < 2 * LIMIT, "nothing comes of it");
    }
    panic!("nothing comes of it");
}

fn open(all: &[Ranks], peer: impl Fn(u32) -> Peer) -> usize {
    let of =
        |ranks: &Ranks| (0..all.len() as u32).filter(|&rank| ranks.connection(peer(rank)).is_some()).count();
    all.iter().map(of).sum()
}

#[test]
fn all_ask_all_at_once_and_one_connection_stands_for_each_pair() {
    for (device, count) in [("shm", 6), ("udp-lo", 5), ("tcp-lo", 4), ("any", 4)] {
        let mut all = ranks(device, count);
        for ranks in &mut all {
            for rank in 0..count {
                assert_eq!(ranks.connect(Peer::of(rank), LIMIT).unwrap(), None);
                assert_eq!(ranks.connect(Peer::of(rank), LIMIT).unwrap(), None, "asked once");
            }
        }
        let mut connected = 0;
        run(&mut all, |_, rank, event| {
            match event {
                Some(RankEvent::Connected { .. }) => connected += 1,
                Some(other) => panic!("{device}: rank {rank} gets {other:?}"),
                None => {}
            }
            connected == count * count
        });
        // Every message arrives at the rank that it is for, from the one that has sent it, itself included.
        for (from, ranks) in (0..).zip(&mut all) {
            for to in 0..count {
                let connection = ranks.connect(Peer::of(to), LIMIT).unwrap().unwrap();
                assert_eq!(ranks.peer(connection), Some(Peer::of(to)));
                let text = format!("{from} to {to}");
                ranks.endpoint().send(connection, text.as_bytes(), 0, SendFlags::SILENT).unwrap();
            }
        }
        let mut received = 0;
        run(&mut all, |all, rank, event| {
            match event {
                Some(RankEvent::Endpoint(Event::Recv(message))) => {
                    let from = all[rank as usize].peer(message.connection()).unwrap();
                    assert_eq!(std::str::from_utf8(&message).unwrap(), format!("{} to {rank}", from.rank()));
                    received += 1;
                }
                Some(other) => panic!("{device}: rank {rank} gets {other:?}"),
                None => {}
            }
            received == count * count
        });
        assert_eq!(open(&all, Peer::of), (count * count) as usize);
    }
}

#[test]
fn a_pair_has_a_connection_for_each_kind_and_label() {
    let mut all = ranks("shm", 2);
    let peers = |rank| {
        [
            Peer::of(rank),
            Peer::new(rank, 1, Attribute::ReliableOrdered).unwrap(),
            Peer::new(rank, 1, Attribute::ReliableUnordered).unwrap(),
        ]
    };
    for peer in peers(1) {
        all[0].connect(peer, LIMIT).unwrap();
    }
    let mut connected = Vec::new();
    run(&mut all, |_, rank, event| {
        if let Some(RankEvent::Connected { peer, connection }) = event {
            connected.push((rank, peer, connection));
        }
        connected.len() == 6
    });
    for rank in [0, 1] {
        for peer in peers(1 - rank) {
            let of = connected.iter().filter(|&&(at, is, _)| (at, is) == (rank, peer));
            assert_eq!(of.count(), 1, "rank {rank}: {peer:?}");
        }
    }
}

#[test]
fn only_what_was_asked_for_stands() {
    let mut all = ranks("shm", 3);
    assert!(
        matches!(all[0].connect(Peer::of(3), LIMIT), Err(JobError::Argument(why)) if why.contains("rank 3"))
    );
    all[0].connect(Peer::of(2), LIMIT).unwrap();
    let mut connected = 0;
    run(&mut all, |_, _, event| {
        connected += u32::from(matches!(event, Some(RankEvent::Connected { .. })));
        connected == 2
    });
    assert_eq!(open(&all, Peer::of), 2);
    assert!(all[1].connections.len() == 0);
}

#[test]
fn one_who_has_not_the_ticket_is_refused() {
    for data in [&b""[..], b"cci-job\x01", &hello::encode(&Ticket::random().unwrap(), 1, 0)] {
        let mut all = ranks("shm", 2);
        let context = Context::new().unwrap();
        let mut stranger = Endpoint::create(context.device("shm").unwrap(), Options::default()).unwrap();
        let uri = all[0].connections.book().uri(0).unwrap();
        stranger.connect(&uri, data, Attribute::ReliableOrdered, 0, Some(LIMIT)).unwrap();
        run(&mut all, |_, _, event| {
            assert!(event.is_none(), "{event:?}");
            match stranger.next_event() {
                Some(Event::Connect { result, .. }) => {
                    assert_eq!(result, Err(ConnectFailure::Refused));
                    true
                }
                _ => false,
            }
        });
        assert_eq!((all[0].requests_refused(), all[0].connections.len()), (1, 0));
    }
}

#[test]
fn a_rank_that_is_gone_is_named() {
    for device in ["shm", "tcp-lo"] {
        let mut all = ranks(device, 3);
        all[0].connect(Peer::of(2), LIMIT).unwrap();
        let mut connected = 0;
        run(&mut all, |_, _, event| {
            connected += u32::from(matches!(event, Some(RankEvent::Connected { .. })));
            connected == 2
        });
        all.pop().unwrap().close(LIMIT);
        all[1].connect(Peer::of(2), LIMIT).unwrap();
        let (mut ended, mut failed) = (false, false);
        run(&mut all, |_, rank, event| {
            match event {
                Some(RankEvent::Ended { peer, .. }) => ended = rank == 0 && peer == Peer::of(2),
                Some(RankEvent::Failed { peer, .. }) => failed = rank == 1 && peer == Peer::of(2),
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            ended && failed
        });
        assert!(all.iter().all(|ranks| ranks.connections.len() == 0));
    }
}

#[test]
fn barriers_hold_all_until_the_last_has_called_and_keep_apart_from_messages() {
    const TURNS: u32 = 50;
    for (device, count) in [
        ("shm", 7),
        ("udp-lo", 6),
        ("tcp-lo", 6),
        ("any", 6),
        ("shm", 1),
        ("shm", 2),
        ("udp-lo", 2),
        ("tcp-lo", 2),
        ("any", 2),
    ] {
        let mut all = ranks(device, count);
        let mut called = vec![0; count as usize];
        let mut passed = called.clone();
        run(&mut all, |all, rank, event| {
            let at = rank as usize;
            match event {
                Some(RankEvent::Barrier(end)) => {
                    end.unwrap();
                    passed[at] += 1;
                    assert!(called.iter().all(|&called| called >= passed[at]), "{device}: too early");
                }
                Some(other) => panic!("{device}: rank {rank} gets {other:?}"),
                None if called[at] == passed[at] && called[at] < TURNS => {
                    all[at].barrier(LIMIT).unwrap();
                    called[at] += 1;
                    assert!(matches!(all[at].barrier(LIMIT), Err(JobError::Argument(_))), "one at a time");
                }
                None => {}
            }
            passed.iter().all(|&passed| passed == TURNS)
        });
        assert_eq!(open(&all, Peer::of), 0, "barriers open no connection of the program");
    }
}

#[test]
fn messages_that_come_short_are_those_of_barriers_or_the_callers() {
    for device in ["shm", "any", "udp-lo"] {
        let mut all = ranks(device, 2);
        run(&mut all, |all, rank, _| {
            all[rank as usize].connect(Peer::of(1 - rank), LIMIT).unwrap();
            open(all, Peer::of) == 2
        });
        let (mut short, mut of_barriers, mut line) = (0, 0, Line::EMPTY);
        let start = Instant::now();
        for turn in 0..200_u32 {
            for (rank, ranks) in (0..).zip(&mut all) {
                if turn % 2 == 0 {
                    ranks.barrier(LIMIT).unwrap();
                } else {
                    let connection = ranks.connection(Peer::of(1 - rank)).unwrap();
                    let message = turn.to_ne_bytes();
                    ranks.endpoint().send(connection, &message, 0, SendFlags::SILENT).unwrap();
                }
            }
            let mut missing = [1; 2];
            while missing != [0; 2] {
                assert!(start.elapsed() < LIMIT, "{device}: {missing:?} in turn {turn}");
                for (rank, ranks) in all.iter_mut().enumerate() {
                    let event = match ranks.take_short(&mut line) {
                        ShortMessage::Nothing => continue,
                        ShortMessage::Message(connection) if ranks.take_said(connection, line.bytes()) => {
                            of_barriers += 1;
                            continue;
                        }
                        ShortMessage::Message(connection) => {
                            assert_eq!(Some(connection), ranks.connection(Peer::of(1 - rank as u32)));
                            assert_eq!(line.bytes(), turn.to_ne_bytes());
                            short += 1;
                            missing[rank] -= 1;
                            continue;
                        }
                        ShortMessage::Other => ranks.next_event(),
                    };
                    match event {
                        Some(RankEvent::Barrier(end)) => end.unwrap(),
                        Some(RankEvent::Endpoint(Event::Recv(message))) => {
                            assert_eq!(*message, turn.to_ne_bytes());
                        }
                        Some(other) => panic!("{device}: {other:?}"),
                        None => continue,
                    }
                    missing[rank] -= 1;
                }
            }
        }
        assert_eq!([short > 0, of_barriers > 0], [device != "udp-lo"; 2], "{device}: {short}, {of_barriers}");
    }
}

#[test]
fn a_rank_that_has_left_a_barrier_need_not_make_progress_for_the_others() {
    let devices = ["shm", "udp-lo", "tcp-lo", "any"];
    for (device, count) in devices.into_iter().flat_map(|device| [(device, 6), (device, 2)]) {
        let mut all = ranks(device, count);
        for _ in 0..20 {
            let mut is_inside = vec![true; count as usize];
            for ranks in &mut all {
                ranks.barrier(LIMIT).unwrap();
            }
            let start = Instant::now();
            while is_inside.contains(&true) {
                assert!(start.elapsed() < LIMIT, "{device}: some wait for ranks that have left");
                for (ranks, is_inside) in all.iter_mut().zip(&mut is_inside).filter(|(_, inside)| **inside) {
                    if let Some(RankEvent::Barrier(end)) = ranks.next_event() {
                        end.unwrap();
                        *is_inside = false;
                    }
                }
            }
        }
    }
}

#[test]
fn a_rank_that_is_gone_ends_barriers_with_its_name() {
    // Of six, rank 1 has rank 5 below it, so that the others learn of that one by their neighbours.
    for (device, count, before) in
        [("shm", 6, 0), ("shm", 6, 3), ("tcp-lo", 6, 2), ("shm", 2, 0), ("shm", 2, 3), ("tcp-lo", 2, 2)]
    {
        let last = count - 1;
        let mut all = ranks(device, count);
        let mut passed = vec![0; count as usize];
        for rank in all.iter_mut().filter(|_| before > 0) {
            rank.barrier(LIMIT).unwrap();
        }
        run(&mut all, |all, rank, event| {
            if let Some(RankEvent::Barrier(end)) = event {
                end.unwrap();
                passed[rank as usize] += 1;
                if passed[rank as usize] < before {
                    all[rank as usize].barrier(LIMIT).unwrap();
                }
            }
            passed.iter().all(|&passed| passed == before)
        });
        all.pop().unwrap().close(LIMIT);
        let mut lost = 0;
        for rank in &mut all {
            rank.barrier(LIMIT).unwrap();
        }
        run(&mut all, |_, _, event| {
            match event {
                Some(RankEvent::Barrier(Err(JobError::Gone { rank }))) if rank == last => lost += 1,
                Some(other) => panic!("{device}: {other:?}"),
                None => {}
            }
            lost == last
        });
        for rank in &mut all {
            let started = rank.barrier(LIMIT);
            assert!(matches!(started, Err(JobError::Gone { rank }) if rank == last), "nothing starts");
        }
    }
}

#[test]
fn a_rank_that_works_for_longer_than_a_send_may_take_is_waited_for() {
    let send_timeout = Duration::from_millis(50);
    for device in ["shm", "tcp-lo", "udp-lo"] {
        let mut all = ranks_with(device, 6, &Options::default().send_timeout(send_timeout));
        // In the second turn rank 1 takes no events for a while, and has children that have reported.
        for turn in 0..2 {
            for (rank, ranks) in all.iter_mut().enumerate() {
                if turn == 0 || rank != 1 {
                    ranks.barrier(LIMIT).unwrap();
                }
            }
            let works_until = Instant::now() + 8 * send_timeout;
            while turn == 1 && Instant::now() < works_until {
                for (rank, ranks) in all.iter_mut().enumerate().filter(|&(rank, _)| rank != 1) {
                    let event = ranks.next_event();
                    assert!(event.is_none(), "{device}: rank {rank} gets {event:?}");
                }
            }
            if turn == 1 {
                all[1].barrier(LIMIT).unwrap();
            }
            let mut passed = 0;
            run(&mut all, |_, _, event| {
                match event {
                    Some(RankEvent::Barrier(end)) => {
                        end.unwrap();
                        passed += 1;
                    }
                    Some(other) => panic!("{device}: {other:?}"),
                    None => {}
                }
                passed == 6
            });
        }
    }
}

#[test]
fn a_rank_that_is_no_neighbour_gets_no_connection_of_barriers() {
    let mut all = ranks("shm", 6);
    all[5].connect(Peer::of_barriers(0), LIMIT).unwrap();
    run(&mut all, |all, rank, event| {
        assert!(event.is_none(), "rank {rank} gets {event:?}");
        all[0].requests_refused() == 1
    });
    assert!(all[0].connections.len() == 0);
}

/// Bytes of this process that no file has.
fn anonymous_bytes() -> u64 {
    let held = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = held.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// In a process of its own, whose memory no other test changes: the exchange is simulated, the memory is real.
#[test]
fn a_rank_that_was_never_spoken_to_takes_64_bytes_at_most() {
    const ALONE: &str = "CCI_TEST_ALONE";
    const RANKS: u32 = 100_000;
    const RANKS_PER_HOST: u32 = 64;
    if std::env::var(ALONE).is_err() {
        let name = "ranks::tests::a_rank_that_was_never_spoken_to_takes_64_bytes_at_most";
        let mut alone = Command::new(std::env::current_exe().unwrap());
        // What is freed goes back to the system, so that it does not count.
        alone.env(ALONE, "1").env("MALLOC_MMAP_THRESHOLD_", "131072");
        let output = alone.args(["--exact", name, "--nocapture"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let context = Context::new().unwrap();
    let endpoint = || Endpoint::create(context.device("shm").unwrap(), Options::default()).unwrap();
    let (first, second) = (endpoint(), endpoint());
    let ticket = Ticket::random().unwrap();
    let uri = |rank| format!("any://id={rank:032x},shm=u1000-{rank:016x},udp=192.168.100.7:44992");
    let entries: Vec<_> = (0..RANKS).map(|rank| book::entry(&ticket, &uri(rank))).collect();
    let hosts = || -> Arc<[u32]> { (0..RANKS).map(|rank| rank / RANKS_PER_HOST).collect() };
    let over =
        |endpoint, rank| Ranks::over(endpoint, Connections::over(rank, &entries).unwrap(), hosts(), None);
    let mut keeper = over(first, 0);
    let place = keeper.connections.book().publish().unwrap();
    let before = anonymous_bytes();
    let mut ranks = over(second, 1);
    ranks.connections.book().adopt(&place);
    let taken = anonymous_bytes().saturating_sub(before);
    assert_eq!(ranks.connections.book().uri(RANKS - 1).unwrap(), uri(RANKS - 1));
    assert!(taken > 0 && taken <= 64 * u64::from(RANKS), "{taken} bytes for {RANKS} ranks");
}
