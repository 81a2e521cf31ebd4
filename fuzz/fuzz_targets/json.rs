//! See `chunkmount_fuzz::json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::json::target(data));
