#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cci::fuzzing::shm_handshake_message(data));
