//! Listings of directories: asked for page by page, complete or an error, and kept.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::client::Page;
use super::shelf::Shelf;
use super::{Remote, quoted};
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::store::Key;
use object_store::path::Path;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Most memory for listings that are kept, in bytes: those of some three million objects.
const SHELVES: usize = 256 << 20;

/// Most pages without a new name that a listing may have in a row.
const IDLE_PAGES: u32 = 300;

impl Remote {
    // The listing of a directory, if one is kept: all of it, or the first page.
    pub(super) fn kept(&self, key: &Key) -> Option<Arc<Shelf>> {
        let mut shelves = self.shelves.lock();
        let (when, shelf) = shelves.kept.get(key)?;
        self.is_fresh(*when).then(|| Arc::clone(shelf))
    }

    pub(super) fn keep(&self, key: &Key, when: Instant, shelf: Shelf) -> Arc<Shelf> {
        let shelf = Arc::new(shelf);
        self.shelves.lock().keep(key, when, &shelf, SHELVES);
        shelf
    }

    // At least the first page of a directory.
    pub(super) fn shelf(&self, key: &Key) -> Result<Arc<Shelf>> {
        if let Some(shelf) = self.kept(key) {
            return Ok(shelf);
        }
        self.first_pages.take(key, || {
            if let Some(shelf) = self.kept(key) {
                return Ok(shelf);
            }
            let when = Instant::now();
            let mut shelf = Shelf::default();
            shelf.next = self.page(key, None, &mut shelf)?;
            let goes_on = shelf.next.is_some();
            shelf.finish(goes_on);
            Ok(self.keep(key, when, shelf))
        })
    }

    // The whole of a directory.
    pub(super) fn whole(&self, key: &Key) -> Result<Arc<Shelf>> {
        if let Some(shelf) = self.kept(key).filter(|shelf| shelf.is_whole()) {
            return Ok(shelf);
        }
        self.listings.take(key, || self.all_pages(key))
    }

    fn all_pages(&self, key: &Key) -> Result<Arc<Shelf>> {
        if let Some(shelf) = self.kept(key).filter(|shelf| shelf.is_whole()) {
            return Ok(shelf);
        }
        let when = Instant::now();
        let mut tokens = HashSet::new();
        let mut idle = 0_u32;
        // A first page that is kept is not asked for again.
        let begun = self.kept(key).filter(|_| self.refresh.is_none());
        let (mut shelf, mut next) = match begun.and_then(|first| Some((Shelf::clone(&first), first.next.clone()?))) {
            Some((mut shelf, token)) => {
                shelf.next = None;
                (shelf, Some(token))
            }
            None => {
                let mut shelf = Shelf::default();
                let next = self.page(key, None, &mut shelf)?;
                (shelf, next)
            }
        };
        let mut length = shelf.len();
        while let Some(token) = next {
            if !tokens.insert(token.clone()) {
                return Err(Error::new(Kind::Unavailable, "the server gave the same page of the listing again"));
            }
            shelf.check_weight(limits::LISTING)?;
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
    pub(super) fn page(&self, key: &Key, token: Option<String>, shelf: &mut Shelf) -> Result<Option<String>> {
        let mut prefix = self.full(key)?;
        if !key.is_root() {
            prefix.push('/');
        }
        let Page { objects, directories, next, left_out } = self.client.page(&prefix, token)?;
        if let Some(name) = left_out {
            shelf.left_out = true;
            if !self.said_names.swap(true, Ordering::Relaxed) {
                let name = self.address.name(&name);
                log::warn!(
                    "{name}: names with control characters, and those below an empty name, . or .., are not read; they are left out"
                );
            }
        }
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
}
