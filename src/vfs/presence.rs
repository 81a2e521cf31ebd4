//! Which chunks of an array are stored, where the store's directories do not tell: N5 keeps chunks by its first axis, and a
//! mount shows the last axis first; shards and cubes hold many chunks. One walk over the store finds the objects and answers all
//! listings; lookups never need it. Whether there is any is told by the first object that is met.
//!
//! A directory of the last axis (but for axes of one chunk) lists just the chunks that are there, by the indexes of the shards in question. The directories
//! above it are told by the objects alone, so one may turn out to be empty.

use super::{Chunks, Place, Vfs};
use crate::array::{Array, Placement, Style};
use crate::error::{Kind, Result};
use crate::store::{Key, Store, may_lead_on};
use crate::tree::Tree;
use crate::view::names;
use parking_lot::Mutex;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// The objects found, as numbers of their grid in C order of the shown axes, sorted.
type Found = Arc<Vec<u128>>;

/// Who is told of the objects one by one.
type See<'a> = dyn FnMut(u128) -> Result<ControlFlow<()>> + 'a;

/// What is known; nothing until the first listing.
#[derive(Default)]
pub struct Presence {
    found: Mutex<Option<(Instant, Found)>>,
}

impl Vfs {
    /// The indices that occur next after `prefix` among the stored chunks of an array, in order.
    ///
    /// # Errors
    /// When the store cannot list one of the directories on the way.
    pub(super) fn next_indices(&self, chunks: &Arc<Chunks>, prefix: &[u64]) -> Result<Vec<u64>> {
        let array = &chunks.array;
        let per_object = array.chunks_per_object();
        let grid = array.grid();
        let (Some(&per), Some(&end)) = (per_object.get(prefix.len()), grid.get(prefix.len())) else { return Ok(Vec::new()) };
        let above: Vec<u64> = prefix.iter().zip(&per_object).map(|(i, n)| i.checked_div(*n).unwrap_or(0)).collect();
        let objects = next(&self.objects(chunks)?, &objects_grid(array), &above);
        if matches!(array.stored.placement, Placement::Object) {
            return Ok(objects);
        }
        // One chunk is all that can follow: that of the channels of a cube.
        let leaf = grid.iter().skip(prefix.len() + 1).all(|n| *n == 1);
        let mut indices = Vec::new();
        for object in objects {
            let first = object.saturating_mul(per);
            for index in first..first.saturating_add(per).min(end) {
                let path: Vec<u64> = prefix.iter().copied().chain([index]).collect();
                if !leaf || self.is_there(chunks, &path)? {
                    indices.push(index);
                }
            }
        }
        Ok(indices)
    }

