#![no_main]
#[allow(dead_code, reason = "the command uses the rest")]
#[path = "../../crates/cli/src/protocol.rs"]
mod protocol;
libfuzzer_sys::fuzz_target!(|data: &[u8]| protocol::fuzz(data));
