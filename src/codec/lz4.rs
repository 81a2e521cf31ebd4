//! LZ4 blocks in the four framings that array stores hold.
//!
//! numcodecs writes the decoded length before one block; Java's `LZ4BlockOutputStream` writes records with a checksum each
//! and an empty one at the end; the LZ4 frame is the format of the `lz4` tool; z5 writes a bare block. N5 calls all of them
//! `lz4`: there the magic decides, then which reading gives just the expected length.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod block;

use super::{Length, u32_at};
use crate::error::{Error, Result};
use crate::memory::room;
use twox_hash::XxHash32;

/// What stands around LZ4 blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// numcodecs: the decoded length, 32 bits little-endian, then one block.
    Prefixed,
    /// N5: any of the four.
    Sniffed,
    /// WKW: one block, without its length.
    Bare,
}

/// Magic of a record of Java's `LZ4BlockOutputStream`.
const RECORD: &[u8; 8] = b"LZ4Block";
/// Seed of the checksum of such a record.
const RECORD_SEED: u32 = 0x9747_b28c;
/// That checksum keeps 28 bits.
const RECORD_SUM: u32 = 0x0fff_ffff;
/// Magic of an [LZ4 frame](https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md).
const FRAME: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// How far back a match reaches.
const WINDOW: usize = 64 << 10;

/// Undoes LZ4.
pub(super) fn decode(framing: Framing, encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    match framing {
        Framing::Prefixed => prefixed(encoded, length),
        Framing::Bare => match length {
            Length::Exact(n) => bare(encoded, n),
            Length::AtMost(_) => Err(Error::unsupported("a bare lz4 block whose length nothing tells")),
        },
        Framing::Sniffed if encoded.starts_with(RECORD) => records(encoded, length),
        Framing::Sniffed if encoded.starts_with(&FRAME) => frames(encoded, length),
        Framing::Sniffed => {
            // A bare block has no length of its own, so only an exact length can tell that it is one.
            let claim = u32_at(encoded, 0).and_then(|n| usize::try_from(n).ok());
            let first = if claim.is_some_and(|n| length.allows(n)) { Some(prefixed(encoded, length)) } else { None };
            match (first, length) {
                (Some(Ok(decoded)), _) => Ok(decoded),
                (first, Length::Exact(n)) => match bare(encoded, n) {
                    Ok(decoded) => Ok(decoded),
                    Err(e) => Err(first.and_then(Result::err).unwrap_or(e)),
                },
                (Some(Err(e)), _) => Err(e),
                (None, Length::AtMost(_)) => Err(Error::corrupt("lz4: neither records, a frame nor a block with its length")),
            }
        }
    }
}

fn prefixed(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    let claim = u32_at(encoded, 0)
        .and_then(|n| usize::try_from(n).ok())
        .ok_or_else(|| Error::corrupt(format!("lz4: {} bytes, too short for a length", encoded.len())))?;
    length.check("lz4", claim)?;
    bare(encoded.get(4..).unwrap_or_default(), claim)
}

/// One block that decodes to just `length` bytes.
fn bare(encoded: &[u8], length: usize) -> Result<Vec<u8>> {
    let mut out = room(length)?;
    if length == 0 && encoded.is_empty() {
        return Ok(out);
    }
    fill(encoded, &mut out)?;
    Ok(out)
}

/// One block that fills `out`.
fn fill(encoded: &[u8], out: &mut [u8]) -> Result<()> {
    if by_library(encoded, out).is_some() {
        return Ok(());
    }
    // It tells what is wrong, and is less strict about how a block ends.
    let n = lz4_flex::block::decompress_into(encoded, out).map_err(|e| failed(&e.to_string()))?;
    Length::Exact(out.len()).check("lz4", n)
}

/// Undoes one block straight into `out`, which it must fill.
pub(super) fn into(encoded: &[u8], out: &mut [u8]) -> Option<()> {
    fill(encoded, out).ok()
}

/// The same by the C library, which is the fastest by far where matches overlap themselves, but takes a match with itself for zeros:
/// the format calls that damage, and so does this.
fn by_library(encoded: &[u8], out: &mut [u8]) -> Option<()> {
    // The library counts in 32 bits.
    i32::try_from(encoded.len()).ok()?;
    let length = i32::try_from(out.len()).ok()?;
    let done = ::lz4::block::decompress_to_buffer(encoded, Some(length), out).ok()?;
    (done == out.len() && !block::matches_itself(encoded)).then_some(())
}

fn failed(reason: &str) -> Error {
    Error::corrupt(format!("lz4: {reason}"))
}

