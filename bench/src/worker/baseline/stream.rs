//! Bulk data over one plain TCP connection: one `write` for each transfer, straight from the source's memory and into the target's.

use super::failed;
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::ours::Direction;
use crate::worker::partner::{self, Partner};
use crate::worker::slots::Slots;
use cci_measure::trouble::Outcome;
use cci_sys::clock;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// From the first byte to the word that all has come; or, reading, to the last byte.
pub fn run(args: &WorkArgs, direction: Direction, len: u32) -> Outcome<Option<Reading>> {
    let slots = Slots::of(len);
    let mut memory = vec![1; slots.bytes()];
    let bursts = [slots.count, args.count];
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        let mut stream = ready(TcpStream::connect(first).map_err(failed(first))?)?;
        for count in bursts {
            match direction {
                Direction::Write => {
                    fill(&mut stream, &mut memory, &slots, count)?;
                    stream.write_all(&[1]).map_err(failed("plain TCP"))?;
                }
                Direction::Read => {
                    stream.read_exact(&mut [0]).map_err(failed("plain TCP"))?;
                    drain(&mut stream, &memory, &slots, count)?;
                }
            }
        }
        return Ok(None);
    }
    let site = partner::site(args)?;
    let listener = TcpListener::bind((site.address(), 0)).map_err(failed("plain TCP"))?;
    let address = listener.local_addr().map_err(failed("plain TCP"))?;
    let partner = Partner::start(args, &site, &address.to_string())?;
    partner::pin(args)?;
    let mut stream = ready(listener.accept().map_err(failed("plain TCP"))?.0)?;
    let mut took_ns = 0;
    for count in bursts {
        let begin_ns = clock::now_ns();
        match direction {
            Direction::Write => {
                drain(&mut stream, &memory, &slots, count)?;
                stream.read_exact(&mut [0]).map_err(failed("plain TCP"))?;
            }
            Direction::Read => {
                stream.write_all(&[1]).map_err(failed("plain TCP"))?;
                fill(&mut stream, &mut memory, &slots, count)?;
            }
        }
        took_ns = clock::now_ns() - begin_ns;
    }
    partner.end(|| {})?;
    Ok(Some(Reading::of(args.count as f64 * f64::from(len) * 1e9 / took_ns.max(1) as f64)))
}

fn ready(stream: TcpStream) -> Outcome<TcpStream> {
    stream.set_nodelay(true).map_err(failed("plain TCP"))?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed("plain TCP"))?;
    stream.set_write_timeout(Some(LIMIT)).map_err(failed("plain TCP"))?;
    Ok(stream)
}

fn drain(stream: &mut TcpStream, memory: &[u8], slots: &Slots, count: u64) -> Outcome {
    for nth in 0..count {
        let at = slots.offset(nth) as usize;
        let chunk = memory.get(at..at + slots.len as usize).unwrap_or_default();
        stream.write_all(chunk).map_err(failed("plain TCP"))?;
    }
    Ok(())
}

/// Reads as much as there is, up to the end of the memory: a `read` for each transfer would be slower where these are
/// short.
fn fill(stream: &mut TcpStream, memory: &mut [u8], slots: &Slots, count: u64) -> Outcome {
    let mut nth = 0;
    while nth < count {
        let row = (count - nth).min(slots.count);
        let part = memory.get_mut(..row as usize * slots.len as usize).unwrap_or_default();
        stream.read_exact(part).map_err(failed("plain TCP"))?;
        nth += row;
    }
    Ok(())
}
