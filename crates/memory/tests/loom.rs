//! Every interleaving (with a bounded number of preemptions) of small models.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p cci-memory --release --test loom`
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cci_memory::atomic::{AtomicU32, Ordering, fence};
use cci_memory::pool::SlotPool;
use cci_memory::ring::{Armed, Consumer, Line, PushError, RecordHeader, loom_pair};
use loom::sync::Arc;
use loom::thread;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

fn header(number: u32) -> RecordHeader {
    RecordHeader { kind: 1, flags: 2, conn: number, ack: !number }
}

/// The payload of record `number`: as long as it says, so that some take one line and some two.
fn payload(number: u32, bytes: &mut [u8; 64]) -> &[u8] {
    bytes.fill(number as u8 + 1);
    &bytes[..if number.is_multiple_of(2) { 12 } else { 60 }]
}

/// Takes a record and checks it whole.
fn take(consumer: &mut Consumer<()>, number: u32) -> bool {
    let Some(record) = consumer.peek().unwrap() else { return false };
    assert_eq!(record.header(), header(number));
    let (mut bytes, mut expected) = ([0; 64], [0; 64]);
    let len = record.copy_to(&mut bytes);
    assert_eq!(&bytes[..len], payload(number, &mut expected));
    consumer.consume();
    true
}

#[test]
fn records_arrive_whole_over_a_wrap() {
    // Four lines. Lines taken: 2, 1, then a PAD of 1 and 2 again over what the first one left, and 1.
    const NUMBERS: [u32; 4] = [1, 2, 3, 4];
    check(3, || {
        let (mut producer, mut consumer) = loom_pair(256, 80);
        let sender = thread::spawn(move || {
            for number in NUMBERS {
                let mut bytes = [0; 64];
                let payload = payload(number, &mut bytes);
                while producer
                    .push(header(number), &[payload])
                    .map_err(|e| assert_eq!(e, PushError::Full))
                    .is_err()
                {
                    thread::yield_now();
                }
            }
        });
        for number in NUMBERS {
            while !take(&mut consumer, number) {
                thread::yield_now();
            }
            consumer.publish_head();
        }
        assert!(consumer.peek().unwrap().is_none());
        sender.join().unwrap();
    });
}

#[test]
fn records_that_become_visible_together_arrive_whole() {
    // Of four lines three are used at a time: the last burst ends behind where the first one began.
    check(3, || {
        let (mut producer, mut consumer) = loom_pair(256, 48);
        let sender = thread::spawn(move || {
            for number in [0, 2, 4] {
                let payload = [number as u8 + 1; 12];
                let mut left = 2;
                while left > 0 {
                    match producer.push_lines(header(number), &[&payload[..]; 2][..left], 48, 2).unwrap() {
                        Some((span, _)) => left -= span.records() as usize,
                        None => thread::yield_now(),
                    }
                }
            }
        });
        let mut taken = 0;
        while taken < 6 {
            let number = taken / 2 * 2;
            let Some(like) = consumer.peek().unwrap().map(|record| record.like(48)) else {
                thread::yield_now();
                continue;
            };
            let mut lines = [Line::EMPTY, Line::EMPTY];
            let (count, _) = consumer.take_lines(like, &mut lines);
            assert!(count > 0 && lines[..count].iter().all(|line| line.bytes() == [number as u8 + 1; 12]));
            taken += count as u32;
            consumer.publish_head();
        }
        sender.join().unwrap();
    });
}

