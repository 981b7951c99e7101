//! The ring against its baseline: half round trips of 8 bytes, next to one cache line bounced between the same threads.
//!
//! `cargo run --release -p cci-memory --example pingpong` on an idle machine; rounds of both alternate, so that what
//! disturbs one disturbs the other.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use cci_memory::atomic::{AtomicU64, Ordering};
use cci_memory::ring::{Consumer, Producer, RecordHeader, region_bytes};

const DATA_BYTES: usize = 1 << 16;
const TRIPS: u64 = 20_000;
const ROUNDS: usize = 100;

struct Memory(NonNull<u8>, Layout);
// SAFETY: only an address; the ring's two ends exclude each other.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}
impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed` with this layout.
        unsafe { dealloc(self.0.as_ptr(), self.1) }
    }
}

type Ends = (Producer<Arc<Memory>>, Consumer<Arc<Memory>>);

fn ring() -> Ends {
    let layout = Layout::from_size_align(region_bytes(DATA_BYTES), 4096).unwrap();
    // SAFETY: the layout is not empty.
    let memory = Arc::new(Memory(NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap(), layout));
    // SAFETY: zeroed, kept by the `Arc`, one producer and one consumer.
    unsafe {
        let producer = Producer::new(memory.0, layout.size(), 1024, Arc::clone(&memory)).unwrap();
        (producer, Consumer::new(memory.0, layout.size(), 1024, Arc::clone(&memory)).unwrap())
    }
}

#[repr(align(128))]
struct Line(AtomicU64);

/// Half a round trip of the bare line, in ns.
fn bounce(line: &Line, odd: bool, base: u64) {
    for trip in 0..TRIPS {
        let (wait, then) = if odd { (base + 2 * trip + 1, 2) } else { (base + 2 * trip, 1) };
        while line.0.load(Ordering::Acquire) != wait {
            std::hint::spin_loop();
        }
        line.0.store(wait + if odd { then - 1 } else { then }, Ordering::Release);
    }
}

/// Bounces with a cache line for each direction, as any two rings have: the reader's polling takes the line away from the
/// writer, which has to fetch it back.
fn bounce_two(lines: &[Line; 2], odd: bool, base: u64) {
    let (mine, theirs) = (&lines[usize::from(odd)].0, &lines[usize::from(!odd)].0);
    for trip in base + 1..=base + TRIPS {
        if !odd {
            mine.store(trip, Ordering::Release);
        }
        while theirs.load(Ordering::Acquire) != trip {
            std::hint::spin_loop();
        }
        if odd {
            mine.store(trip, Ordering::Release);
        }
    }
}

fn send(producer: &mut Producer<Arc<Memory>>, number: u64, wakes: bool) {
    let header = RecordHeader { kind: 1, flags: 0, conn: 5, ack: 0 };
    while producer.push(header, &[&number.to_ne_bytes()]).is_err() {}
    if wakes {
        assert!(!producer.needs_wake());
    }
}

fn receive(consumer: &mut Consumer<Arc<Memory>>, answers: &Producer<Arc<Memory>>) -> u64 {
    loop {
        if let Some(record) = consumer.peek().unwrap() {
            answers.prefetch();
            let mut bytes = [0; 8];
            record.copy_to(&mut bytes);
            consumer.consume();
            consumer.publish_head();
            return u64::from_ne_bytes(bytes);
        }
        std::hint::spin_loop();
    }
}

fn main() {
    let line = Arc::new(Line(AtomicU64::new(0)));
    let two = Arc::new([Line(AtomicU64::new(0)), Line(AtomicU64::new(0))]);
    let (forth, back) = (ring(), ring());
    let (mut out, mut echo_in) = forth;
    let (mut echo_out, mut input) = back;
    // Also keeps the two in step between rounds.
    let gate = Arc::new(std::sync::Barrier::new(2));
    let echo = std::thread::spawn({
        let (line, two, gate) = (Arc::clone(&line), Arc::clone(&two), Arc::clone(&gate));
        move || {
            for round in 0..ROUNDS {
                gate.wait();
                bounce(&line, true, round as u64 * 2 * TRIPS);
                gate.wait();
                bounce_two(&two, true, round as u64 * TRIPS);
                for wakes in [false, true] {
                    gate.wait();
                    for _ in 0..TRIPS {
                        let number = receive(&mut echo_in, &echo_out);
                        send(&mut echo_out, number, wakes);
                    }
                }
            }
        }
    });
    let mut half_ns: [Vec<f64>; 4] = Default::default();
    for round in 0..ROUNDS {
        gate.wait();
        let start = Instant::now();
        bounce(&line, false, round as u64 * 2 * TRIPS);
        // The last answer is the next round's start: half a trip of 20,000 missing is not seen.
        half_ns[0].push(start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0);
        gate.wait();
        let start = Instant::now();
        bounce_two(&two, false, round as u64 * TRIPS);
        half_ns[3].push(start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0);
        for wakes in [false, true] {
            gate.wait();
            let start = Instant::now();
            for number in 0..TRIPS {
                send(&mut out, number, wakes);
                assert_eq!(receive(&mut input, &out), number);
            }
            half_ns[1 + usize::from(wakes)].push(start.elapsed().as_nanos() as f64 / TRIPS as f64 / 2.0);
        }
    }
    echo.join().unwrap();
    // Ratios within a round: a virtual machine's cores may move between siblings (20 ns) and sockets (300 ns).
    let report = |name: &str, sample: &[f64]| {
        let mut ratios: Vec<f64> =
            sample.iter().zip(&half_ns[0]).map(|(ring, baseline)| ring / baseline).collect();
        let mut sample = sample.to_vec();
        sample.sort_by(f64::total_cmp);
        ratios.sort_by(f64::total_cmp);
        let of = |sorted: &[f64]| [sorted[ROUNDS / 10], sorted[ROUNDS / 2], sorted[ROUNDS * 9 / 10]];
        println!("{name:<28} p10, p50, p90: {:6.1?} ns, {:.2?} x", of(&sample), of(&ratios));
    };
    report("cache line bounced", &half_ns[0]);
    report("one line each way", &half_ns[3]);
    report("ring, 8 B", &half_ns[1]);
    report("ring, 8 B, with needs_wake", &half_ns[2]);
    stream();
}

/// One way, as fast as it goes: the consumer publishes its position once in 32 records.
fn stream() {
    const RECORDS: u64 = 200_000;
    let (mut producer, mut consumer) = ring();
    let sink = std::thread::spawn(move || {
        for batch in 0..RECORDS * ROUNDS as u64 / 32 {
            for number in 32 * batch..32 * (batch + 1) {
                let mut bytes = [0; 8];
                loop {
                    if let Some(record) = consumer.peek().unwrap() {
                        record.copy_to(&mut bytes);
                        break;
                    }
                    std::hint::spin_loop();
                }
                assert_eq!(u64::from_ne_bytes(bytes), number);
                consumer.consume();
            }
            consumer.publish_head();
        }
    });
    let mut each_ns: Vec<f64> = (0..ROUNDS as u64)
        .map(|round| {
            let start = Instant::now();
            for number in round * RECORDS..(round + 1) * RECORDS {
                send(&mut producer, number, false);
            }
            start.elapsed().as_nanos() as f64 / RECORDS as f64
        })
        .collect();
    sink.join().unwrap();
    each_ns.sort_by(f64::total_cmp);
    let of = [each_ns[ROUNDS / 10], each_ns[ROUNDS / 2], each_ns[ROUNDS * 9 / 10]];
    println!("ring, 8 B, one way           p10, p50, p90: {of:6.1?} ns a record");
}
