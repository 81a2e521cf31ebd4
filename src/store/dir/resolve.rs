//! Keys to descriptors: every path is resolved beneath the root by the kernel.
//!
//! The ordinary path holds no link, and takes one `openat2`. Where a link is on the way, the directories of the key are compared with each
//! other as well: one that is its own ancestor is refused, so that a recursive walk ends. An absolute link, or one that leaves
//! the root and comes back, is followed when what it leads to is inside. Without `openat2` (before Linux 5.6, or behind a filter that
//! forbids it) an object is opened without access to its content first, and `/proc` tells where it really is.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{LIST, LOOK, READ, apart, failed, removed, special, stat};
use crate::error::{Error, Kind, Result};
use crate::store::Key;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longest path given to the kernel at once; it takes 4095 bytes.
const PATH: usize = 4000;

/// Longest component of a path, in every Linux file system.
const COMPONENT: usize = 255;

/// The root descriptor.
pub struct Root {
    fd: OwnedFd,
    follow: bool,
    /// Whether the kernel has `openat2`.
    pub(super) openat2: bool,
}

impl Root {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// By the meaning of the system's error.
    pub fn open(path: &Path, follow: bool) -> Result<Self> {
        let fd = rustix::fs::openat(CWD, path, LOOK | OFlags::DIRECTORY, Mode::empty()).map_err(std::io::Error::from)?;
        let tried = rustix::fs::openat2(&fd, ".", LOOK, Mode::empty(), ResolveFlags::BENEATH);
        let openat2 = !matches!(tried, Err(Errno::NOSYS | Errno::PERM));
        Ok(Self { fd, follow, openat2 })
    }

    /// A descriptor that only tells what is at `key`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] for a positive answer; [`Kind::Denied`] for a link that leads outside.
    pub fn look(&self, key: &Key) -> Result<OwnedFd> {
        self.resolve(key, LOOK)
    }

    /// The regular file at `key`, open for reading.
    ///
    /// # Errors
    /// As [`Root::look`]; [`Kind::Corrupt`] for a directory or special file, which is not opened.
    pub fn open_file(&self, key: &Key) -> Result<OwnedFd> {
        // The type is told first, since opening a FIFO or a device has effects.
        let object = self.look(key)?;
        match FileType::from_raw_mode(stat(&object)?.st_mode) {
            FileType::RegularFile => self.resolve(key, READ),
            FileType::Directory => Err(Error::corrupt("a directory, where a file was expected")),
            other => Err(special(other)),
        }
    }

    /// The directory at `key`, open for listing.
    ///
    /// # Errors
    /// As [`Root::look`]; [`Kind::NotFound`] also for a file.
    pub fn open_directory(&self, key: &Key) -> Result<OwnedFd> {
        self.resolve(key, LIST)
    }

    fn resolve(&self, key: &Key, flags: OFlags) -> Result<OwnedFd> {
        if key.as_bytes().split(|&b| b == b'/').any(|part| part.len() > COMPONENT) {
            return Err(Error::not_found());
        }
        let opened = match self.at(key, flags, ResolveFlags::NO_SYMLINKS) {
            // A link on the way.
            Err(Errno::LOOP) => self.through_links(key, flags)?,
            opened => opened,
        };
        match opened {
            Ok(fd) => Ok(fd),
            Err(Errno::NOENT) => Err(self.absence(key)),
            Err(Errno::NOTDIR) => Err(self.in_the_way(key)),
            Err(Errno::XDEV) => Err(outside()),
            Err(e) => Err(failed(e)),
        }
    }

    // One resolution beneath the root; a path too long for one call goes in two steps.
    fn at(&self, key: &Key, flags: OFlags, links: ResolveFlags) -> std::result::Result<OwnedFd, Errno> {
        let bytes = key.as_bytes();
        if bytes.len() <= PATH {
            return self.open_at(self.fd.as_fd(), path(key), flags, links);
        }
        let middle = bytes.get(..PATH).and_then(|head| head.iter().rposition(|&b| b == b'/')).ok_or(Errno::NAMETOOLONG)?;
        let (head, tail) = bytes.split_at_checked(middle).ok_or(Errno::NAMETOOLONG)?;
        let directory = self.open_at(self.fd.as_fd(), Path::new(OsStr::from_bytes(head)), LOOK | OFlags::DIRECTORY, links)?;
        let tail = tail.strip_prefix(b"/").unwrap_or(tail);
        self.open_at(directory.as_fd(), Path::new(OsStr::from_bytes(tail)), flags, links)
    }

    fn open_at(
        &self,
        from: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
        links: ResolveFlags,
    ) -> std::result::Result<OwnedFd, Errno> {
        if !self.openat2 {
            return self.open_checked(from, path, flags, links);
        }
        let outside =
            if self.follow && !links.contains(ResolveFlags::NO_SYMLINKS) { ResolveFlags::empty() } else { ResolveFlags::BENEATH };
        let how = outside | links | ResolveFlags::NO_MAGICLINKS;
        // Where links are followed, it has been looked where they lead.
        match links.contains(ResolveFlags::NO_SYMLINKS) {
            true => apart::open(from, path, flags, how, Some(&self.fd)),
            false => apart::open_any(from, path, flags, how),
        }
    }

