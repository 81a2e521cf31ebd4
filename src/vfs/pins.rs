//! The versions that inodes stand for, each from the first open of a chunk until the kernel forgets the inode.
//!
//! Opens at the same time share one pin. It binds once a block of its version was decoded, for then a reader may have bytes of it.
//! Before that it is a guess, made of an index in memory perhaps, and is given up when the source turns out to have another version;
//! those who shared it start again, so that no inode ever has bytes of two versions.

use crate::error::Result;
use crate::store::Version;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The pins by inode.
#[derive(Default)]
pub struct Pins {
    next: AtomicU64,
    held: Mutex<HashMap<u64, Held>>,
    /// Somebody who was alone is not any more.
    joined: Condvar,
}

struct Held {
    version: Option<Version>,
    /// A block of the version was decoded, so a reader may have bytes of it.
    bound: bool,
    /// Of all pins of all inodes.
    number: u64,
    opens: u32,
    /// What the kernel has of the inode is of this version: it dropped all else when a file was opened that has been closed since, or it
    /// was given all of the content.
    settled: bool,
    /// It was given all of the content.
    handed: bool,
    /// The kernel forgot the inode while it was open.
    forgotten: bool,
    /// Its only opener is [`Alone`]: others wait.
    alone: bool,
}

/// An opener's share in a pin, given back when it is dropped.
pub struct Share<'a> {
    pins: &'a Pins,
    inode: u64,
    number: u64,
    held: bool,
    /// What the inode stands for; `None` for an absent chunk that is shown as fill values.
    pub version: Option<Version>,
    /// Whether this version has been decoded without an error.
    pub bound: bool,
    /// Whether what the kernel has of the inode is of this version.
    pub settled: bool,
}

/// The only one who has a file open. Others who open it wait until this is dropped.
pub struct Alone<'a> {
    pins: &'a Pins,
    inode: u64,
}

impl Alone<'_> {
    /// The kernel has been given all of the content.
    pub fn settle(self) {
        if let Some(held) = self.pins.held.lock().get_mut(&self.inode) {
            (held.settled, held.handed) = (true, true);
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.pins.held.lock().get_mut(&self.inode) {
            held.alone = false;
        }
        self.pins.joined.notify_all();
    }
}

impl Pins {
    /// A share in the pin of `inode`, which is of the version that `present` tells where there is none yet.
    ///
    /// # Errors
    /// Those of `present`, which is asked without any lock.
    pub fn open(&self, inode: u64, present: impl FnOnce() -> Result<Option<Version>>) -> Result<Share<'_>> {
        if let Some(held) = self.lock(inode).get_mut(&inode) {
            return Ok(self.share(inode, held));
        }
        let version = present()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let new =
            || Held { version, bound: false, number, opens: 0, settled: false, handed: false, forgotten: false, alone: false };
        Ok(self.share(inode, self.lock(inode).entry(inode).or_insert_with(new)))
    }

    /// The pins, when nobody is alone with `inode`.
    fn lock(&self, inode: u64) -> MutexGuard<'_, HashMap<u64, Held>> {
        let mut pins = self.held.lock();
        while pins.get(&inode).is_some_and(|held| held.alone) {
            self.joined.wait(&mut pins);
        }
        pins
    }

    /// Whether the kernel has been given all of the content of `inode`.
    pub fn is_handed(&self, inode: u64) -> bool {
        self.held.lock().get(&inode).is_some_and(|held| held.handed)
    }

    /// Keeps others from opening `inode`, if only one has opened it since it was pinned: then nobody else reads it now, and that one
    /// does not either before the kernel has been told.
    pub fn alone(&self, inode: u64) -> Option<Alone<'_>> {
        let mut pins = self.held.lock();
        let held = pins.get_mut(&inode).filter(|held| held.bound && held.opens == 1 && !held.settled && !held.alone)?;
        held.alone = true;
        Some(Alone { pins: self, inode })
    }

    fn share(&self, inode: u64, held: &mut Held) -> Share<'_> {
        held.opens = held.opens.saturating_add(1);
        let (version, bound, settled) = (held.version.clone(), held.bound, held.settled);
        Share { pins: self, inode, number: held.number, held: true, version, bound, settled }
    }

    /// A file that was opened by the pin of `inode` is closed.
    pub fn release(&self, inode: u64) {
        self.close(inode, true);
    }

    /// The kernel has not been told that a file was opened, and so has dropped nothing.
    pub fn undo(&self, inode: u64) {
        self.close(inode, false);
    }

    fn close(&self, inode: u64, settles: bool) {
        let mut pins = self.held.lock();
        let Some(held) = pins.get_mut(&inode) else { return };
        held.opens = held.opens.saturating_sub(1);
        held.settled |= settles;
        if held.is_over() {
            pins.remove(&inode);
        }
    }

    /// The kernel has no page of `inode` left, so nothing remains for new bytes to mix with. While it is open, this is either late
    /// news, and the kernel has met the inode again since, or early, and the last release is still on its way. Whether the kernel had been
    /// given all of the content.
    pub fn forget(&self, inode: u64) -> bool {
        let mut pins = self.held.lock();
        let Some(held) = pins.get_mut(&inode) else { return false };
        held.forgotten = true;
        let handed = held.handed;
        if held.is_over() {
            pins.remove(&inode);
        }
        handed
    }
}

