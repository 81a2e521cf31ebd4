//! Layout of decoded blocks: byte order, order of axes, padding to the full chunk.
//!
//! Pure functions on bytes. Lengths come from untrusted metadata and headers: all products are checked, and bytes that do not
//! fit their shape are an error.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

pub mod labels;
pub mod strings;

use crate::array::Swap;
use crate::error::{Error, Result};
use crate::memory::room;

/// Reverses the bytes of the numbers that `swaps` lists, in each element of `item` bytes. Bytes beyond the last whole element
/// stay, and so does a run that leads out of the element.
pub fn swap(bytes: &mut [u8], item: usize, swaps: &[Swap]) {
    if swaps.is_empty() {
        return;
    }
    if let [Swap { offset: 0, width, count }] = *swaps
        && width.checked_mul(count) == Some(item)
    {
        // The whole element is numbers of one width, so the whole block is.
        let whole = bytes.len().checked_div(item).and_then(|n| n.checked_mul(item)).unwrap_or(0);
        reverse(bytes.get_mut(..whole).unwrap_or_default(), width);
        return;
    }
    if item == 0 {
        return;
    }
    for element in bytes.chunks_exact_mut(item) {
        for swap in swaps {
            let end = swap.width.checked_mul(swap.count).and_then(|n| n.checked_add(swap.offset));
            if let Some(run) = end.and_then(|end| element.get_mut(swap.offset..end)) {
                reverse(run, swap.width);
            }
        }
    }
}

/// Reverses each `width` bytes.
fn reverse(bytes: &mut [u8], width: usize) {
    match width {
        0 | 1 => {}
        2 => bytes.as_chunks_mut().0.iter_mut().for_each(|n| *n = u16::from_be_bytes(*n).to_le_bytes()),
        4 => bytes.as_chunks_mut().0.iter_mut().for_each(|n| *n = u32::from_be_bytes(*n).to_le_bytes()),
        8 => bytes.as_chunks_mut().0.iter_mut().for_each(|n| *n = u64::from_be_bytes(*n).to_le_bytes()),
        16 => bytes.as_chunks_mut().0.iter_mut().for_each(|n| *n = u128::from_be_bytes(*n).to_le_bytes()),
        _ => bytes.chunks_exact_mut(width).for_each(<[u8]>::reverse),
    }
}

/// A block of elements whose axes lie in another order, rearranged so that they are in C order of `shape`. Elements have `item`
/// bytes; `axes` tells which axis of `shape` each stored axis is, slowest first.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] when the block has not just the bytes of `shape`, or `axes` are not those of `shape`.
pub fn transpose(block: &[u8], shape: &[usize], axes: &[usize], item: usize) -> Result<Vec<u8>> {
    let length = bytes_of(shape, item)?;
    if block.len() != length {
        return Err(Error::corrupt(format!("a block of {} bytes where {shape:?} elements of {item} are {length}", block.len())));
    }
    let mut stride = 1usize;
    let mut strides = vec![None; shape.len()];
    for &axis in axes.iter().rev() {
        match (strides.get_mut(axis), shape.get(axis)) {
            (Some(slot @ None), Some(&n)) => {
                *slot = Some(stride);
                stride = stride.saturating_mul(n);
            }
            _ => return Err(Error::corrupt(format!("{axes:?} is no order of {} axes", shape.len()))),
        }
    }
    let strides: Option<Vec<usize>> = strides.into_iter().collect();
    let strides = strides.ok_or_else(|| Error::corrupt(format!("{axes:?} is no order of {} axes", shape.len())))?;
    // Axes of length 1 change nothing; neighbours that are neighbours in the store as well are one axis.
    let mut moved: Vec<(usize, usize)> = Vec::new();
    for (&n, &stride) in shape.iter().zip(&strides).filter(|(n, _)| **n != 1) {
        match moved.last_mut() {
            Some((length, outer)) if Some(*outer) == stride.checked_mul(n) => {
                (*length, *outer) = (length.saturating_mul(n), stride);
            }
            _ => moved.push((n, stride)),
        }
    }
    // A last axis that is the fastest in the store too moves in runs.
    let mut item = item;
    if let Some(&(run, 1)) = moved.last() {
        moved.pop();
        item = item.saturating_mul(run);
        moved.iter_mut().for_each(|(_, stride)| *stride = stride.checked_div(run).unwrap_or(0));
    }
    if moved.is_empty() || length == 0 {
        return Ok(block.to_vec());
    }
    let mut out = room(length)?;
    match item {
        1 => move_elements::<1>(block, &mut out, &moved, item),
        2 => move_elements::<2>(block, &mut out, &moved, item),
        4 => move_elements::<4>(block, &mut out, &moved, item),
        8 => move_elements::<8>(block, &mut out, &moved, item),
        16 => move_elements::<16>(block, &mut out, &moved, item),
        _ => move_elements::<0>(block, &mut out, &moved, item),
    }
    Ok(out)
}

