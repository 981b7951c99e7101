//! The promise that what a peer has lent stays as it is.

/// Says that a peer's process can be trusted like one's own code: it leaves memory alone while that is lent, so that it may be read in
/// place. Nothing enforces it: the process has the memory mapped and could write to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trust(());

impl Trust {
    /// Trusts a peer.
    ///
    /// # Safety
    ///
    /// For what this value is used with: the process at the other end writes to no memory that it has lent until it was returned.
    /// A process that uses only safe code of this library keeps that.
    pub const unsafe fn new() -> Trust {
        Trust(())
    }
}
