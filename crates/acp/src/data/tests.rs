//! Containers against plain models, and under several ranks at once, some of which die.

use super::simulated::{Rank, World};
use super::*;
use crate::address::GlobalAddress;
use crate::error::AcpError;
use crate::space::Space;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

const HEAP_BYTES: u64 = 1 << 16;
/// Seeds of each test with several ranks.
const SEEDS: u64 = 60;

fn alone() -> Rank {
    World::alone(1 << 20)
}

/// A world in which some ranks die, by the seed: never rank 0.
fn mortal(seed: u64, ranks: usize) -> Arc<World> {
    let dies_at = |rank: u64| {
        let draw = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(rank * 0x1405_7b7e) >> 13;
        (rank > 0 && !seed.is_multiple_of(3) && draw.is_multiple_of(2)).then_some(1 + draw / 2 % 900)
    };
    World::new(seed, ranks, HEAP_BYTES, (0..ranks as u64).map(dies_at).collect())
}

/// All memory of all heaps can be allocated in one piece: nothing is lost, and all is joined.
fn is_whole(space: &mut Rank) {
    for rank in 0..space.size() {
        let most = (0..space.heap_bytes()).rev().step_by(16).find(|&len| {
            let block = allocate(space, rank, len);
            block.is_ok_and(|block| free(space, block).is_ok())
        });
        assert!(most.is_some_and(|most| most + 2048 > space.heap_bytes()), "{most:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn allocated_memory_is_nobody_elses(steps in prop::collection::vec((any::<bool>(), 0_u64..3_000, any::<u8>()), 1..120)) {
        let mut space = World::alone(HEAP_BYTES);
        let mut held: Vec<(GlobalAddress, Vec<u8>)> = vec![];
        for (allocates, number, fill) in steps {
            if allocates {
                if let Ok(block) = allocate(&mut space, 0, number) {
                    prop_assert_eq!(block.to_bits() % 16, 0);
                    let bytes = vec![fill; number as usize];
                    space.write(block, &bytes).unwrap();
                    held.push((block, bytes));
                }
            } else if !held.is_empty() {
                let (block, bytes) = held.swap_remove(number as usize % held.len());
                let mut read = vec![0; bytes.len()];
                space.read(block, &mut read).unwrap();
                prop_assert_eq!(read, bytes);
                free(&mut space, block).unwrap();
                prop_assert!(matches!(free(&mut space, block), Err(AcpError::Argument(_))), "twice");
            }
        }
        for (block, bytes) in held {
            let mut read = vec![0; bytes.len()];
            space.read(block, &mut read).unwrap();
            prop_assert_eq!(read, bytes);
            free(&mut space, block).unwrap();
        }
        is_whole(&mut space);
    }

    #[test]
    fn a_map_is_a_map(steps in prop::collection::vec((0_u8..7, 0_u8..12, 0_usize..40), 1..150), slots in 1_u64..5) {
        let mut space = alone();
        let map = Map::create(&mut space, &[0, 0], slots, 0).unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for (step, key, len) in steps {
            // Some keys are longer than what is read of an element at once.
            let (key, value) = (vec![key; usize::from(key) * 20], vec![key ^ 0x55; len]);
            match step {
                0 | 1 => {
                    let is_new = !model.contains_key(&key);
                    prop_assert_eq!(map.insert(&mut space, &key, &value).unwrap(), is_new);
                    model.entry(key).or_insert(value);
                }
                2 => prop_assert_eq!(map.remove(&mut space, &key).unwrap(), model.remove(&key)),
                3 => prop_assert_eq!(map.replace(&mut space, &key, &value).unwrap(), model.insert(key, value)),
                4 => {
                    let was = map.update(&mut space, &key, |was| was.map(|was| [was, &value].concat())).unwrap();
                    prop_assert_eq!(&was, &model.get(&key).cloned());
                    if let Some(was) = was {
                        model.insert(key, [was, value].concat());
                    }
                }
                5 => prop_assert_eq!(map.get(&mut space, &key).unwrap(), model.get(&key).cloned()),
                _ => prop_assert_eq!(map.len(&mut space).unwrap(), model.len() as u64),
            }
        }
        let again = Map::open(&mut space, map.handle()).unwrap();
        let mut all = BTreeMap::new();
        let mut entries = again.entries();
        while let Some((key, value)) = entries.next(&mut space).unwrap() {
            prop_assert!(all.insert(key, value).is_none(), "a key comes once");
        }
        prop_assert_eq!(all, model);
        let handle = map.handle();
        map.destroy(&mut space).unwrap();
        prop_assert!(matches!(Map::open(&mut space, handle), Err(AcpError::Corrupt(_))));
        is_whole(&mut space);
    }

    #[test]
    fn a_vector_is_a_vector(steps in prop::collection::vec((0_u8..8, 0_usize..300, 0_usize..90), 1..80), len in 0_u64..100) {
        let mut space = alone();
        let vector = Vector::create(&mut space, len, 0).unwrap();
        let mut model = vec![0; len as usize];
        for (number, (step, at, len)) in steps.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|byte| (byte + number) as u8).collect();
            let at = at.min(model.len());
            match step {
                0 | 1 => {
                    vector.push(&mut space, &bytes).unwrap();
                    model.extend(bytes);
                }
                2 => {
                    vector.insert(&mut space, at as u64, &bytes).unwrap();
                    model.splice(at..at, bytes);
                }
                3 => {
                    vector.remove(&mut space, at as u64, len as u64).unwrap();
                    model.drain(at..(at + len).min(model.len()));
                }
                4 => {
                    vector.pop(&mut space, len as u64).unwrap();
                    model.truncate(model.len().saturating_sub(len));
                }
                5 => {
                    vector.reserve(&mut space, (len * 10) as u64).unwrap();
                    prop_assert!(vector.capacity(&mut space).unwrap() >= (len * 10) as u64);
                }
                6 => {
                    vector.resize(&mut space, at as u64 + len as u64).unwrap();
                    model.resize(at + len, 0);
                }
                _ => {
                    let fits = at + len <= model.len();
                    prop_assert_eq!(vector.write(&mut space, at as u64, &bytes).is_ok(), fits);
                    if fits {
                        model[at..at + len].copy_from_slice(&bytes);
                    }
                }
            }
            let mut all = vec![0; model.len()];
            vector.read(&mut space, 0, &mut all).unwrap();
            prop_assert_eq!((&all, vector.len(&mut space).unwrap()), (&model, model.len() as u64));
            prop_assert!(vector.read(&mut space, 1, &mut all).is_err() || all.is_empty());
        }
        vector.destroy(&mut space).unwrap();
        is_whole(&mut space);
    }

    #[test]
    fn a_deque_is_a_deque(steps in prop::collection::vec((0_u8..8, 0_usize..200, 0_usize..60), 1..80)) {
        let mut space = alone();
        let deque = Deque::create(&mut space, 0, 0).unwrap();
        let mut model: VecDeque<u8> = VecDeque::new();
        for (number, (step, at, len)) in steps.into_iter().enumerate() {
            let bytes: Vec<u8> = (0..len).map(|byte| (byte * 3 + number) as u8).collect();
            let at = at.min(model.len());
            match step {
                0 => {
                    deque.push_back(&mut space, &bytes).unwrap();
                    model.extend(bytes);
                }
                1 => {
                    deque.push_front(&mut space, &bytes).unwrap();
                    bytes.iter().rev().for_each(|&byte| model.push_front(byte));
                }
                2 => {
                    let popped: Vec<u8> = model.drain(..len.min(model.len())).collect();
                    prop_assert_eq!(deque.pop_front(&mut space, len as u64).unwrap(), popped);
                }
                3 => {
                    let popped: Vec<u8> = model.split_off(model.len() - len.min(model.len())).into();
                    prop_assert_eq!(deque.pop_back(&mut space, len as u64).unwrap(), popped);
                }
                4 => {
                    deque.insert(&mut space, at as u64, &bytes).unwrap();
                    let tail = model.split_off(at);
                    model.extend(bytes.into_iter().chain(tail));
                }
                5 => {
                    deque.remove(&mut space, at as u64, len as u64).unwrap();
                    model.drain(at..(at + len).min(model.len()));
                }
                6 => deque.reserve(&mut space, (at * 2) as u64).unwrap(),
                _ => {
                    let fits = at + len <= model.len();
                    prop_assert_eq!(deque.write(&mut space, at as u64, &bytes).is_ok(), fits);
                    if fits {
                        bytes.into_iter().enumerate().for_each(|(offset, byte)| model[at + offset] = byte);
                    }
                }
            }
            let mut all = vec![0; model.len()];
            deque.read(&mut space, 0, &mut all).unwrap();
            prop_assert_eq!((VecDeque::from(all), deque.len(&mut space).unwrap()), (model.clone(), model.len() as u64));
            let pieces = deque.pieces(&mut space, 0, model.len() as u64).unwrap();
            prop_assert!(pieces.len() <= 2 && pieces.iter().map(|(_, len)| len).sum::<u64>() == model.len() as u64);
        }
        deque.destroy(&mut space).unwrap();
        is_whole(&mut space);
    }

    #[test]
    fn a_list_is_a_list(steps in prop::collection::vec((0_u8..10, 0_usize..30, 0_u8..6), 1..80)) {
        let mut space = alone();
        let list = List::create(&mut space, 0).unwrap();
        let mut model: Vec<Vec<u8>> = vec![];
        let position = |space: &mut Rank, at: usize| {
            let mut position = list.first(space).unwrap();
            for _ in 0..at {
                position = list.next(space, position.unwrap()).unwrap();
            }
            position
        };
        for (step, at, number) in steps {
            let bytes = vec![number; usize::from(number) * 7];
            let at = at.min(model.len());
            match step {
                0 => {
                    let made = list.push_back(&mut space, &bytes, 0).unwrap();
                    prop_assert_eq!((list.get(&mut space, made).unwrap(), list.last(&mut space).unwrap()), (bytes.clone(), Some(made)));
                    model.push(bytes);
                }
                1 => {
                    list.push_front(&mut space, &bytes, 0).unwrap();
                    model.insert(0, bytes);
                }
                2 => {
                    let before = position(&mut space, at);
                    list.insert(&mut space, before, &bytes, 0).unwrap();
                    model.insert(at, bytes);
                }
                3 if at < model.len() => {
                    let removed = position(&mut space, at).unwrap();
                    let next = list.remove(&mut space, removed).unwrap();
                    model.remove(at);
                    prop_assert_eq!(next, position(&mut space, at));
                }
                4 => prop_assert_eq!(list.pop_front(&mut space).unwrap(), (!model.is_empty()).then(|| model.remove(0))),
                5 => prop_assert_eq!(list.pop_back(&mut space).unwrap(), model.pop()),
                6 => {
                    list.reverse(&mut space).unwrap();
                    model.reverse();
                }
                7 => {
                    list.sort_by(&mut space, |one, other| one.len().cmp(&other.len())).unwrap();
                    model.sort_by_key(Vec::len);
                }
                8 => {
                    list.dedup(&mut space).unwrap();
                    model.dedup();
                }
                _ => {
                    list.remove_all(&mut space, &bytes).unwrap();
                    model.retain(|element| *element != bytes);
                }
            }
            prop_assert_eq!((list.to_vec(&mut space).unwrap(), list.len(&mut space).unwrap()), (model.clone(), model.len() as u64));
            let mut back = vec![];
            let mut last = list.last(&mut space).unwrap();
            while let Some(at) = last {
                back.push(list.get(&mut space, at).unwrap());
                last = list.previous(&mut space, at).unwrap();
            }
            back.reverse();
            prop_assert_eq!(&back, &model);
        }
        list.destroy(&mut space).unwrap();
        is_whole(&mut space);
    }
}

