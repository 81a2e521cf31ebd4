//! The end of an archive: the end record, its zip64 form, and where they say that the directory lies.
//!
//! A comment can hold bytes that look like an end record, so that this only finds candidates; one counts when the
//! directory it describes parses with the claimed number of entries (see `directory`). Positions are those in the container:
//! the directory *ends* where its end record begins, which fixes it whatever lies before the archive.
//! APPNOTE 6.3.10, sections 4.3.14 to 4.3.16.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::bytes::{len64, u16_at, u32_at, u64_at};
use crate::error::{Error, Result};

/// Most zero bytes after the comment: a tape block.
const PADDING: usize = 10_240;

/// Longest stretch that can hold the end record, its comment, the zip64 locator and zip64 record, and padding to a tape block.
pub const SEARCH: u64 = 22 + 0xffff + 20 + 56 + PADDING as u64;

const LOCATOR: usize = 20;
const ZIP64: u64 = 56;

/// The directory that an end record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// First byte of the directory in the container.
    pub start: u64,
    /// Byte after the directory.
    pub end: u64,
    /// Bytes that lie before the archive; entry offsets count from there.
    pub shift: u64,
    /// Number of entries.
    pub entries: u64,
    /// Whether `entries` is only known modulo 65,536: writers without zip64 let the count wrap.
    pub wraps: bool,
}

/// What the last bytes of a container hold.
pub struct Tail<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Where they begin in the container.
    pub start: u64,
}

/// Every candidate from byte `from` of the tail on, the last one first: its claim, or what is wrong with it.
pub fn candidates<'a>(tail: &'a Tail<'a>, from: usize) -> impl Iterator<Item = Result<Claim>> + 'a {
    (from..tail.bytes.len()).rev().filter_map(|at| {
        let rest = tail.bytes.get(at..)?;
        if !rest.starts_with(b"PK\x05\x06") {
            return None;
        }
        let after = rest.get(22..)?;
        let comment = usize::from(u16_at(rest, 20)?);
        // What follows the comment may only be padding (bsdtar pads what it writes to a pipe).
        let padding = after.get(comment..)?;
        (padding.len() <= PADDING && padding.iter().all(|&b| b == 0)).then(|| claim(tail, at))
    })
}

fn claim(tail: &Tail<'_>, at: usize) -> Result<Claim> {
    let cut = || Error::corrupt("the end record is cut");
    let rest = tail.bytes.get(at..).ok_or_else(cut)?;
    let position = tail.start.saturating_add(len64(at));
    let (disk, directory_disk) = (u16_at(rest, 4).ok_or_else(cut)?, u16_at(rest, 6).ok_or_else(cut)?);
    let (here, entries) = (u16_at(rest, 8).ok_or_else(cut)?, u16_at(rest, 10).ok_or_else(cut)?);
    let (size, offset) = (u32_at(rest, 12).ok_or_else(cut)?, u32_at(rest, 16).ok_or_else(cut)?);
    let locator = at.checked_sub(LOCATOR).and_then(|l| tail.bytes.get(l..at)).filter(|l| l.starts_with(b"PK\x06\x07"));
    if let Some(locator) = locator {
        let z = zip64(tail, locator, position.saturating_sub(len64(LOCATOR)))?;
        let same = |small: u64, saturated: u64, large: u64| small == saturated || small == large;
        if !same(u64::from(entries), 0xffff, z.entries)
            || !same(u64::from(size), 0xffff_ffff, z.size)
            || !same(u64::from(offset), 0xffff_ffff, z.offset)
        {
            return Err(Error::corrupt("the zip64 end record and the end record contradict each other"));
        }
        return place(z.position, z.size, z.offset, z.entries, false);
    }
    if disk != 0 || directory_disk != 0 || here != entries {
        return Err(Error::unsupported("an archive split over several files is not read"));
    }
    // Info-ZIP 3.0, forced to zip64 in a pipe, points to a zip64 record that it does not write. The directory's place follows from
    // its size; that nothing lies before the archive is proven entry by entry, by the local headers.
    let offset = if offset == u32::MAX { position.saturating_sub(u64::from(size)) } else { u64::from(offset) };
    place(position, u64::from(size), offset, u64::from(entries), true)
}

