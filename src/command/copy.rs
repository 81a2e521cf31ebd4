//! `cp`: writes the decoded tree to a directory, and goes on where it was interrupted.
//!
//! A file is written under another name and renamed when it is whole, so what has its name is whole. Until everything is there, the
//! directory holds [`WORK`], which says of what it is the copy: chunks that are there are trusted only if that is the same source, shown
//! in the same way, and their sizes and times are still those of the source.

use super::progress::Progress;
use super::text::{plain, size};
use super::walk::{self, Job, Met, Owners};
use super::{Opened, find_one, open};
use crate::cli::commands::Copy;
use crate::error::{Error, Kind, Result};
use crate::vfs::Attr;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// What an unfinished copy has in its directory: files that are not whole yet, and [`BEGUN`].
const WORK: &str = ".chunkmount-cp";

/// What is being copied, as JSON.
const BEGUN: &str = "begun.json";

/// Where a copy goes.
struct Destination {
    path: PathBuf,
    work: PathBuf,
    /// Whether chunks that are there already may be whole.
    resumed: bool,
    /// Numbers the files under way.
    number: AtomicU64,
    skipped: AtomicU64,
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
    let to = Destination::prepare(copy, &opened)?;
    let progress = Progress::new(copy.quiet, false);
    let below = |path: &[u8]| path.get(from.path.len()..).map(|path| path.strip_prefix(b"/").unwrap_or(path).to_vec());
    let target = |path: &[u8]| to.path.join(OsStr::from_bytes(&below(path).unwrap_or_default()));
    let work = |job: Job| {
        let target = target(&job.path);
        let result = to.skip(vfs, &job, &target).and_then(|skip| match skip {
            Some(length) => Ok(length),
            None => to.write(&target, |out| {
                let mut found = None;
                walk::read(vfs, &job, &mut |attr, bytes| {
                    found = Some(*attr);
                    out.write_all(bytes).map_err(|e| failed(&e, &target))
                })?;
                found.ok_or_else(|| Error::new(Kind::Bug, "a file without attributes"))
            }),
        });
        match result {
            Ok(length) => progress.done(length),
            // Without room for one file there is none for the others.
            Err(e) if e.kind() == Kind::Usage => return Err(e),
            Err(e) => {
                progress.problem(&e.about(plain(&job.path)));
                progress.done(0);
            }
        }
        Ok(())
    };
    walk::parallel(walk::threads(copy.jobs), &work, |add| {
        let mut broken: Owners<bool> = Owners::default();
        walk::walk(vfs, &from, &mut |met| {
            match met {
                Met::Directory(place) => {
                    let directory = target(&place.path);
                    if let Some(about) = vfs.about(place.attr.inode)? {
                        broken.enter(&place.path, about.node().is_err());
                        // Its files may be encoded chunks: none of them is copied, and one problem is enough.
                        about.node().as_ref().err().into_iter().for_each(|e| progress.problem(&e.clone().about(about.key())));
                    }
                    if directory == to.work {
                        // It would go when the copy is whole; a problem keeps it.
                        let e = Error::usage("is an unfinished copy itself, and cannot be told from this one");
                        progress.problem(&e.about(plain(&place.path)));
                    }
                    fs::create_dir_all(&directory).map_err(|e| failed(&e, &directory))?;
                }
                Met::File(place, name) => {
                    if !broken.of(&place.path).copied().unwrap_or(false) {
                        progress.found();
                        add(Job { parent: place.attr.inode, path: place.join(name) })?;
                    }
                }
                Met::Failed(path, e) => progress.problem(&e.about(plain(path))),
            }
            Ok(())
        })
    })?;
    let result = progress.finish(&opened.name);
    if result.is_ok() {
        fs::remove_dir_all(&to.work).map_err(|e| failed(&e, &to.work))?;
    }
    let skipped = to.skipped.load(Ordering::Relaxed);
    let skipped = if skipped > 0 { format!(", {skipped} of them there already") } else { String::new() };
    if !copy.quiet {
        progress.say(&format!("{} in {} files{skipped}", size(progress.bytes()), progress.files()));
    }
    result
}

/// An error of the directory that is written to: the copy cannot go on.
fn failed(e: &io::Error, path: &Path) -> Error {
    Error::usage(format!("cannot be written: {e}")).about(path.display())
}

impl Destination {
    fn prepare(copy: &Copy, opened: &Opened) -> Result<Self> {
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
        let work = real.join(WORK);
        let begun = work.join(BEGUN);
        let view = &copy.at.view;
        // All that decides what is written. The number of the version as well: another one may show something else.
        let mut what = json!({
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
        let found = fs::read(&begun).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let resumed = found.as_ref() == Some(&what);
        if !resumed && !copy.force {
            let refuse =
                |why: &str| Err(Error::usage(format!("{why}; --force writes into it all the same")).about(path.display()));
            if found.is_some() {
                return refuse("holds an unfinished copy of something else, or with other options");
            }
            // Killed before it could say what it copies, an attempt leaves its own directory alone.
            if fs::read_dir(&real).map_err(|e| failed(&e, path))?.any(|entry| !entry.is_ok_and(|entry| entry.file_name() == WORK))
            {
                return refuse("is not empty, and holds no unfinished copy");
            }
        }
        fs::create_dir_all(&work).map_err(|e| failed(&e, &work))?;
        // What was under way is not whole. What is copied stays told, so that a second interruption loses nothing.
        for entry in fs::read_dir(&work).map_err(|e| failed(&e, &work))? {
            let part = entry.map_err(|e| failed(&e, &work))?.path();
            if !resumed || part != begun {
                fs::remove_file(&part).map_err(|e| failed(&e, &part))?;
            }
        }
        if !resumed {
            let part = work.join("new");
            let told = fs::write(&part, format!("{what:#}\n")).and_then(|()| fs::rename(&part, &begun));
            told.map_err(|e| failed(&e, &begun))?;
        }
        Ok(Self { path: real, work, resumed, number: AtomicU64::new(0), skipped: AtomicU64::new(0) })
    }

    /// The length of a file that is there and whole.
    fn skip(&self, vfs: &crate::vfs::Vfs, job: &Job, target: &Path) -> Result<Option<u64>> {
        let Ok(there) = fs::symlink_metadata(target) else { return Ok(None) };
        if !self.resumed || !there.is_file() {
            return Ok(None);
        }
        let attr = vfs.lookup(job.parent, walk::name(&job.path))?;
        // Documents are made anew: they are short, and their time does not tell their content.
        let is_whole =
            vfs.is_chunk(attr.inode) && there.len() == attr.size && there.modified().is_ok_and(|time| time == attr.modified);
        vfs.forget(attr.inode, 1);
        Ok(is_whole.then(|| {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            attr.size
        }))
    }

    /// Writes a file under another name, gives it the time of the source, and then its name.
    fn write(&self, target: &Path, fill: impl FnOnce(&mut File) -> Result<Attr>) -> Result<u64> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let part = self.work.join(number.to_string());
        let mut out = File::create(&part).map_err(|e| failed(&e, &part))?;
        let written = fill(&mut out).and_then(|attr| {
            out.set_modified(attr.modified).map_err(|e| failed(&e, target))?;
            drop(out);
            fs::rename(&part, target).map_err(|e| failed(&e, target))?;
            Ok(attr.size)
        });
        if written.is_err() {
            // It goes with the directory that it is in, if not now.
            let _ = fs::remove_file(&part);
        }
        written
    }
}