    /// Whether any chunk is stored.
    ///
    /// # Errors
    /// When the store cannot list a directory on the way to the first one.
    pub(super) fn has_indices(&self, chunks: &Arc<Chunks>) -> Result<bool> {
        let array = &chunks.array;
        let grid = array.grid();
        let per = array.chunks_per_object().first().copied().unwrap_or(1);
        let told_alone = matches!(array.stored.placement, Placement::Object) || grid.iter().skip(1).any(|n| *n != 1);
        let objects = objects_grid(array);
        let mut any = false;
        let mut see = |number: u128| {
            any = told_alone;
            // As `next_indices` lists them.
            if let (false, Some(object)) = (told_alone, unfold(number, &objects).first()) {
                let first = object.saturating_mul(per);
                for index in first..first.saturating_add(per).min(grid.first().copied().unwrap_or(0)) {
                    any = any || self.is_there(chunks, &[index])?;
                }
            }
            Ok(if any { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let known = self.known(&chunks.presence.found.lock());
        match known {
            Some(found) => {
                for number in found.iter() {
                    if see(*number)?.is_break() {
                        break;
                    }
                }
            }
            None => walk(chunks, &self.tree, &mut see)?,
        }
        Ok(any)
    }

    /// The stored chunks of an array without directories, in C order.
    ///
    /// # Errors
    /// As [`Vfs::next_indices`].
    pub(super) fn all_indices(&self, chunks: &Arc<Chunks>) -> Result<Vec<Vec<u64>>> {
        let grid = chunks.array.grid();
        let found = self.objects(chunks)?;
        Ok(found.iter().map(|&number| unfold(number, &grid)).collect())
    }

    /// Whether a part of a shard is there, which `path` leads to, and zeros after it. One that cannot be told is listed, and fails
    /// when it is opened. What is no part of anything is there.
    pub(super) fn is_there(&self, chunks: &Arc<Chunks>, path: &[u64]) -> Result<bool> {
        if matches!(chunks.array.stored.placement, Placement::Object) {
            return Ok(true);
        }
        let mut path = path.to_vec();
        path.resize(chunks.array.shape.len(), 0);
        let place = Place { chunks: chunks.clone(), path: path.into(), pin: None };
        match self.part(&place) {
            Err(e) => Ok(e.kind() != Kind::NotFound),
            Ok(_) => Ok(true),
        }
    }

    fn objects(&self, chunks: &Chunks) -> Result<Found> {
        // Held while walking: others who list the same array wait for the one walk.
        let mut state = chunks.presence.found.lock();
        if let Some(found) = self.known(&state) {
            return Ok(found);
        }
        let mut all = Vec::new();
        walk(chunks, &self.tree, &mut |number| {
            all.push(number);
            Ok(ControlFlow::Continue(()))
        })?;
        all.sort_unstable();
        all.shrink_to_fit();
        let found = Arc::new(all);
        *state = Some((Instant::now(), found.clone()));
        Ok(found)
    }

    fn known(&self, state: &Option<(Instant, Found)>) -> Option<Found> {
        let fresh = state.as_ref().filter(|(when, _)| self.options.refresh.is_none_or(|age| when.elapsed() < age));
        fresh.map(|(_, found)| found.clone())
    }
}

/// Number of objects along each axis.
fn objects_grid(array: &Array) -> Vec<u64> {
    array.grid().iter().zip(array.chunks_per_object()).map(|(g, n)| g.div_ceil(n.max(1))).collect()
}

/// The indices that occur next after `prefix` among sorted numbers of `grid`.
fn next(found: &[u128], grid: &[u64], prefix: &[u64]) -> Vec<u64> {
    // Objects below one value of the next index, and below the prefix.
    let stride: u128 = grid.iter().skip(prefix.len() + 1).map(|&g| u128::from(g)).product();
    let width = stride * grid.get(prefix.len()).copied().map_or(1, u128::from);
    let start = prefix.iter().zip(grid).fold(0u128, |n, (i, g)| n * u128::from(*g) + u128::from(*i)) * width;
    let mut indices = Vec::new();
    let mut at = found.partition_point(|c| *c < start);
    while let Some(&object) = found.get(at).filter(|c| **c < start + width) {
        let index = (object - start) / stride;
        indices.push(u64::try_from(index).unwrap_or(u64::MAX));
        let end = start + (index + 1) * stride;
        at += found.get(at..).unwrap_or_default().partition_point(|c| *c < end);
    }
    indices
}

/// The number of an index in C order of `grid`; `None` for one outside of it.
fn fold(index: &[u64], grid: &[u64]) -> Option<u128> {
    let inside = index.len() == grid.len() && index.iter().zip(grid).all(|(i, g)| i < g);
    inside.then(|| index.iter().zip(grid).fold(0u128, |n, (i, g)| n * u128::from(*g) + u128::from(*i)))
}

/// The index that has this number in C order of `grid`.
fn unfold(mut number: u128, grid: &[u64]) -> Vec<u64> {
    let mut index = vec![0; grid.len()];
    for (slot, &g) in index.iter_mut().zip(grid).rev() {
        *slot = u64::try_from(number % u128::from(g.max(1))).unwrap_or(0);
        number /= u128::from(g.max(1));
    }
    index
}

/// Passes the numbers of all objects on, until `see` has seen enough.
fn walk(chunks: &Chunks, tree: &Tree, see: &mut See<'_>) -> Result<()> {
    let array = &chunks.array;
    let keys = &array.stored.keys;
    if keys.nested() {
        let start = if keys.style == Style::C { chunks.key.join("c")? } else { chunks.key.clone() };
        match descend(array, tree.store(), &start, &mut Vec::new(), see) {
            // Nothing was ever written.
            Err(e) if e.kind() == Kind::NotFound && keys.style == Style::C => Ok(()),
            Err(e) => tree.nothing(&chunks.key, e).map(drop),
            Ok(_) => Ok(()),
        }
    } else {
        let grid = objects_grid(array);
        for (name, _) in tree.list(&chunks.key)?.iter() {
            let number = names::stored_indices(array, name).and_then(|index| fold(&shown_order(array, &index), &grid));
            if let Some(number) = number
                && see(number)?.is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

/// Indices of an object in the order of the shown axes; a cube says nothing of the axes after its three.
fn shown_order(array: &Array, stored: &[u64]) -> Vec<u64> {
    let mut index = stored.to_vec();
    index.resize(array.shape.len(), 0);
    if array.stored.reversed {
        index.reverse();
    }
    index
}

fn descend(array: &Array, store: &dyn Store, key: &Key, stored: &mut Vec<u64>, see: &mut See<'_>) -> Result<ControlFlow<()>> {
    let listing = match store.list(key) {
        Ok(listing) => listing,
        // It was there when its parent was listed.
        Err(e) if e.kind() == Kind::NotFound && !stored.is_empty() => return Ok(ControlFlow::Continue(())),
        Err(e) => return Err(e),
    };
    let grid = objects_grid(array);
    let limit = if array.stored.reversed { grid.iter().rev().nth(stored.len()) } else { grid.get(stored.len()) };
    let Some(&limit) = limit else { return Ok(ControlFlow::Continue(())) };
    for (name, kind) in listing.iter() {
        let Some((index, last)) = names::stored_index(array, stored.len(), name).filter(|(i, _)| *i < limit) else { continue };
        stored.push(index);
        let flow = if last {
            // A directory in a chunk's place is listed as well, and fails when it is looked at.
            fold(&shown_order(array, stored), &grid).map_or(Ok(ControlFlow::Continue(())), &mut *see)?
        } else if may_lead_on(store, key.join(name), kind) {
            descend(array, store, &key.join(name)?, stored, see)?
        } else {
            ControlFlow::Continue(())
        };
        stored.pop();
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}
