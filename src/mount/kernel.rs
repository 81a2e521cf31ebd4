//! What the kernel's mount table says, and how to unmount: directly as root, through `fusermount3` as anyone else.

use crate::error::{Error, Kind, Result};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::mount::UnmountFlags;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The type of our mounts in the mount table.
const TYPE: &[u8] = b"fuse.chunkmount";

/// The mount table of this process.
const TABLE: &str = "/proc/self/mountinfo";

/// How long others may take to mount where this process is to.
const TURN: Duration = Duration::from_secs(1);

/// `chunkmount -u`: unmounts, lazily when files are open.
///
/// # Errors
/// [`Kind::Usage`] when nothing of ours is mounted there, [`Kind::Mount`] when the kernel refuses.
pub fn unmount_command(mountpoint: &Path) -> Result<()> {
    let path = resolve(mountpoint);
    if !is_ours(&path)? {
        return Err(Error::usage("no chunkmount is mounted there").about(mountpoint.display()));
    }
    if unmount(&path, UnmountFlags::empty(), &["-u", "-q"]).is_ok() {
        return Ok(());
    }
    detach(&path)
}

/// Takes a mount out of the tree at once; it lives on for those who hold files open.
///
/// # Errors
/// [`Kind::Mount`] when the kernel refuses although it is still there.
pub fn detach(mountpoint: &Path) -> Result<()> {
    match unmount(mountpoint, UnmountFlags::DETACH, &["-u", "-q", "-z"]) {
        Err(e) if is_ours(mountpoint)? => Err(e),
        _ => Ok(()),
    }
}

/// A mount of ours by the number of its file system's device, by which it is known when its path is another one, or leads to what has been
/// mounted over it.
pub struct Own {
    path: PathBuf,
    device: Option<Vec<u8>>,
}

impl Own {
    /// The mount that has just been made at `path`.
    pub fn at(path: &Path) -> Self {
        let table = std::fs::read(TABLE).unwrap_or_default();
        let mount = topmost(&table, path, reached(path)).filter(|entry| entry.kind == TYPE);
        Self { path: path.to_owned(), device: mount.map(|entry| entry.device.to_vec()) }
    }

    /// Major and minor number of the device, where they are known.
    pub fn device(&self) -> Option<(u32, u32)> {
        let (major, minor) = std::str::from_utf8(self.device.as_deref()?).ok()?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// Takes it out of the tree as [`detach`] does: from where it was mounted or, where a directory above that was renamed, from where it
    /// is now. What somebody has mounted over it or over a directory above stays, and it below that.
    ///
    /// # Errors
    /// As [`detach`].
    pub fn detach(&self) -> Result<()> {
        let Some(device) = &self.device else { return detach(&self.path) };
        let found = || Ok::<_, Error>(places(&std::fs::read(TABLE)?, device, reached));
        let mut left = found()?;
        let is_here = left.iter().any(|(path, _)| *path == self.path.as_os_str());
        // One of them may cover another, where somebody has bound it once more.
        for _ in 0..left.len() {
            left.retain(|(path, _)| !is_here || *path == self.path.as_os_str());
            let Some((path, _)) = left.iter().find(|(_, is_covered)| !is_covered) else { break };
            detach(Path::new(path))?;
            left = found()?;
        }
        for (path, _) in left.iter().filter(|(path, is_covered)| *is_covered && (!is_here || *path == self.path.as_os_str())) {
            let path = Path::new(path).display();
            log::warn!("{path}: something else is mounted over this mount, which stays below it until that and it are unmounted");
        }
        Ok(())
    }
}

/// Where any of the file system of a device is mounted, in the table as `table` has it.
pub fn where_is((major, minor): (u32, u32), table: &[u8]) -> Vec<PathBuf> {
    let device = format!("{major}:{minor}");
    entries(table).filter(|entry| entry.device == device.as_bytes()).map(|entry| PathBuf::from(entry.path)).collect()
}

/// Removes a dead mount that a killed daemon left; refuses a living one. `ask` is to do as [`answers`], and may give up: a mount whose
/// daemon hangs never answers, and only SIGKILL ends a thread that asks it.
///
/// # Errors
/// [`Kind::Usage`] for a living mount, [`Kind::Mount`] when a dead one cannot be removed, and those of `ask`.
pub fn heal(mountpoint: &Path, ask: impl FnOnce(&Path) -> Result<std::io::Result<()>>) -> Result<()> {
    let path = resolve(mountpoint);
    if !is_ours(&path)? {
        return Ok(());
    }
    match ask(&path)? {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)) => {
            log::info!("{}: a dead mount is removed", path.display());
            detach(&path)
        }
        _ => Err(Error::usage("a chunkmount is mounted there already").about(mountpoint.display())),
    }
}

