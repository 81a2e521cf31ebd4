//! See `chunkmount_fuzz::options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::options::target(data));
