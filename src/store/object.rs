//! Objects in a bucket (S3, Google Cloud Storage, Azure) or behind a web server, as a store.
//!
//! Names are flat there: a directory is what names have before a slash, and every question costs a request. So what a listing
//! told is kept (see `object/shelf.rs`) and answers for the names in it; a question for a single object is one request, and
//! never a listing. Only a server's 404 for an object is an absence: refusals, failures and answers that make no sense are
//! errors (see `object/fail.rs`). A version is the entity tag, or time and size where there is none; reads are pinned to it.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod client;
mod credentials;
mod fail;
mod shelf;
mod wire;

use super::{Entered, Key, Listing, Meta, ObjectKind, Range, Requests, Store, Version};
use crate::error::{Error, Kind, Result};
use client::{Client, Page};
use lru::LruCache;
use object_store::path::Path;
use object_store::{GetRange, ObjectMeta};
use parking_lot::Mutex;
use shelf::Shelf;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

/// Most memory for listings that are kept, in bytes: those of some three million objects.
const SHELVES: usize = 256 << 20;

/// Most answers about single objects that are kept.
const HEADS: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

/// Requests under way at a time when reading ahead: each waits some tens of milliseconds for the network.
const LANES: usize = 16;

/// Most pages without a new name that a listing may have in a row.
const IDLE_PAGES: u32 = 300;

/// Where objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// Amazon's S3, or a service that speaks like it.
    S3 {
        /// The bucket.
        bucket: String,
        /// Where the service is; Amazon where none is named.
        endpoint: Option<String>,
        /// The region.
        region: Option<String>,
    },
    /// Google Cloud Storage.
    Google {
        /// The bucket.
        bucket: String,
    },
    /// Azure Blob Storage.
    Azure {
        /// The URL of the container, in one of the forms that the library knows.
        url: String,
        /// The same, as a person says it.
        name: String,
    },
    /// A web server.
    Web {
        /// Scheme, host and port.
        base: String,
    },
}

/// A place in an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The service.
    pub service: Service,
    /// The key of an object, or what keys have before a slash; without one at its ends.
    pub key: String,
    /// The profile that the URL names.
    pub profile: Option<String>,
}

impl Address {
    /// The place of `key`, as a person says it.
    fn name(&self, key: &str) -> String {
        let place = match &self.service {
            Service::S3 { bucket, .. } => format!("s3://{bucket}"),
            Service::Google { bucket } => format!("gs://{bucket}"),
            Service::Azure { name, .. } => name.clone(),
            Service::Web { base } => base.clone(),
        };
        if key.is_empty() { place } else { format!("{place}/{key}") }
    }
}

/// How an object store is asked.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The profile in the shared configuration files.
    pub profile: Option<String>,
    /// The region; found out where none is named.
    pub region: Option<String>,
    /// Where the service is.
    pub endpoint: Option<String>,
    /// Ask without credentials.
    pub unsigned: bool,
    /// Pay for the requests.
    pub requester_pays: bool,
    /// The time that a request may take, with its repetitions.
    pub timeout: Duration,
    /// Keep no answer for longer; for ever where none is given.
    pub refresh: Option<Duration>,
    /// Names by one of which a directory is told where nothing can be listed.
    pub documents: &'static [&'static str],
}

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
    documents: &'static [&'static str],
    refresh: Option<Duration>,
    opened: SystemTime,
    shelves: Mutex<Shelves>,
    heads: Mutex<LruCache<Key, (Instant, Known)>>,
}

struct Shelves {
    kept: LruCache<Key, (Instant, Arc<Shelf>)>,
    weight: usize,
}

/// Opens what is at `address`. `object_first` where it is more likely an object than a directory.
///
/// # Errors
/// [`Kind::NotFound`] where there is nothing; others by their meaning, naming the endpoint.
pub fn open(address: Address, options: &Options, object_first: bool) -> Result<Found> {
    let client = Client::new(&address, options, None)?;
    let remote = Remote::new(client, Arc::new(address), options);
    let told = |e: Error, remote: &Remote| match e.kind() {
        Kind::NotFound => Error::new(e.kind(), "nothing is there"),
        _ => Error::new(e.kind(), format!("{}: {}", remote.client.endpoint, e.reason())),
    };
    let e = match remote.first(object_first) {
        Ok(object) => return remote.found(object),
        Err(e) => e,
    };
    // A bucket of another region is refused by most, and they say where it is.
    let region = remote.client.counters.region.lock().clone();
    let other = region.filter(|region| remote.client.guessed && remote.client.region.as_ref() != Some(region));
    let Some(region) = other else { return Err(told(e, &remote)) };
    log::info!("{}: the bucket is in {region}", remote.client.endpoint);
    let client = Client::new(&remote.address, options, Some(region))?;
    let remote = Remote::new(client, Arc::clone(&remote.address), options);
    match remote.first(object_first) {
        Ok(object) => remote.found(object),
        Err(e) => Err(told(e, &remote)),
    }
}

