//! Where bytes come from: named objects in a hierarchy of directories, read by range at a pinned version.
//!
//! A store answers with bytes, with [`Kind::NotFound`] when it positively knows that a name is
//! absent, or with an error; it never shortens a read or a listing. All calls block, and may come from many threads.

pub mod dir;
pub mod faulty;
mod flights;
pub mod mem;
pub mod nested;
pub mod object;
pub mod zip;

use crate::error::{Error, Kind, Result};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// The name of an object or directory in a store: components joined by `/`, without a leading or trailing one.
///
/// Components are bytes, as file names are; none is empty, `.` or `..`, and none holds a NUL or a `/`. The root is the empty key.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key(Box<[u8]>);

impl Key {
    /// The root of a store.
    pub fn root() -> Self {
        Self::default()
    }

    /// The key of `name` (one component, or several joined by `/`) below this one.
    ///
    /// # Errors
    /// [`Kind::Denied`] for components that could lead elsewhere, [`Kind::TooBig`] over [`crate::limits::KEY`], [`Kind::Corrupt`] for
    /// what JSON spells with half of a surrogate pair: such a name is not known to be absent.
    pub fn join(&self, name: impl AsRef<[u8]>) -> Result<Self> {
        let name = name.as_ref();
        for part in name.split(|&b| b == b'/') {
            if part.is_empty() || part == b"." || part == b".." || part.contains(&0) {
                return Err(Error::new(Kind::Denied, format!("{:?} is no name", String::from_utf8_lossy(part))));
            }
        }
        if name.contains(&crate::limits::HALF[3]) && name.windows(crate::limits::HALF.len()).any(|w| w == crate::limits::HALF) {
            return Err(Error::corrupt("half of a surrogate pair, in what should be a name"));
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        if bytes.len() > crate::limits::KEY {
            return Err(Error::too_big(format!("a name of {} bytes; at most {} are read", bytes.len(), crate::limits::KEY)));
        }
        Ok(Self(bytes.into_boxed_slice()))
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The components of the key.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|name| !name.is_empty())
    }

    /// The key of the directory that it lies in, and its last component; `None` for the root.
    pub fn split_last(&self) -> Option<(Self, &[u8])> {
        let name = self.names().last()?;
        let above = self.0.get(..self.0.len() - name.len()).unwrap_or_default();
        Some((Self(above.strip_suffix(b"/").unwrap_or(above).into()), name))
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("/");
        }
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Which state of an object was seen; equal versions mean equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Version {
    /// A local file: device, inode, size in bytes, and times of modification and of change in nanoseconds.
    File {
        /// Device number.
        device: u64,
        /// Inode number.
        inode: u64,
        /// Size in bytes.
        size: u64,
        /// Time of the last modification, nanoseconds since the epoch.
        modified: i128,
        /// Time of the last change of the inode, nanoseconds since the epoch.
        changed: i128,
    },
    /// An opaque tag (an entity tag, a counter of a test store).
    Tag(Arc<str>),
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Holds bytes.
    File,
    /// Holds names.
    Directory,
}

/// What a store tells of an object without reading it.
#[derive(Debug, Clone)]
pub struct Meta {
    /// File or directory.
    pub kind: ObjectKind,
    /// Size in bytes of a file; 0 for a directory.
    pub size: u64,
    /// Time of the last modification; the container's own where the object has none.
    pub modified: SystemTime,
    /// The version seen.
    pub version: Version,
    /// Whether a range costs about what it holds. False where a range needs all that lies before it (a deflated zip entry).
    pub seekable: bool,
}

/// A part of an object, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// All of it.
    All,
    /// `length` bytes from `offset`; fewer only where the object ends.
    Part {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// The last bytes; fewer only where the object is shorter.
    Suffix(u64),
}

impl Range {
    /// The half-open interval `(start, end)` of this range in an object of `size` bytes.
    pub fn within(self, size: u64) -> (u64, u64) {
        match self {
            Self::All => (0, size),
            Self::Part { offset, length } => (offset.min(size), offset.saturating_add(length).min(size)),
            Self::Suffix(n) => (size.saturating_sub(n), size),
        }
    }
}

/// One name of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name, one component.
    pub name: Box<[u8]>,
    /// File or directory. A name whose kind cannot be told (a broken link) counts as a file, and fails when looked at.
    pub kind: ObjectKind,
}

