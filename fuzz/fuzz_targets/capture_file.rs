#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::capture_file::check(data));
