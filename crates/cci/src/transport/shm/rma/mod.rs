//! What a link keeps for remote memory access: the operations under way, the mappings of its peer's memory, and whether it can
//! read the rest of that memory. [`super::transfers`] works with it.
//! `docs/adr/0006-rma-over-shared-memory.md` has the reasons.

pub(super) mod channel;
pub(super) mod grant;
pub(super) mod initiator;
pub(super) mod mapped;
pub(super) mod mappings;
pub(super) mod pull;
pub(super) mod state;
