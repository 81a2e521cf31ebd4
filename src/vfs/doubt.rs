//! Directories that are looked at again: those older than `--refresh`, and those of which the store failed to tell something.
//!
//! What the store fails to tell is no word about the source. A directory that could not be understood for it is *in doubt*, and so is
//! what lies in it: the kernel is to ask for each name anew, no name of a document is absent, and after [`super::Options::retry`] the
//! next request asks the store again. A document that fails in a sound directory is asked for again by itself. What has been found
//! in doubt has inodes of its own, so that nothing of it is taken for what is found later.

use super::{Chunks, Dir, ROOT, Thing, Vfs};
use crate::array::Array;
use crate::error::{Error, Kind, Result};
use crate::store::{Key, Version};
use crate::tree::{Below, DERIVED, Directory, Tree};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Who comes to a chunk by its path has had its directory looked at so long ago at most, however short `--refresh` is.
const JUST: Duration = Duration::from_millis(50);

impl Vfs {
    /// The root, looked at again when it is older than `--refresh`.
    pub(super) fn root(&self) -> Result<Arc<Dir>> {
        let root = self.root.read().clone();
        if !self.is_old(&root) {
            return Ok(root);
        }
        self.heal(ROOT, &root)
    }

    pub(super) fn is_old(&self, dir: &Dir) -> bool {
        let age = dir.looked.elapsed();
        self.options.refresh.is_some_and(|refresh| age >= refresh) || dir.doubtful && age >= self.options.retry
    }

    /// The directory `old`, which was opened again; what shows the same keeps its chunks and their inodes.
    fn reopen(&self, old: &Dir, new: Directory, above: bool) -> Arc<Dir> {
        if new.same(&old.directory) {
            let chunks = old.told_again(&new);
            return Arc::new(Dir { chunks, ..bare(new, old.parent, above, &self.tree) });
        }
        self.adopt(new, old.parent, above)
    }

    /// Looks again at a directory that is old, or of which the store failed to tell something; at those above it first, where that was
    /// so of them. One does for all who ask meanwhile.
    pub(super) fn heal(&self, inode: u64, old: &Arc<Dir>) -> Result<Arc<Dir>> {
        let mut healing = old.healing.lock();
        let now = if inode == ROOT { Some(Thing::Directory(self.root.read().clone())) } else { self.table.get(inode) };
        if let Some(Thing::Directory(new)) = now
            && !Arc::ptr_eq(&new, old)
        {
            return Ok(new);
        }
        if let Some((_, e)) = healing.as_ref().filter(|(when, _)| when.elapsed() < self.options.retry) {
            return Err(e.clone());
        }
        let gone = || Error::new(Kind::Changed, "is gone").about(&old.directory.key);
        let again = || {
            if inode == ROOT {
                return Ok(self.reopen(old, self.tree.open(&Key::root(), &Below::default())?, false));
            }
            let Thing::Directory(above) = self.thing(old.parent)? else { return Err(gone()) };
            let new = match old.directory.key.split_last() {
                _ if old.directory.is_derived => self.tree.derived(&above.directory, DERIVED.as_bytes()).ok_or_else(gone)?,
                Some((_, name)) => self.open_below(&above.directory, name, &old.directory.key)?,
                None => return Err(gone()),
            };
            Ok(self.reopen(old, new, above.doubtful))
        };
        let new = again().inspect_err(|e| *healing = Some((Instant::now(), e.clone())))?;
        if inode == ROOT {
            *self.root.write() = new.clone();
        } else {
            self.table.replace(inode, Thing::Directory(new.clone()));
        }
        Ok(new)
    }

    /// With `--refresh`: that an array is still what its chunks are decoded as, if that was last seen longer ago than that. The kernel
    /// asks no more for a directory that somebody has open, and its chunks may be of another array by now.
    ///
    /// # Errors
    /// [`Kind::Changed`] when it is another, or gone; as [`Tree::open`], where the store cannot tell.
    pub(super) fn check_told(&self, chunks: &Chunks) -> Result<()> {
        let Some(refresh) = self.options.refresh else { return Ok(()) };
        let told = &chunks.told;
        let is_new = || told.checked.lock().elapsed() < refresh.max(JUST);
        if is_new() {
            return Ok(());
        }
        // One looks for all who ask meanwhile, and fails for them.
        let mut checking = told.checking.lock();
        if is_new() {
            return Ok(());
        }
        if let Some((_, e)) = checking.as_ref().filter(|(when, _)| when.elapsed() < self.options.retry) {
            return Err(e.clone());
        }
        let changed = |what: &str| Error::new(Kind::Changed, what).about(&chunks.key);
        // What the store failed to tell is no other array.
        let is_same = |now: &Directory| match &now.node {
            Err(e) if self.tree.may_pass(e) => Err(e.clone()),
            _ => Ok(now.array().is_some_and(|now| format!("{now:?}") == format!("{:?}", chunks.array))),
        };
        let again = || {
            if chunks.key.is_root() && !told.is_derived {
                return is_same(&self.root()?.directory);
            }
            is_same(&self.array_now(chunks)?)
        };
        match again() {
            Ok(true) => *told.checked.lock() = Instant::now(),
            Ok(false) => return Err(changed("is another array since its directory was opened")),
            Err(e) if e.kind() == Kind::NotFound => return Err(changed("is gone since its directory was opened")),
            Err(e) => {
                *checking = Some((Instant::now(), e.clone()));
                return Err(e);
            }
        }
        Ok(())
    }