/// The elements move plane by plane: for each index of the other axes, the axis that is fastest in the store against the last
/// one, in square tiles that stay in the cache. `axes` are lengths and strides of the source in elements. N is the size of an
/// element, or 0 for any.
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "lengths and strides are those of a permutation of the axes, so all offsets are below the length of both blocks"
)]
fn move_elements<const N: usize>(block: &[u8], out: &mut [u8], axes: &[(usize, usize)], item: usize) {
    const TILE: usize = 16;
    let Some((&(last, last_source), others)) = axes.split_last() else { return };
    // Length, stride of the source and of the target.
    let mut stride = last;
    let mut axes = Vec::with_capacity(others.len());
    for &(n, source) in others.iter().rev() {
        axes.push((n, source, stride));
        stride *= n;
    }
    let fast = axes.iter().position(|axis| axis.1 == 1);
    let (first, _, first_target) = fast.map_or((1, 0, 0), |at| axes.remove(at));
    let mut index = vec![0usize; axes.len()];
    for _ in 0..axes.iter().map(|axis| axis.0).product() {
        let (mut source, mut target) = (0, 0);
        for (&i, axis) in index.iter().zip(&axes) {
            source += i * axis.1;
            target += i * axis.2;
        }
        for i0 in (0..first).step_by(TILE) {
            for j0 in (0..last).step_by(TILE) {
                for i in i0..(i0 + TILE).min(first) {
                    for j in j0..(j0 + TILE).min(last) {
                        let size = if N == 0 { item } else { N };
                        let from = (source + i + j * last_source) * size;
                        let to = (target + i * first_target + j) * size;
                        out[to..to + size].copy_from_slice(&block[from..from + size]);
                    }
                }
            }
        }
        for (i, axis) in index.iter_mut().zip(&axes) {
            *i += 1;
            if *i < axis.0 {
                break;
            }
            *i = 0;
        }
    }
}

/// A block of `full` shape and of `fill` values, with a smaller block of `stored` shape at its origin; both in C order.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] when `stored` is longer than `full` along an axis or `block` has not just its bytes.
pub fn pad(block: Vec<u8>, stored: &[usize], full: &[usize], item: usize, fill: &[u8]) -> Result<Vec<u8>> {
    if stored.len() != full.len() || stored.iter().zip(full).any(|(s, f)| s > f) {
        return Err(Error::corrupt(format!("a block of {stored:?} elements where chunks have {full:?}")));
    }
    let length = bytes_of(stored, item)?;
    if block.len() != length {
        return Err(Error::corrupt(format!("a block of {} bytes where {stored:?} elements of {item} are {length}", block.len())));
    }
    if stored == full {
        return Ok(block);
    }
    let total = bytes_of(full, item)?;
    if fill.len() != item {
        return Err(Error::corrupt(format!("a fill value of {} bytes for elements of {item}", fill.len())));
    }
    let mut out = filled(total, fill);
    if length == 0 {
        return Ok(out);
    }
    // Trailing axes that are stored whole make one run with the last axis that is not.
    let whole = stored.iter().zip(full).rev().take_while(|(s, f)| s == f).count();
    let axes = full.len().saturating_sub(whole);
    let inner = bytes_of(full.get(axes..).unwrap_or_default(), item)?;
    let (outer_stored, outer_full) = (stored.get(..axes).unwrap_or_default(), full.get(..axes).unwrap_or_default());
    let Some((&run, rows_stored)) = outer_stored.split_last() else {
        return Ok(out);
    };
    let run = run.saturating_mul(inner);
    let mut strides = vec![0usize; axes];
    let mut stride = inner;
    for (s, &n) in strides.iter_mut().zip(outer_full).rev() {
        *s = stride;
        stride = stride.saturating_mul(n);
    }
    let mut index = vec![0usize; rows_stored.len()];
    for row in block.chunks_exact(run) {
        let at = index.iter().zip(&strides).fold(0usize, |sum, (&i, &s)| sum.saturating_add(i.saturating_mul(s)));
        if let Some(target) = out.get_mut(at..).and_then(|rest| rest.get_mut(..run)) {
            target.copy_from_slice(row);
        }
        for (i, &n) in index.iter_mut().zip(rows_stored).rev() {
            *i = i.saturating_add(1);
            if *i < n {
                break;
            }
            *i = 0;
        }
    }
    Ok(out)
}

/// `length` bytes of `fill` values one after another; an empty fill value stands for zeros.
pub fn filled(length: usize, fill: &[u8]) -> Vec<u8> {
    let mut out = vec![0; length];
    if fill.iter().any(|&b| b != 0) {
        for element in out.chunks_mut(fill.len().max(1)) {
            let n = element.len();
            element.copy_from_slice(fill.get(..n).unwrap_or_default());
        }
    }
    out
}

/// Bytes of a block.
fn bytes_of(shape: &[usize], item: usize) -> Result<usize> {
    shape
        .iter()
        .try_fold(item, |n, &d| n.checked_mul(d))
        .ok_or_else(|| Error::too_big(format!("a block of {shape:?} elements of {item} bytes")))
}

#[cfg(test)]
mod tests;
