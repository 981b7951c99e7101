//! Data in global memory: a heap on every rank, and containers in them.
//!
//! A container is memory and nothing else. Ranks that have its handle work on it, wherever it is, by copies and atomics. The
//! ranks that have the memory take no part. Handles are addresses, which travel as words.
//!
//! **Invariant:** whenever a rank dies, the other ranks can use what it was changing, if the job survives deaths. A lock says
//! which rank has it, and each change takes effect by one word. After that word, only counts and memory of the heap may be wrong.
//! The next rank that gets the lock corrects the counts.

#[cfg(test)]
mod between_tests;
mod cursor;
mod deque;
mod heap;
mod list;
mod lock;
mod map;
mod set;
#[cfg(test)]
mod simulated;
mod table;
#[cfg(test)]
mod tests;
mod vector;
mod workspace;

pub use cursor::{Cursor, Place};
pub use deque::Deque;
pub use heap::{allocate, free};
pub use list::{List, Position};
pub use map::Map;
pub use set::{MultiSet, Set};
pub use table::{Entries, Table};
pub use vector::Vector;
pub use workspace::Workspace;

pub(crate) use heap::{HEAP_BYTES_MAX, prepare};
