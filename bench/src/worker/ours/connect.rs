//! CCI's connections set up: one after the other, each accepted by the program, and closed.

use super::dial;
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::partner::{self, Partner};
use cci::Attribute;
use cci_measure::failure::Outcome;
use cci_sys::clock;

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
