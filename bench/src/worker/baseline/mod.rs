//! The baselines: the plainest code for each exchange, on the operating system's calls alone.

pub mod asleep;
pub mod connect;
pub mod memory;
pub mod question;
pub mod stream;
pub mod xdp;
