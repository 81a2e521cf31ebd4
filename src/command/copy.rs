//! `cp`: writes the decoded tree to a directory, and goes on where it was interrupted.
//!
//! A file is written under another name and renamed when it is whole, so what has its name is whole. Until everything is there, the
//! directory holds [`WORK`], which says of what it is the copy, and has a [`Record`] of the files: chunks that are there are trusted only
//! if they are of the same source, shown in the same way and understood as the same, and their sizes and times are still those of the
//! source. What an interrupted copy wrote and the source has no more is removed; nothing else ever is.

mod record;

use super::progress::Progress;
use super::text::{plain, size};
use super::walk::{self, Job, Met, Owners};
use super::{Opened, find_one, open};
use crate::array::{Array, Node};
use crate::cli::commands::Copy;
use crate::error::{Error, Kind, Result};
use crate::vfs::{About, Vfs};
use crate::view::names::Path as Place;
use record::{Record, number};
use rustix::fs::FlockOperation;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// What an unfinished copy has in its directory: files that are not whole yet, and [`BEGUN`].
const WORK: &str = ".chunkmount-cp";

/// What is being copied, as JSON.
const BEGUN: &str = "begun.json";

/// The [`Record`] of what is there.
const WRITTEN: &str = "written";

/// Held by the one that copies.
const LOCK: &str = "lock";

/// Where a copy goes.
struct Destination {
    path: PathBuf,
    work: PathBuf,
    /// Whether there may be files already, whosesoever.
    is_used: bool,
    /// Whether those of others may be written over.
    force: bool,
    /// All that decides what is written, as a number.
    what: u64,
    record: Record,
    /// Numbers the files under way.
    number: AtomicU64,
    skipped: AtomicU64,
    /// Files that an interrupted copy wrote and the source has no more.
    removed: AtomicU64,
    /// Nobody else copies to here as long as it is open.
    _lock: File,
}

/// Runs `cp`.
///
/// # Errors
/// Those of the source and of the directory. Files that cannot be read are listed, and those beside them copied; then the error is of
/// the gravest kind.
pub fn run(copy: &Copy) -> Result<()> {
    let opened = open(&copy.at)?;
    let vfs = &opened.vfs;
    let from = find_one(&opened, copy.path.as_ref())?;
    if !from.is_directory() {
        return Err(Error::usage("is a file; `chunkmount cat` writes it").about(plain(&from.path)));
    }
    let to = Destination::prepare(copy, &opened, &from)?;
    let progress = Progress::new(copy.quiet, false);
    // Paths below the one that is copied, where they lie in the copy.
    let below = |path: &[u8]| {
        let below = path.get(from.path.len()..).unwrap_or_default();
        below.strip_prefix(b"/").unwrap_or(below).to_vec()
    };
    let work = |job: Job| {
        let path = below(&job.path);
        let result = to.copy(vfs, &job, &path);
        match result {
            Ok(length) => progress.done(length),
            // Without room for one file there is none for the others.
            Err(e) if e.kind() == Kind::Usage => return Err(e),
            Err(e) => {
                // What an earlier copy wrote there is of another time. Where the store fails it may be what is still there.
                let is_gone = e.is_damage() || e.kind() == Kind::NotFound;
                progress.failed(&job.path, e);
                progress.done(0);
                if is_gone {
                    to.remove_own(&path)?;
                }
            }
        }
        Ok(())
    };
    walk::parallel(walk::threads(copy.jobs), &work, |add| {
        let mut owners: Owners<Owner> = Owners::default();
        // Names of the directory that is listed, where others may lie in the copy.
        let mut names: HashSet<Box<[u8]>> = HashSet::new();
        walk::walk(vfs, &from, &mut |met| {
            match met {
                Met::Directory(place) => {
                    let path = below(&place.path);
                    names.clear();
                    if let Some(about) = vfs.about(place.attr.inode)? {
                        // Its files may be encoded chunks: none of them is copied, and one problem is enough.
                        about.node().as_ref().err().into_iter().for_each(|e| progress.problem(&e.clone().about(about.key())));
                        owners.enter(&place.path, Owner { about, path: path.clone() });
                    }
                    if path == WORK.as_bytes() {
                        // It would go when the copy is whole; a problem keeps it.
                        let e = Error::usage("is an unfinished copy itself, and cannot be told from this one");
                        progress.problem(&e.about(plain(&place.path)));
                    }
                    to.make_directory(&path)?;
                }
                Met::File(place, name) => {
                    if to.is_used {
                        names.insert(name.into());
                    }
                    if owners.of(&place.path).is_none_or(|owner| owner.about.node().is_ok()) {
                        progress.found();
                        add(Job { parent: place.attr.inode, path: place.join(name) })?;
                    }
                }
                Met::Listed(place, directories) => {
                    let owner = owners.of(&place.path).map(|owner| &*owner);
                    if to.is_used && owner.is_none_or(|owner| owner.about.node().is_ok()) {
                        names.extend(directories.iter().cloned());
                        to.sweep(&below(&place.path), &names, owner, &progress)?;
                    }
                }
                Met::Failed(path, _, e) => progress.failed(path, e),
            }
            Ok(())
        })
    })?;
    let result = progress.finish(&opened.name, None);
    if result.is_ok() {
        fs::remove_dir_all(&to.work).map_err(|e| failed(&e, &to.work))?;
    }
    let skipped = to.skipped.load(Ordering::Relaxed);
    let skipped = if skipped > 0 { format!(", {skipped} of them there already") } else { String::new() };
    if !copy.quiet {
        let removed = to.removed.load(Ordering::Relaxed);
        let removed = if removed > 0 { format!("; {removed} removed that the source has no more") } else { String::new() };
        progress.say(&format!("{} in {} files{skipped}{removed}", size(progress.bytes()), progress.files()));
    }
    result
}

