//! BloscLZ, Blosc's own relative of FastLZ.
//!
//! A stream is a run of literals (control byte below 32: one less than their number) or a match (length in the upper three
//! bits, 7 meaning that more bytes follow; distance in the lower five bits and the next byte, all ones meaning that 16 more
//! bits follow). The first control byte always is of literals; its upper bits tell the level.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::codec::repeat::{literals, repeat};

/// Distance from which a match has 16 more bits.
const FAR: usize = 8191;

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Option<usize> {
        let byte = *self.bytes.get(self.at)?;
        self.at = self.at.checked_add(1)?;
        Some(usize::from(byte))
    }
}

/// Decodes `stream` into `out`, which it must fill; `None` when it does not.
pub(super) fn into(stream: &[u8], out: &mut [u8]) -> Option<()> {
    let mut input = Input { bytes: stream, at: 0 };
    let mut at = 0usize;
    let mut control = input.byte()? & 31;
    loop {
        if control < 32 {
            let count = control.checked_add(1)?;
            literals(stream, input.at, out, at, count)?;
            input.at = input.at.checked_add(count)?;
            at = at.checked_add(count)?;
        } else {
            let mut count = (control >> 5).checked_add(2)?;
            if control >> 5 == 7 {
                loop {
                    let more = input.byte()?;
                    count = count.checked_add(more)?;
                    if more != 255 {
                        break;
                    }
                }
            }
            let (high, low) = ((control & 31) << 8, input.byte()?);
            let distance = if high | low == FAR { ((input.byte()? << 8) | input.byte()?).checked_add(FAR)? } else { high | low };
            repeat(out, at, distance.checked_add(1)?, count)?;
            at = at.checked_add(count)?;
        }
        match input.byte() {
            Some(next) => control = next,
            None => break,
        }
    }
    (at == out.len()).then_some(())
}
