//! What is told of an inode without opening it: kind, size, times, and where its bytes come from.

use super::{Attr, Place, Thing, Vfs};
use crate::array::{Envelope, Placement};
use crate::error::{Error, Kind, Result};
use crate::placement::Part;
use crate::store::{Meta, ObjectKind, Range};
use std::time::SystemTime;

impl Vfs {
    /// What is told of `inode`.
    ///
    /// # Errors
    /// As [`Vfs::lookup`].
    pub fn attr(&self, inode: u64) -> Result<Attr> {
        self.describe(inode, &self.thing(inode)?)
    }

    pub(super) fn describe(&self, inode: u64, thing: &Thing) -> Result<Attr> {
        let directory = |modified| Attr { inode, kind: ObjectKind::Directory, size: 0, modified, volatile: false, brief: false };
        let file = |size, modified| Attr { inode, kind: ObjectKind::File, size, modified, volatile: false, brief: false };
        Ok(match thing {
            Thing::Directory(dir) => directory(dir.directory.modified),
            Thing::Document(document) => {
                // A document that cannot be made is there and fails when opened.
                let size = document.content.as_ref().map_or(0, |bytes| bytes.len() as u64);
                file(size, document.modified)
            }
            Thing::File(shown) => file(shown.meta.size, shown.meta.modified),
            Thing::Place(place) if place.is_chunk() => {
                let meta = match &place.pin {
                    Some(meta) => Some(meta.clone()),
                    None => self.chunk_meta(place)?,
                };
                let modified = meta.as_ref().map_or(place.chunks.modified, |m| m.modified);
                file(self.chunk_size(inode, place, meta)?, modified)
            }
            Thing::Place(place) => directory(self.prefix_modified(place)?),
            Thing::Control => directory(self.root.read().directory.modified),
            Thing::Raw(key) => directory(self.store().head(key)?.modified),
            Thing::Statistics => Attr { volatile: true, ..file(self.statistics().len() as u64, SystemTime::now()) },
        })
    }

    /// What the store tells of a chunk; `None` for an absent one that is shown all the same.
    pub(super) fn chunk_meta(&self, place: &Place) -> Result<Option<Meta>> {
        match self.part(place) {
            Ok(part) if part.meta.kind == ObjectKind::File => Ok(Some(part.meta)),
            Ok(part) => Err(Error::corrupt("a directory where a chunk should be").about(&part.key)),
            Err(e) if e.kind() == Kind::NotFound => {
                // An array that is gone itself (deleted, not mounted any more) has no fill values either.
                self.check_decoded(&place.chunks)?;
                if self.options.fill_missing { Ok(None) } else { Err(e) }
            }
            Err(e) => self.damaged(place, &e).map_or(Err(e), |meta| Ok(Some(meta))),
        }
    }

    /// What the store tells of the object that should hold a block and is damaged, as `e` says. The block is there and fails when it
    /// is opened: who asks only whether it is there (Python's `os.path.exists` is false after any error) must not take it for absent.
    fn damaged(&self, place: &Place, e: &Error) -> Option<Meta> {
        let array = &place.chunks.array;
        if !e.is_damage() || matches!(array.stored.placement, Placement::Object) || array.chunk_bytes().is_none() {
            return None;
        }
        self.store().head(&place.key().ok()?).ok().filter(|meta| meta.kind == ObjectKind::File)
    }

    /// Where the bytes of a chunk lie.
    pub(super) fn part(&self, place: &Place) -> Result<Part> {
        self.indexes.locate(self.store(), &place.chunks.key, &place.chunks.array, &place.path)
    }

    /// The size of a shown chunk: from the metadata; where codecs stay, from the stored size or from decoding.
    fn chunk_size(&self, inode: u64, place: &Place, meta: Option<Meta>) -> Result<u64> {
        let array = &place.chunks.array;
        if let Some(size) = array.chunk_bytes() {
            return Ok(size);
        }
        let Some(meta) = meta else { return Err(Error::not_found()) };
        if array.stored.chain.is_empty() && array.stored.envelope == Envelope::None {
            return Ok(self.part(place)?.length());
        }
        Ok(self.block(inode, place, Some(meta.version))?.length())
    }

    /// Where the bytes of a chunk come from, for a person.
    fn source(&self, place: &Place) -> Result<String> {
        let object = self.store().locate(&place.key()?);
        if matches!(place.chunks.array.stored.placement, Placement::Object) {
            return Ok(object);
        }
        match self.part(place) {
            Ok(Part { range: Range::Part { offset, length }, .. }) => {
                Ok(format!("{object} bytes {offset}-{}", offset.saturating_add(length)))
            }
            _ => Ok(object),
        }
    }

    fn prefix_modified(&self, place: &Place) -> Result<SystemTime> {
        let chunks = &place.chunks;
        if !chunks.array.is_listed_as_stored() || self.options.fill_missing || self.store().is_flat() {
            // The source has no such directory: its directories are those of the last axis shown, or no more than names.
            return Ok(chunks.modified);
        }
        let key = place.key()?;
        let meta = self.store().head(&key)?;
        if meta.kind == ObjectKind::Directory {
            return Ok(meta.modified);
        }
        // A file leads to no chunks; a link to one is not known to be meant so.
        Err(self.store().list(&key).err().unwrap_or_else(Error::not_found))
    }

    /// Extended attributes of a file: where its bytes come from. Names without the `user.chunkmount.` before them.
    ///
    /// # Errors
    /// As [`Vfs::lookup`].
    pub fn xattrs(&self, inode: u64) -> Result<Vec<(&'static str, String)>> {
        let list = |numbers: &[u64]| format!("{numbers:?}");
        Ok(match self.thing(inode)? {
            Thing::Place(place) if place.is_chunk() => {
                let array = &place.chunks.array;
                let origin: Vec<u64> = place.path.iter().zip(&array.chunks).map(|(i, c)| i.saturating_mul(*c)).collect();
                vec![
                    ("source", self.source(&place)?),
                    ("codecs", array.stored.chain.names().join(",")),
                    ("dtype", crate::view::dtype(array)),
                    ("shape", list(&array.chunks)),
                    ("origin", list(&origin)),
                ]
            }
            Thing::File(file) => vec![("source", self.store().locate(&file.key))],
            Thing::Document(document) => vec![("source", document.key.to_string())],
            _ => Vec::new(),
        })
    }
}
