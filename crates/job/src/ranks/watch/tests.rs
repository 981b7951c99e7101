//! Ranks of one process, of which one stands still as if it were dead, while a table says that it is.

use super::super::tests::{LIMIT, run};
use super::super::{Connections, Ranks, book, hello::Ticket};
use crate::ended::{Ended, EndedTable};
use crate::error::JobError;
use crate::limits::ENDED_LOOK_EVERY;
use crate::ranks::{Peer, RankEvent};
use cci::{Access, Context, Endpoint, Event, Options, RegionAddress, RmaFlags, SendFlags, Status};
use std::sync::Arc;
use std::time::Duration;

/// Nothing here ends by this.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Ranks over UDP, and the table that a launcher would have for them.
fn watched(count: u32) -> (EndedTable, Vec<Ranks>) {
    let table = EndedTable::create(count).unwrap();
    let context = Context::new().unwrap();
    let options = || Options::default().send_timeout(FOR_EVER);
    let endpoint = |_| Endpoint::create(context.device("udp-lo").unwrap(), options()).unwrap();
    let endpoints: Vec<Endpoint> = (0..count).map(endpoint).collect();
    let ticket = Ticket::random().unwrap();
    let entries: Vec<_> = endpoints.iter().map(|endpoint| book::entry(&ticket, endpoint.uri())).collect();
    let hosts: Arc<[u32]> = vec![0; count as usize].into();
    let over = |(rank, endpoint)| {
        let ended = Ended::open(&table.place(), count).unwrap();
        ended.want();
        let connections = Connections::over(rank, &entries).unwrap();
        Ranks::over(endpoint, connections, hosts.clone(), Some(Arc::new(ended)))
    };
    let all = (0..).zip(endpoints).map(over).collect();
    (table, all)
}

fn connect_all(all: &mut [Ranks], pairs: &[(u32, u32)]) {
    for &(from, to) in pairs {
        all[from as usize].connect(Peer::of(to), FOR_EVER).unwrap();
    }
    let mut connected = 0;
    run(all, |_, _, event| {
        connected += usize::from(matches!(event, Some(RankEvent::Connected { .. })));
        connected == 2 * pairs.len()
    });
}

#[test]
fn all_ends_once_when_a_rank_has_ended_and_what_it_has_said_comes_first() {
    let (table, mut all) = watched(3);
    connect_all(&mut all, &[(0, 1), (0, 2)]);
    let [there, here] = [2, 0].map(|rank: usize| {
        let endpoint = all[rank].endpoint();
        let memory = endpoint.allocate(4096).unwrap();
        endpoint.register(&memory, Access::READ | Access::WRITE).unwrap()
    });
    let said: Vec<u8> = (0..20).collect();
    let to_first = all[2].connection(Peer::of(0)).unwrap();
    for byte in &said {
        all[2].endpoint().send(to_first, &[*byte], 0, SendFlags::SILENT).unwrap();
    }
    // All of it leaves, and nobody takes it yet.
    for _ in 0..100 {
        assert!(all[2].next_event().is_none());
    }
    let dead = all.pop().unwrap();
    let connection = all[0].connection(Peer::of(2)).unwrap();
    for context in 1..=5 {
        all[0].endpoint().send(connection, b"nobody takes it", context, SendFlags::NONE).unwrap();
        let [into, from] = [here, there].map(|handle| RegionAddress::new(handle, 0));
        all[0].endpoint().rma_read(connection, into, from, 64, 10 + context, RmaFlags::NONE).unwrap();
    }
    // Nobody has asked rank 2 for this one before it ends, and then nobody answers.
    all[1].connect(Peer::of(2), FOR_EVER).unwrap();
    table.enter(2, true);
    let (mut heard, mut ends, mut contexts, mut failures) = (Vec::new(), 0, Vec::new(), 0);
    let mut dead_for = Vec::new();
    run(&mut all, |all, rank, event| {
        match event {
            Some(RankEvent::Endpoint(Event::Recv(message))) if rank == 0 => {
                assert_eq!(ends, 0, "nothing comes behind the end");
                heard.extend_from_slice(&message);
            }
            Some(RankEvent::Endpoint(Event::Send { context, status, .. })) => {
                assert_ne!(status, Status::Success);
                contexts.push(context);
            }
            Some(RankEvent::Ended { peer, .. }) => {
                assert_eq!((rank, peer), (0, Peer::of(2)));
                ends += 1;
            }
            Some(RankEvent::Failed { peer, .. }) => {
                assert_eq!((rank, peer), (1, Peer::of(2)));
                failures += 1;
                if failures == 1 {
                    for _ in 0..3 {
                        assert_eq!(all[1].connect(Peer::of(2), FOR_EVER).unwrap(), None, "asked again");
                    }
                }
            }
            Some(RankEvent::Died { rank: 2 }) => {
                assert!(rank == 1 || ends == 1, "it comes behind the ends of connections");
                dead_for.push(rank);
            }
            Some(other) => panic!("rank {rank} gets {other:?}"),
            None => {}
        }
        ends == 1 && failures == 2 && contexts.len() == 10 && dead_for.len() == 2
    });
    dead_for.sort_unstable();
    assert_eq!(dead_for, [0, 1], "each learns it once, the second one without a connection");
    contexts.sort_unstable();
    assert_eq!(contexts, [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]);
    assert_eq!(heard, said);
    assert!(all[0].connection(Peer::of(2)).is_none() && all[1].connection(Peer::of(2)).is_none());
    // The others still have each other, and nothing else comes.
    let connection = all[0].connection(Peer::of(1)).unwrap();
    all[0].endpoint().send(connection, b"still here", 0, SendFlags::SILENT).unwrap();
    run(&mut all, |_, rank, event| match event {
        Some(RankEvent::Endpoint(Event::Recv(message))) => {
            assert_eq!((rank, &*message), (1, &b"still here"[..]));
            true
        }
        Some(other) => panic!("rank {rank} gets {other:?}"),
        None => false,
    });
    drop(dead);
}

