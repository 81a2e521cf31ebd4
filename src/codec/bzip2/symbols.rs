//! The symbols of a block: prefix codes, of runs of the byte that was last and of places in a list of the bytes that occur, where each
//! moves to the front when it comes.

use super::bits::Bits;
use super::corrupt;
use crate::error::Result;

/// Most symbols of a code: two for runs, one for each byte but the first of the list, and the end.
const SYMBOLS: usize = 258;

/// Symbols that are decoded by one code, before the next selector.
const GROUP: usize = 50;

/// Longest code, in bits.
const LONGEST: u32 = 20;

/// Bits by which a code is looked up at once.
const QUICK: u32 = 10;

/// The content of a block, before its rotation is undone.
#[derive(Default)]
pub struct Symbols {
    /// A byte in the lowest eight bits of each; zeros above, until [`super::bwt`] makes a table of them.
    pub bytes: Vec<u32>,
    /// How often each byte occurs.
    pub counts: Counts,
}

/// A number for each byte.
pub struct Counts(pub [u32; 256]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; 256])
    }
}

/// A prefix code.
struct Code {
    /// By the next [`QUICK`] bits: symbol and length, the length in the lowest five bits; 0 for longer codes and what is none.
    quick: [u16; 1 << QUICK],
    /// By length: the first code after those of this length, in [`LONGEST`] bits, and what to add to a code for its place in `order`.
    limits: [(u32, u32); LONGEST as usize + 1],
    /// Symbols in the order of their codes.
    order: [u16; SYMBOLS],
}

impl Code {
    /// The code in which symbols have these `lengths`, 1 to 20. Where they are too short for a code, the last symbols have none, as with
    /// the first decoder of the format.
    #[expect(clippy::arithmetic_side_effects, reason = "codes of 20 bits, numbers of symbols")]
    fn new(lengths: &[u8]) -> Self {
        let mut code = Self { quick: [0; 1 << QUICK], limits: [(0, 0); LONGEST as usize + 1], order: [0; SYMBOLS] };
        let (mut next, mut placed) = (0u32, 0u32);
        for (length, limit) in (0u32..).zip(&mut code.limits).skip(1) {
            let unit = 1 << (LONGEST - length);
            let first = placed;
            let begin = next;
            for (symbol, _) in (0u16..).zip(lengths).filter(|(_, l)| u32::from(**l) == length) {
                if next + unit > 1 << LONGEST {
                    break;
                }
                if let Some(slot) = usize::try_from(placed).ok().and_then(|at| code.order.get_mut(at)) {
                    *slot = symbol;
                }
                if length <= QUICK {
                    let range = next >> (LONGEST - QUICK)..(next + unit) >> (LONGEST - QUICK);
                    let range = usize::try_from(range.start).unwrap_or(0)..usize::try_from(range.end).unwrap_or(0);
                    let entry = symbol << 5 | u16::try_from(length).unwrap_or(0);
                    code.quick.get_mut(range).unwrap_or_default().fill(entry);
                }
                next += unit;
                placed += 1;
            }
            // Added to `code >> (LONGEST - length)`; wraps where the first code is beyond the first place.
            *limit = (next, first.wrapping_sub(begin >> (LONGEST - length)));
        }
        code
    }

    /// The symbol of the code that the bits begin with, and its length; `None` where it is none.
    #[inline(always)]
    fn symbol(&self, bits: u64) -> Option<(u16, u32)> {
        let quick = usize::try_from(bits.wrapping_shr(64 - QUICK)).ok()?;
        match self.quick.get(quick) {
            Some(&entry) if entry != 0 => Some((entry >> 5, u32::from(entry & 31))),
            _ => self.long(bits),
        }
    }

    #[expect(clippy::arithmetic_side_effects, reason = "lengths of at most 20 bits")]
    fn long(&self, bits: u64) -> Option<(u16, u32)> {
        let word = u32::try_from(bits.wrapping_shr(64 - LONGEST)).ok()?;
        let (length, (_, add)) = (0u32..).zip(&self.limits).find(|(_, (limit, _))| word < *limit)?;
        let place = (word >> (LONGEST - length)).wrapping_add(*add);
        Some((*self.order.get(usize::try_from(place).ok()?)?, length))
    }
}

/// Bytes in the order in which they came last.
struct MoveToFront([u8; 256]);

/// The first so many bytes of 16, and one more.
const FIRST: [u128; 16] = first();

#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "calculated by the compiler")]
const fn first() -> [u128; 16] {
    let mut masks = [u128::MAX; 16];
    let mut count = 0;
    while count < 15 {
        masks[count] = (1 << (8 * (count + 1))) - 1;
        count += 1;
    }
    masks
}

impl MoveToFront {
    fn first(&self) -> u8 {
        self.0[0]
    }

