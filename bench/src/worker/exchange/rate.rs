//! Messages one way, as fast as they go.

use crate::reading::Reading;
use cci_measure::channel::{Channel, put_stamp};
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;

/// Messages begin on a page, as those of other benchmarks do: where source and target differ in their last bits, long copies are slower.
const ALIGN_BYTES: usize = 4096;
/// Where messages may be lost, the end is said again when there is no answer for so long.
const ANSWER_NS: u64 = 5_000_000;
const FAREWELL_NS: u64 = 10_000_000;
const LIMIT_NS: u64 = 20_000_000_000;
/// The last message of a burst where messages may be lost carries this, less the burst's number.
const END: u64 = u64::MAX;

/// The first side: messages a second, from the first send to the partner's word that it has all. Where they may be lost,
/// to the last send, and beside it how many arrived.
pub fn send<C: Channel>(channel: &mut C, count: u64, len: u32) -> Outcome<Reading> {
    let mut message = vec![7; len as usize + ALIGN_BYTES];
    let start = message.as_ptr().align_offset(ALIGN_BYTES).min(ALIGN_BYTES);
    let message = &mut message[start..start + len as usize];
    if !C::RELIABLE {
        if len < 8 {
            return Err(Failure::new("too short to be counted where messages may be lost"));
        }
        lossy_burst(channel, message, warm_up(count), 0)?;
        let (took_ns, came) = lossy_burst(channel, message, count, 1)?;
        let arrived = Some(came as f64 / count.max(1) as f64);
        return Ok(Reading { arrived, ..Reading::of_rate(count, took_ns) });
    }
    burst(channel, message, warm_up(count))?;
    let took_ns = burst(channel, message, count)?;
    // The partner's answer is on its way until we have said that we have it.
    channel.send(message)?;
    Ok(Reading::of_rate(count, took_ns))
}

/// The partner.
pub fn take<C: Channel>(channel: &mut C, count: u64, len: u32) -> Outcome {
    let mut message = vec![0; len as usize];
    for (number, count) in [warm_up(count), count].into_iter().enumerate() {
        if C::RELIABLE {
            // If one is missing, the wait for it fails the turn.
            channel.receive_all(count)?;
        } else {
            let came = take_until(channel, END - number as u64)?;
            put_stamp(&mut message, came);
        }
        channel.send(&message)?;
    }
    if C::RELIABLE {
        return channel.receive().map(drop);
    }
    // The answer leaves before this end is gone.
    let until_ns = clock::now_ns() + FAREWELL_NS;
    while clock::now_ns() < until_ns {
        channel.try_receive()?;
    }
    Ok(())
}

fn warm_up(count: u64) -> u64 {
    count / 10 + 1
}

/// Sends so many, and waits for the partner's word that it has them. Nanoseconds.
fn burst(channel: &mut impl Channel, message: &[u8], count: u64) -> Outcome<u64> {
    let begin_ns = clock::now_ns();
    channel.send_all(message, count)?;
    channel.receive()?;
    Ok(clock::now_ns() - begin_ns)
}

/// Sends so many: nanoseconds to the last send, and how many arrived.
fn lossy_burst<C: Channel>(
    channel: &mut C,
    message: &mut [u8],
    count: u64,
    number: u64,
) -> Outcome<(u64, u64)> {
    put_stamp(message, 0);
    let begin_ns = clock::now_ns();
    channel.send_all(message, count)?;
    let sent_ns = clock::now_ns();
    put_stamp(message, END - number);
    while clock::now_ns() - sent_ns < LIMIT_NS {
        channel.send(message)?;
        let until_ns = clock::now_ns() + ANSWER_NS;
        while clock::now_ns() < until_ns {
            if let Some(came) = channel.try_receive()? {
                return Ok((sent_ns - begin_ns, came));
            }
        }
    }
    Err(Failure::new("no answer"))
}

/// How many come before this one. Ends of the burst before, said twice, do not count.
fn take_until(channel: &mut impl Channel, end: u64) -> Outcome<u64> {
    let mut came = 0;
    loop {
        match channel.receive()? {
            stamp if stamp == end => return Ok(came),
            0 => came += 1,
            _ => {}
        }
    }
}
