//! Objects in a bucket (S3, Google Cloud Storage, Azure) or behind a web server, as a store.
//!
//! Names are flat there: a directory is what names have before a slash, and every question costs a request. So what a listing
//! told is kept (see `object/shelf.rs`) and answers for the names in it; a question for a single object is one request, and
//! never a listing. Only a server's 404 for an object is an absence: refusals, failures and answers that make no sense are
//! errors (see `object/fail.rs`). A version is the entity tag, or time and size where there is none; reads are pinned to it.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod address;
mod client;
mod credentials;
mod disk;
mod endpoint;
mod fail;
mod fetch;
mod merge;
mod names;
mod open;
mod read;
mod shelf;
mod tidy;
mod wire;

pub use address::{Address, Options, Service};
pub use open::open;

use super::flights::Flights;
use super::{Entered, Kept, Key, Listing, Meta, ObjectKind, Range, Requests, Store, Version};
use crate::error::{Error, Kind, Result};
use client::Client;
use disk::Disk;
use lru::LruCache;
use merge::Merge;
use object_store::ObjectMeta;
use object_store::path::Path;
use parking_lot::Mutex;
use shelf::{Shelf, Shelves};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Most answers about single objects that are kept.
const HEADS: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// How versions of objects end of which the server tells neither an entity tag nor a time.
const UNTOLD: &str = "bytes of no version";

/// Requests under way at a time when reading ahead: each waits some tens of milliseconds for the network.
const LANES: usize = 64;

/// What is at an address.
pub enum Found {
    /// Names below it.
    Directory(Remote),
    /// An object, by its key in the directory that holds it.
    Object(Remote, Key),
}

/// What is known of one object: absent, or what it is.
type Known = Option<Meta>;

/// See the module.
pub struct Remote {
    client: Arc<Client>,
    address: Arc<Address>,
    /// What keys begin with: empty, or with a slash at the end.
    prefix: String,
    disk: Option<Arc<Disk>>,
    documents: &'static [&'static str],
    refresh: Option<Duration>,
    opened: SystemTime,
    shelves: Mutex<Shelves>,
    heads: Mutex<LruCache<Key, (Instant, Known)>>,
    /// Who asks for an object or a listing now, so that others wait for that answer.
    asking: Flights<Known>,
    first_pages: Flights<Arc<Shelf>>,
    listings: Flights<Arc<Shelf>>,
    /// Parts of objects that are asked for now.
    merge: Merge,
    /// Whether it was said that versions are not told.
    said: AtomicBool,
    /// Whether it was said that names are left out.
    said_names: AtomicBool,
}

impl Remote {
    fn new(client: Client, address: Arc<Address>, options: &Options, disk: Option<Arc<Disk>>) -> Self {
        let prefix = if address.key.is_empty() { String::new() } else { format!("{}/", address.key) };
        Self {
            client: Arc::new(client),
            address,
            prefix,
            disk,
            merge: Merge::default(),
            documents: options.documents,
            refresh: options.refresh,
            opened: SystemTime::now(),
            shelves: Mutex::new(Shelves::new()),
            heads: Mutex::new(LruCache::new(HEADS)),
            asking: Flights::default(),
            first_pages: Flights::default(),
            listings: Flights::default(),
            said: AtomicBool::new(false),
            said_names: AtomicBool::new(false),
        }
    }

    // What a whole key is called by the library.
    fn path(&self, key: &str) -> Result<Path> {
        Path::parse(key).map_err(|_| Error::unsupported("control characters in a name are not read"))
    }

    // The whole key of an object; no server has names that are not Unicode.
    fn full(&self, key: &Key) -> Result<String> {
        let name = std::str::from_utf8(key.as_bytes()).map_err(|_| Error::not_found())?;
        Ok(format!("{}{name}", self.prefix))
    }

    fn is_fresh(&self, when: Instant) -> bool {
        self.refresh.is_none_or(|age| when.elapsed() < age)
    }

    fn directory(&self, modified: Option<SystemTime>) -> Meta {
        let version = Version::Tag("directory".into());
        Meta { kind: ObjectKind::Directory, size: 0, modified: modified.unwrap_or(self.opened), version, seekable: true }
    }

