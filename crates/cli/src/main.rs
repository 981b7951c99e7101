//! The cci command.
#![forbid(unsafe_code)]
fn main() {}
