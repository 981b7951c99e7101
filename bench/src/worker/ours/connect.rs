//! CCI's connections set up, one after the other, each accepted by the program.

use super::dial;
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::partner::{self, Partner};
use cci::Attribute;
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;

/// Nothing is waited for longer.
const LIMIT_NS: u64 = 20_000_000_000;

/// What one connection takes the side that asks for it: the median.
pub fn each(args: &WorkArgs) -> Outcome<Option<Reading>> {
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        let mut endpoint = dial::endpoint(args)?;
        let mut took_ns = Vec::new();
        // They stay open, as those of services do: the end of one would be seen to while the next one opens.
        for _ in 0..args.count {
            let began_ns = clock::now_ns();
            dial::connect(&mut endpoint, first, Attribute::ReliableOrdered)?;
            took_ns.push(clock::now_ns() - began_ns);
        }
        let connection = dial::connect(&mut endpoint, first, Attribute::ReliableOrdered)?;
        let sent = endpoint.send(connection, &median(took_ns).to_le_bytes(), 0, cci::SendFlags::SILENT);
        sent.map_err(|error| dial::failed("reporting")(&error))?;
        endpoint.close(std::time::Duration::from_millis(100));
        return Ok(None);
    }
    let site = partner::site(args)?;
    let mut endpoint = dial::endpoint(args)?;
    let partner = Partner::start(args, &site, endpoint.uri())?;
    partner::pin(args)?;
    for _ in 0..=args.count {
        dial::accept(&mut endpoint)?;
    }
    let until_ns = clock::now_ns() + LIMIT_NS;
    let median_ns = loop {
        match endpoint.next_event() {
            Some(cci::Event::Recv(message)) => break message.first_chunk().map(|ns| u64::from_le_bytes(*ns)),
            _ if clock::now_ns() > until_ns => break None,
            _ => {}
        }
    };
    partner.end(|| endpoint.progress())?;
    let median_ns = median_ns.ok_or_else(|| Failure::new("the partner reports no time"))?;
    Ok(Some(Reading::of(median_ns as f64)))
}

/// The middle one; of none, 0.
pub fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Connections a second, at the side that accepts.
pub fn run(args: &WorkArgs) -> Outcome<Option<Reading>> {
    let (warm_up, all) = (args.count / 10, args.count / 10 + args.count);
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        let mut endpoint = dial::endpoint(args)?;
        for _ in 0..all {
            let connection = dial::connect(&mut endpoint, first, Attribute::ReliableOrdered)?;
            endpoint.disconnect(connection);
        }
        // What ends the last one leaves.
        endpoint.close(std::time::Duration::from_millis(100));
        return Ok(None);
    }
    let site = partner::site(args)?;
    let mut endpoint = dial::endpoint(args)?;
    let partner = Partner::start(args, &site, endpoint.uri())?;
    partner::pin(args)?;
    let mut begin_ns = clock::now_ns();
    let mut last = None;
    for nth in 0..all {
        let connection = dial::accept(&mut endpoint)?;
        if nth + 1 == warm_up {
            begin_ns = clock::now_ns();
        }
        // The partner has closed it when the next one comes.
        if let Some(last) = last.replace(connection) {
            endpoint.disconnect(last);
        }
    }
    let took_ns = clock::now_ns() - begin_ns;
    partner.end(|| endpoint.progress())?;
    Ok(Some(Reading::of_rate(args.count, took_ns)))
}
