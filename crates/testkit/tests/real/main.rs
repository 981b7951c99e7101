//! Endpoints on real networks: loopback with a relay that loses datagrams, and network namespaces, which stand for hosts.
//! Those need root; else each test says why it does nothing.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod any;
mod eth;
mod lossy_udp;
mod multicast;
mod net_faults;
mod process;
mod stage;
mod udp_bond;
