//! numcodecs' `packbits`: booleans as bits, first in the highest bit of a byte, after one byte that counts unused bits.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::Length;
use crate::error::{Error, Result};
use crate::memory::room;

/// Undoes `packbits`: one byte, 0 or 1, for each bit.
pub(super) fn decode(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    let (&unused, packed) = encoded.split_first().ok_or_else(|| Error::corrupt("packbits: no bytes"))?;
    let bits = packed.len().saturating_mul(8);
    let count = bits
        .checked_sub(usize::from(unused))
        .filter(|_| unused < 8)
        .ok_or_else(|| Error::corrupt(format!("packbits: {unused} unused bits of {bits}")))?;
    length.check("packbits", count)?;
    let mut out = room(count)?;
    for (group, byte) in out.chunks_mut(8).zip(packed) {
        for (i, bool) in group.iter_mut().enumerate() {
            *bool = byte.wrapping_shl(u32::try_from(i).unwrap_or(0)) >> 7;
        }
    }
    Ok(out)
}
