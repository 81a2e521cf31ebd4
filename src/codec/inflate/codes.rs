//! The prefix codes of a block, as tables by the next bits.

/// Bits by which a literal or a length is looked up at once.
pub const QUICK: u32 = 11;

/// The same for distances.
pub const QUICK_DISTANCE: u32 = 8;

/// The same for the code of the lengths of codes, of which none is longer.
const QUICK_LENGTH: u32 = 7;

/// Longest code, in bits.
const LONGEST: usize = 15;

/// Symbols of the largest code.
const SYMBOLS: usize = 288;

/// Of an entry: it is a byte, which stands in the third byte of the entry, the number of bits of its code in the first.
pub const LITERAL: u32 = 1 << 31;

/// Of an entry: neither a literal nor a length or distance. Without [`MORE`] and [`END`] there is no such code.
///
/// An entry without this and without [`LITERAL`] is a length or distance: the least one in the upper half, in the lowest five bits the
/// number of bits of the code and of what is added to that, in the second byte the number of bits of the code.
pub const SPECIAL: u32 = 1 << 15;

/// Of a special entry: the code is longer. The upper half is the place of a table by the bits after those that were looked up, the second
/// byte but for this bit the number of bits of that.
pub const MORE: u32 = 1 << 14;

/// Of a special entry: the end of the block, the number of bits of its code in the first byte.
pub const END: u32 = 1 << 13;

/// Entries for literals and lengths: for the next bits, and for what is longer. Of codes of 288 symbols that are at most 2,342.
const ENTRIES: usize = 4096;

/// The same for distances: 402 of 32 symbols.
const DISTANCE_ENTRIES: usize = 1024;

/// The codes of a block.
pub struct Codes {
    symbols: [u32; ENTRIES],
    distances: [u32; DISTANCE_ENTRIES],
    /// They are those of the specification.
    are_fixed: bool,
}

impl Default for Codes {
    fn default() -> Self {
        Self { symbols: [SPECIAL; ENTRIES], distances: [SPECIAL; DISTANCE_ENTRIES], are_fixed: false }
    }
}

/// A code of the lengths of codes.
pub struct Lengths([u32; 1 << QUICK_LENGTH]);

/// What stands for the symbols, without a code.
static MEANINGS: [u32; SYMBOLS] = meanings();
static DISTANCES: [u32; 32] = distances();
static LENGTHS: [u32; 19] = lengths();

#[expect(clippy::arithmetic_side_effects, reason = "calculated by the compiler")]
const fn lengths_of(symbol: u32, least: u32, of_each: u32) -> u32 {
    // So many in a row have the same number of bits added, the first twice as many none.
    let extra = if symbol < 2 * of_each { 0 } else { symbol / of_each - 1 };
    let base = if symbol < 2 * of_each { symbol } else { (of_each + symbol % of_each) << extra };
    (least + base) << 16 | extra
}

#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "calculated by the compiler")]
const fn meanings() -> [u32; SYMBOLS] {
    let mut meanings = [SPECIAL; SYMBOLS];
    let mut symbol = 0;
    while symbol < 256 {
        meanings[symbol as usize] = LITERAL | symbol << 16;
        symbol += 1;
    }
    meanings[256] = SPECIAL | END;
    symbol = 0;
    while symbol < 28 {
        meanings[257 + symbol as usize] = lengths_of(symbol, 3, 4);
        symbol += 1;
    }
    meanings[285] = 258 << 16;
    meanings
}

#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "calculated by the compiler")]
const fn distances() -> [u32; 32] {
    let mut meanings = [SPECIAL; 32];
    let mut symbol = 0;
    while symbol < 30 {
        meanings[symbol as usize] = lengths_of(symbol, 1, 2);
        symbol += 1;
    }
    meanings
}

#[expect(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "calculated by the compiler")]
const fn lengths() -> [u32; 19] {
    let mut meanings = [0; 19];
    let mut symbol = 0;
    while symbol < 19 {
        meanings[symbol as usize] = LITERAL | symbol << 16;
        symbol += 1;
    }
    meanings
}

/// The entry of `table` at the lowest bits of `at`. `N` is a power of two.
#[inline(always)]
#[expect(clippy::arithmetic_side_effects, clippy::cast_possible_truncation, reason = "the lowest bits are wanted")]
fn entry<const N: usize>(table: &[u32; N], at: u64) -> u32 {
    table.get(at as usize & (N - 1)).copied().unwrap_or(SPECIAL)
}

