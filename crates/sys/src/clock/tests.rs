use super::estimate::{Estimate, Source};
use super::{now_ns, system_ns};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn never_runs_backward() {
    let until = Instant::now() + Duration::from_millis(30);
    let mut last_ns = now_ns();
    while Instant::now() < until {
        for _ in 0..1_000 {
            let now = now_ns();
            assert!(now >= last_ns);
            last_ns = now;
        }
    }
}

#[test]
fn keeps_to_the_systems_clock() {
    let (mut worst_ns, mut readings) = (0, 0);
    let until = Instant::now() + Duration::from_millis(100);
    while Instant::now() < until {
        let (before, now, after) = (system_ns(), now_ns(), system_ns());
        // Who was interrupted in between knows nothing.
        if after - before < 1_000 {
            worst_ns = worst_ns.max(before.saturating_sub(now)).max(now.saturating_sub(after));
            readings += 1;
        }
    }
    println!("{worst_ns} ns off at worst, of {readings} readings");
    // Most of it is that asking for the time takes a while.
    assert!(readings > 100 && worst_ns < 1_000, "{worst_ns} ns off");
}

#[test]
fn goes_on_from_thread_to_thread() {
    let (last_ns, until) = (Mutex::new(0_u64), Instant::now() + Duration::from_millis(50));
    let worst_ns = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < until {
                    for _ in 0..100 {
                        let mut last_ns = last_ns.lock().unwrap();
                        let now = now_ns();
                        worst_ns.fetch_max(last_ns.saturating_sub(now), Ordering::Relaxed);
                        *last_ns = now.max(*last_ns);
                    }
                }
            });
        }
    });
    // The processor may read its counter before it has the lock.
    let worst_ns = worst_ns.into_inner();
    println!("{worst_ns} ns back at worst");
    assert!(worst_ns < 1_000, "{worst_ns} ns back");
}

#[test]
fn waits_end_when_the_systems_do() {
    let begin = Instant::now();
    let until_ns = now_ns() + 5_000_000;
    while now_ns() < until_ns {}
    assert!(begin.elapsed() >= Duration::from_micros(4_990), "{:?}", begin.elapsed());
}

/// A machine whose time is what a test says: the true time in nanoseconds, and how counter and clock differ from it.
struct Made {
    true_ns: Cell<u64>,
    ticks_an_us: Cell<u64>,
    ticks: Cell<u64>,
    /// What there is of the next tick, thousandths.
    tick_parts: Cell<u64>,
    /// What the system's clock did not count.
    asleep_ns: Cell<u64>,
    /// What asking the system takes.
    asking_ns: Cell<u64>,
    asked: Cell<u64>,
    steady: bool,
}

impl Made {
    fn new(ticks_an_us: u64, steady: bool) -> Estimate<&'static Made> {
        let made = Made {
            true_ns: Cell::new(1_000_000_000),
            ticks_an_us: Cell::new(ticks_an_us),
            ticks: Cell::new(77),
            tick_parts: Cell::new(0),
            asleep_ns: Cell::new(0),
            asking_ns: Cell::new(0),
            asked: Cell::new(0),
            steady,
        };
        Estimate::new(Box::leak(Box::new(made)))
    }

    fn pass(&self, ns: u64) {
        self.true_ns.set(self.true_ns.get() + ns);
        let parts = ns * self.ticks_an_us.get() + self.tick_parts.get();
        self.ticks.set(self.ticks.get().wrapping_add(parts / 1_000));
        self.tick_parts.set(parts % 1_000);
    }

    fn real_ns(&self) -> u64 {
        self.true_ns.get() - self.asleep_ns.get()
    }
}

impl Source for &'static Made {
    fn ticks(&self) -> u64 {
        self.ticks.get()
    }

    fn is_steady(&self) -> bool {
        self.steady
    }

    fn system_ns(&self) -> u64 {
        self.asked.set(self.asked.get() + 1);
        self.pass(self.asking_ns.get());
        self.real_ns()
    }
}

/// Reads for so long, every `every_ns`; how far off at worst. Never back.
fn run(clock: &Estimate<&'static Made>, for_ns: u64, every_ns: u64) -> u64 {
    let made = clock.source();
    let (until_ns, mut worst_ns) = (made.true_ns.get() + for_ns, 0);
    let mut last_ns = clock.now_ns();
    while made.true_ns.get() < until_ns {
        made.pass(every_ns);
        let now_ns = clock.now_ns();
        assert!(now_ns >= last_ns, "{} ns back", last_ns - now_ns);
        last_ns = now_ns;
        worst_ns = worst_ns.max(now_ns.abs_diff(made.real_ns()));
    }
    worst_ns
}

const MS: u64 = 1_000_000;

