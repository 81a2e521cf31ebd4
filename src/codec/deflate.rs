//! gzip and zlib.
//!
//! libdeflate decodes a whole stream at once and is much the faster, but stops after the first gzip member and tells nothing
//! about what follows. So its result is taken only when the checksum of the result stands at the very end of the input and
//! nowhere before: then the stream ends there. Everything else goes through a streaming decoder, which reads members,
//! padding and garbage apart.
//!
//! Where there are two blocks to decode, [`two`] is faster than libdeflate, and leaves what is not plain to the above.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::inflate::{self, Inflated, Stream};
use super::{Length, read_all};
use crate::error::{Error, Result};
use crate::memory::room;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use libdeflater::{DecompressionError, Decompressor};
use std::cell::RefCell;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What is around a stream of DEFLATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Zlib,
    /// Whichever the first bytes say.
    Either,
}

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

/// Undoes gzip of one or more members; zeros after the last one are padding.
pub(super) fn gzip(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    if let Length::Exact(n) = length {
        let mut out = room(n)?;
        let result = DECOMPRESSOR.with_borrow_mut(|d| d.gzip_decompress(encoded, &mut out));
        if result == Ok(n) && ends_with_only(encoded, 8, libdeflater::crc32(&out).to_le_bytes()) {
            return Ok(out);
        }
        if result == Err(DecompressionError::BadData) {
            // A damaged first member: streaming cannot help.
            return Err(Error::corrupt("gzip: the stream is damaged or breaks off"));
        }
    }
    gzip_members(encoded, length)
}

/// Whether `sum` stands `from_end` bytes before the end of `bytes`, and at no place before.
fn ends_with_only(bytes: &[u8], from_end: usize, sum: [u8; 4]) -> bool {
    let Some(last) = bytes.len().checked_sub(from_end) else { return false };
    if bytes.get(last..).is_none_or(|tail| !tail.starts_with(&sum)) {
        return false;
    }
    // All places before the last one.
    let before = bytes.get(..last.saturating_add(3)).unwrap_or_default();
    memchr::memmem::find(before, &sum).is_none()
}

fn gzip_members(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    let mut rest = encoded;
    let mut out = Vec::new();
    loop {
        if !rest.starts_with(&GZIP_MAGIC) {
            let at = encoded.len().saturating_sub(rest.len());
            return Err(Error::corrupt(format!("gzip: no member begins at byte {at} of {}", encoded.len())));
        }
        // Reading until 0 makes the decoder check CRC and length of the member.
        let mut member = GzDecoder::new(rest);
        read_all(&mut member, &mut out, length, "gzip")?;
        rest = member.into_inner();
        if rest.iter().all(|&b| b == 0) {
            break;
        }
    }
    length.check("gzip", out.len())?;
    Ok(out)
}

/// Undoes zlib. What follows the stream is not looked at.
pub(super) fn zlib(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    if let Length::Exact(n) = length {
        let mut out = room(n)?;
        let result = DECOMPRESSOR.with_borrow_mut(|d| d.zlib_decompress(encoded, &mut out));
        if result == Ok(n) {
            return Ok(out);
        }
        match result {
            Err(DecompressionError::BadData) => return Err(Error::corrupt("zlib: the stream is damaged or breaks off")),
            Err(DecompressionError::InsufficientSpace) => return Err(length.longer("zlib")),
            Ok(_) => {}
        }
    }
    let mut decoder = ZlibDecoder::new(encoded);
    let mut out = Vec::new();
    read_all(&mut decoder, &mut out, length, "zlib")?;
    length.check("zlib", out.len())?;
    Ok(out)
}

/// Undoes gzip or zlib, whichever the first bytes say. They cannot be confused: the first byte of zlib has 8 in its low half.
pub(super) fn either(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    if is_zlib(encoded) { zlib(encoded, length) } else { gzip(encoded, length) }
}

