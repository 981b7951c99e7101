//! Frames of a camera, handed to another process without a copy: each is written to memory that the library lends.
//!
//! `cargo run --release -p cci --example frames -- watch [DEVICE]` prints its URI, and at the end what came;
//! `cargo run --release -p cci --example frames -- produce URI [COUNT]` makes some. `frames.c` of the C examples speaks the same: a
//! frame begins with its number, u64 little-endian, and all bytes behind that are the number's lowest one.

use cci::{Attribute, Connection, Context, Endpoint, Event, Loans, Options, SendError, SendFlags, Status};
use std::error::Error;

const NUMBER_BYTES: usize = 8;
/// Frames that the producer has on their way at most.
const ON_THEIR_WAY_MAX: u64 = 16;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let context = Context::new()?;
    match arguments[..] {
        ["watch"] => watch(Endpoint::create(context.default_device(), Options::default())?),
        ["watch", device] => {
            let device = context.device(device).ok_or("no such device: `cci info` lists them")?;
            watch(Endpoint::create(device, Options::default())?)
        }
        ["produce", uri] => produce(&context, uri, 1_000),
        ["produce", uri, count] => produce(&context, uri, count.parse()?),
        _ => Err("say watch or produce".into()),
    }
}

/// What came.
#[derive(Default)]
struct Seen {
    frames: u64,
    in_place: u64,
}

impl Seen {
    fn check(&mut self, frame: &[u8]) -> Result<(), Box<dyn Error>> {
        let (number, pixels) = frame.split_first_chunk::<NUMBER_BYTES>().ok_or("a frame is too short")?;
        let number = u64::from_le_bytes(*number);
        if number != self.frames || pixels.iter().any(|pixel| *pixel != number as u8) {
            return Err(format!("frame {number} came damaged, as number {}", self.frames).into());
        }
        self.frames += 1;
        Ok(())
    }
}

fn watch(mut endpoint: Endpoint) -> Result<(), Box<dyn Error>> {
    println!("{}", endpoint.uri());
    let mut seen = Seen::default();
    let mut frame = Vec::new();
    loop {
        match endpoint.wait(None)? {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0)?,
            // Frames that the producer lends may stay where they are.
            Some(Event::Accept { result, .. }) => endpoint.set_loans(result?, Loans::Mapped)?,
            // The producer could still write to it, so it is copied before it is checked. Dropping the message returns it.
            Some(Event::Mapped(message)) => {
                frame.resize(message.len(), 0);
                if !message.read(0, &mut frame) {
                    return Err("a frame can't be read".into());
                }
                drop(message);
                seen.check(&frame)?;
                seen.in_place += 1;
            }
            // The first ones are copied by the library, and so are all of them where processes share no memory.
            Some(Event::Recv(message)) => seen.check(&message)?,
            Some(Event::Disconnected { .. }) => break,
            _ => {}
        }
    }
    println!("{} frames", seen.frames);
    println!("{}", if seen.in_place > 0 { "some where they were made" } else { "all copied" });
    Ok(())
}

fn produce(context: &Context, uri: &str, count: u64) -> Result<(), Box<dyn Error>> {
    let mut endpoint = Endpoint::create(context.device_for(uri)?, Options::default())?;
    endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, None)?;
    let to = match endpoint.wait(None)? {
        Some(Event::Connect { result, .. }) => result?,
        other => return Err(format!("{other:?}").into()),
    };
    let len = endpoint.max_send_size(to).ok_or("not connected")? as usize;
    let (mut made, mut returned) = (0, 0);
    while returned < count {
        if made == count || made - returned == ON_THEIR_WAY_MAX || !make(&mut endpoint, to, len, made)? {
            // A frame is back, or has been copied.
            match endpoint.wait(None)? {
                Some(Event::Send { status: Status::Success, .. }) => returned += 1,
                other => return Err(format!("{other:?}").into()),
            }
        } else {
            made += 1;
        }
    }
    endpoint.disconnect(to);
    println!("{made} frames made");
    Ok(())
}

/// Makes a frame in memory of the library's, and sends it from there. Returns false if all such memory is on its way.
fn make(endpoint: &mut Endpoint, to: Connection, len: usize, number: u64) -> Result<bool, Box<dyn Error>> {
    let mut loan = match endpoint.loan(to, len) {
        Err(SendError::WouldBlock) => return Ok(false),
        loan => loan?,
    };
    loan.fill(number as u8);
    loan[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    match endpoint.send_loan(loan, number, SendFlags::NONE) {
        Err(refused) if refused.error == SendError::WouldBlock => Ok(false),
        sent => Ok(sent.map(|()| true)?),
    }
}
