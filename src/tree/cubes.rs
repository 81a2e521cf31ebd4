//! WKW arrays as the store has them: the header of files where `header.wkw` is missing, and how far the cubes reach.
//!
//! Cubes lie in three levels of directories, `z3/y1/x4.wkw`. What cannot be listed is unknown, never absent.

use super::Tree;
use crate::array::Array;
use crate::array::scales::Multiscale;
use crate::error::{Error, Kind, Result};
use crate::format::{Context, wkw};
use crate::limits;
use crate::store::{Key, Listing, ObjectKind, Range, Store, may_lead_on};
use crate::view::names;
use std::collections::HashMap;

/// Most files looked at for a header where `header.wkw` is missing.
const HEADERS: u32 = 8;
/// Most directories listed to find cubes outside of a bounding box; a mount of a larger array has to rely on the box.
const LISTINGS: u32 = 10_000;

/// Said of an array without a header of its own.
pub const INFERRED: &str = "no header.wkw; shown with the header of one of its files";
/// Said of an array whose box is too small.
pub const OUTSIDE: &str = "cubes lie outside of the bounding box; the array is shown as large as they are";
/// Said of an array whose directories were not all looked at.
pub const UNKNOWN: &str = "too many directories to look for cubes outside of the bounding box; what lies there is not shown";

/// A look through the cubes of an array.
struct Walk<'a> {
    store: &'a dyn Store,
    /// Directories that may still be listed.
    left: Option<u32>,
    /// What could not be listed.
    error: Option<Error>,
    /// Whether what stands in the place of a directory counts: where it is known that cubes lie here.
    strict: bool,
}

