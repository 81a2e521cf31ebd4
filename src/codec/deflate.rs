//! gzip and zlib.
//!
//! libdeflate decodes a whole stream at once and is much the faster, but stops after the first gzip member and tells nothing
//! about what follows. So its result is taken only when the checksum at the very end of the input is that of the result:
//! then nothing follows. Everything else goes through a streaming decoder, which reads members, padding and garbage apart.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Length, read_all};
use crate::error::{Error, Result};
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
        let mut out = vec![0; n];
        let result = DECOMPRESSOR.with_borrow_mut(|d| d.gzip_decompress(encoded, &mut out));
        if result == Ok(n) && gzip_trailer(encoded) == Some((libdeflater::crc32(&out), n)) {
            return Ok(out);
        }
        if let Err(e @ DecompressionError::BadData) = result {
            // A damaged first member: streaming cannot help.
            return Err(Error::corrupt(format!("gzip: {e}")));
        }
    }
    gzip_members(encoded, length)
}

/// CRC-32 and length (modulo 2^32) as the last eight bytes tell them.
fn gzip_trailer(encoded: &[u8]) -> Option<(u32, usize)> {
    let &[a, b, c, d, e, f, g, h] = encoded.last_chunk::<8>()?;
    Some((u32::from_le_bytes([a, b, c, d]), usize::try_from(u32::from_le_bytes([e, f, g, h])).ok()?))
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

/// Undoes zlib; nothing may follow.
pub(super) fn zlib(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    if let Length::Exact(n) = length {
        let mut out = vec![0; n];
        let result = DECOMPRESSOR.with_borrow_mut(|d| d.zlib_decompress(encoded, &mut out));
        if result == Ok(n) && encoded.last_chunk().map(|&sum| u32::from_be_bytes(sum)) == Some(libdeflater::adler32(&out)) {
            return Ok(out);
        }
        match result {
            Err(DecompressionError::BadData) => return Err(Error::corrupt("zlib: damaged stream")),
            Err(DecompressionError::InsufficientSpace) => return Err(length.longer("zlib")),
            Ok(_) => {}
        }
    }
    let mut decoder = ZlibDecoder::new(encoded);
    let mut out = Vec::new();
    read_all(&mut decoder, &mut out, length, "zlib")?;
    let rest = decoder.into_inner();
    if !rest.is_empty() {
        return Err(Error::corrupt(format!("zlib: {} bytes after the end of the stream", rest.len())));
    }
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
