//! Collectives against what they are said to give.

use super::operation::Operation;
use super::*;
use crate::process::tests::{poll_all, runtimes, turn};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use std::rc::Rc;

const SUM: (Number, Reduction) = (Number::I64, Reduction::Add);

/// What a collective is, for all members.
#[derive(Clone, Debug)]
pub(in crate::process) enum Kind {
    Barrier,
    Broadcast(usize),
    Gather(usize),
    Scatter(usize),
    Allgather,
    Alltoall,
    Reduce(usize, (Number, Reduction)),
    Allreduce((Number, Reduction)),
    Scan((Number, Reduction)),
}

/// Bytes of a member's that nobody else has; floats among them are numbers.
fn bytes(member: usize, len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed ^ (member as u64) << 32;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 - 8_000_000.0
    };
    (0..len.div_ceil(4)).flat_map(|_| next().to_ne_bytes()).take(len).collect()
}

/// How much a member has for another one.
fn part_len(from: usize, to: usize, len: usize) -> usize {
    (len + 13 * from + 7 * to) % (len + 1)
}

impl Kind {
    pub fn collective(&self, me: usize, size: usize, len: usize, seed: u64) -> Collective {
        let data = bytes(me, len, seed);
        match *self {
            Kind::Barrier => Collective::Barrier,
            Kind::Broadcast(root) => {
                let data = if me == root { data } else { vec![0; len] };
                Collective::Broadcast { root: root as u32, data }
            }
            Kind::Gather(root) => Collective::Gather { root: root as u32, data },
            Kind::Scatter(root) => {
                let data = if me == root { bytes(root, len * size, seed) } else { Vec::new() };
                Collective::Scatter { root: root as u32, data, len_bytes: len }
            }
            Kind::Allgather => Collective::Allgather { data },
            Kind::Alltoall => {
                let (mut out, mut into, mut parts) = (0, 0, Vec::new());
                for other in 0..size {
                    let (sent, got) = (part_len(me, other, len), part_len(other, me, len));
                    parts.push((out..out + sent, into..into + got));
                    out += sent;
                    into += got;
                }
                Collective::Alltoall { parts, data: bytes(me, out, seed), result: vec![0; into] }
            }
            Kind::Reduce(root, with) => Collective::Reduce { root: root as u32, data, with },
            Kind::Allreduce(with) => Collective::Allreduce { data, with },
            Kind::Scan(with) => Collective::Scan { data, with },
        }
    }

    /// What a member gets. Sums of floats depend on their order: `None`.
    fn expected(&self, me: usize, size: usize, len: usize, seed: u64) -> Option<Vec<u8>> {
        let all = || (0..size).map(|member| bytes(member, len, seed));
        let reduced = |members: usize, (number, reduction): (Number, Reduction)| {
            let is_exact = matches!(number, Number::I32 | Number::U32 | Number::I64 | Number::U64);
            let orderless = is_exact || matches!(reduction, Reduction::Min | Reduction::Max);
            let reduce = |mut left: Vec<u8>, right: Vec<u8>| {
                number.combine(reduction, &mut left, &right, false);
                left
            };
            orderless.then(|| all().take(members).reduce(reduce).unwrap_or_default())
        };
        match *self {
            Kind::Barrier => Some(Vec::new()),
            Kind::Broadcast(root) => Some(bytes(root, len, seed)),
            Kind::Gather(root) => Some(if me == root { all().flatten().collect() } else { Vec::new() }),
            Kind::Scatter(root) => Some(bytes(root, len * size, seed)[me * len..(me + 1) * len].to_vec()),
            Kind::Allgather => Some(all().flatten().collect()),
            Kind::Alltoall => {
                let part = |from: usize| {
                    let lens: Vec<usize> = (0..size).map(|to| part_len(from, to, len)).collect();
                    let at: usize = lens[..me].iter().sum();
                    bytes(from, lens.iter().sum(), seed)[at..at + lens[me]].to_vec()
                };
                Some((0..size).flat_map(part).collect())
            }
            Kind::Reduce(root, with) if me == root => reduced(size, with),
            Kind::Reduce(..) => Some(Vec::new()),
            Kind::Allreduce(with) => reduced(size, with),
            Kind::Scan(with) => reduced(me + 1, with),
        }
    }

    fn is_same_for_all(&self) -> bool {
        matches!(self, Kind::Broadcast(_) | Kind::Allgather | Kind::Allreduce(_))
    }
}

pub(in crate::process) fn kinds(size: usize) -> impl Strategy<Value = Kind> {
    use Number::*;
    let number = prop::sample::select(vec![I32, U32, I64, U64, F32, F64]);
    let reduction = prop::sample::select(vec![
        Reduction::Add,
        Reduction::Product,
        Reduction::Min,
        Reduction::Max,
        Reduction::And,
        Reduction::Or,
        Reduction::Xor,
    ]);
    let with =
        (number, reduction).prop_filter("floats have no bits", |(number, reduction)| number.can(*reduction));
    prop_oneof![
        Just(Kind::Barrier),
        (0..size).prop_map(Kind::Broadcast),
        (0..size).prop_map(Kind::Gather),
        (0..size).prop_map(Kind::Scatter),
        Just(Kind::Allgather),
        Just(Kind::Alltoall),
        (0..size, with.clone()).prop_map(|(root, with)| Kind::Reduce(root, with)),
        with.clone().prop_map(Kind::Allreduce),
        with.prop_map(Kind::Scan),
    ]
}

