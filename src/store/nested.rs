//! A zip archive whose entries may be archives of their own: those that hold a store are shown as directories.
//!
//! WEBKNOSSOS downloads an annotation as an archive with the voxels in a second one inside. An entry that is stored is read by
//! ranges, like any archive; a deflated one has to be decoded whole, and is held, up to [`limits::NESTED`] bytes together.
//! Candidates are named `.zip`; the content decides, and what holds no store stays a file. Archives in archives in archives are
//! files. The indexes of both kinds count as held.

use super::flights::Flights;
use super::zip::ZipStore;
use super::{Kept, Key, Listing, Meta, ObjectKind, Range, Requests, Store, Version};
use crate::error::{Error, Kind, Result};
use crate::limits;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Most archives that are opened in one; further ones are files.
const ARCHIVES: usize = 256;

/// An archive with archives in it.
pub struct NestedStore {
    outer: Arc<ZipStore>,
    // Whether a name in an archive is that of a part of a store.
    is_mark: fn(&[u8]) -> bool,
    // Most archives, and most bytes held for them.
    limits: (usize, u64),
    state: Mutex<State>,
    // Who opens an archive now, so that others wait for that one alone.
    opening: Flights<Found>,
}

/// The archive at a key; `None` for what stays a file.
type Found = Option<Arc<ZipStore>>;

#[derive(Default)]
struct State {
    archives: HashMap<Key, Found>,
    held: u64,
    // Whether it was said that there are too many archives.
    said: bool,
}

/// Whether a name is that of an archive.
fn is_candidate(name: &[u8]) -> bool {
    let suffix = name.len().checked_sub(4).and_then(|at| name.get(at..));
    suffix.is_some_and(|suffix| suffix.eq_ignore_ascii_case(b".zip"))
}

impl NestedStore {
    /// `outer`, with the archives in it that have a file whose name `is_mark` knows. Where there are no archives at all, it is
    /// `outer` itself.
    pub fn wrap(outer: ZipStore, is_mark: fn(&[u8]) -> bool) -> Arc<dyn Store> {
        if !outer.holds(is_candidate) {
            return Arc::new(outer);
        }
        Arc::new(Self::within(Arc::new(outer), is_mark, (ARCHIVES, limits::NESTED)))
    }

    fn within(outer: Arc<ZipStore>, is_mark: fn(&[u8]) -> bool, limits: (usize, u64)) -> Self {
        Self { outer, is_mark, limits, state: Mutex::default(), opening: Flights::default() }
    }

    /// The archive at `key`, if that is one that is shown as a directory.
    fn archive(&self, key: &Key) -> Result<Found> {
        if let Some(known) = self.known(key) {
            return Ok(known);
        }
        self.opening.take(key, || {
            // Somebody may have opened it in between.
            if let Some(known) = self.known(key) {
                return Ok(known);
            }
            let meta = match self.outer.head(key) {
                Ok(meta) if meta.kind == ObjectKind::File => meta,
                Ok(_) => return Ok(None),
                // Who opens a damaged entry is told; the names beside it are there all the same.
                Err(e) if e.kind() == Kind::NotFound || e.is_damage() => return Ok(None),
                Err(e) => return Err(e),
            };
            if self.are_many(key) {
                return Ok(None);
            }
            let found = match self.open(key, meta) {
                Ok(found) => found,
                // No archive, or a damaged one: the file is there all the same.
                Err(e) if e.is_damage() => {
                    log::warn!("{key}: shown as a file: {}", e.reason());
                    None
                }
                Err(e) => return Err(e),
            };
            self.state.lock().archives.insert(key.clone(), found.clone());
            Ok(found)
        })
    }

    fn known(&self, key: &Key) -> Option<Found> {
        self.state.lock().archives.get(key).cloned()
    }

    /// Whether no further archive is opened; said once.
    fn are_many(&self, key: &Key) -> bool {
        let mut state = self.state.lock();
        let many = state.archives.len() >= self.limits.0;
        if many && !std::mem::replace(&mut state.said, true) {
            log::warn!("{key}: shown as a file, as all further archives are: {} were looked into", self.limits.0);
        }
        many
    }

    fn open(&self, key: &Key, meta: Meta) -> Result<Found> {
        let (archive, held) = if meta.seekable {
            (ZipStore::open_plain(self.outer.clone(), key.clone())?, None)
        } else {
            let held = self.hold(meta.size)?;
            let mut bytes = Vec::new();
            self.outer.get(key, Range::All, None, meta.size, &mut bytes)?;
            let entry = Entry { bytes, meta: Meta { seekable: true, ..meta }, name: self.outer.locate(key) };
            (ZipStore::open_plain(Arc::new(entry), Key::root())?, Some(held))
        };
        if !archive.holds(self.is_mark) {
            return Ok(None);
        }
        let index = self.hold(super::len64(archive.weight()))?;
        held.into_iter().chain([index]).for_each(Held::keep);
        Ok(Some(Arc::new(archive)))
    }

