//! The handles that programs have: of services, partners and calls.

use slotmap::new_key_type;

new_key_type! {
    /// A service of a node: a small handle, free to copy. A stale one is refused.
    pub struct Service;
    /// Another service, as one of a node's services sees it: a small handle, free to copy. A stale one is refused.
    pub struct Partner;
}

/// Names a call until it has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) u64);