/// Others have all but a 32nd of what a rank takes ahead, and that rank all of it.
#[test]
fn memory_that_is_taken_ahead_is_little_and_returned() {
    let world = World::new(1, 2, HEAP_BYTES, vec![None; 2]);
    let mut ranks = [world.rank(0), world.rank(1)];
    let used = ranks.each_mut().map(|space| allocate(space, 0, 8).unwrap());
    let most = ranks.each_mut().map(|space| {
        let lens = (0..HEAP_BYTES).rev().step_by(16);
        let most = lens.map(|len| (len, allocate(space, 0, len))).find(|(_, block)| block.is_ok());
        let (len, block) = most.unwrap();
        free(space, block.unwrap()).unwrap();
        len
    });
    let ahead = HEAP_BYTES / 32 / 2;
    assert!(most.iter().all(|most| most + 2 * ahead + 2048 > HEAP_BYTES), "{most:?}");
    for (space, block) in ranks.iter_mut().zip(used) {
        free(space, block).unwrap();
        heap::return_reserves(space, None).unwrap();
    }
    is_whole(&mut ranks[0]);
}

#[test]
fn what_is_no_container_is_refused() {
    let mut space = alone();
    let block = allocate(&mut space, 0, 256).unwrap();
    space.write(block, &[0x77; 256]).unwrap();
    assert!(matches!(Map::open(&mut space, block), Err(AcpError::Corrupt(_))));
    assert!(matches!(Vector::open(block).capacity(&mut space), Err(AcpError::Corrupt(_))));
    assert!(matches!(free(&mut space, block.checked_add(16).unwrap()), Err(AcpError::Argument(_))));
    let heap = space.heap(0).unwrap();
    assert!(matches!(free(&mut space, heap), Err(AcpError::Argument(_))));
    assert!(matches!(allocate(&mut space, 1, 8), Err(AcpError::Rank { rank: 1, size: 1 })));
    assert!(matches!(allocate(&mut space, 0, u64::MAX), Err(AcpError::Full(_))));
    assert!(matches!(Map::create(&mut space, &[], 4, 0), Err(AcpError::Argument(_))));
    assert!(matches!(Map::create(&mut space, &[0], 0, 0), Err(AcpError::Argument(_))));
    assert!(matches!(Map::create(&mut space, &[0], 1 << 20, 0), Err(AcpError::Full(_))));
    let (one, other) = (List::create(&mut space, 0).unwrap(), List::create(&mut space, 0).unwrap());
    let element = one.push_back(&mut space, b"one", 0).unwrap();
    assert!(matches!(other.remove(&mut space, element), Err(AcpError::Argument(_))), "of another list");
    assert_eq!(one.remove(&mut space, element).unwrap(), None);
    assert!(matches!(one.get(&mut space, element), Err(AcpError::Argument(_))), "removed");
}

