//! Codecs: bytes to bytes, backwards, into a known length.
//!
//! A [`Chain`] lists codecs in the order in which a writer applied them; decoding undoes them from the last to the first. The
//! length of the result is known before anything is allocated, and each stage's own length follows from it, so that a header
//! that claims more, or a stream that goes on for ever, ends in an error.
//!
//! Bytes that follow a stream are treated as numcodecs treats them, so that a padded object is read and nothing is read that
//! others refuse: after zlib and a Blosc frame anything is ignored; gzip, bzip2 and LZMA go on with further streams, whose
//! results are appended; after the last of them gzip allows zeros, bzip2 and LZMA anything that begins no other, once the result has
//! its full length; zstd goes on with further frames, LZ4 ends with its block, and after them anything else is an error.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod blosc;
mod bzip2;
mod checksum;
pub mod config;
mod deflate;
mod inflate;
mod lz4;
mod number;
mod packbits;
mod repeat;
mod shuffle;
mod xz;
mod zstd;

pub use checksum::{Location, Sum};
pub use config::{from_n5, from_numcodecs, is_object_codec};
pub use lz4::Framing;
pub use number::{Kind, Number};
pub use xz::Lzma;

use crate::error::{Error, Result};
use crate::limits;
use crate::pieces;
use std::borrow::Cow;
use std::io::Read;

/// How long the result of a stage must be, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Just so long.
    Exact(usize),
    /// Not longer; the true length shows only when decoded.
    AtMost(usize),
}

impl Length {
    /// The most bytes that fit.
    pub fn bound(self) -> usize {
        match self {
            Self::Exact(n) | Self::AtMost(n) => n,
        }
    }

    /// Whether a result of `length` bytes fits.
    pub fn allows(self, length: usize) -> bool {
        match self {
            Self::Exact(n) => length == n,
            Self::AtMost(n) => length <= n,
        }
    }

    /// The same kind of length, with another number.
    fn map(self, f: impl FnOnce(usize) -> usize) -> Self {
        match self {
            Self::Exact(n) => Self::Exact(f(n)),
            Self::AtMost(n) => Self::AtMost(f(n)),
        }
    }

    /// An error unless `length` bytes, claimed or decoded by `codec`, are what is expected.
    fn check(self, codec: &str, length: usize) -> Result<()> {
        if self.allows(length) { Ok(()) } else { Err(self.mismatch(codec, length)) }
    }

    fn mismatch(self, codec: &str, length: impl std::fmt::Display) -> Error {
        match self {
            Self::Exact(n) => Error::corrupt(format!("{codec}: {length} bytes where {n} are expected")),
            Self::AtMost(n) => Error::corrupt(format!("{codec}: {length} bytes where at most {n} are expected")),
        }
    }

    fn longer(self, codec: &str) -> Error {
        self.mismatch(codec, format_args!("more than {}", self.bound()))
    }
}

/// One codec with what decoding needs of its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Codec {
    /// gzip ([RFC 1952](https://www.rfc-editor.org/rfc/rfc1952)), also of several members, also padded with zeros.
    Gzip,
    /// zlib ([RFC 1950](https://www.rfc-editor.org/rfc/rfc1950)).
    Zlib,
    /// gzip or zlib, told apart by their magic: N5 writers disagree on what `gzip` stands for.
    GzipOrZlib,
    /// bzip2, also of several streams.
    Bzip2,
    /// xz, LZMA or raw LZMA filters.
    Lzma(Lzma),
    /// LZ4 in one of its framings.
    Lz4(Framing),
    /// Zstandard frames, also skippable ones ([RFC 8878](https://www.rfc-editor.org/rfc/rfc8878)).
    Zstd,
    /// A Blosc 1 frame.
    Blosc,
    /// Four bytes of checksum before or after the data, little-endian.
    Checksum(Sum, Location),
    /// The bytes of all elements regrouped by significance; elements of so many bytes, bytes that are left over unchanged.
    Shuffle(usize),
    /// Differences of neighbours.
    Delta {
        /// Type of the decoded elements.
        decoded: Number,
        /// Type of the stored differences.
        encoded: Number,
    },
    /// `(x - offset) * scale`, rounded.
    FixedScaleOffset {
        /// Type of the decoded elements.
        decoded: Number,
        /// Type of the stored elements.
        encoded: Number,
        /// Multiplied by when encoding.
        scale: f64,
        /// Subtracted before that.
        offset: f64,
    },
    /// Elements cast to another type; also `quantize`, which is that and a loss of precision.
    AsType {
        /// Type of the decoded elements.
        decoded: Number,
        /// Type of the stored elements.
        encoded: Number,
    },
    /// Bytes that are always the same before the others (the header of an N5 block whose shape is known).
    Prefix(Vec<u8>),
    /// Eight booleans in a byte, first in the highest bit, after a byte that counts the unused bits.
    PackBits,
    /// A codec whose decoding changes nothing, with its name (`bitround`).
    Identity(&'static str),
}

