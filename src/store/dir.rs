//! A directory of the file system, everything opened beneath a root descriptor.
//!
//! Only regular files are ever opened for reading: a FIFO or device is refused by its type before. Links are followed inside the
//! root (see `dir/resolve.rs`); a link whose target is missing is an error and not an absence, since what it stands for was
//! not fetched or not mounted (git-annex, detached disks), and an absent chunk would read as fill values. No descriptor is kept
//! but the root's. A file is compared with itself before and after reading, so that bytes and version belong together.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod apart;
mod resolve;

use super::{Key, Listing, Meta, ObjectKind, Range, Requests, Store, Version};
use crate::error::{Error, Kind, Result};
use crate::pieces;
pub use apart::stay_out;
use resolve::Root;
use rustix::fs::{AtFlags, FileType, OFlags, RawDir, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Bytes of names fetched from the kernel at once.
const NAMES: usize = 256 << 10;

/// Bytes that the longest name takes there.
const NAME: usize = 280;

/// Threads that look at the files of a directory.
const LOOKING: usize = 8;

/// Fewest files that are worth a thread.
const LEAST_LOOKS: usize = 256;

/// In a second.
const NANOSECONDS: u128 = 1_000_000_000;

/// How a directory is opened.
#[derive(Debug, Clone, Copy, Default)]
pub struct DirOptions {
    /// Follow symbolic links that lead outside the directory.
    pub follow_symlinks: bool,
}

/// A directory of the file system.
pub struct DirStore {
    path: PathBuf,
    root: Root,
    gets: AtomicU64,
    heads: AtomicU64,
    lists: AtomicU64,
    read: AtomicU64,
}

impl DirStore {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where there is nothing or no directory; [`Kind::Denied`] where it may not be opened.
    pub fn open(path: impl AsRef<Path>, options: DirOptions) -> Result<Self> {
        let path = path.as_ref();
        let root = Root::open(path, options.follow_symlinks).map_err(|e| e.about(path.display()))?;
        let counter = AtomicU64::default;
        Ok(Self { path: path.to_owned(), root, gets: counter(), heads: counter(), lists: counter(), read: counter() })
    }

    fn head_of(&self, key: &Key) -> Result<Meta> {
        let object = self.root.look(key)?;
        meta(&stat(&object)?)
    }

    fn read_into(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        let file = self.root.open_file(key)?;
        let before = meta(&stat(&file)?)?;
        if before.kind == ObjectKind::Directory {
            return Err(Error::corrupt("a directory, where a file was expected"));
        }
        let changed = || Error::new(Kind::Changed, "the file is another version than the one that was opened");
        if pin.is_some_and(|pin| *pin != before.version) {
            return Err(changed());
        }
        let (start, end) = range.within(before.size);
        let length = end.saturating_sub(start);
        if length > limit {
            return Err(Error::too_big(format!("{length} bytes; at most {limit} are read")));
        }
        let length = usize::try_from(length).map_err(|_| Error::too_big(format!("{length} bytes")))?;
        read_exact(&file, start, length, into)?;
        if meta(&stat(&file)?)?.version != before.version {
            return Err(Error::new(Kind::Changed, "the file changed while it was read"));
        }
        self.read.fetch_add(super::len64(length), Ordering::Relaxed);
        Ok(before)
    }

    fn names(&self, key: &Key, see: &mut dyn FnMut(&[u8], ObjectKind) -> Result<()>) -> Result<()> {
        let directory = self.root.open_directory(key)?;
        let mut buffer: Vec<u8> = Vec::with_capacity(pieces::piece(NAMES).max(NAME));
        let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // What a removed directory answers.
                Err(Errno::NOENT) => break,
                entry => entry.map_err(failed)?,
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Directory => ObjectKind::Directory,
                FileType::Symlink | FileType::Unknown => self.kind_of(&directory, key, name)?,
                _ => ObjectKind::File,
            };
            see(name, kind)?;
        }
        if stat(&directory)?.st_nlink == 0 {
            return Err(removed());
        }
        Ok(())
    }

    // The kind of a name that the listing itself does not tell. Only a directory is worth a second look: is it to be entered?
    fn kind_of(&self, directory: &OwnedFd, key: &Key, name: &[u8]) -> Result<ObjectKind> {
        let is_directory = self.root.peek(directory.as_fd(), name, OFlags::DIRECTORY).is_ok();
        if is_directory && key.join(name).and_then(|child| self.head_of(&child)).is_ok_and(|m| m.kind == ObjectKind::Directory) {
            return Ok(ObjectKind::Directory);
        }
        Ok(ObjectKind::File)
    }
}

