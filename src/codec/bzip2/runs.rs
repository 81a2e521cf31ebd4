//! Runs of bytes: after four times the same one a byte tells how often it comes besides.

use super::{corrupt, longer};
use crate::codec::{Length, grow};
use crate::error::Result;

/// How many of the same byte have a length behind them.
const RUN: u8 = 4;

/// Where in a block we are.
#[derive(Default)]
pub struct Runs {
    last: u8,
    /// How often it came.
    times: u8,
}

impl Runs {
    /// Appends what `piece` stands for to `out`.
    ///
    /// # Errors
    /// More than `length` allows.
    pub fn expand(&mut self, piece: &[u8], out: &mut Vec<u8>, length: Length) -> Result<()> {
        let (mut last, mut times) = (self.last, self.times);
        let mut begin = 0;
        for (at, &byte) in piece.iter().enumerate() {
            if times == RUN {
                append(out, piece.get(begin..at).unwrap_or_default(), length)?;
                append(out, [last; 255].get(..usize::from(byte)).unwrap_or_default(), length)?;
                (begin, times) = (at.saturating_add(1), 0);
            } else {
                times = if times > 0 && byte == last { times.saturating_add(1) } else { 1 };
                last = byte;
            }
        }
        (self.last, self.times) = (last, times);
        append(out, piece.get(begin..).unwrap_or_default(), length)
    }

    /// The end of a block.
    ///
    /// # Errors
    /// After a run without a length.
    pub fn end(self) -> Result<()> {
        if self.times == RUN { Err(corrupt("a block ends in a run without a length")) } else { Ok(()) }
    }
}

fn append(out: &mut Vec<u8>, mut bytes: &[u8], length: Length) -> Result<()> {
    if out.len().saturating_add(bytes.len()) > length.bound() {
        return Err(longer(out, length));
    }
    while !bytes.is_empty() {
        grow(out, length)?;
        let room = out.capacity().saturating_sub(out.len()).min(bytes.len());
        let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        out.extend_from_slice(now);
        bytes = later;
    }
    Ok(())
}