/// Sends whole steps of up to `max` bytes a record between members, in an order by `seed`.
fn run_plans(mut all: Vec<Operation>, max: usize, seed: u64) -> Vec<Vec<u8>> {
    let size = all.len();
    let mut wires: Vec<VecDeque<Vec<u8>>> = vec![VecDeque::new(); size * size];
    let (mut state, mut results) = (seed, vec![None; size]);
    let mut left: Vec<usize> = (0..size).collect();
    for _ in 0..10_000_000 {
        let Some(last) = left.len().checked_sub(1) else { break };
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = (state >> 33) as usize % (last + 1);
        let me = left[at];
        let operation = &mut all[me];
        if !operation.begin_step() {
            results[me] = Some(());
            left.swap_remove(at);
            continue;
        }
        if let Some((record, _)) = operation.next_bytes(max) {
            let (record, to) = (record.to_vec(), operation.receiver().unwrap());
            operation.advance_bytes(record.len());
            wires[me * size + to as usize].push_back(record);
        }
        if operation.taken.is_some()
            && let Some(record) = wires[operation.sender().unwrap() as usize * size + me].pop_front()
        {
            operation.take(&record).unwrap();
        }
        operation.end_step();
    }
    assert!(left.is_empty() && wires.iter().all(VecDeque::is_empty), "all is sent and taken");
    all.into_iter().map(Operation::into_result).collect()
}

pub(in crate::process) fn check(kind: &Kind, results: &[Vec<u8>], len: usize, seed: u64) {
    for (me, result) in results.iter().enumerate() {
        if let Some(expected) = kind.expected(me, results.len(), len, seed) {
            assert!(*result == expected, "{kind:?}, member {me} of {}, {len} bytes", results.len());
        }
        assert!(!kind.is_same_for_all() || *result == results[0], "{kind:?}: the same bits for all");
    }
}

#[test]
fn plans_give_what_collectives_say() {
    let cases = (1..=17_usize)
        .prop_flat_map(|size| (Just(size), kinds(size)))
        .prop_flat_map(|of| (Just(of), prop_oneof![0..40_usize, 2_000..12_000_usize], any::<u64>()));
    let mut runner = TestRunner::new(ProptestConfig { cases: 600, ..ProptestConfig::default() });
    let run = |((size, kind), words, seed): ((usize, Kind), usize, u64)| {
        let len = words * 8;
        let ranks: Arc<[u32]> = (0..size as u32).collect();
        let operation = |me| {
            let collective = kind.collective(me, size, len, seed);
            let place = Place { me, size, is_one_host: seed % 2 == 0 };
            prepare(Arc::clone(&ranks), place, collective, 0).unwrap()
        };
        check(&kind, &run_plans((0..size).map(operation).collect(), 7_936, seed), len, seed);
        Ok(())
    };
    runner.run(&cases, run).unwrap();
}

type Results = Rc<RefCell<Vec<Option<Vec<u8>>>>>;

#[test]
fn several_collectives_of_several_teams_go_on_at_once() {
    for (device, size) in [("shm", 5), ("udp-lo", 3), ("tcp-lo", 4), ("any", 2)] {
        let mut runner = TestRunner::new(ProptestConfig { cases: 6, ..ProptestConfig::default() });
        let many = prop::collection::vec((kinds(size), 0..6_000_usize, any::<u64>(), any::<bool>()), 1..12);
        runner
            .run(&many, |many| {
                let mut all = runtimes(device, size as u32);
                let started: Vec<(Kind, usize, u64, Results)> = many
                    .into_iter()
                    .map(|(kind, words, seed, is_node)| {
                        let results: Results = Rc::new(RefCell::new(vec![None; size]));
                        for (me, runtime) in all.iter_mut().enumerate() {
                            // All ranks are on one host: its team is as large, and has its own numbers.
                            let team = if is_node { Team::NODE } else { Team::WORLD };
                            let (place, collective) =
                                (Rc::clone(&results), kind.collective(me, size, words * 8, seed));
                            let done = move |_: &mut crate::Runtime, result: Result<Vec<u8>>| {
                                place.borrow_mut()[me] = Some(result.unwrap());
                            };
                            runtime.collect(team, collective, done).unwrap();
                        }
                        (kind, words * 8, seed, results)
                    })
                    .collect();
                turn(&mut all, |_| {
                    started.iter().all(|(.., results)| results.borrow().iter().all(Option::is_some))
                });
                for (kind, len, seed, results) in &started {
                    let results: Vec<Vec<u8>> =
                        results.borrow_mut().iter_mut().map(|one| one.take().unwrap()).collect();
                    check(kind, &results, *len, *seed);
                }
                Ok(())
            })
            .unwrap();
    }
}

