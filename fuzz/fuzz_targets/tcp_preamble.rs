#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cci::fuzzing::tcp_preamble(data));
