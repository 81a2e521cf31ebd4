//! Entries by name: lookup by binary search, a directory as a range of the order.
//!
//! Names are in the form of `name` (components joined by NUL, the smallest byte), so that bytewise order puts everything below a
//! directory right behind it. Directories exist by entries of their own or by what lies below them. Of equal names the last one
//! wins, unless they are written differently in the archive (`a` and `./a`): then no one is known to be meant, and the file is an
//! error. A name that is both file and directory is a directory.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::directory::{Dropped, Record, flag};
use crate::error::{Error, Result};
use crate::store::{Listing, ObjectKind};

/// The entries of an archive.
pub struct Index {
    names: Vec<u8>,
    // In file order, which is also the order of the packed names.
    records: Vec<Record>,
    // Numbers of records, by name, each name once.
    order: Vec<u32>,
    // By number of a record, ascending: `name::spelling` of those that have one.
    spelled: Vec<(u32, u64)>,
    /// Names that no key reaches.
    pub dropped: Dropped,
    /// Names that begin with a separator.
    pub rooted: Dropped,
    /// Names in which backslashes separate.
    pub separated: Dropped,
    /// Names of which backslashes are a part.
    pub kept: Dropped,
    /// Names of several files that are written differently.
    pub ambiguous: Dropped,
    /// Files that are hidden by a directory of the same name.
    pub hidden: Dropped,
    /// Whether there are symbolic links.
    pub links: bool,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A file: the number of its record.
    File(u32),
    /// A directory: the number of its record where it has one.
    Directory(Option<u32>),
    /// Nothing.
    Nothing,
}

impl Index {
    /// Sorts what a directory held.
    ///
    /// # Errors
    /// Too big for more than 2^32 entries.
    pub fn new(names: Vec<u8>, records: Vec<Record>, mut spelled: Vec<(u32, u64)>) -> Result<Self> {
        let count = u32::try_from(records.len()).map_err(|_| Error::too_big(format!("{} entries", records.len())))?;
        spelled.shrink_to_fit();
        let mut index = Self {
            names,
            records,
            order: Vec::new(),
            spelled,
            dropped: Dropped::default(),
            rooted: Dropped::default(),
            separated: Dropped::default(),
            kept: Dropped::default(),
            ambiguous: Dropped::default(),
            hidden: Dropped::default(),
            links: false,
        };
        index.order = index.by_name(count);
        index.settle();
        Ok(index)
    }

    // The numbers of all records by name, equal names in file order.
    fn by_name(&self, count: u32) -> Vec<u32> {
        if (1..count).all(|n| self.name(n.saturating_sub(1)) <= self.name(n)) {
            return (0..count).collect();
        }
        let mut keyed: Vec<(u64, u32)> = (0..count).map(|n| (0, n)).collect();
        self.sort(&mut keyed, 0);
        keyed.into_iter().map(|(_, n)| n).collect()
    }

    // Sorts names that share their first `depth` bytes: by the next eight bytes after all that they share, as one integer, and
    // then each group of equals in the same way. Shared folders are skipped at once, and integers compare fast.
    fn sort(&self, run: &mut [(u64, u32)], depth: usize) {
        if run.len() <= 24 {
            run.sort_unstable_by(|a, b| self.name(a.1).cmp(self.name(b.1)).then(a.1.cmp(&b.1)));
            return;
        }
        let Some(first) = run.first().map(|r| self.name(r.1)) else { return };
        let mut shared = first.len();
        for (_, number) in run.iter() {
            let name = self.name(*number);
            let (Some(known), Some(other)) = (first.get(depth..shared), name.get(depth..shared.min(name.len()))) else {
                shared = depth;
                break;
            };
            if !other.starts_with(known) {
                shared = depth.saturating_add(known.iter().zip(other).take_while(|(a, b)| a == b).count());
            }
        }
        let mut ended = true;
        for (key, number) in run.iter_mut() {
            let rest = self.name(*number).get(shared..).unwrap_or_default();
            ended &= rest.is_empty();
            *key = rest.first_chunk::<8>().map_or_else(
                || rest.iter().fold((0, 56_u32), |(key, shift), &b| (key | u64::from(b) << shift, shift.saturating_sub(8))).0,
                |all| u64::from_be_bytes(*all),
            );
        }
        run.sort_unstable();
        if ended {
            return;
        }
        let next = shared.saturating_add(8);
        for group in run.chunk_by_mut(|a, b| a.0 == b.0) {
            // What ended is padded with the smallest byte, so that one more round tells it from what goes on.
            if group.len() > 1 {
                self.sort(group, next);
            }
        }
    }

