//! The handles that programs have: of services, partners and calls.

use slotmap::new_key_type;

new_key_type! {
    /// A service of a node. The handle is small and can be copied. A stale handle is refused.
    pub struct Service;
    /// Another service, as one of a node's services sees it. The handle is small and can be copied. A stale handle is refused.
    pub struct Partner;
}

/// Identifies a call until it has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub(crate) u64);
