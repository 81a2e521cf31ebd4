//! Blosc 1 frames ([format](https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst)).
//!
//! A frame is a header of 16 bytes, an offset for each block, and the blocks. A block is one stream, or as many as an element
//! has bytes; each stream is compressed on its own, or stored where that is not shorter. Blocks are shuffled before they are
//! compressed. The last block may be shorter; it is never split. All numbers are 32 bits, little-endian.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod lz;

use super::{Length, deflate, lz4, shuffle, u32_at, zstd};
use crate::error::{Error, Result};
use std::cell::RefCell;

const HEADER: usize = 16;
/// The format that C-Blosc 1 writes; it reads no other.
const VERSION: u8 = 2;
/// The format of the streams of each compressor; C-Blosc 1 has no other.
const STREAM_VERSION: u8 = 1;

const SHUFFLED: u8 = 0x01;
const STORED: u8 = 0x02;
const BIT_SHUFFLED: u8 = 0x04;
const RESERVED: u8 = 0x08;
const UNSPLIT: u8 = 0x10;

/// A block is split when an element has no more bytes than this...
const MOST_STREAMS: usize = 16;
/// ... and each stream has at least so many.
const LEAST_STREAM: usize = 128;

/// Working memory that is kept for the next frame: larger blocks are rare.
const KEPT: usize = 8 << 20;

thread_local! {
    /// A shuffled block.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Frame<'a> {
    bytes: &'a [u8],
    flags: u8,
    item: usize,
    block: usize,
    /// Bytes of header and offsets: no block begins before.
    head: usize,
}

/// Undoes a Blosc frame.
pub(super) fn decode(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    let header: &[u8; HEADER] =
        encoded.first_chunk().ok_or_else(|| Error::corrupt(format!("blosc: {} bytes, too short for a header", encoded.len())))?;
    let &[version, stream_version, flags, item, ..] = header;
    if version != VERSION {
        return Err(Error::unsupported(format!("a blosc frame of version {version}; {VERSION} is read")));
    }
    if flags & RESERVED != 0 || flags & (SHUFFLED | BIT_SHUFFLED) == SHUFFLED | BIT_SHUFFLED {
        return Err(Error::unsupported(format!("a blosc frame with flags {flags:#04x}, which Blosc 1 does not have")));
    }
    if flags & STORED == 0 && stream_version != STREAM_VERSION {
        return Err(Error::unsupported(format!("blosc streams of version {stream_version}; {STREAM_VERSION} is read")));
    }
    let field = |at| u32_at(header, at).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let (decoded, block, claimed) = (field(4), field(8), field(12));
    length.check("blosc", decoded)?;
    let (whole, _) = encoded
        .split_at_checked(claimed)
        .ok_or_else(|| Error::corrupt(format!("blosc: {} bytes of a frame of {claimed}", encoded.len())))?;
    if decoded == 0 {
        return Ok(Vec::new());
    }
    // C-Blosc refuses a block that is longer than all of it, too.
    if item == 0 || block == 0 || block > decoded {
        return Err(Error::corrupt(format!("blosc: elements of {item} bytes in blocks of {block}")));
    }
    let body = whole.get(HEADER..).unwrap_or_default();
    if flags & STORED != 0 {
        Length::Exact(decoded).check("blosc: stored", body.len())?;
        return Ok(body.to_vec());
    }
    let offsets = decoded.div_ceil(block).saturating_mul(4);
    let head = HEADER.saturating_add(offsets);
    let starts = whole
        .get(HEADER..head)
        .ok_or_else(|| Error::corrupt(format!("blosc: {claimed} bytes, too short for {offsets} bytes of offsets")))?;
    let frame = Frame { bytes: whole, flags, item: usize::from(item), block, head };
    let mut out = Vec::new();
    out.try_reserve_exact(decoded).map_err(|_| Error::too_big(format!("no memory for a result of {decoded} bytes")))?;
    let (starts, _) = starts.as_chunks::<4>();
    SCRATCH.with_borrow_mut(|scratch| {
        let result = starts.iter().try_for_each(|start| {
            let start = usize::try_from(u32::from_le_bytes(*start)).unwrap_or(usize::MAX);
            let length = block.min(decoded.saturating_sub(out.len()));
            frame.block(start, length, &mut out, scratch)
        });
        if scratch.capacity() > KEPT {
            *scratch = Vec::new();
        }
        result
    })?;
    Ok(out)
}

impl Frame<'_> {
    /// Decodes the block of `length` bytes that begins at `start`, and appends it to `out`.
    fn block(&self, start: usize, length: usize, out: &mut Vec<u8>, scratch: &mut Vec<u8>) -> Result<()> {
        let streams = self
            .bytes
            .get(start..)
            .filter(|_| start >= self.head)
            .ok_or_else(|| Error::corrupt(format!("blosc: a block at byte {start} of {}", self.bytes.len())))?;
        let item = self.item;
        let whole = length == self.block;
        let split = self.flags & UNSPLIT == 0
            && whole
            && item <= MOST_STREAMS
            && length.checked_div(item).is_some_and(|n| n >= LEAST_STREAM);
        let count = if split { item } else { 1 };
        let bits = self.flags & BIT_SHUFFLED != 0;
        if bits || (self.flags & SHUFFLED != 0 && item > 1) {
            // What is left of the block before is overwritten.
            scratch.resize(length, 0);
            self.streams(streams, scratch, count)?;
            if bits {
                shuffle::bit_unshuffle(scratch, out, item);
            } else {
                shuffle::unshuffle(scratch, out, item);
            }
            return Ok(());
        }
        let at = out.len();
        out.resize(at.saturating_add(length), 0);
        self.streams(streams, out.get_mut(at..).unwrap_or_default(), count)
    }

    /// Decodes `count` streams of equal decoded length into `out`.
    fn streams(&self, mut bytes: &[u8], out: &mut [u8], count: usize) -> Result<()> {
        let each = out.len().checked_div(count).unwrap_or(0);
        if each.checked_mul(count) != Some(out.len()) {
            return Err(Error::corrupt(format!("blosc: a block of {} bytes in {count} streams", out.len())));
        }
        for out in out.chunks_mut(each.max(1)) {
            let cut = || Error::corrupt("blosc: a stream leads out of the frame");
            let size = usize::try_from(u32_at(bytes, 0).ok_or_else(cut)?).unwrap_or(usize::MAX);
            let (stream, rest) = bytes.get(4..).and_then(|b| b.split_at_checked(size)).ok_or_else(cut)?;
            bytes = rest;
            if size == out.len() {
                out.copy_from_slice(stream);
                continue;
            }
            let (name, done) = match self.flags >> 5 {
                0 => ("blosclz", lz::into(stream, out)),
                1 => ("lz4", lz4::into(stream, out)),
                2 => ("snappy", snappy(stream, out)),
                3 => ("zlib", deflate::zlib_into(stream, out)),
                4 => ("zstd", zstd::into(stream, out)),
                n => return Err(Error::unsupported(format!("a blosc frame with compressor {n}"))),
            };
            if done.is_none() {
                return Err(Error::corrupt(format!("blosc: a stream of {name} that is not {} bytes", out.len())));
            }
        }
        Ok(())
    }
}

fn snappy(stream: &[u8], out: &mut [u8]) -> Option<()> {
    let n = snap::raw::Decoder::new().decompress(stream, out).ok()?;
    (n == out.len()).then_some(())
}
