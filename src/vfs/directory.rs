//! Listings of shown directories: documents, chunks and what belongs to no format, as one list for each open directory.
//!
//! It is complete before the directory is open, but for very many names: these come as the store lists them, and what fails then
//! is told by the page that would have held them.

use super::described::Described;
use super::growing::Growing;
use super::{Chunks, Dir, Place, ROOT, Thing, Vfs, inode};
use crate::array::{Placement, Style};
use crate::error::{Error, Result};
use crate::store::{Listing, ObjectKind, may_lead_on};
use crate::tree::DERIVED;
use crate::view::names;
use std::sync::Arc;

/// Longest listing of a whole grid (`--fill-missing`): `ls` keeps some 200 bytes for each name, and a listing takes a second for
/// each million. Chunks of a larger grid open by name all the same.
const GRID_ENTRIES: u128 = 1 << 24;

/// Most chunks of one directory that are listed in the order of the grid; more are listed in that of the store.
const SORTED: usize = 1 << 16;

/// Names that are listed at once; a thread that lists more costs more than they do.
const FEW: usize = 4096;

/// Names that are taken out of a growing listing at a time: about those of a page of the kernel's.
const PAGE: usize = 256;

/// Inode number of an entry that has none yet, as libfuse does; tools that care ask with `stat`.
const UNKNOWN: u64 = u32::MAX as u64;

/// What an entry's `next` is less its position: the directory itself and the one above come first.
const FIRST: u64 = 3;

/// The names of an open directory.
pub struct Names {
    inode: u64,
    listing: Listing,
    /// Names after those.
    growing: Option<Arc<Growing>>,
    /// Chunks or prefixes that are all shown, and so need no list: those after a prefix, in order.
    grid: Option<(Arc<Chunks>, Vec<u64>, u64)>,
    /// Where the names of `listing` can be chunks: these have arithmetic inodes.
    chunks: Option<(Arc<Chunks>, Vec<u64>)>,
    /// What more can be told of the chunks in `listing`.
    pub(super) described: Option<Described>,
}

/// What the store lists.
enum Source {
    /// All names.
    Whole(Listing),
    /// Those that are shown, as they come.
    Growing(Arc<Growing>),
}

/// Names of a growing listing that are taken out of it together, for a page, and the number of the first of them.
#[derive(Default)]
struct Taken {
    first: usize,
    names: Listing,
}

/// An entry of a directory.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Inode number, or a placeholder.
    pub inode: u64,
    /// Where the next page starts when this is the last entry of one.
    pub next: u64,
    /// File or directory.
    pub kind: ObjectKind,
    /// Name.
    pub name: &'a [u8],
}

impl Vfs {
    /// Opens a directory: lists its names, or begins to, and returns a handle to it.
    ///
    /// # Errors
    /// When the store cannot list it.
    pub fn opendir(&self, inode: u64) -> Result<u64> {
        let names = match self.thing(inode)? {
            Thing::Directory(dir) => self.list_shown(inode, &dir)?,
            Thing::Place(place) if !place.is_chunk() => self.list_place(inode, &place)?,
            Thing::Control => self.list_control(inode)?,
            Thing::Raw(key) => {
                Names { inode, listing: self.store().list(&key)?, growing: None, grid: None, chunks: None, described: None }
            }
            _ => return Err(Error::usage("not a directory")),
        };
        Ok(self.directories.add(Arc::new(names)))
    }

    /// Closes a directory.
    pub fn releasedir(&self, handle: u64) {
        self.directories.remove(handle);
    }

