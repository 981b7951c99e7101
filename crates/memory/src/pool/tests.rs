//! The pool, as its owner and those who give slots back use it.

use super::*;
use std::thread;

#[test]
fn hands_out_all_and_takes_them_back() {
    let mut pool = SlotPool::new(20, 100).unwrap();
    assert_eq!((pool.count(), pool.free_count(), pool.slot_bytes()), (20, 20, 100));
    assert!(pool.bytes() >= 20 * 128);
    let mut slots = Vec::new();
    while let Some(mut slot) = pool.take() {
        let mark = slots.len() as u8;
        assert_eq!(slot.fill().len(), 100);
        slot.fill().fill(mark);
        slots.push(slot.freeze(usize::from(mark)));
    }
    assert_eq!((slots.len(), pool.free_count()), (20, 0));
    for (mark, slot) in slots.iter().enumerate() {
        assert_eq!(slot.as_ptr().addr() % 8, 0);
        assert_eq!(**slot, vec![mark as u8; mark][..]);
    }
    // Any order.
    drop(slots.remove(7));
    drop(slots.split_off(10));
    assert_eq!(pool.free_count(), 10);
    assert!(pool.take().is_some(), "and dropped at once");
    assert_eq!(pool.free_count(), 10);
    drop(slots);
    assert_eq!(pool.free_count(), 20);
}

#[test]
fn a_slot_in_use_alternates_among_few() {
    let mut pool = SlotPool::new(1000, 64).unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        seen.insert(pool.take().unwrap().freeze(8).index());
    }
    assert!(seen.len() <= 2 * COLLECT_SLOTS as usize, "{}", seen.len());
}

#[test]
fn outlives_its_pool() {
    let mut pool = SlotPool::new(3, 8).unwrap();
    let mut slot = pool.take().unwrap();
    slot.fill().copy_from_slice(b"farewell");
    let slot = slot.freeze(8);
    let other = pool.take().unwrap();
    drop(pool);
    drop(other);
    assert_eq!(&*slot, b"farewell");
}

fn park(pool: &mut SlotPool, holder: u32) -> Option<Parked> {
    Some(pool.take_parked(holder, 8)?.0)
}

#[test]
fn parked_and_back() {
    let mut pool = SlotPool::new(2, 8).unwrap();
    let mut other = SlotPool::new(2, 8).unwrap();
    assert!(pool.take_parked(7, 9).is_none());
    let (parked, buffer) = pool.take_parked(7, 5).unwrap();
    buffer.copy_from_slice(b"12345");
    let forged = Parked { index: parked.index, len_bytes: 1000 };
    assert!(other.unpark(Parked { index: parked.index, len_bytes: 5 }).is_none());
    assert!(pool.unpark(Parked { index: 2, len_bytes: 5 }).is_none());
    assert_eq!(pool.free_count(), 1);
    assert_eq!(&*pool.unpark(parked).unwrap(), b"12345");
    assert!(pool.unpark(forged).is_none(), "once only");
    assert_eq!(pool.free_count(), 2);
}

#[test]
fn knows_for_whom_slots_are_out() {
    let mut pool = SlotPool::new(6, 8).unwrap();
    let holders = |pool: &mut SlotPool| {
        let mut holders = Vec::new();
        pool.each_out(|holder| holders.push(holder));
        holders.sort_unstable();
        holders
    };
    assert_eq!(holders(&mut pool), []);
    let first = park(&mut pool, HOLDER_MAX).unwrap();
    let (second, third) = (pool.take_for(3).unwrap(), park(&mut pool, 0).unwrap());
    assert_eq!((pool.free_count_cached(), pool.free_count()), (3, 3));
    assert_eq!(holders(&mut pool), [0, 3, HOLDER_MAX]);
    let first = pool.unpark(first).unwrap();
    assert_eq!(holders(&mut pool), [0, 3, HOLDER_MAX], "still out");
    thread::spawn(|| drop(second)).join().unwrap();
    assert_eq!(holders(&mut pool), [0, HOLDER_MAX]);
    drop(first);
    drop(pool.unpark(third));
    assert_eq!(holders(&mut pool), []);
    assert!((0..6).all(|_| park(&mut pool, HOLDER_MAX).is_some()));
    assert_eq!(holders(&mut pool), [HOLDER_MAX; 6]);
    assert!(pool.take().is_none());
}

