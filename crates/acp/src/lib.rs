//! Advanced Communication Primitives (ACP): a global address space for the processes of a job.
//!
//! - A process has [`GlobalMemory`]. Memory that it registers gets [global addresses](GlobalAddress), which are plain 64-bit numbers: they
//!   travel in any data, and name the same byte in every process of the job. Each process has starter memory, whose address all others
//!   know, so that they can give each other the addresses of the rest.
//! - [Copies](GlobalMemory::copy) go between any two ranks' memory, and [atomics](GlobalMemory::atomic) change it, in the [`Order`] that the
//!   program gives.
//! - *Channels* ([`Sender`], [`Receiver`]) bring messages from one rank to another, in as much memory as the program chooses. *Segmented
//!   buffers* ([`SegmentSource`], [`SegmentDestination`]) bring segments from the program's memory at one rank to its memory at another one.
//! - With a heap on each rank there are *containers* on which all ranks work: [`Map`], [`Set`], [`MultiSet`], [`List`], [`Vector`],
//!   [`Deque`], [`Workspace`].
//! - [`SharedGlobalMemory`] is global memory behind a lock, with a thread that serves other ranks while the program computes.
//!
//! The C interface of this crate is `acp.h`. What differs from the published ACP by intent is in the guide (`docs/guide.md`).
#![forbid(unsafe_code)]
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod buffers;
mod channel;
mod channels;
mod data;
mod engine;
mod error;
pub mod limits;
mod links;
mod mapped;
mod memory;
mod numbering;
mod orders;
mod regions;
mod reserve;
mod results;
mod segmented;
mod shared;
mod space;
#[cfg(test)]
mod tests;
mod wire;

pub use address::GlobalAddress;
pub use buffers::{Indices, Segments};
pub use channel::{ChannelRequest, Receiver, Sender};
pub use channels::Slots;
pub use data::{
    Cursor, Deque, Entries, List, Map, MultiSet, Place, Position, Set, Table, Vector, Workspace, allocate,
    free,
};
pub use engine::{Handle, Order};
pub use error::{AcpError, Result};
pub use memory::GlobalMemory;
pub use regions::RegionKey;
pub use reserve::Reserves;
pub use segmented::{SegmentDestination, SegmentSource};
pub use shared::{HasGlobalMemory, Locked, SharedGlobalMemory};
pub use space::Space;
