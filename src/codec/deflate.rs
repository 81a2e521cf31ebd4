//! gzip and zlib.
//!
//! libdeflate decodes a whole stream at once and is much the faster, but stops after the first gzip member and tells nothing
//! about what follows. So its result is taken only when the checksum of the result stands at the very end of the input and
//! nowhere before: then the stream ends there. Everything else goes through a streaming decoder, which reads members,
//! padding and garbage apart.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Length, read_all};
use crate::error::{Error, Result};
use crate::memory::room;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use libdeflater::{DecompressionError, Decompressor};
use std::cell::RefCell;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

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
    match encoded {
        [method, flags, ..] if method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]) % 31 == 0 => zlib(encoded, length),
        _ => gzip(encoded, length),
    }
}

/// Undoes zlib straight into `out`, which it must fill.
pub(super) fn zlib_into(encoded: &[u8], out: &mut [u8]) -> Option<()> {
    let n = DECOMPRESSOR.with_borrow_mut(|d| d.zlib_decompress(encoded, out)).ok()?;
    (n == out.len()).then_some(())
}
