//! See `chunkmount_fuzz::codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::codec::target(data));
