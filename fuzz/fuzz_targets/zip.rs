//! See `chunkmount_fuzz::zip`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::zip::target(data));
