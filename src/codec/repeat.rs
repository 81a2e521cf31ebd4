//! Copying of literals and matches, which the decoders of LZ4, BloscLZ and DEFLATE spend their time on.
//!
//! All write whole 16 bytes where the buffer has them, also beyond the end of what is asked for: what stands there is not
//! decoded yet. That makes a short copy a load and a store, without a loop over a length that is not known.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

const WIDE: usize = 16;

/// How the first so many of 16 bytes are repeated: a product with a number that has a 1 at the start of each repetition.
#[derive(Clone, Copy)]
struct Pattern {
    mask: u128,
    repeat: u128,
    /// Bytes of whole repetitions.
    step: usize,
}

static PATTERNS: [Pattern; WIDE] = patterns();

#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "calculated by the compiler")]
const fn patterns() -> [Pattern; WIDE] {
    let mut patterns = [Pattern { mask: 0, repeat: 0, step: WIDE }; WIDE];
    let mut distance = 1;
    while distance < WIDE {
        let mut at = 0;
        while at < WIDE {
            patterns[distance].repeat |= 1 << (8 * at);
            at += distance;
        }
        patterns[distance].mask = (1 << (8 * distance)) - 1;
        patterns[distance].step = WIDE - WIDE % distance;
        distance += 1;
    }
    patterns
}

fn wide_at(bytes: &[u8], at: usize) -> Option<&[u8; WIDE]> {
    bytes.get(at..)?.first_chunk()
}

fn wide_at_mut(bytes: &mut [u8], at: usize) -> Option<&mut [u8; WIDE]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

/// Copies `count` bytes from `from` of `input` to `at` of `out`; `None` when either has fewer.
#[inline(always)]
#[expect(clippy::arithmetic_side_effects, reason = "positions below the lengths of the buffers, plus a few bytes")]
pub(super) fn literals(input: &[u8], from: usize, out: &mut [u8], at: usize, count: usize) -> Option<()> {
    if count <= 4 * WIDE {
        let mut done = 0;
        while let (Some(source), Some(target)) = (wide_at(input, from + done), wide_at_mut(out, at + done)) {
            *target = *source;
            done += WIDE;
            if done >= count {
                return Some(());
            }
        }
    }
    let source = input.get(from..)?.get(..count)?;
    out.get_mut(at..)?.get_mut(..count)?.copy_from_slice(source);
    Some(())
}

/// Copies `count` bytes that stand `distance` bytes before `at` to `at`, as if one by one: source and target may overlap.
/// `None` when the source begins before the buffer, or at `at`, or the target ends after it.
#[inline(always)]
#[expect(clippy::arithmetic_side_effects, reason = "positions below the length of the buffer")]
pub(super) fn repeat(out: &mut [u8], at: usize, distance: usize, count: usize) -> Option<()> {
    let from = at.checked_sub(distance)?;
    let end = at.checked_add(count)?;
    if distance == 0 || end > out.len() {
        return None;
    }
    if out.len() - end < WIDE {
        return repeat_exactly(out.get_mut(from..end)?, distance);
    }
    if distance >= WIDE {
        if count > 4 * WIDE && distance >= count {
            out.copy_within(from..from + count, at);
            return Some(());
        }
        let mut done = 0;
        while done < count {
            let source = *wide_at(out, from + done)?;
            *wide_at_mut(out, at + done)? = source;
            done += WIDE;
        }
        return Some(());
    }
    // The bytes of the source again and again, as often as they fit; each store then moves by whole repetitions.
    let Pattern { mask, repeat, step } = PATTERNS.get(distance)?;
    let pattern = (u128::from_le_bytes(*wide_at(out, from)?) & mask).wrapping_mul(*repeat);
    if distance == 1 && count > 4 * WIDE {
        out.get_mut(at..end)?.fill(pattern.to_le_bytes()[0]);
        return Some(());
    }
    let mut to = at;
    while to < end {
        *wide_at_mut(out, to)? = pattern.to_le_bytes();
        to += step;
    }
    Some(())
}

/// Fills `window` with repetitions of its first `distance` bytes.
#[cold]
fn repeat_exactly(window: &mut [u8], distance: usize) -> Option<()> {
    // The copied part doubles with each step: each step reads only what stands already.
    let mut have = distance;
    while have < window.len() {
        let step = have.min(window.len().checked_sub(have)?);
        window.copy_within(..step, have);
        have = have.checked_add(step)?;
    }
    Some(())
}

#[cfg(test)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "small known numbers"
)]
mod tests {
    use super::*;

    /// The definition, byte by byte.
    fn slowly(out: &mut [u8], at: usize, distance: usize, count: usize) {
        for i in at..at + count {
            out[i] = out[i - distance];
        }
    }

    #[test]
    fn matches_repeat_what_stands_before() {
        let start: Vec<u8> = (0..400u32).map(|i| (i * 37 % 251) as u8).collect();
        for distance in 1..=100 {
            for count in 0..=150 {
                for room in [0, 1, 15, 16, 17, 100] {
                    let (mut fast, at) = (start[..100 + count + room].to_vec(), 100);
                    let mut slow = fast.clone();
                    repeat(&mut fast, at, distance, count).unwrap();
                    slowly(&mut slow, at, distance, count);
                    assert_eq!(fast[..at + count], slow[..at + count], "{distance} {count} {room}");
                }
            }
        }
    }

    #[test]
    fn copies_stay_in_their_buffers() {
        let mut out = [0u8; 40];
        for (at, distance, count) in
            [(10, 11, 1), (10, 0, 5), (10, 5, 31), (40, 1, 1), (41, 1, 0), (usize::MAX, 1, 1), (1, 1, usize::MAX)]
        {
            assert_eq!(repeat(&mut out, at, distance, count), None, "{at} {distance} {count}");
        }
        for (from, at, count) in [(0, 30, 11), (30, 0, 11), (41, 0, 0), (0, 41, 0), (0, 0, usize::MAX), (usize::MAX, 0, 1)] {
            assert_eq!(literals(&[0; 40], from, &mut out, at, count), None, "{from} {at} {count}");
        }
    }
}
