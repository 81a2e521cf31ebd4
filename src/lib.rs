//! chunkmount: chunked n-dimensional arrays as plain decoded files.
//!
#![doc = include_str!("../docs/architecture.md")]

pub mod array;
pub mod codec;
pub mod error;
pub mod format;
pub mod limits;
pub mod store;
pub mod view;
