//! The cci command.
fn main() {}
