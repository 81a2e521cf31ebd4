//! What consolidated metadata tells in a store where asking costs nothing: of directories that have no documents of their own.
//!
//! Some writers and copiers leave these documents out, or the directory of an array of which no chunk is stored; Zarr's readers find
//! such nodes by consolidated metadata alone. A directory's own documents come first. Consolidated metadata is not read before the
//! first name or directory that only it could tell of, and where it cannot be read it is not known what such a name stands for.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Book, directory};
use crate::array::{Format, Formats};
use crate::error::{Error, Kind, Result};
use crate::format::{self, Documents, wkw};
use crate::limits;
use crate::store::{Key, Listing, Meta, Range, Store, Version};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Most directories of which it is remembered what their consolidated metadata tells, or that they have none.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Most bytes of documents that are remembered; those of the newest directory in any case.
const HELD: usize = 256 << 20;

/// What a directory's consolidated metadata tells.
struct Known {
    /// Of `zarr.json` and `.zmetadata`, where they are looked at again.
    versions: Option<[Option<Version>; 2]>,
    /// `None` where it has none.
    book: Result<Option<Arc<Book>>>,
}

impl Known {
    fn weight(&self) -> usize {
        self.book.as_ref().ok().and_then(Option::as_ref).map_or(0, |book| book.weight)
    }
}

/// See the module.
pub struct Near {
    store: Arc<dyn Store>,
    wanted: Formats,
    /// After so long what was read may have changed.
    refresh: Option<Duration>,
    known: Mutex<lru::LruCache<Key, Known>>,
    /// Answers of [`Near::nearest`], and since when.
    nearest: Mutex<lru::LruCache<Key, (Instant, Option<Key>)>>,
}

impl Near {
    /// For the directories of `store`; `None` where its consolidated metadata is believed before its documents, or no format that has
    /// any is looked for.
    pub fn new(store: &Arc<dyn Store>, wanted: Formats, refresh: Option<Duration>) -> Option<Arc<Self>> {
        let counts = wanted.include(Format::Zarr2) || wanted.include(Format::Zarr3);
        let known = Mutex::new(lru::LruCache::new(REMEMBERED));
        let nearest = Mutex::new(lru::LruCache::new(REMEMBERED));
        (counts && !store.is_distant()).then(|| Arc::new(Self { store: store.clone(), wanted, refresh, known, nearest }))
    }

    /// Whether a directory with these documents tells by itself what it is; attributes alone do not.
    pub fn is_told_by(&self, own: &Documents) -> bool {
        own.keys().any(|&name| {
            let format = match name {
                "zarr.json" => Format::Zarr3,
                ".zarray" | ".zgroup" | ".nczarr" | ".nczgroup" | ".nczvar" | ".nczarray" => Format::Zarr2,
                "attributes.json" => Format::N5,
                wkw::HEADER | wkw::PROPERTIES => Format::Wkw,
                _ => return false,
            };
            self.wanted.include(format)
        })
    }

    /// The documents that the directory `key` would have, none for one that only leads to others, and their time; `None` where
    /// nothing tells of it. Those of its own say whether it has consolidated metadata itself.
    ///
    /// # Errors
    /// Where the consolidated metadata that would have to tell cannot be read.
    pub fn documents(&self, key: &Key, own: &Documents) -> Result<Option<(Documents, SystemTime)>> {
        let itself = own.contains_key(".zmetadata") && self.wanted.include(Format::Zarr2);
        Ok(self.told(key, itself)?.map(|(book, path)| (book.documents_of(&path), book.modified)))
    }

    /// That `key` is a directory; `None` where nothing tells it.
    ///
    /// # Errors
    /// As [`Near::documents`].
    pub fn directory(&self, key: &Key) -> Result<Option<Meta>> {
        Ok(self.told(key, false)?.map(|(book, _)| directory(book.modified)))
    }

    /// What tells that `key` is a directory, which is a node or leads to some, and its path there; its own counts with `own`.
    fn told(&self, key: &Key, own: bool) -> Result<Option<(Arc<Book>, String)>> {
        let found = self.find(key, own)?;
        Ok(found.filter(|(book, path)| book.is_node(path) || book.nodes_below(path).next().is_some()))
    }

    /// The directories directly below `key` that are told and not among the names that the store lists.
    ///
    /// # Errors
    /// The store's failure to answer. Damage is none: what the store lists is there all the same, and names that it does not list
    /// fail when they are looked up.
    pub fn others(&self, key: &Key, stored: &Listing) -> Result<Vec<String>> {
        let (book, path) = match self.find(key, true) {
            Ok(Some(found)) => found,
            Err(e) if e.is_failure() => return Err(e),
            _ => return Ok(Vec::new()),
        };
        let mut told: Vec<&str> = book.nodes_below(&path).collect();
        // What is below one directory stands together.
        told.dedup();
        if !told.is_empty() {
            let stored: HashSet<&[u8]> = stored.iter().map(|(name, _)| name).collect();
            told.retain(|name| !stored.contains(name.as_bytes()));
        }
        // Of a document's name nothing else is shown, and longer names nothing that takes a copy could hold.
        let can_be = |name: &str| name.len() <= 255 && !format::DOCUMENTS.contains(&name) && !format::is_hidden(name.as_bytes());
        told.retain(|name| can_be(name) && key.join(name).is_ok());
        Ok(told.into_iter().map(str::to_owned).collect())
    }

