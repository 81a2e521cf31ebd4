//! See `chunkmount_fuzz::names`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::names::target(data));
