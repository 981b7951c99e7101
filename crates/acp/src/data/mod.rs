//! Data in global memory: a heap on every rank, and containers in them.
//!
//! A container is memory and nothing else. Whoever has its handle works on it, wherever it is, by copies and atomics: the ranks whose memory it is
//! take no part. Handles are addresses, which travel as words.
//!
//! **Invariant:** whichever instant a rank dies at, what it was about to change can be used by the others, if they survive deaths: a lock says who has it,
//! and each change is one word behind which only counts and memory of the heap may be wrong. Counts are mended by the next rank that gets the lock.

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
