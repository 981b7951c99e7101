//! Latency under load: messages leave by the clock, whether or not echoes have come, and latency counts from when a
//! message was due. A sender that is late sends all that is due at once, and the delay is charged to the messages: none
//! is left out because the one before was slow (no coordinated omission).

use crate::reading::Reading;
use cci_measure::channel::{Channel, put_stamp};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::statistics::Times;
use cci_sys::clock;

/// How long the highest rate is looked for, and how long messages leave by the clock.
const SEARCH_NS: u64 = 100_000_000;
const LOAD_NS: u64 = 400_000_000;
/// Under way at once while the highest rate is looked for.
const WINDOW: u64 = 128;
/// Received between two looks at what is due.
const BURST: u64 = 64;
/// Where messages may be lost, those that have not come after so much silence are. On a busy machine the partner may be
/// away for a tenth of that.
const LOST_AFTER_NS: u64 = 1_000_000_000;
/// Nothing is waited for longer.
const SILENCE_NS: u64 = 20_000_000_000;
/// The stamp that ends the partner's part.
const END: u64 = u64::MAX;

/// The first side: the highest rate of echoes first, and then `percent` of it.
pub fn run<C: Channel>(channel: &mut C, len: u32, percent: u32) -> Outcome<Reading> {
    if len < 8 {
        return Err(Failure::new("too short to distinguish messages"));
    }
    let mut message = vec![7; len as usize];
    // Once to warm up.
    highest_per_s(channel, &mut message)?;
    let per_s = highest_per_s(channel, &mut message)? * f64::from(percent) / 100.0;
    let found = load(channel, &mut message, per_s)?;
    put_stamp(&mut message, END);
    channel.send(&message)?;
    if C::RELIABLE && found.came < found.sent {
        return Err(Failure::new(format!("{} of {} messages came", found.came, found.sent)));
    }
    if found.came == 0 {
        return Err(Failure::new("no echoes by the clock"));
    }
    let at = |part: f64| found.times.quantile_ns(part) as f64;
    Ok(Reading {
        quantiles_ns: Some([at(0.5), at(0.99), at(0.999)]),
        arrived: (!C::RELIABLE).then(|| found.came as f64 / found.sent.max(1) as f64),
        per_s: Some(per_s),
        ..Reading::of(at(0.5))
    })
}

/// The partner: every message goes back.
pub fn echo(channel: &mut impl Channel, len: u32) -> Outcome {
    let mut message = vec![7; len as usize];
    loop {
        match channel.receive()? {
            END => return Ok(()),
            stamp => {
                put_stamp(&mut message, stamp);
                channel.send(&message)?;
            }
        }
    }
}

/// Echoes a second with a window of messages under way all the time.
fn highest_per_s(channel: &mut impl Channel, message: &mut [u8]) -> Outcome<f64> {
    put_stamp(message, 0);
    let begin_ns = clock::now_ns();
    let (mut sent, mut came, mut now_ns, mut last_ns) = (0, 0, begin_ns, begin_ns);
    // All must be back in the end: what came later would be counted as an echo of what is measured.
    while now_ns - begin_ns < SEARCH_NS || came < sent {
        while now_ns - begin_ns < SEARCH_NS && sent - came < WINDOW && channel.try_send(message)? {
            sent += 1;
        }
        let before = came;
        while came < sent && channel.try_receive()?.is_some() {
            came += 1;
        }
        now_ns = clock::now_ns();
        if came > before {
            last_ns = now_ns;
        } else if now_ns - last_ns > LOST_AFTER_NS && now_ns - begin_ns > SEARCH_NS {
            break;
        }
    }
    if came == 0 {
        return Err(Failure::new("no echoes"));
    }
    Ok(came as f64 * 1e9 / (last_ns - begin_ns).max(1) as f64)
}

/// What came of messages by the clock.
struct Load {
    times: Times,
    sent: u64,
    came: u64,
}

fn load<C: Channel>(channel: &mut C, message: &mut [u8], per_s: f64) -> Outcome<Load> {
    let mut times = Times::default();
    let clock = Schedule { begin_ns: clock::now_ns(), per_s };
    let total = ((LOAD_NS as f64 * per_s / 1e9) as u64).max(1);
    let patience_ns = if C::RELIABLE { SILENCE_NS } else { LOST_AFTER_NS };
    let (mut sent, mut came, mut last_ns) = (0, 0, clock.begin_ns);
    while came < total {
        let now_ns = clock::now_ns();
        let before = (sent, came);
        while sent < total && clock.due_ns(sent) <= now_ns {
            // Its number, from 1 on: 0 is what the search for the highest rate sent.
            put_stamp(message, sent + 1);
            if !channel.try_send(message)? {
                break;
            }
            sent += 1;
        }
        for _ in 0..BURST {
            match channel.try_receive()? {
                None => break,
                Some(0) => {}
                Some(stamp) => {
                    let due_ns = clock.due_ns(stamp - 1);
                    times.record(clock::now_ns().saturating_sub(due_ns).max(1));
                    came += 1;
                }
            }
        }
        if (sent, came) != before {
            last_ns = now_ns;
        } else if sent == total && now_ns.saturating_sub(last_ns) > patience_ns {
            break;
        }
    }
    Ok(Load { times, sent, came })
}

/// When messages are due.
struct Schedule {
    begin_ns: u64,
    per_s: f64,
}

impl Schedule {
    /// Of this number, from 0 on. By multiplication: adding up rounded intervals would drift.
    #[inline]
    fn due_ns(&self, number: u64) -> u64 {
        self.begin_ns + (number as f64 * 1e9 / self.per_s) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Echoes of its own, none of them for a while after the first message by the clock.
    struct Stalls {
        echoes: VecDeque<u64>,
        until_ns: u64,
    }

    impl Channel for Stalls {
        fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
            self.echoes.push_back(cci_measure::channel::stamp(message));
            if self.until_ns == 0 {
                self.until_ns = clock::now_ns() + 100_000_000;
            }
            Ok(true)
        }
        fn try_receive(&mut self) -> Outcome<Option<u64>> {
            Ok(if clock::now_ns() < self.until_ns { None } else { self.echoes.pop_front() })
        }
    }

    #[test]
    fn a_stall_is_charged_to_all_that_were_due_in_it() {
        let mut channel = Stalls { echoes: VecDeque::new(), until_ns: 0 };
        let found = load(&mut channel, &mut [0; 8], 10_000.0).unwrap();
        assert_eq!((found.came, found.sent), (4_000, 4_000));
        // 100 of 400 ms were silent: about a quarter of the messages waited, half of these longer than 50 ms.
        // So at least 550 of 4,000 are late by 40 ms or more.
        let late_ns = found.times.quantile_ns(1.0 - 550.0 / 4_000.0);
        assert!(late_ns >= 40_000_000, "{late_ns}");
        assert!(found.times.quantile_ns(1.0) >= 99_000_000, "{}", found.times.quantile_ns(1.0));
    }
}
