//! Time from a counter, set by a slower clock now and then.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// So long a line is believed; then the system's clock is asked again. It bounds how far off we are where counter and clock
/// part: the system is suspended, or its clock slowed by the time service (by 1/2000 at most: 2 µs).
const LINE_NS: u64 = 4_000_000;
/// A rate is measured over so much at least: asking the system is some 30 ns vague.
const MEASURE_NS: u64 = 2_000_000;
/// If asking the system took longer than this, something came between, and nothing is measured by it.
const VAGUE_NS: u64 = 250;
const TRIES: u32 = 3;
/// Failed measurements before the first line after which there will be none: where asking always takes long, under valgrind
/// or where a hypervisor answers, each reading would ask six times more.
const VAGUE_MAX: u8 = 32;
/// A rate that differs from the last by more than a part in so many means that counter and clock have parted.
const RATE_PART: u64 = 512;
/// Rates are nanoseconds a tick, times two to this.
const SHIFT: u32 = 32;

/// What time is made of.
pub(super) trait Source {
    /// The processor's counter.
    fn ticks(&self) -> u64;
    /// Whether the counter may be used. Asked once.
    fn is_steady(&self) -> bool;
    /// The slower clock. Never goes back.
    fn system_ns(&self) -> u64;
}

/// A line: time by the counter, from `ticks` on, for `limit` ticks at most. With none the system's clock is the time, but
/// never earlier than `ns`.
#[derive(Copy, Clone)]
struct Line {
    ticks: u64,
    ns: u64,
    rate: u64,
    limit: u64,
}

impl Line {
    #[inline]
    fn at(&self, ticks: u64) -> u64 {
        self.ns.wrapping_add(ticks.wrapping_mul(self.rate) >> SHIFT)
    }

    /// The time at `ticks`, or that at the line's start or end if `ticks` is outside of it.
    fn latest_ns(&self, ticks: u64) -> u64 {
        let passed = ticks.wrapping_sub(self.ticks);
        if passed.wrapping_neg() <= self.limit {
            // Another processor's counter may be a little behind that of who drew the line.
            return self.ns;
        }
        self.at(passed.min(self.limit))
    }
}

/// A line where threads share it.
struct Slot {
    ticks: AtomicU64,
    ns: AtomicU64,
    rate: AtomicU64,
    limit: AtomicU64,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            ticks: AtomicU64::new(0),
            ns: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            limit: AtomicU64::new(0),
        }
    }

    #[inline]
    fn load(&self) -> Line {
        Line {
            ticks: self.ticks.load(Ordering::Relaxed),
            ns: self.ns.load(Ordering::Relaxed),
            rate: self.rate.load(Ordering::Relaxed),
            limit: self.limit.load(Ordering::Relaxed),
        }
    }

    fn store(&self, line: Line) {
        self.ticks.store(line.ticks, Ordering::Relaxed);
        self.ns.store(line.ns, Ordering::Relaxed);
        self.rate.store(line.rate, Ordering::Relaxed);
        self.limit.store(line.limit, Ordering::Relaxed);
    }
}

const UNKNOWN: u8 = 0;
const STEADY: u8 = 1;
const UNSTEADY: u8 = 2;

/// The time by the last line. No thread waits for another: who finds the line too old draws the next one, and who
/// finds another at that asks the system.
#[repr(align(64))]
pub(super) struct Estimate<S> {
    /// Number of the line in use. It lies in the slot of its lowest bit; the other one may be being written.
    number: AtomicU32,
    drawing: AtomicBool,
    steady: AtomicU8,
    /// How often counter and clock could not be compared. For who draws.
    vague: AtomicU8,
    slots: [Slot; 2],
    /// Counter and system's clock when they were last compared, and the rate then. For who draws.
    compared: Slot,
    source: S,
}

impl<S: Source> Estimate<S> {
    pub const fn new(source: S) -> Estimate<S> {
        Estimate {
            number: AtomicU32::new(0),
            drawing: AtomicBool::new(false),
            steady: AtomicU8::new(UNKNOWN),
            vague: AtomicU8::new(0),
            slots: [Slot::new(), Slot::new()],
            compared: Slot::new(),
            source,
        }
    }

    #[inline]
    pub fn now_ns(&self) -> u64 {
        let number = self.number.load(Ordering::Acquire);
        let line = self.slot(number).load();
        if line.limit != 0 {
            let ticks = self.source.ticks().wrapping_sub(line.ticks);
            // What was read is one line only if it is still in use.
            fence(Ordering::Acquire);
            // Also where the counter is before the line's start: that is a large number.
            if ticks <= line.limit && self.number.load(Ordering::Relaxed) == number {
                return line.at(ticks);
            }
        }
        self.beyond()
    }

