//! xz, the older `.lzma` ("alone"), and raw LZMA filters, by liblzma.
//!
//! The first two describe themselves and are told apart by their magic, whatever the metadata says; raw streams need the
//! filters from the metadata. The dictionary a stream asks for is allocated before its first byte: it is bounded.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Length, grow, streams};
use crate::error::{Error, Result};
use liblzma::stream::{Action, Error as LzmaError, Filters, LzmaOptions, Status, Stream};

/// Memory for a decoder beyond its result: the dictionary of the highest preset is 64 MiB.
const MEMORY: u64 = 80 << 20;

/// With which an xz stream begins.
const MAGIC: &[u8] = b"\xfd7zXZ\0";

/// Which variant of LZMA, as the metadata tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lzma {
    /// xz or alone.
    Container,
    /// No container; the filters in the order of encoding.
    Raw(Vec<Filter>),
}

/// A filter of a raw stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// Differences of bytes so far apart, 1 to 256.
    Delta(u16),
    /// Branch addresses of an architecture, by liblzma's number.
    Branch(u8),
    /// LZMA1 or LZMA2.
    Lzma {
        /// Whether it is the second version.
        second: bool,
        /// Size of the dictionary, in bytes.
        dictionary: u32,
        /// Literal context bits.
        lc: u32,
        /// Literal position bits.
        lp: u32,
        /// Position bits.
        pb: u32,
    },
}

impl Lzma {
    pub(super) fn decode(&self, encoded: &[u8], length: Length) -> Result<Vec<u8>> {
        streams(encoded, length, "lzma", |encoded, out| self.stream(encoded, out, length))
    }

    /// Decodes one stream and gives what follows it.
    fn stream<'a>(&self, encoded: &'a [u8], out: &mut Vec<u8>, length: Length) -> Result<&'a [u8]> {
        let mut stream = match self {
            Self::Container => {
                let memory = u64::try_from(length.bound()).unwrap_or(u64::MAX).saturating_add(MEMORY);
                Stream::new_auto_decoder(memory, 0)
            }
            Self::Raw(filters) => Stream::new_raw_decoder(&raw(filters, length)?),
        }
        .map_err(failed)?;
        let mut rest = encoded;
        if *self == Self::Container {
            // xz streams may have zeros between them.
            let padding = encoded.iter().take_while(|&&b| b == 0).count();
            rest = encoded.get(padding..).filter(|rest| rest.starts_with(MAGIC)).unwrap_or(encoded);
        }
        loop {
            grow(out, length)?;
            let (used, before) = (stream.total_in(), out.len());
            let status = stream.process_vec(rest, out, Action::Finish).map_err(failed)?;
            if out.len() > length.bound() {
                return Err(length.longer("lzma"));
            }
            let step = usize::try_from(stream.total_in().saturating_sub(used)).unwrap_or(usize::MAX);
            rest = rest.get(step..).unwrap_or_default();
            let idle = step == 0 && out.len() == before;
            // LZMA1 without container need not mark its end: then the end of the input is the end.
            let unmarked = matches!(self, Self::Raw(_)) && rest.is_empty() && idle && length == Length::Exact(out.len());
            if status == Status::StreamEnd || unmarked {
                return Ok(rest);
            }
            if idle {
                return Err(Error::corrupt(format!("lzma: the stream breaks off after {} bytes", encoded.len())));
            }
        }
    }
}

fn raw(filters: &[Filter], length: Length) -> Result<Filters> {
    let mut chain = Filters::new();
    for filter in filters {
        match *filter {
            Filter::Delta(distance) => {
                let less = u8::try_from(distance.saturating_sub(1)).unwrap_or(u8::MAX);
                chain.delta_properties(&[less]).map_err(failed)?;
            }
            Filter::Branch(4) => drop(chain.x86()),
            Filter::Branch(5) => drop(chain.powerpc()),
            Filter::Branch(6) => drop(chain.ia64()),
            Filter::Branch(7) => drop(chain.arm()),
            Filter::Branch(8) => drop(chain.arm_thumb()),
            Filter::Branch(9) => drop(chain.sparc()),
            Filter::Branch(id) => return Err(Error::unsupported(format!("lzma filter {id}"))),
            Filter::Lzma { second, dictionary, lc, lp, pb } => {
                // No match reaches back before the first byte, so a dictionary longer than the result is never used.
                let bound = u32::try_from(length.bound()).unwrap_or(u32::MAX);
                let mut options = LzmaOptions::new();
                options.dict_size(dictionary.min(bound).max(4096));
                options.literal_context_bits(lc).literal_position_bits(lp).position_bits(pb);
                if second {
                    chain.lzma2(&options)
                } else {
                    chain.lzma1(&options)
                };
            }
        }
    }
    Ok(chain)
}

fn failed(e: LzmaError) -> Error {
    match e {
        LzmaError::MemLimit | LzmaError::Mem => Error::too_big("lzma: the stream asks for too large a dictionary"),
        LzmaError::Options => Error::unsupported("lzma: options that are not read"),
        e => Error::corrupt(format!("lzma: {e}")),
    }
}