/// The lowest `count` of `bits`, fewer than 64.
#[inline(always)]
pub fn lowest(bits: u64, count: u32) -> u64 {
    bits & 1u64.wrapping_shl(count).wrapping_sub(1)
}

/// The place in a table for what is longer: that of `entry`, and the next `bits`.
#[inline(always)]
fn place(entry: u32, bits: u64) -> u64 {
    u64::from(entry >> 16).wrapping_add(lowest(bits, (entry >> 8) & 15))
}

impl Codes {
    /// The entry of a literal or length by the next bits.
    #[inline(always)]
    pub fn symbol(&self, bits: u64) -> u32 {
        entry(&self.symbols, lowest(bits, QUICK))
    }

    /// The entry where `entry` says that there is more, by the bits after the first [`QUICK`].
    #[inline(always)]
    pub fn longer_symbol(&self, entry: u32, bits: u64) -> u32 {
        self::entry(&self.symbols, place(entry, bits))
    }

    /// The entry of a distance by the next bits.
    #[inline(always)]
    pub fn distance(&self, bits: u64) -> u32 {
        entry(&self.distances, lowest(bits, QUICK_DISTANCE))
    }

    /// The entry where `entry` says that there is more, by the bits after the first [`QUICK_DISTANCE`].
    #[inline(always)]
    pub fn longer_distance(&self, entry: u32, bits: u64) -> u32 {
        self::entry(&self.distances, place(entry, bits))
    }

    /// Makes the tables of codes of these lengths; `None` where there are none.
    pub fn set(&mut self, symbols: &[u8], distances: &[u8]) -> Option<()> {
        self.are_fixed = false;
        // Without an end the block has none.
        symbols.get(256).filter(|length| **length > 0)?;
        tabulate(&mut self.symbols, QUICK, symbols, &MEANINGS, false)?;
        // Without a match there need be no distance, and a code of a single one leaves a bit unused.
        tabulate(&mut self.distances, QUICK_DISTANCE, distances, &DISTANCES, true)
    }

    /// Makes the tables of the codes of the specification, once for blocks of them in a row: those can be very many and very short.
    pub fn set_fixed(&mut self) -> Option<()> {
        if self.are_fixed {
            return Some(());
        }
        let mut symbols = [8; SYMBOLS];
        symbols.get_mut(144..256)?.fill(9);
        symbols.get_mut(256..280)?.fill(7);
        self.set(&symbols, &[5; 32])?;
        self.are_fixed = true;
        Some(())
    }
}

impl Lengths {
    /// A code of these lengths.
    pub fn new(lengths: &[u8; 19]) -> Option<Self> {
        let mut table = [SPECIAL; 1 << QUICK_LENGTH];
        tabulate(&mut table, QUICK_LENGTH, lengths, &LENGTHS, false)?;
        Some(Self(table))
    }

    /// The next symbol and the length of its code.
    pub fn next(&self, bits: u64) -> (u8, u32) {
        let entry = entry(&self.0, bits);
        (entry.to_le_bytes()[2], entry & 15)
    }
}

