//! One of the streams: its blocks, and how it gets in and out of the buffers.

use super::codes::{END, LITERAL, Lengths, MORE, SPECIAL};
use super::cursor::{self, AHEAD, Buffers, Cursor, FULL, HISTORY, INPUT, Step};
use super::{Inflated, Stream};

/// The order in which the lengths of the code for lengths are stored.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// Most symbols of a block: literals and lengths, distances.
const MOST: (usize, usize) = (286, 30);

/// A stream that is being decoded.
pub struct Lane<'a, 'b> {
    encoded: &'a [u8],
    /// How much of it has been put into the buffer.
    fed: usize,
    /// How much of it is in the buffer.
    held: usize,
    buffers: &'b mut Buffers,
    cursor: Cursor,
    /// That was, or is, the last block.
    is_last: bool,
    /// Bytes of the window that are in the result.
    flushed: usize,
    out: Vec<u8>,
    length: usize,
}

impl<'a, 'b> Lane<'a, 'b> {
    /// At the start of `stream`.
    pub fn new(stream: Stream<'a>, buffers: &'b mut Buffers) -> Self {
        let Stream { encoded, length } = stream;
        let (cursor, out) = (Cursor::default(), Vec::new());
        Self { encoded, fed: 0, held: 0, buffers, cursor, is_last: false, flushed: 0, out, length }
    }

    /// What steps need.
    pub fn hot(&mut self) -> (&mut Cursor, &mut Buffers) {
        (&mut self.cursor, self.buffers)
    }

    /// Goes to the first step.
    pub fn begin(&mut self) -> Step {
        let begun = self.out.try_reserve_exact(self.length).ok().and_then(|()| self.feed()).and_then(|()| self.block());
        begun.unwrap_or(Step::Bad)
    }

    /// Does away with what a stream has stopped for.
    pub fn go_on(&mut self) -> Step {
        self.resume().unwrap_or(Step::Bad)
    }

