//! What consolidated metadata tells of the directories below it, where asking the store for each would be slow.
//!
//! Over a network a dataset of a thousand arrays would cost thousands of requests to open. Its consolidated metadata is believed
//! there instead, as Zarr readers believe it: a directory that it lists is not looked for, and its documents are those it holds.
//! What it does not list is looked for in the store.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Below, Directory, Tree};
use crate::array::{Format, Formats};
use crate::error::{Kind, Result};
use crate::format::{self, Documents, json};
use crate::store::{Key, Listing, Meta, ObjectKind, Version};
use parking_lot::RwLock;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

/// The documents that say what a directory is.
const NODES: [&str; 3] = [".zarray", ".zgroup", "zarr.json"];

/// The documents below a directory, by path.
#[derive(Debug)]
struct Book {
    documents: BTreeMap<String, Vec<u8>>,
    modified: SystemTime,
}

impl Book {
    /// Whether it tells what the directory at `path` is; attributes alone may be a part of what was consolidated.
    fn is_node(&self, path: &str) -> bool {
        NODES.iter().any(|name| self.documents.contains_key(&format!("{path}/{name}")))
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
        let read = |name: &str| documents.get(name).and_then(|d| d.as_ref().ok()).and_then(|bytes| json::parse(bytes).ok());
        let newer = documents.contains_key("zarr.json") && wanted.include(Format::Zarr3);
        let listed = if newer {
            read("zarr.json").map(|node| inline(&node))
        } else if wanted.include(Format::Zarr2) {
            read(".zmetadata").map(|consolidated| listed(&consolidated))
        } else {
            None
        };
        let listed = listed.unwrap_or_default();
        let mut books = self.books.write();
        if listed.is_empty() {
            books.remove(key);
        } else {
            books.insert(key.clone(), Arc::new(Book { documents: listed, modified }));
        }
    }

    /// The documents of the directory `key`, and their time; `None` where nothing tells what it is, and the store has to.
    pub fn documents(&self, key: &Key) -> Option<(Documents, SystemTime)> {
        let (book, path) = self.find(key, false)?;
        if !book.is_node(&path) {
            return None;
        }
        let mut documents = Documents::new();
        for &name in format::DOCUMENTS {
            if let Some(bytes) = book.documents.get(&format!("{path}/{name}")) {
                documents.insert(name, Ok(bytes.clone()));
            }
        }
        Some((documents, book.modified))
    }

    /// That `key` is a directory; `None` where nothing tells it.
    pub fn directory(&self, key: &Key) -> Option<Meta> {
        let (book, path) = self.find(key, false)?;
        book.is_node(&path).then(|| Meta {
            kind: ObjectKind::Directory,
            size: 0,
            modified: book.modified,
            version: Version::Tag("directory".into()),
            seekable: true,
        })
    }

    /// The directories directly below `key` that are told; `None` where none is.
    pub fn children(&self, key: &Key) -> Option<Result<Listing>> {
        let (book, path) = self.find(key, true)?;
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let mut listing = Listing::default();
        let mut last = "";
        for name in book.documents.range(prefix.clone()..).map_while(|(path, _)| path.strip_prefix(&prefix)) {
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

impl Tree {
    /// What is known of the file or directory at `key`: from consolidated metadata where it is believed, or from the store.
    ///
    /// # Errors
    /// As [`crate::store::Store::head`].
    pub fn head(&self, key: &Key) -> Result<Meta> {
        match self.told.directory(key) {
            Some(meta) => Ok(meta),
            None => self.store.head(key),
        }
    }

    /// The names in the directory `key`. Where the store has no listings, those that consolidated metadata tells.
    ///
    /// # Errors
    /// As [`crate::store::Store::list`].
    pub fn list(&self, key: &Key) -> Result<Listing> {
        match self.store.list(key) {
            Err(e) if e.kind() == Kind::Unsupported => self.told.children(key).unwrap_or(Err(e)),
            listing => listing,
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

/// The documents that `.zmetadata` holds, by path; those of the directory itself left out.
fn listed(consolidated: &Value) -> BTreeMap<String, Vec<u8>> {
    let members = consolidated.get("metadata").and_then(Value::as_object);
    let below = members.into_iter().flatten().filter(|(path, value)| path.contains('/') && value.is_object());
    below.map(|(path, value)| (path.clone(), json::render(value, json::NonFinite::Token))).collect()
}

/// The documents that a `zarr.json` holds of the nodes below it, by path.
fn inline(node: &Value) -> BTreeMap<String, Vec<u8>> {
    let members = node.get("consolidated_metadata").and_then(|c| c.get("metadata")).and_then(Value::as_object);
    let below = members.into_iter().flatten().filter(|(path, value)| !path.is_empty() && value.is_object());
    below.map(|(path, value)| (format!("{path}/zarr.json"), json::render(value, json::NonFinite::Token))).collect()
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

    #[test]
    fn zarr_3_tells_of_nodes() {
        let node: Value =
            serde_json::json!({"consolidated_metadata": {"kind": "inline", "metadata": {"a": {"node_type": "array"}}}});
        assert_eq!(inline(&node).keys().collect::<Vec<_>>(), ["a/zarr.json"]);
    }
}