impl Codec {
    /// The name as a person knows it: numcodecs' id.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Gzip | Self::GzipOrZlib => "gzip",
            Self::Zlib => "zlib",
            Self::Bzip2 => "bz2",
            Self::Lzma(_) => "lzma",
            Self::Lz4(_) => "lz4",
            Self::Zstd => "zstd",
            Self::Blosc => "blosc",
            Self::Checksum(sum, _) => sum.name(),
            Self::Shuffle(_) => "shuffle",
            Self::Delta { .. } => "delta",
            Self::FixedScaleOffset { .. } => "fixedscaleoffset",
            Self::AsType { .. } => "astype",
            Self::Prefix(_) => "header",
            Self::PackBits => "packbits",
            Self::Identity(name) => name,
        }
    }

    /// How long the encoded bytes are for a result of `length`. A compressor's are measured by `plain`, the length of what was there
    /// before any was applied: if each could double what another one made, a long chain would bound nothing.
    fn encoded_length(&self, length: Length, plain: &mut usize) -> Length {
        let encoded = match self {
            Self::Shuffle(_) | Self::Identity(_) => length,
            Self::Checksum(..) => length.map(|n| n.saturating_add(4)),
            Self::Prefix(bytes) => length.map(|n| n.saturating_add(bytes.len())),
            Self::Delta { decoded, encoded }
            | Self::AsType { decoded, encoded }
            | Self::FixedScaleOffset { decoded, encoded, .. } => {
                length.map(|n| n.div_ceil(decoded.size()).saturating_mul(encoded.size()))
            }
            Self::PackBits => length.map(|n| n.div_ceil(8).saturating_add(1)),
            Self::Gzip
            | Self::Zlib
            | Self::GzipOrZlib
            | Self::Bzip2
            | Self::Lzma(_)
            | Self::Lz4(_)
            | Self::Zstd
            | Self::Blosc => {
                let bound = limits::encoded(u64::try_from(*plain).unwrap_or(u64::MAX));
                return Length::AtMost(usize::try_from(bound).unwrap_or(usize::MAX).max(length.bound()));
            }
        };
        // What filters make larger was larger before: the last exact length is what counts, and any growth.
        *plain = match encoded {
            Length::Exact(n) => n,
            Length::AtMost(n) => plain.saturating_add(n.saturating_sub(length.bound())),
        };
        encoded
    }

    /// Undoes this codec. The result borrows from the input where the input holds it.
    fn decode<'a>(&self, encoded: Cow<'a, [u8]>, length: Length) -> Result<Cow<'a, [u8]>> {
        Ok(Cow::Owned(match self {
            Self::Gzip => deflate::gzip(&encoded, length)?,
            Self::Zlib => deflate::zlib(&encoded, length)?,
            Self::GzipOrZlib => deflate::either(&encoded, length)?,
            Self::Bzip2 => bzip2::decode(&encoded, length)?,
            Self::Lzma(lzma) => lzma.decode(&encoded, length)?,
            Self::Lz4(framing) => lz4::decode(*framing, &encoded, length)?,
            Self::Zstd => zstd::decode(&encoded, length)?,
            Self::Blosc => blosc::decode(&encoded, length)?,
            Self::Checksum(sum, location) => return checksum::decode(*sum, *location, encoded, length),
            Self::Shuffle(0 | 1) | Self::Identity(_) => {
                length.check(self.name(), encoded.len())?;
                return Ok(encoded);
            }
            Self::Shuffle(size) => {
                length.check("shuffle", encoded.len())?;
                let mut decoded = Vec::new();
                shuffle::unshuffle(&encoded, &mut decoded, *size);
                decoded
            }
            Self::Delta { decoded, encoded: stored } => number::delta(&encoded, *decoded, *stored, length)?,
            Self::FixedScaleOffset { decoded, encoded: stored, scale, offset } => {
                number::fixed_scale_offset(&encoded, *decoded, *stored, (*scale, *offset), length)?
            }
            Self::AsType { decoded, encoded: stored } => number::cast(&encoded, *decoded, *stored, length)?,
            Self::PackBits => packbits::decode(&encoded, length)?,
            Self::Prefix(bytes) => {
                let rest = encoded.strip_prefix(bytes.as_slice());
                let rest = rest.ok_or_else(|| Error::corrupt(format!("a header other than {bytes:?}")))?;
                length.check("header", rest.len())?;
                rest.to_vec()
            }
        }))
    }
}

