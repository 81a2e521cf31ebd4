//! Undoing byte shuffle and bit shuffle, as HDF5, numcodecs and Blosc write them.
//!
//! A shuffled block of n elements holds the first bytes of all elements, then the second bytes, and so on; bytes beyond the
//! last whole element follow unchanged. Bit shuffle does the same with single bits. The inner loops work on fixed-size
//! arrays, which the compiler turns into vector code.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

/// Undoes byte shuffle of elements of `size` bytes; `out` is as long as `shuffled`.
pub(super) fn unshuffle(shuffled: &[u8], out: &mut [u8], size: usize) {
    match size {
        0 | 1 => out.copy_from_slice(shuffled),
        2 => fixed::<2>(shuffled, out),
        4 => fixed::<4>(shuffled, out),
        8 => fixed::<8>(shuffled, out),
        16 => fixed::<16>(shuffled, out),
        _ => any(shuffled, out, size),
    }
}

/// Elements of S bytes (a power of two, at most 16), 32 at a time.
///
/// Interleaving row k with row k + S/2 halves the number of rows; when one is left, it holds the elements. Interleaving two
/// rows is one vector instruction per 16 bytes; writing each element by itself takes 5 to 15 times as long.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "indices into arrays of a constant length")]
fn fixed<const S: usize>(shuffled: &[u8], out: &mut [u8]) {
    const RUN: usize = 32;
    let count = shuffled.len() / S;
    let (body, tail) = shuffled.split_at(count * S);
    let (out, out_tail) = out.split_at_mut(count * S);
    out_tail.copy_from_slice(tail);
    let mut planes: [&[u8]; S] = std::array::from_fn(|k| &body[k * count..(k + 1) * count]);
    let (mut one, mut other) = ([0u8; 16 * RUN], [0u8; 16 * RUN]);
    let mut runs = out.chunks_exact_mut(RUN * S);
    for run in &mut runs {
        for (row, plane) in one.chunks_exact_mut(RUN).zip(&mut planes) {
            let (head, rest) = plane.split_at(RUN);
            row.copy_from_slice(head);
            *plane = rest;
        }
        let (mut from, mut to) = (&mut one, &mut other);
        let (mut rows, mut length) = (S, RUN);
        while rows > 2 {
            let half = rows / 2;
            for k in 0..half {
                let (low, high) = (&from[k * length..][..length], &from[(k + half) * length..][..length]);
                interleave(low, high, &mut to[2 * k * length..][..2 * length]);
            }
            std::mem::swap(&mut from, &mut to);
            (rows, length) = (half, 2 * length);
        }
        interleave(&from[..length], &from[length..][..length], run);
    }
    let (items, _) = runs.into_remainder().as_chunks_mut::<S>();
    for (i, item) in items.iter_mut().enumerate() {
        for (byte, plane) in item.iter_mut().zip(&planes) {
            *byte = plane.get(i).copied().unwrap_or(0);
        }
    }
}

#[inline(always)]
fn interleave(low: &[u8], high: &[u8], out: &mut [u8]) {
    for ((pair, low), high) in out.as_chunks_mut::<2>().0.iter_mut().zip(low).zip(high) {
        *pair = [*low, *high];
    }
}

/// Elements of any size.
#[expect(clippy::arithmetic_side_effects, reason = "size is not 0, and the products are at most the length")]
fn any(shuffled: &[u8], out: &mut [u8], size: usize) {
    let count = shuffled.len() / size;
    let (body, tail) = shuffled.split_at(count * size);
    let (out, out_tail) = out.split_at_mut(count * size);
    out_tail.copy_from_slice(tail);
    if count == 0 {
        return;
    }
    // Runs of elements small enough for the cache, whole planes' worth of them.
    let run = (16_384 / size).max(64);
    for (r, items) in out.chunks_mut(run.saturating_mul(size)).enumerate() {
        for (k, plane) in body.chunks_exact(count).enumerate() {
            let plane = plane.get(r * run..).unwrap_or_default();
            for (byte, &value) in items.iter_mut().skip(k).step_by(size).zip(plane) {
                *byte = value;
            }
        }
    }
}

/// Undoes bit shuffle of elements of `size` bytes; `out` is as long as `shuffled`.
///
/// Blosc shuffles only blocks of a multiple of eight elements, and stores others as they are.
#[expect(clippy::arithmetic_side_effects, reason = "size is not 0, and the products are at most the length")]
pub(super) fn bit_unshuffle(shuffled: &[u8], out: &mut [u8], size: usize, planes: &mut Vec<u8>) {
    let count = shuffled.len() / size.max(1);
    if size == 0 || !count.is_multiple_of(8) || count == 0 {
        out.copy_from_slice(shuffled);
        return;
    }
    planes.clear();
    planes.resize(shuffled.len(), 0);
    let (body, tail) = shuffled.split_at(count * size);
    // First the bits of each byte come together, which gives the planes of a byte shuffle.
    for (plane, bits) in planes.chunks_exact_mut(count).zip(body.chunks_exact(count)) {
        gather_bits(bits, plane);
    }
    if let Some(end) = planes.get_mut(count * size..) {
        end.copy_from_slice(tail);
    }
    unshuffle(planes, out, size);
}

/// Eight rows of bits, one after another in `bits`, become bytes: bit k of byte i is bit i of row k, low bits first.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "rows of length / 8, indices below it")]
fn gather_bits(bits: &[u8], plane: &mut [u8]) {
    let width = bits.len() / 8;
    let rows: [&[u8]; 8] = std::array::from_fn(|k| &bits[k * width..(k + 1) * width]);
    let (groups, _) = plane.as_chunks_mut::<8>();
    let (runs, rest) = groups.as_chunks_mut::<8>();
    let done = runs.len() * 8;
    for (r, run) in runs.iter_mut().enumerate() {
        let mut words = [0u64; 8];
        for (word, row) in words.iter_mut().zip(&rows) {
            *word = row[r * 8..].first_chunk().map_or(0, |&bytes| u64::from_le_bytes(bytes));
        }
        transpose_bytes(&mut words);
        for (group, word) in run.iter_mut().zip(words) {
            *group = transpose_bits(word).to_le_bytes();
        }
    }
    for (g, group) in rest.iter_mut().enumerate() {
        let column: [u8; 8] = std::array::from_fn(|k| rows[k][done + g]);
        *group = transpose_bits(u64::from_le_bytes(column)).to_le_bytes();
    }
}

/// Transposes a matrix of 8 by 8 bits, row k being byte k.
fn transpose_bits(mut x: u64) -> u64 {
    for (shift, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let t = (x ^ (x >> shift)) & mask;
        x ^= t ^ (t << shift);
    }
    x
}

/// Transposes a matrix of 8 by 8 bytes, row k being word k.
#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "indices are below 8")]
fn transpose_bytes(words: &mut [u64; 8]) {
    let steps: [(usize, u32, u64); 3] =
        [(1, 8, 0x00ff_00ff_00ff_00ff), (2, 16, 0x0000_ffff_0000_ffff), (4, 32, 0x0000_0000_ffff_ffff)];
    for (distance, shift, mask) in steps {
        for i in 0..8 {
            if i & distance == 0 {
                let t = ((words[i] >> shift) ^ words[i + distance]) & mask;
                words[i] ^= t << shift;
                words[i + distance] ^= t;
            }
        }
    }
}