impl Held {
    fn is_over(&self) -> bool {
        self.opens == 0 && (self.forgotten || !self.bound)
    }
}

impl Share<'_> {
    /// A block of the version was decoded: the file is open until [`Pins::release`]. `false` where another opener gave the pin up
    /// meanwhile.
    pub fn bind(&mut self) -> bool {
        let mut pins = self.pins.held.lock();
        let Some(held) = pins.get_mut(&self.inode).filter(|held| held.number == self.number) else { return false };
        held.bound = true;
        self.held = false;
        true
    }

    /// The version turned out not to be there any more. If nobody has got a byte of it, it binds nobody: then the pin is given up
    /// for all who share it, and what is there when it is tried again is as good.
    pub fn give_up(mut self) -> bool {
        self.back(true)
    }

    fn back(&mut self, stale: bool) -> bool {
        if !std::mem::take(&mut self.held) {
            return true;
        }
        let mut pins = self.pins.held.lock();
        let Some(held) = pins.get_mut(&self.inode).filter(|held| held.number == self.number) else { return true };
        held.opens = held.opens.saturating_sub(1);
        let free = !held.bound;
        if held.is_over() || free && stale {
            pins.remove(&self.inode);
        }
        free
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.back(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tag: &str) -> Option<Version> {
        Some(Version::Tag(tag.into()))
    }

    fn open<'a>(pins: &'a Pins, tag: &str) -> Share<'a> {
        pins.open(1, || Ok(version(tag))).unwrap()
    }

    #[test]
    fn those_who_share_a_guess_that_is_given_up_start_again() {
        let pins = Pins::default();
        let (one, mut other) = (open(&pins, "old"), open(&pins, "new"));
        assert_eq!(other.version, version("old"));
        assert!(one.give_up());
        let mut again = open(&pins, "new");
        assert_eq!(again.version, version("new"));
        assert!(again.bind());
        // Decoded before the change, and bound to nothing.
        assert!(!other.bind() && other.give_up());
        assert_eq!(open(&pins, "newer").version, version("new"));
    }

    #[test]
    fn what_somebody_has_bytes_of_stays_until_it_is_forgotten() {
        let pins = Pins::default();
        assert!(open(&pins, "old").bind());
        assert!(!open(&pins, "new").give_up());
        assert!(!open(&pins, "new").settled);
        pins.release(1);
        let share = open(&pins, "new");
        assert_eq!((&share.version, share.settled), (&version("old"), true));
        // The news that the inode is forgotten may overtake the release.
        pins.forget(1);
        drop(share);
        assert_eq!(open(&pins, "new").version, version("new"));
    }

    #[test]
    fn who_is_alone_keeps_others_waiting() {
        let pins = Pins::default();
        assert!(open(&pins, "old").bind());
        let alone = pins.alone(1).unwrap();
        assert!(pins.alone(1).is_none());
        std::thread::scope(|scope| {
            let other = scope.spawn(|| open(&pins, "new").bind());
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!other.is_finished() && pins.held.lock()[&1].opens == 1);
            drop(alone);
            assert!(other.join().unwrap());
        });
        // Two have it open, and then nobody, whose pages the kernel has kept.
        assert!(pins.alone(1).is_none());
        pins.release(1);
        pins.release(1);
        assert!(open(&pins, "new").bind() && pins.alone(1).is_none());
    }

    #[test]
    fn what_the_kernel_was_given_is_right_for_the_next() {
        let pins = Pins::default();
        assert!(open(&pins, "old").bind());
        assert!(!pins.is_handed(1));
        pins.alone(1).unwrap().settle();
        assert!(open(&pins, "new").settled && pins.alone(1).is_none() && pins.is_handed(1));
        pins.release(1);
        assert!(pins.is_handed(1));
        assert!(pins.forget(1));
        assert!(!pins.is_handed(1) && !pins.forget(1));
    }

    #[test]
    fn an_open_that_the_kernel_is_not_told_of_settles_nothing() {
        let pins = Pins::default();
        assert!(open(&pins, "old").bind());
        pins.undo(1);
        let mut share = open(&pins, "new");
        // It was decoded all the same.
        assert_eq!((&share.version, share.settled), (&version("old"), false));
        assert!(share.bind() && pins.alone(1).is_some());
    }

    #[test]
    fn who_shares_a_guess_is_not_alone() {
        let pins = Pins::default();
        let (mut one, mut other) = (open(&pins, "old"), open(&pins, "old"));
        assert!(one.bind() && pins.alone(1).is_none());
        assert!(other.bind() && pins.alone(1).is_none());
    }

    #[test]
    fn a_share_that_is_dropped_leaves_nothing() {
        let pins = Pins::default();
        drop(open(&pins, "old"));
        assert!(pins.held.lock().is_empty());
    }
}
