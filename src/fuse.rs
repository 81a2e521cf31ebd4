//! Kernel requests become calls of [`Vfs`]. The only file that knows fuser.
//!
//! Each request ends in one reply, also when something panics: a worker thread that dies takes its share of the mount with it.

mod backing;
mod crew;
mod pages;
mod plus;
mod waiters;

use crate::error::{Error, Kind, Result};
use crate::store::ObjectKind;
use crate::vfs::{Attr, Entry, Vfs};
use backing::Passing;
use crew::Crew;
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request, Session, SessionACL,
};
use plus::Page;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use waiters::{Asked, Waiters};

/// Prefix of all extended attributes that users give.
const USER: &[u8] = b"user.";

/// Prefix of the extended attributes.
const XATTR: &str = "user.chunkmount.";

/// What `stat` calls the best size of a read, in bytes. Larger ones make `cat` and `cp` slower: the kernel reads ahead by so much.
const BLOCK_SIZE: u32 = 128 << 10;

/// Longest name that the kernel takes in a listing.
const NAME: usize = 1024;

/// Most requests under way at a time where each may wait for a network.
const REQUESTS: u16 = 256;

/// Whom files are shown to belong to; who mounts where nobody is named.
#[derive(Debug, Clone, Copy, Default)]
pub struct User {
    /// Number of the user.
    pub uid: Option<u32>,
    /// Number of the group.
    pub gid: Option<u32>,
}

struct Adaptor {
    shared: Arc<Shared>,
    /// Who serves the requests that may wait; the others are served by the threads that take them from the kernel.
    crew: Crew,
    /// Whether each may wait, for a network.
    is_distant: bool,
}

struct Shared {
    vfs: Arc<Vfs>,
    /// How long the kernel may believe what it was told.
    ttl: Duration,
    user: (u32, u32),
    size: u64,
    /// Files that the kernel reads by itself.
    passing: Passing,
    /// Where the kernel's requests come from, for what fuser cannot answer.
    device: OnceLock<OwnedFd>,
    /// Who waits for an answer.
    waiters: Arc<Waiters>,
}

impl Drop for Adaptor {
    fn drop(&mut self) {
        self.shared.waiters.end();
    }
}

/// Mounts `vfs` at `mountpoint`, or takes over the mount that somebody has made with `device`, an open `/dev/fuse`. Begins to serve
/// it with `threads` threads, once `mounted` has returned: until then nobody is answered. Returns when the kernel has agreed. The thread
/// that is returned ends with the mount.
///
/// # Errors
/// [`Kind::Mount`] with the kernel's reason.
#[expect(clippy::too_many_arguments, reason = "what the user has chosen, each by itself")]
pub fn mount(
    vfs: Arc<Vfs>,
    mountpoint: &Path,
    device: Option<OwnedFd>,
    allow_other: bool,
    threads: usize,
    size: u64,
    user: User,
    mounted: impl FnOnce(),
) -> Result<JoinHandle<io::Result<()>>> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(fs_name(&vfs.options().name)),
        // As the kernel spells it: fuser forgets `Subtype` when it mounts without a helper.
        MountOption::CUSTOM("subtype=chunkmount".into()),
        MountOption::RO,
        MountOption::NoAtime,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::DefaultPermissions,
    ];
    config.acl = if allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads);
    let ttl = vfs.options().refresh.unwrap_or(Duration::MAX);
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let user = (user.uid.unwrap_or(own.0), user.gid.unwrap_or(own.1));
    let failed = |e: io::Error| {
        // The helper's words end in a newline, and the system's do not name the device.
        let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").err();
        let reason = match device {
            Some(e) => format!("/dev/fuse: {e}"),
            None if !may_mount() && !has_helper() => {
                "fusermount3 is not there, without which only root can mount (it comes with the package fuse3)".into()
            }
            None => e.to_string(),
        };
        let mut reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        if reason.is_empty() {
            reason.push_str("fusermount3 has ended without a word (by a signal?)");
        }
        Error::new(Kind::Mount, format!("cannot be mounted on: {reason}")).about(mountpoint.display())
    };
    let (passing, device_of, waiters) = (Passing::default(), OnceLock::new(), Arc::default());
    let shared = Arc::new(Shared { vfs: vfs.clone(), ttl, user, size, passing, device: device_of, waiters });
    let adaptor = Adaptor { shared: shared.clone(), crew: Crew::new(REQUESTS.into()), is_distant: vfs.is_distant() };
    let session = match device {
        Some(device) => Session::from_fd(adaptor, device, config.acl, config),
        None => Session::new(adaptor, mountpoint, &config),
    };
    let session = session.map_err(failed)?;
    let device = session.as_fd().try_clone_to_owned().map_err(failed)?;
    // It is empty until now.
    let _ = shared.device.set(device);
    let own = shared.clone();
    let interrupt = move |unique| own.device.get().into_iter().for_each(|device| waiters::interrupt(device, unique));
    if let Err(e) = shared.waiters.watch(interrupt) {
        log::warn!("who waits for the source cannot be ended before it answers: {e}");
    }
    if shared.passing.is_possible()
        && let Err(e) = vfs.use_files()
    {
        log::debug!("the kernel reads no decoded blocks by itself: {e}");
        shared.passing.stop();
    }
    mounted();
    let other = std::thread::Builder::new().spawn(|| Ok(())).map_err(failed)?;
    let mut session = session.spawn().map_err(failed)?;
    let end = std::mem::replace(&mut session.guard, other);
    // Dropped, it would unmount once more by path after the end, and so take away what is mounted there by then: the file system
    // that was covered, or somebody's next mount. Whoever ends this mount detaches it.
    std::mem::forget(session);
    Ok(end)
}

