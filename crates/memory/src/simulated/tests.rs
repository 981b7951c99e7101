use super::*;
use crate::ring::{Armed, Consumer, Producer, RecordHeader, region_bytes};
use core::ptr::NonNull;

const PROCESS_A: usize = 0;
const PROCESS_B: usize = 1;

/// Numbers from a seed, and two processes.
fn memory(is_weak: bool, seed: u64) -> Memory {
    let mut state = seed;
    let memory = Memory::new(is_weak, move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    });
    assert_eq!((memory.add_process(), memory.add_process()), (PROCESS_A, PROCESS_B));
    memory
}

fn words() -> [Word; 2] {
    [Word(AtomicU64::new(0)), Word(AtomicU64::new(0))]
}

/// Store buffering: each of two processes stores to a word and loads the other's. Both may see 0, unless there are fences.
#[test]
fn both_miss_the_others_store_without_a_fence_and_never_with_one() {
    let mut missed = [0; 2];
    for seed in 0..200 {
        for (fenced, missed) in [false, true].into_iter().zip(&mut missed) {
            let (memory, [x, y]) = (memory(false, seed), words());
            let run = |process, own: &Word, other: &Word| {
                let _entered = memory.enter(process);
                own.store(1, Ordering::Relaxed);
                if fenced {
                    fence(Ordering::SeqCst);
                }
                other.load(Ordering::Relaxed)
            };
            let seen = (run(PROCESS_A, &x, &y), run(PROCESS_B, &y, &x));
            *missed += u32::from(seen == (0, 0));
        }
    }
    assert!(missed[0] > 50 && missed[1] == 0, "{missed:?}");
}

/// Message passing: who sees the flag sees the data, if the flag was a Release or the processor keeps the order of stores.
#[test]
fn a_flag_passes_its_data_only_where_the_processor_is_weak() {
    let mut early = [0; 3];
    let kinds = [(false, Ordering::Relaxed), (true, Ordering::Release), (true, Ordering::Relaxed)];
    for seed in 0..500 {
        for ((is_weak, order), early) in kinds.into_iter().zip(&mut early) {
            let (memory, [data, flag]) = (memory(is_weak, seed), words());
            {
                let _entered = memory.enter(PROCESS_A);
                data.store(1, Ordering::Relaxed);
                flag.store(1, order);
            }
            let _entered = memory.enter(PROCESS_B);
            let seen = (0..4).any(|_| flag.load(Ordering::Acquire) == 1 && data.load(Ordering::Relaxed) == 0);
            *early += u32::from(seen);
        }
    }
    assert!(early[0] == 0 && early[1] == 0 && early[2] > 10, "{early:?}");
}

#[test]
fn a_process_sees_its_own_stores_and_words_that_are_exchanged_are_seen_by_all() {
    let (memory, [word, _]) = (memory(true, 1), words());
    {
        let _entered = memory.enter(PROCESS_A);
        word.store(7, Ordering::Relaxed);
        assert_eq!((word.load(Ordering::Relaxed), memory.hidden(PROCESS_A)), (7, 1));
        assert_eq!(word.swap(9, Ordering::Relaxed), 7);
    }
    let _entered = memory.enter(PROCESS_B);
    assert_eq!(word.compare_exchange(8, 1, Ordering::Acquire, Ordering::Relaxed), Err(9));
    assert_eq!(word.fetch_or(6, Ordering::Relaxed), 9);
    assert_eq!(word.load(Ordering::Relaxed), 15);
}

#[test]
fn the_dead_store_nothing_and_what_they_stored_before_is_seen() {
    let (memory, [x, y]) = (memory(false, 1), words());
    memory.die_after(PROCESS_A, 1);
    {
        let _entered = memory.enter(PROCESS_A);
        assert!(!is_dead());
        x.store(1, Ordering::Relaxed);
        assert!(is_dead());
        y.store(1, Ordering::Relaxed);
        assert_eq!(y.swap(2, Ordering::SeqCst), 0);
    }
    memory.show_all(PROCESS_A);
    assert_eq!((x.load(Ordering::Relaxed), y.load(Ordering::Relaxed)), (1, 0));
}

/// What is unmapped holds no store back.
#[test]
fn a_copy_has_as_many_parts_wherever_it_lies() {
    let mut target = vec![0_u8; 1024];
    for offset in 0..130 {
        let memory = memory(false, 1);
        memory.stop(PROCESS_A, true);
        let _entered = memory.enter(PROCESS_A);
        // SAFETY: the target has as many bytes behind `offset`.
        unsafe { store(target[offset..].as_mut_ptr(), &[7; 640]) };
        assert_eq!(memory.hidden(PROCESS_A), 10, "{offset} bytes into the target");
        unmap(target.as_ptr(), target.len());
    }
}

#[test]
fn stores_are_seen_before_their_memory_goes() {
    let (memory, [x, y]) = (memory(false, 1), words());
    {
        let _entered = memory.enter(PROCESS_A);
        x.store(1, Ordering::Relaxed);
        y.store(1, Ordering::Relaxed);
    }
    unmap(x.at(), 8);
    assert_eq!(
        (x.load(Ordering::Relaxed), memory.hidden(PROCESS_A)),
        (1, usize::from(y.load(Ordering::Relaxed) == 0))
    );
}