impl Remote {
    fn new(client: Client, address: Arc<Address>, options: &Options) -> Self {
        let prefix = if address.key.is_empty() { String::new() } else { format!("{}/", address.key) };
        Self {
            client: Arc::new(client),
            address,
            prefix,
            documents: options.documents,
            refresh: options.refresh,
            opened: SystemTime::now(),
            shelves: Mutex::new(Shelves { kept: LruCache::unbounded(), weight: 0 }),
            heads: Mutex::new(LruCache::new(HEADS)),
        }
    }

    /// Whether there is an object at the address; else there are names below it.
    fn first(&self, object_first: bool) -> Result<bool> {
        let path = self.path(&self.address.key)?;
        let object = || match self.client.head(&path) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == Kind::NotFound => Ok(false),
            Err(e) => Err(e),
        };
        let object_first = object_first && !self.address.key.is_empty();
        if object_first && object()? {
            return Ok(true);
        }
        let unlisted = match self.shelf(&Key::root()) {
            // An empty bucket is an empty directory.
            Ok(shelf) if !shelf.is_empty() || shelf.marked || self.prefix.is_empty() => return Ok(false),
            Ok(_) if object_first || !object()? => return Err(Error::not_found()),
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == Kind::Denied || e.kind() == Kind::Unsupported => e,
            Err(e) => return Err(e),
        };
        // Not to be listed: what opens by name will do.
        let document = self.has_document(&Key::root());
        if matches!(document, Ok(true)) {
            log::warn!("{}: {}", self.name(), unlisted.reason());
            return Ok(false);
        }
        if !self.address.key.is_empty() && !object_first && matches!(object(), Ok(true)) {
            return Ok(true);
        }
        match document {
            Err(e) if unlisted.kind() == Kind::Unsupported => Err(e),
            _ if unlisted.kind() == Kind::Unsupported => Err(Error::not_found()),
            _ => Err(unlisted),
        }
    }

    fn found(mut self, object: bool) -> Result<Found> {
        if !object {
            return Ok(Found::Directory(self));
        }
        let (folder, name) = self.address.key.rsplit_once('/').unwrap_or(("", &self.address.key));
        let key = Key::root().join(name)?;
        self.prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        Ok(Found::Object(self, key))
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

    // The listing of a directory, if one is kept: all of it, or the first page.
    fn kept(&self, key: &Key) -> Option<Arc<Shelf>> {
        let mut shelves = self.shelves.lock();
        let (when, shelf) = shelves.kept.get(key)?;
        self.is_fresh(*when).then(|| Arc::clone(shelf))
    }

    fn keep(&self, key: &Key, when: Instant, shelf: Shelf) -> Arc<Shelf> {
        let shelf = Arc::new(shelf);
        let mut shelves = self.shelves.lock();
        shelves.weight = shelves.weight.saturating_add(shelf.weight());
        if let Some((_, (_, old))) = shelves.kept.push(key.clone(), (when, Arc::clone(&shelf))) {
            shelves.weight = shelves.weight.saturating_sub(old.weight());
        }
        while shelves.weight > SHELVES {
            let Some((_, (_, old))) = shelves.kept.pop_lru() else { break };
            shelves.weight = shelves.weight.saturating_sub(old.weight());
        }
        shelf
    }

    // At least the first page of a directory.
    fn shelf(&self, key: &Key) -> Result<Arc<Shelf>> {
        if let Some(shelf) = self.kept(key) {
            return Ok(shelf);
        }
        let when = Instant::now();
        let mut shelf = Shelf::default();
        shelf.next = self.page(key, None, &mut shelf)?;
        let goes_on = shelf.next.is_some();
        shelf.finish(goes_on);
        Ok(self.keep(key, when, shelf))
    }

    // The whole of a directory.
    fn whole(&self, key: &Key) -> Result<Arc<Shelf>> {
        if let Some(shelf) = self.kept(key).filter(|shelf| shelf.is_whole()) {
            return Ok(shelf);
        }
        let when = Instant::now();
        let mut shelf = Shelf::default();
        let mut tokens = HashSet::new();
        let mut idle = 0_u32;
        let mut next = self.page(key, None, &mut shelf)?;
        let mut length = shelf.len();
        while let Some(token) = next {
            if !tokens.insert(token.clone()) {
                return Err(Error::new(Kind::Unavailable, "the server gave the same page of the listing again"));
            }
            next = self.page(key, Some(token), &mut shelf)?;
            idle = if shelf.len() == length { idle.saturating_add(1) } else { 0 };
            if idle > IDLE_PAGES {
                return Err(Error::new(Kind::Unavailable, "the server gave a listing without end"));
            }
            length = shelf.len();
        }
        shelf.finish(false);
        Ok(self.keep(key, when, shelf))
    }

    // Adds a page to a shelf, and returns the token of the next one.
    fn page(&self, key: &Key, token: Option<String>, shelf: &mut Shelf) -> Result<Option<String>> {
        let mut prefix = self.full(key)?;
        if !key.is_root() {
            prefix.push('/');
        }
        let Page { objects, directories, next } = self.client.page(&prefix, token)?;
        let whole = prefix.strip_suffix('/').unwrap_or(&prefix);
        let name = |path: &Path| {
            if path.as_ref() == whole {
                return Ok(None);
            }
            let name = path.as_ref().strip_prefix(&prefix).filter(|name| !name.is_empty() && !name.contains('/'));
            let foreign = || Error::new(Kind::Unavailable, format!("the server lists {path:?} in {prefix:?}"));
            name.map(|name| Some(name.to_owned())).ok_or_else(foreign)
        };
        for object in &objects {
            match name(&object.location)? {
                Some(name) => {
                    let tag = object.e_tag.as_deref().map(quoted).unwrap_or_default();
                    shelf.file(&name, object.size, object.last_modified.timestamp_millis(), &tag)?;
                }
                // An object that stands for the directory itself.
                None => shelf.marked = true,
            }
        }
        for directory in &directories {
            if let Some(name) = name(directory)? {
                shelf.directory(&name)?;
            }
        }
        Ok(next)
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
        let when = Instant::now();
        let known = match self.client.head(&self.path(&self.full(key)?)?) {
            Ok(object) => Some(meta(&object)),
            Err(e) if e.kind() == Kind::NotFound => None,
            Err(e) => return Err(e),
        };
        self.heads.lock().put(key.clone(), (when, known.clone()));
        Ok(known)
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

    fn read(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        if key.is_root() {
            return Err(Error::corrupt("a directory, where a file was expected"));
        }
        let (file, directory) = self.remembered(key);
        match (&file, directory) {
            (Some(None), Some(true)) => return Err(Error::corrupt("a directory, where a file was expected")),
            (Some(None), _) => return Err(Error::not_found()),
            _ => {}
        }
        let path = self.path(&self.full(key)?)?;
        let range = match range {
            Range::All => None,
            Range::Part { length: 0, .. } | Range::Suffix(0) => return self.nothing(key, pin, into),
            Range::Suffix(n) if self.client.has_suffixes() => Some(GetRange::Suffix(n)),
            Range::Suffix(n) => {
                let (start, end) = Range::Suffix(n).within(self.present(key)?.size);
                if start == end {
                    return self.nothing(key, pin, into);
                }
                Some(GetRange::Bounded(start..end))
            }
            Range::Part { offset, length } => match offset.checked_add(length) {
                Some(end) => Some(GetRange::Bounded(offset..end)),
                None => Some(GetRange::Offset(offset)),
            },
        };
        // Only strong tags can be demanded; all are compared.
        let tag = match pin {
            Some(Version::Tag(tag)) if tag.starts_with('"') => Some(tag.as_ref()),
            _ => None,
        };
        let accept = |object: &ObjectMeta, length: u64| {
            if pin.is_some_and(|pin| *pin != version(object)) {
                return Err(changed());
            }
            if length > limit {
                return Err(Error::too_big(format!("{length} bytes; at most {limit} are read")));
            }
            Ok(())
        };
        match self.client.read(&path, range, tag, into, &accept) {
            Ok(Some(object)) => Ok(meta(&object)),
            // The object ends before the range.
            Ok(None) => self.nothing(key, pin, into),
            Err(e) => Err(e),
        }
    }

    // A range that holds no byte.
    fn nothing(&self, key: &Key, pin: Option<&Version>, into: &mut Vec<u8>) -> Result<Meta> {
        let meta = self.present(key)?;
        if pin.is_some_and(|pin| *pin != meta.version) {
            return Err(changed());
        }
        into.clear();
        Ok(meta)
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

// An entity tag as answers for single objects have it; some listings leave the quotation marks out.
fn quoted(tag: &str) -> String {
    if tag.starts_with('"') || tag.starts_with("W/") { tag.to_owned() } else { format!("\"{tag}\"") }
}

fn version(object: &ObjectMeta) -> Version {
    let tag = match &object.e_tag {
        Some(tag) => quoted(tag),
        None => format!("{} bytes of {}", object.size, object.last_modified.timestamp_millis()),
    };
    Version::Tag(tag.into())
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
