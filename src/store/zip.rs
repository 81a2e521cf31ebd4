//! A zip archive inside any store: the directory is indexed once, then every entry is a range read of the container.
//!
//! The container's version is pinned when the archive is opened: once it is replaced, every read fails as changed. Nothing of
//! an entry is served before its local header has been compared with the directory. A whole entry is checked against its
//! length and CRC-32; a range of a stored entry is one range read, unchecked; a range of a compressed one is decoded from the
//! beginning. Links are never followed; `zip/name.rs` has what names mean, and which of them are left out.
//! Layout: APPNOTE 6.3.10.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod bytes;
mod directory;
mod end;
mod index;
mod name;
mod open;
mod stream;

use super::{Kept, Key, Listing, Meta, ObjectKind, Range, Requests, Store, Version};
use crate::error::{Error, Kind, Result};
use bytes::{len, len64, u16_at};
use directory::{Record, flag};
use index::{Found, Index};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Bytes of a local header before its name.
const HEADER: u64 = 30;

/// Bytes guessed for the extra area of a local header: Info-ZIP writes 28, zip64 adds 20.
const EXTRA: u64 = 96;

/// A range that begins this near to the beginning of an entry is read together with the local header.
const NEAR: u64 = 64 << 10;

/// A zip archive.
pub struct ZipStore {
    container: Arc<dyn Store>,
    key: Key,
    version: Version,
    modified: SystemTime,
    // Position where entries end: that of the directory.
    end: u64,
    index: Index,
    // The folder that is entered, in index form with the NUL after it; empty for none.
    root: Vec<u8>,
    // Bytes from local header to data plus one, for entries whose local header has been checked; 0 for the others.
    checked: Vec<AtomicU16>,
    gets: AtomicU64,
    heads: AtomicU64,
    lists: AtomicU64,
    fetched: AtomicU64,
}

impl ZipStore {
    /// Opens the archive at `key` of `container`, and enters the folder that holds everything where there is one.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] for what is no archive, or whose directory is not exactly what its end record claims;
    /// [`Kind::Unsupported`] for an archive split over several files; what the container fails with.
    pub fn open(container: Arc<dyn Store>, key: Key) -> Result<Self> {
        let mut store = Self::open_plain(container, key)?;
        if let Some(mut folder) = store.index.sole_folder() {
            folder.push(0);
            store.root = folder;
        }
        Ok(store)
    }

    /// Opens the archive as it is, with its top-level folders as names in the root.
    ///
    /// # Errors
    /// As [`ZipStore::open`].
    pub fn open_plain(container: Arc<dyn Store>, key: Key) -> Result<Self> {
        let opened = open::open(container.as_ref(), &key).map_err(|e| e.about(container.locate(&key)))?;
        let entries = opened.index.len();
        Ok(Self {
            container,
            key,
            version: opened.meta.version,
            modified: opened.meta.modified,
            end: opened.end,
            index: opened.index,
            root: Vec::new(),
            checked: std::iter::repeat_with(AtomicU16::default).take(entries).collect(),
            gets: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            fetched: AtomicU64::new(opened.fetched),
        })
    }

    /// The archive as [`ZipStore::open_plain`] opens it.
    #[must_use]
    pub fn leave_folder(mut self) -> Self {
        self.root.clear();
        self
    }

    /// The folder that is entered.
    pub fn folder(&self) -> Option<String> {
        let (_, folder) = self.root.split_last()?;
        Some(name::display(folder))
    }

    /// Whether any entry has a name, without the folders before it, that `wanted` accepts.
    pub fn holds(&self, wanted: impl Fn(&[u8]) -> bool) -> bool {
        let count = u32::try_from(self.index.len()).unwrap_or(u32::MAX);
        let last = |number| self.index.name(number).rsplit(|b| *b == 0).next().unwrap_or_default();
        (0..count).any(|number| wanted(last(number)))
    }

    /// Number of entries in the directory that a key reaches, directories and replaced duplicates included.
    pub fn entries(&self) -> usize {
        self.index.len()
    }

    /// Bytes of memory that the index holds.
    pub fn weight(&self) -> usize {
        self.index.weight().saturating_add(self.checked.capacity().saturating_mul(2))
    }