#[test]
fn what_was_destroyed_is_refused() {
    let space = &mut alone();
    let (vector, deque) = (Vector::create(space, 3, 0).unwrap(), Deque::create(space, 3, 0).unwrap());
    let (list, map) = (List::create(space, 0).unwrap(), Map::create(space, &[0], 4, 0).unwrap());
    list.push_back(space, b"one", 0).unwrap();
    let handle = map.handle();
    vector.destroy(space).unwrap();
    deque.destroy(space).unwrap();
    list.destroy(space).unwrap();
    map.destroy(space).unwrap();
    let refusals = [
        vector.len(space).map(drop),
        vector.push(space, b"more"),
        vector.destroy(space),
        deque.len(space).map(drop),
        deque.push_front(space, b"more"),
        deque.destroy(space),
        list.len(space).map(drop),
        list.push_back(space, b"more", 0).map(drop),
        list.destroy(space),
        Map::open(space, handle).map(drop),
    ];
    for (number, refusal) in refusals.into_iter().enumerate() {
        assert!(matches!(refusal, Err(AcpError::Corrupt(_))), "{number}: {refusal:?}");
    }
    is_whole(space);
}

#[test]
fn lengths_that_no_heap_has_are_refused() {
    let space = &mut alone();
    let (vector, deque) = (Vector::create(space, 3, 0).unwrap(), Deque::create(space, 3, 0).unwrap());
    for len in [1 << 30, i64::MAX as u64, (i64::MAX as u64) + 1, u64::MAX - 7, u64::MAX] {
        let refusals = [
            allocate(space, 0, len).map(drop),
            Vector::create(space, len, 0).map(drop),
            Deque::create(space, len, 0).map(drop),
            Workspace::create(space, len, 1, 0).map(drop),
            Workspace::create(space, len, len, 0).map(drop),
            vector.reserve(space, len),
            vector.resize(space, len),
            deque.reserve(space, len),
        ];
        for refusal in refusals {
            assert!(matches!(refusal, Err(AcpError::Full(_))), "{len}: {refusal:?}");
        }
    }
    assert_eq!((vector.len(space).unwrap(), deque.len(space).unwrap()), (3, 0));
    vector.destroy(space).unwrap();
    deque.destroy(space).unwrap();
    is_whole(space);
}

