//! The label multisets of an N5 block, as imglib2-label-multisets (Paintera) and elf write them, and the most frequent label of each.
//!
//! A block is: a number, so many labels (the most frequent of each element, or none: newer writers leave that to the reader), an
//! offset for each element, and the lists that these lead to. All of this is big-endian but the lists, which are little-endian: the number
//! of entries and, for each, a 64-bit label and a 32-bit count.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::error::{Error, Result};
use std::collections::HashMap;

/// The label of an empty multiset.
const INVALID: u64 = u64::MAX - 1;

/// Bytes of a label with its count.
const ENTRY: usize = 12;

/// The most frequent label of each of `count` elements, 64 bits each, little-endian.
///
/// Where the block tells them they are taken from there, as all readers do; else it is the lowest of those with the highest count. What
/// the block tells is not believed where it is no label of the element: the first versions had all labels of the block in that place.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] when the block is no such serialisation for `count` elements.
pub fn most_frequent(block: &[u8], count: usize) -> Result<Vec<u8>> {
    let cut = || Error::corrupt(format!("{} bytes are too few for label multisets of {count} elements", block.len()));
    let (head, rest) = block.split_first_chunk::<4>().ok_or_else(cut)?;
    let told = usize::try_from(u32::from_be_bytes(*head)).map_err(|_| cut())?;
    let (told, rest) = told.checked_mul(8).and_then(|n| rest.split_at_checked(n)).ok_or_else(cut)?;
    let (offsets, lists) = count.checked_mul(4).and_then(|n| rest.split_at_checked(n)).ok_or_else(cut)?;
    let told = told.as_chunks::<8>().0;
    let offsets = offsets.as_chunks::<4>().0;

    // Elements that are alike share a list, and lists do not overlap; so there are no more entries than fit.
    let mut left = lists.len().checked_div(ENTRY).unwrap_or(0);
    let mut known: HashMap<u32, u64> = HashMap::new();
    let mut found = Vec::with_capacity(count.saturating_mul(8));
    for offset in offsets {
        let offset = u32::from_be_bytes(*offset);
        let label = match known.get(&offset) {
            Some(&label) => label,
            None => {
                let list = entries(lists, offset)?;
                left = left.checked_sub(list.len()).ok_or_else(|| Error::corrupt("lists of labels that overlap"))?;
                let label = highest(list);
                known.insert(offset, label);
                label
            }
        };
        found.extend_from_slice(&label.to_le_bytes());
    }
    if told.len() != count || !believable(told, offsets, lists)? {
        return Ok(found);
    }
    Ok(told.iter().flat_map(|label| u64::from_be_bytes(*label).to_le_bytes()).collect())
}

/// Whether each of the labels is one of its element's list, and the same for all that share a list.
fn believable(told: &[[u8; 8]], offsets: &[[u8; 4]], lists: &[u8]) -> Result<bool> {
    let mut known: HashMap<u32, u64> = HashMap::new();
    for (label, offset) in told.iter().zip(offsets) {
        let (label, offset) = (u64::from_be_bytes(*label), u32::from_be_bytes(*offset));
        if let Some(&other) = known.get(&offset) {
            if other != label {
                return Ok(false);
            }
            continue;
        }
        let list = entries(lists, offset)?;
        if !list.is_empty() && !list.iter().any(|entry| parts(entry).0 == label) {
            return Ok(false);
        }
        known.insert(offset, label);
    }
    Ok(true)
}

/// The entries of the list at `offset`.
fn entries(lists: &[u8], offset: u32) -> Result<&[[u8; ENTRY]]> {
    let outside = || Error::corrupt(format!("a list of labels at {offset} that leads out of the {} bytes of lists", lists.len()));
    let rest = usize::try_from(offset).ok().and_then(|offset| lists.get(offset..)).ok_or_else(outside)?;
    let (count, rest) = rest.split_first_chunk::<4>().ok_or_else(outside)?;
    let length = usize::try_from(u32::from_le_bytes(*count)).ok().and_then(|n| n.checked_mul(ENTRY));
    let list = length.and_then(|length| rest.get(..length)).ok_or_else(outside)?;
    Ok(list.as_chunks().0)
}

fn parts(entry: &[u8; ENTRY]) -> (u64, i32) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *entry;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), i32::from_le_bytes([i, j, k, l]))
}