#[test]
fn a_parked_slot_goes_with_its_pool() {
    let mut pool = SlotPool::new(2, 8).unwrap();
    let (parked, out) = (park(&mut pool, 7), pool.take().unwrap());
    assert!(parked.is_some());
    drop(pool);
    drop(out);
}

#[test]
fn moves_to_another_thread_and_goes_there() {
    for early in [false, true] {
        let mut pool = SlotPool::new(4, 64).unwrap();
        drop(pool.take());
        let slot = pool.take().unwrap().freeze(3);
        let other = thread::spawn(move || {
            let out = pool.take().unwrap();
            if early {
                drop(out);
                return None;
            }
            Some((pool, out))
        });
        let pool = other.join().unwrap();
        assert_eq!(&*slot, [0; 3]);
        drop(slot);
        if let Some((mut pool, out)) = pool {
            assert_eq!(pool.free_count(), 3);
            drop(out);
            assert!((0..4).all(|_| pool.take().is_some()));
        }
    }
    // Another test may be at the list just now.
    let swept = || {
        abandoned::sweep();
        abandoned::count() == 0
    };
    assert!((0..1000).any(|_| swept() || (thread::yield_now(), false).1));
}

#[test]
fn the_home_moves_when_all_slots_are_in() {
    let mut pool = SlotPool::new(2, 64).unwrap();
    drop(pool.take());
    let first = pool.shared().home.load(Ordering::Relaxed);
    assert_eq!(first, crate::thread::number());
    let pool = thread::spawn(move || {
        // At first it takes what the old home has returned, then what is on its list.
        (0..3).for_each(|_| drop(pool.take()));
        assert_eq!(pool.shared().home.load(Ordering::Relaxed), crate::thread::number());
        pool
    });
    assert_ne!(pool.join().unwrap().shared().home.load(Ordering::Relaxed), first);
}

#[test]
fn raw_and_back() {
    let mut pool = SlotPool::new(1, 8).unwrap();
    let mut slot = pool.take().unwrap();
    slot.fill().copy_from_slice(b"12345678");
    let (data, len, token) = slot.freeze(5).into_raw();
    assert!(pool.take().is_none());
    // SAFETY: from `into_raw` just above, once.
    let slot = unsafe { Slot::from_raw(data, len, token) };
    assert_eq!(&*slot, b"12345");
    drop(slot);
    assert_eq!(pool.free_count(), 1);
}

#[test]
fn refuses_what_cannot_be() {
    assert_eq!(SlotPool::new(0, 8).err(), Some(PoolError::Size));
    assert_eq!(SlotPool::new(8, 0).err(), Some(PoolError::Size));
    assert_eq!(SlotPool::new(u32::MAX, 8).err(), Some(PoolError::Size));
}

#[test]
fn returned_from_many_threads() {
    let rounds: u64 = if cfg!(miri) { 60 } else { 100_000 };
    let mut pool = SlotPool::new(16, 16).unwrap();
    let (mut to, handles): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (send, receive) = std::sync::mpsc::channel::<Slot>();
            let check = move || {
                receive.iter().fold(0u64, |sum, slot| {
                    let (number, twice) = slot.split_at(8);
                    assert_eq!(number, twice);
                    sum + u64::from_ne_bytes(number.try_into().unwrap())
                })
            };
            (send, thread::spawn(check))
        })
        .unzip();
    for number in 0..rounds {
        let mut slot = loop {
            match pool.take() {
                Some(slot) => break slot,
                None => thread::yield_now(),
            }
        };
        slot.fill()[..8].copy_from_slice(&number.to_ne_bytes());
        slot.fill()[8..].copy_from_slice(&number.to_ne_bytes());
        to[number as usize % 3].send(slot.freeze(16)).unwrap();
    }
    // The last slots come home to a pool that may be gone.
    drop(pool);
    to.clear();
    let sum: u64 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
    assert_eq!(sum, rounds * (rounds - 1) / 2);
}