    /// What `name` in the directory `from` leads to, by links to wherever it is. It is looked at only.
    ///
    /// # Errors
    /// The system's, and as [`apart::check`].
    pub fn peek(&self, from: BorrowedFd<'_>, name: &[u8], flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        let name = Path::new(OsStr::from_bytes(name));
        if self.openat2 {
            return apart::open(from, name, LOOK | flags, ResolveFlags::NO_MAGICLINKS, None);
        }
        apart::check(from, name)?;
        rustix::fs::openat(from, name, LOOK | flags, Mode::empty())
    }

    // The same of a path below the root of which it is known that it does not lead into the mount itself.
    fn peek_on(&self, path: &[u8], flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        rustix::fs::openat(&self.fd, Path::new(OsStr::from_bytes(path)), LOOK | flags, Mode::empty())
    }

    // Without openat2: a look first, which has no effect on what is looked at, then its real place, then the same object by it.
    fn open_checked(
        &self,
        from: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
        links: ResolveFlags,
    ) -> std::result::Result<OwnedFd, Errno> {
        apart::check(from, path)?;
        let object = rustix::fs::openat(from, path, LOOK, Mode::empty())?;
        let (real, base) = (real_path(&object)?, real_path(&from)?);
        let direct = if path == Path::new(".") { base } else { base.join(path) };
        if links.contains(ResolveFlags::NO_SYMLINKS) && real != direct {
            return Err(Errno::LOOP);
        }
        if !self.follow && !real.starts_with(real_path(&self.fd)?) {
            return Err(Errno::XDEV);
        }
        if flags.contains(OFlags::PATH) {
            let wrong = flags.contains(OFlags::DIRECTORY)
                && rustix::fs::fstat(&object).is_ok_and(|s| FileType::from_raw_mode(s.st_mode) != FileType::Directory);
            return if wrong { Err(Errno::NOTDIR) } else { Ok(object) };
        }
        rustix::fs::openat(CWD, descriptor(&object), flags, Mode::empty())
    }

    // Follows links; the outer result carries what is decided here.
    fn through_links(&self, key: &Key, flags: OFlags) -> Result<std::result::Result<OwnedFd, Errno>> {
        apart::check(self.fd.as_fd(), path(key)).map_err(failed)?;
        self.no_loop(key)?;
        let opened = self.at(key, flags, ResolveFlags::empty());
        if !matches!(opened, Err(Errno::XDEV)) {
            return Ok(opened);
        }
        // An absolute link, or one that leaves the root and returns: is its target inside?
        let object = match self.peek_on(path(key).as_os_str().as_bytes(), OFlags::empty()) {
            Ok(object) => object,
            // Which of the names is missing, and whether that is inside, is told by `absence`.
            Err(Errno::NOENT) => return Ok(Err(Errno::NOENT)),
            Err(_) => return Err(outside()),
        };
        let root = real_path(&self.fd).map_err(failed)?;
        let real = real_path(&object).map_err(failed)?;
        let Ok(inside) = real.strip_prefix(&root) else { return Err(outside()) };
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        Ok(self.open_at(self.fd.as_fd(), inside, flags, ResolveFlags::NO_SYMLINKS))
    }

