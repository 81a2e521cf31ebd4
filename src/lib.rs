//! chunkmount: chunked n-dimensional arrays as plain decoded files.
//!
#![doc = include_str!("../docs/architecture.md")]

pub mod array;
pub mod block;
pub mod cache;
pub mod chunk;
pub mod cli;
pub mod codec;
pub mod command;
pub mod error;
pub mod format;
pub mod fuse;
pub mod limits;
pub mod logs;
pub mod memory;
pub mod mount;
pub mod pieces;
pub mod placement;
pub mod source;
pub mod store;
pub mod tree;
pub mod vfs;
pub mod view;