#[test]
fn records_of_several_lines_that_become_visible_together_arrive_whole() {
    // Of eight lines two records of two lines each, and the line behind them: every other burst has a PAD or wraps.
    check(2, || {
        let (mut producer, mut consumer) = loom_pair(512, 112);
        let sender = thread::spawn(move || {
            for number in [0, 2, 4] {
                let payload = [number as u8 + 1; 60];
                let mut left = 2;
                while left > 0 {
                    match producer.push_alike(header(number), &[&payload[..]; 2][..left], 112, 2).unwrap() {
                        Some((span, _)) => left -= span.records() as usize,
                        None => thread::yield_now(),
                    }
                }
            }
        });
        let mut taken = 0;
        while taken < 6 {
            let number = taken / 2 * 2;
            let mut payload = [0; 60];
            let Some(record) = consumer.peek().unwrap() else {
                thread::yield_now();
                continue;
            };
            assert_eq!((record.header(), record.copy_to(&mut payload)), (header(number), 60));
            assert_eq!(payload, [number as u8 + 1; 60]);
            consumer.consume();
            taken += 1;
            consumer.publish_head();
        }
        sender.join().unwrap();
    });
}

#[test]
fn one_line_records_lap_the_ring() {
    check(2, || {
        let (mut producer, mut consumer) = loom_pair(256, 48);
        let sender = thread::spawn(move || {
            for number in 0..6 {
                while producer.push(header(2 * number), &[&[2 * number as u8 + 1; 12]]).is_err() {
                    thread::yield_now();
                }
            }
        });
        for number in 0..6 {
            // The second of a batch by the shortest look.
            while number % 2 == 1 {
                if let Some((_, len_bytes)) = consumer.peek_line(header(0).kind) {
                    let mut payload = [0; 48];
                    consumer.take_line(len_bytes, &mut payload);
                    assert_eq!(payload[..len_bytes as usize], [2 * number as u8 + 1; 12]);
                    break;
                }
                thread::yield_now();
            }
            while number % 2 == 0 && !take(&mut consumer, 2 * number) {
                thread::yield_now();
            }
            // One batch in two.
            if number % 2 == 1 {
                consumer.publish_head();
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn nobody_sleeps_on_a_record() {
    check(4, || {
        let (mut producer, mut consumer) = loom_pair(256, 48);
        let sender = thread::spawn(move || {
            producer.push(header(0), &[&[1; 12]]).unwrap();
            producer.needs_wake()
        });
        let slept = consumer.arm() == Armed::MaySleep;
        let woken = sender.join().unwrap();
        // Asleep means woken. (Awake may be woken too: harmless.)
        assert!(!slept || woken);
        consumer.disarm();
        assert!(take(&mut consumer, 0));
    });
}

#[test]
fn nobody_sleeps_on_progress() {
    // Left pushed to the right before and waits for it to be consumed; the right's ring back carries its attention.
    check(3, || {
        let (mut forth, mut right) = loom_pair(256, 48);
        let (back, mut left) = loom_pair(256, 48);
        let span = forth.push(header(0), &[&[1; 12]]).unwrap();
        let consuming = thread::spawn(move || {
            assert!(take(&mut right, 0));
            assert!(right.publish_head());
            back.needs_progress_wake()
        });
        let slept = left.arm_for_progress() == Armed::MaySleep && forth.consumed().unwrap() < span.end();
        let woken = consuming.join().unwrap();
        assert!(!slept || woken);
    });
}

/// A heavy fence that meets the sender at one place of its program: there the sender waits until the sleeper makes the fence or needs none,
/// and fences in the first case. All places together are all that a heavy fence can do.
#[derive(Default)]
struct HeavyFence {
    /// 1: the sleeper makes it; 2: it needs none.
    asked: AtomicU32,
    done: AtomicU32,
}

impl HeavyFence {
    fn meets(&self, is_here: bool) {
        while is_here {
            match self.asked.load(Ordering::Relaxed) {
                0 => thread::yield_now(),
                1 => {
                    fence(Ordering::SeqCst);
                    return self.done.store(1, Ordering::Relaxed);
                }
                _ => return,
            }
        }
    }

    fn make(&self) {
        fence(Ordering::SeqCst);
        self.asked.store(1, Ordering::Relaxed);
        while self.done.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        fence(Ordering::SeqCst);
    }
}

/// A sender in a stream pushes and looks, and ends the stream. `place`: where a heavy fence meets it. None: the sleeper makes none.
fn nobody_sleeps_on_a_stream(place: Option<u32>) {
    check(3, move || {
        let (mut producer, mut consumer) = loom_pair(256, 48);
        consumer.offer_heavy_fences();
        let heavy = Arc::new(HeavyFence::default());
        let meets = Arc::clone(&heavy);
        let sender = thread::spawn(move || {
            producer.begin_light_fences();
            meets.meets(place == Some(0));
            producer.push(header(0), &[&[1; 12]]).unwrap();
            meets.meets(place == Some(1));
            let wakes = producer.needs_wake();
            meets.meets(place == Some(2));
            producer.end_light_fences();
            meets.meets(place == Some(3));
            wakes
        });
        let slept = match consumer.arm() {
            Armed::NeedsHeavyFence if place.is_some() => {
                heavy.make();
                !consumer.has_record()
            }
            armed => {
                heavy.asked.store(2, Ordering::Relaxed);
                armed != Armed::HasRecord
            }
        };
        let woken = sender.join().unwrap();
        assert!(!slept || woken);
        consumer.disarm();
        assert!(take(&mut consumer, 0));
    });
}

#[test]
fn nobody_sleeps_on_a_record_behind_a_light_fence() {
    for place in 0..4 {
        nobody_sleeps_on_a_stream(Some(place));
    }
}

/// What the test before shows depends on the heavy fence.
#[test]
#[should_panic(expected = "!slept || woken")]
fn without_a_heavy_fence_somebody_sleeps_on_a_record() {
    nobody_sleeps_on_a_stream(None);
}

#[test]
fn what_was_taken_back_is_never_delivered() {
    check(4, || {
        let (mut producer, mut consumer) = loom_pair(512, 48);
        let delivered = Arc::new(AtomicU32::new(0));
        let sender = thread::spawn(move || {
            let spans =
                [0, 2].map(|number| producer.push(header(number), &[&[number as u8 + 1; 12]]).unwrap());
            let mut taken_back = 0;
            for _ in 0..2 {
                if let Some(mut guard) = producer.try_cancel().unwrap() {
                    for (bit, span) in spans.iter().enumerate() {
                        taken_back |= u32::from(guard.void(*span)) << bit;
                    }
                    break;
                }
                thread::yield_now();
            }
            (producer, taken_back)
        });
        // Takes the first if it is there, has no buffer for what follows, gets one later.
        let note = |consumer: &mut Consumer<()>| {
            if let Some(record) = consumer.peek().unwrap() {
                let bit = record.header().conn / 2;
                assert_eq!(delivered.fetch_or(1 << bit, Ordering::Relaxed) >> bit & 1, 0, "twice");
                consumer.consume();
            }
        };
        note(&mut consumer);
        consumer.stall();
        for _ in 0..2 {
            if consumer.resume() {
                note(&mut consumer);
            }
            thread::yield_now();
        }
        let (producer, taken_back) = sender.join().unwrap();
        while !consumer.resume() {
            thread::yield_now();
        }
        note(&mut consumer);
        note(&mut consumer);
        consumer.publish_head();
        assert_eq!(consumer.head(), producer.tail(), "nothing is left");
        assert_eq!(
            delivered.load(Ordering::Relaxed) ^ taken_back,
            0b11,
            "delivered, or taken back, never both"
        );
    });
}

/// Marks a slot as in use while a loom cell watches for races.
fn touch(cells: &[loom::cell::UnsafeCell<u32>], index: u32) {
    // SAFETY: loom reports any two accesses that are not ordered; no pointer outlives the closure.
    cells[index as usize].with_mut(|count| unsafe { *count += 1 });
}

#[test]
fn slots_return_from_two_threads_and_are_used_again() {
    check(3, || {
        let cells: Arc<Vec<_>> = Arc::new((0..2).map(|_| loom::cell::UnsafeCell::new(0)).collect());
        let mut pool = SlotPool::new(2, 8).unwrap();
        let users: Vec<_> = (0..2)
            .map(|_| {
                let slot = pool.take().unwrap().freeze(8);
                let cells = Arc::clone(&cells);
                thread::spawn(move || {
                    touch(&cells, slot.index());
                    drop(slot);
                })
            })
            .collect();
        // Waiting makes loom run the users meanwhile. (Its search alone does not: a load of theirs in front of the
        // exchange hides from it that ours depends on the exchange.)
        for _ in 0..2 {
            let slot = loop {
                match pool.take() {
                    Some(slot) => break slot.freeze(1),
                    None => thread::yield_now(),
                }
            };
            touch(&cells, slot.index());
            let (data, len, token) = slot.into_raw();
            // SAFETY: from `into_raw` just above, once.
            drop(unsafe { cci_memory::pool::Slot::from_raw(data, len, token) });
        }
        for user in users {
            user.join().unwrap();
        }
        assert_eq!(pool.free_count(), 2);
        let both = (pool.take().unwrap(), pool.take().unwrap());
        assert!(pool.take().is_none());
        drop(pool);
        drop(both);
    });
}

#[test]
fn a_pool_goes_on_another_thread_than_its_home() {
    check(3, || {
        let cells: Arc<Vec<_>> = Arc::new((0..2).map(|_| loom::cell::UnsafeCell::new(0)).collect());
        let mut pool = SlotPool::new(2, 8).unwrap();
        drop(pool.take());
        let slot = pool.take().unwrap().freeze(8);
        let other = thread::spawn({
            let cells = Arc::clone(&cells);
            move || {
                // Both, if the first one's home has returned it meanwhile.
                let two = [pool.take(), pool.take()];
                let indices = two.map(|slot| slot.map(|slot| slot.freeze(1)));
                indices.iter().flatten().for_each(|slot| touch(&cells, slot.index()));
                drop(indices);
                drop(pool);
            }
        });
        touch(&cells, slot.index());
        drop(slot);
        other.join().unwrap();
    });
}

#[test]
fn the_last_of_pool_and_slots_frees_the_memory() {
    // loom reports what leaks, and an atomic used after its memory was freed.
    check(4, || {
        let cells: Arc<Vec<_>> = Arc::new((0..3).map(|_| loom::cell::UnsafeCell::new(0)).collect());
        let mut pool = SlotPool::new(3, 8).unwrap();
        let users: Vec<_> = (0..2)
            .map(|_| {
                let slot = pool.take().unwrap().freeze(8);
                let cells = Arc::clone(&cells);
                thread::spawn(move || {
                    touch(&cells, slot.index());
                    drop(slot);
                })
            })
            .collect();
        if let Some(slot) = pool.take() {
            touch(&cells, slot.freeze(0).index());
        }
        drop(pool);
        for user in users {
            user.join().unwrap();
        }
    });
}

#[test]
fn what_was_taken_back_is_not_written_any_more() {
    use cci_memory::atomic::AtomicU64;
    use loom::cell::UnsafeCell;
    struct Memory {
        live: AtomicU64,
        bytes: UnsafeCell<u64>,
    }
    // SAFETY: loom reports races of the cell instead of having them.
    unsafe impl Sync for Memory {}
    check(4, || {
        let (producer, consumer) = loom_pair(256, 80);
        let memory = Arc::new(Memory { live: AtomicU64::new(7), bytes: UnsafeCell::new(0) });
        let shared = Arc::clone(&memory);
        let peer = thread::spawn(move || {
            for _ in 0..2 {
                producer.begin_direct(3);
                if shared.live.load(Ordering::Relaxed) == 7 {
                    // SAFETY: loom has checked that nobody else is at it.
                    shared.bytes.with_mut(|cell| unsafe { *cell += 1 });
                }
                producer.end_direct();
            }
        });
        memory.live.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while consumer.direct_now() == 3 {
            thread::yield_now();
        }
        // SAFETY: as above; this is what would race.
        memory.bytes.with_mut(|cell| unsafe { *cell += 10 });
        peer.join().unwrap();
    });
}
