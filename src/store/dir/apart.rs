//! Paths that lead into the mount that this process serves.
//!
//! A link in a source may lead into the mount of that source, by way of other links, or a directory of it may be mounted there once more.
//! A lookup there would be a request to this process, made while it answers one, and often for the very name that is being looked up: the
//! kernel lets the second wait for the first, for ever, and no signal ends that. So nothing is looked up on the mount's own file system.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::LOOK;
use super::resolve::real_path;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Where the file system of a device is mounted, in the text of the mount table.
type Places = fn((u32, u32), &[u8]) -> Vec<PathBuf>;

static OWN: OnceLock<Own> = OnceLock::new();

/// The mount that this process serves.
struct Own {
    device: (u32, u32),
    places: Places,
    /// The mount table, and where the mount was when it was read.
    table: Mutex<Option<(File, Vec<PathBuf>)>>,
}

/// The mount table of this process. Whoever polls it is told of changes since he read it, proc(5).
const TABLE: &str = "/proc/self/mountinfo";

/// Most links on one path, as the kernel has it.
const LINKS: usize = 40;

/// Nothing is looked up any more on the file system of this device (major and minor number), which is that of the mount that this process
/// serves. `places` tells where that is.
pub fn stay_out(device: (u32, u32), places: Places) {
    drop(OWN.set(Own { device, places, table: Mutex::default() }));
}

impl Own {
    fn check(&self, from: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
        if leads_in(self.device, from, path)? { Err(Errno::DEADLK) } else { Ok(()) }
    }

    /// Whether it is mounted at `directory` or below, or that is not known.
    fn is_below(&self, directory: &Path) -> bool {
        let mut table = self.table.lock();
        let is_new = table.as_ref().is_none_or(|(file, _)| {
            let mut asked = [PollFd::new(file, PollFlags::PRI)];
            !matches!(rustix::event::poll(&mut asked, Some(&Timespec::default())), Ok(0))
        });
        if is_new {
            let read = || {
                let (mut file, mut text) = (File::open(TABLE)?, Vec::new());
                file.read_to_end(&mut text)?;
                std::io::Result::Ok((file, (self.places)(self.device, &text)))
            };
            *table = read().ok();
        }
        // A name that is none is that of a directory which was removed, or cannot be reached.
        let Some((_, places)) = table.as_ref().filter(|_| directory.is_absolute()) else { return true };
        places.iter().any(|place| place.starts_with(directory))
    }
}

/// That `path`, from the directory `from`, does not lead into the mount itself.
///
/// # Errors
/// [`Errno::DEADLK`] where it does; the system's for want of descriptors or memory.
pub fn check(from: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let Some(own) = OWN.get() else { return Ok(()) };
    // What stays on its file system, and what ends there, goes into no other: the mount is one of its own.
    match open_any(from, path, LOOK, ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV) {
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(_) => own.check(from, path),
    }
}

/// Opens `path`, which holds no link, or leads to wherever it does without `beneath`, from the directory `from`: with openat2(2).
/// `beneath` is the directory out of which it cannot lead.
///
/// # Errors
/// The system's, and as [`check`].
pub fn open(
    from: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    how: ResolveFlags,
    beneath: Option<&OwnedFd>,
) -> Result<OwnedFd, Errno> {
    let Some(own) = OWN.get() else { return open_any(from, path, flags, how) };
    match open_any(from, path, flags, how | ResolveFlags::NO_XDEV) {
        // Another file system is on the way, or what `how` forbids.
        Err(Errno::XDEV) => {
            if beneath.is_none_or(|root| real_path(root).map_or(true, |root| own.is_below(&root))) {
                own.check(from, path)?;
            }
            open_any(from, path, flags, how)
        }
        opened => opened,
    }
}

/// Opens `path` by openat2(2) wherever it leads.
///
/// # Errors
/// The system's.
pub fn open_any(from: BorrowedFd<'_>, path: &Path, flags: OFlags, how: ResolveFlags) -> Result<OwnedFd, Errno> {
    repeated(|| rustix::fs::openat2(from, path, flags, Mode::empty(), how))
}