    /// Reads what tells of the directory `key`, so that [`Near::others`] has it at hand.
    pub fn prepare(&self, key: &Key) {
        drop(self.find(key, true));
    }

    /// What tells of `key`, from the nearest directory above it that has consolidated metadata (or from its own), and its path there.
    fn find(&self, key: &Key, own: bool) -> Result<Option<(Arc<Book>, String)>> {
        // JSON has no other names.
        let Ok(path) = std::str::from_utf8(key.as_bytes()) else { return Ok(None) };
        if own && let Some(book) = self.book(key)? {
            return Ok(Some((book, String::new())));
        }
        let Some((above, _)) = key.split_last() else { return Ok(None) };
        let Some(here) = self.nearest(above)? else { return Ok(None) };
        let below = path.get(here.as_bytes().len()..).unwrap_or_default();
        let below = below.strip_prefix('/').unwrap_or(below).to_owned();
        Ok(self.book(&here)?.map(|book| (book, below)))
    }

    /// The nearest directory, at `from` or above it, that has consolidated metadata of what is below.
    fn nearest(&self, from: Key) -> Result<Option<Key>> {
        let mut passed = Vec::new();
        let mut at = Some(from);
        let found = loop {
            let Some(here) = at else { break None };
            if let Some((when, known)) = self.nearest.lock().get(&here)
                && self.refresh.is_none_or(|refresh| when.elapsed() < refresh)
            {
                break known.clone();
            }
            // One that tells of its own directory alone says nothing of what is below.
            let has_nodes = self.book(&here)?.is_some_and(|book| book.has_nodes);
            passed.push(here.clone());
            if has_nodes {
                break Some(here);
            }
            at = here.split_last().map(|(above, _)| above);
        };
        // In a hierarchy a thousand levels deep nobody goes all the way up from each of them.
        let mut nearest = self.nearest.lock();
        passed.into_iter().for_each(|key| drop(nearest.put(key, (Instant::now(), found.clone()))));
        Ok(found)
    }

    /// What the consolidated metadata of the directory `key` tells. One reads it for all who ask meanwhile.
    fn book(&self, key: &Key) -> Result<Option<Arc<Book>>> {
        let mut known = self.known.lock();
        let versions = match self.refresh.is_some() {
            true => Some([self.version(key, "zarr.json")?, self.version(key, ".zmetadata")?]),
            false => None,
        };
        if let Some(known) = known.get(key)
            && known.versions == versions
        {
            return known.book.clone();
        }
        let book = self.read(key).map_err(|e| e.about(key)).map(|book| book.map(Arc::new));
        // What may pass is asked for again.
        if book.as_ref().err().is_none_or(|e| e.is_damage() || e.kind() == Kind::Denied) {
            known.put(key.clone(), Known { versions, book: book.clone() });
            let mut held = known.iter().map(|(_, known)| known.weight()).fold(0, usize::saturating_add);
            while held > HELD && known.len() > 1 {
                held = held.saturating_sub(known.pop_lru().map_or(0, |(_, known)| known.weight()));
            }
        }
        book
    }

    fn version(&self, key: &Key, name: &str) -> Result<Option<Version>> {
        match self.store.head(&key.join(name)?) {
            Ok(meta) => Ok(Some(meta.version)),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn read(&self, key: &Key) -> Result<Option<Book>> {
        // As for `Told::learn`: what stands beside a newer document may be a leftover.
        for (name, format) in [("zarr.json", Format::Zarr3), (".zmetadata", Format::Zarr2)] {
            if !self.wanted.include(format) {
                continue;
            }
            let is_inline = format == Format::Zarr3;
            let mut bytes = Vec::new();
            let key = key.join(name)?;
            let meta = match self.store.get(&key, Range::All, None, limits::DOCUMENT, &mut bytes) {
                Err(e) if e.kind() == Kind::NotFound => continue,
                found => found?,
            };
            let (document, book) = Book::read(bytes, is_inline, meta.modified).map_err(|e| e.about(&key))?;
            return match document.get("consolidated_metadata") {
                None | Some(Value::Null) if is_inline => Ok(None),
                _ if book.is_some() => Ok(book),
                _ => Err(Error::corrupt("consolidated metadata without an object `metadata`").about(&key)),
            };
        }
        Ok(None)
    }
}
