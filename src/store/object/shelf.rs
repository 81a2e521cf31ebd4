//! What one listing of a directory told, packed and sorted: names, sizes, times and versions.
//!
//! A shelf may hold only the first page of a long listing. As names come in order, it then knows of every name up to the last one
//! that it holds, and of none after it. Pure.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::error::{Error, Result};
use crate::store::{Key, Listing, Meta, ObjectKind, Version};
use lru::LruCache;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// A first page that holds fewer names than this tells nothing of the names that it does not hold: with so few names the order
/// may be chance, and there are servers that list in none.
const ORDERED: usize = 100;

/// A name of a listing.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// Where its text begins: the name, and the version after it.
    start: u32,
    name: u16,
    version: u8,
    directory: bool,
    size: u64,
    /// Milliseconds since the epoch.
    modified: i64,
}

/// See the module.
#[derive(Debug, Default, Clone)]
pub struct Shelf {
    text: Vec<u8>,
    rows: Vec<Row>,
    // Everything before this name is here, in the order of keys and in that of names without a slash, in which some servers put
    // directories; `None` for the whole directory.
    bound: Option<Vec<u8>>,
    /// Whether the directory has an object of its own, which marks it where it is empty.
    pub marked: bool,
    /// Whether names were left out that cannot be asked for: the directory is not empty, and they are not absent.
    pub left_out: bool,
    /// The token that gets the next page.
    pub next: Option<String>,
}

/// What a shelf knows of a name: `None` where it cannot tell.
#[derive(Debug, Default)]
pub struct Found {
    /// The object of that name.
    pub file: Option<Option<Meta>>,
    /// Whether there are names below it.
    pub directory: Option<bool>,
}

impl Shelf {
    /// Adds an object.
    ///
    /// # Errors
    /// [`crate::error::Kind::TooBig`] when the names of one directory take more than 4 GiB.
    pub fn file(&mut self, name: &str, size: u64, modified: i64, version: &str) -> Result<()> {
        self.push(name, false, size, modified, version)
    }

    /// Adds a directory.
    ///
    /// # Errors
    /// As [`Shelf::file`].
    pub fn directory(&mut self, name: &str) -> Result<()> {
        self.push(name, true, 0, 0, "")
    }

    fn push(&mut self, name: &str, directory: bool, size: u64, modified: i64, version: &str) -> Result<()> {
        let many = || Error::too_big("the names of one directory take more than 4 GiB");
        let start = u32::try_from(self.text.len()).map_err(|_| many())?;
        let length = u16::try_from(name.len()).map_err(|_| Error::too_big(format!("a name of {} bytes", name.len())))?;
        // A version that long is nothing a server gives; the object is then asked for when it is needed.
        let version = if version.len() > usize::from(u8::MAX) { "" } else { version };
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(version.as_bytes());
        let version = u8::try_from(version.len()).unwrap_or(0);
        self.rows.push(Row { start, name: length, version, directory, size, modified });
        Ok(())
    }

    /// Puts the names in order once all of them, or those of the first page, were added. `goes_on` where there are more.
    pub fn finish(&mut self, goes_on: bool) {
        let in_order = |rows: &[Row], directory: bool| {
            let names: Vec<_> = rows.iter().filter(|r| r.directory == directory).map(|r| self.name(r)).collect();
            names.is_sorted()
        };
        self.bound = goes_on.then(|| {
            if self.rows.len() < ORDERED || !in_order(&self.rows, false) || !in_order(&self.rows, true) {
                return Vec::new();
            }
            self.rows.iter().map(|r| self.name(r)).max().unwrap_or_default().to_vec()
        });
        let text = std::mem::take(&mut self.text);
        let name = |r: &Row| slice(&text, r.start, usize::from(r.name));
        self.rows.sort_by(|a, b| name(a).cmp(name(b)).then(a.directory.cmp(&b.directory)));
        self.rows.dedup_by(|b, a| name(a) == name(b) && a.directory == b.directory);
        self.rows.shrink_to_fit();
        self.text = text;
        self.text.shrink_to_fit();
    }

