//! The state of remote memory access on a link: the operations under way, the mappings of the peer's memory, and whether the rest
//! of that memory can be read. [`super::transfers`] uses it. `docs/adr/0006-rma-over-shared-memory.md` has the reasons.

pub(super) mod channel;
pub(super) mod grant;
pub(super) mod initiator;
pub(super) mod mapped;
pub(super) mod mappings;
pub(super) mod pull;
pub(super) mod state;