/// Codecs in the order in which they were applied when writing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chain {
    codecs: Vec<Codec>,
}

impl Chain {
    /// A chain of `codecs`, first applied first.
    ///
    /// # Errors
    /// [`crate::error::Kind::TooBig`] over [`crate::limits::CODECS`].
    pub fn new(codecs: Vec<Codec>) -> Result<Self> {
        if codecs.len() > limits::CODECS {
            return Err(Error::too_big(format!("{} codecs; at most {} are read", codecs.len(), limits::CODECS)));
        }
        Ok(Self { codecs })
    }

    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.codecs.is_empty()
    }

    /// The most encoded bytes that can stand for a result of `length`; exact where no codec compresses.
    pub fn encoded_length(&self, length: Length) -> Length {
        self.lengths(length).1
    }

    /// The length that each codec must decode to, first codec first, and that of the encoded bytes.
    fn lengths(&self, length: Length) -> (Vec<Length>, Length) {
        let mut lengths = Vec::with_capacity(self.codecs.len());
        let mut plain = length.bound();
        let encoded = self.codecs.iter().fold(length, |length, codec| {
            lengths.push(length);
            codec.encoded_length(length, &mut plain)
        });
        (lengths, encoded)
    }

    /// The most bytes that decoding `encoded` bytes into a result of `length` takes at a time beside the encoded ones: what a codec gets
    /// from another, and what it makes of that.
    pub fn memory(&self, encoded: u64, length: Length) -> u64 {
        let (lengths, _) = self.lengths(length);
        let (mut input, mut held, mut most) = (encoded, 0u64, 0);
        for (codec, length) in self.codecs.iter().zip(lengths).rev() {
            let bound = u64::try_from(length.bound()).unwrap_or(u64::MAX);
            let never_more = matches!(codec, Codec::Checksum(..) | Codec::Prefix(_) | Codec::Shuffle(_) | Codec::Identity(_));
            let result = if never_more { bound.min(input) } else { bound };
            most = most.max(held.saturating_add(result));
            (input, held) = (result, result);
        }
        most
    }

    /// Undoes the chain: `encoded` becomes a result of `length`.
    ///
    /// # Errors
    /// [`crate::error::Kind::Corrupt`] when the bytes are not what a writer produces, or give another length;
    /// [`crate::error::Kind::Unsupported`] for a variant of a format that is not read;
    /// [`crate::error::Kind::TooBig`] when a stream asks for more working memory than its result justifies.
    pub fn decode(&self, encoded: &[u8], length: Length) -> Result<Vec<u8>> {
        Ok(self.run(Cow::Borrowed(encoded), length)?.into_owned())
    }

    /// The same as [`Chain::decode`], giving the input back without a copy where there is nothing to undo.
    ///
    /// # Errors
    /// As [`Chain::decode`].
    pub fn decode_owned(&self, encoded: Vec<u8>, length: Length) -> Result<Vec<u8>> {
        Ok(self.run(Cow::Owned(encoded), length)?.into_owned())
    }

    fn run<'a>(&self, encoded: Cow<'a, [u8]>, length: Length) -> Result<Cow<'a, [u8]>> {
        let lengths = self.checked_lengths(encoded.len(), length)?;
        self.codecs.iter().zip(lengths).rev().try_fold(encoded, |bytes, (codec, length)| codec.decode(bytes, length))
    }

    /// As [`Chain::lengths`], of codecs that can be undone.
    fn checked_lengths(&self, encoded: usize, length: Length) -> Result<Vec<Length>> {
        let (lengths, outermost) = self.lengths(length);
        outermost.check("encoded bytes", encoded)?;
        let most = limits::encoded(limits::CHUNK);
        if let Some(stage) = lengths.iter().find(|stage| u64::try_from(stage.bound()).is_ok_and(|n| n > most)) {
            return Err(Error::too_big(format!("a step of decoding makes {} bytes; at most {most} are made", stage.bound())));
        }
        Ok(lengths)
    }

    /// What is around DEFLATE, where the outermost codec is that.
    fn deflate(&self) -> Option<deflate::Format> {
        match self.codecs.last()? {
            Codec::Gzip => Some(deflate::Format::Gzip),
            Codec::Zlib => Some(deflate::Format::Zlib),
            Codec::GzipOrZlib => Some(deflate::Format::Either),
            _ => None,
        }
    }

    /// Whether [`Chain::undo_two`] does anything.
    pub fn goes_in_pairs(&self) -> bool {
        self.deflate().is_some()
    }

    /// Undoes the outermost codec of two blocks at once, if it is gzip or zlib, which takes less time than one after the other. `lengths`
    /// are those of the results of the whole chain, in bytes. [`Chain::finish`] undoes the rest; `None` for a block of which [`Chain::decode`] has to
    /// tell what is wrong with it, or that it decodes all the same.
    pub fn undo_two(&self, encoded: [&[u8]; 2], lengths: [usize; 2]) -> [Option<Vec<u8>>; 2] {
        let stage = |encoded: &[u8], length| match self.checked_lengths(encoded.len(), Length::Exact(length)).ok()?.last()? {
            Length::Exact(length) => Some(*length),
            Length::AtMost(_) => None,
        };
        let ([first, second], [for_first, for_second]) = (encoded, lengths);
        match (self.deflate(), stage(first, for_first), stage(second, for_second)) {
            (Some(format), Some(for_first), Some(for_second)) => deflate::two(format, encoded, [for_first, for_second]),
            _ => [None, None],
        }
    }

    /// Undoes what [`Chain::undo_two`] has left: `undone` becomes a result of `length`.
    ///
    /// # Errors
    /// As [`Chain::decode`].
    pub fn finish(&self, undone: Vec<u8>, length: Length) -> Result<Vec<u8>> {
        let mut steps = self.codecs.iter().zip(self.lengths(length).0).rev();
        if let Some((codec, length)) = steps.next() {
            length.check(codec.name(), undone.len())?;
        }
        let result = steps.try_fold(Cow::Owned(undone), |bytes, (codec, length)| codec.decode(bytes, length));
        Ok(result?.into_owned())
    }

    /// Names of the codecs as a person knows them, in the order of writing (`shuffle`, `zlib`).
    pub fn names(&self) -> Vec<String> {
        self.codecs.iter().map(|codec| codec.name().to_owned()).collect()
    }
}