    // What a key stands for; an entry of its own or nothing.
    fn find(&self, key: &Key) -> Result<Found> {
        if key.is_root() {
            return Ok(Found::Directory(None));
        }
        let name = name::of_key(&self.root, key.as_bytes());
        match self.index.find(&name) {
            Found::Nothing => match self.index.link_above(&name) {
                // What lies behind a link that is not followed is unknown, not absent.
                Some(link) => Err(self.no_link(link)),
                None => Ok(Found::Nothing),
            },
            found => Ok(found),
        }
    }

    fn no_link(&self, number: u32) -> Error {
        Error::unsupported(format!(
            "{} is a symbolic link, which is not followed in an archive",
            name::display(self.index.name(number))
        ))
    }

    // The record of a file whose content can be told; the reason why not otherwise.
    fn file(&self, number: u32) -> Result<&Record> {
        let record = self.index.record(number).ok_or_else(|| Error::new(Kind::Bug, "an entry without a record"))?;
        match record.flags {
            f if f & flag::LINK != 0 => Err(self.no_link(number)),
            f if f & flag::AMBIGUOUS != 0 => Err(Error::corrupt(
                "several entries have this name, written in different ways, and which one is meant is not known",
            )),
            f if f & flag::DOUBTFUL != 0 => {
                Err(Error::corrupt("an entry whose name goes up (..) may be meant, and which one it is meant to be is not known"))
            }
            f if f & flag::SPECIAL != 0 => Err(Error::unsupported("a device, FIFO or socket")),
            f if f & flag::NO_ZIP64 != 0 => Err(Error::corrupt("its sizes should be in a zip64 field, which is missing")),
            _ => Ok(record),
        }
    }