impl Store for DirStore {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn head(&self, key: &Key) -> Result<Meta> {
        self.heads.fetch_add(1, Ordering::Relaxed);
        self.head_of(key).map_err(|e| e.about(key))
    }

    fn heads(&self, key: &Key, names: &[&[u8]]) -> Vec<Option<Meta>> {
        self.heads.fetch_add(super::len64(names.len()), Ordering::Relaxed);
        let Ok(directory) = self.root.open_directory(key) else { return vec![None; names.len()] };
        let look = |name: &[u8]| {
            let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT).ok()?;
            meta(&stat).ok()
        };
        let all = |part: &[&[u8]]| part.iter().map(|name| look(name)).collect::<Vec<_>>();
        // More threads than processors: each waits for the disk now and then.
        std::thread::scope(|scope| {
            let parts: Vec<_> = names
                .chunks(names.len().div_ceil(LOOKING).max(LEAST_LOOKS))
                .map(|part| (part, std::thread::Builder::new().spawn_scoped(scope, || all(part))))
                .collect();
            let found = parts.into_iter().map(|(part, found)| match found {
                Ok(thread) => thread.join().unwrap_or_else(|_| vec![None; part.len()]),
                // No more threads may be started.
                Err(_) => all(part),
            });
            found.flatten().collect()
        })
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.read_into(key, range, pin, limit, into).map_err(|e| {
            into.clear();
            e.about(key)
        })
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        let mut listing = Listing::default();
        self.names(key, &mut |name, kind| listing.push(name, kind)).map_err(|e| e.about(key))?;
        Ok(listing)
    }

    fn list_each(&self, key: &Key, see: &mut dyn FnMut(&[u8], ObjectKind) -> Result<()>) -> Result<()> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.names(key, see).map_err(|e| e.about(key))
    }

    fn lists_slowly(&self) -> bool {
        true
    }

    fn requests(&self) -> Requests {
        Requests {
            get: self.gets.load(Ordering::Relaxed),
            head: self.heads.load(Ordering::Relaxed),
            list: self.lists.load(Ordering::Relaxed),
            bytes: self.read.load(Ordering::Relaxed),
        }
    }
}

// An error number that is no positive answer; "absent" is only said by `resolve`.
fn failed(errno: Errno) -> Error {
    let error = std::io::Error::from(errno);
    match errno {
        Errno::NOENT | Errno::NOTDIR => Error::new(Kind::Unavailable, error.to_string()),
        Errno::DEADLK => Error::corrupt("leads into the mount of this source itself, which cannot wait for itself"),
        _ => error.into(),
    }
}

fn removed() -> Error {
    Error::new(Kind::Unavailable, "the directory was removed")
}

fn stat(object: &OwnedFd) -> Result<Stat> {
    rustix::fs::fstat(object).map_err(failed)
}

fn meta(stat: &Stat) -> Result<Meta> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => ObjectKind::File,
        FileType::Directory => ObjectKind::Directory,
        other => return Err(special(other)),
    };
    let size = if kind == ObjectKind::File { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
    let modified = nanoseconds(stat.st_mtime, i128::from(stat.st_mtime_nsec));
    let changed = nanoseconds(stat.st_ctime, i128::from(stat.st_ctime_nsec));
    let version = Version::File { device: stat.st_dev, inode: stat.st_ino, size, modified, changed };
    Ok(Meta { kind, size, modified: system_time(modified), version, seekable: true })
}

