//! Random operations of all ranks on containers among real processes, beside plain models.
//!
//! All ranks draw the same plan from a seed, in rounds between barriers. In a round, each container, or each key of one, is changed by one rank, which is
//! another one in each round, while the others look at it: they find what the model has behind one of the operations, and nothing older than what they found
//! before. Of a part of a workspace that another rank writes, each byte is what it was behind one of the operations. The keys of all ranks share a few buckets, and there are some counters that all ranks raise.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod roles;

use cci_acp::{Deque, GlobalAddress, GlobalMemory, List, Map, MultiSet, Set, Vector, Workspace, allocate};
use roles::draw::Draw;
use roles::{ROLE, close, launch, role};
use std::env;

const HEAP_BYTES: usize = 1 << 20;
const ROUNDS: usize = 5;
/// Vectors, deques and lists; keys of the map, of the set and of the multiset.
const SEQUENCES: usize = 2;
const KEYS: usize = 6;
/// Counters that all ranks raise.
const COUNTERS: usize = 3;
/// Buckets on each rank.
const BUCKETS: u64 = 1;
/// Longer vectors and deques are set anew, and longer lists are emptied.
const LEN_MAX: usize = 700;
const ELEMENTS_MAX: usize = 12;
/// Of the workspace: parts, each of which is an object, and chunks, which begin and end within parts.
const PARTS: usize = 4;
const PART_BYTES: usize = 37;
const CHUNK_BYTES: u64 = 25;

/// What one rank changes in a round.
#[derive(Copy, Clone, Debug)]
enum Object {
    Vector(usize),
    Deque(usize),
    List(usize),
    InMap(usize),
    InSet(usize),
    InMultiSet(usize),
    InWorkspace(usize),
}

/// What an object holds: the bytes of a vector, deque or part of the workspace, the elements of a list, the value of a key if it is there, or how often it is.
type State = Vec<Vec<u8>>;

#[derive(Clone, Debug)]
struct Step {
    what: usize,
    /// Where in the object, or how much.
    at: usize,
    bytes: Vec<u8>,
}

/// What becomes of an object in a round.
struct Turn {
    object: Object,
    by: usize,
    steps: Vec<Step>,
    /// What it holds before all steps, and behind each.
    states: Vec<State>,
}

struct Containers {
    vectors: Vec<Vector>,
    deques: Vec<Deque>,
    lists: Vec<List>,
    map: Map,
    set: Set,
    counts: MultiSet,
    workspace: Workspace,
}

fn key(number: usize) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn counter(number: usize) -> Vec<u8> {
    format!("counter {number}").into_bytes()
}

fn count(state: &State) -> u64 {
    state.first().map_or(0, |bytes| u64::from_ne_bytes(bytes[..].try_into().unwrap()))
}

fn counted(count: u64) -> State {
    if count == 0 { vec![] } else { vec![count.to_ne_bytes().to_vec()] }
}

impl Object {
    fn all() -> Vec<Object> {
        let sequences =
            (0..SEQUENCES).flat_map(|at| [Object::Vector(at), Object::Deque(at), Object::List(at)]);
        let keys = (0..KEYS).flat_map(|at| [Object::InMap(at), Object::InSet(at), Object::InMultiSet(at)]);
        sequences.chain(keys).chain((0..PARTS).map(Object::InWorkspace)).collect()
    }

    fn at_first(self) -> State {
        match self {
            Object::Vector(_) | Object::Deque(_) => vec![vec![]],
            Object::InWorkspace(_) => vec![vec![0; PART_BYTES]],
            _ => vec![],
        }
    }

    fn draw(self, draw: &mut Draw, state: &State) -> Step {
        let (kinds, is_full) = match self {
            Object::Vector(_) => (7, state[0].len() > LEN_MAX),
            Object::Deque(_) => (8, state[0].len() > LEN_MAX),
            Object::List(_) => (8, state.len() > ELEMENTS_MAX),
            Object::InMap(_) => (4, state.iter().any(|value| value.len() > LEN_MAX)),
            Object::InSet(_) => (2, false),
            Object::InMultiSet(_) => (4, false),
            Object::InWorkspace(_) => (1, false),
        };
        let what = if is_full { kinds - 1 } else { draw.below(kinds) };
        let (len, first) = (draw.below(90), draw.below(256));
        Step { what, at: draw.below(1_000), bytes: (0..len).map(|at| (first + at * 3) as u8).collect() }
    }

