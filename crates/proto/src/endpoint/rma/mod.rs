//! Remote memory access of a connection (CCI-053 to CCI-066, CCS-062), split by what happens: operations are started,
//! records are made of them, sent, and come in at the peer.

mod bulk;
pub(crate) mod desk;
mod late;
pub(crate) mod ops;
mod pump;
mod receive;
mod start;
pub(crate) mod state;