/// A directory's names, packed: a million of them take about as many bytes as their text and four more each.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    text: Vec<u8>,
    // End of each name in `text`, shifted left by one; the low bit says "directory".
    ends: Vec<u32>,
}

impl Listing {
    /// Adds a name; the order of a listing is the order of adding.
    ///
    /// # Errors
    /// [`Kind::TooBig`] when the names of one directory take more than 2 GiB.
    pub fn push(&mut self, name: &[u8], kind: ObjectKind) -> Result<()> {
        let end = self.text.len() + name.len();
        let packed = u32::try_from(end)
            .ok()
            .filter(|e| *e < 1 << 31)
            .map(|e| e << 1 | u32::from(kind == ObjectKind::Directory))
            .ok_or_else(|| Error::too_big("the names of one directory take more than 2 GiB"))?;
        self.text.extend_from_slice(name);
        self.ends.push(packed);
        Ok(())
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The `i`th name and its kind.
    pub fn get(&self, i: usize) -> Option<(&[u8], ObjectKind)> {
        let packed = *self.ends.get(i)?;
        let start = match i.checked_sub(1) {
            Some(before) => (*self.ends.get(before)? >> 1) as usize,
            None => 0,
        };
        let kind = if packed & 1 == 1 { ObjectKind::Directory } else { ObjectKind::File };
        Some((self.text.get(start..(packed >> 1) as usize)?, kind))
    }

    /// At most `count` names from the `i`th on.
    ///
    /// # Errors
    /// None but those of [`Listing::push`], which took them before.
    pub fn part(&self, i: usize, count: usize) -> Result<Self> {
        let mut part = Self::default();
        (i..i.saturating_add(count)).map_while(|i| self.get(i)).try_for_each(|(name, kind)| part.push(name, kind))?;
        Ok(part)
    }

    /// All names in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], ObjectKind)> {
        (0..self.len()).filter_map(|i| self.get(i))
    }

