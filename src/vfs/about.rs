//! What a directory of the tree was understood as, and where chunks lie, for those who look at the tree from this program.

use super::{Dir, Thing, Vfs, digest};
use crate::array::{Array, Attributes, Node};
use crate::chunk;
use crate::error::{Error, Result};
use crate::store::{Key, Version};
use std::sync::Arc;

/// A shown directory of the source.
pub struct About(Arc<Dir>);

impl About {
    /// What it is, or what is wrong with it.
    pub fn node(&self) -> &Result<Node> {
        &self.0.directory.node
    }

    /// Its key in the source.
    pub fn key(&self) -> &Key {
        &self.0.directory.key
    }

    /// The key of the object that a chunk of this array lies in.
    ///
    /// # Errors
    /// When this is no array, or the key gets too long.
    pub fn chunk_key(&self, index: &[u64]) -> Result<Key> {
        let array = self.0.directory.array().ok_or_else(|| Error::usage("is no array").about(self.key()))?;
        chunk::key(self.key(), array, index)
    }
}

impl Vfs {
    /// What the directory `inode` was understood as; `None` for files, and for directories on the way to chunks.
    ///
    /// # Errors
    /// As [`Vfs::lookup`].
    pub fn about(&self, inode: u64) -> Result<Option<About>> {
        Ok(match self.thing(inode)? {
            Thing::Directory(dir) => Some(About(dir)),
            _ => None,
        })
    }

    /// A number for all that decides the bytes of a chunk, as far as that is known without reading it: how its array is understood and
    /// shown, and of what size and times, or with what tag, the object is that it lies in. `None` for what is no chunk.
    ///
    /// Not so device and inode: the same file may have others after the next boot.
    ///
    /// # Errors
    /// When the store does not tell where it is.
    pub fn chunk_state(&self, inode: u64) -> Result<Option<u64>> {
        let Thing::Place(place) = self.thing(inode)? else { return Ok(None) };
        if !place.is_chunk() {
            return Ok(None);
        }
        let understood = *place.chunks.understood.get_or_init(|| {
            // Attributes are in the documents alone.
            digest(&format!("{:?}", Array { attributes: Ok(Attributes::new()), ..place.chunks.array.clone() }))
        });
        let object = self.chunk_meta(&place)?.map(|meta| match meta.version {
            Version::File { size, modified, changed, .. } => (None, size, modified, changed),
            Version::Tag(tag) => (Some(tag), meta.size, 0, 0),
        });
        Ok(Some(digest(&(understood, object))))
    }

    /// The number of bytes that a chunk takes in the source, still encoded; 0 for an absent one that is shown as fill values, `None`
    /// for what is no chunk.
    ///
    /// # Errors
    /// When the store does not tell where it is.
    pub fn stored_bytes(&self, inode: u64) -> Result<Option<u64>> {
        match self.thing(inode)? {
            Thing::Place(place) if place.is_chunk() => match self.chunk_meta(&place)? {
                Some(_) => Ok(Some(self.part(&place)?.length())),
                None => Ok(Some(0)),
            },
            _ => Ok(None),
        }
    }
}