/// The records of Java's `LZ4BlockOutputStream`: magic, token, encoded and decoded length and checksum (each 32 bits,
/// little-endian), data. A record without data ends the stream; another stream may follow.
fn records(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = encoded;
    let mut ended = false;
    while !(ended && rest.is_empty()) {
        let cut = || Error::corrupt(format!("lz4: the records break off after {} bytes, without an end", encoded.len()));
        let (header, data) = rest.split_first_chunk::<21>().ok_or_else(cut)?;
        if !header.starts_with(RECORD) {
            return Err(Error::corrupt("lz4: a record without its magic"));
        }
        let field = |at| u32_at(header, at).and_then(|n| usize::try_from(n).ok()).ok_or_else(cut);
        let (token, stored, decoded, sum) = (header.get(8).copied().unwrap_or(0), field(9)?, field(13)?, u32_at(header, 17));
        let (data, after) = data.split_at_checked(stored).ok_or_else(cut)?;
        rest = after;
        let most = 1024usize << (token & 0x0f);
        if decoded > most {
            return Err(Error::corrupt(format!("lz4: a record of {decoded} bytes where its token allows {most}")));
        }
        let at = out.len();
        let total = at.saturating_add(decoded);
        if total > length.bound() {
            return Err(length.longer("lz4"));
        }
        match token & 0xf0 {
            0x10 if stored == decoded => out.extend_from_slice(data),
            0x20 if (stored == 0) == (decoded == 0) => {
                if at == 0
                    && let Length::Exact(n) = length
                {
                    out.reserve_exact(n);
                }
                out.resize(total, 0);
                if stored > 0 {
                    fill(data, out.get_mut(at..).unwrap_or_default())?;
                }
            }
            method => {
                return Err(Error::corrupt(format!("lz4: a record of method {method:#x}, {stored} bytes for {decoded}")));
            }
        }
        ended = decoded == 0;
        let found = if ended { 0 } else { XxHash32::oneshot(RECORD_SEED, out.get(at..).unwrap_or_default()) & RECORD_SUM };
        if sum != Some(found) {
            return Err(Error::corrupt(format!("lz4: a record's checksum is {:#x}, its data's {found:#x}", sum.unwrap_or(0))));
        }
    }
    length.check("lz4", out.len())?;
    Ok(out)
}

/// LZ4 frames, also skippable ones between them.
fn frames(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    let mut input = Input { rest: encoded, total: encoded.len() };
    let mut out = match length {
        Length::Exact(n) => Vec::with_capacity(n),
        Length::AtMost(_) => Vec::new(),
    };
    while !input.rest.is_empty() {
        let magic = input.take::<4>()?;
        if magic == FRAME {
            frame(&mut input, &mut out, length)?;
        } else if magic.map(u32::from).iter().rev().fold(0, |n: u32, b| (n << 8) | b) & 0xffff_fff0 == 0x184d_2a50 {
            let skipped = usize::try_from(u32::from_le_bytes(input.take()?)).unwrap_or(usize::MAX);
            input.slice(skipped)?;
        } else {
            return Err(Error::corrupt(format!("lz4: no frame begins with {magic:02x?}")));
        }
    }
    length.check("lz4", out.len())?;
    Ok(out)
}

struct Input<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Input<'a> {
    fn cut(&self) -> Error {
        Error::corrupt(format!("lz4: the frame breaks off after {} bytes", self.total))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk().ok_or_else(|| self.cut())?;
        self.rest = rest;
        Ok(*head)
    }

    fn slice(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.cut())?;
        self.rest = rest;
        Ok(head)
    }
}

/// One frame after its magic; its result is appended to `out`.
fn frame(input: &mut Input<'_>, out: &mut Vec<u8>, length: Length) -> Result<()> {
    let descriptor = input.rest;
    let [flags, sizes] = input.take()?;
    let has = |bit: u8| flags & bit != 0;
    if flags >> 6 != 1 || has(0x02) || sizes & 0x8f != 0 || sizes < 0x40 {
        return Err(Error::corrupt(format!("lz4: a frame with flags {flags:#04x} {sizes:#04x}")));
    }
    let content = if has(0x08) { Some(u64::from_le_bytes(input.take()?)) } else { None };
    if has(0x01) {
        return Err(Error::unsupported("an lz4 frame that needs a dictionary"));
    }
    let read = descriptor.len().saturating_sub(input.rest.len());
    let [sum] = input.take()?;
    if (XxHash32::oneshot(0, descriptor.get(..read).unwrap_or_default()) >> 8) & 0xff != u32::from(sum) {
        return Err(Error::corrupt("lz4: the checksum of a frame's header does not match"));
    }
    // 4, 5, 6, 7 stand for 64 KiB, 256 KiB, 1 MiB, 4 MiB.
    let largest = 256usize << ((sizes >> 4) << 1);
    let begin = out.len();
    loop {
        let size = u32::from_le_bytes(input.take()?);
        if size == 0 {
            break;
        }
        let stored = usize::try_from(size & 0x7fff_ffff).unwrap_or(usize::MAX);
        if stored > largest {
            return Err(Error::corrupt(format!("lz4: a block of {stored} bytes where the frame allows {largest}")));
        }
        let data = input.slice(stored)?;
        if has(0x10) && u32::from_le_bytes(input.take()?) != XxHash32::oneshot(0, data) {
            return Err(Error::corrupt("lz4: the checksum of a block does not match"));
        }
        if size & 0x8000_0000 != 0 {
            if data.len() > length.bound().saturating_sub(out.len()) {
                return Err(length.longer("lz4"));
            }
            out.extend_from_slice(data);
            continue;
        }
        let at = out.len();
        let room = largest.min(length.bound().saturating_sub(at));
        out.resize(at.saturating_add(room), 0);
        // Blocks are linked unless the flag says that each stands alone.
        let base = if has(0x20) { at } else { begin.max(at.saturating_sub(WINDOW)) };
        let result = block::decode(data, out.get_mut(base..).unwrap_or_default(), at.saturating_sub(base));
        let end = result
            .map_err(|reason| if reason == block::LONG && room < largest { length.longer("lz4") } else { failed(reason) })?;
        out.truncate(base.saturating_add(end));
    }
    let decoded = out.get(begin..).unwrap_or_default();
    if has(0x04) && u32::from_le_bytes(input.take()?) != XxHash32::oneshot(0, decoded) {
        return Err(Error::corrupt("lz4: the checksum of a frame does not match"));
    }
    match content {
        Some(n) if u64::try_from(decoded.len()) != Ok(n) => {
            Err(Error::corrupt(format!("lz4: a frame of {} bytes that claims {n}", decoded.len())))
        }
        _ => Ok(()),
    }
}
