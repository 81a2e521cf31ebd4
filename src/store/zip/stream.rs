//! An entry's content as a stream: packed bytes fetched in pieces, and the decoder of the entry's method on top.
//!
//! Used for ranges (decoding stops at the end of the range) and for methods other than stored and deflated. A failed fetch
//! keeps its own error: the decoder only sees that reading ended.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::ZipStore;
use super::directory::{Record, flag};
use crate::error::{Error, Kind, Result};
use crate::pieces;
use std::io::{self, BufRead, Cursor, Read};

// A window of 64 MiB is what the strongest presets of xz and zstd use.
const MEMORY: u64 = 160 << 20;
const FIRST: u64 = 256 << 10;
const NEXT: u64 = 2 << 20;

/// The packed bytes of an entry.
pub struct Packed<'a> {
    store: &'a ZipStore,
    piece: Vec<u8>,
    at: usize,
    position: u64,
    end: u64,
    /// Why reading ended early.
    failure: Option<Error>,
}

impl<'a> Packed<'a> {
    /// The bytes of the container from `position` to `end`, of which `piece[at..]` has been read already.
    pub fn new(store: &'a ZipStore, piece: Vec<u8>, at: usize, position: u64, end: u64) -> Self {
        Self { store, piece, at, position, end, failure: None }
    }
}

impl Read for Packed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.fill_buf()?.read(into)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Packed<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at >= self.piece.len() && self.position < self.end {
            let most = if self.piece.is_empty() { FIRST } else { NEXT };
            let length = super::bytes::len64(pieces::piece(super::bytes::len(self.end.saturating_sub(self.position).min(most))));
            self.at = 0;
            if let Err(e) = self.store.fetch(self.position, length, &mut self.piece) {
                self.failure = Some(e);
                self.piece.clear();
                return Err(io::ErrorKind::Other.into());
            }
            self.position = self.position.saturating_add(length);
        }
        let rest = self.piece.get(self.at..).unwrap_or_default();
        Ok(rest.get(..pieces::piece(rest.len())).unwrap_or_default())
    }

    fn consume(&mut self, n: usize) {
        self.at = self.at.saturating_add(n).min(self.piece.len());
    }
}

/// Whether entries of `method` are read.
pub fn supported(method: u16) -> bool {
    matches!(method, 0 | 8 | 12 | 14 | 93 | 95)
}

/// A method as APPNOTE 4.4.5 calls it.
pub fn method_name(method: u16) -> String {
    let name = match method {
        1 => "shrink",
        2..=5 => "reduce",
        6 => "implode",
        9 => "deflate64",
        10 => "PKWARE implode",
        16 | 18 | 19 => "IBM",
        96 => "JPEG",
        97 => "WavPack",
        98 => "PPMd",
        99 => "AES encryption",
        _ => return format!("compression method {method}"),
    };
    format!("compression method {method} ({name})")
}

/// Decodes bytes `start..end` of an entry into `into`; to the end of the content, its length and CRC-32 are checked as well.
///
/// # Errors
/// What fetching failed with; [`Kind::Corrupt`] for what does not decode to the claimed content.
pub fn decode(packed: &mut Packed<'_>, record: &Record, start: u64, end: u64, into: &mut Vec<u8>) -> Result<()> {
    into.clear();
    let decoded = decode_range(packed, record, start, end, into);
    match (packed.failure.take(), decoded) {
        (Some(failure), _) => Err(failure),
        (None, Ok(done)) => done,
        (None, Err(e)) => Err(Error::corrupt(format!("{} does not decode: {e}", method_name_plain(record.method)))),
    }
}

fn method_name_plain(method: u16) -> &'static str {
    match method {
        8 => "deflate",
        12 => "bzip2",
        14 => "lzma",
        93 => "zstd",
        95 => "xz",
        _ => "the entry",
    }
}

