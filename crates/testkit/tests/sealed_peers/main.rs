//! Who is at the other end of a sealed connection, over real sockets of every kind: not the endpoint itself, and nobody else
//! than who is expected.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod expected;
mod reflected;
mod stage;
mod versions;