#[test]
fn ranks_allocate_and_free_at_once() {
    for seed in 0..SEEDS {
        let world = mortal(seed, 3);
        let died = world.run(|space| {
            let mut held = VecDeque::new();
            for round in 0..12_u64 {
                let (rank, len) = ((round as u32 + space.rank()) % 3, 1 + (seed * 7 + round * 37) % 500);
                let block = allocate(space, rank, len)?;
                let bytes = vec![space.rank() as u8 ^ round as u8; len as usize];
                space.write(block, &bytes)?;
                held.push_back((block, bytes));
                if round % 3 != 0 {
                    let (block, bytes) = held.pop_front().unwrap();
                    let mut read = vec![0; bytes.len()];
                    space.read(block, &mut read)?;
                    assert_eq!(read, bytes, "seed {seed}: memory is another rank's too");
                    free(space, block)?;
                }
            }
            held.into_iter().try_for_each(|(block, _)| free(space, block))
        });
        if died.iter().all(Option::is_some) {
            is_whole(&mut world.rank(0));
        }
    }
}

/// How often ranks have entered a key, and removed it: what has ended, and what one that died may have done last.
#[derive(Default, Clone, Copy)]
struct Count {
    in_least: i64,
    in_most: i64,
}

#[test]
fn what_ranks_enter_and_remove_at_once_adds_up() {
    for seed in 0..SEEDS {
        let world = mortal(seed, 3);
        let ranks = [0, 1, 2];
        let map = Map::create(&mut world.rank(0), &ranks, 2, 0).unwrap();
        let keys = 4;
        let tally = std::sync::Mutex::new(vec![Count::default(); keys]);
        let died = world.run(|space| {
            let mut chance = seed * 31 + u64::from(space.rank()) + 1;
            for _ in 0..12 {
                chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
                let number = (chance >> 33) as usize % keys;
                let key = vec![number as u8; 9];
                let counted = |least: i64, most: i64| {
                    let mut tally = tally.lock().unwrap();
                    tally[number].in_least += least;
                    tally[number].in_most += most;
                };
                match chance >> 40 & 3 {
                    0 | 1 => {
                        // Until it has ended it may have been done.
                        counted(0, 1);
                        let entered = map.insert(space, &key, &[number as u8; 21])?;
                        counted(i64::from(entered), i64::from(entered) - 1);
                    }
                    2 => {
                        counted(-1, 0);
                        let removed = map.remove(space, &key)?.is_some();
                        counted(1 - i64::from(removed), -i64::from(removed));
                    }
                    _ => {
                        let value = map.get(space, &key)?;
                        assert!(value.is_none_or(|value| value == [number as u8; 21]), "seed {seed}");
                    }
                }
            }
            Ok(())
        });
        let mut space = world.rank(0);
        let mut found = 0;
        for (number, count) in tally.into_inner().unwrap().into_iter().enumerate() {
            let is_there = map.get(&mut space, &[number as u8; 9]).unwrap().is_some();
            let range = count.in_least..=count.in_most;
            assert!(range.contains(&i64::from(is_there)), "seed {seed}: key {number} {is_there} {range:?}");
            found += u64::from(is_there);
        }
        // Whoever changes a bucket mends it after a death.
        map.insert(&mut space, &[0; 9], b"").unwrap();
        for number in 0..keys {
            map.replace(&mut space, &[number as u8; 9], b"x").unwrap();
        }
        if died.iter().all(Option::is_some) {
            assert!(found <= keys as u64);
            map.destroy(&mut space).unwrap();
            is_whole(&mut space);
        } else {
            assert_eq!(map.len(&mut space).unwrap(), keys as u64, "seed {seed}");
        }
    }
}

