//! The Common Communication Subsystem (CCS, 2006), for runtimes: MPI, Global Arrays, UPC.
//!
//! A process of a job has a [`Runtime`]: active messages between ranks, in contexts that keep the libraries of a program apart, and one-sided
//! memory, by the addresses of the process that has it: puts, gets and atomics. [Descriptions](description) are of data that do not lie in one
//! piece; messages and transfers take them. Elements of a rank's memory are
//! [accumulated](Runtime::accumulate), and buffers there [appended to](Runtime::indexed_put), by that rank itself. [Collectives](Collective) are of all ranks, or of
//! [teams](Team) of some. [Symmetric memory](Runtime::allocate_symmetric) is at one address in all ranks. [Large messages](Runtime::send_large) have data of any
//! length, for which the receiver's handler names a place.
#![forbid(unsafe_code)]
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod arithmetic;
pub mod description;
mod error;
pub mod limits;
mod message;
pub mod process;
mod runtime;
mod wire;

pub use arithmetic::{Accumulation, Change, Number, Reduction};
pub use error::{AmError, Result};
pub use message::Message;
pub use process::{Collective, Context, Elements, Held, Part, Team, Token};
pub use runtime::Runtime;