    /// What it holds behind a step.
    fn follow(self, before: &State, Step { what, at, bytes }: &Step) -> State {
        let mut state = before.clone();
        match self {
            Object::Vector(_) | Object::Deque(_) => {
                let old = &mut state[0];
                let at = at % (old.len() + 1);
                let (len, left) = (bytes.len().min(old.len() - at), old.len().saturating_sub(bytes.len()));
                match (self, what) {
                    (_, 0) => old.extend(bytes),
                    (_, 1) => drop(old.splice(at..at, bytes.iter().copied())),
                    (_, 2) => drop(old.drain(at..at + len)),
                    (_, 3) => old.truncate(left),
                    (_, 4) => old[at..at + len].copy_from_slice(&bytes[..len]),
                    (Object::Vector(_), 5) => old.resize(at + bytes.len(), 0),
                    (Object::Deque(_), 5) => drop(old.splice(0..0, bytes.iter().copied())),
                    (Object::Deque(_), 6) => drop(old.drain(..bytes.len().min(old.len()))),
                    _ => old.clone_from(bytes),
                }
            }
            Object::List(_) => match what {
                0 => state.push(bytes.clone()),
                1 => state.insert(0, bytes.clone()),
                2 => state.insert(at % (before.len() + 1), bytes.clone()),
                3 if !state.is_empty() => drop(state.remove(at % before.len())),
                4 if !state.is_empty() => drop(state.remove(0)),
                5 => drop(state.pop()),
                6 => state.reverse(),
                7 => state.clear(),
                _ => {}
            },
            Object::InMap(_) => match what {
                0 if state.is_empty() => state.push(bytes.clone()),
                1 => state = vec![bytes.clone()],
                2 => state = vec![[&before.concat()[..], bytes].concat()],
                3 => state.clear(),
                _ => {}
            },
            Object::InSet(_) => state = if *what == 0 { vec![vec![]] } else { vec![] },
            Object::InMultiSet(_) => {
                let was = count(before);
                state = counted([was + 1, was + *at as u64, was.saturating_sub(1), 0][*what]);
            }
            Object::InWorkspace(_) => {
                let end = state[0].len();
                let target = &mut state[0][at % end..];
                let len = bytes.len().min(target.len());
                target[..len].copy_from_slice(&bytes[..len]);
            }
        }
        state
    }

