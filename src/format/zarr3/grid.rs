//! Chunk grids: the shape of what an object of the store holds.
//!
//! A rectilinear grid is a regular one where all chunks have one shape, but for the last along an axis, which may be shorter: such
//! a block is padded, as a regular grid has it, and such a shard has fewer parts. What lies beyond the array does not count.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{beside, named, understood};
use crate::error::{Error, Result};
use crate::format::{axes, axis, json};
use serde_json::Value;

/// The chunks of an array.
pub(super) struct Grid {
    /// Their shape; none of its lengths is 0.
    pub chunks: Vec<u64>,
    /// Length along each axis of what the last one holds; empty where that is a whole chunk along all axes.
    pub last: Vec<u64>,
}

/// Reads the grid of an array of `shape`.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] for grids whose chunks have more than one shape, or that are not known.
pub(super) fn parse(grid: &Value, shape: &[u64]) -> Result<Grid> {
    let (name, configuration) = named(grid)?;
    beside(name, grid)?;
    let (mut chunks, mut last) = match name {
        "regular" => {
            understood(configuration, &["chunk_shape"])?;
            (axes(configuration, "chunk_shape")?, Vec::new())
        }
        "rectilinear" => {
            understood(configuration, &["kind", "chunk_shapes"])?;
            if configuration.get("kind").is_some_and(|kind| kind != "inline") {
                return Err(Error::unsupported("a rectilinear grid that is not inline"));
            }
            let list = configuration.get("chunk_shapes").and_then(Value::as_array);
            let list = list.ok_or_else(|| Error::corrupt("rectilinear: no list `chunk_shapes`"))?;
            if list.len() != shape.len() {
                return Err(Error::corrupt(format!("rectilinear: {} axes where the shape has {}", list.len(), shape.len())));
            }
            let edges = list.iter().zip(shape).map(|(edges, &length)| edge(edges, length)).collect::<Result<Vec<_>>>()?;
            edges.into_iter().unzip()
        }
        other => return Err(Error::unsupported(format!("{other:?} is not read"))),
    };
    if chunks.len() != shape.len() {
        return Err(Error::corrupt(format!("chunk_shape: {} axes where the shape has {}", chunks.len(), shape.len())));
    }
    if chunks.iter().zip(shape).any(|(&chunk, &length)| chunk == 0 && length != 0) {
        return Err(Error::corrupt(format!("chunk_shape: {chunks:?} has a length of 0 where the shape {shape:?} has not")));
    }
    if last == chunks {
        last.clear();
    }
    chunks.iter_mut().for_each(|n| *n = (*n).max(1));
    Ok(Grid { chunks, last })
}

/// The length of the chunks along an axis of `length` elements, and that of the last one: from a number, or from a list of lengths
/// and of `[length, how often]`.
fn edge(edges: &Value, length: u64) -> Result<(u64, u64)> {
    let list = match edges {
        Value::Number(_) => return axis(edges).map(|n| (n, n)),
        Value::Array(list) => list,
        other => return Err(Error::corrupt(format!("rectilinear: {} is no list of chunk lengths", json::cite(other)))),
    };
    let different = || Err(Error::unsupported("a rectilinear grid with chunks of different shapes"));
    // Length of all chunks but the last, and of that; and how far they reach.
    let mut found: Option<(u64, u64)> = None;
    let mut covered = 0u64;
    for run in list {
        let (n, times) = match run.as_array().map(Vec::as_slice) {
            None => (axis(run)?, 1),
            Some([n, times]) => (axis(n)?, axis(times)?),
            Some(_) => return Err(Error::corrupt(format!("rectilinear: {} is no [length, how often]", json::cite(run)))),
        };
        if n == 0 {
            return Err(Error::corrupt("rectilinear: a chunk of no length"));
        }
        // Readers and writers pass over what lies beyond the array.
        if times == 0 || covered >= length && found.is_some() {
            continue;
        }
        let reaches = covered.saturating_add(n);
        let (first, last) = found.unwrap_or((n, n));
        // What is shorter is the last one that holds anything of the array.
        if last != first || n > first || (n < first && reaches < length) {
            return different();
        }
        found = Some((first, n));
        covered = covered.saturating_add(n.saturating_mul(times));
    }
    if covered < length {
        return Err(Error::corrupt(format!("rectilinear: chunks cover {covered} of {length} elements")));
    }
    Ok(found.unwrap_or((1, 1)))
}