    // Leaves each name once, and marks the files that are directories.
    fn settle(&mut self) {
        let mut order = std::mem::take(&mut self.order);
        let mut clashes = Vec::new();
        let mut files = Vec::new();
        let mut ambiguous: Vec<u32> = Vec::new();
        order.dedup_by(|later, kept| {
            let (old, new) = (self.name(*kept), self.name(*later));
            if old != new {
                if below(old, new) && !self.is_directory(*kept) {
                    files.push(*kept);
                }
                return false;
            }
            // What is only doubtful gives way to what has the name.
            let doubtful = |number: u32| self.record(number).is_some_and(|r| r.flags & flag::DOUBTFUL != 0);
            if doubtful(*kept) || doubtful(*later) {
                if doubtful(*kept) {
                    *kept = *later;
                }
                return true;
            }
            let (old, new) = (self.is_directory(*kept), self.is_directory(*later));
            if old != new {
                clashes.push(if old { *later } else { *kept });
            }
            // Whichever of them stays, what was found of those before it stays as well.
            let unlike = !old && !new && self.spelling(*kept) != self.spelling(*later);
            if unlike || ambiguous.last() == Some(kept) {
                ambiguous.push(if new || !old { *later } else { *kept });
            }
            if new || !old {
                *kept = *later;
            }
            true
        });
        clashes.extend_from_slice(&files);
        for number in clashes {
            let name = super::name::display(self.name(number));
            self.hidden.add(name.as_bytes());
        }
        for number in files {
            if let Some(record) = self.records.get_mut(number as usize) {
                record.flags = record.flags & !flag::DOUBTFUL | flag::DIRECTORY;
            }
        }
        for number in ambiguous {
            let name = super::name::display(self.name(number));
            self.ambiguous.add(name.as_bytes());
            if let Some(record) = self.records.get_mut(number as usize) {
                record.flags |= flag::AMBIGUOUS;
            }
        }
        self.links = self.records.iter().any(|r| r.flags & flag::LINK != 0);
        self.order = order;
    }