    /// That an array is still decoded as its chunks are, if its documents have been written to since. Asked after a chunk was decoded, or
    /// was not found, so that bytes of another array are never taken for this one's, nor an array that is gone for one without chunks;
    /// over a network that would be a request for each chunk.
    ///
    /// # Errors
    /// As [`Vfs::check_told`].
    pub(super) fn check_decoded(&self, chunks: &Chunks) -> Result<()> {
        let told = &chunks.told;
        let is_still = |(key, version): &(Key, Version)| self.store().head(key).is_ok_and(|now| now.version == *version);
        let versions = told.versions.lock().clone();
        if self.is_distant() || versions.iter().all(is_still) {
            return Ok(());
        }
        let now = match self.array_now(chunks) {
            Err(e) if e.kind() == Kind::NotFound => {
                return Err(Error::new(Kind::Changed, "is gone since its directory was opened").about(&chunks.key));
            }
            now => now?,
        };
        match &now.node {
            Err(e) if self.tree.may_pass(e) => Err(e.clone()),
            // Damage of documents that were understood once says nothing of the chunks, unless they are to be looked at again.
            Err(_) if self.options.refresh.is_none() => Ok(()),
            _ if now.array().is_some_and(|now| decode_alike(now, &chunks.array)) => {
                *told.versions.lock() = now.versions;
                Ok(())
            }
            _ => Err(Error::new(Kind::Changed, "is another array since its directory was opened").about(&chunks.key)),
        }
    }

    /// What the directory of an array is now.
    fn array_now(&self, chunks: &Chunks) -> Result<Directory> {
        let told = &chunks.told;
        let Some((_, name)) = chunks.key.split_last().filter(|_| !told.is_derived) else {
            let above = self.directory_now(told.parent)?;
            return if told.is_derived {
                self.tree.derived(&above, DERIVED.as_bytes()).ok_or_else(Error::not_found)
            } else {
                Ok(above)
            };
        };
        self.open_below(&self.directory_now(told.parent)?, name, &chunks.key)
    }

    /// What the directory `inode` is now, understood anew from the root on.
    fn directory_now(&self, inode: u64) -> Result<Directory> {
        if inode == ROOT {
            return self.tree.open(&Key::root(), &Below::default());
        }
        let Some(Thing::Directory(dir)) = self.table.get(inode) else { return Err(Error::not_found()) };
        let above = self.directory_now(dir.parent)?;
        if dir.directory.is_derived {
            return self.tree.derived(&above, DERIVED.as_bytes()).ok_or_else(Error::not_found);
        }
        let (_, name) = dir.directory.key.split_last().ok_or_else(Error::not_found)?;
        self.open_below(&above, name, &dir.directory.key)
    }

    /// Whether what is absent in the directory `parent` may be there when it is asked for again.
    pub fn is_doubtful(&self, parent: u64) -> bool {
        let dir = if parent == ROOT { Some(Thing::Directory(self.root.read().clone())) } else { self.table.get(parent) };
        matches!(dir, Some(Thing::Directory(dir)) if dir.doubtful)
    }

    /// The directory `dir`, looked at again where the store failed to tell its document `name` some time ago.
    pub(super) fn with_document(&self, parent: u64, dir: Arc<Dir>, name: &[u8]) -> Result<Arc<Dir>> {
        let failed = dir.directory.fault_of(name).is_some_and(|e| self.tree.may_pass(e));
        if failed && !dir.doubtful && dir.looked.elapsed() >= self.options.retry { self.heal(parent, &dir) } else { Ok(dir) }
    }

    /// Whether names in this directory stand for one version each.
    pub(super) fn is_versioned(&self, dir: &Dir) -> bool {
        self.options.refresh.is_some() || dir.doubtful
    }
}

/// Where it is told what an array is, and when that was last seen to be so.
pub(super) struct Told {
    /// The inode of the directory that its own is in.
    parent: u64,
    is_derived: bool,
    /// The documents that tell it, as they were when it was last seen to be so.
    versions: Mutex<Arc<[(Key, Version)]>>,
    /// Held for a moment only: who looks again at the directory itself sets it too, also on behalf of who is `checking`.
    checked: Mutex<Instant>,
    /// What that failed with last.
    checking: Mutex<Option<(Instant, Error)>>,
}

/// Whether both make the same of the bytes of a chunk: compared by their words, since a fill value may be NaN.
fn decode_alike(one: &Array, other: &Array) -> bool {
    let text = |array: &Array| {
        let Array { format, chunks, dtype, fill, order, kept, stored, .. } = array;
        format!("{:?}", (format, chunks, dtype, fill, order, kept, stored))
    };
    text(one) == text(other)
}

impl Told {
    /// What `directory`, which is in `parent`, has just told.
    pub(super) fn new(directory: &Directory, parent: u64) -> Self {
        let (checked, checking) = (Mutex::new(Instant::now()), Mutex::default());
        let versions = Mutex::new(directory.versions.clone());
        Self { parent, is_derived: directory.is_derived, versions, checked, checking }
    }
}

impl Dir {
    /// Its chunks, for the same directory that was looked at again just now, and is `new`.
    pub(super) fn told_again(&self, new: &Directory) -> Option<Arc<Chunks>> {
        self.chunks.clone().inspect(|chunks| {
            *chunks.told.checked.lock() = Instant::now();
            *chunks.told.versions.lock() = new.versions.clone();
        })
    }
}

/// An opened directory in `parent`, which is in doubt itself or not; without chunks.
pub(super) fn bare(directory: Directory, parent: u64, above: bool, tree: &Tree) -> Dir {
    let doubtful = above || directory.node.as_ref().is_err_and(|e| tree.may_pass(e));
    Dir { directory, chunks: None, looked: Instant::now(), parent, doubtful, healing: Mutex::default() }
}
