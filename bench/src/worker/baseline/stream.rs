//! Bulk data over one plain TCP connection.

use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::partner::{self, Partner};
use cci_measure::baseline::{Stream, failed};
use cci_measure::failure::Outcome;
use cci_measure::transfer::{Direction, Slots};
use std::net::{TcpListener, TcpStream};

/// Bytes a second, after every place was used once.
pub fn run(args: &WorkArgs, direction: Direction, len: u32) -> Outcome<Option<Reading>> {
    let slots = Slots::one(len);
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        let stream = TcpStream::connect(first).map_err(failed(first))?;
        let mut stream = Stream::over(stream, slots.bytes())?;
        stream.serve(direction, &slots, slots.count)?;
        stream.serve(direction, &slots, args.count)?;
        return Ok(None);
    }
    let site = partner::site(args)?;
    let listener = TcpListener::bind((site.address(), 0)).map_err(failed("plain TCP"))?;
    let address = listener.local_addr().map_err(failed("plain TCP"))?;
    let partner = Partner::start(args, &site, &address.to_string())?;
    partner::pin(args)?;
    let mut stream = Stream::over(listener.accept().map_err(failed("plain TCP"))?.0, slots.bytes())?;
    stream.transfer(direction, &slots, slots.count)?;
    let took_ns = stream.transfer(direction, &slots, args.count)?;
    partner.end(|| {})?;
    Ok(Some(Reading::of_bytes(len, args.count, took_ns)))
}