    fn act(self, global: &mut GlobalMemory, all: &Containers, before: &State, step: &Step) {
        let Step { what, at, bytes } = step;
        let after = self.follow(before, step);
        match self {
            Object::Vector(number) => {
                let (vector, old) = (all.vectors[number], before[0].len());
                let at = at % (old + 1);
                let len = bytes.len().min(old - at);
                match what {
                    0 => vector.push(global, bytes),
                    1 => vector.insert(global, at as u64, bytes),
                    2 => vector.remove(global, at as u64, len as u64),
                    3 => vector.pop(global, bytes.len() as u64),
                    4 => vector.write(global, at as u64, &bytes[..len]),
                    5 => vector.resize(global, (at + bytes.len()) as u64),
                    _ => vector.set(global, bytes),
                }
                .unwrap();
            }
            Object::Deque(number) => {
                let (deque, old) = (all.deques[number], &before[0]);
                let at = at % (old.len() + 1);
                let len = bytes.len().min(old.len() - at);
                match what {
                    0 => deque.push_back(global, bytes),
                    1 => deque.insert(global, at as u64, bytes),
                    2 => deque.remove(global, at as u64, len as u64),
                    3 => deque
                        .pop_back(global, bytes.len() as u64)
                        .map(|back| assert_eq!(back, old[after[0].len()..])),
                    4 => deque.write(global, at as u64, &bytes[..len]),
                    5 => deque.push_front(global, bytes),
                    6 => {
                        let front = &old[..old.len() - after[0].len()];
                        deque.pop_front(global, bytes.len() as u64).map(|found| assert_eq!(found, front))
                    }
                    _ => deque.set(global, bytes),
                }
                .unwrap();
            }
            Object::List(number) => {
                let (list, rank) = (all.lists[number], *at as u32 % global.size());
                let positions = list.positions(global).unwrap();
                match what {
                    0 => drop(list.push_back(global, bytes, rank).unwrap()),
                    1 => drop(list.push_front(global, bytes, rank).unwrap()),
                    2 => {
                        let position = positions.get(at % (before.len() + 1)).copied();
                        list.insert(global, position, bytes, rank).unwrap();
                    }
                    3 if !before.is_empty() => {
                        let at = at % before.len();
                        let behind = list.remove(global, positions[at]).unwrap();
                        assert_eq!(behind, positions.get(at + 1).copied());
                    }
                    4 => assert_eq!(list.pop_front(global).unwrap().as_ref(), before.first()),
                    5 => assert_eq!(list.pop_back(global).unwrap().as_ref(), before.last()),
                    6 => list.reverse(global).unwrap(),
                    7 => list.clear(global).unwrap(),
                    _ => {}
                }
            }
            Object::InMap(number) => {
                let (key, was) = (key(number), before.first());
                match what {
                    0 => assert_eq!(all.map.insert(global, &key, bytes).unwrap(), was.is_none()),
                    1 => assert_eq!(all.map.replace(global, &key, bytes).unwrap().as_ref(), was),
                    2 => {
                        let longer = |was: Option<&[u8]>| Some([was.unwrap_or_default(), bytes].concat());
                        all.map.update(global, &key, longer).unwrap();
                    }
                    _ => assert_eq!(all.map.remove(global, &key).unwrap().as_ref(), was),
                }
            }
            Object::InSet(number) => {
                let was = !before.is_empty();
                match what {
                    0 => assert_eq!(all.set.insert(global, &key(number)).unwrap(), !was),
                    _ => assert_eq!(all.set.remove(global, &key(number)).unwrap(), was),
                }
            }
            Object::InMultiSet(number) => {
                let (key, was, is) = (key(number), count(before), count(&after));
                match what {
                    0 => assert_eq!(all.counts.insert(global, &key).unwrap(), is),
                    1 => assert_eq!(all.counts.add(global, &key, *at as u64).unwrap(), is),
                    2 => assert_eq!(all.counts.remove(global, &key).unwrap(), was),
                    _ => assert_eq!(all.counts.remove_all(global, &key).unwrap(), was),
                }
            }
            Object::InWorkspace(number) => {
                let (begin, at) = (number * PART_BYTES, at % PART_BYTES);
                let fitting = bytes.len().min(PART_BYTES - at);
                // What is behind the end of the last part has no space.
                let len = if number == PARTS - 1 { bytes.len() } else { fitting };
                let written = all.workspace.write(global, (begin + at) as u64, &bytes[..len]);
                assert_eq!(written.unwrap(), fitting as u64);
            }
        }
    }

    fn look(self, global: &mut GlobalMemory, all: &Containers) -> State {
        match self {
            Object::Vector(number) => vec![all.vectors[number].to_vec(global).unwrap()],
            Object::Deque(number) => vec![all.deques[number].to_vec(global).unwrap()],
            Object::List(number) => all.lists[number].to_vec(global).unwrap(),
            Object::InMap(number) => all.map.get(global, &key(number)).unwrap().into_iter().collect(),
            Object::InSet(number) => {
                let is_there = all.set.contains(global, &key(number)).unwrap();
                if is_there { vec![vec![]] } else { vec![] }
            }
            Object::InMultiSet(number) => counted(all.counts.count(global, &key(number)).unwrap()),
            Object::InWorkspace(number) => {
                let mut part = vec![0; PART_BYTES];
                let read = all.workspace.read(global, (number * PART_BYTES) as u64, &mut part);
                assert_eq!(read.unwrap(), PART_BYTES as u64);
                vec![part]
            }
        }
    }

    /// Whether another rank may find this while what it holds goes from one of these states to the next ones.
    fn may_be_found(self, found: &State, states: &[State]) -> bool {
        let is_byte = |(at, byte): (usize, &u8)| states.iter().any(|state| state[0][at] == *byte);
        matches!(self, Object::InWorkspace(_)) && found[0].iter().enumerate().all(is_byte)
    }
}