#[test]
fn any_counters_rate_will_do() {
    for ticks_an_us in [10, 25, 1_000, 2_596, 100_000] {
        let clock = Made::new(ticks_an_us, true);
        assert!(run(&clock, 3 * MS, 700) <= 1_000, "while it measures");
        let asked = clock.source().asked.get();
        let worst_ns = run(&clock, 400 * MS, 700);
        // Two ticks of the slowest.
        assert!(worst_ns <= 2_000 / ticks_an_us + 2, "{worst_ns} ns off with {ticks_an_us} ticks a µs");
        let asked = clock.source().asked.get() - asked;
        assert!(asked <= 2 * 400 / 4 + 4, "asked the system {asked} times in 400 ms");
    }
}

#[test]
fn asking_slowly_does_no_harm() {
    let clock = Made::new(2_596, true);
    clock.source().asking_ns.set(45);
    run(&clock, 5 * MS, 900);
    let worst_ns = run(&clock, 400 * MS, 900);
    assert!(worst_ns <= 200, "{worst_ns} ns off");
    // Too slowly to compare: the last line ends, and the system's clock is the time.
    clock.source().asking_ns.set(5_000);
    assert!(run(&clock, 20 * MS, 900) <= 10_000);
    clock.source().asking_ns.set(45);
    assert!(run(&clock, 400 * MS, 900) <= 10_000);
    assert!(run(&clock, 400 * MS, 900) <= 200);
}

#[test]
fn a_system_that_sleeps_is_noticed() {
    let clock = Made::new(2_596, true);
    run(&clock, 50 * MS, 700);
    for (slept_ms, awake_ns) in [(1, 10_000), (3_600_000, 10_000), (3_600_000, 3 * MS), (5, MS)] {
        let made = clock.source();
        run(&clock, awake_ns, 700);
        // The counter goes on, the system's clock does not.
        made.pass(slept_ms * MS);
        made.asleep_ns.set(made.asleep_ns.get() + slept_ms * MS);
        assert!(run(&clock, 10 * MS, 700) <= 4 * MS + 1_000, "at once no more ahead than a line is long");
        run(&clock, 40 * MS, 700);
        assert!(run(&clock, 50 * MS, 700) <= 10, "and later right");
    }
}

#[test]
fn a_counter_that_jumps_or_starts_anew_is_noticed() {
    let clock = Made::new(2_596, true);
    run(&clock, 50 * MS, 700);
    for ticks in [0, u64::MAX - 1_000, 1 << 40, (1 << 40) - 50] {
        clock.source().ticks.set(ticks);
        assert!(run(&clock, 60 * MS, 700) <= 4 * MS + 1_000);
        assert!(run(&clock, 50 * MS, 700) <= 10);
    }
    // Another rate, as after a move to another machine.
    clock.source().ticks_an_us.set(2_000);
    run(&clock, 60 * MS, 700);
    assert!(run(&clock, 50 * MS, 700) <= 10);
}

#[test]
fn a_clock_that_is_being_corrected_is_followed() {
    let clock = Made::new(1_000, true);
    run(&clock, 50 * MS, 1_000);
    // By 1/2000, as the time service does at most.
    let made = clock.source();
    let (mut worst_ns, mut last_ns) = (0, 0);
    for round in 0..200_000u64 {
        made.pass(1_000);
        if (round / 50_000).is_multiple_of(2) && round.is_multiple_of(2) {
            made.asleep_ns.set(made.asleep_ns.get() + 1);
        }
        let now_ns = clock.now_ns();
        assert!(now_ns >= last_ns);
        last_ns = now_ns;
        worst_ns = worst_ns.max(now_ns.abs_diff(made.real_ns()));
    }
    assert!(worst_ns <= 5_000, "{worst_ns} ns off");
}

#[test]
fn seldom_readings_are_the_systems() {
    let clock = Made::new(2_596, true);
    run(&clock, 50 * MS, 700);
    assert!(run(&clock, 10_000 * MS, 50 * MS) <= 2);
}

#[test]
fn without_a_steady_counter_the_system_is_asked() {
    let clock = Made::new(2_596, false);
    assert_eq!(run(&clock, 50 * MS, 700), 0);
    assert!(clock.source().asked.get() > 50 * MS / 700);
}

#[test]
fn where_asking_always_takes_long_it_is_not_compared_for_ever() {
    let clock = Made::new(2_596, true);
    clock.source().asking_ns.set(400);
    run(&clock, MS, 900);
    let asked = clock.source().asked.get();
    let readings = 1_000;
    for _ in 0..readings {
        clock.now_ns();
    }
    assert_eq!(clock.source().asked.get() - asked, readings, "once for each reading");
}
