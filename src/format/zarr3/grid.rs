//! Chunk grids: the shape of what an object of the store holds.
//!
//! A rectilinear grid whose chunks all have one shape is a regular one. Where the last chunk of an axis is shorter its bytes are
//! too, so that it is none.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::named;
use crate::error::{Error, Result};
use crate::format::{axes, axis, json};
use serde_json::Value;

/// The shape of the chunks of an array of `shape`; none of its lengths is 0.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] for grids whose chunks have more than one shape, or that are not known.
pub(super) fn chunk_shape(grid: &Value, shape: &[u64]) -> Result<Vec<u64>> {
    let (name, configuration) = named(grid)?;
    let mut chunks = match name {
        "regular" => axes(configuration, "chunk_shape")?,
        "rectilinear" => {
            if configuration.get("kind").is_some_and(|kind| kind != "inline") {
                return Err(Error::unsupported("a rectilinear grid that is not inline"));
            }
            let list = configuration.get("chunk_shapes").and_then(Value::as_array);
            let list = list.ok_or_else(|| Error::corrupt("rectilinear: no list `chunk_shapes`"))?;
            if list.len() != shape.len() {
                return Err(Error::corrupt(format!("rectilinear: {} axes where the shape has {}", list.len(), shape.len())));
            }
            list.iter().zip(shape).map(|(edges, &length)| edge(edges, length)).collect::<Result<_>>()?
        }
        other => return Err(Error::unsupported(format!("{other:?} is not read"))),
    };
    if chunks.len() != shape.len() {
        return Err(Error::corrupt(format!("chunk_shape: {} axes where the shape has {}", chunks.len(), shape.len())));
    }
    if chunks.iter().zip(shape).any(|(&chunk, &length)| chunk == 0 && length != 0) {
        return Err(Error::corrupt(format!("chunk_shape: {chunks:?} has a length of 0 where the shape {shape:?} has not")));
    }
    chunks.iter_mut().for_each(|n| *n = (*n).max(1));
    Ok(chunks)
}

/// The one length that the chunks along an axis of `length` elements have: a number, or a list of lengths and of
/// `[length, how often]`.
fn edge(edges: &Value, length: u64) -> Result<u64> {
    let list = match edges {
        Value::Number(_) => return axis(edges),
        Value::Array(list) => list,
        other => return Err(Error::corrupt(format!("rectilinear: {} is no list of chunk lengths", json::cite(other)))),
    };
    let mut first = None;
    let mut covered = 0u64;
    for run in list {
        let (n, times) = match run.as_array().map(Vec::as_slice) {
            None => (axis(run)?, 1),
            Some([n, times]) => (axis(n)?, axis(times)?),
            Some(_) => return Err(Error::corrupt(format!("rectilinear: {} is no [length, how often]", json::cite(run)))),
        };
        if times == 0 {
            continue;
        }
        if *first.get_or_insert(n) != n {
            return Err(Error::unsupported("a rectilinear grid with chunks of different shapes"));
        }
        covered = covered.saturating_add(n.saturating_mul(times));
    }
    if covered < length {
        return Err(Error::corrupt(format!("rectilinear: chunks cover {covered} of {length} elements")));
    }
    Ok(first.unwrap_or(1))
}
