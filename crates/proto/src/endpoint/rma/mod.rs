//! Remote memory access of a connection (CCI-053 to CCI-066, CCS-062), split by what happens: operations are started,
//! records are made of them, sent, and come in at the peer.

mod bulk;
mod late;
mod pump;
mod receive;
mod start;
