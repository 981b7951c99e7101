//! Lies that hostile peers tell, one a test, on each transport: see `cci_testkit::hostile` for how to add one.

mod crowds;
mod datagrams;
mod eth;
mod forged;
mod greed;
mod groups;
mod parts;
mod refusals;
mod sealed;
mod shm;
mod tcp;
mod tcp_bulk;

use cci::Options;
use std::time::Duration;

/// As often as there is time.
const ALWAYS: u64 = u64::MAX;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A victim whose operations end soon.
fn soon() -> Options {
    Options::default().send_timeout(ms(300))
}

/// A victim whose operations do not end while a test runs, unless it says so.
fn late() -> Options {
    Options::default().send_timeout(Duration::from_secs(3_600))
}