/// Makes room in `out` for one byte more than it holds, and for all that `length` allows where that is exact. The byte over
/// the bound is there to find out that a stream goes on. Every streaming decoder grows its result here and nowhere else.
fn grow(out: &mut Vec<u8>, length: Length) -> Result<()> {
    const FIRST: usize = 64 << 10;
    if out.len() < out.capacity() {
        return Ok(());
    }
    let limit = length.bound().saturating_add(1);
    let wanted = match length {
        Length::Exact(_) => limit,
        Length::AtMost(_) => out.len().saturating_mul(2).max(FIRST).min(limit),
    };
    let more = pieces::piece(wanted.saturating_sub(out.len()).max(1));
    out.try_reserve_exact(more).map_err(|_| Error::too_big(format!("no memory for a result of {wanted} bytes")))
}

/// Reads `reader` to its end, appending to `out`, which must not get longer than `length` allows.
fn read_all(reader: &mut impl Read, out: &mut Vec<u8>, length: Length, codec: &str) -> Result<()> {
    const STEP: usize = 256 << 10;
    loop {
        grow(out, length)?;
        let old = out.len();
        let step = pieces::piece(out.capacity().saturating_sub(old).min(STEP));
        out.resize(old.saturating_add(step), 0);
        let read = reader.read(out.get_mut(old..).unwrap_or_default());
        let got = *read.as_ref().unwrap_or(&0);
        out.truncate(old.saturating_add(got));
        read.map_err(|e| Error::corrupt(format!("{codec}: {e}")))?;
        if out.len() > length.bound() {
            return Err(length.longer(codec));
        }
        if got == 0 {
            return Ok(());
        }
    }
}

/// Undoes streams one after another. `stream` appends the result of the first one of its input to `out` and gives what
/// follows it; zeros after the last one are padding.
fn streams<'a>(
    encoded: &'a [u8],
    length: Length,
    codec: &str,
    mut stream: impl FnMut(&'a [u8], &mut Vec<u8>) -> Result<&'a [u8]>,
) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = stream(encoded, &mut out)?;
    while rest.iter().any(|&b| b != 0) {
        let whole = out.len();
        match stream(rest, &mut out) {
            Ok(after) => rest = after,
            // Not a stream; but one that goes on after the expected length is.
            Err(_) if length == Length::Exact(whole) && out.len() <= whole => break,
            Err(e) => return Err(e),
        }
    }
    length.check(codec, out.len())?;
    Ok(out)
}

/// The little-endian number at `at`.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
