//! A store in memory, for tests: a map from keys to bytes.
//!
//! Directories exist by what lies below them. Every `put` makes a new version, whatever the bytes.

use super::{Key, Listing, Meta, ObjectKind, Range, Requests, Store, Version};
use crate::error::{Error, Kind, Result};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

// The bytes and the version of an object.
type Object = (Arc<[u8]>, u64);

/// A store in memory. Part of the test kit: it keeps everything and forgets nothing.
#[derive(Default)]
pub struct MemStore {
    objects: RwLock<BTreeMap<Key, Object>>,
    version: AtomicU64,
    gets: AtomicU64,
    heads: AtomicU64,
    lists: AtomicU64,
    read: AtomicU64,
}

impl MemStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts or replaces the object at `key`.
    pub fn put(&self, key: Key, bytes: impl Into<Arc<[u8]>>) {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        self.objects.write().insert(key, (bytes.into(), version));
    }

    /// Deletes the object at `key`; says whether there was one.
    pub fn delete(&self, key: &Key) -> bool {
        self.objects.write().remove(key).is_some()
    }

    fn find(&self, key: &Key) -> Result<(Option<Arc<[u8]>>, Meta)> {
        let objects = self.objects.read();
        let time = |version| SystemTime::UNIX_EPOCH + Duration::from_secs(version);
        if let Some((bytes, version)) = objects.get(key) {
            let tag = Version::Tag(version.to_string().into());
            let (size, modified) = (super::len64(bytes.len()), time(*version));
            let meta = Meta { kind: ObjectKind::File, size, modified, version: tag, seekable: true };
            return Ok((Some(Arc::clone(bytes)), meta));
        }
        let prefix = prefix(key);
        let inside = objects.range::<Key, _>((Bound::Excluded(key), Bound::Unbounded));
        let inside = inside.map(|(k, _)| k.as_bytes()).find(|k| *k >= prefix.as_slice());
        if key.is_root() || inside.is_some_and(|k| k.starts_with(&prefix)) {
            let version = Version::Tag("directory".into());
            return Ok((None, Meta { kind: ObjectKind::Directory, size: 0, modified: time(0), version, seekable: true }));
        }
        Err(Error::not_found())
    }

    fn read(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        let (Some(bytes), meta) = self.find(key)? else {
            return Err(Error::corrupt("a directory, where a file was expected"));
        };
        if pin.is_some_and(|pin| *pin != meta.version) {
            return Err(Error::new(Kind::Changed, "the object is another version than the one that was opened"));
        }
        let (start, end) = range.within(meta.size);
        if end - start > limit {
            return Err(Error::too_big(format!("{} bytes; at most {limit} are read", end - start)));
        }
        into.clear();
        into.extend_from_slice(bytes.get(start as usize..end as usize).unwrap_or_default());
        self.read.fetch_add(end - start, Ordering::Relaxed);
        Ok(meta)
    }
}

fn prefix(key: &Key) -> Vec<u8> {
    let mut prefix = key.as_bytes().to_vec();
    if !prefix.is_empty() {
        prefix.push(b'/');
    }
    prefix
}

impl Store for MemStore {
    fn name(&self) -> String {
        "memory".into()
    }

    fn head(&self, key: &Key) -> Result<Meta> {
        self.heads.fetch_add(1, Ordering::Relaxed);
        self.find(key).map(|(_, meta)| meta).map_err(|e| e.about(key))
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.read(key, range, pin, limit, into).map_err(|e| {
            into.clear();
            e.about(key)
        })
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        match self.find(key) {
            Ok((None, _)) => {}
            Ok((Some(_), _)) => return Err(Error::not_found().about(key)),
            Err(e) => return Err(e.about(key)),
        }
        let prefix = prefix(key);
        let mut names = BTreeMap::new();
        for other in self.objects.read().keys() {
            let Some(below) = other.as_bytes().strip_prefix(prefix.as_slice()) else { continue };
            match below.iter().position(|&b| b == b'/') {
                Some(slash) => names.insert(below[..slash].to_vec(), ObjectKind::Directory),
                None => names.insert(below.to_vec(), ObjectKind::File),
            };
        }
        let mut listing = Listing::default();
        for (name, kind) in names {
            listing.push(&name, kind)?;
        }
        Ok(listing)
    }

    fn requests(&self) -> Requests {
        Requests {
            get: self.gets.load(Ordering::Relaxed),
            head: self.heads.load(Ordering::Relaxed),
            list: self.lists.load(Ordering::Relaxed),
            bytes: self.read.load(Ordering::Relaxed),
        }
    }
}
