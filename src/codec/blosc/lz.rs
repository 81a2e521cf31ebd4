//! BloscLZ, Blosc's own relative of FastLZ.
//!
//! A stream is a run of literals (control byte below 32: one less than their number) or a match (length in the upper three
//! bits, 7 meaning that more bytes follow; distance in the lower five bits and the next byte, all ones meaning that 16 more
//! bits follow). The first control byte always is of literals; its upper bits tell the level.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

/// Distance from which a match has 16 more bits.
const FAR: usize = 8191;

struct Input<'a>(std::slice::Iter<'a, u8>);

impl Input<'_> {
    fn byte(&mut self) -> Option<usize> {
        self.0.next().copied().map(usize::from)
    }
}

/// Decodes `stream` into `out`, which it must fill; `None` when it does not.
pub(super) fn into(stream: &[u8], out: &mut [u8]) -> Option<()> {
    let mut input = Input(stream.iter());
    let mut at = 0usize;
    let mut control = input.byte()? & 31;
    loop {
        if control < 32 {
            let count = control.checked_add(1)?;
            let (literals, rest) = input.0.as_slice().split_at_checked(count)?;
            let end = at.checked_add(count)?;
            out.get_mut(at..end)?.copy_from_slice(literals);
            input = Input(rest.iter());
            at = end;
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
            copy(out, at, distance.checked_add(1)?, count)?;
            at = at.checked_add(count)?;
        }
        match input.byte() {
            Some(next) => control = next,
            None => break,
        }
    }
    (at == out.len()).then_some(())
}

/// Repeats what stands `distance` bytes before `at`, `count` bytes of it; source and target may overlap.
fn copy(out: &mut [u8], at: usize, distance: usize, count: usize) -> Option<()> {
    let from = at.checked_sub(distance)?;
    let end = at.checked_add(count)?;
    let window = out.get_mut(from..end)?;
    if distance == 1 {
        let (first, rest) = window.split_first_mut()?;
        rest.fill(*first);
        return Some(());
    }
    // The copied part doubles with each step: each step reads only what stands already.
    let mut have = distance;
    while have < window.len() {
        let step = have.min(window.len().checked_sub(have)?);
        window.copy_within(..step, have);
        have = have.checked_add(step)?;
    }
    Some(())
}
