//! The central directory, parsed in pieces into one compact index.
//!
//! The index holds one record of 40 bytes an entry, the names packed in file order, and four bytes an entry for the order by
//! name: a million entries in about 60 MiB. It is right or refused as a whole: the records must follow each other without a
//! gap, end where the end record begins, and be as many as claimed. What is wrong with one entry stays with that entry.
//! Sizes are those of the directory (local headers lack them in streamed archives). APPNOTE 6.3.10, section 4.3.12.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::bytes::{len, len64, u16_at, u32_at, u64_at};
use super::end::Claim;
use super::index::Index;
use super::name::{self, Named, Up};
use crate::error::{Error, Result};
use std::borrow::Cow;

/// What the directory says of an entry. Positions are those in the container.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// Position of the local header.
    pub offset: u64,
    /// Bytes stored.
    pub stored: u64,
    /// Bytes of content.
    pub size: u64,
    /// Where the name begins in the packed names.
    pub name: u32,
    /// CRC-32 of the content.
    pub crc: u32,
    /// Seconds since the epoch; 0 where the entry has no time.
    pub modified: u32,
    /// Compression method.
    pub method: u16,
    /// Bits of [`flag`].
    pub flags: u16,
}

/// What sets an entry apart from a plain file.
pub mod flag {
    /// A directory of its own, or a file that other entries lie below.
    pub const DIRECTORY: u16 = 1;
    /// Encrypted.
    pub const ENCRYPTED: u16 = 2;
    /// A symbolic link.
    pub const LINK: u16 = 4;
    /// A device, FIFO or socket.
    pub const SPECIAL: u16 = 8;
    /// Sizes or position that should be in a zip64 field, which is not there.
    pub const NO_ZIP64: u16 = 16;
    /// An LZMA stream that ends with a marker instead of at the claimed size.
    pub const MARKED_END: u16 = 32;
    /// One of several files whose names are written differently and stand for the same.
    pub const AMBIGUOUS: u16 = 64;
    /// No file: one whose name goes up may be meant by this name.
    pub const DOUBTFUL: u16 = 128;
}

/// Names that were left out or otherwise odd, for one line in the log.
#[derive(Debug, Default)]
pub struct Dropped {
    /// How many.
    pub count: u64,
    /// The first few.
    pub first: Vec<String>,
}

impl Dropped {
    /// Counts a name, and keeps the first eight, shortened.
    pub fn add(&mut self, name: &[u8]) {
        self.count = self.count.saturating_add(1);
        if self.first.len() < 8 {
            self.first.push(name::shown(name));
        }
    }
}

/// Parses a directory piece by piece.
pub struct Parser {
    claim: Claim,
    // Whether no name has a "/", which an earlier parser found.
    alone: bool,
    names: Vec<u8>,
    records: Vec<Record>,
    seen: u64,
    slashes: bool,
    dropped: Dropped,
    spelled: Vec<(u32, u64)>,
    rooted: Dropped,
    separated: Dropped,
    kept: Dropped,
}

impl Parser {
    /// A parser for the directory that `claim` describes. What it reserves is bounded by the claim, which lies in the container.
    /// Where `alone`, backslashes separate in all names: no name has a `/`.
    pub fn new(claim: Claim, alone: bool) -> Self {
        // More than this is reserved as it comes, so that a sparse container with a large claim costs nothing. What is reserved
        // and not used is given back at the end, and was never resident.
        let entries = claim.entries.min(4 << 20);
        let text = claim.end.saturating_sub(claim.start).saturating_sub(entries.saturating_mul(46)).min(256 << 20);
        let (names, records) = (Vec::with_capacity(len(text)), Vec::with_capacity(len(entries)));
        Self {
            claim,
            alone,
            names,
            records,
            seen: 0,
            slashes: false,
            dropped: Dropped::default(),
            spelled: Vec::new(),
            rooted: Dropped::default(),
            separated: Dropped::default(),
            kept: Dropped::default(),
        }
    }

    /// Takes the whole records at the beginning of `bytes`, and returns how many bytes they take.
    ///
    /// # Errors
    /// Corrupt where something else than a record follows; too big over the bounds of the index.
    pub fn push(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut rest = bytes;
        while let Some((head, after)) = rest.split_first_chunk::<46>() {
            if !head.starts_with(b"PK\x01\x02") {
                return Err(Error::corrupt(format!("no directory record after {} of {} entries", self.seen, self.claim.entries)));
            }
            let lengths = (u16_at(head, 28), u16_at(head, 30), u16_at(head, 32));
            let (Some(name), Some(extra), Some(comment)) = lengths else { break };
            let Some((name, after)) = after.split_at_checked(usize::from(name)) else { break };
            let Some((extra, after)) = after.split_at_checked(usize::from(extra)) else { break };
            let Some((_, after)) = after.split_at_checked(usize::from(comment)) else { break };
            self.entry(head, name, extra)?;
            rest = after;
        }
        Ok(bytes.len().saturating_sub(rest.len()))
    }

