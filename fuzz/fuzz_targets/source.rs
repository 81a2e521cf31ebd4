//! See `chunkmount_fuzz::source`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::source::target(data));