fn place(end: u64, size: u64, offset: u64, entries: u64, wraps: bool) -> Result<Claim> {
    let start = end.checked_sub(size).ok_or_else(|| {
        Error::corrupt(format!("a directory of {size} bytes is claimed, where only {end} bytes lie before its end"))
    })?;
    let shift = start.checked_sub(offset).ok_or_else(|| {
        Error::corrupt(format!(
            "the directory is claimed at {offset}, and lies at {start} by its size; the archive is cut or damaged"
        ))
    })?;
    // A record takes 46 bytes and a name; the count may be wrapped, so that only too many can be told here.
    if entries.saturating_mul(46) > size {
        return Err(Error::corrupt(format!("{entries} entries are claimed in a directory of {size} bytes")));
    }
    Ok(Claim { start, end, shift, entries, wraps })
}

struct Zip64 {
    position: u64,
    entries: u64,
    size: u64,
    offset: u64,
}

fn zip64(tail: &Tail<'_>, locator: &[u8], locator_at: u64) -> Result<Zip64> {
    let cut = || Error::corrupt("the zip64 end record is cut");
    let claimed = u64_at(locator, 8).ok_or_else(cut)?;
    let disks = u32_at(locator, 16).ok_or_else(cut)?;
    if u32_at(locator, 4).ok_or_else(cut)? != 0 || disks > 1 {
        return Err(Error::unsupported("an archive split over several files is not read"));
    }
    if claimed.saturating_add(ZIP64) > locator_at {
        return Err(Error::corrupt(format!("the zip64 end record is claimed at {claimed}, after its locator at {locator_at}")));
    }
    // The claimed place holds unless something lies before the archive; then the record is the one that ends at the locator.
    let near = locator_at.saturating_sub(ZIP64);
    let record_at = |position: u64| {
        let at = usize::try_from(position.checked_sub(tail.start)?).ok()?;
        let record = tail.bytes.get(at..)?.first_chunk::<56>()?;
        let ends = position.checked_add(12)?.checked_add(u64_at(record, 4)?)? == locator_at;
        (record.starts_with(b"PK\x06\x06") && ends).then_some((position, record))
    };
    // What lies before the archive moves the record and the directory by as much. With an extensible data sector (APPNOTE
    // 4.3.14) the record is longer than usual, and this tells it from bytes of the sector.
    let is_moved = |(position, record): &(u64, &[u8; 56])| {
        let (size, offset) = (u64_at(*record, 40), u64_at(*record, 48));
        let before = size.zip(offset).and_then(|(size, offset)| position.checked_sub(size)?.checked_sub(offset));
        before == position.checked_sub(claimed)
    };
    let (position, record) = record_at(claimed)
        .or_else(|| (tail.start.max(claimed)..=near).rev().filter_map(record_at).find(is_moved))
        .or_else(|| record_at(near))
        .ok_or_else(|| Error::corrupt(format!("no zip64 end record at {claimed}, where its locator says")))?;
    let (disk, directory_disk) = (u32_at(record, 16).ok_or_else(cut)?, u32_at(record, 20).ok_or_else(cut)?);
    let (here, entries) = (u64_at(record, 24).ok_or_else(cut)?, u64_at(record, 32).ok_or_else(cut)?);
    if disk != 0 || directory_disk != 0 || here != entries {
        return Err(Error::unsupported("an archive split over several files is not read"));
    }
    let (size, offset) = (u64_at(record, 40).ok_or_else(cut)?, u64_at(record, 48).ok_or_else(cut)?);
    Ok(Zip64 { position, entries, size, offset })
}