    /// Bytes of memory held.
    pub fn weight(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

/// What a directory is, and what is in it.
#[derive(Debug, Clone)]
pub struct Entered {
    /// The directory.
    pub meta: Meta,
    /// Those of the names asked for that are not known to be absent.
    pub present: Vec<&'static str>,
}

/// A place that holds objects.
pub trait Store: Send + Sync {
    /// What a person calls this store, for messages.
    fn name(&self) -> String;

    /// What is known of the object or directory at `key`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] only for a positive answer; anything else by its meaning, naming the key.
    fn head(&self, key: &Key) -> Result<Meta>;

    /// Replaces the content of `into` by `range` of the object at `key`, and returns what is known of the whole object.
    ///
    /// `pin` demands a version. Bytes and version belong together: what changes during the call is refused.
    ///
    /// # Errors
    /// [`Kind::TooBig`] before reading when the range holds more than `limit` bytes, [`Kind::Changed`] when the object is not
    /// the pinned version, [`Kind::NotFound`] for a positive answer, [`Kind::Corrupt`] for a directory or a special file, anything
    /// else by its meaning.
    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta>;

    /// The names in the directory at `key`, each once, complete or an error.
    ///
    /// # Errors
    /// As [`Store::head`]; [`Kind::NotFound`] also where `key` is a plain file.
    fn list(&self, key: &Key) -> Result<Listing>;

    /// What is known of each of `names`, which a listing of the directory at `key` has told. `None` where it takes [`Store::head`]
    /// to tell: a link, what is gone, an error; everywhere, where each would be a request over a network.
    fn heads(&self, key: &Key, names: &[&[u8]]) -> Vec<Option<Meta>> {
        if self.is_distant() {
            return vec![None; names.len()];
        }
        names.iter().map(|name| self.head(&key.join(name).ok()?).ok()).collect()
    }

    /// Passes the names in the directory at `key` on as they come, each once. An error of `see` ends it.
    ///
    /// # Errors
    /// As [`Store::list`], also after some names; those of `see`.
    fn list_each(&self, key: &Key, see: &mut dyn FnMut(&[u8], ObjectKind) -> Result<()>) -> Result<()> {
        self.list(key)?.iter().try_for_each(|(name, kind)| see(name, kind))
    }

    /// Whether listing takes long enough for a very large directory that its names are worth having as they come.
    fn lists_slowly(&self) -> bool {
        false
    }

    /// What is known of the object at `key`, for who has no use for a directory there: a store that would have to look for names
    /// below `key` answers with [`Kind::NotFound`] instead.
    ///
    /// # Errors
    /// As [`Store::head`].
    fn head_object(&self, key: &Key) -> Result<Meta> {
        self.head(key)
    }

    /// What is known of the directory at `key`, and which of the names `wanted` may be in it, with as few requests as that
    /// takes.
    ///
    /// # Errors
    /// As [`Store::head`]; [`Kind::NotFound`] also where `key` is a file.
    fn enter(&self, key: &Key, wanted: &'static [&'static str]) -> Result<Entered> {
        let meta = self.head(key)?;
        if meta.kind != ObjectKind::Directory {
            return Err(Error::not_found().about(key));
        }
        Ok(Entered { meta, present: wanted.to_vec() })
    }

    /// Some of the names in the directory at `key`, each once: as many as one request gives.
    ///
    /// # Errors
    /// As [`Store::list`].
    fn sample(&self, key: &Key) -> Result<Listing> {
        self.list(key)
    }

    /// Whether each read is a request over a network, so that what is told elsewhere should not be asked for.
    fn is_distant(&self) -> bool {
        false
    }

    /// Whether directories are no more than what names have before a slash, so that it takes a listing to tell one.
    fn is_flat(&self) -> bool {
        false
    }

    /// Where the bytes of `key` lie, for a person: the key, and the byte range in a container where there is one.
    fn locate(&self, key: &Key) -> String {
        key.to_string()
    }

    /// How many requests at a time make reading faster: about the number of processors, or many more where each request waits
    /// for a network.
    fn lanes(&self) -> usize {
        std::thread::available_parallelism().map_or(2, usize::from)
    }

    /// What a folder on disk has kept of what was read; `None` without one.
    fn kept(&self) -> Option<Kept> {
        None
    }

    /// Requests made so far; over a network those that went out, with all repetitions.
    fn requests(&self) -> Requests;
}

/// Whether what a listing calls `key` leads to other names: a directory does, and so may what stands in the place of one and cannot be
/// looked into (a link that leads out of the source or to nothing, a FIFO). A plain file does not.
pub fn may_lead_on(store: &dyn Store, key: Result<Key>, kind: ObjectKind) -> bool {
    let is_file = |key: Key| matches!(store.list(&key), Err(e) if e.kind() == Kind::NotFound);
    // An object store has nothing of the kind.
    kind == ObjectKind::Directory || !store.is_distant() && key.is_ok_and(|key| !is_file(key))
}

/// Counters of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Calls of [`Store::get`].
    pub get: u64,
    /// Calls of [`Store::head`].
    pub head: u64,
    /// Calls of [`Store::list`].
    pub list: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Counters of a folder that keeps what was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// Reads that it answered.
    pub hits: u64,
    /// Bytes that it gave.
    pub bytes: u64,
    /// Reads that were put there.
    pub written: u64,
    /// Bytes that it holds, about.
    pub held: u64,
}

// A length in memory as a 64-bit count; lossless on every supported target.
pub(crate) fn len64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

// Makes room for exactly `more` bytes, or says that there is no memory for them.
pub(crate) fn reserve(buffer: &mut Vec<u8>, more: usize) -> Result<()> {
    buffer.try_reserve_exact(more).map_err(|_| Error::too_big(format!("no memory for {more} bytes")))
}

// Makes a buffer `length` long without zeroing what it holds already; the content is to be overwritten.
pub(crate) fn sized(buffer: &mut Vec<u8>, length: usize) -> Result<()> {
    if buffer.capacity() < length {
        *buffer = Vec::new();
        reserve(buffer, length)?;
    }
    buffer.resize(length, 0);
    Ok(())
}