    // Refuses a key in which a directory is below itself.
    fn no_loop(&self, key: &Key) -> Result<()> {
        let identity = |fd: &OwnedFd| stat(fd).map(|s| (s.st_dev, s.st_ino));
        let mut seen = vec![identity(&self.fd)?];
        let bytes = key.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i).chain([bytes.len()]);
        for above in ends.filter_map(|end| bytes.get(..end)).filter(|a| a.len() <= PATH) {
            // Resolved without the check of the root: nothing is read, and where it leads is checked afterwards.
            let Ok(fd) = self.peek_on(above, OFlags::DIRECTORY) else { break };
            let this = identity(&fd)?;
            if seen.contains(&this) {
                return Err(Error::corrupt("a symbolic link leads into one of its own directories: a loop"));
            }
            seen.push(this);
        }
        Ok(())
    }

    // What the kernel's "no such file" means for `key`: absent, or something else that must not be taken for absence.
    fn absence(&self, key: &Key) -> Error {
        let mut name = key.as_bytes();
        loop {
            let (parent, last) = match name.iter().rposition(|&b| b == b'/') {
                Some(slash) => (name.get(..slash).unwrap_or_default(), name.get(slash.saturating_add(1)..).unwrap_or_default()),
                None => (&b""[..], name),
            };
            let parent_key = match Key::root().join(parent) {
                _ if parent.is_empty() => Key::root(),
                Ok(key) => key,
                Err(e) => return e,
            };
            let flags = LOOK | OFlags::DIRECTORY;
            let opened = match self.at(&parent_key, flags, ResolveFlags::NO_SYMLINKS) {
                Err(Errno::LOOP) => match self.through_links(&parent_key, flags) {
                    Ok(opened) => opened,
                    Err(e) => return e,
                },
                opened => opened,
            };
            let directory = match opened {
                Ok(directory) => directory,
                Err(Errno::NOENT) if !parent.is_empty() => {
                    name = parent;
                    continue;
                }
                Err(Errno::NOTDIR) => return self.in_the_way(key),
                Err(Errno::XDEV) => return outside(),
                Err(e) => return failed(e),
            };
            return match rustix::fs::statat(&directory, last, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT) {
                Err(Errno::NOENT) => match stat(&self.fd) {
                    Ok(root) if root.st_nlink > 0 => Error::not_found(),
                    Ok(_) => removed(),
                    Err(e) => e,
                },
                Ok(s) if FileType::from_raw_mode(s.st_mode) == FileType::Symlink => Error::new(
                    Kind::Dangling,
                    format!("the target of the symbolic link {} is missing", String::from_utf8_lossy(name)),
                ),
                Ok(_) => Error::new(Kind::Unavailable, "it appeared while it was looked up"),
                Err(e) => failed(e),
            };
        }
    }

    // What the kernel's "not a directory" means for `key`: below a file there is nothing. Of anything else that stands in the place of a
    // directory it is not known what should lie in it.
    fn in_the_way(&self, key: &Key) -> Error {
        if let Err(e) = apart::check(self.fd.as_fd(), path(key)) {
            return failed(e);
        }
        let bytes = key.as_bytes();
        let ends = bytes.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(i, _)| i).chain([bytes.len()]);
        for above in ends.filter_map(|end| bytes.get(..end)).filter(|a| !a.is_empty() && a.len() <= PATH) {
            let kind = |flags| Ok(FileType::from_raw_mode(stat(&self.peek_on(above, flags).map_err(failed)?)?.st_mode));
            let named = match kind(OFlags::NOFOLLOW) {
                Ok(FileType::Symlink) => kind(OFlags::empty()).map(|target| (target, true)),
                other => other.map(|kind| (kind, false)),
            };
            match named {
                Ok((FileType::Directory, _)) => {}
                Ok((FileType::RegularFile, false)) => return Error::not_found(),
                Ok((FileType::RegularFile, true)) => {
                    let name = String::from_utf8_lossy(above);
                    return Error::corrupt(format!("the symbolic link {name} leads to a file, where a directory was expected"));
                }
                Ok((other, _)) => return special(other),
                Err(e) => return e,
            }
        }
        Error::new(Kind::Unavailable, "it changed while it was looked up")
    }
}

fn outside() -> Error {
    Error::new(Kind::Denied, "a symbolic link leads outside the source (--follow-symlinks follows it)")
}

// The path of a key as the kernel takes it; the root is the directory itself.
fn path(key: &Key) -> &Path {
    Path::new(if key.is_root() { OsStr::new(".") } else { OsStr::from_bytes(key.as_bytes()) })
}

fn descriptor(fd: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}

/// Where the kernel says that an open object is.
pub fn real_path(fd: &impl AsFd) -> std::result::Result<PathBuf, Errno> {
    let target = rustix::fs::readlinkat(CWD, descriptor(fd), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn without_openat2_the_answers_are_the_same() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        std::fs::create_dir_all(root.join("a")).unwrap();
        std::fs::write(root.join("a/f"), "1").unwrap();
        std::fs::write(temp.path().join("out"), "2").unwrap();
        symlink("a/f", root.join("in")).unwrap();
        symlink(root.join("a"), root.join("absolute")).unwrap();
        symlink("../out", root.join("out")).unwrap();
        symlink("..", root.join("a/up")).unwrap();
        symlink("none", root.join("dangling")).unwrap();
        for follow in [false, true] {
            let mut root = Root::open(&root, follow).unwrap();
            let names = [
                "a",
                "a/f",
                "in",
                "absolute",
                "absolute/f",
                "absolute/g",
                "out",
                "a/up",
                "a/up/a/f",
                "dangling",
                "none",
                "a/f/x",
            ];
            let answers = |root: &Root| -> Vec<_> {
                let kind = |r: Result<OwnedFd>| r.map(|fd| stat(&fd).unwrap().st_ino).map_err(|e| e.kind());
                let keys = names.iter().map(|n| Key::root().join(n).unwrap());
                keys.map(|k| (kind(root.look(&k)), kind(root.open_file(&k)), kind(root.open_directory(&k)))).collect()
            };
            assert!(root.openat2);
            let with = answers(&root);
            root.openat2 = false;
            assert_eq!(answers(&root), with);
            assert_eq!(with.iter().filter(|a| a.1.is_ok()).count(), if follow { 4 } else { 3 });
        }
    }
}
