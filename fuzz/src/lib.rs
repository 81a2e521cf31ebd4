//! What is fuzzed: for each parser of untrusted bytes a function of bytes that panics when the parser does not keep its word.
//!
//! Each target demands more than the absence of panics: lengths are as asked, documents parse, names and what they stand for
//! are each other's inverse. The functions know nothing of a fuzzer, so that `tests/fuzz.rs` includes this file and replays the
//! kept corpora without one. See `docs/testing.md`.

#![allow(clippy::panic, reason = "a panic is how a target tells")]

pub mod block;
pub mod chain;
pub mod cli;
pub mod codec;
pub mod cube;
pub mod dtype;
pub mod input;
pub mod json;
pub mod metadata;
pub mod names;
pub mod options;
pub mod shard;
pub mod source;
pub mod store;
pub mod zip;

/// A target: panics when something is wrong.
pub type Target = fn(&[u8]);

/// All targets by name, which is also that of the binary and of the corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("block", block::target),
    ("chain", chain::target),
    ("cli", cli::target),
    ("codec", codec::target),
    ("cube", cube::target),
    ("dtype", dtype::target),
    ("json", json::target),
    ("metadata", metadata::target),
    ("names", names::target),
    ("options", options::target),
    ("shard", shard::target),
    ("source", source::target),
    ("store", store::target),
    ("zip", zip::target),
];