    // What is known already of `key`: from what was asked of it, or from the listing it would be in.
    fn remembered(&self, key: &Key) -> (Option<Known>, Option<bool>) {
        let (parent, name) = split(key);
        let found = parent.and_then(|parent| self.kept(&parent)).map(|shelf| shelf.find(name)).unwrap_or_default();
        if found.file.is_some() {
            return (found.file, found.directory);
        }
        let mut heads = self.heads.lock();
        let head = heads.get(key).filter(|(when, _)| self.is_fresh(*when)).map(|(_, known)| known.clone());
        (head, found.directory)
    }

    // What the server knows of the object at `key`, asked at most once.
    fn ask(&self, key: &Key) -> Result<Known> {
        self.asking.take(key, || {
            // Somebody's answer may have come in between.
            if let (Some(known), _) = self.remembered(key) {
                return Ok(known);
            }
            let when = Instant::now();
            let known = match self.client.head(&self.path(&self.full(key)?)?) {
                Ok(object) => Some(meta(&object)),
                Err(e) if e.kind() == Kind::NotFound => None,
                Err(e) => return Err(e),
            };
            self.learn(key, when, known.clone());
            Ok(known)
        })
    }

    // Keeps an answer about an object.
    fn learn(&self, key: &Key, when: Instant, known: Known) {
        if known.as_ref().is_some_and(|meta| is_untold(&meta.version)) && !self.said.swap(true, Ordering::Relaxed) {
            let name = self.locate(key);
            log::warn!(
                "{name}: the server tells neither an entity tag nor a time of modification; that it is replaced is not seen"
            );
        }
        self.heads.lock().put(key.clone(), (when, known));
    }

    // Whether the directory has a document by which directories are told.
    fn has_document(&self, key: &Key) -> Result<bool> {
        for name in self.documents {
            if self.object_at(&key.join(name)?)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn object_at(&self, key: &Key) -> Result<Known> {
        match self.remembered(key) {
            (Some(known), _) => Ok(known),
            (None, _) => self.ask(key),
        }
    }

    fn look(&self, key: &Key) -> Result<Meta> {
        if key.is_root() {
            return Ok(self.directory(self.kept(key).and_then(|shelf| shelf.modified())));
        }
        let (file, directory) = self.remembered(key);
        if directory == Some(true) {
            return Ok(self.directory(self.kept(key).and_then(|shelf| shelf.modified())));
        }
        let file = match file {
            Some(known) => known,
            None => self.ask(key)?,
        };
        match file {
            Some(meta) => Ok(meta),
            None if directory == Some(false) => Err(Error::not_found()),
            None if !self.client.lists() => {
                if self.has_document(key)? {
                    Ok(self.directory(None))
                } else {
                    Err(Error::not_found())
                }
            }
            None => {
                let shelf = self.shelf(key)?;
                if shelf.is_empty() && !shelf.marked { Err(Error::not_found()) } else { Ok(self.directory(shelf.modified())) }
            }
        }
    }

    fn go_in(&self, key: &Key, wanted: &'static [&'static str]) -> Result<Entered> {
        let all = |meta| Entered { meta, present: wanted.to_vec() };
        if !self.client.lists() {
            return Ok(all(self.look(key)?));
        }
        let shelf = match self.shelf(key) {
            Ok(shelf) => shelf,
            // Every document is asked for by its name then.
            Err(e) if e.kind() == Kind::Denied => return Ok(all(self.directory(None))),
            Err(e) => return Err(e),
        };
        if shelf.is_empty() && !shelf.marked && !key.is_root() {
            return Err(Error::not_found());
        }
        let present = wanted.iter().copied().filter(|name| {
            let found = shelf.find(name.as_bytes());
            !matches!((found.file, found.directory), (Some(None), Some(false)))
        });
        Ok(Entered { meta: self.directory(shelf.modified()), present: present.collect() })
    }

    fn present(&self, key: &Key) -> Result<Meta> {
        self.object_at(key)?.ok_or_else(Error::not_found)
    }

    // Forgets what was told of an object that is no longer so.
    fn forget(&self, key: &Key) {
        self.heads.lock().pop(key);
        if let (Some(parent), _) = split(key) {
            let mut shelves = self.shelves.lock();
            if let Some((_, old)) = shelves.kept.pop(&parent) {
                shelves.weight = shelves.weight.saturating_sub(old.weight());
            }
        }
    }
}

impl Store for Remote {
    fn name(&self) -> String {
        self.address.name(self.prefix.trim_end_matches('/'))
    }

