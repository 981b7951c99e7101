//! The engine: one progress loop per endpoint. It owns what every transport quotas — receive buffers, the event
//! queue, the connection table, the descriptor to wait on — and drives one [`crate::transport::Transport`].
//!
//! **Invariant:** nothing here knows a transport by name.

pub(crate) mod attempts;
pub(crate) mod borrowed;
pub(crate) mod caught;
pub(crate) mod charge;
pub(crate) mod chunks;
pub(crate) mod core;
pub(crate) mod event;
pub(crate) mod lent;
pub(crate) mod mapped_pairs;
pub(crate) mod operations;
pub(crate) mod order;
pub(crate) mod pace;
pub(crate) mod peer;
pub(crate) mod peers;
pub(crate) mod poller;
mod queue;
mod quotas;
pub(crate) mod receive;
pub(crate) mod regions;
pub(crate) mod registrations;
pub(crate) mod requests;
pub(crate) mod spin;
pub(crate) mod waiting;
