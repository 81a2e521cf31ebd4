//! Ways through the tree: the names of a directory, page by page, and all files below it, handed to threads.

use super::Place;
use crate::array::Array;
use crate::error::{Error, Kind, Result};
use crate::store::ObjectKind;
use crate::vfs::{Attr, Vfs};
use crate::view::names;
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

/// Names taken from a listing at a time.
const PAGE: usize = 1024;

/// Deepest directory: the keys of a store are not longer.
const DEPTH: usize = 2048;

/// Passes the names of the directory `inode` to `each`, in the order of the listing, without `.` and `..`.
///
/// # Errors
/// When it cannot be listed completely; and those of `each`.
pub fn names(vfs: &Vfs, inode: u64, each: &mut dyn FnMut(&[u8], ObjectKind) -> Result<()>) -> Result<()> {
    let handle = vfs.opendir(inode)?;
    let result = pages(vfs, handle, each);
    vfs.releasedir(handle);
    result
}

fn pages(vfs: &Vfs, handle: u64, each: &mut dyn FnMut(&[u8], ObjectKind) -> Result<()>) -> Result<()> {
    let mut offset = 0;
    loop {
        let mut page: Vec<(Box<[u8]>, ObjectKind)> = Vec::new();
        vfs.readdir(handle, offset, &mut |entry| {
            if page.len() == PAGE {
                return true;
            }
            offset = entry.next;
            page.push((entry.name.into(), entry.kind));
            false
        })?;
        if page.is_empty() {
            return Ok(());
        }
        for (name, kind) in page.iter().filter(|(name, _)| !matches!(&**name, b"." | b"..")) {
            each(name, *kind)?;
        }
    }
}

/// The names of a directory, sorted.
///
/// # Errors
/// As [`names()`].
pub fn sorted(vfs: &Vfs, inode: u64) -> Result<Vec<(Box<[u8]>, ObjectKind)>> {
    let mut list = Vec::new();
    names(vfs, inode, &mut |name, kind| {
        list.push((name.into(), kind));
        Ok(())
    })?;
    list.sort_unstable();
    Ok(list)
}

/// What [`walk`] meets.
pub enum Met<'a> {
    /// A directory, before what lies in it.
    Directory(&'a Place),
    /// A file by its name in the directory that was met last and is this one; nobody has looked at it yet.
    File(&'a Place, &'a [u8]),
    /// The end of a directory that was listed completely, with the names of the directories in it; files follow no more.
    Listed(&'a Place, &'a [Box<[u8]>]),
    /// A directory that cannot be looked at or listed, by its path; and whether it is the one that was met last, some of whose files
    /// were met too.
    Failed(&'a [u8], bool, Error),
}

/// Goes through all that lies below a directory. Directories come after the files beside them.
///
/// # Errors
/// Those of `meet`, which end the walk.
pub fn walk(vfs: &Vfs, from: &Place, meet: &mut dyn FnMut(Met<'_>) -> Result<()>) -> Result<()> {
    let mut left = vec![(from.clone(), 0)];
    while let Some((place, depth)) = left.pop() {
        meet(Met::Directory(&place))?;
        let mut below = Vec::new();
        let mut stopped = false;
        let listed = names(vfs, place.attr.inode, &mut |name, kind| {
            match kind {
                ObjectKind::Directory => below.push(Box::<[u8]>::from(name)),
                ObjectKind::File => meet(Met::File(&place, name)).inspect_err(|_| stopped = true)?,
            }
            Ok(())
        });
        match listed {
            Err(e) if stopped => return Err(e),
            Err(e) => meet(Met::Failed(&place.path, true, e))?,
            Ok(()) => meet(Met::Listed(&place, &below))?,
        }
        for name in below.into_iter().rev() {
            let path = place.join(&name);
            match vfs.lookup(place.attr.inode, &name) {
                Ok(attr) if depth < DEPTH => left.push((Place { attr, path }, depth + 1)),
                Ok(_) => meet(Met::Failed(&path, false, Error::too_big("lies too deep").about(super::text::plain(&path))))?,
                Err(e) => meet(Met::Failed(&path, false, e))?,
            }
        }
    }
    Ok(())
}

/// The directories that are understood as something, on the way to where a walk is: whose chunks the files met are.
pub struct Owners<T> {
    above: Vec<(Vec<u8>, T)>,
}

impl<T> Default for Owners<T> {
    fn default() -> Self {
        Self { above: Vec::new() }
    }
}

impl<T> Owners<T> {
    /// A directory was met that is understood as `what`.
    pub fn enter(&mut self, path: &[u8], what: T) {
        self.of(path);
        self.above.push((path.to_vec(), what));
    }

    /// What the nearest such directory at or above `path` is.
    pub fn of(&mut self, path: &[u8]) -> Option<&mut T> {
        let is_below = |above: &[u8]| {
            above.is_empty() || path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        while self.above.last().is_some_and(|(above, _)| !is_below(above)) {
            self.above.pop();
        }
        self.above.last_mut().map(|(_, what)| what)
    }
}

/// What lies at a path below an array: a chunk, or a directory on the way to some. The array itself is the way to all of them.
pub fn place(array: &Array, below: &[u8]) -> Option<names::Path> {
    let mut parts = below.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let Some(first) = parts.next() else { return Some(names::Path::Prefix(Vec::new())) };
    let mut found = names::parse_first(array, first);
    for part in parts {
        found = match found {
            Some(names::Path::Prefix(prefix)) => names::parse(array, &prefix, part),
            _ => None,
        };
    }
    found
}

/// A file to be read by one of the threads.
pub struct Job {
    /// The inode of its directory.
    pub parent: u64,
    /// Its path; the name is what follows the last slash.
    pub path: Vec<u8>,
}

/// Runs `lead`, which hands out jobs, beside `threads` that do them by `work`. A job that panics is an error of its own.
///
/// # Errors
/// Those of `lead`; and the first of `work`, which ends everything.
pub fn parallel(
    threads: usize,
    work: &(dyn Fn(Job) -> Result<()> + Sync),
    lead: impl FnOnce(&mut dyn FnMut(Job) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let (sender, receiver) = mpsc::sync_channel::<Job>(threads.saturating_mul(4));
    let receiver = Mutex::new(receiver);
    let failed = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let led = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Ok(job) = receiver.lock().recv() else { return };
                    if stop.load(Ordering::Relaxed) {
                        continue;
                    }
                    if let Err(e) = work(job) {
                        stop.store(true, Ordering::Relaxed);
                        failed.lock().get_or_insert(e);
                    }
                }
            });
        }
        let stopped = || Error::new(Kind::Bug, "stopped");
        let led = lead(&mut |job| {
            if stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            sender.send(job).map_err(|_| stopped())
        });
        drop(sender);
        led
    });
    match failed.into_inner() {
        Some(e) => Err(e),
        None => led,
    }
}

