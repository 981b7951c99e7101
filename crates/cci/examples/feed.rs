//! A feed: quotes sent in bursts, and received by a handler.
//!
//! `cargo run --release -p cci --example feed -- listen [DEVICE]` prints its URI, and at the end what came;
//! `cargo run --release -p cci --example feed -- send URI [COUNT]` sends some. `feed.c` of the C examples speaks the same: a symbol
//! of 4 bytes and a price in cents, u32 little-endian.

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, Polled, SendError, SendFlags, Status};
use std::error::Error;

const SYMBOLS: [&[u8; 4]; 4] = [b"AAAA", b"BBBB", b"CCCC", b"DDDD"];
const QUOTE_BYTES: usize = 8;
/// Quotes that are sent in one call.
const BURST: usize = 32;
/// Messages that the handler gets in one call at most.
const POLL_MAX: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let context = Context::new()?;
    match arguments[..] {
        ["listen"] => listen(Endpoint::create(context.default_device(), Options::default())?),
        ["listen", device] => {
            let device = context.device(device).ok_or("no such device: `cci info` lists them")?;
            listen(Endpoint::create(device, Options::default())?)
        }
        ["send", uri] => send(&context, uri, 1_000),
        ["send", uri, count] => send(&context, uri, count.parse()?),
        _ => Err("say listen or send".into()),
    }
}

/// What came: how many quotes, and the last price of each symbol.
#[derive(Default)]
struct Quotes {
    count: u64,
    last_cents: [u32; SYMBOLS.len()],
}

impl Quotes {
    fn take(&mut self, quote: &[u8]) {
        let Some((symbol, price)) = quote.split_first_chunk::<4>() else { return };
        let Some(price) = price.first_chunk() else { return };
        if let Some(at) = SYMBOLS.iter().position(|known| *known == symbol) {
            self.last_cents[at] = u32::from_le_bytes(*price);
            self.count += 1;
        }
    }

    fn print(&self) {
        for (symbol, cents) in SYMBOLS.iter().zip(self.last_cents) {
            println!("{} {}.{:02}", String::from_utf8_lossy(*symbol), cents / 100, cents % 100);
        }
        println!("{} quotes", self.count);
    }
}

fn listen(mut endpoint: Endpoint) -> Result<(), Box<dyn Error>> {
    println!("{}", endpoint.uri());
    let (mut quotes, mut events) = (Quotes::default(), Vec::new());
    loop {
        // Messages are lent to the handler, without a buffer for each. It can't use the endpoint, so it notes what else happened.
        let taken = endpoint.poll(POLL_MAX, |polled| match polled {
            Polled::Message(message) => quotes.take(&message),
            Polled::Event(event) => events.push(event),
        });
        if taken == 0 {
            // Nothing is there. Whatever comes next ends the sleep.
            events.extend(endpoint.wait(None)?);
        }
        for event in events.drain(..) {
            match event {
                Event::ConnectRequest(request) => endpoint.accept(request, 0)?,
                Event::Recv(message) => quotes.take(&message),
                // This comes behind the last message.
                Event::Disconnected { .. } => {
                    quotes.print();
                    return Ok(());
                }
                _ => {}
            }
        }
    }
}

/// Sends `count` prices of each symbol.
fn send(context: &Context, uri: &str, count: u32) -> Result<(), Box<dyn Error>> {
    let mut endpoint = Endpoint::create(context.device_for(uri)?, Options::default())?;
    endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, None)?;
    let to = match endpoint.wait(None)? {
        Some(Event::Connect { result, .. }) => result?,
        other => return Err(format!("{other:?}").into()),
    };
    let quote = |number: usize| {
        let (which, round) = (number % SYMBOLS.len(), number / SYMBOLS.len());
        let mut bytes = [0; QUOTE_BYTES];
        bytes[..4].copy_from_slice(SYMBOLS[which]);
        bytes[4..].copy_from_slice(&(10_000 * (which as u32 + 1) + round as u32).to_le_bytes());
        bytes
    };
    let (all, mut next, mut bursts) = (count as usize * SYMBOLS.len(), 0, Bursts::default());
    while next < all {
        let quotes: [[u8; QUOTE_BYTES]; BURST] = std::array::from_fn(|at| quote(next + at));
        let burst = quotes.each_ref().map(|bytes| &bytes[..]);
        // As many are taken as there is space for, and all of these end in one event.
        match endpoint.send_burst(to, &burst[..BURST.min(all - next)], 0, SendFlags::NONE) {
            Ok(taken) => (next, bursts.sent) = (next + taken, bursts.sent + 1),
            Err(SendError::WouldBlock) => bursts.take(&mut endpoint, to)?,
            Err(error) => return Err(error.into()),
        }
    }
    while bursts.ended < bursts.sent {
        bursts.take(&mut endpoint, to)?;
    }
    endpoint.disconnect(to);
    println!("{all} quotes sent");
    Ok(())
}

/// Bursts that were sent, and those of them that have ended.
#[derive(Default)]
struct Bursts {
    sent: u64,
    ended: u64,
}

impl Bursts {
    /// Waits for an event, which also makes space.
    fn take(&mut self, endpoint: &mut Endpoint, to: Connection) -> Result<(), Box<dyn Error>> {
        match endpoint.wait(None)? {
            Some(Event::Send { connection, status: Status::Success, .. }) if connection == to => {
                self.ended += 1;
                Ok(())
            }
            other => Err(format!("{other:?}").into()),
        }
    }
}
