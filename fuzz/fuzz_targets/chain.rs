//! See `chunkmount_fuzz::chain`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::chain::target(data));