#[test]
fn counts_of_all_ranks_add_up() {
    for seed in 0..SEEDS {
        let world = mortal(seed, 3);
        let set = MultiSet::create(&mut world.rank(0), &[1, 2, 0], 1, 2).unwrap();
        let ended = world.run(|space| {
            for round in 0..6 {
                set.insert(space, &[round % 2])?;
            }
            Ok(())
        });
        let mut space = world.rank(0);
        let least = 3 * ended.iter().flatten().count() as u64;
        for key in [[0], [1]] {
            let count = set.count(&mut space, &key).unwrap();
            assert!((least..=9).contains(&count), "seed {seed}: {count}");
        }
    }
}

#[test]
fn each_element_of_a_deque_comes_out_once() {
    for seed in 0..SEEDS {
        let world = mortal(seed, 3);
        let deque = Deque::create(&mut world.rank(0), 0, 0).unwrap();
        let popped = std::sync::Mutex::new(Vec::new());
        let ended = world.run(|space| {
            for round in 0..8_u64 {
                let element = (u64::from(space.rank()) << 8 | round).to_ne_bytes();
                if round % 2 == 0 {
                    deque.push_back(space, &element)?
                } else {
                    deque.push_front(space, &element)?
                }
                if round % 3 == 2 {
                    let bytes = deque.pop_front(space, 8)?;
                    popped.lock().unwrap().push(bytes);
                }
            }
            Ok(())
        });
        let mut space = world.rank(0);
        let mut all = popped.into_inner().unwrap();
        while deque.len(&mut space).unwrap() > 0 {
            all.push(deque.pop_back(&mut space, 8).unwrap());
        }
        let unique: BTreeSet<&Vec<u8>> = all.iter().collect();
        assert_eq!(unique.len(), all.len(), "seed {seed}");
        if ended.iter().all(Option::is_some) {
            assert_eq!(all.len(), 24, "seed {seed}");
        }
    }
}

