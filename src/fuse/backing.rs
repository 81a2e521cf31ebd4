//! Passthrough: files whose content lies in a file of memory are read by the kernel without the daemon.
//!
//! The kernel wants each inode in one mode for as long as it is open anywhere, and with one backing file: another `open` would fail
//! with `EIO`. So the mode is that of the first open, and lasts until the last is released.

use super::pages;
use crate::vfs::{Hold, Opened, Pages, Vfs};
use fuser::{BackingId, FileHandle, FopenFlags, ReplyOpen};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How an open inode is read.
#[derive(Clone)]
enum Mode {
    /// By requests to the daemon, through the kernel's pages.
    Asked,
    /// By the kernel, from a file that is kept meanwhile.
    Passed(Arc<Passed>),
}

/// A file that the kernel reads.
struct Passed {
    id: BackingId,
    #[expect(dead_code, reason = "kept as long as the kernel reads it")]
    content: Hold,
}

/// The open inodes, where passthrough is possible.
#[derive(Default)]
pub struct Passing {
    possible: AtomicBool,
    open: Mutex<HashMap<u64, (Mode, u64)>>,
}

impl Passing {
    /// The kernel offers it. Called before the first request.
    pub fn is_offered(&self) {
        self.possible.store(true, Ordering::Relaxed);
    }

    /// There will be no files to pass. Called before the first request.
    pub fn stop(&self) {
        self.possible.store(false, Ordering::Relaxed);
    }

    /// Whether the kernel can read files by itself.
    pub fn is_possible(&self) -> bool {
        self.possible.load(Ordering::Relaxed)
    }

    /// Answers an open, and counts it. `device` is where the kernel's requests come from.
    pub fn reply(&self, vfs: &Vfs, device: Option<&OwnedFd>, inode: u64, opened: Opened, reply: ReplyOpen) {
        let handle = FileHandle(opened.handle);
        let stored = opened.whole.zip(device).is_some_and(|(whole, device)| {
            let stored = vfs.hand_over(inode, &whole, |bytes| pages::store(device, inode, bytes));
            stored.inspect_err(|e| log::debug!("the pages of a chunk were not taken: {e}")).unwrap_or(false)
        });
        let pages = match opened.pages {
            _ if stored => FopenFlags::FOPEN_KEEP_CACHE,
            Pages::Right => FopenFlags::FOPEN_KEEP_CACHE,
            Pages::Drop => FopenFlags::empty(),
            Pages::None => FopenFlags::FOPEN_DIRECT_IO,
        };
        if !self.is_possible() {
            return reply.opened(handle, pages | FopenFlags::FOPEN_NOFLUSH);
        }
        let mut open = self.open.lock();
        let (mode, opens) = match open.entry(inode) {
            Entry::Occupied(known) => {
                // What is open already is held already, and would count twice.
                drop(opened.content);
                known.into_mut()
            }
            Entry::Vacant(new) => new.insert((mode(vfs, opened.content, &reply), 0)),
        };
        *opens = opens.saturating_add(1);
        let mode = mode.clone();
        // To answer wakes the reader, which takes longer than what is done under the lock.
        drop(open);
        match mode {
            Mode::Asked => reply.opened(handle, pages | FopenFlags::FOPEN_NOFLUSH),
            Mode::Passed(file) => {
                vfs.count_passed();
                reply.opened_passthrough(handle, FopenFlags::FOPEN_NOFLUSH, &file.id);
            }
        }
    }

    /// An open file is closed; the kernel has let go of the backing file before it says so.
    pub fn release(&self, inode: u64) {
        let mut open = self.open.lock();
        let Entry::Occupied(mut known) = open.entry(inode) else { return };
        let opens = &mut known.get_mut().1;
        *opens = opens.saturating_sub(1);
        if *opens == 0 {
            let mode = known.remove();
            drop(open);
            drop(mode);
        }
    }
}

/// The mode for an inode that is opened first.
fn mode(vfs: &Vfs, content: Option<Hold>, reply: &ReplyOpen) -> Mode {
    let Some(content) = content else { return Mode::Asked };
    match content.file().map(|file| reply.open_backing(file)) {
        Some(Ok(id)) => Mode::Passed(Arc::new(Passed { id, content })),
        Some(Err(e)) => {
            log::debug!("the kernel does not read decoded blocks by itself: {e}");
            vfs.stop_files();
            Mode::Asked
        }
        None => Mode::Asked,
    }
}
