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

mod credentials;
mod datagram;
mod endpoint_id;
mod handshake;
mod identity;
mod keys;
pub mod limits;
mod possession;
mod replay;
mod stream;
#[cfg(test)]
mod testing;

pub use credentials::{Credentials, CredentialsError, Wrong};
pub use datagram::{Association, Associations, Config, Counters, Opened, Route};
pub use endpoint_id::EndpointId;
pub use handshake::Failure;
pub use identity::{Authorisation, Identity, Method, Names, NamesError, Rights};
pub use keys::UpdateLimits;
pub use possession::{Challenge, NONCE_BYTES, PROOF_BYTES, Prover};
pub use stream::{Ahead, STREAM_MAGIC, SealedStream, StreamConfig};
