//! The cases, by what they are about. Each takes the place it runs in and panics when something is wrong.

pub mod account;
pub mod any_length;
pub mod any_length_ends;
pub mod buffers;
pub mod calls;
pub mod child;
pub mod closing;
pub mod connect;
pub mod disconnected;
pub mod loans;
pub mod messages;
pub mod multicast;
mod peer;
pub mod process;
pub mod rma_account;
pub mod rma_atomics;
pub mod rma_data;
pub mod rma_files;
pub mod rma_life;
pub mod rma_order;
pub mod rma_process;
pub mod rma_rights;
pub mod scale;
pub mod sending;
pub mod streams;
pub mod waiting;

use cci::Attribute;

/// The attributes that lose nothing.
const RELIABLE: [Attribute; 2] = [Attribute::ReliableOrdered, Attribute::ReliableUnordered];
/// All of them.
const ATTRIBUTES: [Attribute; 3] =
    [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
const RO: Attribute = Attribute::ReliableOrdered;
