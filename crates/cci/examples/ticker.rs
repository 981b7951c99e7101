//! Prices to everybody who listens: a multicast group.
//!
//! `cargo run --release -p cci --example ticker -- watch [DEVICE [GROUP]]` prints the group and then the prices, until the end;
//! `cargo run --release -p cci --example ticker -- publish [DEVICE [GROUP [COUNT]]]` sends some. Any number of each, in any
//! order; `ticker.c` of the C examples speaks the same.

use cci::{Attribute, Connection, Context, Endpoint, Event, Options, SendFlags};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

const GROUP: &str = "udp://239.192.77.1:4792";
const SYMBOLS: [&[u8; 4]; 4] = [b"AAAA", b"BBBB", b"CCCC", b"DDDD"];
/// How a publisher says that there is no more.
const END: &[u8; 4] = b"....";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let context = Context::new()?;
    let device = match argument(1) {
        Some(name) => context.device(name).ok_or_else(|| format!("no device {name}"))?,
        None => {
            context.devices().iter().find(|device| device.name().starts_with("udp")).ok_or("no UDP here")?
        }
    };
    let mut endpoint = Endpoint::create(device, Options::default())?;
    let group = argument(2).unwrap_or(GROUP);
    match argument(0) {
        Some("watch") => watch(&mut endpoint, group),
        Some("publish") => publish(&mut endpoint, group, argument(3).unwrap_or("1000").parse()?),
        _ => Err("say watch or publish".into()),
    }
}

/// A connection to or from a group is there at once: nobody is asked.
fn join(endpoint: &mut Endpoint, group: &str, attribute: Attribute) -> Result<Connection, Box<dyn Error>> {
    endpoint.connect(group, &[], attribute, 0, None)?;
    match endpoint.wait(None)? {
        Some(Event::Connect { result, .. }) => Ok(result?),
        other => Err(format!("{other:?}").into()),
    }
}

/// One tick is a symbol of 4 bytes and a price in cents, u32 little-endian. Those that are sent at once share a datagram.
fn publish(endpoint: &mut Endpoint, group: &str, count: u32) -> Result<(), Box<dyn Error>> {
    let to = join(endpoint, group, Attribute::MulticastSend)?;
    for number in 0..count {
        for (which, symbol) in (0..).zip(SYMBOLS) {
            let price_cents = 10_000 * (which + 1) + number;
            endpoint.send_vectored(to, &[symbol, &price_cents.to_le_bytes()], 0, SendFlags::SILENT)?;
        }
        // Nobody tells a publisher to go slower: what listeners can't take is lost.
        endpoint.wait(Some(Duration::from_micros(200)))?;
    }
    endpoint.send_vectored(to, &[END, &[0; 4]], 0, SendFlags::SILENT)?;
    println!("{} ticks published", 4 * count);
    Ok(())
}

fn watch(endpoint: &mut Endpoint, group: &str) -> Result<(), Box<dyn Error>> {
    let from = join(endpoint, group, Attribute::MulticastReceive)?;
    println!("{group}");
    let (mut ticks, mut last) = (0, BTreeMap::new());
    loop {
        let Some(Event::Recv(tick)) = endpoint.wait(None)? else { continue };
        let Some((symbol, price)) = tick.split_first_chunk::<4>() else { continue };
        if symbol == END {
            break;
        }
        let Some(price) = price.first_chunk() else { continue };
        last.insert(*symbol, u32::from_le_bytes(*price));
        ticks += 1;
    }
    for (symbol, price_cents) in last {
        println!("{} {}.{:02}", String::from_utf8_lossy(&symbol), price_cents / 100, price_cents % 100);
    }
    println!("{ticks} ticks");
    eprint!("{}", endpoint.explain(from).unwrap_or_default());
    Ok(())
}