    /// Counts `bytes` as held, until what is returned is dropped without being kept.
    fn hold(&self, bytes: u64) -> Result<Held<'_>> {
        let mut state = self.state.lock();
        let held = state.held.saturating_add(bytes);
        if held > self.limits.1 {
            let reason = format!("{bytes} bytes beside {} that are held already; at most {} are", state.held, self.limits.1);
            return Err(Error::too_big(reason));
        }
        state.held = held;
        Ok(Held { state: &self.state, bytes })
    }

    /// The archive that `key` lies in, with the archive's key and the rest of it; `None` for what lies in the outer one alone.
    fn inside(&self, key: &Key) -> Result<Option<(Arc<ZipStore>, Key, Key)>> {
        let mut parts = key.as_bytes().split(|b| *b == b'/').filter(|part| !part.is_empty());
        let mut place = Key::root();
        while let Some(part) = parts.next() {
            place = place.join(part)?;
            if is_candidate(part)
                && let Some(archive) = self.archive(&place)?
            {
                let rest = parts.try_fold(Key::root(), |key, part| key.join(part))?;
                return Ok(Some((archive, place, rest)));
            }
        }
        Ok(None)
    }
}

impl Store for NestedStore {
    fn name(&self) -> String {
        self.outer.name()
    }

    fn head(&self, key: &Key) -> Result<Meta> {
        match self.inside(key)? {
            None => self.outer.head(key),
            Some((archive, place, rest)) => archive.head(&rest).map_err(|e| e.within(&place)),
        }
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        match self.inside(key)? {
            None => self.outer.get(key, range, pin, limit, into),
            Some((archive, place, rest)) => archive.get(&rest, range, pin, limit, into).map_err(|e| e.within(&place)),
        }
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        if let Some((archive, place, rest)) = self.inside(key)? {
            return archive.list(&rest).map_err(|e| e.within(&place));
        }
        let mut listing = Listing::default();
        for (name, kind) in self.outer.list(key)?.iter() {
            let is_archive = kind == ObjectKind::File && is_candidate(name) && self.archive(&key.join(name)?)?.is_some();
            listing.push(name, if is_archive { ObjectKind::Directory } else { kind })?;
        }
        Ok(listing)
    }

    fn locate(&self, key: &Key) -> String {
        match self.inside(key) {
            Ok(Some((archive, _, rest))) => archive.locate(&rest),
            _ => self.outer.locate(key),
        }
    }

    fn lanes(&self) -> usize {
        self.outer.lanes()
    }

    fn is_distant(&self) -> bool {
        self.outer.is_distant()
    }

    fn kept(&self) -> Option<Kept> {
        self.outer.kept()
    }

    fn requests(&self) -> Requests {
        self.outer.requests()
    }
}

/// Bytes that are counted as held.
struct Held<'a> {
    state: &'a Mutex<State>,
    bytes: u64,
}

impl Held<'_> {
    fn keep(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.held = state.held.saturating_sub(self.bytes);
    }
}

/// The decoded content of one entry: a store that has one object, its root.
struct Entry {
    bytes: Vec<u8>,
    meta: Meta,
    name: String,
}

impl Store for Entry {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn head(&self, _: &Key) -> Result<Meta> {
        Ok(self.meta.clone())
    }

    fn get(&self, _: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        into.clear();
        if pin.is_some_and(|pin| *pin != self.meta.version) {
            return Err(Error::new(Kind::Changed, "the archive is another than the one that was opened"));
        }
        let (start, end) = range.within(super::len64(self.bytes.len()));
        if end.saturating_sub(start) > limit {
            return Err(Error::too_big(format!("{} bytes; at most {limit} are read", end.saturating_sub(start))));
        }
        let part = usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(s, e)| self.bytes.get(s..e));
        into.extend_from_slice(part.unwrap_or_default());
        Ok(self.meta.clone())
    }

    fn list(&self, _: &Key) -> Result<Listing> {
        Err(Error::not_found())
    }

    fn locate(&self, _: &Key) -> String {
        self.name.clone()
    }

    fn requests(&self) -> Requests {
        Requests::default()
    }
}

#[cfg(test)]
mod tests;
