//! See `chunkmount_fuzz::dtype`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::dtype::target(data));