#[test]
fn a_list_is_whole_at_whichever_step_a_rank_dies() {
    for step in (1..700).step_by(3) {
        let world = World::new(step, 2, HEAP_BYTES, vec![None, Some(step)]);
        let list = List::create(&mut world.rank(0), 0).unwrap();
        let ended = world.run(|space| {
            for round in 0..3_u8 {
                list.push_back(space, &[space.rank() as u8, round], space.rank())?;
            }
            list.reverse(space)?;
            list.push_front(space, &[space.rank() as u8, 3], 1 - space.rank())?;
            list.sort_by(space, |one, other| one.cmp(other))?;
            list.pop_front(space)
        });
        let mut space = world.rank(0);
        let all = list.to_vec(&mut space).unwrap();
        let unique: BTreeSet<&Vec<u8>> = all.iter().collect();
        assert_eq!(unique.len(), all.len(), "step {step}: {all:?}");
        let mut back = vec![];
        let mut last = list.last(&mut space).unwrap();
        while let Some(at) = last {
            back.push(list.get(&mut space, at).unwrap());
            last = list.previous(&mut space, at).unwrap();
        }
        back.reverse();
        assert_eq!((back, list.len(&mut space).unwrap()), (all.clone(), all.len() as u64), "step {step}");
        if ended.iter().all(Option::is_some) {
            assert_eq!(all.len(), 6, "step {step}: two of eight were taken");
        } else {
            assert!((3..=8).contains(&all.len()), "step {step}: {all:?}");
        }
    }
}