    fn meta(&self, kind: ObjectKind, record: Option<&Record>) -> Meta {
        let modified = record.filter(|r| r.modified != 0).map_or(self.modified, |r| {
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::from(r.modified))).unwrap_or(self.modified)
        });
        let file = record.filter(|_| kind == ObjectKind::File);
        Meta {
            kind,
            size: file.map_or(0, |r| r.size),
            modified,
            version: self.version.clone(),
            seekable: file.is_none_or(|r| r.method == 0),
        }
    }

    // Exactly `length` bytes of the container from `position`, at the pinned version.
    fn fetch(&self, position: u64, length: u64, into: &mut Vec<u8>) -> Result<()> {
        let range = Range::Part { offset: position, length };
        self.container.get(&self.key, range, Some(&self.version), length, into).map_err(gone)?;
        self.fetched.fetch_add(len64(into.len()), Ordering::Relaxed);
        if len64(into.len()) != length {
            return Err(Error::new(Kind::Unavailable, format!("{length} bytes were asked for, and {} came", into.len())));
        }
        Ok(())
    }

    // Fetches the local header and about `more` bytes of data after it, checks the header, and returns how many bytes it takes.
    fn header(&self, number: u32, record: &Record, more: u64, into: &mut Vec<u8>) -> Result<u64> {
        let room = self.end.saturating_sub(record.offset);
        if record.offset.saturating_add(HEADER).saturating_add(record.stored) > self.end {
            return Err(Error::corrupt(format!(
                "{} bytes at {} are claimed, and entries end at {}",
                record.stored, record.offset, self.end
            )));
        }
        let guess = HEADER.saturating_add(len64(self.index.name(number).len())).saturating_add(EXTRA).saturating_add(more);
        self.fetch(record.offset, guess.min(room), into)?;
        let lengths = (u16_at(into, 26), u16_at(into, 28));
        let ((Some(name_length), Some(extra)), true) = (lengths, into.starts_with(b"PK\x03\x04")) else {
            return Err(Error::corrupt(format!("no local header at {}", record.offset)));
        };
        if (u16_at(into, 6).unwrap_or(0) & 0x2041) != 0 {
            return Err(Error::unsupported("an encrypted entry"));
        }
        if u16_at(into, 8) != Some(record.method) {
            return Err(Error::corrupt("the local header and the directory name different compression methods"));
        }
        let named = HEADER.saturating_add(u64::from(name_length));
        let header = named.saturating_add(u64::from(extra));
        if header.saturating_add(record.stored) > room {
            return Err(Error::corrupt(format!(
                "{} bytes at {} are claimed, and entries end at {}",
                record.stored,
                record.offset.saturating_add(header),
                self.end
            )));
        }
        let mut long = Vec::new();
        if named > len64(into.len()) {
            self.fetch(record.offset, named, &mut long)?;
        }
        let raw = if long.is_empty() { into.as_slice() } else { &long };
        let raw = raw.get(len(HEADER)..len(named)).unwrap_or_default();
        let mut local = Vec::with_capacity(raw.len());
        name::append(raw, false, name::Up::Dropped, &mut local);
        // A name that leads elsewhere, or has the NUL that joins names in the index, is none but where the directory has the same letters.
        let plain = !name::is_rooted(raw, false) && !raw.contains(&0) && local == self.index.name(number);
        if !plain && self.index.spelling(number) != Some(name::hash(raw)) {
            return Err(Error::corrupt(format!("its local header names {:?}", String::from_utf8_lossy(raw))));
        }
        if let (Some(slot), Ok(known)) = (self.checked.get(number as usize), u16::try_from(header.saturating_add(1))) {
            slot.store(known, Ordering::Relaxed);
        }
        Ok(header)
    }

    // Bytes from the local header to the data, if the header has been checked.
    fn known(&self, number: u32) -> Option<u64> {
        let known = self.checked.get(number as usize)?.load(Ordering::Relaxed);
        known.checked_sub(1).map(u64::from)
    }

    // Packed bytes `from..to` of an entry: one range read, unless the local header is unknown and far or longer than guessed.
    fn packed(&self, number: u32, record: &Record, from: u64, to: u64, into: &mut Vec<u8>) -> Result<()> {
        let header = match self.known(number) {
            Some(header) => header,
            None => {
                let more = if from <= NEAR { to } else { 0 };
                let header = self.header(number, record, more, into)?;
                let (first, last) = (header.saturating_add(from), header.saturating_add(to));
                if last <= len64(into.len()) {
                    into.truncate(len(last));
                    into.drain(..len(first).min(into.len()));
                    return Ok(());
                }
                header
            }
        };
        self.fetch(record.offset.saturating_add(header).saturating_add(from), to.saturating_sub(from), into)
    }

    fn read(&self, number: u32, range: Range, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        let record = self.file(number)?;
        let (start, end) = range.within(record.size);
        let wanted = end.saturating_sub(start);
        if wanted > limit {
            return Err(Error::too_big(format!("{wanted} bytes; at most {limit} are read")));
        }
        if record.flags & flag::ENCRYPTED != 0 {
            return Err(Error::unsupported("an encrypted entry"));
        }
        if !stream::supported(record.method) {
            return Err(Error::unsupported(stream::method_name(record.method)));
        }
        let whole = wanted == record.size;
        match record.method {
            0 if record.stored != record.size => {
                return Err(Error::corrupt(format!("{} bytes are stored plainly for {} bytes", record.stored, record.size)));
            }
            0 => {
                self.packed(number, record, start, end, into)?;
                if whole {
                    stream::check_crc(crc32fast::hash(into), record.crc)?;
                }
            }
            8 if whole => self.inflate(number, record, into)?,
            _ => {
                // Most of what a range needs is about as long packed as it is plain.
                let more = end.min(record.stored).min(256 << 10);
                let mut piece = Vec::new();
                let header = self.header(number, record, more, &mut piece)?;
                let data = record.offset.saturating_add(header);
                let limit = data.saturating_add(record.stored);
                let fetched = record.offset.saturating_add(len64(piece.len()));
                let (position, at) = if fetched < data {
                    piece.clear();
                    (data, 0)
                } else {
                    piece.truncate(len(limit.min(fetched).saturating_sub(record.offset)));
                    (fetched.min(limit), len(header))
                };
                stream::decode(&mut stream::Packed::new(self, piece, at, position, limit), record, start, end, into)?;
            }
        }
        Ok(self.meta(ObjectKind::File, Some(record)))
    }

    fn inflate(&self, number: u32, record: &Record, into: &mut Vec<u8>) -> Result<()> {
        // Deflate packs at most 1032 bytes into one; what claims more is refused before anything is reserved for it.
        if record.size > record.stored.saturating_mul(1032).saturating_add(1032) {
            return Err(Error::corrupt(format!("{} bytes cannot hold the {} bytes claimed", record.stored, record.size)));
        }
        let mut packed = Vec::new();
        self.packed(number, record, 0, record.stored, &mut packed)?;
        super::sized(into, len(record.size))?;
        let decoded = libdeflater::Decompressor::new().deflate_decompress(&packed, into);
        match decoded {
            Ok(n) if n == into.len() => stream::check_crc(crc32fast::hash(into), record.crc),
            Ok(n) => Err(Error::corrupt(format!("{} bytes are claimed, and {n} are stored", record.size))),
            Err(libdeflater::DecompressionError::InsufficientSpace) => {
                Err(Error::corrupt(format!("{} bytes are claimed, and more are stored", record.size)))
            }
            Err(e) => Err(Error::corrupt(format!("deflate does not decode: {e}"))),
        }
    }
}