/// The label with the highest count, the lowest of several (as signed numbers, which is how Java compares them).
fn highest(entries: &[[u8; ENTRY]]) -> u64 {
    let mut best = (INVALID, 0);
    for entry in entries {
        let (label, count) = parts(entry);
        if count > best.1 || (count == best.1 && label.cast_signed() < best.0.cast_signed()) {
            best = (label, count);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    /// Two lists: 7 once; 9 twice and 5 twice and 3 once.
    fn lists() -> Vec<u8> {
        let mut bytes = Vec::new();
        for list in [&[(7u64, 1i32)][..], &[(9, 2), (5, 2), (3, 1)]] {
            bytes.extend(u32::try_from(list.len()).unwrap().to_le_bytes());
            for (label, count) in list {
                bytes.extend(label.to_le_bytes());
                bytes.extend(count.to_le_bytes());
            }
        }
        bytes
    }

    fn block(told: &[u64], offsets: &[u32]) -> Vec<u8> {
        let mut bytes = u32::try_from(told.len()).unwrap().to_be_bytes().to_vec();
        bytes.extend(told.iter().flat_map(|n| n.to_be_bytes()));
        bytes.extend(offsets.iter().flat_map(|n| n.to_be_bytes()));
        bytes.extend(lists());
        bytes
    }

    fn labels(block: &[u8], count: usize) -> Vec<u64> {
        most_frequent(block, count).unwrap().as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n)).collect()
    }

    #[test]
    fn told_or_counted() {
        assert_eq!(labels(&block(&[], &[0, 16, 0]), 3), [7, 5, 7]);
        assert_eq!(labels(&block(&[7, 9, 7], &[0, 16, 0]), 3), [7, 9, 7]);
        // All labels of the block, as the first versions had them.
        assert_eq!(labels(&block(&[3, 5, 7, 9], &[0, 16, 0]), 3), [7, 5, 7]);
        assert_eq!(labels(&block(&[5, 7, 9], &[0, 16, 0]), 3), [7, 5, 7]);
        assert_eq!(labels(&block(&[7, 9, 5], &[0, 16, 16]), 3), [7, 5, 5]);
    }

    /// Java compares labels as signed numbers; where there is none it has INVALID.
    #[test]
    fn labels_beyond_the_signed_numbers_and_elements_without_labels() {
        let element = |list: &[(u64, i32)]| {
            let entries = list.iter().flat_map(|(label, count)| [&label.to_le_bytes()[..], &count.to_le_bytes()].concat());
            [u32::try_from(list.len()).unwrap().to_le_bytes().to_vec(), entries.collect()].concat()
        };
        let block = |told: &[u64]| {
            let mut bytes = u32::try_from(told.len()).unwrap().to_be_bytes().to_vec();
            bytes.extend(told.iter().flat_map(|n| n.to_be_bytes()));
            bytes.extend([0u32, 4].iter().flat_map(|n| n.to_be_bytes()));
            [bytes, element(&[]), element(&[(7, 2), (u64::MAX - 9, 2), (1 << 63, 1)])].concat()
        };
        assert_eq!(labels(&block(&[]), 2), [INVALID, u64::MAX - 9]);
        // Nothing in the list of an element without labels speaks against what is told of all.
        assert_eq!(labels(&block(&[INVALID, 7]), 2), [INVALID, 7]);
    }

    #[test]
    fn damage_is_an_error() {
        let good = block(&[], &[0, 16, 0]);
        for bad in [
            &[][..],
            &good[..3],
            &good[..10],
            &good[..good.len() - 1],
            &block(&[], &[0, 17, 0]),
            &block(&[], &[0, 4000, 0]),
            &block(&[], &[0, u32::MAX, 0]),
        ] {
            assert_eq!(most_frequent(bad, 3).unwrap_err().kind(), Kind::Corrupt, "{bad:?}");
        }
        // Two labels at 0, whose bytes from 4 on are a list of one.
        let overlapping = |offsets: [u32; 2]| {
            let mut bytes = vec![0; 4];
            bytes.extend(offsets.iter().flat_map(|n| n.to_be_bytes()));
            bytes.extend([2u32, 1, 0, 1, 5, 0, 1].iter().flat_map(|n| n.to_le_bytes()));
            bytes
        };
        assert_eq!(labels(&overlapping([0, 0]), 2), [1, 1]);
        assert_eq!(labels(&overlapping([4, 4]), 2), [1 << 32; 2]);
        assert_eq!(most_frequent(&overlapping([0, 4]), 2).unwrap_err().kind(), Kind::Corrupt);
        // Taken for a block of more or fewer elements.
        assert_eq!(most_frequent(&good, 4).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(most_frequent(&good, usize::MAX).unwrap_err().kind(), Kind::Corrupt);
    }
}
