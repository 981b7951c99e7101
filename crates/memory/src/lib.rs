//! What is done with memory that several threads or processes share: rings, pools, tables, and bytes that a peer may change.
//!
//! Nothing in this crate makes a system call, starts a thread or allocates after set-up. loom and miri run on all of it.
//!
//! - [`ring`]: a one-way ring of records between two processes that do not trust each other. Its module documentation
//!   is the layout of the shared memory and lists, word by word, who writes it and who waits for it.
//! - [`pool`]: receive buffers that one thread hands out and any thread gives back, in any order.
//! - [`returns`]: the stack by which pools get back what they lent.
//! - [`fallible`]: allocation that returns an error if there is no memory.
//! - [`slab`]: a table with generation-checked keys, for connections and the like (safe code).
//! - [`bytes`]: copies and atomics on memory that anybody may change meanwhile, for remote memory access.
//! - `simulated`, a feature: shared memory as the processes of a simulation see it.
//! - [`atomic`]: where every atomic of this crate comes from.
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![warn(unreachable_pub)]

pub mod atomic;
pub mod bytes;
pub mod fallible;
pub mod pool;
mod raw_atomic;
pub mod returns;
mod thread;

pub mod ring;
#[cfg(all(feature = "simulated", not(loom)))]
pub mod simulated;
pub mod slab;