impl Containers {
    /// Rank 0 makes them all, in the memory of all ranks.
    fn open(global: &mut GlobalMemory) -> Containers {
        let ranks: Vec<u32> = (0..global.size()).collect();
        let mut shared = |make: &dyn Fn(&mut GlobalMemory) -> GlobalAddress| {
            let made = if global.rank() == 0 { make(global).to_bits() } else { 0 };
            GlobalAddress::from_bits(global.broadcast(0, made).unwrap()).unwrap()
        };
        let on = |at: usize| ranks[at % ranks.len()];
        let vectors: Vec<_> = (0..SEQUENCES)
            .map(|at| shared(&|global| Vector::create(global, 0, on(at)).unwrap().handle()))
            .collect();
        let deques: Vec<_> = (0..SEQUENCES)
            .map(|at| shared(&|global| Deque::create(global, 8, on(at + 1)).unwrap().handle()))
            .collect();
        let lists: Vec<_> = (0..SEQUENCES)
            .map(|at| shared(&|global| List::create(global, on(at + 2)).unwrap().handle()))
            .collect();
        let map = shared(&|global| Map::create(global, &ranks, BUCKETS, on(3)).unwrap().handle());
        let set = shared(&|global| Set::create(global, &ranks, BUCKETS, on(4)).unwrap().handle());
        let counts = shared(&|global| MultiSet::create(global, &ranks, BUCKETS, on(5)).unwrap().handle());
        let bytes = (PARTS * PART_BYTES) as u64;
        let workspace =
            shared(&|global| Workspace::create(global, bytes, CHUNK_BYTES, on(6)).unwrap().handle());
        Containers {
            vectors: vectors.into_iter().map(Vector::open).collect(),
            deques: deques.into_iter().map(Deque::open).collect(),
            lists: lists.into_iter().map(List::open).collect(),
            map: Map::open(global, map).unwrap(),
            set: Set::open(global, set).unwrap(),
            counts: MultiSet::open(global, counts).unwrap(),
            workspace: Workspace::open(workspace),
        }
    }

    fn destroy(self, global: &mut GlobalMemory) {
        self.vectors.into_iter().for_each(|vector| vector.destroy(global).unwrap());
        self.deques.into_iter().for_each(|deque| deque.destroy(global).unwrap());
        self.lists.into_iter().for_each(|list| list.destroy(global).unwrap());
        self.map.destroy(global).unwrap();
        self.set.destroy(global).unwrap();
        self.counts.destroy(global).unwrap();
        self.workspace.destroy(global).unwrap();
    }
}

/// Does this rank's part of a round, and looks at what others change meanwhile.
fn play(global: &mut GlobalMemory, all: &Containers, turns: &[Turn], draw: &mut Draw) {
    let (rank, mut looks) = (global.rank() as usize, 2 * turns.len());
    // Of own objects: how many steps were done. Of others': which state was seen last.
    let mut at = vec![0; turns.len()];
    let mut own: Vec<usize> = (0..turns.len())
        .flat_map(|turn| vec![turn; if turns[turn].by == rank { turns[turn].steps.len() } else { 0 }])
        .collect();
    while looks + own.len() > 0 {
        if draw.below(looks + own.len()) < looks {
            looks -= 1;
            let turn = draw.below(turns.len());
            let Turn { object, by, states, .. } = &turns[turn];
            let found = object.look(global, all);
            if *by != rank && object.may_be_found(&found, &states[at[turn]..]) {
                continue;
            }
            let seen = (at[turn]..states.len()).find(|&at| states[at] == found);
            let Some(seen) = seen.filter(|&seen| *by != rank || seen == at[turn]) else {
                let expected = &states[at[turn]..];
                panic!("{object:?} of rank {by}, behind step {}: {found:?}, not of {expected:?}", at[turn]);
            };
            at[turn] = seen;
        } else if let Some(turn) = draw.take(&mut own) {
            let Turn { object, steps, states, .. } = &turns[turn];
            object.act(global, all, &states[at[turn]], &steps[at[turn]]);
            at[turn] += 1;
        }
    }
}