/// A directory of the source that a walk is in.
struct Owner {
    about: About,
    /// Where it lies in the copy.
    path: Vec<u8>,
}

impl Owner {
    fn array(&self) -> Option<&Array> {
        match self.about.node() {
            Ok(Node::Array(array)) => Some(array),
            _ => None,
        }
    }
}

/// What a directory is called in the record, beside a file of its name.
fn of_directory(path: &[u8]) -> Vec<u8> {
    [path, b"/"].concat()
}

/// An error of the directory that is written to: the copy cannot go on.
fn failed(e: &io::Error, path: &Path) -> Error {
    Error::usage(format!("cannot be written: {e}")).about(path.display())
}

impl Destination {
    fn prepare(copy: &Copy, opened: &Opened, from: &super::Place) -> Result<Self> {
        let path = &copy.dest;
        // Nothing is made before it is known that this is no part of the source.
        let absolute = std::path::absolute(path).map_err(|e| failed(&e, path))?;
        let existing = absolute.ancestors().find_map(|above| above.canonicalize().ok());
        if let Some((existing, source)) = existing.zip(opened.path.as_ref().and_then(|source| source.canonicalize().ok()))
            && existing.starts_with(&source)
        {
            return Err(Error::usage(format!("lies inside the source {}", source.display())).about(path.display()));
        }
        fs::create_dir_all(path).map_err(|e| failed(&e, path))?;
        let real = path.canonicalize().map_err(|e| failed(&e, path))?;
        let (work, what) = (real.join(WORK), Self::what(copy, opened, from)?);
        let begun = work.join(BEGUN);
        // Looked at before anything is made here, and again when nobody else writes here.
        Self::begun(&real, &what, copy.force)?;
        fs::create_dir_all(&work).map_err(|e| failed(&e, &work))?;
        let lock = Self::lock(&work)?;
        let begins = match Self::begun(&real, &what, copy.force) {
            Ok(found) => found.as_ref() != Some(&what),
            Err(e) => {
                // Another one was at it, and is done: nothing of it may go but what was made above.
                let _ = fs::remove_file(work.join(LOCK)).and_then(|()| fs::remove_dir(&work));
                return Err(e);
            }
        };
        let mut is_used = false;
        for entry in fs::read_dir(&real).map_err(|e| failed(&e, &real))? {
            is_used |= entry.map_err(|e| failed(&e, &real))?.file_name() != WORK;
        }
        // What was under way is not whole. What is copied stays told, so that a second interruption loses nothing.
        for entry in fs::read_dir(&work).map_err(|e| failed(&e, &work))? {
            let part = entry.map_err(|e| failed(&e, &work))?.path();
            if ![BEGUN, WRITTEN, LOCK].iter().any(|kept| part.ends_with(kept)) {
                fs::remove_file(&part).map_err(|e| failed(&e, &part))?;
            }
        }
        if begins {
            // What a copy of something else wrote is not this one's own.
            let written = work.join(WRITTEN);
            match fs::remove_file(&written) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(&e, &written)),
                _ => {}
            }
            let part = work.join("new");
            let told = fs::write(&part, format!("{what:#}\n")).and_then(|()| fs::rename(&part, &begun));
            told.map_err(|e| failed(&e, &begun))?;
        }
        let record = Record::open(work.join(WRITTEN))?;
        let what = number(&what.to_string());
        let (number, skipped, removed) = Default::default();
        Ok(Self { path: real, work, is_used, force: copy.force, what, record, number, skipped, removed, _lock: lock })
    }

    /// All that decides what is written. The number of the version as well: another one may show something else. And what it is that
    /// is copied: where nothing is mounted any more, an empty directory is no later state of the source.
    fn what(copy: &Copy, opened: &Opened, from: &super::Place) -> Result<Value> {
        let view = &copy.at.view;
        let node = opened.vfs.about(from.attr.inode)?.map(|about| match about.node() {
            Ok(Node::Array(array)) => format!("array of {:?}", array.format),
            Ok(Node::Group(group)) => format!("group of {:?}", group.format),
            Ok(Node::Directory) => "directory".to_owned(),
            Err(_) => "not known".to_owned(),
        });
        let mut what = json!({
            "node": node,
            "chunkmount": env!("CARGO_PKG_VERSION"),
            "source": opened.name,
            "path": copy.path.as_ref().map(|path| plain(path.as_bytes())),
            "zarr": view.zarr.map(|zarr| format!("{zarr:?}")),
            "axes": format!("{:?}", view.axes),
            "format": view.format.map(|format| format!("{format:?}")),
            "nczarr": view.nczarr,
            "fill_missing": view.fill_missing,
            "given": copy.at.source.to_string_lossy().split_once('#').map(|(_, mode)| mode.to_owned()),
        });
        // The entries of an archive need not tell that another one has taken its place.
        let archive = opened.path.as_ref().and_then(|path| fs::metadata(path).ok()).filter(fs::Metadata::is_file);
        if let (Some(archive), Some(what)) = (archive, what.as_object_mut()) {
            let modified = archive.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
            what.insert("archive".to_owned(), json!([archive.len(), format!("{modified:?}")]));
        }
        Ok(what)
    }

    /// What an unfinished copy in `real` is one of, if there is any.
    ///
    /// # Errors
    /// When there is something else, unless by `force`.
    fn begun(real: &Path, what: &Value, force: bool) -> Result<Option<Value>> {
        let begun = real.join(WORK).join(BEGUN);
        let found = fs::read(&begun).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        if force || found.as_ref() == Some(what) {
            return Ok(found);
        }
        let refuse = |why: &str| Err(Error::usage(format!("{why}; --force writes into it all the same")).about(real.display()));
        if found.is_some() {
            return refuse("holds an unfinished copy of something else, or with other options");
        }
        // Killed before it could say what it copies, an attempt leaves its own directory alone.
        if fs::read_dir(real).map_err(|e| failed(&e, real))?.any(|entry| !entry.is_ok_and(|entry| entry.file_name() == WORK)) {
            return refuse("is not empty, and holds no unfinished copy");
        }
        Ok(None)
    }

    /// Makes sure that nobody else copies to here.
    fn lock(work: &Path) -> Result<File> {
        let path = work.join(LOCK);
        let lock = File::create(&path).map_err(|e| failed(&e, &path))?;
        let other = || {
            Err(Error::usage("another copy writes here").about(path.parent().and_then(Path::parent).unwrap_or(work).display()))
        };
        // Not every file system has locks.
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK) {
            return other();
        }
        // Who has just ended took the file away with the directory.
        let there = fs::metadata(&path).ok().map(|there| (there.dev(), there.ino()));
        let held = lock.metadata().map_err(|e| failed(&e, &path))?;
        if there == Some((held.dev(), held.ino())) { Ok(lock) } else { other() }
    }

    fn target(&self, path: &[u8]) -> PathBuf {
        self.path.join(OsStr::from_bytes(path))
    }

    fn make_directory(&self, path: &[u8]) -> Result<()> {
        let directory = self.target(path);
        match fs::symlink_metadata(&directory) {
            Ok(there) if there.is_dir() => return Ok(()),
            // A file in the source before, perhaps.
            Ok(_) => drop(self.remove_own(path)?),
            Err(_) => {}
        }
        fs::create_dir_all(&directory).map_err(|e| failed(&e, &directory))?;
        self.record.whole(&of_directory(path), record::UNKNOWN)
    }

    /// Copies a file, unless it is there and whole; its length.
    fn copy(&self, vfs: &Vfs, job: &Job, path: &[u8]) -> Result<u64> {
        let target = self.target(path);
        // Before a byte is read: of what changes meanwhile the next one has another state.
        let (attr, state) = walk::look(vfs, job, |attr| {
            // Documents have none and are made anew: they are short, and their time does not tell their content.
            let state = vfs.chunk_state(attr.inode)?.map_or(0, |state| number(&(self.what, state)));
            Ok((*attr, state))
        })?;
        let is_whole = self.record.is_of(path, state)
            && fs::symlink_metadata(&target).is_ok_and(|there| {
                there.is_file() && there.len() == attr.size && there.modified().is_ok_and(|time| time == attr.modified)
            });
        if is_whole {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return Ok(attr.size);
        }
        self.write(vfs, job, &target, path, state)
    }

    /// Writes a file under another name, gives it the time of the source, and then its name.
    fn write(&self, vfs: &Vfs, job: &Job, target: &Path, path: &[u8], state: u64) -> Result<u64> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let part = self.work.join(number.to_string());
        let mut out = File::create(&part).map_err(|e| failed(&e, &part))?;
        let mut found = None;
        let read = walk::read(vfs, job, &mut |attr, bytes| {
            found = Some(*attr);
            out.write_all(bytes).map_err(|e| failed(&e, target))
        });
        let written = read.and_then(|()| {
            let attr = found.ok_or_else(|| Error::new(Kind::Bug, "a file without attributes"))?;
            out.set_modified(attr.modified).map_err(|e| failed(&e, target))?;
            let inode = out.metadata().map_err(|e| failed(&e, target))?.ino();
            drop(out);
            match fs::symlink_metadata(target) {
                Ok(there) if there.is_dir() => self.clear(path)?,
                Ok(_) if !self.force && !self.is_own(path) => {
                    let e = Error::usage("is there and not this copy's own; --force writes over it");
                    return Err(e.about(target.display()));
                }
                _ => {}
            }
            self.record.own(path, inode)?;
            fs::rename(&part, target).map_err(|e| failed(&e, target))?;
            self.record.whole(path, state)?;
            Ok(attr.size)
        });
        if written.is_err() {
            // It goes with the directory that it is in, if not now.
            let _ = fs::remove_file(&part);
        }
        written
    }

    /// Whether an earlier copy wrote the file that is there.
    fn is_own(&self, path: &[u8]) -> bool {
        fs::symlink_metadata(self.target(path)).is_ok_and(|there| self.record.is_own(path, there.ino()))
    }

    fn is_own_directory(&self, path: &[u8]) -> bool {
        self.record.is_own(&of_directory(path), 0)
    }

    /// Removes what an earlier copy wrote to a directory that the source has no more, and the directory if nothing else is in it.
    fn clear(&self, path: &[u8]) -> Result<()> {
        let directory = self.target(path);
        // What cannot be listed is not the copy's own.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let below = [path, b"/", entry.file_name().as_bytes()].concat();
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if self.remove_own(&below)? {
                    self.removed.fetch_add(1, Ordering::Relaxed);
                }
            } else if self.is_own_directory(&below) {
                self.clear(&below)?;
            }
        }
        if self.is_own_directory(path) {
            // Unless something is left in it that is not the copy's own.
            let _ = fs::remove_dir(&directory);
        }
        Ok(())
    }

    /// Removes the file that an earlier copy wrote, if there is one.
    fn remove_own(&self, path: &[u8]) -> Result<bool> {
        let target = self.target(path);
        match self.is_own(path).then(|| fs::remove_file(&target)) {
            None => Ok(false),
            Some(Err(e)) if e.kind() != io::ErrorKind::NotFound => Err(failed(&e, &target)),
            Some(_) => Ok(true),
        }
    }

    /// Removes what an earlier copy wrote to a directory and the source has there no more: all but `names`.
    ///
    /// What is nobody's stays, but is a problem where it would pass for a chunk of `owner` that the source has not.
    fn sweep(&self, path: &[u8], names: &HashSet<Box<[u8]>>, owner: Option<&Owner>, progress: &Progress) -> Result<()> {
        let directory = self.target(path);
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(e) => {
                progress.problem(&Error::from(e).about(directory.display()));
                return Ok(());
            }
        };
        for entry in entries {
            let entry = entry.map_err(|e| failed(&e, &directory))?;
            let name = entry.file_name();
            let name = name.as_bytes();
            if names.contains(name) || path.is_empty() && name == WORK.as_bytes() {
                continue;
            }
            let below = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                // Only in an array may what others left there be taken for the source's.
                if owner.is_some_and(|owner| owner.array().is_some()) {
                    self.sweep(&below, &HashSet::new(), owner, progress)?;
                }
                if self.is_own_directory(&below) {
                    self.clear(&below)?;
                }
            } else if self.remove_own(&below)? {
                self.removed.fetch_add(1, Ordering::Relaxed);
            } else if let Some((owner, array)) = owner.and_then(|owner| Some((owner, owner.array()?))) {
                let inside = below.get(owner.path.len()..).unwrap_or_default();
                if matches!(walk::place(array, inside.strip_prefix(b"/").unwrap_or(inside)), Some(Place::Chunk(_))) {
                    let e =
                        Error::usage("is there but not in the source, and would be taken for a chunk; it is not this copy's own");
                    progress.problem(&e.about(self.target(&below).display()));
                }
            }
        }
        Ok(())
    }
}
