//! Which chunks of an array are stored, where the store's directories do not tell: N5 keeps chunks by its first axis, and a
//! mount shows the last axis first. One walk over the store answers all listings; lookups never need it.

use super::Chunks;
use crate::array::Array;
use crate::error::{Kind, Result};
use crate::store::{Key, ObjectKind, Store};
use crate::view::names;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The chunks found, as numbers of the shown grid in C order, sorted.
type Found = Arc<Vec<u128>>;

/// What is known; nothing until the first listing.
#[derive(Default)]
pub struct Presence {
    found: Mutex<Option<(Instant, Found)>>,
}

/// The indices that occur next after `prefix` among the stored chunks of an array, in order.
///
/// # Errors
/// When the store cannot list one of the directories on the way.
pub fn next_indices(chunks: &Chunks, store: &dyn Store, prefix: &[u64], refresh: Option<Duration>) -> Result<Vec<u64>> {
    let found = {
        // Held while walking: others who list the same array wait for the one walk.
        let mut state = chunks.presence.found.lock();
        match &*state {
            Some((when, found)) if refresh.is_none_or(|age| when.elapsed() < age) => found.clone(),
            _ => {
                let found = Arc::new(walk(chunks, store)?);
                *state = Some((Instant::now(), found.clone()));
                found
            }
        }
    };
    let grid = chunks.array.grid();
    // Chunks below one value of the next index, and below the prefix.
    let stride: u128 = grid.iter().skip(prefix.len() + 1).map(|&g| u128::from(g)).product();
    let width = stride * grid.get(prefix.len()).copied().map_or(1, u128::from);
    let start = prefix.iter().zip(&grid).fold(0u128, |n, (i, g)| n * u128::from(*g) + u128::from(*i)) * width;
    let mut indices = Vec::new();
    let mut at = found.partition_point(|c| *c < start);
    while let Some(&chunk) = found.get(at).filter(|c| **c < start + width) {
        let index = (chunk - start) / stride;
        indices.push(u64::try_from(index).unwrap_or(u64::MAX));
        let end = start + (index + 1) * stride;
        at += found.get(at..).unwrap_or_default().partition_point(|c| *c < end);
    }
    Ok(indices)
}

fn walk(chunks: &Chunks, store: &dyn Store) -> Result<Vec<u128>> {
    let mut found = Vec::new();
    descend(&chunks.array, store, &chunks.key, &mut Vec::new(), &mut found)?;
    found.sort_unstable();
    found.shrink_to_fit();
    Ok(found)
}

fn descend(array: &Array, store: &dyn Store, key: &Key, stored: &mut Vec<u64>, found: &mut Vec<u128>) -> Result<()> {
    let listing = match store.list(key) {
        Ok(listing) => listing,
        // It was there when its parent was listed.
        Err(e) if e.kind() == Kind::NotFound && !stored.is_empty() => return Ok(()),
        Err(e) => return Err(e),
    };
    let grid = array.grid();
    let Some(&limit) = grid.iter().rev().nth(stored.len()) else { return Ok(()) };
    let leaf = stored.len() + 1 == grid.len();
    for (name, kind) in listing.iter() {
        let Some(index) = names::number(name).filter(|i| *i < limit) else { continue };
        stored.push(index);
        if leaf {
            // A directory in a chunk's place is listed as well, and fails when it is looked at.
            let number = stored.iter().rev().zip(&grid).fold(0u128, |n, (i, g)| n * u128::from(*g) + u128::from(*i));
            found.push(number);
        } else if kind == ObjectKind::Directory {
            descend(array, store, &key.join(name)?, stored, found)?;
        }
        stored.pop();
    }
    Ok(())
}
