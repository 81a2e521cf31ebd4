//! What consolidated metadata tells of the directories below it, where asking the store for each would be slow.
//!
//! Over a network a dataset of a thousand arrays would cost thousands of requests to open. Its consolidated metadata is believed
//! there instead, as Zarr readers believe it: a directory that it lists is not looked for, and its documents are those it holds.
//! What it does not list is looked for in the store. Where asking costs nothing it is the other way around, see `near.rs`.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod near;

use super::{Below, Directory, Tree};
use crate::array::{Format, Formats};
use crate::error::{Error, Kind, Result};
use crate::format::json::{self, Outline};
use crate::format::{self, Documents};
use crate::limits;
use crate::store::{Key, Listing, Meta, ObjectKind, Range, Version};
use parking_lot::RwLock;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

pub use near::Near;

/// The documents that say what a directory is.
const NODES: [&str; 3] = [".zarray", ".zgroup", "zarr.json"];

/// Bytes of memory that a path takes besides its text, about.
const WEIGHT: usize = 48;

/// The documents below a directory, by path.
#[derive(Debug)]
struct Book {
    /// What was consolidated.
    text: Vec<u8>,
    /// Where in it each is.
    documents: BTreeMap<String, std::ops::Range<usize>>,
    modified: SystemTime,
    /// Bytes of memory held, about.
    weight: usize,
    /// Whether it tells of any directory besides its own.
    has_nodes: bool,
}

impl Book {
    /// Of what the `zarr.json` (`is_inline`) or `.zmetadata` holds; `None` where `consolidated` is something else. What it says of where
    /// that would be comes with it.
    ///
    /// # Errors
    /// As [`json::parse`].
    fn read(text: Vec<u8>, is_inline: bool, modified: SystemTime) -> Result<(Value, Option<Self>)> {
        let path: &[&str] = if is_inline { &["consolidated_metadata", "metadata"] } else { &["metadata"] };
        let Outline { value, members } = json::outline(&text, path)?;
        let held = path.iter().try_fold(&value, |value, name| value.get(name));
        if !held.is_some_and(Value::is_object) {
            return Ok((value, None));
        }
        let is_document = |path: &str| format::DOCUMENTS.contains(&path.rsplit_once('/').map_or(path, |(_, name)| name));
        let documents: BTreeMap<_, _> = match is_inline {
            true => {
                members.into_iter().filter(|(path, _)| !path.is_empty()).map(|(path, at)| (path + "/zarr.json", at)).collect()
            }
            false => members.into_iter().filter(|(path, _)| is_document(path)).collect(),
        };
        let names = documents.keys().map(|path| path.len().saturating_add(WEIGHT)).fold(0, usize::saturating_add);
        let mut book = Self { weight: text.len().saturating_add(names), text, documents, modified, has_nodes: false };
        let has_nodes = book.nodes_below("").next().is_some();
        book.has_nodes = has_nodes;
        Ok((value, Some(book)))
    }

    /// Where the document `name` of the directory at `path` is; that of the book's own directory, where the path is empty.
    fn place(&self, path: &str, name: &str) -> Option<&std::ops::Range<usize>> {
        if path.is_empty() { self.documents.get(name) } else { self.documents.get(&format!("{path}/{name}")) }
    }

    /// The document `name` of the directory at `path`.
    fn document(&self, path: &str, name: &str) -> Option<Result<Vec<u8>>> {
        let text = self.text.get(self.place(path, name)?.clone())?;
        if name != "zarr.json" {
            return Some(Ok(text.to_vec()));
        }
        // Of a group below, zarr-python writes that it has consolidated metadata that lists nothing.
        let value = json::parse(text).map(|mut value| {
            value.as_object_mut().map(|members| members.remove("consolidated_metadata"));
            json::compact(&value)
        });
        Some(value)
    }

    /// Whether it tells what the directory at `path` is; attributes alone may be a part of what was consolidated.
    fn is_node(&self, path: &str) -> bool {
        NODES.iter().any(|name| self.place(path, name).is_some())
    }