    #[cfg(test)]
    pub fn source(&self) -> &S {
        &self.source
    }

    #[inline]
    fn slot(&self, number: u32) -> &Slot {
        let [even, odd] = &self.slots;
        if number & 1 == 0 { even } else { odd }
    }

    fn line(&self) -> Line {
        loop {
            let number = self.number.load(Ordering::Acquire);
            let line = self.slot(number).load();
            fence(Ordering::Acquire);
            if self.number.load(Ordering::Relaxed) == number {
                return line;
            }
        }
    }

    /// The line does not cover this moment: draws another one.
    #[cold]
    fn beyond(&self) -> u64 {
        match self.steady.load(Ordering::Relaxed) {
            UNSTEADY => return self.source.system_ns(),
            UNKNOWN => {
                let steady = if self.source.is_steady() { STEADY } else { UNSTEADY };
                self.steady.store(steady, Ordering::Relaxed);
                return self.source.system_ns();
            }
            _ => {}
        }
        if self.drawing.swap(true, Ordering::Acquire) {
            // Another thread is at it, or was interrupted in the middle.
            let line = self.line();
            return line.latest_ns(self.source.ticks()).max(self.source.system_ns());
        }
        let now_ns = self.draw();
        self.drawing.store(false, Ordering::Release);
        now_ns
    }

    /// Compares counter and clock, and writes the next line: on from the last one, towards the system's clock.
    fn draw(&self) -> u64 {
        let (last, before) = (self.line(), self.compared.load());
        let Some((ticks, system_ns)) = self.compare() else {
            let vague = self.vague.load(Ordering::Relaxed).saturating_add(1);
            self.vague.store(vague, Ordering::Relaxed);
            // Not once a line was drawn: its times may be ahead of the system's clock.
            if before.ns == 0 && vague >= VAGUE_MAX {
                self.steady.store(UNSTEADY, Ordering::Relaxed);
            }
            return last.latest_ns(self.source.ticks()).max(self.source.system_ns());
        };
        let now_ns = last.latest_ns(ticks).max(system_ns);
        if ticks.wrapping_sub(last.ticks) < last.limit {
            // Another thread has just drawn it.
            return last.latest_ns(ticks);
        }
        let blank = Line { ticks, ns: now_ns, rate: 0, limit: 0 };
        let compared = Line { ticks, ns: system_ns, rate: 0, limit: 0 };
        let since_ns = system_ns.saturating_sub(before.ns);
        let rate = match since_ns {
            0..MEASURE_NS => before.rate,
            _ => rate(ticks.wrapping_sub(before.ticks), since_ns).unwrap_or(0),
        };
        let ahead_ns = now_ns - system_ns;
        let parted = before.rate != 0
            && (rate.abs_diff(before.rate) > before.rate / RATE_PART || ahead_ns > LINE_NS / 8);
        if before.ns == 0 || parted {
            // To be measured from now on, or anew.
            self.compared.store(compared);
            self.publish(blank);
            return now_ns;
        }
        if rate == 0 {
            return now_ns;
        }
        if since_ns >= MEASURE_NS {
            self.compared.store(Line { rate, ..compared });
        }
        let limit = (u128::from(LINE_NS) << SHIFT) / u128::from(rate);
        // What we are ahead is made up by the line's end.
        let slower = u128::from(rate) * u128::from(ahead_ns.min(LINE_NS / 8)) / u128::from(LINE_NS);
        self.publish(Line { rate: rate - slower as u64, limit: limit as u64, ..blank });
        now_ns
    }

    /// Counter and system's clock at one time, if that can be found. The clock is the later one of the two: what the next
    /// line gives is then never behind what another thread has from the system meanwhile.
    fn compare(&self) -> Option<(u64, u64)> {
        (0..TRIES).find_map(|_| {
            let before_ns = self.source.system_ns();
            let ticks = self.source.ticks();
            let after_ns = self.source.system_ns();
            (after_ns - before_ns < VAGUE_NS).then_some((ticks, after_ns))
        })
    }

    fn publish(&self, line: Line) {
        // Only who draws writes it.
        let number = self.number.load(Ordering::Relaxed).wrapping_add(1);
        // Whoever sees part of the new line below sees that the number it began with has passed.
        fence(Ordering::Release);
        self.slot(number).store(line);
        self.number.store(number, Ordering::Release);
    }
}

/// Nanoseconds a tick, if that makes sense: between a thousandth and a thousand.
fn rate(ticks: u64, ns: u64) -> Option<u64> {
    let rate = (u128::from(ns) << SHIFT).checked_div(u128::from(ticks))?;
    let sensible = (1u128 << SHIFT) / 1_000..=1_000 << SHIFT;
    if sensible.contains(&rate) { u64::try_from(rate).ok() } else { None }
}
