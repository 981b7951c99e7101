//! Targets for fuzzing that need nothing of the inside: functions that take any bytes and panic if something is wrong.
//! `fuzz/` gives them to cargo-fuzz; a plain test gives them what was kept. Those that need the inside of `cci` are
//! in `cci::fuzzing`.
#![allow(clippy::missing_panics_doc, reason = "a target panics where something is wrong")]

mod datagrams;
mod frames;
mod groups;
pub mod pair;
mod script;
mod secure;

pub use datagrams::proto_datagrams;
pub use frames::eth_frames;
pub use groups::group_datagrams;
pub use script::proto_script;
pub use secure::{secure_datagrams, secure_files};

/// A target: any bytes go in.
pub type Target = fn(&[u8]);

/// All of them, by the names of their files in `fuzz/fuzz_targets`.
pub const TARGETS: &[(&str, Target)] = &[
    ("eth_frames", eth_frames),
    ("group_datagrams", group_datagrams),
    ("proto_datagrams", proto_datagrams),
    ("proto_script", proto_script),
    ("secure_datagrams", secure_datagrams),
    ("secure_files", secure_files),
];