fn special(kind: FileType) -> Error {
    Error::corrupt(match kind {
        FileType::Fifo => "a FIFO, which is never opened",
        FileType::Socket => "a socket, which is never opened",
        _ => "a device, which is never opened",
    })
}

fn nanoseconds(seconds: i64, nanoseconds: i128) -> i128 {
    i128::from(seconds).saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

fn system_time(nanoseconds: i128) -> SystemTime {
    // All that a file system may have: nanoseconds alone, in 64 bits, end in 2554.
    let distance = nanoseconds.unsigned_abs();
    let part = u32::try_from(distance % NANOSECONDS).unwrap_or(0);
    let distance = Duration::new(u64::try_from(distance / NANOSECONDS).unwrap_or(u64::MAX), part);
    let epoch = SystemTime::UNIX_EPOCH;
    let time = if nanoseconds < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) };
    time.unwrap_or(epoch)
}

// Exactly `length` bytes from `start`. A buffer that is long already is written over, and a new one is never zeroed first.
fn read_exact(file: &OwnedFd, start: u64, length: usize, into: &mut Vec<u8>) -> Result<()> {
    let ended = || Error::new(Kind::Changed, "the file was cut while it was read");
    if into.capacity() < length {
        *into = Vec::new();
        super::reserve(into, length)?;
    }
    if into.is_empty() && into.capacity() == length {
        while into.len() < length {
            let position = start.saturating_add(super::len64(into.len()));
            match read_on(file, position, length.saturating_sub(into.len()), into) {
                Err(Errno::INTR) => {}
                Ok(0) => return Err(ended()),
                read => {
                    read.map_err(failed)?;
                }
            }
        }
        return Ok(());
    }
    super::sized(into, length)?;
    let mut done = 0_usize;
    while let Some(rest) = into.get_mut(done..).filter(|r| !r.is_empty()) {
        let piece = pieces::piece(rest.len());
        match rustix::io::pread(file, rest.get_mut(..piece).unwrap_or_default(), start.saturating_add(super::len64(done))) {
            Err(Errno::INTR) => {}
            Ok(0) => return Err(ended()),
            read => done = done.saturating_add(read.map_err(failed)?),
        }
    }
    Ok(())
}

// Appends up to `most` bytes, for which there is just the capacity.
fn read_on(file: &OwnedFd, position: u64, most: usize, into: &mut Vec<u8>) -> rustix::io::Result<usize> {
    let length = pieces::piece(most);
    if length == most {
        return rustix::io::pread(file, rustix::buffer::spare_capacity(into), position);
    }
    let mut piece = vec![0; length];
    let read = rustix::io::pread(file, piece.as_mut_slice(), position)?;
    into.extend(piece.into_iter().take(read));
    Ok(read)
}

const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_far_away_as_may_be() {
        // As GNU date has them: `date -u -d @99999999999 +%Y` is 5138.
        let seconds = |n: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(n);
        assert_eq!(system_time(nanoseconds(99_999_999_999, 5)), seconds(99_999_999_999) + Duration::from_nanos(5));
        assert_eq!(
            system_time(nanoseconds(-99_999_999_999, 5)),
            SystemTime::UNIX_EPOCH - Duration::new(99_999_999_998, 999_999_995)
        );
    }

    #[test]
    fn a_file_that_ends_early_was_cut() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("f");
        std::fs::write(&path, "abcde").unwrap();
        let file = OwnedFd::from(std::fs::File::open(path).unwrap());
        // Into a new buffer, and into one that is there.
        for mut into in [Vec::new(), vec![9; 4], vec![9; 20]] {
            read_exact(&file, 1, 4, &mut into).unwrap();
            assert_eq!(into, b"bcde");
            for (start, length) in [(0, 6), (1, 5), (5, 1), (1 << 40, 10)] {
                let e = read_exact(&file, start, length, &mut into).unwrap_err();
                assert_eq!(e.kind(), Kind::Changed, "{start} {length}");
                into.clear();
            }
        }
    }
}