// What a pinned read of the container failed with: an archive that was opened and is deleted says nothing of its entries.
fn gone(e: Error) -> Error {
    match e.kind() {
        Kind::NotFound => Error::new(Kind::Changed, "the archive was deleted after it was opened"),
        _ => e,
    }
}

impl Store for ZipStore {
    fn name(&self) -> String {
        match (self.key.is_root(), self.folder()) {
            (true, _) => self.container.name(),
            (false, _) => self.container.locate(&self.key),
        }
    }

    fn head(&self, key: &Key) -> Result<Meta> {
        self.heads.fetch_add(1, Ordering::Relaxed);
        let meta = || match self.find(key)? {
            Found::File(number) => Ok(self.meta(ObjectKind::File, Some(self.file(number)?))),
            Found::Directory(number) => Ok(self.meta(ObjectKind::Directory, number.and_then(|n| self.index.record(n)))),
            Found::Nothing => Err(Error::not_found()),
        };
        meta().map_err(|e| e.about(key))
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let mut meta = || match self.find(key)? {
            Found::Nothing => Err(Error::not_found()),
            Found::Directory(_) => Err(Error::corrupt("a directory, where a file was expected")),
            Found::File(_) if pin.is_some_and(|p| *p != self.version) => {
                Err(Error::new(Kind::Changed, "the archive is another than the one that was opened"))
            }
            Found::File(number) => self.read(number, range, limit, into),
        };
        let read = meta();
        read.map_err(|e| {
            into.clear();
            // The container names the archive in its errors; the entry says more.
            Error::new(e.kind(), e.reason()).about(key)
        })
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        let listing = || match self.find(key)? {
            Found::Directory(_) if key.is_root() => self.index.list(self.root.split_last().map_or(&[], |(_, r)| r)),
            Found::Directory(_) => self.index.list(&name::of_key(&self.root, key.as_bytes())),
            Found::File(_) | Found::Nothing => Err(Error::not_found()),
        };
        listing().map_err(|e| e.about(key))
    }

    fn is_distant(&self) -> bool {
        self.container.is_distant()
    }

    fn locate(&self, key: &Key) -> String {
        let container = self.container.locate(&self.key);
        let Ok(Found::File(number)) = self.find(key) else {
            return format!("{container}/{key}");
        };
        let Ok(record) = self.file(number) else {
            return format!("{container}/{key}");
        };
        let header = self.known(number).or_else(|| self.header(number, record, 0, &mut Vec::new()).ok());
        match header {
            Some(header) => format!("{container}/{key}[{}+{}]", record.offset.saturating_add(header), record.stored),
            None => format!("{container}/{key}"),
        }
    }

    fn lanes(&self) -> usize {
        self.container.lanes()
    }

    fn kept(&self) -> Option<Kept> {
        self.container.kept()
    }

    fn requests(&self) -> Requests {
        if self.container.is_distant() {
            return self.container.requests();
        }
        Requests {
            get: self.gets.load(Ordering::Relaxed),
            head: self.heads.load(Ordering::Relaxed),
            list: self.lists.load(Ordering::Relaxed),
            bytes: self.fetched.load(Ordering::Relaxed),
        }
    }
}
