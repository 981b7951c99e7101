//! What fuzzing reaches of the inside: one function for each target, which takes any bytes, checks what must hold and
//! panics if it does not. Built for cargo-fuzz (`fuzz/`) and for this crate's own tests, never for programs.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a target panics where something is wrong"
)]

mod regions;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod script;
mod text;

pub(crate) use crate::transport::fuzzing::with_handle;
pub use crate::transport::fuzzing::{
    rma_stream, shm_grant, shm_handshake, shm_handshake_message, shm_peer, tcp_peer, tcp_preamble,
};
pub use regions::rma_handles;
pub(crate) use script::Script;
pub use text::{ini, uris};

/// A target: any bytes go in.
pub type Target = fn(&[u8]);

/// All of them, by the names of their files in `fuzz/fuzz_targets`.
pub const TARGETS: &[(&str, Target)] = &[
    ("ini", ini),
    ("rma_handles", rma_handles),
    ("rma_stream", rma_stream),
    ("shm_grant", shm_grant),
    ("shm_handshake", shm_handshake),
    ("shm_handshake_message", shm_handshake_message),
    ("shm_peer", shm_peer),
    ("tcp_peer", tcp_peer),
    ("tcp_preamble", tcp_preamble),
    ("uris", uris),
];

#[cfg(test)]
mod tests {
    /// What was once found stays found.
    #[test]
    fn kept_inputs_harm_nobody() {
        for (name, run) in super::TARGETS {
            let count = super::replay::replay(name, run);
            println!("{name}: {count} inputs");
        }
    }
}
