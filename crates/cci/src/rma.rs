//! Remote memory: what a program registers, hands to peers, reads and writes (CCI 2011, section IV.D).
//!
//! A program takes a [`Memory`], registers it with its endpoint and gets a [`RegionHandle`]: 32 plain bytes that it may
//! send to a peer in any message. Who has the handle can read, write or change the memory as far as the handle's
//! [`Access`] goes, without the owner's program taking part.

mod grantable;
mod handle;
mod memory;
mod operation;

pub(crate) use grantable::{Grantable, LiveWord, REPLACED_WORD};
pub use handle::{Access, RegionHandle};
pub(crate) use memory::atomic_op;
pub use memory::{Memory, Registration};
pub use operation::{BlockRun, RegionAddress, Rma, RmaFlags, Segment};