    /// The documents of the directory at `path`.
    fn documents_of(&self, path: &str) -> Documents {
        let told = format::DOCUMENTS.iter().filter_map(|&name| Some((name, self.document(path, name)?)));
        told.collect()
    }

    /// Paths of the documents below `path`, from there.
    fn below(&self, path: &str) -> impl Iterator<Item = &str> {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        self.documents.range(prefix.clone()..).map_while(move |(path, _)| path.strip_prefix(&prefix))
    }

    /// The names in the directory at `path` that are nodes or lead to some, in order; some more than once.
    fn nodes_below(&self, path: &str) -> impl Iterator<Item = &str> {
        let nodes = self.below(path).filter(|below| below.rsplit_once('/').is_some_and(|(_, name)| NODES.contains(&name)));
        nodes.filter_map(|below| below.split_once('/').map(|(name, _)| name))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Told {
    books: RwLock<BTreeMap<Key, Arc<Book>>>,
}

impl Told {
    /// Takes note of the consolidated metadata among the documents of `key`, or that there is none.
    ///
    /// A node of both versions is one of Zarr v3, and then what was consolidated of the other version may be a leftover. Where
    /// only one format is looked for, another's is none of its documents.
    pub fn learn(&self, key: &Key, documents: &Documents, modified: SystemTime, wanted: Formats) {
        let read = |name: &str| {
            let bytes = documents.get(name)?.as_ref().ok()?;
            Book::read(bytes.clone(), name == "zarr.json", modified).ok()?.1
        };
        let newer = documents.contains_key("zarr.json") && wanted.include(Format::Zarr3);
        let mut book = match newer {
            true => read("zarr.json"),
            false if wanted.include(Format::Zarr2) => read(".zmetadata"),
            false => None,
        };
        if let Some(Book { text, documents, .. }) = &mut book {
            // Its own documents are there, and the store knows what it has in the place of one that is none.
            documents.retain(|path, at| path.contains('/') && text.get(at.start) == Some(&b'{'));
        }
        let mut books = self.books.write();
        match book.filter(|book| !book.documents.is_empty()) {
            None => drop(books.remove(key)),
            Some(book) => drop(books.insert(key.clone(), Arc::new(book))),
        }
    }

    /// The documents of the directory `key`, and their time; `None` where nothing tells what it is, and the store has to.
    pub fn documents(&self, key: &Key) -> Option<(Documents, SystemTime)> {
        let (book, path) = self.find(key, false)?;
        book.is_node(&path).then(|| (book.documents_of(&path), book.modified))
    }

    /// That `key` is a directory; `None` where nothing tells it.
    pub fn directory(&self, key: &Key) -> Option<Meta> {
        let (book, path) = self.find(key, false)?;
        book.is_node(&path).then(|| directory(book.modified))
    }

    /// The directories directly below `key` that are told; `None` where none is.
    pub fn children(&self, key: &Key) -> Option<Result<Listing>> {
        let (book, path) = self.find(key, true)?;
        let mut listing = Listing::default();
        let mut last = "";
        for name in book.below(&path) {
            let Some((child, _)) = name.split_once('/') else { continue };
            if child != last && key.join(child).is_ok() {
                if let Err(e) = listing.push(child.as_bytes(), ObjectKind::Directory) {
                    return Some(Err(e));
                }
                last = child;
            }
        }
        (!listing.is_empty()).then_some(Ok(listing))
    }

    /// What tells of `key`, from the nearest directory above it (or from its own, where that counts), and its path there.
    fn find(&self, key: &Key, own: bool) -> Option<(Arc<Book>, String)> {
        let books = self.books.read();
        if books.is_empty() {
            return None;
        }
        let path = std::str::from_utf8(key.as_bytes()).ok()?;
        if own && let Some(book) = books.get(key) {
            return Some((Arc::clone(book), String::new()));
        }
        let mut at = path;
        while !at.is_empty() {
            let above = at.rsplit_once('/').map_or("", |(above, _)| above);
            let above_key = if above.is_empty() { Key::root() } else { Key::root().join(above).ok()? };
            if let Some(book) = books.get(&above_key) {
                let below = if above.is_empty() { path } else { path.get(above.len().saturating_add(1)..)? };
                return Some((Arc::clone(book), below.to_owned()));
            }
            at = above;
        }
        None
    }
}

/// What the directory was found to be made of.
pub(super) struct Found {
    pub(super) documents: Documents,
    /// Time of the newest.
    pub(super) modified: SystemTime,
    /// Why it is not known whether there are others: what would have to tell of them cannot be read.
    pub(super) unread: Option<Error>,
    /// Those that the store has in the directory itself, in the state that was read.
    pub(super) versions: Vec<(Key, Version)>,
}

/// What is told of a directory that the store need not have.
fn directory(modified: SystemTime) -> Meta {
    let version = Version::Tag("directory".into());
    Meta { kind: ObjectKind::Directory, size: 0, modified, version, seekable: true }
}

impl Tree {
    /// What is known of the file or directory at `key`: from consolidated metadata where it is believed, or from the store.
    ///
    /// # Errors
    /// As [`crate::store::Store::head`].
    pub fn head(&self, key: &Key) -> Result<Meta> {
        if let Some(meta) = self.told.directory(key) {
            return Ok(meta);
        }
        match (self.store.head(key), &self.near) {
            (Err(e), Some(near)) if e.kind() == Kind::NotFound => near.directory(key)?.ok_or(e),
            (found, _) => found,
        }
    }

    /// The names that the store has in the directory `key`. Where it has no listings, those that consolidated metadata tells.
    ///
    /// # Errors
    /// As [`crate::store::Store::list`].
    pub fn list(&self, key: &Key) -> Result<Listing> {
        match self.store.list(key) {
            Err(e) if e.kind() == Kind::Unsupported => self.told.children(key).unwrap_or(Err(e)),
            Err(e) => self.nothing(key, e),
            listing => listing,
        }
    }

    /// What is in the directory `key`, which the store failed to list as `e` says: nothing, where the store has no such directory and
    /// consolidated metadata tells that it is one.
    ///
    /// # Errors
    /// `e` where it says anything else.
    pub fn nothing(&self, key: &Key, e: Error) -> Result<Listing> {
        let told = match &self.near {
            Some(near) if e.kind() == Kind::NotFound => near.directory(key)?.is_some(),
            _ => false,
        };
        if told { Ok(Listing::default()) } else { Err(e) }
    }

    /// What the directory `key` is made of: its own documents, or those that consolidated metadata tells. See [`Found`].
    pub(super) fn find(&self, key: &Key) -> Result<Found> {
        let elsewhere = |(documents, modified)| Found { documents, modified, unread: None, versions: Vec::new() };
        if let Some(told) = self.told.documents(key) {
            return Ok(elsewhere(told));
        }
        let own = self.fetch(key);
        let Some(near) = &self.near else { return own };
        match own {
            Ok(found) if near.is_told_by(&found.documents) => Ok(found),
            Ok(found) => Ok(match near.documents(key, &found.documents) {
                Ok(None) => found,
                Ok(Some((mut told, modified))) => {
                    told.extend(found.documents);
                    Found { documents: told, modified, ..found }
                }
                Err(e) => Found { unread: Some(e), ..found },
            }),
            Err(e) if e.kind() == Kind::NotFound => near.documents(key, &Documents::new())?.map(elsewhere).ok_or(e),
            Err(e) => Err(e),
        }
    }

    /// The bytes of the document `name` of the directory `key`: the store's, or else those that consolidated metadata tells.
    ///
    /// # Errors
    /// As [`crate::store::Store::get`].
    pub(super) fn document_of(&self, key: &Key, name: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.store.get(&key.join(name)?, Range::All, None, limits::DOCUMENT, &mut bytes) {
            Ok(_) => Ok(bytes),
            Err(e) if e.kind() == Kind::NotFound => self.find(key)?.documents.remove(name).unwrap_or(Err(e)),
            Err(e) => Err(e),
        }
    }

    /// Opens the directory at `path` below `root`; `opened` holds what those on the way to it tell.
    pub(super) fn open_path(&self, root: &Directory, path: &str, opened: &mut HashMap<String, Below>) -> Result<Directory> {
        if path.is_empty() {
            return self.open(&root.key, &Below::default());
        }
        let mut below = root.below.clone();
        for (at, _) in path.match_indices('/') {
            let way = path.get(..at).unwrap_or_default();
            below = match opened.get(way) {
                Some(below) => below.clone(),
                None => {
                    let below = self.open(&root.key.join(way)?, &below)?.below;
                    opened.insert(way.to_owned(), below.clone());
                    below
                }
            };
        }
        self.open(&root.key.join(path)?, &below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        if name.is_empty() { Key::root() } else { Key::root().join(name).unwrap() }
    }

    #[test]
    fn what_is_listed_is_told_and_nothing_else() {
        let told = Told::default();
        let text =
            br#"{"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}, "a/.zarray": {"fill_value": NaN},
            "a/.zattrs": {}, "p/.zattrs": {}, "g/.zgroup": {}, "g/b/.zarray": {"x": 1e400}, "../.zarray": {}}}"#;
        let documents = Documents::from([(".zmetadata", Ok(text.to_vec()))]);
        told.learn(&key("set"), &documents, SystemTime::UNIX_EPOCH, Formats::All);
        assert!(told.documents(&key("set")).is_none() && told.documents(&key("other/a")).is_none());
        let (documents, _) = told.documents(&key("set/a")).unwrap();
        assert_eq!(documents.keys().copied().collect::<Vec<_>>(), [".zarray", ".zattrs"]);
        assert!(String::from_utf8_lossy(documents[".zarray"].as_ref().unwrap()).contains("NaN"));
        // Attributes alone do not tell what it is.
        assert!(told.documents(&key("set/p")).is_none() && told.directory(&key("set/p")).is_none());
        assert!(told.directory(&key("set/g/b")).is_some() && told.directory(&key("set/g/c")).is_none());
        let names = |at| {
            let listing = told.children(&key(at)).unwrap().unwrap();
            listing.iter().map(|(n, _)| String::from_utf8_lossy(n).into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!((names("set").as_str(), names("set/g").as_str()), ("a g p", "b"));
        told.learn(&key("set"), &Documents::new(), SystemTime::UNIX_EPOCH, Formats::All);
        assert!(told.documents(&key("set/a")).is_none());
    }

    /// What is told of local directories by the same documents, and of the directory itself.
    #[test]
    fn what_is_not_stored_is_told() {
        let zarr2 = br#"{"metadata": {".zgroup": {}, "a/.zarray": {}, "g/.zattrs": {}, "g/b/.zarray": 5, "p/.zattrs": {},
            "../c/.zgroup": {}}}"#;
        let zarr3 = br#"{"consolidated_metadata": {"metadata": {"b": {"node_type": "group", "consolidated_metadata": {"metadata": {}}}}}}"#;
        for (documents, wanted, told) in [
            (&[(".zmetadata", &zarr2[..])][..], Formats::All, Ok("a g")),
            (&[(".zmetadata", zarr2), ("zarr.json", zarr3)], Formats::All, Ok("b")),
            (&[(".zmetadata", zarr2), ("zarr.json", b"{}")], Formats::All, Ok("")),
            (&[(".zmetadata", zarr2), ("zarr.json", zarr3)], Formats::Only(Format::Zarr2), Ok("a g")),
            (&[(".zmetadata", zarr2)], Formats::Only(Format::Zarr3), Ok("")),
            (&[(".zmetadata", b"{")], Formats::Zarr, Err(Kind::Corrupt)),
            (&[(".zmetadata", b"{}")], Formats::Zarr, Err(Kind::Corrupt)),
            (&[("zarr.json", b"{\"consolidated_metadata\": 5}")], Formats::Zarr, Err(Kind::Corrupt)),
            (&[("zarr.json", b"{\"consolidated_metadata\": null}")], Formats::Zarr, Ok("")),
        ] {
            let memory = crate::store::mem::MemStore::new();
            documents.iter().for_each(|(name, bytes)| memory.put(key("set").join(name).unwrap(), *bytes));
            let store: Arc<dyn crate::store::Store> = Arc::new(memory);
            let near = Near::new(&store, wanted, None).unwrap();
            let stored = ["a", "b", "g", "p", "c"].map(|name| near.documents(&key("set").join(name).unwrap(), &Documents::new()));
            let names = ["a", "b", "g", "p", "c"].into_iter().zip(stored).filter_map(|(name, found)| match found {
                Ok(found) => found.map(|_| Ok(name)),
                Err(e) => Some(Err(e.kind())),
            });
            let found: std::result::Result<Vec<_>, _> = names.collect();
            assert_eq!(found.map(|names| names.join(" ")), told.map(str::to_owned), "{documents:?} {wanted:?}");
            let mut listed = Listing::default();
            listed.push(b"a", ObjectKind::Directory).unwrap();
            let others = near.others(&key("set"), &listed).unwrap().join(" ");
            assert_eq!(others, told.unwrap_or_default().trim_start_matches("a "), "{documents:?} {wanted:?}");
            if told == Ok("b") {
                // A group that says it lists nothing below it would hide all that there is.
                let (documents, _) = near.documents(&key("set/b"), &Documents::new()).unwrap().unwrap();
                assert!(!String::from_utf8_lossy(documents["zarr.json"].as_ref().unwrap()).contains("consolidated"));
            }
        }
        // One without documents but this is told by it as well.
        let memory = crate::store::mem::MemStore::new();
        memory.put(key(".zmetadata"), *zarr2);
        let store: Arc<dyn crate::store::Store> = Arc::new(memory);
        let own = Documents::from([(".zmetadata", Ok(zarr2.to_vec()))]);
        let near = Near::new(&store, Formats::All, Some(std::time::Duration::ZERO)).unwrap();
        assert!(near.documents(&Key::root(), &own).unwrap().unwrap().0.contains_key(".zgroup"));
        assert!(near.documents(&key("g/b"), &own).unwrap().unwrap().0.contains_key(".zarray"), "which says what is wrong");
        assert!(Near::new(&store, Formats::Only(Format::N5), None).is_none());
    }

    #[test]
    fn the_version_that_counts_tells() {
        let zarr2 = br#"{"metadata": {"a/.zarray": {}}}"#.to_vec();
        let zarr3 = br#"{"consolidated_metadata": {"metadata": {"b": {"node_type": "array"}}}}"#.to_vec();
        let leftover = Documents::from([(".zmetadata", Ok(zarr2.clone())), ("zarr.json", Ok(zarr3))]);
        let alone = Documents::from([(".zmetadata", Ok(zarr2.clone())), ("zarr.json", Ok(b"{}".to_vec()))]);
        let unread = Documents::from([(".zmetadata", Ok(zarr2.clone())), ("zarr.json", Err(crate::error::Error::corrupt("x")))]);
        let older = Documents::from([(".zmetadata", Ok(zarr2))]);
        for (documents, wanted, a, b) in [
            (&leftover, Formats::All, false, true),
            (&leftover, Formats::Zarr, false, true),
            (&leftover, Formats::Only(Format::Zarr3), false, true),
            (&leftover, Formats::Only(Format::Zarr2), true, false),
            (&leftover, Formats::Only(Format::N5), false, false),
            (&leftover, Formats::Only(Format::Wkw), false, false),
            (&alone, Formats::All, false, false),
            (&unread, Formats::All, false, false),
            (&older, Formats::All, true, false),
            (&older, Formats::Only(Format::Zarr3), false, false),
        ] {
            let told = Told::default();
            told.learn(&Key::root(), documents, SystemTime::UNIX_EPOCH, wanted);
            let is_told = |name| told.documents(&key(name)).is_some();
            assert_eq!((is_told("a"), is_told("b")), (a, b), "{documents:?} {wanted:?}");
        }
    }
}
