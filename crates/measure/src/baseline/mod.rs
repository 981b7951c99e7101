//! Baselines: the plainest code for the same work, which figures of CCI are divided by. The library uses none of it.

mod memory;
mod process;
mod stream;
mod tcp;
mod udp;
mod wake;

use crate::failure::Failure;
use std::io;

pub use memory::Mappings;
pub use process::Process;
pub use stream::Stream;
pub use tcp::PlainTcp;
pub use udp::PlainUdp;
pub use wake::{SharedWord, eventfd};

/// The error of a system call, with what was done.
pub fn failed(what: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| Failure::new(format!("{what}: {error}"))
}