/// Threads where nobody says: one for each processor.
pub fn threads(asked: Option<u16>) -> usize {
    asked.map_or_else(|| std::thread::available_parallelism().map_or(2, usize::from), usize::from)
}

/// The last name of a path.
pub fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Looks a file up, opens it, and passes it to `with` part by part: its bytes, as the kernel would get them.
///
/// # Errors
/// Those of the tree, and of `with`.
pub fn read(vfs: &Vfs, job: &Job, with: &mut dyn FnMut(&Attr, &[u8]) -> Result<()>) -> Result<()> {
    look(vfs, job, |attr| contents(vfs, attr, with))
}

/// Looks a file up, and passes what is told of it to `with`.
///
/// # Errors
/// Those of the tree, and of `with`.
pub fn look<T>(vfs: &Vfs, job: &Job, with: impl FnOnce(&Attr) -> Result<T>) -> Result<T> {
    let attempt = AssertUnwindSafe(|| {
        let attr = vfs.lookup(job.parent, name(&job.path))?;
        let result = with(&attr);
        vfs.forget(attr.inode, 1);
        result
    });
    catch_unwind(attempt).unwrap_or_else(|_| {
        Err(Error::new(Kind::Bug, "a request panicked; see the message above").about(super::text::plain(&job.path)))
    })
}

/// Passes the bytes of a file on, part by part; at its end once more, nothing.
///
/// # Errors
/// Those of the tree, and of `with`; a file whose length is not the one that was told is corrupt.
pub fn contents(vfs: &Vfs, attr: &Attr, with: &mut dyn FnMut(&Attr, &[u8]) -> Result<()>) -> Result<()> {
    // Blocks are whole in memory, whatever is asked for; other files are read in parts.
    const PART: u32 = 4 << 20;
    if attr.kind == ObjectKind::Directory {
        return Err(Error::usage("is a directory"));
    }
    let open = vfs.open(attr.inode)?;
    let mut offset = 0;
    let result = loop {
        let part = vfs.read(open.handle, offset, PART, |bytes| with(attr, bytes).map(|()| bytes.len() as u64));
        match part.and_then(|passed| passed) {
            Ok(length) if length > 0 => offset += length,
            Ok(_) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    vfs.release(open.handle);
    result?;
    if offset != attr.size && !attr.volatile {
        return Err(Error::corrupt(format!("{offset} bytes; {} were told", attr.size)));
    }
    Ok(())
}
