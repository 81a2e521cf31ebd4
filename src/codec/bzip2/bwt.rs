//! The transform of Burrows and Wheeler (BWT), undone.
//!
//! Each place leads to the next one, anywhere in a table of some MiB, so that a processor that goes from one to the next waits for its
//! memory at each byte. But it can wait for many at a time: the way is begun at many places, each until it comes to where another one
//! began, and the parts are put together.

use super::corrupt;
use super::symbols::Symbols;
use crate::error::Result;

/// In an entry of the table: somebody begins here.
const BEGINS: u32 = 1 << 31;

/// Bits of a byte, below those of the place that comes next.
const BYTE: u32 = 8;

/// The way is begun at each place whose number ends in so many zeros.
const SPARSE: u32 = 11;

/// Ways that are gone at a time.
const LANES: usize = 16;

/// Steps of each before somebody looks where it is.
const STEPS: usize = 32;

/// A part of the way.
#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    /// Where the next one begins.
    next: u32,
}

/// One who goes a part of the way.
#[derive(Default, Clone, Copy)]
struct Walker {
    /// The number of the part; `None` for one who has nothing to do.
    part: Option<usize>,
    at: u32,
}

/// Passes the bytes of a block on, in order, from the place that `first` leads to.
///
/// # Errors
/// Where there is no such place, and those of `take`.
pub fn undo(symbols: &mut Symbols, first: u32, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let table = &mut symbols.bytes;
    link(table, &symbols.counts.0);
    let Some(first) = entry(table, first) else { return Err(corrupt("a block that begins outside of itself")) };
    let first = first >> BYTE;
    let parts = walk(table, first);
    let mut left = table.len();
    let mut at = first;
    while left > 0 {
        // A block that repeats itself goes round more than once.
        let Some(part) = parts.get(number(at, first)).filter(|part| !part.bytes.is_empty()) else {
            return Err(corrupt("a block that leads nowhere"));
        };
        let bytes = part.bytes.get(..left.min(part.bytes.len())).unwrap_or_default();
        take(bytes)?;
        left = left.saturating_sub(bytes.len());
        at = part.next;
    }
    Ok(())
}

fn entry(table: &[u32], at: u32) -> Option<u32> {
    table.get(usize::try_from(at).ok()?).copied()
}

fn entry_mut(table: &mut [u32], at: u32) -> Option<&mut u32> {
    table.get_mut(usize::try_from(at).ok()?)
}

/// Writes into each entry, above its byte, the place that comes next: equal bytes stand in the same order before and after sorting.
fn link(table: &mut [u32], counts: &[u32; 256]) {
    let mut next = [0u32; 256];
    let mut sum = 0u32;
    for (next, count) in next.iter_mut().zip(counts) {
        *next = sum;
        sum = sum.wrapping_add(*count);
    }
    for (at, place) in (0u32..).zip(0..table.len()) {
        let byte = table.get(place).map_or(0, |entry| entry.to_le_bytes()[0]);
        let Some(to) = next.get_mut(usize::from(byte)) else { continue };
        if let Some(entry) = entry_mut(table, *to) {
            *entry |= at << BYTE;
        }
        *to = to.wrapping_add(1);
    }
}

/// The number of the part that begins at a place.
fn number(at: u32, first: u32) -> usize {
    if at == first { 0 } else { usize::try_from(at >> SPARSE).unwrap_or(usize::MAX).saturating_add(1) }
}

/// Goes all parts of the way.
fn walk(table: &mut [u32], first: u32) -> Vec<Part> {
    let step = 1usize << SPARSE;
    let starts = || (0..table.len()).step_by(step).filter_map(|at| u32::try_from(at).ok()).filter(move |at| *at != first);
    let starts: Vec<u32> = [first].into_iter().chain(starts()).collect();
    let mut parts: Vec<Part> = Vec::new();
    parts.resize_with(table.len().div_ceil(step).saturating_add(1), Part::default);
    for start in &starts {
        if let Some(entry) = entry_mut(table, *start) {
            *entry |= BEGINS;
        }
    }
    let mut starts = starts.into_iter();
    let mut begin = |parts: &mut Vec<Part>, table: &[u32]| -> Walker {
        let Some(at) = starts.next() else { return Walker::default() };
        let number = number(at, first);
        let entry = entry(table, at).unwrap_or(0);
        if let Some(part) = parts.get_mut(number) {
            part.bytes.reserve(step);
            part.bytes.push(entry.to_le_bytes()[0]);
        }
        Walker { part: Some(number), at: (entry & !BEGINS) >> BYTE }
    };
    let mut walkers = [Walker::default(); LANES];
    for walker in &mut walkers {
        *walker = begin(&mut parts, table);
    }
    let mut seen = [[0u32; LANES]; STEPS];
    while walkers.iter().any(|walker| walker.part.is_some()) {
        let before = walkers.map(|walker| walker.at);
        let mut at = before;
        for row in &mut seen {
            for (at, seen) in at.iter_mut().zip(row) {
                *seen = entry(table, *at).unwrap_or(0);
                *at = (*seen & !BEGINS) >> BYTE;
            }
        }
        for (lane, ((walker, before), after)) in walkers.iter_mut().zip(before).zip(at).enumerate() {
            let Some(part) = walker.part.and_then(|number| parts.get_mut(number)) else { continue };
            let column = || seen.iter().filter_map(|row| row.get(lane).copied());
            let end = column().position(|entry| entry & BEGINS != 0);
            part.bytes.extend(column().take(end.unwrap_or(STEPS)).map(|entry| entry.to_le_bytes()[0]));
            walker.at = after;
            if let Some(end) = end {
                // The place of the entry that was seen is the one that the entry before leads to.
                let last = end.checked_sub(1).and_then(|end| column().nth(end));
                part.next = last.map_or(before, |entry| (entry & !BEGINS) >> BYTE);
                *walker = begin(&mut parts, table);
            }
        }
    }
    parts
}
