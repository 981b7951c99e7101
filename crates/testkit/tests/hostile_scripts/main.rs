//! Lies that hostile peers tell, one a test, on each transport: see `cci_testkit::hostile` for how to add one.

mod datagrams;
mod shm;
mod tcp;

use cci::Options;
use std::time::Duration;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A victim whose operations end soon.
fn soon() -> Options {
    Options { send_timeout: ms(300), ..Options::default() }
}
