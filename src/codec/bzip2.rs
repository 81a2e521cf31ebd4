//! bzip2, of one or more streams.
//!
//! Each stream has a decoder of its own, and nothing is read twice.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Length, grow, streams};
use crate::error::{Error, Result};
use bzip2::{Decompress, Status};

/// Undoes bzip2.
pub(super) fn decode(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    streams(encoded, length, "bzip2", |encoded, out| stream(encoded, out, length))
}

/// Decodes one stream and gives what follows it.
fn stream<'a>(encoded: &'a [u8], out: &mut Vec<u8>, length: Length) -> Result<&'a [u8]> {
    let mut decoder = Decompress::new(false);
    loop {
        grow(out, length)?;
        let used = usize::try_from(decoder.total_in()).unwrap_or(usize::MAX);
        let rest = encoded.get(used..).unwrap_or_default();
        let before = out.len();
        let status = decoder.decompress_vec(rest, out).map_err(|e| Error::corrupt(format!("bzip2: {e}")))?;
        if out.len() > length.bound() {
            return Err(length.longer("bzip2"));
        }
        let used_now = usize::try_from(decoder.total_in()).unwrap_or(usize::MAX);
        if status == Status::StreamEnd {
            return Ok(encoded.get(used_now..).unwrap_or_default());
        }
        if used_now == used && out.len() == before {
            return Err(Error::corrupt(format!("bzip2: the stream breaks off after {} bytes", encoded.len())));
        }
    }
}
