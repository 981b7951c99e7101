//! The Common Communication Subsystem (CCS, 2006), for runtimes such as MPI, Global Arrays and UPC.
//!
//! A process of a job has a [`Runtime`]:
//!
//! - *Active messages* name a handler, which runs at another rank with arguments and data. [Contexts](Context) keep the handlers of a
//!   program's libraries apart. [Large messages](Runtime::send_large) have data of any length, and the receiver's handler says where they go.
//! - *One-sided memory*: [puts](Runtime::put), [gets](Runtime::get) and [atomics](Runtime::atomic) access the memory of a rank by its own
//!   addresses. A rank carries out [accumulates](Runtime::accumulate) and [indexed puts](Runtime::indexed_put) on its own memory for others.
//!   [Symmetric memory](Runtime::allocate_symmetric) is at one address in all ranks.
//! - [*Collectives*](Collective) are of all ranks, or of [teams](Team) of some.
//! - [Descriptions](description) say where data are that do not lie in one piece; messages and transfers take them.
//!
//! The C interface of this crate is `ccs.h`.
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
pub use process::{Collective, Context, Elements, Following, Held, Part, Team, Token};
pub use runtime::Runtime;
