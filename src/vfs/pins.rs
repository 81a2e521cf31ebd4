//! The versions that inodes stand for, each from the first open of a chunk until the kernel forgets the inode.
//!
//! Opens at the same time share one pin. It binds once a block of its version was decoded, for then a reader may have bytes of it.
//! Before that it is a guess, made of an index in memory perhaps, and is given up when the source turns out to have another version;
//! those who shared it start again, so that no inode ever has bytes of two versions.

use crate::error::Result;
use crate::store::Version;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The pins by inode.
#[derive(Default)]
pub struct Pins {
    next: AtomicU64,
    held: Mutex<HashMap<u64, Held>>,
}

struct Held {
    pin: Pin,
    opens: u32,
    /// The kernel forgot the inode while it was open.
    forgotten: bool,
}

/// An opener's part in a pin.
#[derive(Clone)]
pub struct Pin {
    /// What the inode stands for; `None` for an absent chunk that is shown as fill values.
    pub version: Option<Version>,
    /// Whether this version has been decoded without an error.
    pub bound: bool,
    /// Of all pins of all inodes.
    number: u64,
}

impl Pins {
    /// The pin of `inode`, of the version that `present` tells where there is none yet. Counts an open file.
    ///
    /// # Errors
    /// Those of `present`, which is asked without any lock.
    pub fn open(&self, inode: u64, present: impl FnOnce() -> Result<Option<Version>>) -> Result<Pin> {
        if let Some(held) = self.held.lock().get_mut(&inode) {
            return Ok(held.open());
        }
        let version = present()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let new = || Held { pin: Pin { version, bound: false, number }, opens: 0, forgotten: false };
        Ok(self.held.lock().entry(inode).or_insert_with(new).open())
    }

    /// A block of the version was decoded. Whether the pin is still that of the inode: another opener may have given it up.
    pub fn bind(&self, inode: u64, pin: &Pin) -> bool {
        let mut pins = self.held.lock();
        let Some(held) = pins.get_mut(&inode).filter(|held| held.pin.number == pin.number) else { return false };
        held.pin.bound = true;
        true
    }

    /// An open failed, because the version is not there any more if it is `stale`. A version of which nobody has got a byte binds
    /// nobody: whether what is there when it is tried again is as good.
    pub fn give_up(&self, inode: u64, pin: &Pin, stale: bool) -> bool {
        let mut pins = self.held.lock();
        let Some(held) = pins.get_mut(&inode).filter(|held| held.pin.number == pin.number) else { return true };
        held.opens = held.opens.saturating_sub(1);
        let free = !held.pin.bound;
        if held.is_over() || free && stale {
            pins.remove(&inode);
        }
        free
    }

    /// A file that was opened with the pin of `inode` is closed.
    pub fn release(&self, inode: u64) {
        let mut pins = self.held.lock();
        let Some(held) = pins.get_mut(&inode) else { return };
        held.opens = held.opens.saturating_sub(1);
        if held.is_over() {
            pins.remove(&inode);
        }
    }

    /// The kernel has no page of `inode` left, so nothing remains for new bytes to mix with. While it is open, this is either late
    /// news, and the kernel has met the inode again since, or early, and the last release is still on its way.
    pub fn forget(&self, inode: u64) {
        let mut pins = self.held.lock();
        let Some(held) = pins.get_mut(&inode) else { return };
        held.forgotten = true;
        if held.is_over() {
            pins.remove(&inode);
        }
    }
}

impl Held {
    fn open(&mut self) -> Pin {
        self.opens = self.opens.saturating_add(1);
        self.pin.clone()
    }

    fn is_over(&self) -> bool {
        self.opens == 0 && (self.forgotten || !self.pin.bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tag: &str) -> Option<Version> {
        Some(Version::Tag(tag.into()))
    }

    fn open(pins: &Pins, tag: &str) -> Pin {
        pins.open(1, || Ok(version(tag))).unwrap()
    }

    #[test]
    fn those_who_share_a_guess_that_is_given_up_start_again() {
        let pins = Pins::default();
        let (one, other) = (open(&pins, "old"), open(&pins, "new"));
        assert_eq!(other.version, version("old"));
        assert!(pins.give_up(1, &one, true));
        let again = open(&pins, "new");
        assert_eq!(again.version, version("new"));
        assert!(pins.bind(1, &again));
        // Decoded before the change, and bound to nothing.
        assert!(!pins.bind(1, &other));
        assert!(pins.give_up(1, &other, true));
        assert_eq!(open(&pins, "newer").version, version("new"));
    }

    #[test]
    fn what_somebody_has_bytes_of_stays_until_it_is_forgotten() {
        let pins = Pins::default();
        let one = open(&pins, "old");
        assert!(pins.bind(1, &one));
        assert!(!pins.give_up(1, &open(&pins, "new"), true));
        pins.release(1);
        assert_eq!(open(&pins, "new").version, version("old"));
        // The news that the inode is forgotten may overtake the release.
        pins.forget(1);
        pins.release(1);
        assert_eq!(open(&pins, "new").version, version("new"));
    }
}