    /// Passes the entries from `offset` on to `add`, until it answers that it is full.
    ///
    /// # Errors
    /// When the handle is not open; what kept the store from listing the rest.
    pub fn readdir(&self, handle: u64, offset: u64, add: &mut dyn FnMut(Entry<'_>) -> bool) -> Result<()> {
        let names = self.directories.get(handle).ok_or_else(|| Error::usage("not an open directory"))?;
        let mut next = offset;
        // What is there is given before more of it is waited for.
        let mut is_empty = true;
        let mut taken = Taken::default();
        loop {
            next += 1;
            let full = match next {
                1 => add(Entry { inode: names.inode, next, kind: ObjectKind::Directory, name: b"." }),
                2 => add(Entry {
                    inode: if names.inode == ROOT { ROOT } else { UNKNOWN },
                    next,
                    kind: ObjectKind::Directory,
                    name: b"..",
                }),
                _ => match names.entry(next - FIRST, next, is_empty, &mut taken, add)? {
                    Some(full) => full,
                    None => return Ok(()),
                },
            };
            is_empty = false;
            if full {
                return Ok(());
            }
        }
    }

    fn list_shown(&self, inode: u64, dir: &Arc<Dir>) -> Result<Names> {
        let directory = &dir.directory;
        let mut listing = Listing::default();
        for name in directory.documents().filter(|name| self.tree.is_shown(directory, name)) {
            listing.push(name.as_bytes(), ObjectKind::File)?;
        }
        let source = match self.list_source(dir)? {
            Source::Whole(source) => source,
            Source::Growing(growing) => {
                let (growing, chunks) = (Some(growing), dir.chunks.clone());
                let arithmetic = chunks.clone().filter(|_| self.options.refresh.is_none()).map(|chunks| (chunks, Vec::new()));
                let described = chunks.filter(|chunks| self.is_described(chunks) && !dir.doubtful);
                let described = described.map(|chunks| Described::new(chunks, directory.key.clone()));
                return Ok(Names { inode, listing, growing, grid: None, chunks: arithmetic, described });
            }
        };
        let mut names = Names { inode, listing, growing: None, grid: None, chunks: None, described: None };
        if self.tree.derived(directory, DERIVED.as_bytes()).is_some()
            && !source.iter().any(|(name, _)| name == DERIVED.as_bytes())
        {
            names.listing.push(DERIVED.as_bytes(), ObjectKind::Directory)?;
        }
        let Some(chunks) = &dir.chunks else {
            for (name, kind) in source.iter().filter(|(name, _)| !Self::is_covered(dir, name)) {
                names.listing.push(name, kind)?;
            }
            if let Some(near) = self.tree.near() {
                for name in near.others(&directory.key, &source)? {
                    names.listing.push(name.as_bytes(), ObjectKind::Directory)?;
                }
            }
            return Ok(names);
        };
        // What is called as a chunk is shown (`0` beside the `c` of Zarr v3) is not there: a lookup finds the chunk.
        let array = &chunks.array;
        let is_chunk = |name: &[u8]| names::is_stored_chunk(array, name) || names::parse_first(array, name).is_some();
        for (name, kind) in source.iter() {
            if !directory.is_derived && !Self::is_covered(dir, name) && !is_chunk(name) {
                names.listing.push(name, kind)?;
            }
        }
        self.list_first(&mut names, chunks, source)?;
        if dir.doubtful {
            // What may soon be shown otherwise is not told ahead of the question.
            names.described = None;
        }
        Ok(names)
    }

    /// The store's listing of a directory, or the names of a very large one as the store lists them.
    fn list_source(&self, dir: &Arc<Dir>) -> Result<Source> {
        let directory = &dir.directory;
        let is_plain = dir.chunks.as_ref().is_none_or(|chunks| {
            let array = &chunks.array;
            let is_first = array.keys.style == Style::Plain || !array.keys.nested();
            is_first
                && array.is_listed_as_stored()
                && !array.shape.is_empty()
                && !(self.options.fill_missing && array.kept.is_empty())
        });
        let is_derived = directory.is_derived || self.tree.derived(directory, DERIVED.as_bytes()).is_some();
        if !is_plain || is_derived || !self.store().lists_slowly() {
            return self.tree.list(&directory.key).map(Source::Whole);
        }
        let mut listing = Listing::default();
        let listed = self.store().list_each(&directory.key, &mut |name, kind| {
            listing.push(name, kind)?;
            if listing.len() > FEW { Err(Error::too_big("many names")) } else { Ok(()) }
        });
        if listed.is_ok() || listing.len() <= FEW {
            return listed.map_or_else(|e| self.tree.nothing(&directory.key, e), |()| Ok(listing)).map(Source::Whole);
        }
        // An array holds no nodes.
        let near = self.tree.near().filter(|_| dir.chunks.is_none());
        let growing = Self::grow(dir.clone(), self.tree.shared_store(), near);
        // Only chunks are put in order.
        let most = if dir.chunks.is_some() { SORTED } else { 0 };
        Ok(match growing.within(most)? {
            Some(listing) => Source::Whole(listing),
            None => Source::Growing(growing),
        })
    }

    /// Whether more than names can be told of the chunks of an array without looking at each object: all have one size, and the source
    /// has a file for each.
    fn is_described(&self, chunks: &Chunks) -> bool {
        let array = &chunks.array;
        matches!(array.stored.placement, Placement::Object) && array.chunk_bytes().is_some() && self.options.refresh.is_none()
    }

    /// Whether a name of the source is one of the documents shown or hidden.
    pub(super) fn is_covered(dir: &Dir, name: &[u8]) -> bool {
        Self::is_hidden(&dir.directory, name) || dir.directory.documents().any(|d| d.as_bytes() == name)
    }

    fn list_place(&self, inode: u64, place: &Place) -> Result<Names> {
        let mut names = Names { inode, listing: Listing::default(), growing: None, grid: None, chunks: None, described: None };
        self.list_chunks(&mut names, &place.chunks, &place.path, None)?;
        Ok(names)
    }

    /// Adds what leads to the chunks of an array in its own directory, of which `source` is the store's listing.
    fn list_first(&self, names: &mut Names, chunks: &Arc<Chunks>, source: Listing) -> Result<()> {
        let array = &chunks.array;
        if array.keys.style == Style::Plain || !array.keys.nested() || array.shape.is_empty() {
            return self.list_chunks(names, chunks, &[], Some(source));
        }
        let is_there = if self.options.fill_missing && array.kept.is_empty() {
            !array.grid().contains(&0)
        } else if array.is_listed_as_stored() {
            let leads_on = |kind| may_lead_on(self.store(), chunks.key.join("c"), kind);
            source.iter().any(|(name, kind)| name == b"c" && leads_on(kind))
        } else {
            self.has_indices(chunks)?
        };
        if is_there { names.listing.push(b"c", ObjectKind::Directory) } else { Ok(()) }
    }

    /// Adds the chunks, and the directories on the way to chunks, directly below `prefix`. `source` is the store's listing of
    /// that directory, where it is known already.
    fn list_chunks(&self, names: &mut Names, chunks: &Arc<Chunks>, prefix: &[u64], source: Option<Listing>) -> Result<()> {
        let array = &chunks.array;
        let grid = array.grid();
        if self.options.fill_missing && array.kept.is_empty() {
            let rest = grid.get(prefix.len()..).unwrap_or_default();
            let shown = if array.keys.nested() { rest.get(..1).unwrap_or_default() } else { rest };
            let count = shown.iter().try_fold(1u128, |n, &g| n.checked_mul(u128::from(g))).unwrap_or(u128::MAX);
            let count = u64::try_from(count).ok().filter(|c| u128::from(*c) <= GRID_ENTRIES);
            let count = count.ok_or_else(|| {
                Error::too_big(format!("a grid of more than {GRID_ENTRIES} chunks is not listed whole")).about(&chunks.key)
            })?;
            names.grid = Some((chunks.clone(), prefix.to_vec(), count));
            return Ok(());
        }
        if self.options.refresh.is_none() {
            names.chunks = Some((chunks.clone(), prefix.to_vec()));
        }
        if !array.is_listed_as_stored() {
            if grid.is_empty() {
                return self.list_only(names, chunks, source);
            }
            if !array.keys.nested() {
                for index in self.all_indices(chunks)? {
                    names.listing.push(names::shown(array, &index).as_bytes(), ObjectKind::File)?;
                }
                return Ok(());
            }
            let kind = if prefix.len() + 1 == grid.len() { ObjectKind::File } else { ObjectKind::Directory };
            for index in self.next_indices(chunks, prefix)? {
                let path: Vec<u64> = prefix.iter().copied().chain([index]).collect();
                names.listing.push(names::shown_last(array, &path).as_bytes(), kind)?;
            }
            return Ok(());
        }
        let is_first = source.is_some();
        let place = Place { chunks: chunks.clone(), path: prefix.into(), pin: None };
        let key = if is_first { chunks.key.clone() } else { place.key()? };
        if self.is_described(chunks) {
            names.described = Some(Described::new(chunks.clone(), key.clone()));
        }
        let source = match source {
            Some(source) => source,
            None => self.store().list(&key)?,
        };
        let parsed = source.iter().filter_map(|(name, kind)| {
            let path = if is_first { names::parse_first(array, name) } else { names::parse(array, prefix, name) };
            match path? {
                names::Path::Chunk(path) => Some((path, name, ObjectKind::File)),
                // A file in the place of a directory leads to no chunks; a directory in that of a chunk fails when it is looked at, and so
                // does what cannot be looked into.
                names::Path::Prefix(path) => {
                    may_lead_on(self.store(), key.join(name), kind).then_some((path, name, ObjectKind::Directory))
                }
            }
        });
        if source.len() > SORTED {
            return parsed.into_iter().try_for_each(|(_, name, kind)| names.listing.push(name, kind));
        }
        // Those who read a directory in its own order (`cp -r`) then go along the grid, and are read ahead of.
        let mut sorted: Vec<_> = parsed.collect();
        sorted.sort_unstable();
        for (_, name, kind) in sorted {
            names.listing.push(name, kind)?;
        }
        Ok(())
    }

    /// Adds the one chunk of an array without axes, whose name in the store is another one, or which is a part of a shard.
    fn list_only(&self, names: &mut Names, chunks: &Arc<Chunks>, source: Option<Listing>) -> Result<()> {
        let array = &chunks.array;
        let source = source.map_or_else(|| self.store().list(&chunks.key), Ok)?;
        let stored = names::stored(array, &[]);
        if source.iter().any(|(name, _)| name == stored.as_bytes()) && self.is_there(chunks, &[])? {
            names.listing.push(names::shown(array, &[]).as_bytes(), ObjectKind::File)?;
        }
        Ok(())
    }

    fn list_control(&self, inode: u64) -> Result<Names> {
        let mut listing = Listing::default();
        for (name, kind) in super::control::ENTRIES {
            listing.push(name, *kind)?;
        }
        Ok(Names { inode, listing, growing: None, grid: None, chunks: None, described: None })
    }
}

impl Names {
    /// At most `count` names from that of an entry on: those that are known.
    ///
    /// # Errors
    /// As [`Growing::some`].
    pub(super) fn some(&self, i: usize, count: usize) -> Result<Listing> {
        match &self.growing {
            Some(growing) if i >= self.listing.len() => growing.some(i - self.listing.len(), count, false),
            _ => self.listing.part(i, count),
        }
    }

