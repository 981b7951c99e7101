//! Frames of our own on virtual Ethernet, each test in a network namespace of its own. Needs root and iproute2; says so
//! and passes without.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test: what fails must fail it, and skips say why"
)]

mod owners;
mod packet;
mod rights;
mod sharing;
mod support;
mod vlan;
mod xdp;

// Not by the crate: it is built on cci, which would be built again for every change here.
#[allow(dead_code, reason = "others use the rest")]
#[path = "../../../measure/src/iproute.rs"]
mod iproute;
#[allow(dead_code, reason = "others use the rest")]
#[path = "../../../testkit/src/net.rs"]
mod net;