    /// Decodes what is left after `step`. The result, and what follows the stream; `None` unless all is as it should be.
    pub fn finish(mut self, mut step: Step) -> Option<Inflated<'a>> {
        while step == Step::Go {
            step = match cursor::run_one(self.hot()) {
                Step::Stop => self.go_on(),
                other => other,
            };
        }
        if step == Step::Bad {
            return None;
        }
        self.flush()?;
        let used = self.fed.checked_sub(self.held)?.checked_add(self.byte_at()?)?;
        (self.out.len() == self.length).then_some((self.out, self.encoded.get(used..)?))
    }

    fn resume(&mut self) -> Option<Step> {
        if self.cursor.filled >= FULL {
            self.flush()?;
        }
        self.feed()?;
        match self.cursor.entry & (LITERAL | SPECIAL | MORE | END) {
            END_OF_BLOCK => {
                self.cursor.skip(self.cursor.entry);
                self.block()
            }
            SPECIAL => None,
            _ => Some(Step::Go),
        }
    }

    /// The place in the buffer of the first byte of which no bit has been used; `None` after the end of the stream.
    fn byte_at(&self) -> Option<usize> {
        self.cursor.at.checked_sub((self.cursor.count >> 3) as usize).filter(|at| *at <= self.held)
    }

    /// Fills the buffer for the input up, if there is need. `None` where more has been used than there is.
    fn feed(&mut self) -> Option<()> {
        if self.cursor.at < INPUT && self.fed > 0 {
            return Some(());
        }
        // The bytes whose bits are at hand stay: a stream may end among them.
        let kept = (self.cursor.count >> 3) as usize;
        let used = self.cursor.at.checked_sub(kept)?.min(self.held);
        // What is looked at after the end are zeros, no more than one refill of them.
        let at = self.cursor.at.checked_sub(used).filter(|at| *at < AHEAD)?;
        self.buffers.input.copy_within(used..self.held, 0);
        self.held = self.held.checked_sub(used)?;
        self.cursor.at = at;
        let (_, empty) = self.buffers.input.split_at_mut_checked(self.held)?;
        let rest = self.encoded.get(self.fed..)?;
        let count = rest.len().min(empty.len());
        let (filled, after) = empty.split_at_mut_checked(count)?;
        filled.copy_from_slice(rest.get(..count)?);
        after.fill(0);
        self.fed = self.fed.checked_add(count)?;
        self.held = self.held.checked_add(count)?;
        Some(())
    }

    /// Moves what was decoded to the result. `None` where that gets too long.
    fn flush(&mut self) -> Option<()> {
        let new = self.buffers.window.get(self.flushed..self.cursor.filled)?;
        if self.length.checked_sub(self.out.len())? < new.len() {
            return None;
        }
        self.out.extend_from_slice(new);
        if self.cursor.filled >= FULL {
            self.buffers.window.copy_within(self.cursor.filled.checked_sub(HISTORY)?..self.cursor.filled, 0);
            self.cursor.filled = HISTORY;
        }
        self.flushed = self.cursor.filled;
        Some(())
    }

    /// The next bits as a number.
    fn take(&mut self, count: u32) -> Option<u32> {
        self.feed()?;
        Some(self.cursor.take(count, &self.buffers.input))
    }

    fn take_small(&mut self, count: u32) -> Option<usize> {
        self.take(count).map(|number| number as usize)
    }

    /// Goes to the first step of the next block with codes; past the last block, [`Step::Stop`].
    fn block(&mut self) -> Option<Step> {
        while !self.is_last {
            self.is_last = self.take(1)? == 1;
            match self.take(2)? {
                0 => {
                    self.stored()?;
                    continue;
                }
                1 => self.buffers.codes.set_fixed()?,
                2 => self.codes()?,
                _ => return None,
            }
            self.feed()?;
            self.cursor.refill(&self.buffers.input);
            self.cursor.entry = self.buffers.codes.symbol(self.cursor.bits);
            return Some(Step::Go);
        }
        Some(Step::Stop)
    }

    /// Copies a block that is stored as it is.
    fn stored(&mut self) -> Option<()> {
        self.cursor.skip(self.cursor.count & 7);
        let (length, complement) = (self.take(16)?, self.take(16)?);
        if length ^ complement != 0xffff {
            return None;
        }
        (self.cursor.at, self.cursor.bits, self.cursor.count) = (self.byte_at()?, 0, 0);
        let mut left = length as usize;
        while left > 0 {
            self.feed()?;
            if self.cursor.filled >= FULL {
                self.flush()?;
            }
            let Cursor { at, filled, .. } = self.cursor;
            let count = left.min(self.held.checked_sub(at)?).min(FULL.checked_sub(filled)?);
            if count == 0 {
                return None;
            }
            let source = self.buffers.input.get(at..)?.get(..count)?;
            self.buffers.window.get_mut(filled..)?.get_mut(..count)?.copy_from_slice(source);
            (self.cursor.at, self.cursor.filled) = (at.checked_add(count)?, filled.checked_add(count)?);
            left = left.checked_sub(count)?;
        }
        Some(())
    }

    /// Reads the codes of a block.
    fn codes(&mut self) -> Option<()> {
        let symbols = self.take_small(5)?.checked_add(257)?;
        let distances = self.take_small(5)?.checked_add(1)?;
        let stored = self.take_small(4)?.checked_add(4)?;
        if symbols > MOST.0 || distances > MOST.1 {
            return None;
        }
        let mut lengths = [0; 19];
        for place in ORDER.iter().take(stored) {
            *lengths.get_mut(*place)? = u8::try_from(self.take(3)?).ok()?;
        }
        let code = Lengths::new(&lengths)?;
        let mut lengths = [0; MOST.0 + MOST.1];
        let lengths = lengths.get_mut(..symbols.checked_add(distances)?)?;
        let mut at = 0usize;
        while at < lengths.len() {
            self.feed()?;
            self.cursor.refill(&self.buffers.input);
            let (symbol, bits) = code.next(self.cursor.bits);
            self.cursor.skip(bits);
            let (length, count) = match symbol {
                0..16 => (symbol, 1),
                16 => (*lengths.get(at.checked_sub(1)?)?, self.take_small(2)?.checked_add(3)?),
                17 => (0, self.take_small(3)?.checked_add(3)?),
                _ => (0, self.take_small(7)?.checked_add(11)?),
            };
            let end = at.checked_add(count)?;
            lengths.get_mut(at..end)?.fill(length);
            at = end;
        }
        let (symbols, distances) = lengths.split_at_checked(symbols)?;
        self.buffers.codes.set(symbols, distances)
    }
}

/// What remains of the entry for it.
const END_OF_BLOCK: u32 = SPECIAL | END;
