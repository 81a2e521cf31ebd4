//! A zip archive whose entries may be archives of their own: those that hold a store are shown as directories.
//!
//! WEBKNOSSOS downloads an annotation as an archive with the voxels in a second one inside. An entry that is stored is read by
//! ranges, like any archive; a deflated one has to be decoded whole, and is held, up to [`limits::NESTED`] bytes together.
//! Candidates are named `.zip`; the content decides, and what holds no store stays a file. Archives in archives in archives are
//! files.

use super::zip::ZipStore;
use super::{Key, Listing, Meta, ObjectKind, Range, Requests, Store, Version};
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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    // `None` for what stays a file.
    archives: HashMap<Key, Option<Arc<ZipStore>>>,
    held: u64,
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
        Arc::new(Self { outer: Arc::new(outer), is_mark, state: Mutex::default() })
    }

    /// The archive at `key`, if that is one that is shown as a directory.
    fn archive(&self, key: &Key) -> Result<Option<Arc<ZipStore>>> {
        // Held while opening: others who ask for the same archive wait for it.
        let mut state = self.state.lock();
        if let Some(known) = state.archives.get(key) {
            return Ok(known.clone());
        }
        let meta = match self.outer.head(key) {
            Ok(meta) if meta.kind == ObjectKind::File => meta,
            Ok(_) => return Ok(None),
            // A damaged entry is a file that cannot be read: it fails by itself, not all that lies beside it.
            Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Corrupt | Kind::Unsupported | Kind::TooBig) => return Ok(None),
            Err(e) => return Err(e),
        };
        let found = if state.archives.len() < ARCHIVES { self.open(key, meta, &mut state.held) } else { Ok(None) };
        let found = match found {
            Ok(found) => found,
            // No archive, or a damaged one: the file is there all the same.
            Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::Unsupported | Kind::TooBig) => {
                log::warn!("{key}: shown as a file: {}", e.reason());
                None
            }
            Err(e) => return Err(e),
        };
        state.archives.insert(key.clone(), found.clone());
        Ok(found)
    }

    fn open(&self, key: &Key, meta: Meta, held: &mut u64) -> Result<Option<Arc<ZipStore>>> {
        let archive = if meta.seekable {
            ZipStore::open_plain(self.outer.clone(), key.clone())?
        } else {
            let room = limits::NESTED.saturating_sub(*held);
            let mut bytes = Vec::new();
            self.outer.get(key, Range::All, None, room, &mut bytes)?;
            let size = meta.size;
            let entry = Entry { bytes, meta: Meta { seekable: true, ..meta }, name: self.outer.locate(key) };
            let archive = ZipStore::open_plain(Arc::new(entry), Key::root())?;
            if archive.holds(self.is_mark) {
                *held = held.saturating_add(size);
            }
            archive
        };
        Ok(archive.holds(self.is_mark).then(|| Arc::new(archive)))
    }

    /// The archive that `key` lies in, with the archive's key and the rest of it; `None` for what lies in the outer one alone.
    fn enter(&self, key: &Key) -> Result<Option<(Arc<ZipStore>, Key, Key)>> {
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
        match self.enter(key)? {
            None => self.outer.head(key),
            Some((archive, place, rest)) => archive.head(&rest).map_err(|e| e.within(&place)),
        }
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        match self.enter(key)? {
            None => self.outer.get(key, range, pin, limit, into),
            Some((archive, place, rest)) => archive.get(&rest, range, pin, limit, into).map_err(|e| e.within(&place)),
        }
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        if let Some((archive, place, rest)) = self.enter(key)? {
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
        match self.enter(key) {
            Ok(Some((archive, _, rest))) => archive.locate(&rest),
            _ => self.outer.locate(key),
        }
    }

    fn lanes(&self) -> usize {
        self.outer.lanes()
    }

    fn requests(&self) -> Requests {
        self.outer.requests()
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