    fn entry(&mut self, head: &[u8; 46], raw: &[u8], extra: &[u8]) -> Result<()> {
        self.seen = self.seen.saturating_add(1);
        if self.seen > self.claim.entries && !self.claim.wraps {
            return Err(Error::corrupt(format!("more entries than the {} claimed", self.claim.entries)));
        }
        let start = self.start()?;
        let host = head[5];
        let bits = u16::from_le_bytes([head[8], head[9]]);
        let plain = name::unicode_path(raw, extra).is_none().then(|| name::append_plain(raw, &mut self.names)).flatten();
        let (text, backslash, named) = match plain {
            Some(named) => {
                self.slashes = self.slashes || raw.contains(&b'/');
                (Cow::Borrowed(raw), false, named)
            }
            None => {
                let text = name::text(raw, bits, extra);
                let backslash = name::backslash(&text, host, self.alone);
                let named = self.name(raw, &text, backslash);
                (text, backslash, named)
            }
        };
        let mode = u16::from_le_bytes([head[40], head[41]]);
        let mut flags = match named {
            Named::Nothing | Named::TooLong => return Ok(()),
            Named::Directory => flag::DIRECTORY,
            Named::Doubtful => flag::DOUBTFUL,
            Named::File => 0,
        };
        // Encrypted; encrypted with a masked directory; a patch.
        if bits & 0x2061 != 0 {
            flags |= flag::ENCRYPTED;
        }
        if bits & 2 != 0 {
            flags |= flag::MARKED_END;
        }
        // Hosts whose external attributes hold a Unix mode: Unix and OS X.
        if matches!(host, 3 | 19) {
            flags |= match mode >> 12 {
                0o12 => flag::LINK,
                0o1 | 0o2 | 0o6 | 0o14 => flag::SPECIAL,
                _ => 0,
            };
        }
        let mut record = Record {
            offset: u64::from(u32::from_le_bytes([head[42], head[43], head[44], head[45]])),
            stored: u64::from(u32::from_le_bytes([head[20], head[21], head[22], head[23]])),
            size: u64::from(u32::from_le_bytes([head[24], head[25], head[26], head[27]])),
            name: start,
            crc: u32::from_le_bytes([head[16], head[17], head[18], head[19]]),
            modified: dos_time(u16::from_le_bytes([head[14], head[15]]), u16::from_le_bytes([head[12], head[13]])),
            method: u16::from_le_bytes([head[10], head[11]]),
            flags,
        };
        extras(extra, &mut record);
        record.offset = record.offset.saturating_add(self.claim.shift);
        if named == Named::Doubtful {
            let other = Record { name: self.start()?, ..record };
            self.records.push(record);
            if name::append(&text, backslash, Up::Followed, &mut self.names) == Named::Doubtful {
                self.records.push(other);
            }
        } else {
            self.records.push(record);
        }
        Ok(())
    }

    // Where the next name begins.
    fn start(&self) -> Result<u32> {
        u32::try_from(self.names.len()).map_err(|_| Error::too_big("the names of the archive take more than 4 GiB"))
    }

    // Appends a name, and says what it is.
    fn name(&mut self, raw: &[u8], text: &[u8], backslash: bool) -> Named {
        self.slashes |= text.contains(&b'/');
        let start = self.names.len();
        let named = name::append(text, backslash, Up::Dropped, &mut self.names);
        match named {
            // An entry for the root itself says nothing.
            Named::Nothing if matches!(raw, b"./" | b"." | b"/") => return named,
            Named::Nothing | Named::TooLong | Named::Doubtful => {
                self.dropped.add(raw);
                return named;
            }
            Named::File | Named::Directory => {}
        }
        if name::is_rooted(text, backslash) {
            self.rooted.add(raw);
        }
        match backslash {
            true => self.separated.add(raw),
            false if text.contains(&b'\\') => self.kept.add(raw),
            false => {}
        }
        if let Some(spelling) = name::spelling(raw, self.names.get(start..).unwrap_or_default()) {
            // More records than this are refused in the end.
            self.spelled.push((u32::try_from(self.records.len()).unwrap_or(u32::MAX), spelling));
        }
        named
    }