    /// Whether this is the whole directory.
    pub fn is_whole(&self) -> bool {
        self.bound.is_none()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && !self.left_out
    }

    /// Number of rows so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// What is known of `name`. Directories are told by `directory`.
    pub fn find(&self, name: &[u8]) -> Found {
        let at = |directory| {
            self.rows
                .binary_search_by(|r| self.name(r).cmp(name).then(r.directory.cmp(&directory)))
                .ok()
                .and_then(|i| self.rows.get(i))
        };
        let is_odd = self.left_out && name.iter().any(u8::is_ascii_control);
        let covered = |directory| !is_odd && self.bound.as_ref().is_none_or(|bound| place(name, directory) < *bound);
        let file = match at(false) {
            // Without a version it must be asked for.
            Some(row) if row.version == 0 => None,
            Some(row) => Some(Some(self.meta(row))),
            None => covered(false).then_some(None),
        };
        let directory = if at(true).is_some() { Some(true) } else { covered(true).then_some(false) };
        Found { file, directory }
    }

    /// The names as a listing; a name of both an object and a directory is a directory.
    ///
    /// # Errors
    /// As [`Listing::push`].
    pub fn listing(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        let mut rows = self.rows.iter().peekable();
        while let Some(row) = rows.next() {
            let name = self.name(row);
            if !row.directory && rows.peek().is_some_and(|next| self.name(next) == name) {
                continue;
            }
            listing.push(name, if row.directory { ObjectKind::Directory } else { ObjectKind::File })?;
        }
        Ok(listing)
    }

    /// Time of the newest object.
    pub fn modified(&self) -> Option<SystemTime> {
        self.rows.iter().filter(|r| !r.directory).map(|r| r.modified).max().map(time)
    }

    /// Bytes of memory held.
    pub fn weight(&self) -> usize {
        self.text.capacity().saturating_add(self.rows.capacity().saturating_mul(size_of::<Row>())).saturating_add(256)
    }

    /// That the names so far take at most `limit` bytes of memory.
    ///
    /// # Errors
    /// [`crate::error::Kind::TooBig`].
    pub fn check_weight(&self, limit: usize) -> Result<()> {
        if self.weight() > limit {
            let reason = format!("a directory of more than {} names, which take more than {limit} bytes", self.len());
            return Err(Error::too_big(reason));
        }
        Ok(())
    }

    fn name(&self, row: &Row) -> &[u8] {
        slice(&self.text, row.start, usize::from(row.name))
    }

    fn meta(&self, row: &Row) -> Meta {
        let start = row.start.saturating_add(u32::from(row.name));
        let version = String::from_utf8_lossy(slice(&self.text, start, usize::from(row.version))).as_ref().into();
        Meta {
            kind: ObjectKind::File,
            size: row.size,
            modified: time(row.modified),
            version: Version::Tag(version),
            seekable: true,
        }
    }
}

fn slice(text: &[u8], start: u32, length: usize) -> &[u8] {
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    text.get(start..start.saturating_add(length)).unwrap_or_default()
}

// Where a name stands in the order of keys: a directory stands for keys that have a slash after it.
fn place(name: &[u8], directory: bool) -> Vec<u8> {
    let mut place = name.to_vec();
    if directory {
        place.push(b'/');
    }
    place
}

/// A time from milliseconds since the epoch.
pub fn time(milliseconds: i64) -> SystemTime {
    let distance = Duration::from_millis(milliseconds.unsigned_abs());
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if milliseconds < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    time.unwrap_or(epoch)
}

/// Listings that were asked for.
pub struct Shelves {
    pub(super) kept: LruCache<Key, (Instant, Arc<Shelf>)>,
    pub(super) weight: usize,
}

impl Shelves {
    /// None.
    pub fn new() -> Self {
        Self { kept: LruCache::unbounded(), weight: 0 }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.weight = 0;
    }