/// Fills `table`, which is for `quick` bits, by the `lengths` of the codes of symbols. `None` where they are those of no code, too short or
/// too long; where `may_lack`, one symbol of one bit, or none, are enough.
#[expect(clippy::arithmetic_side_effects, reason = "numbers of symbols and of entries, below 2^16")]
fn tabulate<const N: usize>(table: &mut [u32; N], quick: u32, lengths: &[u8], meanings: &[u32], may_lack: bool) -> Option<()> {
    let mut counts = [0u32; LONGEST + 1];
    for length in lengths {
        *counts.get_mut(usize::from(*length))? += 1;
    }
    // For each length the place of the first symbol among those that have a code, in the order of codes.
    let mut firsts = [0usize; LONGEST + 1];
    let mut placed = 0;
    let mut free = 1u32;
    for (count, first) in counts.iter().zip(&mut firsts).skip(1) {
        free = (free << 1).checked_sub(*count)?;
        *first = placed;
        placed += *count as usize;
    }
    if free > 0 {
        return if may_lack && placed <= 1 { tabulate_one(table, quick, lengths, meanings) } else { None };
    }
    let mut sorted = [0u32; SYMBOLS];
    for (length, meaning) in lengths.iter().zip(meanings).filter(|(length, _)| **length > 0) {
        let at = firsts.get_mut(usize::from(*length))?;
        *sorted.get_mut(*at)? = *meaning;
        *at += 1;
    }
    let mut symbols = sorted.iter().take(placed);
    let mut code = 0u32;
    // The table for codes of no more than some bits is, twice, the one for one bit more; but for those that have one bit more.
    let mut size = 1;
    for (bits, count) in (0u32..=quick).zip(counts).skip(1) {
        table.get_mut(..2 * size)?.copy_within(..size, size);
        size *= 2;
        for meaning in symbols.by_ref().take(count as usize) {
            *table.get_mut(code as usize)? = with_code(*meaning, bits);
            code = following(code, bits);
        }
    }
    // Those that are longer share an entry with all that begin with the same bits, for a table by the others.
    let mut end = size;
    let (mut prefix, mut start) = (None, 0);
    for (length, count) in (0u32..).zip(counts).skip(quick as usize + 1) {
        for (left, meaning) in (1..=count).rev().zip(symbols.by_ref()) {
            let begin = code & ((1 << quick) - 1);
            if prefix != Some(begin) {
                // As many bits as the longest of them needs: until those that come fill it.
                let mut bits = length - quick;
                let mut room = (1u32 << bits).saturating_sub(left);
                for count in counts.iter().skip(length as usize + 1) {
                    if room == 0 {
                        break;
                    }
                    bits += 1;
                    room = (room << 1).saturating_sub(*count);
                }
                (prefix, start) = (Some(begin), end);
                end += 1 << bits;
                *table.get_mut(begin as usize)? = SPECIAL | MORE | u32::try_from(start).ok()? << 16 | bits << 8 | quick;
            }
            let bits = length - quick;
            let first = start + (code >> quick) as usize;
            for entry in table.get_mut(first..end)?.iter_mut().step_by(1 << bits) {
                *entry = with_code(*meaning, bits);
            }
            code = following(code, length);
        }
    }
    Some(())
}

/// The table of a code of one symbol of one bit, or of none.
fn tabulate_one(table: &mut [u32], quick: u32, lengths: &[u8], meanings: &[u32]) -> Option<()> {
    let table = table.get_mut(..1 << quick)?;
    table.fill(SPECIAL);
    if let Some((length, meaning)) = lengths.iter().zip(meanings).find(|(length, _)| **length > 0) {
        if *length != 1 {
            return None;
        }
        table.iter_mut().step_by(2).for_each(|entry| *entry = with_code(*meaning, 1));
    }
    Some(())
}

/// The entry of a symbol whose code takes `bits` more bits where it is looked up.
#[inline(always)]
#[expect(clippy::arithmetic_side_effects, reason = "numbers of bits, below 32")]
fn with_code(meaning: u32, bits: u32) -> u32 {
    match meaning & (LITERAL | SPECIAL) {
        0 => (meaning & !31) | bits << 8 | ((meaning & 31) + bits),
        _ => meaning | bits,
    }
}

/// The code after `code` of `bits` bits, the first one lowest; 0 after the last.
#[inline(always)]
#[expect(clippy::arithmetic_side_effects, reason = "numbers of bits, below 32")]
fn following(code: u32, bits: u32) -> u32 {
    let clear = !code & ((1 << bits) - 1);
    if clear == 0 {
        return 0;
    }
    // The highest bit that is clear is set, those above it are cleared.
    let bit = 1 << (31 - clear.leading_zeros());
    (code & (bit - 1)) | bit
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a known place of a table")]
mod tests {
    use super::*;

    /// The tables of the specification are made once for blocks in a row, and again after others, also such as are none.
    #[test]
    fn tables_of_the_fixed_code_are_kept() {
        const MARK: u32 = 7;
        let mut codes = Codes::default();
        codes.set_fixed().unwrap();
        let first = std::mem::replace(&mut codes.symbols[0], MARK);
        codes.set_fixed().unwrap();
        assert_eq!(codes.symbols[0], MARK);
        assert_eq!(codes.set(&[], &[]), None);
        codes.set_fixed().unwrap();
        assert_eq!(codes.symbols[0], first);
    }
}
