//! Messages there and back, one at a time.

use crate::reading::Reading;
use crate::worker::channel::Channel;
use cci_measure::trouble::Outcome;
use cci_sys::clock;

/// The first side: half of the mean round trip after a warm-up, without a look at the clock in between.
pub fn ask(channel: &mut impl Channel, count: u64, len: u32) -> Outcome<Reading> {
    let (message, warm_up) = (vec![7; len as usize], count / 10);
    let mut begin_ns = 0;
    for trip in 0..warm_up + count {
        if trip == warm_up {
            begin_ns = clock::now_ns();
        }
        channel.send(&message)?;
        channel.receive()?;
    }
    let took_ns = clock::now_ns() - begin_ns;
    // The partner's last one is on its way until we have said that we have it.
    channel.send(&message)?;
    Ok(Reading::of(took_ns as f64 / count.max(1) as f64 / 2.0))
}

/// The partner.
pub fn answer(channel: &mut impl Channel, count: u64, len: u32) -> Outcome {
    let message = vec![7; len as usize];
    for _ in 0..count / 10 + count {
        channel.receive()?;
        channel.send(&message)?;
    }
    channel.receive().map(drop)
}