    /// Keeps a listing for others to answer from, at most `limit` bytes of all together. One that would drive most others out is
    /// not kept.
    pub fn keep(&mut self, key: &Key, when: Instant, shelf: &Arc<Shelf>, limit: usize) {
        if shelf.weight() > limit.checked_div(2).unwrap_or(0) {
            return;
        }
        self.weight = self.weight.saturating_add(shelf.weight());
        if let Some((_, (_, old))) = self.kept.push(key.clone(), (when, Arc::clone(shelf))) {
            self.weight = self.weight.saturating_sub(old.weight());
        }
        while self.weight > limit {
            let Some((_, (_, old))) = self.kept.pop_lru() else { break };
            self.weight = self.weight.saturating_sub(old.weight());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shelf(names: &[&str], goes_on: bool) -> Shelf {
        let mut shelf = Shelf::default();
        for name in names {
            match name.strip_suffix('/') {
                Some(name) => shelf.directory(name).unwrap(),
                None => shelf.file(name, 3, 5000, "\"t\"").unwrap(),
            }
        }
        shelf.finish(goes_on);
        shelf
    }

    #[test]
    fn duplicates_and_disorder_make_one_listing() {
        let shelf = shelf(&["b", "a/", "c", "b", "a/", "a", "b.x"], false);
        let names: Vec<_> = shelf.listing().unwrap().iter().map(|(n, k)| (n.to_vec(), k)).collect();
        let expected =
            [("a", ObjectKind::Directory), ("b", ObjectKind::File), ("b.x", ObjectKind::File), ("c", ObjectKind::File)];
        assert_eq!(names, expected.map(|(n, k)| (n.as_bytes().to_vec(), k)));
        let both = shelf.find(b"a");
        assert!(both.file.unwrap().is_some() && both.directory == Some(true));
        let none = shelf.find(b"d");
        assert!(none.file.unwrap().is_none() && none.directory == Some(false));
        assert_eq!(shelf.find(b"b").file.unwrap().unwrap().modified, SystemTime::UNIX_EPOCH + Duration::from_secs(5));
    }

    #[test]
    fn a_first_page_tells_of_names_up_to_its_last() {
        let mut names: Vec<_> = (0..200).map(|i| format!("a{i:03}")).collect();
        names.push("b/".into());
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let shelf = shelf(&names, true);
        assert!(!shelf.is_whole());
        assert!(shelf.find(b"a0000").file.unwrap().is_none(), "positively absent");
        assert!(shelf.find(b"a0").file.unwrap().is_none() && shelf.find(b"a0").directory == Some(false));
        // Before "b/" in the order of keys, and after "b" where directories are sorted without their slash.
        assert!(shelf.find(b"b").file.is_none() && shelf.find(b"b").directory == Some(true));
        assert!(shelf.find(b"b-").file.is_none() && shelf.find(b"b-").directory.is_none());
        // After both.
        assert!(shelf.find(b"b0").file.is_none() && shelf.find(b"c").directory.is_none());
    }

    #[test]
    fn a_listing_without_end_is_refused() {
        let mut shelf = Shelf::default();
        for i in 0..1000 {
            assert!(shelf.check_weight(1 << 16).is_ok() || i > 900);
            shelf.file(&format!("{i:0>12}"), 3, 5000, "\"t\"").unwrap();
        }
        assert_eq!(shelf.check_weight(1 << 14).unwrap_err().kind(), crate::error::Kind::TooBig);
    }

    #[test]
    fn a_page_without_order_tells_of_its_own_names_only() {
        let mut names: Vec<_> = (0..200).map(|i| format!("a{i:03}")).collect();
        names.swap(3, 100);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for shelf in [shelf(&names, true), shelf(&["a", "z"], true), shelf(&[], true)] {
            assert!(shelf.find(b"a0").file.is_none() && shelf.find(b"a0").directory.is_none());
        }
        assert!(shelf(&["a", "z"], true).find(b"z").file.unwrap().is_some());
    }
}
