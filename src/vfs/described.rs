//! Listings that tell attributes too, for those who ask for them name by name otherwise (`ls -l`, `find -size`, `cp -r`).
//!
//! The first names of a directory come with attributes, which saves who opens what it was told of a way to the daemon for each. Beyond
//! them, and of very many names, who only wants names gets only names: attributes cost a look at the source for each chunk, and memory
//! of the kernel. That somebody wants more shows when chunks of the array are looked up by name; from then on the listing tells them
//! ahead of the question.

use super::directory::{Entry, Names};
use super::{Attr, Chunks, Vfs, inode};
use crate::error::{Error, Result};
use crate::store::{Key, ObjectKind, Store};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

/// Names that the source is asked about at a time. In so many there is work for several threads, and neighbours on the disk.
const WINDOW: usize = 8192;

/// First names of a directory, of which attributes are told in any case. Where there are so many names that they come while they are listed,
/// there are none: looking at the first ones, scattered over a cold disk, would hold up the listing.
const TOLD: usize = 1024;

/// Names of the page after those: few, so that who looks at each name that it is given shows it soon.
const TRIED: usize = 32;

/// What is told of the chunks of one open directory.
pub struct Described {
    chunks: Arc<Chunks>,
    /// The directory of the source whose names are listed as they are.
    key: Key,
    /// How often chunks of the array had been looked up when the last page was given.
    looked_up: AtomicU64,
    is_wanted: AtomicBool,
    window: Mutex<Window>,
}

#[derive(Default)]
struct Window {
    first: usize,
    modified: Vec<Option<SystemTime>>,
}

impl Described {
    /// For chunks whose size the metadata tells, in a directory that is listed as the source has it.
    pub fn new(chunks: Arc<Chunks>, key: Key) -> Self {
        let looked_up = AtomicU64::new(chunks.looked_up.load(Ordering::Relaxed));
        Self { chunks, key, looked_up, is_wanted: AtomicBool::new(false), window: Mutex::default() }
    }

    /// Whether somebody has looked chunks up since the last page, or had before.
    fn is_wanted(&self) -> bool {
        let now = self.chunks.looked_up.load(Ordering::Relaxed);
        if self.looked_up.swap(now, Ordering::Relaxed) != now {
            self.is_wanted.store(true, Ordering::Relaxed);
        }
        self.is_wanted.load(Ordering::Relaxed)
    }

    /// When the file with the `i`th name was last modified; `None` where it takes a lookup to tell.
    fn modified(&self, store: &dyn Store, all: &Names, i: usize) -> Option<SystemTime> {
        let mut window = self.window.lock();
        let known = i.checked_sub(window.first).filter(|at| *at < window.modified.len());
        let at = match known {
            Some(at) => at,
            None => {
                let count = if self.is_wanted.load(Ordering::Relaxed) { WINDOW } else { TOLD.saturating_sub(i) };
                let names = all.some(i, count).ok()?;
                let names: Vec<&[u8]> = names.iter().map(|(name, _)| name).collect();
                let file = |meta: crate::store::Meta| (meta.kind == ObjectKind::File).then_some(meta.modified);
                window.modified = store.heads(&self.key, &names).into_iter().map(|meta| meta.and_then(file)).collect();
                window.first = i;
                0
            }
        };
        window.modified.get(at).copied().flatten()
    }
}

impl Vfs {
    /// As [`Vfs::readdir`], with the attributes of entries where they are wanted and known: just those that a lookup would tell.
    ///
    /// # Errors
    /// As [`Vfs::readdir`].
    pub fn readdir_described(
        &self,
        handle: u64,
        offset: u64,
        add: &mut dyn FnMut(Entry<'_>, Option<Attr>) -> bool,
    ) -> Result<()> {
        let names = self.directories.get(handle).ok_or_else(|| Error::usage("not an open directory"))?;
        let Some(described) = &names.described else {
            return self.readdir(handle, offset, &mut |entry| add(entry, None));
        };
        let told = match described.is_wanted() {
            true => usize::MAX,
            false if names.is_growing() => 0,
            false => TOLD,
        };
        let end = [told, told.saturating_add(TRIED)].into_iter().find(|end| *end > 0 && offset < Names::next(*end));
        self.readdir(handle, offset, &mut |entry| {
            if end.is_some_and(|end| entry.next > Names::next(end)) {
                return true;
            }
            let position = Names::position(&entry).filter(|position| *position < told);
            let attr = position.and_then(|position| self.told(&names, described, &entry, position));
            if attr.is_some() {
                self.described.fetch_add(1, Ordering::Relaxed);
            }
            add(entry, attr)
        })
    }

    fn told(&self, names: &Names, described: &Described, entry: &Entry<'_>, position: usize) -> Option<Attr> {
        // Only numbers that are arithmetic can be given out without being counted.
        inode::unpack(entry.inode).filter(|_| entry.kind == ObjectKind::File)?;
        let size = described.chunks.array.chunk_bytes()?;
        let modified = described.modified(self.store(), names, position)?;
        Some(Attr { inode: entry.inode, kind: ObjectKind::File, size, modified, volatile: false, brief: false })
    }
}
