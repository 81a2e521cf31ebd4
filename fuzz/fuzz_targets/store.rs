//! See `chunkmount_fuzz::store`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::store::target(data));
