//! LZ4 blocks ([format](https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md)).
//!
//! A block is sequences of a token, literals and a match; the last sequence has no match. Our own decoder for the linked blocks
//! of frames, whose matches begin before the block, and the one check that the C library does not make.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::codec::repeat::{literals, repeat};

/// The shortest match.
const LEAST: usize = 4;

/// Why a block is damaged.
const CUT: &str = "a block breaks off";
const FAR: &str = "a match begins before the data, or at itself";
pub(super) const LONG: &str = "a block goes on after the expected end";

/// Decodes one block to `at` of `out`, where what stands before may be matched; gives the position after it.
#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "positions in slices, plus a few bytes or lengths that were checked; short literals are fewer than 15"
)]
pub(super) fn decode(input: &[u8], out: &mut [u8], mut at: usize) -> Result<usize, &'static str> {
    let mut from = 0;
    loop {
        let token = *input.get(from).ok_or(CUT)?;
        from += 1;
        let mut count = usize::from(token >> 4);
        let distance;
        if let Some(short) = input.get(from..).and_then(|rest| rest.first_chunk::<17>())
            && count < 15
            && let Some(target) = out.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<16>())
        {
            // Most sequences: at most 14 literals, and a match that has its distance in the same 17 bytes.
            *target = *short.first_chunk().ok_or(CUT)?;
            distance = usize::from(short[count]) | usize::from(short[count + 1]) << 8;
        } else {
            if count == 15 {
                count = extended(count, input, &mut from).ok_or(CUT)?;
            }
            literals(input, from, out, at, count).ok_or_else(|| if count > input.len() - from { CUT } else { LONG })?;
            let rest = input.get(from + count..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(at + count);
            }
            distance = usize::from(u16::from_le_bytes(*rest.first_chunk().ok_or(CUT)?));
        }
        at += count;
        from += count + 2;
        let mut count = usize::from(token & 15) + LEAST;
        if count == 15 + LEAST {
            count = extended(count, input, &mut from).ok_or(CUT)?;
        }
        repeat(out, at, distance, count).ok_or(if distance == 0 || distance > at { FAR } else { LONG })?;
        at += count;
    }
}

/// Whether a block has a match at distance 0, with itself. The block is one that the C library has decoded.
pub(super) fn matches_itself(input: &[u8]) -> bool {
    // Most have no such bytes at all.
    memchr::memmem::find(input, &[0, 0]).is_some() && zero_distance(input).unwrap_or(false)
}

/// The same by its sequences; `None` at the end of the block.
fn zero_distance(input: &[u8]) -> Option<bool> {
    let mut from = 0usize;
    loop {
        let token = *input.get(from)?;
        from = from.checked_add(1)?;
        let mut literals = usize::from(token >> 4);
        if literals == 15 {
            literals = extended(literals, input, &mut from)?;
        }
        from = from.checked_add(literals)?;
        if input.get(from..)?.first_chunk()? == &[0; 2] {
            return Some(true);
        }
        from = from.checked_add(2)?;
        if token & 15 == 15 {
            extended(15, input, &mut from)?;
        }
    }
}

/// A length that goes on in bytes of 255 and a last one below.
#[inline(always)]
fn extended(mut length: usize, input: &[u8], from: &mut usize) -> Option<usize> {
    loop {
        let more = *input.get(*from)?;
        *from = from.checked_add(1)?;
        length = length.checked_add(usize::from(more))?;
        if more != 255 {
            return Some(length);
        }
    }
}