/// The right to mount on a directory, for as long as it is kept, among all that ask for it so: of several that begin at once (each task of a
/// job does) one mounts, and the others find it there. Who keeps others from it for longer than a mount takes means something else by that.
pub fn turn(mountpoint: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(mountpoint, flags, Mode::empty()).ok()?;
    let begun = Instant::now();
    while let Err(e) = rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        if e != rustix::io::Errno::WOULDBLOCK || begun.elapsed() > TURN {
            log::debug!("{}: is mounted on without a lock: {e}", mountpoint.display());
            return None;
        }
        std::thread::sleep(TURN / 100);
    }
    Some(directory)
}

/// The open `/dev/fuse` that a mount point `/dev/fd/N` names: somebody with the right to has mounted it and passed it on.
///
/// # Errors
/// [`Kind::Usage`] where that is no open `/dev/fuse`.
pub fn inherited(mountpoint: &Path) -> Result<Option<OwnedFd>> {
    let Some(number) = mountpoint.to_str().and_then(|path| path.strip_prefix("/dev/fd/")) else { return Ok(None) };
    let refused = |why: String| Error::usage(why).about(mountpoint.display());
    let number: i32 = number.parse().map_err(|_| refused("is no number of a file descriptor".into()))?;
    // The standard input is ours to name; for another number the kernel makes the copy, which some sandboxes forbid.
    let device = match number {
        0 => rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3),
        _ => pidfd_open(getpid(), PidfdFlags::empty()).and_then(|own| pidfd_getfd(own, number, PidfdGetfdFlags::empty())),
    };
    let device = device.map_err(|e| refused(format!("cannot be taken over: {e}; /dev/fd/0 can be everywhere")))?;
    let rdev = rustix::fs::fstat(&device).map(|stat| stat.st_rdev).unwrap_or_default();
    if (rustix::fs::major(rdev), rustix::fs::minor(rdev)) != (10, 229) {
        return Err(refused("is no open /dev/fuse".into()));
    }
    Ok(Some(device))
}

/// Asks a mount for its statistics: the one question that the kernel never answers from memory.
///
/// # Errors
/// `ENOTCONN` or `ECONNABORTED` from a dead one.
pub fn answers(mountpoint: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::statfs(mountpoint).map(|_| ())?)
}

/// The path as the mount table has it, without touching the mount itself: a dead one answers nothing.
fn resolve(mountpoint: &Path) -> PathBuf {
    let absolute = std::path::absolute(mountpoint).unwrap_or_else(|_| mountpoint.to_owned());
    let Some((parent, name)) = absolute.parent().zip(absolute.file_name()) else { return absolute };
    let path = parent.canonicalize().unwrap_or_else(|_| parent.to_owned()).join(name);
    // A link to a mount point is the mount point.
    match std::fs::read_link(&path) {
        Ok(_) => path.canonicalize().unwrap_or(path),
        Err(_) => path,
    }
}

fn unmount(path: &Path, flags: UnmountFlags, helper: &[&str]) -> Result<()> {
    let direct = match rustix::mount::unmount(path, flags) {
        Ok(()) => return Ok(()),
        Err(e) => std::io::Error::from(e),
    };
    if direct.kind() != std::io::ErrorKind::PermissionDenied {
        return Err(Error::new(Kind::Mount, format!("cannot be unmounted: {direct}")).about(path.display()));
    }
    let mut missing = None;
    for program in ["fusermount3", "/bin/fusermount3", "fusermount"] {
        match Command::new(program).args(helper).arg("--").arg(path).stdin(Stdio::null()).output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(Error::new(Kind::Mount, format!("cannot be unmounted: {program}: {said}")).about(path.display()));
            }
            Err(e) => missing = Some(e),
        }
    }
    let reason = missing.map_or(String::new(), |e| format!(" ({e})"));
    Err(Error::new(Kind::Mount, format!("cannot be unmounted without fusermount3{reason}")).about(path.display()))
}

/// Whether the topmost mount at `path` is one of ours.
fn is_ours(path: &Path) -> Result<bool> {
    let table = std::fs::read(TABLE)?;
    Ok(topmost(&table, path, reached(path)).is_some_and(|entry| entry.kind == TYPE))
}

/// The number of the mount that a path leads to, which is what an unmounting of that path takes away. The kernel alone knows it: the lines
/// of `mountinfo` are in the order of their numbers, but a mount may be moved over one that was made after it, or over a directory above.
/// The file system itself is not asked for anything.
///
/// # Errors
/// Where it is not known; nothing there is none.
fn reached(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    use rustix::io::Errno;
    let at = match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        opened => opened?,
    };
    let told = std::fs::read(format!("/proc/self/fdinfo/{}", at.as_raw_fd()))?;
    let id = told.split(|&b| b == b'\n').find_map(|line| Some(line.strip_prefix(b"mnt_id:")?.trim_ascii().to_vec()));
    id.map(Some).ok_or_else(|| std::io::ErrorKind::Unsupported.into())
}

