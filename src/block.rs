//! Layout of decoded blocks: byte order, order of axes, padding to the full chunk.
//!
//! Pure functions on bytes. Lengths come from untrusted metadata and headers: all products are checked, and bytes that do not
//! fit their shape are an error.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

pub mod labels;
pub mod strings;

use crate::array::Swap;
use crate::error::{Error, Result};

/// Reverses the bytes of the numbers that `swaps` lists, in each element of `item` bytes. Bytes beyond the last whole element
/// stay, and so does a run that leads out of the element.
pub fn swap(bytes: &mut [u8], item: usize, swaps: &[Swap]) {
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

/// A block of elements in F order (first axis fastest), rearranged to C order (last axis fastest). Elements have `item` bytes.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] when the block has not just the bytes of `shape`.
pub fn transpose_f_to_c(block: &[u8], shape: &[usize], item: usize) -> Result<Vec<u8>> {
    let length = bytes_of(shape, item)?;
    if block.len() != length {
        return Err(Error::corrupt(format!("a block of {} bytes where {shape:?} elements of {item} are {length}", block.len())));
    }
    // Axes of length 1 change nothing, and what is left of one axis or none is in both orders at once.
    let shape: Vec<usize> = shape.iter().copied().filter(|&n| n != 1).collect();
    if shape.len() < 2 || length == 0 {
        return Ok(block.to_vec());
    }
    let mut out = vec![0; length];
    match item {
        1 => transpose::<1>(block, &mut out, &shape, item),
        2 => transpose::<2>(block, &mut out, &shape, item),
        4 => transpose::<4>(block, &mut out, &shape, item),
        8 => transpose::<8>(block, &mut out, &shape, item),
        16 => transpose::<16>(block, &mut out, &shape, item),
        _ => transpose::<0>(block, &mut out, &shape, item),
    }
    Ok(out)
}

/// The elements move plane by plane: for each index of the axes between, first against last axis, in square tiles that
/// stay in the cache. N is the size of an element, or 0 for any.
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "all offsets are below the product of shape and item, which is the length of both blocks"
)]
fn transpose<const N: usize>(block: &[u8], out: &mut [u8], shape: &[usize], item: usize) {
    const TILE: usize = 16;
    let [first, middle @ .., last] = shape else { return };
    let between: usize = middle.iter().product();
    // Strides in elements: in F order the last axis moves by all others, in C order the first one does.
    let (source_last, target_first) = (first * between, between * last);
    let mut index = vec![0usize; middle.len()];
    for _ in 0..between {
        let (mut source, mut source_stride) = (0, *first);
        for (&i, &n) in index.iter().zip(middle) {
            source += i * source_stride;
            source_stride *= n;
        }
        let (mut target, mut target_stride) = (0, *last);
        for (&i, &n) in index.iter().zip(middle).rev() {
            target += i * target_stride;
            target_stride *= n;
        }
        for i0 in (0..*first).step_by(TILE) {
            for j0 in (0..*last).step_by(TILE) {
                for i in i0..(i0 + TILE).min(*first) {
                    for j in j0..(j0 + TILE).min(*last) {
                        let size = if N == 0 { item } else { N };
                        let from = (source + i + j * source_last) * size;
                        let to = (target + i * target_first + j) * size;
                        out[to..to + size].copy_from_slice(&block[from..from + size]);
                    }
                }
            }
        }
        for (i, &n) in index.iter_mut().zip(middle).rev() {
            *i += 1;
            if *i < n {
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
