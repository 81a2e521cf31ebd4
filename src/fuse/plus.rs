//! Answers to `FUSE_READDIRPLUS`, written to the kernel's device beside fuser.
//!
//! An entry of such a listing may come without attributes, which is said by a node number of 0 beside the inode number of the entry
//! ([`fuse_direntplus`](https://github.com/torvalds/linux/blob/master/include/uapi/linux/fuse.h)). fuser has one number for both, so
//! it can give no entry without attributes, which a million names that nobody asks more of need. The layout is that of the
//! kernel's interface 7.9 and later, numbers in the order of the machine.

use fuser::{FileAttr, FileType, ReplyDirectoryPlus};
use rustix::fd::OwnedFd;
use std::io::{self, IoSlice};
use std::time::{Duration, SystemTime};

/// Bytes before the name of an entry: what a lookup would tell (128), and inode number, offset, length of the name and type (24).
const HEAD: usize = 152;

/// Bytes before every answer.
pub const ANSWER: usize = 16;

/// What every request has room for at least.
const LEAST_ROOM: usize = 4096;

/// One page of a listing.
pub struct Page {
    bytes: Vec<u8>,
    room: usize,
}

impl Page {
    /// An empty page, as large as the request that `reply` is for has room.
    pub fn new(reply: &ReplyDirectoryPlus) -> Self {
        let room = room(&format!("{reply:?}")).unwrap_or(LEAST_ROOM);
        Self { bytes: Vec::with_capacity(room), room }
    }

    /// Adds an entry, with its attributes and how long they may be believed, or without; false when there is no room for it.
    pub fn add(&mut self, inode: u64, next: u64, kind: FileType, name: &[u8], attr: Option<(&FileAttr, Duration)>) -> bool {
        let length = HEAD.saturating_add(name.len()).next_multiple_of(8);
        if self.bytes.len().saturating_add(length) > self.room {
            return false;
        }
        let end = self.bytes.len().saturating_add(length);
        match attr {
            Some((attr, ttl)) => self.attributes(attr, ttl),
            None => self.bytes.resize(self.bytes.len().saturating_add(HEAD - 24), 0),
        }
        self.put64(inode);
        self.put64(next);
        self.put32(u32::try_from(name.len()).unwrap_or(u32::MAX));
        self.put32(mode(kind) >> 12);
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }

    /// Node, generation, times to live, attributes: `fuse_entry_out`.
    fn attributes(&mut self, attr: &FileAttr, ttl: Duration) {
        let times = [attr.atime, attr.mtime, attr.ctime].map(since);
        self.put64(attr.ino.0);
        self.put64(0);
        self.put64(ttl.as_secs());
        self.put64(ttl.as_secs());
        self.put32(ttl.subsec_nanos());
        self.put32(ttl.subsec_nanos());
        self.put64(attr.ino.0);
        self.put64(attr.size);
        self.put64(attr.blocks);
        times.iter().for_each(|(seconds, _)| self.put64(seconds.cast_unsigned()));
        times.iter().for_each(|(_, nanoseconds)| self.put32(*nanoseconds));
        self.put32(mode(attr.kind) | u32::from(attr.perm));
        for number in [attr.nlink, attr.uid, attr.gid, attr.rdev, attr.blksize, attr.flags] {
            self.put32(number);
        }
    }

    fn put64(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_ne_bytes());
    }

    fn put32(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_ne_bytes());
    }

    /// Answers the request `unique` by this page, in the place of `reply`.
    pub fn send(self, device: &OwnedFd, unique: u64, reply: ReplyDirectoryPlus) {
        let head = head(ANSWER.saturating_add(self.bytes.len()), 0, unique);
        match rustix::io::writev(device, &[IoSlice::new(&head), IoSlice::new(&self.bytes)]) {
            // Dropped, it would answer a second time. It holds no memory while it is empty.
            Ok(_) => std::mem::forget(reply),
            Err(e) => {
                log::debug!("a page of a listing was not taken: {}", io::Error::from(e));
                reply.error(fuser::Errno::EIO);
            }
        }
    }
}

/// What every answer begins with: its length with these bytes, 0 or an error below it, and the number of the request.
pub fn head(length: usize, error: i32, unique: u64) -> [u8; ANSWER] {
    let mut head = [0; ANSWER];
    let (size, rest) = head.split_at_mut(4);
    let (code, number) = rest.split_at_mut(4);
    size.copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    code.copy_from_slice(&error.to_ne_bytes());
    number.copy_from_slice(&unique.to_ne_bytes());
    head
}

/// The size of the buffer that a request has for its answer. fuser keeps it to itself, but for this description.
fn room(reply: &str) -> Option<usize> {
    let (_, rest) = reply.split_once("max_size: ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Seconds since the epoch, rounded down, and nanoseconds after them.
fn since(time: SystemTime) -> (i64, u32) {
    let seconds = |d: Duration| i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => (seconds(after), after.subsec_nanos()),
        Err(e) if e.duration().subsec_nanos() == 0 => (seconds(e.duration()).saturating_neg(), 0),
        Err(e) => (seconds(e.duration()).saturating_neg().saturating_sub(1), 1_000_000_000 - e.duration().subsec_nanos()),
    }
}

fn mode(kind: FileType) -> u32 {
    match kind {
        FileType::Directory => libc::S_IFDIR,
        _ => libc::S_IFREG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_told_and_times_before_the_epoch_round_down() {
        let told = "ReplyDirectoryPlus { reply: ReplyRaw { .. }, buf: DirEntPlusList(EntListBuf { max_size: 131072, buf: [] }) }";
        assert_eq!(room(told), Some(131_072));
        assert_eq!(room("something else"), None);
        let time = |seconds: f64| SystemTime::UNIX_EPOCH - Duration::from_secs_f64(seconds);
        assert_eq!(since(time(1.25)), (-2, 750_000_000));
        assert_eq!(since(time(2.0)), (-2, 0));
        assert_eq!(since(SystemTime::UNIX_EPOCH + Duration::new(3, 4)), (3, 4));
    }
}