fn is_zlib(encoded: &[u8]) -> bool {
    matches!(encoded, [method, flags, ..] if method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]) % 31 == 0)
}

/// Undoes two streams in turns, in less time than one after the other, into results of just these lengths. `None` for one that has to be
/// undone by itself: what is wrong with it is found there, and what is rare is done there (gzip of several members).
pub(super) fn two(format: Format, encoded: [&[u8]; 2], lengths: [usize; 2]) -> [Option<Vec<u8>>; 2] {
    let [first, second] = encoded.map(|encoded| Wrapped::new(format, encoded));
    let (Some(first), Some(second)) = (first, second) else { return [None, None] };
    let [for_first, for_second] = lengths;
    let (a, b) =
        inflate::two(Stream { encoded: first.stream, length: for_first }, Stream { encoded: second.stream, length: for_second });
    [a.and_then(|a| first.checked(a)), b.and_then(|b| second.checked(b))]
}

/// A stream of DEFLATE with what is around it.
struct Wrapped<'a> {
    is_zlib: bool,
    /// After the header.
    stream: &'a [u8],
}

impl<'a> Wrapped<'a> {
    /// Past the header, if it is a usual one.
    fn new(format: Format, encoded: &'a [u8]) -> Option<Self> {
        let is_zlib = is_zlib(encoded);
        let stream = match format {
            Format::Zlib | Format::Either if is_zlib => match encoded {
                // Matches within 32 KiB, and no dictionary.
                [method, flags, stream @ ..] if method >> 4 <= 7 && flags & 0x20 == 0 => stream,
                _ => return None,
            },
            Format::Gzip | Format::Either => after_gzip_header(encoded)?,
            Format::Zlib => return None,
        };
        Some(Self { is_zlib, stream })
    }

    /// The result, if what follows the stream is its checksum and, after gzip, nothing but padding.
    fn checked(&self, (result, after): Inflated<'_>) -> Option<Vec<u8>> {
        let (sum, after) = after.split_first_chunk::<4>()?;
        if self.is_zlib {
            return (u32::from_be_bytes(*sum) == simd_adler32::adler32(&result.as_slice())).then_some(result);
        }
        let (length, after) = after.split_first_chunk::<4>()?;
        // The length modulo 2^32.
        let is_whole = result.len().to_le_bytes().starts_with(length) && after.iter().all(|&b| b == 0);
        (is_whole && u32::from_le_bytes(*sum) == crc32fast::hash(&result)).then_some(result)
    }
}

/// What follows the header of a gzip member; `None` where it is damaged, and where it has what nobody writes: a checksum of its own, or
/// a longer text than all decoders take.
fn after_gzip_header(encoded: &[u8]) -> Option<&[u8]> {
    const EXTRA: u8 = 4;
    const NAME: u8 = 8;
    const COMMENT: u8 = 16;
    const LONGEST: usize = 65_535;
    let (header, mut rest) = encoded.split_first_chunk::<10>()?;
    let [magic0, magic1, method, flags, ..] = *header;
    if [magic0, magic1] != GZIP_MAGIC || method != 8 || flags & !(EXTRA | NAME | COMMENT | 1) != 0 {
        return None;
    }
    if flags & EXTRA != 0 {
        let (length, after) = rest.split_first_chunk::<2>()?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for text in [NAME, COMMENT] {
        if flags & text != 0 {
            let end = memchr::memchr(0, rest.get(..rest.len().min(LONGEST))?)?;
            rest = rest.get(end.checked_add(1)?..)?;
        }
    }
    Some(rest)
}

/// Undoes zlib straight into `out`, which it must fill.
pub(super) fn zlib_into(encoded: &[u8], out: &mut [u8]) -> Option<()> {
    let n = DECOMPRESSOR.with_borrow_mut(|d| d.zlib_decompress(encoded, out)).ok()?;
    (n == out.len()).then_some(())
}
