//! Decoded blocks in files of a private memory file system (tmpfs), which the kernel can read by itself, without asking the daemon.
//!
//! A file is written once, before anybody knows of it, and never again: a reader that spliced its pages and closed it holds them
//! still, and would see the bytes of the next block. What is open by the kernel's leave cannot be taken back, so it counts as
//! held, and only a part of the cache may be. Each file is a descriptor: of those that the process may have, half are left for the source.

use super::turns::Turns;
use super::{Block, BlockId};
use crate::pieces;
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Smallest block that is worth a file: below it, the file's open and close cost more than the pages save.
const LEAST: u64 = 256 << 10;

/// A file system for blocks; unmounted when it is dropped and the last of its files is closed.
pub struct Files {
    root: OwnedFd,
    held: Arc<AtomicU64>,
    /// Most bytes of a file, and of all that are held.
    most: u64,
    count: Arc<AtomicU64>,
    /// Most files at a time.
    most_files: u64,
    works: AtomicBool,
}

/// A file with a block, gone when it is dropped.
#[derive(Debug)]
pub struct MemoryFile {
    file: OwnedFd,
    count: Arc<AtomicU64>,
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Files {
    /// A new file system, for a cache of `capacity` bytes.
    ///
    /// # Errors
    /// The system's: mounting takes the capability `SYS_ADMIN`.
    pub fn new(capacity: u64) -> io::Result<Self> {
        let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(context.as_fd(), "mode", "0700")?;
        // Blocks of some MiB are read half as fast from small pages; a kernel without large ones refuses the word.
        if let Err(e) = rustix::mount::fsconfig_set_string(context.as_fd(), "huge", "within_size") {
            log::debug!("no huge pages for decoded blocks: {e}");
        }
        rustix::mount::fsconfig_create(context.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let root = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        Ok(Self {
            root,
            held: Arc::default(),
            most: capacity / 2,
            count: Arc::default(),
            most_files: descriptors / 2,
            works: AtomicBool::new(true),
        })
    }

    /// Whether a block of so many bytes is worth a file, and may have one.
    pub fn takes(&self, bytes: u64) -> bool {
        (LEAST..=self.most).contains(&bytes) && self.works()
    }

    /// Whether one more file may be made now.
    pub(super) fn has_room(&self) -> bool {
        self.count.load(Ordering::Relaxed) < self.most_files
    }

    /// Whether new files are made.
    pub fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    /// Bytes that are held.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// No more files from now on.
    pub fn stop(&self) {
        self.works.store(false, Ordering::Relaxed);
    }

    /// Keeps a block in the cache, unless too much is held. The caller sees to it that nobody drops it meanwhile.
    pub(super) fn hold(&self, id: BlockId, block: &Arc<Block>, turns: &Arc<Turns>) -> Option<Hold> {
        let more = |held: u64| held.checked_add(block.length()).filter(|sum| *sum <= self.most);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        block.holds.fetch_add(1, Ordering::Relaxed);
        turns.hold(id, block.weight());
        Some(Hold { id, block: block.clone(), held: self.held.clone(), turns: turns.clone() })
    }

    /// A new file with this content.
    ///
    /// # Errors
    /// The system's, when memory is short.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<MemoryFile> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.root.as_fd(), ".", flags, Mode::RUSR)?;
        self.count.fetch_add(1, Ordering::Relaxed);
        let file = MemoryFile { file, count: self.count.clone() };
        // Large pages are given where they lie within the size.
        rustix::fs::ftruncate(file.as_fd(), bytes.len() as u64)?;
        let mut rest = bytes;
        let mut at = 0;
        while !rest.is_empty() {
            let piece = rest.get(..pieces::piece(rest.len())).unwrap_or_default();
            let written = rustix::io::pwrite(file.as_fd(), piece, at)?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            rest = rest.get(written..).unwrap_or_default();
            at = at.saturating_add(written as u64);
        }
        Ok(file)
    }
}

/// A block in a file that the kernel has been given to read, and so is not to be dropped.
pub struct Hold {
    id: BlockId,
    block: Arc<Block>,
    held: Arc<AtomicU64>,
    turns: Arc<Turns>,
}

impl Hold {
    /// The file.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.block.file()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.block.holds.fetch_sub(1, Ordering::Relaxed);
        self.held.fetch_sub(self.block.length(), Ordering::Relaxed);
        self.turns.release(self.id);
    }
}
