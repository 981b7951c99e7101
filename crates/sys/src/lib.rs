//! The system calls CCI needs, behind safe types. Linux only.
//!
//! **Invariant:** nothing here knows a wire format, a connection or a transport; no call blocks unless its name or
//! documentation says so; no signal handler or environment variable is used; only [`thread`] starts threads; nothing is
//! printed.
//!
//! Errors carry what was tried and the errno ([`SysError`]); the data path ([`udp`], [`unix`], [`event`]) speaks
//! plain [`std::io::Error`], which allocates nothing when it holds an errno.
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(
    not(feature = "xdp"),
    allow(dead_code, reason = "what only the program on an interface asks for")
)]

#[cfg(not(target_os = "linux"))]
compile_error!("cci-sys knows Linux only");

pub mod clock;
pub mod cma;
pub mod cpu;
mod error;
pub mod ethernet;
pub mod event;
pub mod file;
pub mod heavy_fence;
pub mod limits;
mod mapped;
pub mod memory;
pub mod net;
pub mod packet;
#[cfg(feature = "pmix")]
pub mod pmix;
pub mod process;
pub mod random;
pub mod shared_memory;
#[cfg(feature = "simulated")]
pub mod simulated;
pub mod tcp;
pub mod tcp_memory;
pub mod thread;
pub mod udp;
pub mod unix;
pub mod xdp;

pub use error::{Result, SysError};
