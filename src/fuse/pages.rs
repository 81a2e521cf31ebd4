//! Chunks that are handed to the kernel when they are opened, written to its device beside fuser, whose own call copies them first.
//!
//! A chunk has been decoded whole by the time its file opens. Its pages go to the kernel at once, so that who reads it asks the daemon
//! for nothing more: `FUSE_NOTIFY_STORE`, in the layout of the kernel's
//! [interface](https://github.com/torvalds/linux/blob/master/include/uapi/linux/fuse.h), numbers in the order of the machine.
//!
//! The kernel stores a page when nobody else is about to fill it, and waits for that. Who waits here takes no requests meanwhile, so
//! it must be certain that none is under way for that file: [`crate::vfs::Vfs::hand_over`] is. What the kernel had of the inode before,
//! from a version that it has not dropped yet, is overwritten, all of it.

use super::plus::{ANSWER, head};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::LazyLock;

/// The first version of Linux that is sure to make zeros of what follows the end of a file in its last page, which who maps it sees.
const CLEARS: (u32, u32) = (6, 11);

/// `FUSE_NOTIFY_STORE`.
const STORE: i32 = 4;

/// Inode, offset, length, and four bytes that mean nothing.
const OUT: usize = 24;

/// Makes `bytes` the pages of `inode` from its beginning on.
///
/// # Errors
/// The kernel's, which may have taken some of them, and where it would leave the last page in part as it found it.
pub fn store(device: impl AsFd, inode: u64, bytes: &[u8]) -> io::Result<()> {
    static IS_RECENT: LazyLock<bool> = LazyLock::new(|| is_recent(&rustix::system::uname().release().to_string_lossy()));
    if !bytes.len().is_multiple_of(rustix::param::page_size()) && !*IS_RECENT {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let total = ANSWER.saturating_add(OUT).saturating_add(bytes.len());
    // Where an answer has its error a notice has what it is, and the number of no request.
    let head = head(total, STORE, 0);
    let mut out = [0; OUT];
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (node, rest) = out.split_at_mut(8);
    let (_, rest) = rest.split_at_mut(8);
    let (size, _) = rest.split_at_mut(4);
    node.copy_from_slice(&inode.to_ne_bytes());
    size.copy_from_slice(&length.to_ne_bytes());
    let written = rustix::io::writev(device, &[IoSlice::new(&head), IoSlice::new(&out), IoSlice::new(bytes)])?;
    if written == total { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Whether the release of a kernel, such as `6.12.41-amd64`, is [`CLEARS`] or later.
fn is_recent(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= CLEARS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        for (release, recent) in [("6.11.0", true), ("6.9.10-generic", false), ("7.0-rc1", true), ("5.15", false), ("x", false)] {
            assert_eq!(is_recent(release), recent, "{release}");
        }
    }
}