/// Not a test where nothing has started it: one rank of many.
#[test]
fn as_a_rank() {
    let Ok(seed) = env::var(ROLE) else { return };
    let seed: u64 = seed.parse().unwrap();
    let (_job, mut global) = roles::open(64, HEAP_BYTES);
    let (rank, size) = (global.rank() as usize, global.size() as usize);
    let all = Containers::open(&mut global);
    let (mut common, mut own) = (Draw(seed), Draw(seed << 16 | rank as u64));
    let mut states: Vec<(Object, State)> =
        Object::all().into_iter().map(|object| (object, object.at_first())).collect();
    let mut counters = [0; COUNTERS];
    for round in 0..ROUNDS {
        let turns: Vec<Turn> = states
            .iter()
            .map(|(object, state)| {
                let mut turn = Turn {
                    object: *object,
                    by: common.below(size),
                    steps: vec![],
                    states: vec![state.clone()],
                };
                for _ in 0..common.below(10) {
                    let before = &turn.states[turn.states.len() - 1];
                    let step = object.draw(&mut common, before);
                    let after = object.follow(before, &step);
                    turn.steps.push(step);
                    turn.states.push(after);
                }
                turn
            })
            .collect();
        let raised: Vec<[u64; COUNTERS]> =
            (0..size).map(|_| [(); COUNTERS].map(|()| common.below(5) as u64)).collect();
        println!("seed {seed}, round {round}");
        for number in 0..COUNTERS {
            let all_raised = counters[number] + raised.iter().map(|by| by[number]).sum::<u64>();
            let mut least = counters[number];
            for _ in 0..raised[rank][number] {
                let now = all.counts.insert(&mut global, &counter(number)).unwrap();
                assert!((least + 1..=all_raised).contains(&now), "counter {number}: {now} behind {least}");
                least = now;
            }
            counters[number] = all_raised;
        }
        play(&mut global, &all, &turns, &mut own);
        global.sync().unwrap();
        for (turn, (object, state)) in turns.into_iter().zip(&mut states) {
            *state = turn.states.into_iter().next_back().unwrap();
            assert_eq!(object.look(&mut global, &all), *state, "{object:?} behind the round");
        }
        let keys = |is_of: fn(&Object) -> bool| {
            states.iter().filter(|(object, state)| is_of(object) && !state.is_empty()).count() as u64
        };
        assert_eq!(all.map.len(&mut global).unwrap(), keys(|object| matches!(object, Object::InMap(_))));
        assert_eq!(all.set.len(&mut global).unwrap(), keys(|object| matches!(object, Object::InSet(_))));
        let some_raised = counters.iter().filter(|&&counter| counter > 0).count() as u64;
        let counted = keys(|object| matches!(object, Object::InMultiSet(_))) + some_raised;
        assert_eq!(all.counts.len(&mut global).unwrap(), counted);
        for (number, value) in counters.iter().enumerate() {
            assert_eq!(all.counts.count(&mut global, &counter(number)).unwrap(), *value);
        }
        // Nobody changes what another one still looks at.
        global.sync().unwrap();
    }
    if rank == 0 {
        all.destroy(&mut global);
    }
    global.sync().unwrap();
    // What they took is free again, and in one piece.
    allocate(&mut global, rank as u32, HEAP_BYTES as u64 * 3 / 4).unwrap();
    close(global);
}

/// With `CCI_ACP_SEEDS`, so many seeds for each device and number of ranks.
#[test]
fn containers_of_all_ranks_hold_what_the_models_say() {
    const SEEDS: [&str; 8] = ["1", "2", "3", "4", "5", "6", "7", "8"];
    let seeds = env::var("CCI_ACP_SEEDS").map_or(1, |seeds| seeds.parse::<usize>().unwrap());
    for (size, device) in (2..=8).zip(["any", "shm", "tcp-lo", "udp-lo"].into_iter().cycle()) {
        for seed in SEEDS.iter().cycle().skip(size as usize).take(seeds) {
            for (rank, ended) in launch(size, role(seed, device)).into_iter().enumerate() {
                assert!(ended.status.success(), "{device}, seed {seed}, rank {rank} of {size}: {ended:?}");
            }
        }
    }
}