fn decode_range(packed: &mut Packed<'_>, record: &Record, start: u64, end: u64, into: &mut Vec<u8>) -> io::Result<Result<()>> {
    let mut decoder: Box<dyn Read + '_> = match record.method {
        8 => Box::new(flate2::bufread::DeflateDecoder::new(packed)),
        12 => Box::new(bzip2::bufread::BzDecoder::new(packed)),
        14 => lzma(packed, record)?,
        93 => Box::new(Zstd { packed, context: zstd_safe::DCtx::create(), open: false }),
        95 => {
            let stream = liblzma::stream::Stream::new_stream_decoder(MEMORY, 0)?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(packed, stream))
        }
        _ => Box::new(packed),
    };
    let whole = end == record.size;
    let mut crc = crc32fast::Hasher::new();
    let short = |n: u64| Error::corrupt(format!("{} bytes are claimed, and {n} are stored", record.size));
    let mut skipped = 0_u64;
    let mut scratch = vec![0; 64 << 10];
    while skipped < start {
        let most = pieces::piece(super::bytes::len(start.saturating_sub(skipped)).min(scratch.len()));
        let n = match decoder.read(scratch.get_mut(..most).unwrap_or_default()) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if n == 0 {
            return Ok(Err(short(skipped)));
        }
        if whole {
            crc.update(scratch.get(..n).unwrap_or_default());
        }
        skipped = skipped.saturating_add(super::bytes::len64(n));
    }
    // Grows with what is really there.
    let got = super::bytes::len64(decoder.by_ref().take(end.saturating_sub(start)).read_to_end(into)?);
    if got < end.saturating_sub(start) {
        return Ok(Err(short(start.saturating_add(got))));
    }
    if whole {
        if decoder.read(scratch.get_mut(..1).unwrap_or_default())? != 0 {
            return Ok(Err(Error::corrupt(format!("{} bytes are claimed, and more are stored", record.size))));
        }
        crc.update(into);
        return Ok(check_crc(crc.finalize(), record.crc));
    }
    Ok(Ok(()))
}

/// Compares checksums.
///
/// # Errors
/// [`Kind::Corrupt`] when they differ.
pub fn check_crc(found: u32, claimed: u32) -> Result<()> {
    if found == claimed {
        return Ok(());
    }
    Err(Error::new(Kind::Corrupt, format!("the content has the CRC-32 {found:08x}, and {claimed:08x} is claimed")))
}

// A zip entry holds two bytes of version, two of length, the five property bytes, and a raw stream; the decoder of the old
// `.lzma` format takes the same properties and a size (all ones: up to the marker).
fn lzma<'a>(packed: &'a mut Packed<'_>, record: &Record) -> io::Result<Box<dyn Read + 'a>> {
    let mut head = [0; 9];
    packed.read_exact(&mut head)?;
    let [_, _, 5, 0, p0, p1, p2, p3, p4] = head else {
        return Err(io::Error::other("properties of another length than 5"));
    };
    let size = if record.flags & flag::MARKED_END != 0 { u64::MAX } else { record.size };
    let mut alone = vec![p0, p1, p2, p3, p4];
    alone.extend_from_slice(&size.to_le_bytes());
    let stream = liblzma::stream::Stream::new_lzma_decoder(MEMORY)?;
    Ok(Box::new(liblzma::bufread::XzDecoder::new_stream(Cursor::new(alone).chain(packed), stream)))
}

struct Zstd<'a, 'b> {
    packed: &'a mut Packed<'b>,
    context: zstd_safe::DCtx<'static>,
    // Within a frame.
    open: bool,
}

impl Read for Zstd<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let input = self.packed.fill_buf()?;
            let ended = input.is_empty();
            if ended && !self.open {
                return Ok(0);
            }
            let mut source = zstd_safe::InBuffer::around(input);
            let mut target = zstd_safe::OutBuffer::around(&mut *into);
            let hint = self
                .context
                .decompress_stream(&mut target, &mut source)
                .map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
            let (taken, made) = (source.pos(), target.pos());
            self.packed.consume(taken);
            self.open = hint != 0;
            if made > 0 {
                return Ok(made);
            }
            if ended {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
