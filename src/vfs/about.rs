//! What a directory of the tree was understood as, and where chunks lie, for those who look at the tree from this program.

use super::{Dir, Thing, Vfs};
use crate::array::Node;
use crate::chunk;
use crate::error::{Error, Result};
use crate::store::Key;
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

    /// Whether `inode` is a chunk file.
    pub fn is_chunk(&self, inode: u64) -> bool {
        matches!(self.thing(inode), Ok(Thing::Place(place)) if place.is_chunk())
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
