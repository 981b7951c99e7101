//! Developer tasks: ci, install.
fn main() {}
