//! See `chunkmount_fuzz::shard`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| chunkmount_fuzz::shard::target(data));