/// The source's name as a mount option. As root it goes to the kernel as it is; `fusermount3` takes it from a list, in which
/// commas separate and backslashes quote. (fuser calls the helper when it lacks the capability to mount.)
fn fs_name(name: &str) -> String {
    if may_mount() { name.into() } else { name.replace('\\', "\\\\").replace(',', "\\,") }
}

/// Whether this process may mount by itself.
fn may_mount() -> bool {
    use rustix::thread::CapabilitySet;
    rustix::thread::capabilities(None).is_ok_and(|c| c.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// Whether the helper that mounts for others is where fuser looks for it.
fn has_helper() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/bin".into(), "/sbin".into()]);
    directories.flat_map(|at| ["fusermount3", "fusermount"].map(|name| at.join(name))).any(|at| at.is_file())
}

impl Adaptor {
    /// Has a request served that may wait for the store.
    fn serve(&self, request: &Request, job: impl FnOnce(&Shared, Asked) + Send + 'static) {
        self.serve_if(self.is_distant, request, job);
    }

    /// Has a request served by somebody else if it may wait.
    fn serve_if(&self, may_wait: bool, request: &Request, job: impl FnOnce(&Shared, Asked) + Send + 'static) {
        let asked = self.shared.asked(request);
        if may_wait {
            let shared = self.shared.clone();
            self.crew.run(move || job(&shared, asked));
        } else {
            job(&self.shared, asked);
        }
    }

    /// The same for one that takes a block.
    fn serve_block(&self, inode: INodeNo, request: &Request, job: impl FnOnce(&Shared, Asked) + Send + 'static) {
        self.serve_if(self.is_distant || self.shared.vfs.may_wait(inode.0), request, job);
    }
}

impl Shared {
    /// Runs one request; its error is counted, logged once, and becomes an errno.
    fn run<T>(&self, request: impl FnOnce(&Vfs) -> Result<T>) -> std::result::Result<T, Errno> {
        let result = catch_unwind(AssertUnwindSafe(|| request(&self.vfs)))
            .unwrap_or_else(|_| Err(Error::new(Kind::Bug, "a request panicked; see the message above")));
        result.map_err(|e| {
            self.vfs.report(&e);
            Errno::from_i32(e.errno())
        })
    }

    fn asked(&self, request: &Request) -> Asked {
        self.waiters.ask(request.unique().0, request.pid())
    }

    /// Runs a request for who waits for it. Where that one has been answered by then, what was done is undone, and the answer that
    /// is still to be given does not count.
    fn run_for<T>(
        &self,
        asked: Asked,
        request: impl FnOnce(&Vfs) -> Result<T>,
        undo: impl FnOnce(&Vfs, T),
    ) -> std::result::Result<T, Errno> {
        if asked.is_answered() {
            return Err(Errno::EINTR);
        }
        let done = self.run(request)?;
        if asked.claim() {
            return Ok(done);
        }
        undo(&self.vfs, done);
        Err(Errno::EINTR)
    }

    fn attr(&self, attr: &Attr) -> FileAttr {
        let directory = attr.kind == ObjectKind::Directory;
        FileAttr {
            ino: INodeNo(attr.inode),
            size: attr.size,
            blocks: attr.size.div_ceil(512),
            atime: attr.modified,
            mtime: attr.modified,
            ctime: attr.modified,
            crtime: attr.modified,
            kind: kind(attr.kind),
            perm: if directory { 0o555 } else { 0o444 },
            nlink: if directory { 2 } else { 1 },
            uid: self.user.0,
            gid: self.user.1,
            rdev: 0,
            blksize: BLOCK_SIZE,
            flags: 0,
        }
    }

    fn ttl(&self, attr: &Attr) -> Duration {
        if attr.volatile || attr.brief { Duration::ZERO } else { self.ttl }
    }
}

fn kind(kind: ObjectKind) -> FileType {
    match kind {
        ObjectKind::File => FileType::RegularFile,
        ObjectKind::Directory => FileType::Directory,
    }
}

impl Filesystem for Adaptor {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel lacks is only speed.
        for capability in [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP] {
            let _ = config.add_capabilities(capability);
        }
        if config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok() && config.set_max_stack_depth(1).is_ok() {
            self.shared.passing.is_offered();
        }
        if self.is_distant {
            // Of the kernel's own reading ahead.
            let _ = config.set_max_background(REQUESTS);
        } else {
            // Attributes with listings; over a network each would be a request.
            let _ = config.add_capabilities(InitFlags::FUSE_DO_READDIRPLUS);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.serve(request, move |it, asked| {
            let doubtful = it.vfs.is_doubtful(parent.0);
            match it.run_for(asked, |vfs| vfs.lookup(parent.0, name.as_bytes()), |vfs, attr| vfs.take_back(attr.inode)) {
                Ok(attr) => reply.entry(&it.ttl(&attr), &it.attr(&attr), Generation(0)),
                Err(e) if i32::from(e) == libc::ENOENT && !doubtful => {
                    // Inode 0 is "absent, and you may believe it for so long".
                    let modified = SystemTime::UNIX_EPOCH;
                    let absent = Attr { inode: 0, kind: ObjectKind::File, size: 0, modified, volatile: false, brief: false };
                    reply.entry(&it.ttl, &it.attr(&absent), Generation(0));
                }
                Err(e) => reply.error(e),
            }
        });
    }

    fn forget(&self, _: &Request, inode: INodeNo, count: u64) {
        let _ = self.shared.run(|vfs| {
            vfs.forget(inode.0, count);
            Ok(())
        });
    }

    fn getattr(&self, request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.serve(request, move |it, asked| match it.run_for(asked, |vfs| vfs.attr(inode.0), |_, _| ()) {
            Ok(attr) => reply.attr(&it.ttl(&attr), &it.attr(&attr)),
            Err(e) => reply.error(e),
        });
    }

    fn open(&self, request: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.serve_block(inode, request, move |it, asked| {
            match it.run_for(asked, |vfs| vfs.open(inode.0), |vfs, opened| vfs.undo_open(opened.handle)) {
                Ok(open) => it.passing.reply(&it.vfs, it.device.get(), inode.0, open, reply),
                // Gone since it was looked up: so the kernel looks the name up once more, and does not keep it.
                Err(e) => reply.error(if e == Errno::ENOENT { Errno::ESTALE } else { e }),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.serve_block(inode, request, move |it, asked| {
            // The bytes go to the kernel from where they lie, so the reply travels into the call.
            let mut reply = Some(reply);
            let read = |vfs: &Vfs| {
                vfs.read(handle.0, offset, size, |bytes| {
                    if let Some(reply) = reply.take() {
                        reply.data(bytes);
                    }
                })
            };
            let result = it.run_for(asked, read, |_, ()| ());
            if let (Err(e), Some(reply)) = (result, reply) {
                reply.error(e);
            }
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is written, so the kernel need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        inode: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let _ = self.shared.run(|vfs| {
            self.shared.passing.release(inode.0);
            vfs.release(handle.0);
            Ok(())
        });
        reply.ok();
    }

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        // Files have no holes; the kernel knows the rest by itself.
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, request: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.serve(request, move |it, asked| match it.run_for(asked, |vfs| vfs.opendir(inode.0), Vfs::releasedir) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(e) => reply.error(e),
        });
    }

    fn readdir(&self, request: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let read = |vfs: &Vfs| {
            vfs.readdir(handle.0, offset, &mut |entry| {
                if is_long(&entry) {
                    return false;
                }
                reply.add(INodeNo(entry.inode), entry.next, kind(entry.kind), OsStr::from_bytes(entry.name))
            })
        };
        let result = self.shared.run_for(self.shared.asked(request), read, |_, ()| ());
        match result {
            Ok(()) => reply.ok(),
            Err(e) => reply.error(e),
        }
    }

    fn readdirplus(&self, request: &Request, _: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let Some(device) = self.shared.device.get() else { return reply.error(Errno::EIO) };
        let mut page = Page::new(&reply);
        let read = |vfs: &Vfs| {
            vfs.readdir_described(handle.0, offset, &mut |entry, attr| {
                if is_long(&entry) {
                    return false;
                }
                let attr = attr.map(|attr| (self.shared.attr(&attr), self.shared.ttl(&attr)));
                !page.add(entry.inode, entry.next, kind(entry.kind), entry.name, attr.as_ref().map(|(attr, ttl)| (attr, *ttl)))
            })
        };
        // Nothing of it is counted.
        let result = self.shared.run_for(self.shared.asked(request), read, |_, ()| ());
        match result {
            Ok(()) => page.send(device, request.unique().0, reply),
            Err(e) => reply.error(e),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let _ = self.shared.run(|vfs| {
            vfs.releasedir(handle.0);
            Ok(())
        });
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let unit = 4096;
        reply.statfs(self.shared.size.div_ceil(u64::from(unit)), 0, 0, 0, 0, unit, 255, unit);
    }

    fn getxattr(&self, request: &Request, inode: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        // `ls -l` asks each file for two of other kinds, until it hears that there are no such kinds.
        if !name.as_bytes().starts_with(USER) {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let Some(name) = name.to_str().and_then(|n| n.strip_prefix(XATTR)) else { return reply.error(Errno::NO_XATTR) };
        let name = name.to_owned();
        let find = move |vfs: &Vfs| Ok(vfs.xattrs(inode.0)?.into_iter().find(|(n, _)| *n == name));
        self.serve(request, move |it, asked| match it.run_for(asked, find, |_, _| ()) {
            Ok(Some((_, value))) => sized(value.as_bytes(), size, reply),
            Ok(None) => reply.error(Errno::NO_XATTR),
            Err(e) => reply.error(e),
        });
    }

    fn listxattr(&self, request: &Request, inode: INodeNo, size: u32, reply: ReplyXattr) {
        self.serve(request, move |it, asked| match it.run_for(asked, |vfs| vfs.xattrs(inode.0), |_, _| ()) {
            Ok(list) => sized(list.iter().map(|(n, _)| format!("{XATTR}{n}\0")).collect::<String>().as_bytes(), size, reply),
            Err(e) => reply.error(e),
        });
    }
}

/// Whether a name is longer than the kernel takes.
fn is_long(entry: &Entry<'_>) -> bool {
    let is_long = entry.name.len() > NAME;
    if is_long {
        log::warn!("{}: a name of {} bytes is not listed", String::from_utf8_lossy(entry.name), entry.name.len());
    }
    is_long
}

/// Answers the size, or the value if it fits, as `getxattr(2)` asks.
fn sized(value: &[u8], size: u32, reply: ReplyXattr) {
    match u32::try_from(value.len()) {
        Ok(length) if size == 0 => reply.size(length),
        Ok(length) if length <= size => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}
