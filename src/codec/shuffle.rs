//! Undoing byte shuffle and bit shuffle, as HDF5, numcodecs and Blosc write them.
//!
//! A shuffled block of n elements holds the first bytes of all elements, then the second bytes, and so on; bytes beyond the
//! last whole element follow unchanged. Bit shuffle does the same with single bits. Results are appended, so that no fresh
//! memory is written twice; 16 elements (of bits: 128) are done at a time in vector registers, the rest one by one.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use wide::{u8x16, u64x2};

/// Undoes byte shuffle of elements of `size` bytes, and appends the result to `out`.
pub(super) fn unshuffle(shuffled: &[u8], out: &mut Vec<u8>, size: usize) {
    out.reserve(shuffled.len());
    match size {
        0 | 1 => out.extend_from_slice(shuffled),
        2 => fixed::<2>(shuffled, out),
        4 => fixed::<4>(shuffled, out),
        8 => fixed::<8>(shuffled, out),
        16 => fixed::<16>(shuffled, out),
        _ => any(shuffled, out, size),
    }
}

/// Row k of S holds byte k of 16 elements; the result holds the elements. S is a power of two, at most 16.
///
/// Interleaving row k with row k + S/2 halves the number of rows, which are twice as long; when one is left, it holds the
/// elements.
#[inline(always)]
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "indices below a constant length")]
fn interleave<const S: usize>(mut rows: [u8x16; S]) -> [u8x16; S] {
    for _ in 0..S.ilog2() {
        let mut next = [u8x16::ZERO; S];
        for k in 0..S / 2 {
            let (low, high) = (rows[k], rows[k + S / 2]);
            next[2 * k] = u8x16::unpack_low(low, high);
            next[2 * k + 1] = u8x16::unpack_high(low, high);
        }
        rows = next;
    }
    rows
}

#[inline(always)]
fn append<const S: usize>(out: &mut Vec<u8>, elements: [u8x16; S]) {
    out.extend_from_slice(elements.map(u8x16::to_array).as_flattened());
}

/// Elements of S bytes, a power of two.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "S planes of count bytes, indices below count")]
#[expect(clippy::needless_range_loop, reason = "one index into rows side by side")]
fn fixed<const S: usize>(shuffled: &[u8], out: &mut Vec<u8>) {
    let count = shuffled.len() / S;
    let (body, tail) = shuffled.split_at(count * S);
    let planes: [&[u8]; S] = std::array::from_fn(|k| &body[k * count..(k + 1) * count]);
    let runs = planes.map(|plane| plane.as_chunks::<16>().0);
    for i in 0..count / 16 {
        append(out, interleave::<S>(std::array::from_fn(|k| u8x16::new(runs[k][i]))));
    }
    for i in count / 16 * 16..count {
        out.extend(planes.map(|plane| plane[i]));
    }
    out.extend_from_slice(tail);
}

/// Elements of any size.
#[expect(clippy::arithmetic_side_effects, reason = "size is not 0, and the products are at most the length")]
fn any(shuffled: &[u8], out: &mut Vec<u8>, size: usize) {
    let count = shuffled.len() / size;
    let (body, tail) = shuffled.split_at(count * size);
    let start = out.len();
    out.resize(start + body.len(), 0);
    let target = out.get_mut(start..).unwrap_or_default();
    // Runs of elements small enough for the cache, whole planes' worth of them.
    let run = (16_384 / size).max(64);
    for (r, items) in target.chunks_mut(run.saturating_mul(size)).enumerate() {
        for (k, plane) in body.chunks_exact(count).enumerate() {
            let plane = plane.get(r * run..).unwrap_or_default();
            for (byte, &value) in items.iter_mut().skip(k).step_by(size).zip(plane) {
                *byte = value;
            }
        }
    }
    out.extend_from_slice(tail);
}

/// Undoes bit shuffle of elements of `size` bytes, and appends the result to `out`.
///
/// Blosc shuffles only blocks of a multiple of eight elements, and stores others as they are.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "size rows of 8 * width bytes, indices below width")]
pub(super) fn bit_unshuffle(shuffled: &[u8], out: &mut Vec<u8>, size: usize) {
    out.reserve(shuffled.len());
    let count = shuffled.len() / size.max(1);
    if size == 0 || !count.is_multiple_of(8) || count == 0 {
        out.extend_from_slice(shuffled);
        return;
    }
    let width = count / 8;
    let (body, tail) = shuffled.split_at(count * size);
    let done = match size {
        1 => tiles::<1>(body, width, out),
        2 => tiles::<2>(body, width, out),
        4 => tiles::<4>(body, width, out),
        8 => tiles::<8>(body, width, out),
        16 => tiles::<16>(body, width, out),
        _ => 0,
    };
    let start = out.len();
    out.resize(start + (width - done) * 8 * size, 0);
    let target = out.get_mut(start..).unwrap_or_default();
    for (g, elements) in target.chunks_exact_mut(8 * size).enumerate() {
        for (k, rows) in body.chunks_exact(count).enumerate() {
            // Eight bits of byte k of eight elements.
            let column: [u8; 8] = std::array::from_fn(|bit| rows[bit * width + done + g]);
            let bytes = transpose_bits(u64x2::new([u64::from_le_bytes(column), 0])).to_array()[0].to_le_bytes();
            for (element, byte) in elements.chunks_exact_mut(size).zip(bytes) {
                element[k] = byte;
            }
        }
    }
    out.extend_from_slice(tail);
}

/// Elements of S bytes, a power of two, 128 at a time, as many of them as there are; gives the eighth of their number. A row
/// of `width` bytes holds one bit of all elements, and 8 rows after one another hold a byte, low bits first.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "8 * S rows of width bytes, indices below width")]
#[expect(clippy::needless_range_loop, reason = "one index into rows side by side")]
fn tiles<const S: usize>(body: &[u8], width: usize, out: &mut Vec<u8>) -> usize {
    let rows: [[&[[u8; 16]]; 8]; S] =
        std::array::from_fn(|k| std::array::from_fn(|bit| body[(8 * k + bit) * width..][..width].as_chunks().0));
    for i in 0..width / 16 {
        // Interleaved rows have the eight bytes of eight elements' bits side by side.
        let planes: [[u8x16; 8]; S] = std::array::from_fn(|k| {
            let columns = interleave::<8>(std::array::from_fn(|bit| u8x16::new(rows[k][bit][i])));
            columns.map(|pair| bytemuck::cast(transpose_bits(bytemuck::cast(pair))))
        });
        for j in 0..8 {
            append(out, interleave::<S>(std::array::from_fn(|k| planes[k][j])));
        }
    }
    width / 16 * 16
}

/// Transposes two matrices of 8 by 8 bits, row k being byte k.
#[inline(always)]
#[expect(clippy::arithmetic_side_effects, reason = "operations on bits, shifts below 64")]
fn transpose_bits(mut x: u64x2) -> u64x2 {
    for (shift, mask) in [(7u64, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let t = (x ^ (x >> shift)) & u64x2::splat(mask);
        x = x ^ t ^ (t << shift);
    }
    x
}
