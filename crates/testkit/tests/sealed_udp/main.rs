//! Endpoints that know their peers, over real sockets: who is heard, who is not, and what others on the wire can do.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod lasting;
mod rights;
mod stage;
mod strangers;
