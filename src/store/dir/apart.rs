//! Paths that lead into the mount that this process serves.
//!
//! A link in a source may lead into the mount of that source, by way of other links, or a directory of it may be mounted there once more.
//! A lookup there would be a request to this process, made while it answers one, and often for the very name that is being looked up: the
//! kernel lets the second wait for the first, for ever, and no signal ends that. So nothing is looked up on the mount's own file system.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::LOOK;

/// The device, as [`number`] has it; 0 is none.
static OWN: AtomicU64 = AtomicU64::new(0);

/// Most links on one path, as the kernel has it.
const LINKS: usize = 40;

/// Nothing is looked up any more on the file system of this device, which is that of the mount that this process serves.
pub fn stay_out(major: u32, minor: u32) {
    OWN.store(number(major, minor), Ordering::Relaxed);
}

fn number(major: u32, minor: u32) -> u64 {
    u64::from(major) << 32 | u64::from(minor)
}

/// Opens `path` from the directory `from`, with openat2(2) where the kernel has it.
///
/// # Errors
/// The system's; [`Errno::DEADLK`] for what leads into the mount itself.
pub fn open(from: BorrowedFd<'_>, path: &Path, flags: OFlags, how: Option<ResolveFlags>) -> Result<OwnedFd, Errno> {
    let own = OWN.load(Ordering::Relaxed);
    let Some(how) = how else {
        if own != 0 && leads_in(own, from, path)? {
            return Err(Errno::DEADLK);
        }
        return repeated(|| rustix::fs::openat(from, path, flags, Mode::empty()));
    };
    let open = |how| repeated(|| rustix::fs::openat2(from, path, flags, Mode::empty(), how));
    if own == 0 {
        return open(how);
    }
    match open(how | ResolveFlags::NO_XDEV) {
        // Another file system is on the way, or what `how` forbids.
        Err(Errno::XDEV) if leads_in(own, from, path)? => Err(Errno::DEADLK),
        Err(Errno::XDEV) => open(how),
        opened => opened,
    }
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
/// For want of descriptors or memory.
fn leads_in(own: u64, from: BorrowedFd<'_>, path: &Path) -> Result<bool, Errno> {
    match walk(own, from, path) {
        Err(e @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(e),
        found => Ok(found.unwrap_or(false)),
    }
}

fn walk(own: u64, from: BorrowedFd<'_>, path: &Path) -> Result<bool, Errno> {
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
        if number(stat.stx_dev_major, stat.stx_dev_minor) == own {
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
        let own = number(stat.stx_dev_major, stat.stx_dev_minor);
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
