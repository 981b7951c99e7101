//! Messages one way, as fast as they go.

use crate::reading::Reading;
use crate::worker::channel::{Channel, put_stamp};
use cci_measure::trouble::{Outcome, Trouble};
use cci_sys::clock;

/// Messages between two calls of [`Channel::flush`].
const BURST: u64 = 32;
/// Where messages may be lost, none for so long means that no more come.
const LULL_NS: u64 = 20_000_000;

/// The first side: messages a second, from the first send to the partner's word that it has all. Where they may be lost,
/// to the last send, and beside it how many arrived.
pub fn send<C: Channel>(channel: &mut C, count: u64, len: u32) -> Outcome<Reading> {
    let message = vec![7; len as usize];
    burst(channel, &message, warm_up(count))?;
    let (took_ns, came) = burst(channel, &message, count)?;
    // The partner's answer is on its way until we have said that we have it.
    channel.send(&message)?;
    let mut reading = Reading::of(count as f64 * 1e9 / took_ns.max(1) as f64);
    if !C::RELIABLE {
        reading.arrived = Some(came as f64 / count.max(1) as f64);
    } else if len >= 8 && came != count {
        return Err(Trouble::new(format!("{came} of {count} messages came")));
    }
    Ok(reading)
}

/// The partner.
pub fn take<C: Channel>(channel: &mut C, count: u64, len: u32) -> Outcome {
    let mut answer = vec![0; len as usize];
    for count in [warm_up(count), count] {
        let came = if C::RELIABLE { take_all(channel, count)? } else { take_until_lull(channel)? };
        put_stamp(&mut answer, came);
        channel.send(&answer)?;
    }
    channel.receive().map(drop)
}

fn warm_up(count: u64) -> u64 {
    count / 10 + 1
}

/// Sends so many: the nanoseconds, and how many the partner had.
fn burst<C: Channel>(channel: &mut C, message: &[u8], count: u64) -> Outcome<(u64, u64)> {
    let begin_ns = clock::now_ns();
    for nth in 1..=count {
        channel.send(message)?;
        if nth % BURST == 0 {
            channel.flush();
        }
    }
    let sent_ns = clock::now_ns();
    let came = channel.receive()?;
    let end_ns = if C::RELIABLE { clock::now_ns() } else { sent_ns };
    Ok((end_ns - begin_ns, came))
}

fn take_all(channel: &mut impl Channel, count: u64) -> Outcome<u64> {
    for _ in 0..count {
        channel.receive()?;
    }
    Ok(count)
}

fn take_until_lull<C: Channel>(channel: &mut C) -> Outcome<u64> {
    channel.receive()?;
    let (mut came, mut quiet_since_ns) = (1, clock::now_ns());
    loop {
        let before = came;
        for _ in 0..BURST {
            came += u64::from(channel.try_receive()?.is_some());
        }
        let now_ns = clock::now_ns();
        if came > before {
            quiet_since_ns = now_ns;
        } else if now_ns - quiet_since_ns > LULL_NS {
            return Ok(came);
        }
    }
}