/// Both ends of a ring, and what their programs know.
struct Ends {
    producer: RefCell<Producer<()>>,
    consumer: RefCell<Consumer<()>>,
    sent: Cell<u32>,
    received: Cell<u32>,
    is_asleep: Cell<bool>,
    heavy_fences: Cell<u32>,
}

impl Ends {
    /// Sends a batch, and wakes who sleeps.
    fn send(&self, messages: u32) {
        let Ok(mut producer) = self.producer.try_borrow_mut() else { return };
        let mut pushed = false;
        match self.sent.get() % 11 {
            0 => producer.begin_light_fences(),
            7 => producer.end_light_fences(),
            _ => {}
        }
        for _ in 0..3 {
            let (number, bytes) = (self.sent.get(), [self.sent.get() as u8; 150]);
            let header = RecordHeader { conn: number, ..RecordHeader::default() };
            if number < messages && producer.push(header, &[&bytes[..number as usize % 150]]).is_ok() {
                self.sent.set(number + 1);
                pushed = true;
            }
        }
        if pushed && producer.needs_wake() {
            self.is_asleep.set(false);
        }
    }

    /// Receives what there is, and sleeps.
    fn receive(&self) {
        let Ok(mut consumer) = self.consumer.try_borrow_mut() else { return };
        if self.is_asleep.get() {
            return;
        }
        consumer.disarm();
        while let Some(record) = consumer.peek().unwrap() {
            let (mut to, number) = ([0; 200], self.received.get());
            let len = record.copy_to(&mut to);
            assert_eq!((record.header().conn, len), (number, number as usize % 150));
            assert!(to[..len].iter().all(|byte| *byte == number as u8), "{number}: {to:?}");
            self.received.set(number + 1);
            consumer.consume();
        }
        consumer.publish_head();
        // A waker that comes while this side arms must not be forgotten.
        self.is_asleep.set(true);
        let has_come = match consumer.arm() {
            Armed::MaySleep => false,
            Armed::HasRecord => true,
            Armed::NeedsHeavyFence => {
                self.heavy_fences.set(self.heavy_fences.get() + 1);
                heavy_fence();
                consumer.has_record()
            }
        };
        if has_come {
            self.is_asleep.set(false);
        }
    }
}

/// A ring keeps its promises on a weak processor: records come whole and in order, and no sleeper is forgotten.
#[test]
fn a_ring_delivers_in_order_and_wakes_who_sleeps() {
    const BYTES: usize = region_bytes(1024);
    const MESSAGES: u32 = 50;
    let mut heavy_fences = 0;
    for seed in 0..300 {
        let memory = memory(seed % 2 == 0, seed);
        let layout = std::alloc::Layout::from_size_align(BYTES, 64).unwrap();
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) }).unwrap();
        // SAFETY: zeroed memory, freed after both ends; there is one of each.
        let producer = unsafe { Producer::new(base, BYTES, 200, ()) }.unwrap();
        // SAFETY: as for the producer.
        let consumer = unsafe { Consumer::new(base, BYTES, 200, ()) }.unwrap();
        let ends = Rc::new(Ends {
            producer: RefCell::new(producer),
            consumer: RefCell::new(consumer),
            sent: Cell::new(0),
            received: Cell::new(0),
            is_asleep: Cell::new(false),
            heavy_fences: Cell::new(0),
        });
        if seed % 3 > 0 {
            ends.consumer.borrow().offer_heavy_fences();
        }
        let (memory, others) = (Rc::new(memory), Rc::clone(&ends));
        let weak = Rc::downgrade(&memory);
        memory.set_turn(move || {
            let Some(memory) = weak.upgrade() else { return };
            let process = if others.producer.try_borrow_mut().is_ok() { PROCESS_A } else { PROCESS_B };
            let _entered = memory.enter(process);
            if process == PROCESS_A { others.send(MESSAGES) } else { others.receive() }
        });
        for _ in 0..500 {
            {
                let _entered = memory.enter(PROCESS_A);
                ends.send(MESSAGES);
            }
            let _entered = memory.enter(PROCESS_B);
            ends.receive();
            // In the end everything that was stored is seen, and who sleeps is not looked after.
            if ends.sent.get() == MESSAGES {
                (0..2).for_each(|process| memory.show_all(process));
            }
        }
        assert_eq!((ends.sent.get(), ends.received.get()), (MESSAGES, MESSAGES), "seed {seed}");
        assert!(ends.heavy_fences.get() == 0 || seed % 3 > 0, "seed {seed}: nobody offered them");
        heavy_fences += ends.heavy_fences.get();
        (0..2).for_each(|process| memory.show_all(process));
        // SAFETY: allocated above with this layout, and nobody uses it any more.
        unsafe { std::alloc::dealloc(base.as_ptr(), layout) };
    }
    assert!(heavy_fences > 1_000, "{heavy_fences}");
}

/// Memory is given back also where a thread, or the process, ends, and what simulations keep for the thread is gone already.
#[test]
fn memory_is_unmapped_while_a_thread_ends() {
    struct UnmapsAtTheEnd;
    impl Drop for UnmapsAtTheEnd {
        fn drop(&mut self) {
            unmap(core::ptr::dangling(), 8);
        }
    }
    thread_local!(static LAST: UnmapsAtTheEnd = const { UnmapsAtTheEnd });
    let thread = std::thread::spawn(|| {
        // What is used first is dropped last.
        LAST.with(|_| ());
        drop(memory(false, 0));
    });
    thread.join().expect("it ends");
}