    /// The record of an entry.
    pub fn record(&self, number: u32) -> Option<&Record> {
        self.records.get(number as usize)
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The name of an entry.
    pub fn name(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let start = self.records.get(number).map_or(0, |r| r.name as usize);
        let end = self.records.get(number.saturating_add(1)).map_or(self.names.len(), |r| r.name as usize);
        self.names.get(start..end).unwrap_or_default()
    }

    /// What tells the name of an entry from others that stand for the same; `None` where it is written plainly.
    pub fn spelling(&self, number: u32) -> Option<u64> {
        let at = self.spelled.binary_search_by_key(&number, |(of, _)| *of).ok()?;
        self.spelled.get(at).map(|(_, spelling)| *spelling)
    }

    fn is_directory(&self, number: u32) -> bool {
        self.records.get(number as usize).is_some_and(|r| r.flags & flag::DIRECTORY != 0)
    }

    /// What `name` stands for; the empty name is the root.
    pub fn find(&self, name: &[u8]) -> Found {
        if name.is_empty() {
            return Found::Directory(None);
        }
        let at = self.order.partition_point(|&n| self.name(n) < name);
        let Some(&number) = self.order.get(at) else { return Found::Nothing };
        let found = self.name(number);
        match () {
            () if found == name && self.is_directory(number) => Found::Directory(Some(number)),
            () if found == name => Found::File(number),
            () if below(name, found) => Found::Directory(None),
            () => Found::Nothing,
        }
    }

    /// A symbolic link among the directories that `name` lies in.
    pub fn link_above(&self, name: &[u8]) -> Option<u32> {
        if !self.links {
            return None;
        }
        let ends = name.iter().enumerate().filter(|(_, b)| **b == 0).map(|(i, _)| i);
        ends.filter_map(|end| name.get(..end)).find_map(|above| {
            let at = self.order.partition_point(|&n| self.name(n) < above);
            let number = *self.order.get(at)?;
            let link = self.record(number).is_some_and(|r| r.flags & flag::LINK != 0);
            (link && self.name(number) == above).then_some(number)
        })
    }

    /// The names right below `directory`, in bytewise order.
    ///
    /// # Errors
    /// Too big for a listing.
    pub fn list(&self, directory: &[u8]) -> Result<Listing> {
        let mut listing = Listing::default();
        let skip = if directory.is_empty() { 0 } else { directory.len().saturating_add(1) };
        let mut at = if directory.is_empty() { 0 } else { self.order.partition_point(|&n| self.name(n) <= directory) };
        let mut prefix = Vec::new();
        while let Some(&number) = self.order.get(at) {
            let name = self.name(number);
            if !directory.is_empty() && !below(directory, name) {
                break;
            }
            let child = name.get(skip..).unwrap_or_default();
            let own = child.iter().position(|&b| b == 0);
            let child = child.get(..own.unwrap_or(child.len())).unwrap_or_default();
            let is_directory = own.is_some() || self.is_directory(number);
            listing.push(child, if is_directory { ObjectKind::Directory } else { ObjectKind::File })?;
            at = at.saturating_add(1);
            if is_directory {
                prefix.clear();
                prefix.extend_from_slice(name.get(..skip.saturating_add(child.len())).unwrap_or_default());
                at = self.past(at, &prefix);
            }
        }
        Ok(listing)
    }

    /// The folder that holds everything, where there is one; what macOS adds beside it does not count.
    pub fn sole_folder(&self) -> Option<Vec<u8>> {
        let mut at = 0;
        let mut sole = None;
        while let Some(&number) = self.order.get(at) {
            let name = self.name(number);
            let end = name.iter().position(|&b| b == 0);
            let top = name.get(..end.unwrap_or(name.len())).unwrap_or_default();
            at = at.saturating_add(1);
            if end.is_some() || self.is_directory(number) {
                at = self.past(at, top);
                if top != b"__MACOSX" && sole.replace(top.to_vec()).is_some() {
                    return None;
                }
            } else if top != b".DS_Store" {
                return None;
            }
        }
        sole
    }

    // The first place from `at` on that is not below `directory`: doubling steps, then a binary search.
    fn past(&self, at: usize, directory: &[u8]) -> usize {
        let inside = |i: usize| self.order.get(i).is_some_and(|&n| below(directory, self.name(n)));
        let mut step = 1_usize;
        let mut low = at;
        while inside(low.saturating_add(step).saturating_sub(1)) {
            low = low.saturating_add(step);
            step = step.saturating_mul(2);
        }
        let high = low.saturating_add(step).min(self.order.len());
        let window = self.order.get(low..high).unwrap_or_default();
        low.saturating_add(window.partition_point(|&n| below(directory, self.name(n))))
    }

    /// Bytes of memory held.
    pub fn weight(&self) -> usize {
        let records = self.records.capacity().saturating_mul(size_of::<Record>());
        let spelled = self.spelled.capacity().saturating_mul(size_of::<(u32, u64)>());
        let order = self.order.capacity().saturating_mul(4);
        self.names.capacity().saturating_add(records).saturating_add(order).saturating_add(spelled)
    }
}

fn below(directory: &[u8], name: &[u8]) -> bool {
    name.len() > directory.len() && name.starts_with(directory) && name.get(directory.len()) == Some(&0)
}

#[cfg(test)]
mod tests {
    use super::super::name::{Named, Up, append};
    use super::*;

    #[test]
    fn names_sort_as_the_standard_library_sorts_them() {
        let mut raw: Vec<String> =
            (0..2000_u32).map(|i| format!("store/{}/{}", i % 7, i.wrapping_mul(2_654_435_761) % 977)).collect();
        raw.extend((0..40).map(|n| format!("store/{}", "a".repeat(n % 20 + 1))));
        raw.extend((0..60).map(|n| format!("store/aaaaaaa/{}", "b/".repeat(n % 30))));
        let (mut names, mut records) = (Vec::new(), Vec::new());
        for name in &raw {
            let start = u32::try_from(names.len()).unwrap();
            let named = append(name.as_bytes(), false, Up::Dropped, &mut names);
            let flags = u16::from(named == Named::Directory);
            records.push(Record { offset: 0, stored: 0, size: 0, name: start, crc: 0, modified: 0, method: 0, flags });
        }
        let index = Index::new(names, records, Vec::new()).unwrap();
        let mut want: Vec<Vec<u8>> = raw.iter().map(|n| n.trim_end_matches('/').replace('/', "\0").into_bytes()).collect();
        want.sort();
        want.dedup();
        let got: Vec<_> = index.order.iter().map(|&n| index.name(n).to_vec()).collect();
        assert_eq!(got, want);
        // Of equal names the last one, directories before files.
        for (at, &number) in index.order.iter().enumerate() {
            let later = (number + 1..2000).find(|&n| index.name(n) == want[at]);
            assert!(later.is_none(), "{number} {later:?}");
        }
    }
}