impl Walk<'_> {
    /// Passes the indices and keys of the cubes below `key` to `found`, until it answers that it has enough.
    fn descend(
        &mut self,
        key: &Key,
        listing: Option<&Listing>,
        path: &mut Vec<u64>,
        found: &mut dyn FnMut(&[u64], Key) -> bool,
    ) -> Result<bool> {
        let own;
        let listing = match listing {
            Some(listing) => listing,
            None => {
                if self.left == Some(0) {
                    return Ok(true);
                }
                self.left = self.left.map(|n| n.saturating_sub(1));
                match self.store.list(key) {
                    Ok(listing) => own = listing,
                    // It was there when its parent was listed.
                    Err(e) if e.kind() == Kind::NotFound => return Ok(false),
                    Err(e) => {
                        self.error.get_or_insert(e);
                        return Ok(false);
                    }
                }
                &own
            }
        };
        for (name, kind) in listing.iter() {
            let Some(index) = names::cube_index(path.len(), name) else { continue };
            path.push(index);
            let enough = if path.len() == 3 {
                found(path, key.join(name)?)
            } else {
                let leads = kind == ObjectKind::Directory || self.strict && may_lead_on(self.store, key.join(name), kind);
                leads && self.descend(&key.join(name)?, None, path, found)?
            };
            path.pop();
            if enough {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Tree {
    /// The array whose cubes lie in a directory without `header.wkw`, of which `listing` has the names; `None` where there are
    /// none. The first readable header counts: a file that has another fails alone.
    pub(super) fn headerless(&self, key: &Key, listing: &Listing, context: &Context<'_>) -> Result<Option<Array>> {
        // A link or FIFO in any other directory may be called as one of cubes is.
        let is_cubes = |(name, kind): (&[u8], ObjectKind)| kind == ObjectKind::Directory && names::cube_index(0, name).is_some();
        let strict = context.place.is_some_and(|place| place.mag().is_some()) || listing.iter().any(is_cubes);
        let mut walk = Walk { store: self.store(), left: None, error: None, strict };
        let (mut array, mut failed, mut left) = (None, None, HEADERS);
        walk.descend(key, Some(listing), &mut Vec::new(), &mut |_, file| {
            let mut bytes = Vec::new();
            let range = Range::Part { offset: 0, length: 16 };
            let read = self.store().get(&file, range, None, 16, &mut bytes);
            match read.and_then(|_| wkw::array(&bytes, context)) {
                Ok(found) => array = Some(found),
                Err(e) => drop(failed.get_or_insert(e.about(&file))),
            }
            left = left.saturating_sub(1);
            array.is_some() || left == 0
        })?;
        match (array, failed.or(walk.error)) {
            (Some(array), _) => Ok(Some(array)),
            (None, Some(e)) => Err(e),
            (None, None) => Ok(None),
        }
    }

    /// The scale pyramid of a layer of WKW, from its dataset's document and from the magnifications that are there; `None` for any
    /// other directory, and for magnifications of different axes.
    ///
    /// # Errors
    /// When the store does not tell whether a magnification is there.
    pub(super) fn layer_scales(&self, key: &Key, context: &Context<'_>) -> Result<Option<Multiscale>> {
        let Some((place, layer)) = context.place.and_then(|place| Some((place, place.layer()?))) else {
            return Ok(None);
        };
        let mut levels = Vec::new();
        let mut ranks = Vec::new();
        let mut names = None;
        for mag in &layer.mags {
            // What is listed and not there is no level: readers of OME-Zarr fail at it.
            let told = mag.paths.iter().filter_map(|path| wkw::below(path, &place.path).map(str::to_owned));
            let found = match self.level(key, told, context)? {
                Some(found) => Some(found),
                None => {
                    let names = match &mut names {
                        Some(names) => names,
                        none => none.insert(self.names_of_mags(key)?),
                    };
                    self.level(key, names.get(&mag.mag).cloned().unwrap_or_default(), context)?
                }
            };
            // How far apart the voxels are of a directory that is several magnifications, nobody knows.
            if let Some((path, rank)) = found.filter(|(path, _)| place.enter(path).is_one_mag()) {
                levels.push((path, mag.mag));
                ranks.push(rank);
            }
        }
        let Some(&rank) = ranks.first() else { return Ok(None) };
        let voxel = place.properties.voxel_size();
        let same = ranks.iter().all(|other| *other == rank);
        Ok(same.then(|| wkw::multiscale(layer, voxel.as_ref(), &levels, rank > 3, context.source_axes)))
    }

    /// The first of `paths` below a layer that is an array, and its number of axes.
    fn level(
        &self,
        key: &Key,
        paths: impl IntoIterator<Item = String>,
        context: &Context<'_>,
    ) -> Result<Option<(String, usize)>> {
        for path in paths {
            let Ok(below) = key.join(&path) else { continue };
            if let Some(rank) = self.rank(&below, context)? {
                return Ok(Some((path, rank)));
            }
        }
        Ok(None)
    }

    /// The directories of a layer whose names have the numbers of a magnification, however they are written, by these.
    fn names_of_mags(&self, key: &Key) -> Result<HashMap<[u64; 3], Vec<String>>> {
        let listing = match self.store().list(key) {
            Ok(listing) => listing,
            // Where names cannot be listed, there are those that the document tells.
            Err(e) if e.kind() == Kind::NotFound || e.is_damage() => return Ok(HashMap::new()),
            Err(e) => return Err(e),
        };
        let mut found: HashMap<[u64; 3], Vec<String>> = HashMap::new();
        for name in listing.iter().filter_map(|(name, _)| std::str::from_utf8(name).ok()) {
            if let Some(mag) = wkw::numbers(name) {
                found.entry(mag).or_default().push(name.to_owned());
            }
        }
        found.values_mut().for_each(|names| names.sort());
        Ok(found)
    }

    /// Number of axes of the array of WKW at `key`; `None` where none is, or a damaged one.
    fn rank(&self, key: &Key, context: &Context<'_>) -> Result<Option<usize>> {
        let mut bytes = Vec::new();
        let header = self.store().get(&key.join(wkw::HEADER)?, Range::All, None, limits::DOCUMENT, &mut bytes);
        let found = match header.and_then(|_| wkw::array(&bytes, context)) {
            Ok(array) => Ok(Some(array)),
            Err(e) if e.kind() == Kind::NotFound => {
                self.store().list(key).and_then(|listing| self.headerless(key, &listing, context))
            }
            Err(e) => Err(e),
        };
        match found {
            Ok(array) => Ok(array.map(|array| array.shape.len())),
            Err(e) if e.kind() == Kind::NotFound || e.is_damage() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Extends an array to the cubes that are there, and tells what a person should know of it.
    ///
    /// # Errors
    /// When the cubes alone tell how large it is, and not all could be listed.
    pub(super) fn measure(&self, key: &Key, array: &mut Array, context: &Context<'_>) -> Result<Option<&'static str>> {
        let is_boxed = context.place.is_some_and(wkw::Place::is_boxed);
        let mut walk = Walk { store: self.store(), left: is_boxed.then_some(LISTINGS), error: None, strict: true };
        let mut cubes = [0; 3];
        walk.descend(key, None, &mut Vec::new(), &mut |path, _| {
            cubes.iter_mut().zip(path).for_each(|(count, index)| *count = (*count).max(index.saturating_add(1)));
            false
        })?;
        match walk.error {
            Some(e) if !is_boxed => return Err(e),
            Some(e) => log::warn!("{e}: not searched for data outside of the bounding box"),
            None => {}
        }
        let extended = wkw::cover(array, cubes, is_boxed)?;
        Ok(match (is_boxed, extended) {
            (true, true) => Some(OUTSIDE),
            (true, false) if walk.left == Some(0) => Some(UNKNOWN),
            _ => None,
        })
    }
}
