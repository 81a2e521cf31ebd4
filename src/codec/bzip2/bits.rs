//! Bits of a stream, from the highest of each byte on.

use super::corrupt;
use crate::error::{Error, Result};

/// A stream of bits.
pub struct Bits<'a> {
    all: &'a [u8],
    /// What is not at hand yet.
    rest: &'a [u8],
    /// The next bits, from the highest on. Below the first `count` of them are those that come after, or zeros.
    next: u64,
    count: u32,
}

/// The error of a stream that has too few.
#[cold]
pub fn ended() -> Error {
    corrupt("the stream breaks off")
}

impl<'a> Bits<'a> {
    /// The bits of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { all: bytes, rest: bytes, next: 0, count: 0 }
    }

    /// Makes sure that 32 bits are at hand, if there are so many.
    #[inline(always)]
    pub fn refill(&mut self) {
        if self.count < 32 {
            self.fill();
        }
    }

    #[inline(always)]
    #[expect(clippy::arithmetic_side_effects, reason = "numbers of bits below 64")]
    fn fill(&mut self) {
        if let Some((word, _)) = self.rest.split_first_chunk::<8>() {
            self.next |= u64::from_be_bytes(*word) >> self.count;
            // Whole bytes only; what is more in `next` is the same when it comes again.
            let bytes = (63 - self.count) >> 3;
            self.count += bytes << 3;
            self.rest = usize::try_from(bytes).ok().and_then(|bytes| self.rest.get(bytes..)).unwrap_or_default();
            return;
        }
        while self.count <= 56
            && let Some((byte, rest)) = self.rest.split_first()
        {
            self.next |= u64::from(*byte) << (56 - self.count);
            self.count += 8;
            self.rest = rest;
        }
    }

    /// The next bits, from the highest on. After [`Bits::refill`] 32 of them, with zeros after the last.
    #[inline(always)]
    pub fn peek(&self) -> u64 {
        self.next
    }

    /// Goes on by `bits` below 64.
    ///
    /// # Errors
    /// Where there are fewer.
    #[inline(always)]
    pub fn skip(&mut self, bits: u32) -> Result<()> {
        self.count = self.count.checked_sub(bits).ok_or_else(ended)?;
        self.next = self.next.wrapping_shl(bits);
        Ok(())
    }

    /// The next 1 to 32 bits, as a number.
    ///
    /// # Errors
    /// Where there are fewer.
    #[inline]
    pub fn take(&mut self, bits: u32) -> Result<u32> {
        self.refill();
        let number = self.next.wrapping_shr(64u32.wrapping_sub(bits));
        self.skip(bits)?;
        Ok(u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// The bytes after the one that the last bit was taken from.
    pub fn rest(&self) -> &'a [u8] {
        let at_hand = usize::try_from(self.count / 8).unwrap_or(0);
        let used = self.all.len().saturating_sub(self.rest.len()).saturating_sub(at_hand);
        self.all.get(used..).unwrap_or_default()
    }
}
