//! Ranks with global memory: copies, atomics, channels and the map, beside what the core does.

use crate::{ADD_ONE, act, rounds, until};
use cci::{Access, Attribute, Endpoint, Event, Foreign, Memory, RegionAddress, RmaFlags, Status};
use cci_acp::{GlobalMemory, Handle, Map, Order, Receiver, Sender, Slots};
use cci_job::Ranks;
use cci_testkit::pair::Pair;
use std::hint::black_box;

/// Starter memory and heap of each rank, bytes.
const STARTER_BYTES: usize = 4096;
const HEAP_BYTES: usize = 16 << 20;
/// Of the map: buckets, and the keys that are looked for.
const BUCKETS: u64 = 16_384;
const KEYS: u64 = 1_000;

/// What additions in global memory are compared with: the core's own, with its completion.
pub fn fetches(mut pair: Pair, count: usize) {
    let connection = pair.connect(Attribute::ReliableOrdered)[0];
    let [here, there] = &mut pair.ends;
    let memory = |end: &mut Endpoint, access| {
        let memory = end.allocate(4096).expect("memory");
        (end.register(&memory, access).expect("room in the table"), memory)
    };
    let (result, _own) = memory(here, Access::LOCAL);
    let (target, _theirs) = memory(there, Access::ALL);
    let (result, target) = (RegionAddress::new(result, 0), RegionAddress::new(target, 0));
    let has_ended = |end: &mut Endpoint| match end.next_event() {
        Some(Event::Send { status, .. }) => status == Status::Success,
        Some(other) => panic!("{other:?}"),
        None => false,
    };
    rounds(count, |is_counted| {
        let mut ended = false;
        act(is_counted, || {
            here.atomic(connection, ADD_ONE, target, Some(result), 0, RmaFlags::NONE).expect("there is room");
            ended = has_ended(here);
        });
        until(|| {
            there.progress();
            ended = ended || has_ended(here);
            ended
        })
    });
}

/// Two ranks with global memory.
fn global_memory(Pair { ends, .. }: Pair) -> [GlobalMemory; 2] {
    let mut ranks = Ranks::of_one_process(ends.into()).expect("two endpoints").into_iter();
    [(); 2].map(|()| {
        GlobalMemory::over(ranks.next().expect("two ranks"), STARTER_BYTES, HEAP_BYTES)
            .expect("there is memory")
    })
}

/// Lets both make progress until an operation of the first one has ended.
fn complete([here, there]: &mut [GlobalMemory; 2], handle: Handle) -> usize {
    until(|| {
        there.progress();
        here.has_ended(handle)
    })
}

/// Has the first rank do an operation until the other one's memory is mapped, so that operations end as they start.
fn map_memory(both: &mut [GlobalMemory; 2], mut start: impl FnMut(&mut GlobalMemory) -> Handle) {
    for _ in 0..1_000 {
        let handle = start(&mut both[0]);
        complete(both, handle);
    }
}

/// What the first rank does again and again, each time until it has ended.
fn operations(mut both: [GlobalMemory; 2], count: usize, mut start: impl FnMut(&mut GlobalMemory) -> Handle) {
    map_memory(&mut both, &mut start);
    let [here, _] = &mut both;
    rounds(count, |is_counted| {
        act(is_counted, || {
            let handle = start(here);
            here.complete(handle).expect("it is registered there, too");
        });
        0
    });
}

/// Copies of 8 bytes to or from the other rank, each of which is waited for.
pub fn copies(pair: Pair, count: usize, is_put: bool) {
    let both = global_memory(pair);
    let starters = [0, 1].map(|rank| both[0].starter(rank).expect("two ranks"));
    let [dst, src] = if is_put { [starters[1], starters[0]] } else { starters };
    operations(both, count, |here| here.copy(dst, src, 8, Order::Now).expect("it is registered"));
}

