//! The Common Communication Subsystem (CCS, 2006), for runtimes: MPI, Global Arrays, UPC.
//!
//! So far it has [descriptions](description) of data that do not lie in one piece. Active messages and one-sided memory
//! are to come; they need jobs first.
#![forbid(unsafe_code)]
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![warn(unreachable_pub)]

pub mod description;
