//! Baselines: the plainest code for the same work, which figures of CCI are divided by. The library uses none of it.

mod memory;
mod process;
mod wake;

pub use memory::Mappings;
pub use process::Process;
pub use wake::{SharedWord, eventfd};
