//! What a copy has written so far, for the one that goes on after an interruption.
//!
//! Each file has two entries: one before it gets its name, with the inode that is the copy's own; and one after, which says in what state
//! the source was. A file that an interruption has left between the two is of no known state; by its inode it is seen whose it is.

use super::failed;
use crate::error::Result;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::path::PathBuf;

/// See the module. An entry is a path, a NUL, the state in hexadecimal digits (or `i` and those of the inode), a NUL; the last one of a
/// path counts.
pub struct Record {
    path: PathBuf,
    log: Mutex<File>,
    /// Of those before, by paths as numbers, so that millions of them fit into memory.
    before: HashMap<u64, Entry>,
}

/// What is known of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    /// Of which state the file is, if it was whole in the end; that of an earlier one counts for nothing.
    state: u64,
    /// Whether an earlier copy gave something this name.
    named: bool,
    /// The inode of the last one that was about to get it.
    inode: u64,
}

/// The state of what is only known to be the copy's own.
pub const UNKNOWN: u64 = 0;

impl Record {
    /// The record in the file `path`, which need not be there.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn open(path: PathBuf) -> Result<Self> {
        let attempt = || {
            let mut log = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
            let mut bytes = Vec::new();
            log.read_to_end(&mut bytes)?;
            let (before, whole) = parse(&bytes);
            // An entry of which a part was written would run into the next one.
            log.set_len(whole)?;
            Ok((log, before))
        };
        let (log, before) = attempt().map_err(|e| failed(&e, &path))?;
        Ok(Self { log: Mutex::new(log), before, path })
    }

    /// Whether an earlier copy wrote the file that has this inode now, or made the directory.
    pub fn is_own(&self, path: &[u8], inode: u64) -> bool {
        self.before.get(&number(path)).is_some_and(|entry| entry.named || entry.inode == inode)
    }

    /// Whether an earlier copy wrote the file while the source was in this state.
    pub fn is_of(&self, path: &[u8], state: u64) -> bool {
        state != UNKNOWN && self.before.get(&number(path)).is_some_and(|entry| entry.state == state)
    }

    /// Notes that the file with this inode is the copy's own, before it has its name.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn own(&self, path: &[u8], inode: u64) -> Result<()> {
        self.add(path, &format!("i{inode:x}"))
    }

    /// Notes that the file has its name, and in what state the source was when it was begun.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn whole(&self, path: &[u8], state: u64) -> Result<()> {
        self.add(path, &format!("{state:x}"))
    }

    fn add(&self, path: &[u8], what: &str) -> Result<()> {
        let entry = [path, b"\0", what.as_bytes(), b"\0"].concat();
        self.log.lock().write_all(&entry).map_err(|e| failed(&e, &self.path))
    }
}

/// The entries, and the length of those that are whole.
fn parse(bytes: &[u8]) -> (HashMap<u64, Entry>, u64) {
    let mut entries: HashMap<u64, Entry> = HashMap::new();
    let (mut left, mut whole) = (bytes, 0);
    while let Some((path, rest)) = split(left)
        && let Some((state, rest)) = split(rest)
    {
        let digits = std::str::from_utf8(state).unwrap_or_default();
        let value = |digits: &str| u64::from_str_radix(digits, 16).unwrap_or(UNKNOWN);
        let entry = entries.entry(number(path)).or_insert(Entry { state: UNKNOWN, named: false, inode: 0 });
        match digits.strip_prefix('i') {
            Some(inode) => (entry.state, entry.inode) = (UNKNOWN, value(inode)),
            None => (entry.state, entry.named) = (value(digits), true),
        }
        whole = bytes.len() - rest.len();
        left = rest;
    }
    (entries, whole as u64)
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// A number for a path, or for a state as one of several things.
pub fn number(of: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entry_counts_and_a_part_of_one_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("written");
        let record = Record::open(path.clone()).unwrap();
        record.own(b"a/0", 5).unwrap();
        record.whole(b"a/0", 17).unwrap();
        record.own(b"a/1", 6).unwrap();
        record.whole(b"a/1", 17).unwrap();
        // Killed before the new bytes were told to have their name.
        record.own(b"a/1", 7).unwrap();
        record.own(b"a/4", 8).unwrap();
        assert!(!record.is_own(b"a/0", 5));
        for torn in ["", "a", "a/2\0", "a/2\x0011"] {
            OpenOptions::new().append(true).open(&path).unwrap().write_all(torn.as_bytes()).unwrap();
            let next = Record::open(path.clone()).unwrap();
            next.whole(b"a/3", 18).unwrap();
            let last = Record::open(path.clone()).unwrap();
            assert!(last.is_of(b"a/0", 17) && !last.is_of(b"a/0", 18));
            assert!(last.is_own(b"a/1", 7) && !last.is_of(b"a/1", 17) && !last.is_of(b"a/1", UNKNOWN));
            assert!(last.is_of(b"a/3", 18) && !last.is_own(b"a/2", 9) && !last.is_own(b"a", 9));
            // Somebody's file that was about to be written over is not the copy's own.
            assert!(last.is_own(b"a/4", 8) && !last.is_own(b"a/4", 9));
        }
    }
}