#[test]
fn who_sleeps_learns_of_an_end() {
    let (table, mut all) = watched(2);
    assert!(all[0].sleep_max().is_some_and(|most| most <= ENDED_LOOK_EVERY));
    connect_all(&mut all, &[(0, 1)]);
    let dead = all.pop().unwrap();
    table.enter(1, false);
    let event = all[0].wait(Some(LIMIT)).unwrap();
    assert!(matches!(event, Some(RankEvent::Ended { peer, .. }) if peer == Peer::of(1)), "{event:?}");
    assert_eq!(all[0].sleep_max(), None, "there is nobody left");
    drop(dead);
}

#[test]
fn a_death_is_reported_without_a_connection_and_another_end_is_not() {
    let (table, mut all) = watched(4);
    let dead = all.split_off(2);
    table.enter(2, false);
    table.enter(3, true);
    for ranks in &mut all {
        let event = ranks.wait(Some(LIMIT)).unwrap();
        assert!(matches!(event, Some(RankEvent::Died { rank: 3 })), "{event:?}");
        assert!(ranks.wait(Some(ENDED_LOOK_EVERY)).unwrap().is_none(), "it comes once");
    }
    drop(dead);
}

#[test]
fn a_rank_that_does_not_survive_others_does_not_look() {
    let table = EndedTable::create(2).unwrap();
    let ended = Arc::new(Ended::open(&table.place(), 2).unwrap());
    let (_, mut all) = watched(2);
    for ranks in &mut all {
        ranks.watch = Some(super::Watch::new(ended.clone()));
    }
    connect_all(&mut all, &[(0, 1)]);
    table.enter(1, true);
    for _ in 0..1000 {
        assert!(all[0].next_event().is_none());
    }
    assert_eq!(all[0].sleep_max(), None);
    ended.want();
    assert!(all[0].sleep_max().is_some(), "from now on it does");
}

#[test]
fn a_barrier_ends_with_the_name_of_a_rank_that_has_ended() {
    // Of six, rank 5 is below rank 1.
    let (table, mut all) = watched(6);
    for ranks in &mut all {
        ranks.barrier(FOR_EVER).unwrap();
    }
    let mut passed = 0;
    run(&mut all, |_, _, event| {
        passed += usize::from(matches!(event, Some(RankEvent::Barrier(Ok(())))));
        passed == 6
    });
    let dead = all.pop().unwrap();
    for ranks in &mut all {
        ranks.barrier(FOR_EVER).unwrap();
    }
    table.enter(5, true);
    let mut lost = 0;
    run(&mut all, |_, _, event| {
        match event {
            Some(RankEvent::Barrier(Err(JobError::Gone { rank: 5 }))) => lost += 1,
            Some(RankEvent::Died { rank: 5 }) => {}
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        lost == 5
    });
    drop(dead);
}
