//! What a peer that lies can do to us: nothing but waste its own ring.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use cci_memory::atomic::{AtomicBool, Ordering};
use cci_memory::ring::{CONTROL_BYTES, Consumer, Corrupt, PushError, RecordHeader};
use common::{Memory, Random};

const DATA_BYTES: usize = 1024;
const PAYLOAD_BYTES_MAX: u32 = 300;

/// Reads on until the ring is dry, corrupt, or `budget` records were read; answers how many.
fn drain(consumer: &mut Consumer<Memory>, budget: u32) -> u32 {
    let mut to = [0; PAYLOAD_BYTES_MAX as usize];
    for count in 0..budget {
        match consumer.peek() {
            Ok(Some(record)) => {
                assert!(record.len_bytes() <= PAYLOAD_BYTES_MAX);
                // Under miri a plain copy that races with the scribbler is an error, rightly so: it is of this process.
                if !cfg!(miri) {
                    assert_eq!(record.copy_to(&mut to), record.len_bytes() as usize);
                }
            }
            Ok(None) | Err(_) => return count,
        }
        consumer.consume();
    }
    budget
}

#[test]
fn no_word_a_consumer_can_find_leads_astray() {
    let rounds = if cfg!(miri) { 100 } else { 200_000 };
    let mut random = Random(7);
    for _ in 0..rounds {
        let memory = Memory::new(DATA_BYTES);
        let mut consumer = memory.consumer(PAYLOAD_BYTES_MAX);
        // Good records first, so that the words to be spoilt are near to right.
        let mut producer = memory.producer(PAYLOAD_BYTES_MAX);
        for _ in 0..random.below(6) {
            let len = random.below(300);
            let _full = producer.push(RecordHeader::default(), &[&[0xA5; 300][..len]]);
        }
        for word in memory.words() {
            match random.below(4) {
                0 => word.store(random.next(), Ordering::Relaxed),
                1 => drop(word.fetch_xor(1 << random.below(64), Ordering::Relaxed)),
                _ => {}
            }
        }
        drain(&mut consumer, 100);
        consumer.publish_head();
        let _ = consumer.arm();
        consumer.stall();
        consumer.resume();
        let _ = producer.push(RecordHeader::default(), &[b"more"]);
        let _ = producer.try_cancel().map(|guard| guard.is_some());
    }
}

#[test]
fn impossible_read_positions_are_refused() {
    let memory = Memory::new(DATA_BYTES);
    let mut producer = memory.producer(48);
    let head = memory.word(0);
    for _ in 0..8 {
        producer.push(RecordHeader::default(), &[]).unwrap();
    }
    for lie in [1, 63, 9 * 64, u64::MAX, 1 << 63, u64::MAX - 63] {
        head.store(lie, Ordering::Relaxed);
        assert_eq!(producer.consumed(), Err(Corrupt::Head), "{lie}");
    }
    head.store(4 * 64, Ordering::Relaxed);
    assert_eq!(producer.consumed(), Ok(4 * 64));
    head.store(3 * 64, Ordering::Relaxed);
    assert_eq!(producer.consumed(), Err(Corrupt::Head), "it went back");
    let full = std::iter::from_fn(|| producer.push(RecordHeader::default(), &[]).err()).next();
    assert_eq!(full, None, "there is room yet");
    while producer.push(RecordHeader::default(), &[]).is_ok() {}
    assert_eq!(
        producer.push(RecordHeader::default(), &[]),
        Err(PushError::Corrupt(Corrupt::Head)),
        "and when there is none, the lie is found"
    );
}

/// Another thread writes nonsense, and single-bit lies, all over the region while both ends are used.
#[test]
fn scribbling_at_every_instant_harms_nobody() {
    let rounds: u32 = if cfg!(miri) { 20 } else { 3_000 };
    let memory = Memory::new(DATA_BYTES);
    let stop = Arc::new(AtomicBool::new(false));
    let scribbler = std::thread::spawn({
        let (memory, stop) = (memory.clone(), Arc::clone(&stop));
        move || {
            let mut random = Random(99);
            let words = memory.len_bytes() / 8;
            while !stop.load(Ordering::Relaxed) {
                let word = memory.word(8 * random.below(words));
                match random.below(8) {
                    0 => word.store(random.next(), Ordering::Relaxed),
                    1 => drop(word.fetch_xor(1 << random.below(64), Ordering::Relaxed)),
                    2 => word.store(0, Ordering::Relaxed),
                    // A word from elsewhere: often a header that is right but for its place.
                    _ => {
                        let from = CONTROL_BYTES + 64 * random.below(DATA_BYTES / 64);
                        word.store(memory.word(from).load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                }
                if cfg!(miri) {
                    std::thread::yield_now();
                }
            }
        }
    });
    let mut random = Random(3);
    let mut read = 0;
    for _ in 0..rounds {
        // Both start anew, from whatever the memory holds now: the worst that `new` can meet.
        let mut consumer = memory.consumer(PAYLOAD_BYTES_MAX);
        let mut producer = memory.producer(PAYLOAD_BYTES_MAX);
        for _ in 0..20 {
            // Under miri not, for the same reason as above.
            if !cfg!(miri) {
                let len = random.below(300);
                let pushed = producer.push(RecordHeader::default(), &[&[0xA5; 300][..len]]);
                if producer.is_stalled()
                    && let (Ok(Some(mut guard)), Ok(span)) = (producer.try_cancel(), pushed)
                {
                    guard.void(span);
                }
            }
            read += drain(&mut consumer, 10);
            consumer.publish_head();
            if random.below(4) == 0 {
                consumer.stall();
                consumer.resume();
            }
            let _ = (consumer.arm(), producer.needs_wake());
            consumer.disarm();
        }
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
    assert!(cfg!(miri) || read > 0, "some records got through");
}
