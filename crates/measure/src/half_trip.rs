//! Messages there and back, one at a time.

use crate::channel::{Channel, SILENCE_NS};
use crate::failure::{Failure, Outcome};
use cci_sys::clock;

/// Where messages may be lost, an echo that takes longer is: its message is sent again, so often at most.
const LOST_AFTER_NS: u64 = 50_000_000;
const SENT_AGAIN_MAX: u32 = 100;

/// What is kept of the trips, and how many there are.
pub trait Meter {
    /// A message is about to leave.
    fn leaves(&mut self);

    /// Its echo is here. False: that was the last trip.
    fn is_back(&mut self) -> bool;
}

/// The mean of all trips after a warm-up, without a look at the clock in between.
pub struct Mean {
    warm_up: u64,
    count: u64,
    done: u64,
    begin_ns: u64,
}

impl Mean {
    /// Of so many trips, at least one; a tenth more are the warm-up.
    pub const fn of(count: u64) -> Mean {
        Mean { warm_up: warm_up(count), count, done: 0, begin_ns: 0 }
    }

    /// Half of the mean trip, nanoseconds. To be asked for when the last one is back.
    pub fn half_ns(&self) -> f64 {
        (clock::now_ns() - self.begin_ns) as f64 / self.count.max(1) as f64 / 2.0
    }
}

const fn warm_up(count: u64) -> u64 {
    count / 10
}

impl Meter for Mean {
    #[inline]
    fn leaves(&mut self) {
        if self.done == self.warm_up {
            self.begin_ns = clock::now_ns();
        }
    }

    #[inline]
    fn is_back(&mut self) -> bool {
        self.done += 1;
        self.done < self.warm_up + self.count
    }
}

/// The first side: messages of `len` bytes until the meter has enough.
///
/// # Errors
/// The channel's, and where echoes do not come.
pub fn ask<C: Channel>(channel: &mut C, len: u32, meter: &mut impl Meter) -> Outcome {
    let message = vec![7; len as usize];
    let silence_ns = if C::RELIABLE { SILENCE_NS } else { LOST_AFTER_NS };
    let mut again = 0;
    loop {
        meter.leaves();
        channel.send(&message)?;
        if channel.receive_within(silence_ns)?.is_some() {
            again = 0;
            if !meter.is_back() {
                return Ok(());
            }
        } else {
            again += 1;
            if C::RELIABLE || again > SENT_AGAIN_MAX {
                return Err(Failure::new("nothing comes"));
            }
        }
    }
}

/// As many as [`Mean::of`] wants, at the first side: half of the mean trip, nanoseconds.
///
/// # Errors
/// Those of [`ask`].
pub fn mean_ns(channel: &mut impl Channel, len: u32, count: u64) -> Outcome<f64> {
    let mut mean = Mean::of(count);
    ask(channel, len, &mut mean)?;
    let half_ns = mean.half_ns();
    // The partner's last one is on its way until this side has said that it has it.
    channel.send(&vec![7; len as usize])?;
    Ok(half_ns)
}

/// The partner of [`mean_ns`].
///
/// # Errors
/// The channel's.
pub fn answer(channel: &mut impl Channel, len: u32, count: u64) -> Outcome {
    let message = vec![7; len as usize];
    for _ in 0..warm_up(count) + count {
        channel.receive()?;
        channel.send(&message)?;
    }
    channel.receive().map(drop)
}
