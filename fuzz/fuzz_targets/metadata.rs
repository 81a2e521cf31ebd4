//! See `chunkmount_fuzz::metadata`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::metadata::target(data));