/// The mount at `path` in the text of `mountinfo` where that path leads to the mount of that number; the last one there, where it is not
/// known which it leads to.
fn topmost<'a>(table: &'a [u8], path: &Path, reached: std::io::Result<Option<Vec<u8>>>) -> Option<Entry<'a>> {
    let mut here = entries(table).filter(|entry| entry.path == path.as_os_str());
    match reached {
        Ok(id) => here.find(|entry| Some(entry.id) == id.as_deref()),
        Err(_) => here.last(),
    }
}

/// Where all of the file system of a device is mounted, and whether it is not what its path leads to, as something is mounted over it
/// or over a directory above.
fn places(table: &[u8], device: &[u8], reached: impl Fn(&Path) -> std::io::Result<Option<Vec<u8>>>) -> Vec<(OsString, bool)> {
    let all = entries(table).filter(|entry| entry.device == device && entry.root == b"/");
    let place = |entry: Entry<'_>| {
        let path = Path::new(&entry.path);
        let is_covered = topmost(table, path, reached(path)).is_none_or(|top| top.id != entry.id);
        (entry.path, is_covered)
    };
    all.map(place).collect()
}

/// A line of `mountinfo`.
struct Entry<'a> {
    id: &'a [u8],
    device: &'a [u8],
    /// The directory of the file system that is mounted.
    root: &'a [u8],
    path: OsString,
    kind: &'a [u8],
}

/// The lines of the text of `mountinfo`, proc(5).
fn entries(table: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    table.split(|&b| b == b'\n').filter_map(|line| {
        let mut fields = line.split(|&b| b == b' ');
        let (id, device, root, path) = (fields.next()?, fields.nth(1)?, fields.next()?, fields.next()?);
        let kind = fields.skip_while(|f| *f != b"-").nth(1)?;
        Some(Entry { id, device, root, path: unescape(path), kind })
    })
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let code =
            after.get(..3).filter(|_| first == b'\\').and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:35 / /mnt/a\\040b ro,nosuid - fuse.chunkmount /data/x rw,user_id=0
41 22 0:36 / /mnt/c rw shared:1 master:2 - tmpfs tmpfs rw
42 22 0:37 / /mnt/c ro - fuse.chunkmount y rw
";

    #[test]
    fn the_mount_table_is_read_with_escapes_and_optional_fields() {
        let kind =
            |path: &str, reached: &[u8]| topmost(TABLE, Path::new(path), Ok(Some(reached.to_vec()))).map(|entry| entry.kind);
        assert_eq!(kind("/mnt/a b", b"40"), Some(TYPE));
        assert_eq!(kind("/mnt/c", b"42"), Some(TYPE));
        assert_eq!(kind("/mnt/c", b"41"), Some(&b"tmpfs"[..]));
        assert_eq!(kind("/", b"22"), Some(&b"ext4"[..]));
        // What lies in a mount is none.
        assert_eq!(kind("/mnt", b"22"), None);
        assert!(topmost(TABLE, Path::new("/mnt/c"), Ok(None)).is_none());
        let unknown = topmost(TABLE, Path::new("/mnt/c"), Err(std::io::ErrorKind::Unsupported.into()));
        assert_eq!(unknown.map(|entry| entry.id), Some(&b"42"[..]));
    }

    #[test]
    fn a_mount_is_found_by_its_device_wherever_it_is() {
        let more = b"43 22 0:35 / /new\\040place ro - fuse.chunkmount /data/x rw
44 22 0:35 /sub /mnt/bind ro - fuse.chunkmount /data/x rw
45 42 0:41 / /mnt/c rw - tmpfs over rw
";
        let table = [TABLE, more].concat();
        let reached = |path: &Path| {
            let known = [("/mnt/a b", "40"), ("/new place", "43"), ("/mnt/bind", "44"), ("/mnt/c", "45")];
            Ok(known.iter().find(|(at, _)| path == Path::new(at)).map(|(_, id)| id.as_bytes().to_vec()))
        };
        assert_eq!(places(&table, b"0:35", reached), [("/mnt/a b".into(), false), ("/new place".into(), false)]);
        assert_eq!(places(&table, b"0:37", reached), [("/mnt/c".into(), true)]);
        assert_eq!(places(TABLE, b"0:37", |_| Ok(Some(b"42".to_vec()))), [("/mnt/c".into(), false)]);
        // Made before ours, and moved over it.
        assert_eq!(places(TABLE, b"0:37", |_| Ok(Some(b"41".to_vec()))), [("/mnt/c".into(), true)]);
        // A directory above it is covered.
        assert_eq!(places(TABLE, b"0:37", |_| Ok(None)), [("/mnt/c".into(), true)]);
        assert!(places(&table, b"0:99", reached).is_empty());
    }

    #[test]
    fn the_kernel_tells_which_mount_a_path_leads_to() {
        let table = std::fs::read(super::TABLE).unwrap();
        let id = reached(Path::new("/proc/self/mountinfo")).unwrap();
        let proc = topmost(&table, Path::new("/proc"), Ok(id)).unwrap();
        assert_eq!(proc.kind, b"proc");
        assert_eq!(reached(Path::new("/proc/nothing")).unwrap(), None);
    }
}