    fn head(&self, key: &Key) -> Result<Meta> {
        self.look(key).map_err(|e| e.about(key))
    }

    fn head_object(&self, key: &Key) -> Result<Meta> {
        self.present(key).map_err(|e| e.about(key))
    }

    fn enter(&self, key: &Key, wanted: &'static [&'static str]) -> Result<Entered> {
        self.go_in(key, wanted).map_err(|e| e.about(key))
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        self.read(key, range, pin, limit, into).map_err(|e| {
            into.clear();
            if e.kind() == Kind::Changed || pin.is_some() && e.kind() == Kind::NotFound {
                self.forget(key);
            }
            e.about(key)
        })
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        let listing = || {
            let shelf = self.whole(key)?;
            if shelf.is_empty() && !shelf.marked && !key.is_root() {
                return Err(Error::not_found());
            }
            shelf.listing()
        };
        listing().map_err(|e| e.about(key))
    }

    fn sample(&self, key: &Key) -> Result<Listing> {
        self.shelf(key).and_then(|shelf| shelf.listing()).map_err(|e| e.about(key))
    }

    fn is_distant(&self) -> bool {
        true
    }

    fn lanes(&self) -> usize {
        LANES
    }

    fn is_flat(&self) -> bool {
        true
    }

    fn locate(&self, key: &Key) -> String {
        self.address.name(&format!("{}{key}", self.prefix))
    }

    fn kept(&self) -> Option<Kept> {
        self.disk.as_ref().map(|disk| disk.kept())
    }

    fn requests(&self) -> Requests {
        let counters = &self.client.counters;
        Requests {
            get: counters.get.load(Ordering::Relaxed),
            head: counters.head.load(Ordering::Relaxed),
            list: counters.list.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
        }
    }
}

fn changed() -> Error {
    Error::new(Kind::Changed, "the object is another version than the one that was opened")
}

// The directory that a key is in, and its name there.
fn split(key: &Key) -> (Option<Key>, &[u8]) {
    let bytes = key.as_bytes();
    match bytes.iter().rposition(|&b| b == b'/') {
        _ if key.is_root() => (None, bytes),
        None => (Some(Key::root()), bytes),
        Some(slash) => {
            let (parent, name) = bytes.split_at(slash);
            (Key::root().join(parent).ok(), name.get(1..).unwrap_or_default())
        }
    }
}

// An entity tag as answers for single objects have it; some listings leave the quotation marks out. Empty where there is none.
fn quoted(tag: &str) -> String {
    if tidy::is_blank(tag) {
        String::new()
    } else if tag.starts_with('"') || tag.starts_with("W/") {
        tag.to_owned()
    } else {
        format!("\"{tag}\"")
    }
}

fn version(object: &ObjectMeta) -> Version {
    let tag = match &object.e_tag {
        Some(tag) => quoted(tag),
        // The library's time for none.
        None if object.last_modified.timestamp_millis() == 0 => format!("{} {UNTOLD}", object.size),
        None => format!("{} bytes of {}", object.size, object.last_modified.timestamp_millis()),
    };
    Version::Tag(tag.into())
}

// Whether nothing but its size tells an object from another one that takes its place.
fn is_untold(version: &Version) -> bool {
    matches!(version, Version::Tag(tag) if tag.ends_with(UNTOLD))
}

fn meta(object: &ObjectMeta) -> Meta {
    Meta {
        kind: ObjectKind::File,
        size: object.size,
        modified: shelf::time(object.last_modified.timestamp_millis()),
        version: version(object),
        seekable: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_that_would_drive_out_the_others_is_not_kept() {
        let shelf = |names: u32| {
            let mut shelf = Shelf::default();
            (0..names).for_each(|i| shelf.file(&format!("{i:0>40}"), 1, 1, "").unwrap());
            shelf.finish(false);
            Arc::new(shelf)
        };
        let (small, large) = (shelf(100), shelf(1000));
        let mut shelves = Shelves::new();
        let limit = large.weight() * 3 / 2;
        let key = |name: &str| Key::root().join(name).unwrap();
        for name in ["a", "b", "large", "b"] {
            shelves.keep(&key(name), Instant::now(), if name == "large" { &large } else { &small }, limit);
        }
        assert!(shelves.kept.contains(&key("a")) && shelves.kept.contains(&key("b")) && !shelves.kept.contains(&key("large")));
        assert_eq!(shelves.weight, 2 * small.weight());
    }
}