/// One member starts as many as may be, before the others have started any: what lies with these is bounded, and all come to their end.
#[test]
fn a_member_that_runs_ahead_is_held_back() {
    let mut all = runtimes("shm", 2);
    let ended = Rc::new(RefCell::new([0, 0]));
    let start = |runtime: &mut crate::Runtime, me: usize| {
        let place = Rc::clone(&ended);
        let collective = Kind::Broadcast(0).collective(me, 2, 4_000, 7);
        runtime.collect(Team::WORLD, collective, move |_, result| {
            assert_eq!(result.unwrap(), bytes(0, 4_000, 7));
            place.borrow_mut()[me] += 1;
        })
    };
    let mut ahead = 0;
    while start(&mut all[0], 0).is_ok() {
        ahead += 1;
        all[0].poll();
        assert!(ahead < 2_000, "it is held back");
    }
    assert!(ahead >= COLLECTIVES_MAX);
    for _ in 0..ahead {
        while let Err(AmError::WouldBlock) = start(&mut all[1], 1) {
            poll_all(&mut all);
        }
    }
    turn(&mut all, |_| *ended.borrow() == [ahead, ahead]);
}

#[test]
fn what_can_not_be_is_refused_and_differences_are_found() {
    let mut all = runtimes("shm", 2);
    let nothing = |_: &mut crate::Runtime, _: Result<Vec<u8>>| panic!("it was not started");
    let data = vec![0; 12];
    let parts = vec![(0..4, 0..4)];
    for collective in [
        Collective::Broadcast { root: 2, data: data.clone() },
        Collective::Reduce { root: 2, data: data.clone(), with: SUM },
        Collective::Allreduce { data: data.clone(), with: SUM },
        Collective::Scan { data: data.clone(), with: (Number::F32, Reduction::And) },
        Collective::Scatter { root: 0, data: data.clone(), len_bytes: 5 },
        Collective::Gather { root: 9, data: data.clone() },
        Collective::Alltoall { parts, data: data.clone(), result: data.clone() },
    ] {
        assert!(all[0].collect(Team::WORLD, collective.clone(), nothing).is_err(), "{collective:?}");
    }
    let ended = Rc::new(RefCell::new(Vec::new()));
    for (me, runtime) in all.iter_mut().enumerate() {
        let (ended, data) = (Rc::clone(&ended), vec![0; 8 + 8 * me]);
        let done =
            move |_: &mut crate::Runtime, result: Result<Vec<u8>>| ended.borrow_mut().push(result.is_ok());
        runtime.collect(Team::WORLD, Collective::Allreduce { data, with: SUM }, done).unwrap();
    }
    for _ in 0..2_000 {
        poll_all(&mut all);
    }
    assert!(ended.borrow().contains(&false), "one of the two finds that the lengths differ");
}

/// Every member of a collective learns that it has lost one, also those that exchange nothing with the lost one.
#[test]
fn a_lost_member_ends_what_goes_on() {
    for device in ["shm", "tcp-lo"] {
        let mut all = runtimes(device, 5);
        let ended = Rc::new(RefCell::new(Vec::new()));
        for round in 0..2 {
            // First with all of them, so that there are connections; then the last one is gone.
            if round == 1 {
                drop(all.pop());
            }
            for runtime in &mut all {
                let place = Rc::clone(&ended);
                let done =
                    move |_: &mut crate::Runtime, result: Result<Vec<u8>>| place.borrow_mut().push(result);
                let data = vec![1; 8];
                let started = runtime.collect(Team::WORLD, Collective::Scan { data, with: SUM }, done);
                if let Err(error) = started {
                    ended.borrow_mut().push(Err(error));
                }
            }
            turn(&mut all, |all| ended.borrow().len() == all.len());
            let is_as_it_should = |result: &Result<Vec<u8>>| match result {
                Ok(_) => round == 0,
                Err(error) => round == 1 && matches!(error, AmError::Gone { rank: 4, .. }),
            };
            let ended: Vec<_> = ended.take();
            // The scan of those before the lost one does not need it.
            assert!(
                ended.iter().all(|result| is_as_it_should(result) || result.is_ok()),
                "{device}: {ended:?}"
            );
            assert!(round == 0 || ended.iter().any(Result::is_err), "{device}");
        }
    }
}

#[test]
fn a_rank_that_sends_more_than_it_may_is_cut_off() {
    let mut all = runtimes("shm", 2);
    let gone = Rc::new(RefCell::new(false));
    let place = Rc::clone(&gone);
    all[0].on_gone(move |rank, _| *place.borrow_mut() = rank == 1);
    for number in 0..100_000 {
        let links = &mut all[1].process().links;
        if links.collective_bytes_max(0).is_some() {
            links.link(0).collective_sent = 0;
            links.say_collected_data(0, &Collected::encode_data_head(0, number, false), &[1; 8]);
        }
        poll_all(&mut all);
        if *gone.borrow() {
            let kept = all[0].process().collectives.kept.values().sum::<u32>();
            assert!(number > 256 && kept == 0, "{number}, {kept}");
            return;
        }
    }
    panic!("it is never cut off");
}