/// How often a resolution that a concurrent rename disturbed is repeated.
const RETRIES: usize = 8;

fn repeated(open: impl Fn() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let mut tries = 0..RETRIES;
    loop {
        match open() {
            Err(Errno::INTR) => {}
            // A rename crossed the resolution.
            Err(Errno::AGAIN) if tries.next().is_some() => {}
            opened => return opened,
        }
    }
}

/// Whether `path`, from the directory `from`, passes through or ends in the file system `own`. Goes name by name, and no further than the
/// directory where that is mounted. What cannot be resolved does not lead there.
///
/// # Errors
/// For want of descriptors or memory, or where the kernel is not to be asked.
fn leads_in(own: (u32, u32), from: BorrowedFd<'_>, path: &Path) -> Result<bool, Errno> {
    match walk(own, from, path) {
        // What asks for no more than is known came with Linux 4.11.
        Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSYS | Errno::PERM)) => Err(e),
        found => Ok(found.unwrap_or(false)),
    }
}

fn walk(own: (u32, u32), from: BorrowedFd<'_>, path: &Path) -> Result<bool, Errno> {
    let start = |path: &Path| match path.is_absolute() {
        true => rustix::fs::openat(CWD, "/", LOOK, Mode::empty()).map(Some),
        false => Ok(None),
    };
    let mut at = start(path)?.map_or_else(|| rustix::io::dup(from), Ok)?;
    let mut ahead = names(path.as_os_str());
    let mut links = 0..LINKS;
    while let Some(name) = ahead.pop() {
        let next = rustix::fs::openat(&at, &name, LOOK | OFlags::NOFOLLOW, Mode::empty())?;
        // What is known already is enough: asked for more, the file system would have to answer.
        let known = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(&next, "", known, StatxFlags::TYPE)?;
        if (stat.stx_dev_major, stat.stx_dev_minor) == own {
            return Ok(true);
        }
        if FileType::from_raw_mode(stat.stx_mode.into()) != FileType::Symlink {
            at = next;
            continue;
        }
        links.next().ok_or(Errno::LOOP)?;
        let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        at = start(target)?.unwrap_or(at);
        ahead.extend(names(target.as_os_str()));
    }
    Ok(false)
}

/// The names of a path, the first one last.
fn names(path: &OsStr) -> Vec<OsString> {
    let names = path.as_bytes().rsplit(|&b| b == b'/').filter(|name| !matches!(*name, b"" | b"."));
    names.map(|name| OsString::from_vec(name.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;

    #[test]
    fn where_paths_lead() {
        let stat = rustix::fs::statx(CWD, "/proc", AtFlags::empty(), StatxFlags::TYPE).unwrap();
        let own = (stat.stx_dev_major, stat.stx_dev_minor);
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("f"), "1").unwrap();
        let up: String = root.components().map(|_| "../").collect();
        for (name, target) in [
            ("absolute", "/proc".to_owned()),
            ("below", "/proc/self/status".to_owned()),
            ("relative", format!("{up}proc")),
            ("way", "a/b/on".to_owned()),
            ("a/b/on", "../../absolute/sys".to_owned()),
            ("out", "/usr".to_owned()),
            ("loop", "loop".to_owned()),
            ("none", "a/none/../absolute".to_owned()),
            ("home", root.join("a").to_str().unwrap().to_owned()),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        let directory = rustix::fs::open(&root, LOOK, Mode::empty()).unwrap();
        let leads = |path: &str| leads_in(own, directory.as_fd(), Path::new(path)).unwrap();
        for path in ["absolute", "absolute/x/y", "below", "relative", "way", "way/x", "home/../absolute", "/proc", "a/b/on"] {
            assert!(leads(path), "{path}");
        }
        for path in [".", "a", "f", "f/x", "out", "out/..", "loop", "none", "home/b", "a/../f", "gone/x", "/usr/bin"] {
            assert!(!leads(path), "{path}");
        }
    }
}
