//! Metadata documents of a directory become a [`Node`]: which documents to look for, and whose they are.
//!
//! Pure: bytes in, plain data out. NCZarr is a dialect of Zarr v2.

pub mod json;
pub mod n5;
pub mod nczarr;
pub mod zarr2;

use crate::array::{Format, Node};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// Names of the documents that tell what a directory is; all of them are looked for, and none is shown as it is.
pub const DOCUMENTS: &[&str] = &[
    ".zarray",
    ".zattrs",
    ".zgroup",
    ".zmetadata",
    ".nczarr",
    ".nczgroup",
    ".nczvar",
    ".nczarray",
    ".nczattr",
    ".nczattrs",
    "attributes.json",
];

/// The documents found in a directory: the bytes, or why they cannot be read. A name that is not in it is absent.
pub type Documents = BTreeMap<&'static str, Result<Vec<u8>>>;

/// What the caller wants and knows when a directory is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context {
    /// Only this format is looked for.
    pub only: Option<Format>,
    /// The format of the directory above; an N5 group need not have a document.
    pub parent: Option<Format>,
    /// Keep N5's order of axes (first axis fastest) instead of reversing it.
    pub source_axes: bool,
}

/// Tells what a directory is.
///
/// # Errors
/// When a document contradicts itself, is not read, or could not be fetched; the message names the document and the reason.
/// A directory with an error is *broken*, never absent.
pub fn detect(documents: &Documents, context: &Context) -> Result<Node> {
    let _ = (documents, context);
    Err(Error::unsupported("not yet"))
}
