//! Opening: from the last bytes of a container to the index of its archive.
//!
//! Two range reads are enough up to a directory of [`PIECE`]; a larger one is parsed piece by piece, so that its raw bytes are
//! never held whole. All reads are pinned to the version of the first.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::bytes::{len, len64};
use super::directory::{self, Parser};
use super::end::{self, Claim, SEARCH, Tail};
use super::index::Index;
use crate::error::{Error, Kind, Result};
use crate::store::{Key, Meta, Range, Store};

/// Bytes read at first; the directory of a few thousand entries comes with them.
const TAIL: u64 = 256 << 10;

/// Bytes of the directory read at once.
const PIECE: u64 = 16 << 20;

/// Most end records whose directory is parsed: one is right, and the others are bytes of its comment.
const TRIES: usize = 16;

/// What opening found.
pub struct Opened {
    /// The container.
    pub meta: Meta,
    /// The entries.
    pub index: Index,
    /// Where the directory begins, and entries end.
    pub end: u64,
    /// Bytes read.
    pub fetched: u64,
}

/// Reads the index of the archive at `key`.
///
/// # Errors
/// See [`super::ZipStore::open`].
pub fn open(container: &dyn Store, key: &Key) -> Result<Opened> {
    let mut bytes = Vec::new();
    let meta = container.get(key, Range::Suffix(TAIL), None, TAIL, &mut bytes)?;
    if meta.size == 0 {
        return Err(Error::corrupt("not a zip archive: it is empty (0 bytes)"));
    }
    let start = meta
        .size
        .checked_sub(len64(bytes.len()))
        .filter(|_| len64(bytes.len()) == TAIL.min(meta.size))
        .ok_or_else(|| Error::corrupt("the container gave another number of bytes than asked for"))?;
    // A comment or padding cannot reach further back than this.
    let skip = bytes.len().saturating_sub(len(SEARCH));
    let mut source = Source { container, key, meta: &meta, fetched: len64(bytes.len()) };
    let tail = Tail { bytes: &bytes, start };
    let mut refused = None;
    let mut empty = None;
    let mut found = None;
    for claim in end::candidates(&tail, skip).take(TRIES) {
        let read = claim.and_then(|claim| source.index(claim, &tail).map(|index| (claim, index)));
        match read {
            Ok((claim, index)) if claim.entries > 0 => {
                found = Some((claim, index));
                break;
            }
            // An end record of nothing is easily made up in a comment.
            Ok(read) => empty = empty.or(Some(read)),
            Err(e) => refused = refused.or(Some(e)),
        }
    }
    let fetched = source.fetched;
    let (claim, index) = match (found.or(empty), refused) {
        (Some(read), _) => read,
        (None, Some(e)) => return Err(e),
        (None, None) => {
            return Err(Error::corrupt(format!(
                "not a zip archive, or a cut one: no end record (\"PK\\5\\6\") in its last {} bytes, or other bytes than padding after it",
                SEARCH.min(meta.size)
            )));
        }
    };
    warn(container, key, &index);
    Ok(Opened { meta, index, end: claim.start, fetched })
}

struct Source<'a> {
    container: &'a dyn Store,
    key: &'a Key,
    meta: &'a Meta,
    fetched: u64,
}

impl Source<'_> {
    fn fetch(&mut self, offset: u64, length: u64, into: &mut Vec<u8>) -> Result<()> {
        let range = Range::Part { offset, length };
        self.container.get(self.key, range, Some(&self.meta.version), length, into).map_err(super::gone)?;
        self.fetched = self.fetched.saturating_add(len64(into.len()));
        if len64(into.len()) != length {
            return Err(Error::corrupt("the container gave another number of bytes than asked for"));
        }
        Ok(())
    }

    fn index(&mut self, claim: Claim, tail: &Tail<'_>) -> Result<Index> {
        if claim.shift > 0 {
            // Something lies before the archive. If that is an archive itself, its end is missing, and this one is an entry of it.
            let mut first = Vec::new();
            self.fetch(0, 4.min(self.meta.size), &mut first)?;
            if first == b"PK\x03\x04" {
                return Err(Error::corrupt("the archive is cut: its last end record belongs to an archive inside it"));
            }
        }
        // That no name has a "/" is only known in the end, and then what the names mean is another thing.
        for alone in [false, true] {
            if let Some(index) = self.parse(claim, tail, alone)? {
                return Ok(index);
            }
        }
        Err(Error::new(Kind::Bug, "names without a separator are never parsed"))
    }

    fn parse(&mut self, claim: Claim, tail: &Tail<'_>, alone: bool) -> Result<Option<Index>> {
        if let Some(at) = claim.start.checked_sub(tail.start) {
            let all = tail.bytes.get(len(at)..len(claim.end.saturating_sub(tail.start)));
            return directory::parse(claim, all.unwrap_or_default(), alone);
        }
        let mut parser = Parser::new(claim, alone);
        let mut bytes = Vec::new();
        let mut position = claim.start;
        while position < claim.end {
            let length = claim.end.saturating_sub(position).min(PIECE);
            self.fetch(position, length, &mut bytes)?;
            let taken = len64(parser.push(&bytes)?);
            if taken == 0 {
                break;
            }
            position = position.saturating_add(taken);
        }
        directory::whole(&parser, position.saturating_sub(claim.start))?;
        drop(bytes);
        parser.finish()
    }
}

fn warn(container: &dyn Store, key: &Key, index: &Index) {
    let named = container.locate(key);
    for (names, what) in [
        (&index.dropped, "are left out, or only errors, for what they are called"),
        (&index.rooted, "begin with a separator or go up, and are taken without that"),
        (&index.separated, "have backslashes that are taken for separators"),
        (&index.kept, "have backslashes that are no separators"),
        (&index.ambiguous, "cannot be read, each written in different ways for several files"),
        (&index.hidden, "are those of files hidden by directories"),
    ] {
        if names.count > 0 {
            let more = if names.count > len64(names.first.len()) { ", ..." } else { "" };
            log::warn!("{named}: {} names {what}: {}{more}", names.count, names.first.join(", "));
        }
    }
}
