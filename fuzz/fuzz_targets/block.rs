//! See `chunkmount_fuzz::block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::block::target(data));
