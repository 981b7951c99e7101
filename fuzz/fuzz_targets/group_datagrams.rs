#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| cci_testkit::fuzz::group_datagrams(data));