/// Additions in the other rank's memory, each of which is waited for.
pub fn additions(pair: Pair, count: usize) {
    let both = global_memory(pair);
    let [own, other] = [0, 1].map(|rank| both[0].starter(rank).expect("two ranks"));
    operations(both, count, |here| here.atomic(own, other, ADD_ONE, Order::Now).expect("it is registered"));
}

/// Messages of 8 bytes through channels there and back.
pub fn channels(pair: Pair, count: usize) {
    const SLOTS: Slots = Slots { count: 8, bytes: 4096 };
    let mut both = global_memory(pair);
    let senders =
        [0, 1].map(|rank| Sender::create(&mut both[rank], 1 - rank as u32, SLOTS).expect("two ranks"));
    let receivers =
        [0, 1].map(|rank| Receiver::create(&mut both[rank], 1 - rank as u32, SLOTS).expect("two ranks"));
    let heap = || Memory::foreign(Foreign::owned(vec![0; 8].into_boxed_slice()));
    let (message, into) = (heap(), heap());
    rounds(count, |is_counted| {
        [(0, 1), (1, 0)]
            .into_iter()
            .map(|(from, to)| {
                let mut has_ended = false;
                let received = receivers[to].start(&mut both[to], &into).expect("it was not freed");
                let sent = act(is_counted, || {
                    let sent = senders[from].start(&mut both[from], &message).expect("it was not freed");
                    has_ended = received.has_ended(&mut both[to]);
                    sent
                });
                let late = until(|| {
                    both[from].progress();
                    has_ended = has_ended || received.has_ended(&mut both[to]);
                    has_ended
                });
                act(is_counted, || {
                    sent.wait(&mut both[from]).expect("nobody leaves");
                    assert_eq!(received.wait(&mut both[to]).expect("nobody leaves"), 8);
                });
                late
            })
            .sum()
    });
}

/// A map in the memory of the second rank, with its first keys, as the first rank sees it.
fn map(pair: Pair) -> ([GlobalMemory; 2], Map) {
    let mut both = global_memory(pair);
    let made = Map::create(&mut both[1], &[1], BUCKETS, 1).expect("there is space");
    for key in 0..KEYS {
        let is_new = made.insert(&mut both[1], &key.to_le_bytes(), &[1; 8]).expect("there is space");
        assert!(is_new, "each is another one");
    }
    // The first access to a region asks the rank for it, which answers only if it gets to.
    let (own, at) = (both[0].starter(0).expect("two ranks"), made.handle());
    map_memory(&mut both, |here| here.copy(own, at, 8, Order::Now).expect("it is registered"));
    let map = Map::open(&mut both[0], made.handle()).expect("there is a map");
    (both, map)
}

/// Bytes of a length that the compiler does not know. Where it knew the length, one build specialised the table for keys of 8 bytes, and another did not:
/// their counts differed by 4 %.
fn any_length(bytes: &[u8]) -> &[u8] {
    black_box(bytes)
}

/// Values of 8 bytes are looked up in the other rank's memory.
pub fn finds(pair: Pair, count: usize) {
    let (mut both, map) = map(pair);
    let mut number = 0_u64;
    rounds(count, |is_counted| {
        number += 1;
        let key = (number * 7 % KEYS).to_le_bytes();
        let key = any_length(&key);
        let found = act(is_counted, || map.get(&mut both[0], key));
        assert_eq!(found.expect("nobody leaves"), Some(vec![1; 8]));
        0
    });
}

/// New keys with values of 8 bytes are entered in the other rank's memory.
pub fn inserts(pair: Pair, count: usize) {
    let (mut both, map) = map(pair);
    let mut key = KEYS;
    rounds(count, |is_counted| {
        key += 1;
        let key = key.to_le_bytes();
        let (key, value) = (any_length(&key), any_length(&[2; 8]));
        let is_new = act(is_counted, || map.insert(&mut both[0], key, value));
        assert!(is_new.expect("there is space"), "each is another one");
        0
    });
}
