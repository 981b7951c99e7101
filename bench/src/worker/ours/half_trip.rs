//! Messages there and back, one at a time, both sides polling.

use super::dial;
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::partner::{self, Partner};
use cci::{Attribute, Connection, Endpoint, Event, SendFlags};
use cci_measure::trouble::{Outcome, Trouble};
use cci_sys::clock;

/// Polls between two looks at the clock while nothing comes.
const POLLS_PER_LOOK: u32 = 1 << 20;
const SILENCE_NS: u64 = 20_000_000_000;

/// The first side's reading; the partner has none.
pub fn run(args: &WorkArgs, len: u32) -> Outcome<Option<Reading>> {
    let message = vec![7; len as usize];
    let all = args.count / 10 + args.count;
    if let Some(uri) = &args.partner_of {
        partner::pin(args)?;
        let mut endpoint = dial::endpoint(args)?;
        let connection = dial::connect(&mut endpoint, uri, Attribute::ReliableOrdered)?;
        for _ in 0..all {
            receive(&mut endpoint)?;
            send(&mut endpoint, connection, &message)?;
        }
        // The last one is on its way until the other side has said that it has it.
        receive(&mut endpoint)?;
        return Ok(None);
    }
    let site = partner::site(args)?;
    let mut endpoint = dial::endpoint(args)?;
    let partner = Partner::start(args, &site, endpoint.uri())?;
    partner::pin(args)?;
    let connection = dial::accept(&mut endpoint)?;
    let mut begin_ns = 0;
    for trip in 0..all {
        if trip == args.count / 10 {
            begin_ns = clock::now_ns();
        }
        send(&mut endpoint, connection, &message)?;
        receive(&mut endpoint)?;
    }
    let took_ns = clock::now_ns() - begin_ns;
    send(&mut endpoint, connection, &message)?;
    partner.end()?;
    Ok(Some(Reading::of(took_ns as f64 / args.count.max(1) as f64 / 2.0)))
}

#[inline]
fn send(endpoint: &mut Endpoint, connection: Connection, message: &[u8]) -> Outcome {
    endpoint.send(connection, message, 0, SendFlags::SILENT).map_err(|error| dial::failed("send")(&error))
}

#[inline]
fn receive(endpoint: &mut Endpoint) -> Outcome {
    let mut silent_since_ns = 0;
    loop {
        for _ in 0..POLLS_PER_LOOK {
            match endpoint.next_event() {
                Some(Event::Recv(_)) => return Ok(()),
                Some(Event::Send { status, .. }) if status != cci::Status::Success => {
                    return Err(Trouble::new(format!("a message was not delivered: {status}")));
                }
                _ => {}
            }
        }
        match silent_since_ns {
            0 => silent_since_ns = clock::now_ns(),
            since_ns if clock::now_ns() - since_ns > SILENCE_NS => return Err(Trouble::new("nothing comes")),
            _ => {}
        }
    }
}