    /// The byte at `place`, which becomes the first.
    #[inline(always)]
    fn take(&mut self, place: u8) -> u8 {
        let place = usize::from(place);
        let byte = self.0.get(place).copied().unwrap_or(0);
        if let (Some(mask), Some(first)) = (FIRST.get(place), self.0.first_chunk_mut::<16>()) {
            // What comes after the place stays.
            let old = u128::from_le_bytes(*first);
            *first = (old & !mask | (old << 8 | u128::from(byte)) & mask).to_le_bytes();
        } else {
            self.0.copy_within(..place, 1);
            self.0[0] = byte;
        }
        byte
    }
}

impl Symbols {
    /// Reads the rest of a block, from the map of the bytes that occur in it on; `false` when they are more than `most`.
    ///
    /// # Errors
    /// What is no block.
    pub fn read(&mut self, bits: &mut Bits<'_>, most: usize) -> Result<bool> {
        self.bytes.clear();
        self.counts = Counts::default();
        let (used, count) = used(bits)?;
        let end = count.saturating_add(1);
        let (selectors, codes) = codes(bits, usize::from(end).saturating_add(1))?;
        let mut list = MoveToFront(used);
        let (mut run, mut weight) = (0usize, 1usize);
        for selector in selectors {
            let Some(code) = codes.get(usize::from(selector)) else { return Err(corrupt("a selector of no code")) };
            for _ in 0..GROUP {
                bits.refill();
                let Some((symbol, length)) = code.symbol(bits.peek()) else { return Err(corrupt("bits that are no code")) };
                bits.skip(length)?;
                if symbol <= 1 {
                    // A number with the digits 1 and 2, the lowest first.
                    run = run.saturating_add(weight << symbol);
                    weight = weight.saturating_mul(2);
                    if run > most.saturating_sub(self.bytes.len()) {
                        return Ok(false);
                    }
                    continue;
                }
                if run > 0 {
                    self.push(list.first(), run);
                    (run, weight) = (0, 1);
                }
                if symbol == end {
                    return Ok(self.bytes.len() <= most);
                }
                let byte = list.take(u8::try_from(symbol.wrapping_sub(1)).unwrap_or(u8::MAX));
                self.push(byte, 1);
                if self.bytes.len() > most {
                    return Ok(false);
                }
            }
        }
        Err(corrupt("more symbols than selectors"))
    }

    #[inline(always)]
    fn push(&mut self, byte: u8, times: usize) {
        if let Some(count) = self.counts.0.get_mut(usize::from(byte)) {
            *count = count.wrapping_add(u32::try_from(times).unwrap_or(u32::MAX));
        }
        if times == 1 {
            self.bytes.push(byte.into());
        } else {
            self.bytes.resize(self.bytes.len().saturating_add(times), byte.into());
        }
    }
}

/// The bytes that occur, in order, and how many they are.
fn used(bits: &mut Bits<'_>) -> Result<([u8; 256], u16)> {
    let (mut used, mut count) = ([0; 256], 0u16);
    let ranges = bits.take(16)?;
    for range in (0..16u8).filter(|range| ranges & (0x8000 >> range) != 0) {
        let map = bits.take(16)?;
        for low in (0..16u8).filter(|low| map & (0x8000 >> low) != 0) {
            if let Some(slot) = used.get_mut(usize::from(count)) {
                *slot = range << 4 | low;
            }
            count = count.saturating_add(1);
        }
    }
    if count == 0 { Err(corrupt("a block without bytes")) } else { Ok((used, count)) }
}

/// Which code is for each group of symbols, and the codes, of so many symbols each.
fn codes(bits: &mut Bits<'_>, symbols: usize) -> Result<(Vec<u8>, Vec<Code>)> {
    let count = bits.take(3)?;
    if !(2..=6).contains(&count) {
        return Err(corrupt(format!("{count} codes in a block")));
    }
    let mut recent = [0, 1, 2, 3, 4, 5];
    let mut selectors = Vec::new();
    for _ in 0..bits.take(15)? {
        let mut place = 0usize;
        while bits.take(1)? == 1 {
            place = place.saturating_add(1);
        }
        let moved = recent.get_mut(..=place).filter(|_| u32::try_from(place).is_ok_and(|place| place < count));
        let Some(moved) = moved else { return Err(corrupt("a selector of no code")) };
        moved.rotate_right(1);
        selectors.push(moved.first().copied().unwrap_or(0));
    }
    let mut codes = Vec::new();
    for _ in 0..count {
        let mut lengths = [0; SYMBOLS];
        let mut length = bits.take(5)?;
        for slot in lengths.iter_mut().take(symbols) {
            loop {
                if !(1..=LONGEST).contains(&length) {
                    return Err(corrupt(format!("a code of {length} bits")));
                }
                if bits.take(1)? == 0 {
                    break;
                }
                length = if bits.take(1)? == 0 { length.saturating_add(1) } else { length.saturating_sub(1) };
            }
            *slot = u8::try_from(length).unwrap_or(0);
        }
        codes.push(Code::new(lengths.get(..symbols).unwrap_or_default()));
    }
    Ok((selectors, codes))
}