    /// The number of an entry among the names.
    pub(super) fn position(entry: &Entry<'_>) -> Option<usize> {
        usize::try_from(entry.next.checked_sub(FIRST)?).ok()
    }

    /// Whether they come while they are listed.
    pub(super) fn is_growing(&self) -> bool {
        self.growing.is_some()
    }

    /// Where the page after so many names begins.
    pub(super) fn next(count: usize) -> u64 {
        (count as u64).saturating_add(FIRST - 1)
    }

    /// Passes the `i`th entry to `add`; `None` after the last, and where it is not known yet, unless it shall be waited for.
    fn entry(
        &self,
        i: u64,
        next: u64,
        wait: bool,
        taken: &mut Taken,
        add: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<Option<bool>> {
        let listed = self.listing.len() as u64;
        let mut give = |name: &[u8], kind| {
            let inode = self.chunks.as_ref().and_then(|(chunks, prefix)| packed(chunks, prefix, name)).unwrap_or(UNKNOWN);
            add(Entry { inode, next, kind, name })
        };
        if i < listed {
            let known = usize::try_from(i).ok().and_then(|i| self.listing.get(i));
            return Ok(known.map(|(name, kind)| give(name, kind)));
        }
        let i = i - listed;
        if let Some(growing) = &self.growing {
            let i = usize::try_from(i).unwrap_or(usize::MAX);
            let known = |taken: &Taken| i.checked_sub(taken.first).filter(|at| *at < taken.names.len());
            if known(taken).is_none() {
                *taken = Taken { first: i, names: growing.some(i, PAGE, wait)? };
            }
            let name = known(taken).and_then(|at| taken.names.get(at));
            return Ok(name.map(|(name, kind)| give(name, kind)));
        }
        Ok(self.whole(i, next, add))
    }

    /// Passes the `i`th chunk of the whole grid to `add`.
    fn whole(&self, i: u64, next: u64, add: &mut dyn FnMut(Entry<'_>) -> bool) -> Option<bool> {
        let (chunks, prefix, count) = self.grid.as_ref()?;
        if i >= *count {
            return None;
        }
        let array = &chunks.array;
        let grid = array.grid();
        let (name, kind) = if array.keys.nested() && !grid.is_empty() {
            let kind = if prefix.len() + 1 == grid.len() { ObjectKind::File } else { ObjectKind::Directory };
            let path: Vec<u64> = prefix.iter().copied().chain([i]).collect();
            (names::shown_last(array, &path), kind)
        } else {
            let mut index = vec![0; grid.len()];
            let mut rest = i;
            for (slot, g) in index.iter_mut().zip(&grid).rev() {
                *slot = rest % g;
                rest /= g;
            }
            (names::shown(array, &index), ObjectKind::File)
        };
        Some(add(Entry { inode: UNKNOWN, next, kind, name: name.as_bytes() }))
    }
}

fn packed(chunks: &Chunks, prefix: &[u64], name: &[u8]) -> Option<u64> {
    let path = if prefix.is_empty() && chunks.array.keys.style == Style::C && !chunks.array.keys.nested() {
        names::parse_first(&chunks.array, name)
    } else {
        names::parse(&chunks.array, prefix, name)
    };
    match path? {
        names::Path::Chunk(_) if chunks.array.chunk_bytes().is_none() => None,
        names::Path::Chunk(path) | names::Path::Prefix(path) => chunks.places.pack(chunks.slot, &path),
    }
}

/// Keeps [`inode`]'s numbers and the placeholder apart.
const _: () = assert!(inode::ROOT < UNKNOWN);
