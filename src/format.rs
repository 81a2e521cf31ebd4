//! Metadata documents of a directory become a [`Node`]: which documents to look for, and whose they are.
//!
//! Pure: bytes in, plain data out. NCZarr is a dialect of Zarr v2. Zarr's documents come before N5's where a directory has
//! both, and version 3 before version 2. Every error begins with the name of its document; the caller adds the directory.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

pub mod base64;
pub mod dtype;
pub mod fill;
pub mod json;
pub mod n5;
pub mod nczarr;
pub mod nczarr3;
pub mod scales;
pub mod wkw;
pub mod zarr2;
pub mod zarr3;

use crate::array::{Format, Formats, Group, Node};
use crate::error::{Error, Result};
use crate::limits;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Names of the documents that tell what a directory is; all of them are looked for.
pub const DOCUMENTS: &[&str] = &[
    zarr3::DOCUMENT,
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
    wkw::HEADER,
    wkw::PROPERTIES,
];

/// Whether a file of this name is part of a store: a document, or a file of WKW.
pub fn is_mark(name: &[u8]) -> bool {
    name == b"zarr.json" || name.ends_with(b".wkw") || DOCUMENTS.iter().any(|document| document.as_bytes() == name)
}

/// Whether a file is one of [`DOCUMENTS`] that are not shown as they are.
pub fn is_hidden(name: &[u8]) -> bool {
    name != wkw::PROPERTIES.as_bytes() && DOCUMENTS.iter().any(|document| document.as_bytes() == name)
}

/// The documents found in a directory: the bytes, or why they cannot be read. A name that is not in it is absent.
pub type Documents = BTreeMap<&'static str, Result<Vec<u8>>>;

/// What the caller wants and knows when a directory is looked at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    /// Only these formats are looked for.
    pub wanted: Formats,
    /// The format of the directory above; an N5 group need not have a document.
    pub parent: Option<Format>,
    /// Keep the order of axes of N5 and WKW (first axis fastest) instead of reversing it.
    pub source_axes: bool,
    /// Where in a WEBKNOSSOS dataset the directory lies.
    pub place: Option<&'a wkw::Place>,
}

/// Tells what a directory is.
///
/// # Errors
/// When a document contradicts itself, is not read, or could not be fetched; the message names the document and the reason.
/// A directory with an error is *broken*, never absent.
pub fn detect(documents: &Documents, context: &Context<'_>) -> Result<Node> {
    let wanted = |format| context.wanted.include(format);
    if wanted(Format::Zarr3)
        && let Some(node) = zarr3::detect(documents)?
    {
        return Ok(node);
    }
    if wanted(Format::Zarr2)
        && let Some(node) = zarr2::detect(documents, context)?
    {
        return Ok(node);
    }
    if wanted(Format::Wkw)
        && let Some(node) = wkw::detect(documents, context)?
    {
        return Ok(node);
    }
    if wanted(Format::N5)
        && let Some(node) = n5::detect(documents, context)?
    {
        return Ok(node);
    }
    Ok(Node::Directory)
}

/// What a person should know of how a directory was understood, once.
pub fn notice(documents: &Documents, node: &Node) -> Option<String> {
    match node {
        Node::Group(Group { format: Format::Zarr2, .. }) => zarr2::passed_over(documents),
        Node::Group(Group { format: Format::N5, .. }) => n5::newer_version(documents),
        Node::Array(array) if array.format == Format::Zarr3 => zarr3::notice(documents),
        _ => None,
    }
}

/// Which format a directory is of that cannot be understood: what it has a document of, or else its parent's.
pub fn suspected(documents: &Documents, context: &Context<'_>) -> Option<Format> {
    let v3 = documents.contains_key(zarr3::DOCUMENT) && context.wanted.include(Format::Zarr3);
    if v3 { Some(Format::Zarr3) } else { context.parent }
}

/// Largest length of an axis: readers count elements with 62 bits (tensorstore) or 63 (numpy).
const AXIS: u64 = 1 << 62;

/// The bytes of a document, `None` where it is absent.
fn document<'a>(documents: &'a Documents, name: &str) -> Result<Option<&'a [u8]>> {
    match documents.get(name) {
        None => Ok(None),
        Some(Ok(bytes)) => Ok(Some(bytes)),
        Some(Err(e)) => Err(inside(name, e.clone())),
    }
}

/// A document that must be an object; `None` where it is absent.
fn object(documents: &Documents, name: &str) -> Result<Option<Map<String, Value>>> {
    document(documents, name)?.map(|bytes| json::parse_object(bytes).map_err(|e| inside(name, e))).transpose()
}

/// The error, naming the document it lies in.
fn inside(name: &str, e: Error) -> Error {
    Error::new(e.kind(), format!("{name}: {}", e.reason()))
}

/// A list of whole numbers of an axis each, called `what` in messages.
fn axes(members: &Map<String, Value>, what: &str) -> Result<Vec<u64>> {
    let value = members.get(what).ok_or_else(|| Error::corrupt(format!("no `{what}`")))?;
    let list = value.as_array().ok_or_else(|| Error::corrupt(format!("{what}: {} is no list of integers", json::cite(value))))?;
    if list.len() > limits::RANK {
        return Err(Error::too_big(format!("{what}: {} axes; at most {} are read", list.len(), limits::RANK)));
    }
    list.iter().map(|n| axis(n).map_err(|e| Error::new(e.kind(), format!("{what}: {}", e.reason())))).collect()
}

/// The length of one axis.
fn axis(value: &Value) -> Result<u64> {
    let digits = value.as_number().map(|n| n.as_str()).filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
    match digits {
        None => Err(Error::corrupt(format!("{} is no length of an axis", json::cite(value)))),
        Some(digits) => match digits.parse::<u64>() {
            Ok(n) if n < AXIS => Ok(n),
            _ => Err(Error::too_big(format!("an axis of {}; at most 2^62 - 1 is read", json::cite(value)))),
        },
    }
}

/// Checks that chunks and grid are within reach: a chunk has at most [`limits::CHUNK`] bytes, a grid fewer than 2^127 chunks.
/// `item` is the size of an element in bytes; an object counts as one.
fn check_sizes(shape: &[u64], chunks: &[u64], item: u64) -> Result<()> {
    let bytes = chunks.iter().try_fold(item.max(1), |n, &c| n.checked_mul(c.max(1)));
    if bytes.is_none_or(|n| n > limits::CHUNK) {
        return Err(Error::too_big(format!(
            "a chunk of {chunks:?} elements of {item} bytes; at most {} bytes are read",
            limits::CHUNK
        )));
    }
    let grid = shape.iter().zip(chunks).try_fold(1u128, |n, (&s, &c)| n.checked_mul(u128::from(s.div_ceil(c.max(1)))));
    if grid.is_none_or(|n| n >> 127 != 0) {
        return Err(Error::too_big(format!("an array of {shape:?} in chunks of {chunks:?} has more than 2^127 chunks")));
    }
    Ok(())
}

/// The names of `rank` axes that attributes give under `key`.
fn names(attributes: &Map<String, Value>, key: &str, rank: usize) -> Option<Vec<Option<String>>> {
    let list = attributes.get(key)?.as_array()?;
    let names: Option<Vec<_>> = list.iter().map(|name| name.as_str().map(|n| Some(n.to_owned()))).collect();
    names.filter(|names| names.len() == rank)
}
