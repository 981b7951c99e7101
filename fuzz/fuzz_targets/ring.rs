#![no_main]
#[path = "../../crates/memory/tests/common/mod.rs"]
mod common;
#[path = "../../crates/memory/tests/common/hostile_bytes.rs"]
mod hostile_bytes;
pub use common::Memory;
libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile_bytes::ring(data));
