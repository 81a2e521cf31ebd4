//! bzip2, of one or more streams, by a decoder of our own.
//!
//! The format has no specification but its first program; [Joe Tsai's](https://github.com/dsnet/compress/blob/master/doc/bzip2-format.pdf)
//! describes it. A stream is a header, blocks with a checksum each, of up to 900,000 bytes before their runs are undone, and a checksum of
//! them all. A block is undone in four steps, of which each is a module: [`bits`] and [`symbols`] (prefix codes, runs, and a list in which
//! what comes is moved to the front), [`bwt`] (the transform of Burrows and Wheeler), and [`runs`].

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod bits;
mod bwt;
mod runs;
mod symbols;

use super::{Length, grow, streams};
use crate::error::{Error, Result};
use bits::Bits;
use bzip2::{Decompress, Status};
use runs::Runs;
use symbols::Symbols;

/// The digits of pi, at the start of each block, and those of its root, at the end of a stream: 48 bits, 24 at a time.
const BLOCK: (u32, u32) = (0x31_4159, 0x26_5359);
const END: (u32, u32) = (0x17_7245, 0x38_5090);

/// Undoes bzip2.
pub(super) fn decode(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    streams(encoded, length, "bzip2", |encoded, out| stream(encoded, out, length))
}

fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::corrupt(format!("bzip2: {what}"))
}

/// Decodes one stream and gives what follows it.
fn stream<'a>(encoded: &'a [u8], out: &mut Vec<u8>, length: Length) -> Result<&'a [u8]> {
    let mut bits = Bits::new(encoded);
    let before = out.len();
    let (magic, level) = (bits.take(24)?, bits.take(8)?);
    let level =
        level.checked_sub(u32::from(b'0')).filter(|level| magic == u32::from_be_bytes(*b"\0BZh") && (1..=9).contains(level));
    let Some(level) = level else { return Err(corrupt("no stream begins here")) };
    let most = usize::try_from(level.saturating_mul(100_000)).unwrap_or(usize::MAX);
    let mut symbols = Symbols::default();
    let mut total = 0u32;
    loop {
        match (bits.take(24)?, bits.take(24)?) {
            BLOCK => {}
            END if bits.take(32)? == total => return Ok(bits.rest()),
            END => return Err(corrupt("the checksum of the stream is not that of its blocks")),
            _ => return Err(corrupt(format!("neither a block nor an end after {} bytes of the result", out.len()))),
        }
        let sum = bits.take(32)?;
        if bits.take(1)? == 1 {
            // Blocks that were made less regular before they were sorted, which no writer has done for long.
            out.truncate(before);
            return by_library(encoded, out, length);
        }
        // Five bytes of a block make at least four of the result, so more of them make more than are allowed.
        let room = length.bound().saturating_sub(out.len()).saturating_add(4);
        let within = room.saturating_add(room.div_ceil(4));
        let first = bits.take(24)?;
        if !symbols.read(&mut bits, most.min(within))? {
            return Err(if within < most { longer(out, length) } else { corrupt(format!("a block of more than {most} bytes")) });
        }
        let start = out.len();
        let mut runs = Runs::default();
        bwt::undo(&mut symbols, first, |piece| runs.expand(piece, out, length))?;
        runs.end()?;
        let found = checksum(out.get(start..).unwrap_or_default());
        if found != sum {
            return Err(corrupt(format!("the stored checksum of a block is {sum:#010x}, that of its bytes {found:#010x}")));
        }
        total = total.rotate_left(1) ^ sum;
    }
}

/// The error of a result that is longer than `length` allows; `out` shows it, too, as [`streams`] demands.
#[cold]
fn longer(out: &mut Vec<u8>, length: Length) -> Error {
    let more = length.bound().saturating_add(1).saturating_sub(out.len());
    if out.try_reserve_exact(more).is_err() {
        return Error::too_big("bzip2: no memory for the result");
    }
    out.resize(out.len().saturating_add(more), 0);
    length.longer("bzip2")
}

/// The checksum of a block: CRC-32 with the bits of each byte, and of the result, in the order that is the reverse of zlib's.
fn checksum(bytes: &[u8]) -> u32 {
    const PIECE: usize = 1024;
    let mut hasher = crc32fast::Hasher::new();
    let mut turned = [0; PIECE];
    for piece in bytes.chunks(PIECE) {
        for (to, from) in turned.iter_mut().zip(piece) {
            *to = from.reverse_bits();
        }
        hasher.update(turned.get(..piece.len()).unwrap_or_default());
    }
    hasher.finalize().reverse_bits()
}

/// Decodes one stream with the library and gives what follows it.
fn by_library<'a>(encoded: &'a [u8], out: &mut Vec<u8>, length: Length) -> Result<&'a [u8]> {
    let mut decoder = Decompress::new(false);
    loop {
        grow(out, length)?;
        let used = usize::try_from(decoder.total_in()).unwrap_or(usize::MAX);
        let rest = encoded.get(used..).unwrap_or_default();
        let before = out.len();
        let status = decoder.decompress_vec(rest, out).map_err(corrupt)?;
        if out.len() > length.bound() {
            return Err(length.longer("bzip2"));
        }
        let used_now = usize::try_from(decoder.total_in()).unwrap_or(usize::MAX);
        if status == Status::StreamEnd {
            return Ok(encoded.get(used_now..).unwrap_or_default());
        }
        if used_now == used && out.len() == before {
            return Err(bits::ended());
        }
    }
}

#[cfg(test)]
mod tests;
