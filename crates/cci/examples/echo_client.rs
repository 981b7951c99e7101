//! A client of `echo_server` and `broker`: sends messages one by one, checks what comes back, and prints the mean half
//! round trip.
//!
//! `cargo run --release -p cci --example echo_client -- URI [DEVICE [COUNT]]`

use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags, Status};
use std::error::Error;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let uri = arguments.next().ok_or("usage: echo_client URI [DEVICE [COUNT]]")?;
    let context = Context::new()?;
    let device = match arguments.next() {
        Some(name) => context.device(&name).ok_or_else(|| format!("no device {name}"))?,
        None => context.device_for(&uri)?,
    };
    let count: u32 = arguments.next().map_or(Ok(10_000), |count| count.parse())?;

    let mut endpoint = Endpoint::create(device, Options::default())?;
    endpoint.connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(Duration::from_secs(10)))?;
    let server = loop {
        if let Event::Connect { result, .. } = next(&mut endpoint)? {
            break result?;
        }
    };
    let start = Instant::now();
    for number in 0..count {
        let text = format!("message {number}");
        endpoint.send(server, text.as_bytes(), 0, SendFlags::SILENT)?;
        let echoed = loop {
            if let Event::Recv(message) = next(&mut endpoint)? {
                break message;
            }
        };
        if *echoed != *text.as_bytes() {
            return Err(format!("{text:?} came back changed").into());
        }
    }
    let half_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(count) / 2.0;
    println!("{count} messages echoed, half round trip {half_us:.2} us");
    endpoint.disconnect(server);
    Ok(())
}

/// Polls, which is the fastest way to wait. A send that failed ends the program.
fn next(endpoint: &mut Endpoint) -> Result<Event, Box<dyn Error>> {
    loop {
        match endpoint.next_event() {
            Some(Event::Send { status, .. }) if status != Status::Success => {
                return Err(format!("a send failed: {status}").into());
            }
            Some(event) => return Ok(event),
            None => std::hint::spin_loop(),
        }
    }
}
