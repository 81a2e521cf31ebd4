//! Where a stream is decoded: a step is up to three literals, or up to two and a match.
//!
//! All that a step needs is in arrays of fixed lengths, so that it has few numbers to keep at hand and none to compare with the ends of
//! buffers: those of two streams fit into the registers.

use super::codes::{Codes, END, LITERAL, MORE, QUICK, QUICK_DISTANCE, SPECIAL};
use crate::codec::repeat::repeat;

/// A step begins only before this place of the input.
pub const INPUT: usize = 16 << 10;

/// How far back a match reaches.
pub const HISTORY: usize = 32 << 10;

/// A step begins only where less than this is in the window.
pub const FULL: usize = HISTORY + (96 << 10);

/// More than a step reads of the input: two words, of which the second begins up to seven bytes after the first.
pub const AHEAD: usize = 32;

/// More than a step adds to the window: two literals, a match of 258 bytes, and what [`repeat`] writes beyond it.
const BEYOND: usize = 320;

/// What a stream is decoded with.
pub struct Buffers {
    pub codes: Codes,
    /// A piece of the stream; zeros after its end.
    pub input: [u8; INPUT + AHEAD],
    /// What was decoded last.
    pub window: [u8; FULL + BEYOND],
}

impl Default for Buffers {
    fn default() -> Self {
        Self { codes: Codes::default(), input: [0; INPUT + AHEAD], window: [0; FULL + BEYOND] }
    }
}

/// What comes after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The next one.
    Go,
    /// The end of the block, of the input at hand, or of the room in the window. After the last block, the end of the stream.
    Stop,
    /// Nothing: no writer makes this.
    Bad,
}

/// Where decoding has come.
#[derive(Clone, Copy, Default)]
pub struct Cursor {
    /// The next byte of the input that is not in `bits`.
    pub at: usize,
    /// The next bits, from the lowest on. Above the first `count` of them are those that come after, or zeros.
    pub bits: u64,
    pub count: u32,
    /// Bytes in the window.
    pub filled: usize,
    /// The entry of the next symbol.
    pub entry: u32,
}

impl Cursor {
    /// Makes sure that 56 bits are at hand.
    #[inline(always)]
    pub fn refill(&mut self, input: &[u8; INPUT + AHEAD]) {
        if let Some(word) = input.get(self.at..).and_then(<[u8]>::first_chunk) {
            self.bits |= u64::from_le_bytes(*word).wrapping_shl(self.count);
            // Whole bytes only; what is more in `bits` is the same when it comes again.
            self.at = self.at.wrapping_add(7).wrapping_sub((self.count >> 3 & 7) as usize);
            self.count |= 56;
        }
    }

    /// Goes on by as many bits as the lowest five of `entry` say; the sixth is not set.
    #[inline(always)]
    pub fn skip(&mut self, entry: u32) {
        // Without a mask, which each symbol would wait for: the processor has its own, of six bits.
        self.bits = self.bits.wrapping_shr(entry);
        self.count = self.count.wrapping_sub(entry & 31);
    }

    /// The next `count` bits, at most 31, as a number; zeros after the end of the input.
    pub fn take(&mut self, count: u32, input: &[u8; INPUT + AHEAD]) -> u32 {
        self.refill(input);
        let number = super::codes::lowest(self.bits, count);
        self.skip(count);
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Appends the literal of `entry` and gives the next entry.
    #[inline(always)]
    fn literal(&mut self, entry: u32, buffers: &mut Buffers) -> u32 {
        self.skip(entry);
        if let Some(place) = buffers.window.get_mut(self.filled) {
            *place = entry.to_le_bytes()[2];
        }
        self.filled = self.filled.wrapping_add(1);
        buffers.codes.symbol(self.bits)
    }

    /// The length or distance of `entry`, with what its next bits add.
    #[inline(always)]
    fn number(&mut self, entry: u32) -> usize {
        let added = super::codes::lowest(self.bits, entry & 31).wrapping_shr(entry >> 8 & 15);
        self.skip(entry);
        ((entry >> 16) as usize).wrapping_add(usize::try_from(added).unwrap_or(0))
    }

    /// One step. The bits that it takes are at most 33 of literals, or 22 of them and 20 of a length, which one refill has; then 28 of a
    /// distance.
    #[inline(always)]
    fn step(&mut self, buffers: &mut Buffers) -> Step {
        if self.at >= INPUT || self.filled >= FULL {
            return Step::Stop;
        }
        self.refill(&buffers.input);
        let mut entry = self.entry;
        if entry & LITERAL != 0 {
            entry = self.literal(entry, buffers);
            if entry & LITERAL != 0 {
                entry = self.literal(entry, buffers);
                if entry & LITERAL != 0 {
                    self.entry = self.literal(entry, buffers);
                    return Step::Go;
                }
            }
        }
        if entry & SPECIAL != 0 {
            if entry & MORE != 0 {
                self.skip(QUICK);
                entry = buffers.codes.longer_symbol(entry, self.bits);
                if entry & LITERAL != 0 {
                    self.entry = self.literal(entry, buffers);
                    return Step::Go;
                }
            }
            if entry & SPECIAL != 0 {
                self.entry = entry;
                return if entry & END != 0 { Step::Stop } else { Step::Bad };
            }
        }
        let length = self.number(entry);
        self.refill(&buffers.input);
        let mut entry = buffers.codes.distance(self.bits);
        if entry & SPECIAL != 0 {
            if entry & MORE == 0 {
                return Step::Bad;
            }
            self.skip(QUICK_DISTANCE);
            entry = buffers.codes.longer_distance(entry, self.bits);
            if entry & SPECIAL != 0 {
                return Step::Bad;
            }
        }
        let distance = self.number(entry);
        self.entry = buffers.codes.symbol(self.bits);
        if repeat(&mut buffers.window, self.filled, distance, length).is_none() {
            return Step::Bad;
        }
        self.filled = self.filled.wrapping_add(length);
        Step::Go
    }
}

/// Steps of one stream, until it stops.
#[inline(never)]
pub fn run_one((cursor, buffers): (&mut Cursor, &mut Buffers)) -> Step {
    let mut at = *cursor;
    let step = loop {
        let step = at.step(buffers);
        if step != Step::Go {
            break step;
        }
    };
    *cursor = at;
    step
}

/// Steps of two streams in turns, until one of them stops.
#[inline(never)]
pub fn run_two(first: (&mut Cursor, &mut Buffers), second: (&mut Cursor, &mut Buffers)) -> (Step, Step) {
    let ((first, first_buffers), (second, second_buffers)) = (first, second);
    // Copies, which the compiler keeps in registers.
    let (mut a, mut b) = (*first, *second);
    let steps = loop {
        let steps = (a.step(first_buffers), b.step(second_buffers));
        if steps != (Step::Go, Step::Go) {
            break steps;
        }
    };
    (*first, *second) = (a, b);
    steps
}