    /// The index, when the directory held what was claimed; `None` if it has to be parsed again, by a parser that knows that no
    /// name has a `/`.
    ///
    /// # Errors
    /// Corrupt for a wrong number of entries, too big for more than 2^32 of them.
    pub fn finish(mut self) -> Result<Option<Index>> {
        let claimed = self.claim.entries;
        let right = if self.claim.wraps { self.seen & 0xffff == claimed & 0xffff } else { self.seen == claimed };
        if !right {
            return Err(Error::corrupt(format!("{claimed} entries are claimed, and {} are in the directory", self.seen)));
        }
        if self.kept.count > 0 && !self.slashes {
            return Ok(None);
        }
        self.names.shrink_to_fit();
        let mut index = Index::new(self.names, self.records, self.spelled)?;
        (index.dropped, index.rooted) = (self.dropped, self.rooted);
        (index.separated, index.kept) = (self.separated, self.kept);
        Ok(Some(index))
    }

    /// Number of entries so far.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Bytes of the directory.
    pub fn size(&self) -> u64 {
        self.claim.end.saturating_sub(self.claim.start)
    }
}

// The fields of the extra area that matter: zip64 sizes and position, and the extended timestamp.
fn extras(mut extra: &[u8], record: &mut Record) {
    let mut missing = [record.size, record.stored, record.offset].contains(&0xffff_ffff);
    while let (Some(id), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let Some((field, rest)) = extra.get(4..).and_then(|e| e.split_at_checked(usize::from(length))) else { break };
        match id {
            1 if missing => {
                let mut at = 0_usize;
                let mut all = true;
                for value in [&mut record.size, &mut record.stored, &mut record.offset] {
                    if *value == 0xffff_ffff {
                        match u64_at(field, at) {
                            Some(large) => *value = large,
                            None => all = false,
                        }
                        at = at.saturating_add(8);
                    }
                }
                missing = !all;
            }
            0x5455 if field.first().is_some_and(|f| f & 1 == 1) => {
                if let Some(seconds) = u32_at(field, 1).and_then(|s| i32::try_from(s).ok()) {
                    record.modified = seconds.unsigned_abs();
                }
            }
            _ => {}
        }
        extra = rest;
    }
    if missing {
        record.flags |= flag::NO_ZIP64;
    }
}

// Seconds since the epoch of a DOS date and time, which name no time zone and are taken as UTC; 0 for what is no date.
fn dos_time(date: u16, time: u16) -> u32 {
    let (year, month, day) = (1980_u32.saturating_add(u32::from(date >> 9)), u32::from(date >> 5 & 15), u32::from(date & 31));
    let (hour, minute, second) = (u32::from(time >> 11), u32::from(time >> 5 & 63), u32::from(time & 31).saturating_mul(2));
    if !(1..=12).contains(&month) || day == 0 || hour > 23 || minute > 59 || second > 59 {
        return 0;
    }
    // Days since the epoch of a Gregorian date, years beginning in March.
    let (y, m) = if month > 2 { (year, month.wrapping_sub(3)) } else { (year.saturating_sub(1), month.saturating_add(9)) };
    let leaps = (y / 4).saturating_sub(y / 100).saturating_add(y / 400);
    let days = y
        .saturating_mul(365)
        .saturating_add(leaps)
        .saturating_add(m.saturating_mul(153).saturating_add(2) / 5)
        .saturating_add(day)
        .saturating_sub(719_469);
    days.saturating_mul(86_400)
        .saturating_add(hour.saturating_mul(3600))
        .saturating_add(minute.saturating_mul(60))
        .saturating_add(second)
}

/// Parses the whole directory from `bytes`, which must be all of it.
///
/// # Errors
/// As [`Parser::push`] and [`Parser::finish`].
pub fn parse(claim: Claim, bytes: &[u8], alone: bool) -> Result<Option<Index>> {
    let mut parser = Parser::new(claim, alone);
    let taken = parser.push(bytes)?;
    whole(&parser, len64(taken))?;
    parser.finish()
}

/// Checks that the records took the whole directory.
///
/// # Errors
/// Corrupt when they did not.
pub fn whole(parser: &Parser, taken: u64) -> Result<()> {
    if taken == parser.size() {
        return Ok(());
    }
    Err(Error::corrupt(format!(
        "the directory of {} bytes ends within a record, after {} entries and {taken} bytes",
        parser.size(),
        parser.seen()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dos_times() {
        // Python: calendar.timegm((y, m, d, h, mi, s)).
        assert_eq!(dos_time(1 << 5 | 1, 0), 315_532_800);
        assert_eq!(dos_time(44 << 9 | 2 << 5 | 29, 23 << 11 | 59 << 5 | 29), 1_709_251_198);
        assert_eq!(dos_time(0, 0), 0);
    }
}
