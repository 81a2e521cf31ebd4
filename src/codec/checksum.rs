//! Checksums that travel with the data: four bytes, little-endian, before or after it.
//!
//! All are verified; a mismatch is an error, never a warning.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::Length;
use crate::error::{Error, Result};
use std::borrow::Cow;

/// Which checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// CRC-32 of zlib.
    Crc32,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// Adler-32 of zlib.
    Adler32,
    /// HDF5's variant of Fletcher's, over big-endian pairs of bytes.
    Fletcher32,
    /// Bob Jenkins' lookup3 as in HDF5, with an initial value.
    Jenkins(u32),
}

/// Where the checksum stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// Before the data.
    Start,
    /// After the data.
    End,
}

impl Sum {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "crc32",
            Self::Crc32c => "crc32c",
            Self::Adler32 => "adler32",
            Self::Fletcher32 => "fletcher32",
            Self::Jenkins(_) => "jenkins_lookup3",
        }
    }

    fn of(self, data: &[u8]) -> u32 {
        match self {
            Self::Crc32 => crc32fast::hash(data),
            Self::Crc32c => crc32c::crc32c(data),
            Self::Adler32 => simd_adler32::adler32(&data),
            Self::Fletcher32 => fletcher32(data),
            Self::Jenkins(initial) => jenkins(data, initial),
        }
    }

    /// HDF5 once wrote Fletcher's checksum with each pair of bytes swapped and reads both to this day; so does netCDF.
    fn accepts(self, found: u32, stored: u32) -> bool {
        let swapped = ((found & 0x00ff_00ff) << 8) | ((found >> 8) & 0x00ff_00ff);
        found == stored || (self == Self::Fletcher32 && swapped == stored)
    }
}

/// Verifies and removes a checksum.
pub(super) fn decode(sum: Sum, location: Location, encoded: Cow<'_, [u8]>, length: Length) -> Result<Cow<'_, [u8]>> {
    let name = sum.name();
    let parts = match location {
        Location::Start => encoded.split_first_chunk::<4>(),
        Location::End => encoded.split_last_chunk::<4>().map(|(data, stored)| (stored, data)),
    };
    let (stored, data) =
        parts.ok_or_else(|| Error::corrupt(format!("{name}: {} bytes, too short for a checksum", encoded.len())))?;
    length.check(name, data.len())?;
    let (stored, found) = (u32::from_le_bytes(*stored), sum.of(data));
    if !sum.accepts(found, stored) {
        return Err(Error::corrupt(format!("{name}: the stored checksum is {stored:#010x}, that of the data {found:#010x}")));
    }
    let end = data.len();
    Ok(match (encoded, location) {
        (Cow::Borrowed(bytes), Location::Start) => Cow::Borrowed(bytes.get(4..).unwrap_or_default()),
        (Cow::Borrowed(bytes), Location::End) => Cow::Borrowed(bytes.get(..end).unwrap_or_default()),
        (Cow::Owned(mut bytes), Location::Start) => {
            bytes.drain(..4);
            Cow::Owned(bytes)
        }
        (Cow::Owned(mut bytes), Location::End) => {
            bytes.truncate(end);
            Cow::Owned(bytes)
        }
    })
}

/// Fletcher's checksum as HDF5 computes it: two sums modulo 65535 over big-endian 16-bit words, an odd last byte being the
/// high half of a word. HDF5 represents a sum that is a multiple of 65535 by 65535, except that of no word but zeros.
///
/// Blocks are summed without a dependency between words: the second sum is that of all words weighted by how many words
/// of the block are left.
#[expect(clippy::arithmetic_side_effects, reason = "a block adds less than 2^41 to sums that are kept below 2^17")]
fn fletcher32(data: &[u8]) -> u32 {
    const WORDS: usize = 256;
    let fold = |n: u64| if n == 0 { 0 } else { (n - 1) % 65535 + 1 };
    let (mut first, mut second) = (0u64, 0u64);
    for block in data.chunks(2 * WORDS) {
        let (pairs, odd) = block.as_chunks::<2>();
        let words = u64::try_from(pairs.len() + odd.len()).unwrap_or(0);
        let mut left = u32::try_from(words).unwrap_or(0);
        let (mut sum, mut weighted) = (0u32, 0u32);
        // 256 words of 16 bits, weights up to 256: 65535 * 256 * 257 / 2 is less than 2^32.
        for &pair in pairs {
            let word = u32::from(u16::from_be_bytes(pair));
            sum += word;
            weighted += word * left;
            left -= 1;
        }
        if let [byte] = odd {
            let word = u32::from(*byte) << 8;
            sum += word;
            weighted += word;
        }
        second = fold(second + words * first + u64::from(weighted));
        first = fold(first + u64::from(sum));
    }
    (u32::try_from(second).unwrap_or(0) << 16) | u32::try_from(first).unwrap_or(0)
}

/// [lookup3](https://burtleburtle.net/bob/c/lookup3.c) `hashlittle`, by bytes.
fn jenkins(data: &[u8], initial: u32) -> u32 {
    let length = data.len() & 0xffff_ffff;
    let start = 0xdead_beefu32.wrapping_add(u32::try_from(length).unwrap_or(0)).wrapping_add(initial);
    let [mut a, mut b, mut c] = [start; 3];
    let mut rest = data;
    while rest.len() > 12 {
        let (head, tail) = rest.split_at(12);
        rest = tail;
        let [x, y, z] = words(head);
        (a, b, c) = mix(a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z));
    }
    if rest.is_empty() {
        return c;
    }
    let [x, y, z] = words(rest);
    (a, b, c) = (a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

/// Up to twelve bytes as three little-endian words, missing bytes zero.
fn words(bytes: &[u8]) -> [u32; 3] {
    let mut words = [0u32; 3];
    for (word, four) in words.iter_mut().zip(bytes.chunks(4)) {
        *word = four.iter().rev().fold(0, |n, &b| (n << 8) | u32::from(b));
    }
    words
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(c) ^ c.rotate_left(4);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(6);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(8);
    b = b.wrapping_add(a);
    a = a.wrapping_sub(c) ^ c.rotate_left(16);
    c = c.wrapping_add(b);
    b = b.wrapping_sub(a) ^ a.rotate_left(19);
    a = a.wrapping_add(c);
    c = c.wrapping_sub(b) ^ b.rotate_left(4);
    b = b.wrapping_add(a);
    (a, b, c)
}
