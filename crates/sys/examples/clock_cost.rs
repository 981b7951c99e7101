//! What reading the clock costs, beside the system's own call. `cargo run --release -p cci-sys --example clock_cost`.
#![allow(clippy::print_stdout)]

use cci_sys::clock::now_ns;
use std::hint::black_box;
use std::time::{Duration, Instant};

const READINGS: u32 = 2_000_000;
const ROUNDS: usize = 7;

/// Nanoseconds a call, the least of several rounds.
fn cost(mut read: impl FnMut()) -> f64 {
    let round = |_| {
        let begin = Instant::now();
        (0..READINGS).for_each(|_| read());
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(READINGS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn main() {
    now_ns();
    std::thread::sleep(Duration::from_millis(5));
    let (system, ours) = (cost(|| _ = black_box(Instant::now())), cost(|| _ = black_box(now_ns())));
    println!("clock_gettime {system:.1} ns, ours {ours:.1} ns ({:.2} of it)", ours / system);
}
