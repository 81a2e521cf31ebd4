//! See `chunkmount_fuzz::cube`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::cube::target(data));
