//! Who a peer is, and what keeps others from reading and forging: credentials, handshakes, keys, sealed datagrams
//! ([`Associations`]) and sealed streams.
//!
//! The handshakes are kept crates' (Noise by `snow`, TLS 1.3 by `rustls`), the cipher and the hashes are `ring`'s. What
//! is decided here is how their bytes travel and when keys change. Bytes and time go in and bytes come out, so all
//! of it can be tested without a network.
//!
//! The formats are described clause by clause in `docs/wire.md`; comments beginning with `//=` name the clause that the
//! code below them carries out.
// What programs link: it never prints, and nothing received reaches a panic. Tests and examples may do both.
#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]
#![cfg_attr(not(feature = "sealing"), allow(dead_code, reason = "names and errors that only sealing makes"))]

#[cfg(not(feature = "sealing"))]
mod absent;
#[cfg(feature = "sealing")]
mod credentials;
mod credentials_error;
#[cfg(feature = "sealing")]
mod datagram;
#[cfg(feature = "sealing")]
mod endpoint_id;
mod failure;
#[cfg(feature = "sealing")]
mod handshake;
mod identity;
#[cfg(feature = "sealing")]
mod keys;
pub mod limits;
#[cfg(not(feature = "sealing"))]
mod no_credentials;
mod possession;
#[cfg(feature = "sealing")]
mod replay;
#[cfg(feature = "sealing")]
mod stream;
#[cfg(test)]
#[cfg(feature = "sealing")]
mod testing;
mod types;

#[cfg(not(feature = "sealing"))]
pub use absent::{Associations, SealedStream};
#[cfg(feature = "sealing")]
pub use credentials::Credentials;
pub use credentials_error::{CredentialsError, Wrong};
#[cfg(feature = "sealing")]
pub use datagram::Associations;
#[cfg(feature = "sealing")]
pub use endpoint_id::EndpointId;
pub use failure::Failure;
pub use identity::{Authorisation, Identity, Method, Names, NamesError, Rights};
pub use limits::UpdateLimits;
#[cfg(not(feature = "sealing"))]
pub use no_credentials::{Credentials, EndpointId};
pub use possession::{Challenge, NONCE_BYTES, PROOF_BYTES, Prover};
#[cfg(feature = "sealing")]
pub use stream::SealedStream;
pub use types::{Ahead, Association, Config, Counters, Opened, Route, STREAM_MAGIC, StreamConfig};

/// Whether this build can seal. Without the feature `sealing` there are no credentials, so nothing that goes by them.
pub const CAN_SEAL: bool = cfg!(feature = "sealing");
