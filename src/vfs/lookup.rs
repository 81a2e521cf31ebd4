//! Names become inodes: documents first, then chunks by arithmetic, then what else lies in the source.

use super::{Attr, CONTROL_DIRECTORY, Chunks, Dir, Document, File, Place, ROOT, Thing, Vfs, digest, doubt};
use crate::array::{Attributes, Format, Node};
use crate::error::{Error, Kind, Result};
use crate::format;
use crate::store::{Key, ObjectKind};
use crate::tree::Directory;
use crate::view::names;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Vfs {
    /// Finds `name` in the directory `parent`, and counts a lookup of what is found.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when it is positively absent.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attr> {
        match self.thing(parent)? {
            Thing::Directory(dir) => {
                let dir = self.with_document(parent, dir, name)?;
                let attr = self.lookup_shown(parent, &dir, name)?;
                Ok(Attr { brief: attr.brief || dir.doubtful, ..attr })
            }
            Thing::Place(place) if !place.is_chunk() => {
                let path = names::parse(&place.chunks.array, &place.path, name).ok_or_else(Error::not_found)?;
                self.lookup_place(parent, name, &place.chunks, path, self.options.refresh.is_some())
            }
            Thing::Control => self.lookup_control(parent, name),
            Thing::Raw(key) => self.lookup_raw(parent, name, &key.join(name)?),
            _ => Err(Error::not_found()),
        }
    }

    fn lookup_shown(&self, parent: u64, dir: &Arc<Dir>, name: &[u8]) -> Result<Attr> {
        if parent == ROOT && name == CONTROL_DIRECTORY {
            return self.enter(parent, name, 0, || Ok(Thing::Control));
        }
        if !self.is_versioned(dir)
            && let Some((inode, thing)) = self.table.find(&(parent, name.into(), 0))
        {
            return self.describe(inode, &thing);
        }
        let directory = &dir.directory;
        if let Some((name, content)) = self.tree.document(directory, name)
            && self.tree.is_shown(directory, name)
        {
            let failed = content.as_ref().is_err_and(|e| self.tree.may_pass(e));
            let tag = tag(failed || self.is_versioned(dir), || digest(&content.as_ref().map_err(ToString::to_string)));
            let (modified, key) = (directory.modified, directory.key.clone());
            let document = Document { content, modified, key };
            let attr = self.enter(parent, name.as_bytes(), tag, || Ok(Thing::Document(Arc::new(document))))?;
            return Ok(Attr { brief: failed, ..attr });
        }
        if Self::is_hidden(directory, name) {
            // Which documents there are is not known where the store failed to tell.
            let unknown = directory.node.as_ref().err().filter(|e| self.tree.may_pass(e));
            return Err(unknown.cloned().unwrap_or_else(Error::not_found));
        }
        if let Some(chunks) = &dir.chunks {
            if let Some(path) = names::parse_first(&chunks.array, name) {
                return self.lookup_place(parent, name, chunks, path, self.is_versioned(dir));
            }
            if names::is_stored_chunk(&chunks.array, name) {
                return Err(Error::not_found());
            }
        }
        if directory.is_derived {
            return Err(Error::not_found());
        }
        // It may be a chunk, whose size in the source is not that of what is shown.
        if let Err(e) = &directory.node
            && dir.doubtful
            && names::may_be_chunk(name)
        {
            return Err(e.clone());
        }
        let key = directory.key.join(name)?;
        let meta = match self.tree.head(&key) {
            Err(e) if e.kind() == Kind::NotFound => {
                // Where it is not known how chunks are stored, no word about a name of the source makes one absent.
                let absent = directory.node.as_ref().err().filter(|_| names::may_be_chunk(name)).cloned().unwrap_or(e);
                return self.lookup_derived(parent, name, dir).ok_or(absent)?;
            }
            meta => meta?,
        };
        if meta.kind == ObjectKind::Directory {
            return self.lookup_directory(parent, name, &key, dir);
        }
        let broken = directory.node.as_ref().err().cloned();
        let tag = tag(self.is_versioned(dir), || digest(&meta.version));
        self.enter(parent, name, tag, || Ok(Thing::File(Arc::new(File { key, meta, broken }))))
    }

    /// What is in the source's directory `key`, called `name` in `above`.
    pub(super) fn open_below(&self, above: &Directory, name: &[u8], key: &Key) -> Result<Directory> {
        let mut new = self.tree.open(key, &above.below)?;
        // Below an array that cannot be understood it may lead to chunks, in an order that nobody knows. In an N5 container it is
        // a group then, as all directories without a document are.
        let is_bare = match &new.node {
            Ok(Node::Directory) => true,
            Ok(Node::Group(group)) => group.format == Format::N5 && group.attributes.as_ref().is_ok_and(Attributes::is_empty),
            _ => false,
        };
        if let Err(e) = &above.node
            && is_bare
            && names::may_be_chunk(name)
        {
            new.node = Err(e.clone());
        }
        Ok(new)
    }

    /// Finds a directory of the source. With `--refresh` it is looked at again, and keeps its inode if it shows the same.
    fn lookup_directory(&self, parent: u64, name: &[u8], key: &Key, above: &Dir) -> Result<Attr> {
        let open = || self.open_below(&above.directory, name, key);
        if !self.is_versioned(above) {
            return self.enter(parent, name, 0, || Ok(Thing::Directory(self.adopt(open()?, parent, false))));
        }
        let new = open()?;
        let tag = digest(&new.description());
        let Some((inode, Thing::Directory(old))) = self.table.find(&(parent, name.into(), tag)) else {
            return self.enter(parent, name, tag, || Ok(Thing::Directory(self.adopt(new, parent, above.doubtful))));
        };
        // What its documents tell of the directories below may have changed all the same (consolidated metadata).
        let chunks = old.told_again(&new);
        let dir = Thing::Directory(Arc::new(Dir { chunks, ..doubt::bare(new, parent, above.doubtful, &self.tree) }));
        self.table.replace(inode, dir.clone());
        self.describe(inode, &dir)
    }

    /// Finds an array that the source has no directory for.
    fn lookup_derived(&self, parent: u64, name: &[u8], above: &Dir) -> Option<Result<Attr>> {
        let directory = self.tree.derived(&above.directory, name)?;
        let tag = tag(self.is_versioned(above), || digest(&directory.description()));
        Some(self.enter(parent, name, tag, || Ok(Thing::Directory(self.adopt(directory, parent, above.doubtful)))))
    }

    fn lookup_place(&self, parent: u64, name: &[u8], chunks: &Arc<Chunks>, path: names::Path, versioned: bool) -> Result<Attr> {
        self.check_told(chunks)?;
        let (path, is_chunk) = match path {
            names::Path::Prefix(path) => (path, false),
            names::Path::Chunk(path) => (path, true),
        };
        chunks.looked_up.fetch_add(u64::from(is_chunk), Ordering::Relaxed);
        let mut place = Place { chunks: chunks.clone(), path: path.into(), pin: None };
        if is_chunk && (self.options.refresh.is_some() || chunks.array.chunk_bytes().is_none()) {
            place.pin = self.chunk_meta(&place)?;
        } else if let Some(inode) = place.number() {
            return self.describe(inode, &Thing::Place(place));
        }
        // The same object may be a chunk of an array that is decoded otherwise by now.
        let tag = tag(versioned, || digest(&(chunks.slot, place.pin.as_ref().map(|meta| &meta.version))));
        self.enter(parent, name, tag, || Ok(Thing::Place(place)))
    }

    fn lookup_raw(&self, parent: u64, name: &[u8], key: &Key) -> Result<Attr> {
        let meta = self.store().head(key)?;
        let key = key.clone();
        if meta.kind == ObjectKind::Directory {
            return self.enter(parent, name, 0, || Ok(Thing::Raw(key)));
        }
        let tag = tag(self.options.refresh.is_some(), || digest(&meta.version));
        self.enter(parent, name, tag, || Ok(Thing::File(Arc::new(File { key, meta, broken: None }))))
    }

    /// The inode of what is called `name`; `make` is asked when it is new. Nothing is entered that cannot be described.
    pub(super) fn enter(&self, parent: u64, name: &[u8], tag: u64, make: impl FnOnce() -> Result<Thing>) -> Result<Attr> {
        let key = (parent, name.into(), tag);
        let (inode, thing) = match self.table.find(&key) {
            Some(found) => found,
            None => {
                let thing = make()?;
                let keep = matches!(thing, Thing::Directory(_) | Thing::Control | Thing::Raw(_));
                self.table.insert(key, thing, keep)
            }
        };
        self.describe(inode, &thing).inspect_err(|_| self.table.forget(inode, 1))
    }

    /// Documents of the source, and those of another version of the same node, are not shown: they describe encoded bytes.
    pub(super) fn is_hidden(directory: &Directory, name: &[u8]) -> bool {
        // In a directory of no format a file of that name is someone else's.
        let foreign = matches!(directory.node, Ok(Node::Directory));
        format::is_hidden(name) && !(foreign && name == b"attributes.json") || name == b"zarr.json" && !foreign
    }
}

/// A tag that tells versions apart, where versions have inodes of their own.
fn tag(versioned: bool, make: impl FnOnce() -> u64) -> u64 {
    if versioned { make() } else { 0 }
}
