#![no_main]
#[path = "../../crates/ring/tests/common/mod.rs"]
mod common;
#[path = "../../crates/ring/tests/common/hostile_bytes.rs"]
mod hostile_bytes;
pub use common::Memory;
libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile_bytes::ring(data));
