//! Open files: a version pinned at open, and reads from the block cache.

use super::pins;
use super::{Chunks, File, Place, Thing, Vfs, digest, inode};
use crate::cache::{Block, BlockId, Hold};
use crate::chunk;
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::placement::Part;
use crate::store::{Key, Range, Version};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Open things by handle number.
pub struct Handles<T> {
    next: AtomicU64,
    open: Mutex<HashMap<u64, T>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), open: Mutex::default() }
    }
}

impl<T: Clone> Handles<T> {
    /// Adds an open thing.
    pub fn add(&self, thing: T) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, thing);
        handle
    }

    /// The thing of a handle.
    pub fn get(&self, handle: u64) -> Option<T> {
        self.open.lock().get(&handle).cloned()
    }

    /// Closes a handle.
    pub fn remove(&self, handle: u64) -> Option<T> {
        self.open.lock().remove(&handle)
    }

    /// Number of open things.
    pub fn len(&self) -> usize {
        self.open.lock().len()
    }
}

/// An open file.
#[derive(Clone)]
pub enum Open {
    /// Content in memory.
    Bytes(Arc<Vec<u8>>),
    /// A chunk at a version; `None` for an absent chunk that is shown as fill values.
    Chunk(u64, Place, Option<Version>),
    /// A file shown as it is.
    File(u64, Arc<File>),
}

/// Largest chunk that the kernel is given whole at its first open, in bytes. To hand it over takes a small part of the time that it
/// took to make, and less than a request for each piece of it; but who wants a few bytes of a large one waits for all of it.
const WHOLE: u64 = 1 << 20;

/// Most times that an open looks which version is there, of a chunk that changes meanwhile.
const TRIES: u32 = 8;

/// What the kernel is told when a file is opened.
pub struct Opened {
    /// The handle to read and release with.
    pub handle: u64,
    /// What becomes of the kernel's pages of this inode.
    pub pages: Pages,
    /// All of its content, in a file that the kernel may read instead of asking.
    pub content: Option<Hold>,
    /// All of its content, for [`Vfs::hand_over`].
    pub whole: Option<Whole>,
}

/// The content of a chunk whose version has just been decoded.
pub struct Whole {
    id: BlockId,
    block: Arc<Block>,
    /// Whether the kernel's copy does, for some time.
    is_enough: bool,
}

/// What opening a chunk has made ready.
enum Ready {
    /// For the kernel to read by itself.
    Passed(Hold),
    /// For the kernel to keep.
    Made(BlockId, Arc<Block>),
    /// What is asked for later.
    Later,
}

/// What becomes of the pages that the kernel has of an inode when its file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// They are still right.
    Right,
    /// They may be of another version: the inode is pinned only now. A forget that comes late can have undone an earlier pin.
    Drop,
    /// Live content, of which no page is kept.
    None,
}

impl Vfs {
    /// Opens the file `inode` and pins its version.
    ///
    /// # Errors
    /// What makes its content impossible, where that is known without reading it.
    pub fn open(&self, inode: u64) -> Result<Opened> {
        let mut pages = Pages::Right;
        let (mut content, mut whole) = (None, None);
        let open = match self.thing(inode)? {
            Thing::Document(document) => Open::Bytes(document.content.clone()?),
            Thing::File(file) => match &file.broken {
                Some(e) => {
                    return Err(Error::new(e.kind(), format!("lies in a directory that cannot be read: {e}")).about(&file.key));
                }
                None => {
                    if file.meta.seekable {
                        self.probe(&file.key, &file.meta.version)?;
                    } else {
                        self.whole(inode, &file)?;
                    }
                    Open::File(inode, file)
                }
            },
            Thing::Place(place) if place.is_chunk() => {
                self.note_open(&place);
                let (version, right, ready) = self.open_chunk(inode, &place)?;
                match ready {
                    Ready::Passed(hold) => content = Some(hold),
                    Ready::Made(id, block) => whole = Some(Whole { id, block, is_enough: self.relies_on_kernel(&place.chunks) }),
                    Ready::Later => {}
                }
                if !right {
                    pages = Pages::Drop;
                }
                Open::Chunk(inode, place, version)
            }
            Thing::Statistics => {
                pages = Pages::None;
                Open::Bytes(Arc::new(self.statistics()))
            }
            _ => return Err(Error::usage("a directory")),
        };
        Ok(Opened { handle: self.files.add(open), pages, content, whole })
    }

    /// Pins the chunk `inode` and decodes it; whether the kernel's pages of it are right. Where nobody has a byte of the version
    /// that it is pinned to, and the source has another, that one is as good.
    fn open_chunk(&self, inode: u64, place: &Place) -> Result<(Option<Version>, bool, Ready)> {
        // What the last two tries failed with, where the store told of the same version both times.
        let (mut before, mut steady) = (None, None);
        for _ in 0..TRIES {
            let mut share = self.pins.open(inode, || self.present(place))?;
            let told = share.version.clone();
            let verified = match self.verify(inode, place, &share) {
                Ok(ready) if share.bound => Ok(ready),
                verified => self.check_decoded(&place.chunks).and(verified),
            };
            match verified {
                Ok(ready) if share.bind() => return Ok((share.version.clone(), share.settled, ready)),
                // Whom it was shared with has found another version.
                Ok(_) => {}
                Err(e) if e.kind() == Kind::Changed && place.pin.is_none() && share.give_up() => {
                    // Perhaps it was an index that told of the old version, read again by another meanwhile.
                    self.indexes.forget(&place.key()?);
                    steady = (before.as_ref() == Some(&told)).then_some(e);
                    before = Some(told);
                }
                Err(e) => return Err(e),
            }
        }
        // An archive that another one has taken the place of tells of its own version for ever: it changed once.
        if let Some(e) = steady {
            return Err(e);
        }
        Err(Error::new(Kind::Changed, "changes again and again while it is opened").about(place.key()?))
    }

    /// The version to pin a chunk to.
    fn present(&self, place: &Place) -> Result<Option<Version>> {
        Ok(match &place.pin {
            Some(meta) => Some(meta.version.clone()),
            None if self.options.refresh.is_some() => None,
            None => self.chunk_meta(place)?.map(|m| m.version),
        })
    }

    /// Makes sure that a chunk can be read, before its file is opened: some readers (`numpy.fromfile` is one) take no notice of
    /// an error that comes later, and would hand out what their memory held.
    ///
    /// It is decoded once for each version. After that the kernel may have all of it, so it is enough that the block is still
    /// in the cache, or that the source still has that version. A block that the kernel can read by itself is decoded for that
    /// each time it is not in the cache.
    fn verify(&self, inode: u64, place: &Place, pin: &pins::Share<'_>) -> Result<Ready> {
        let bytes = place.chunks.array.chunk_bytes();
        let id = self.block_id(inode, place, pin.version.as_ref());
        let by_kernel = self.cache.files().zip(bytes).is_some_and(|(files, bytes)| files.takes(bytes));
        if !pin.bound || by_kernel {
            let block = self.block(inode, place, pin.version.clone())?;
            return Ok(match self.cache.hold(id, &block) {
                Some(hold) => Ready::Passed(hold),
                None if bytes.is_some_and(|bytes| bytes <= WHOLE) => Ready::Made(id, block),
                None => Ready::Later,
            });
        }
        if let Some(version) = &pin.version
            && !self.cache.contains(id, Some(version))
        {
            self.probe(&place.key()?, version)?;
        }
        Ok(Ready::Later)
    }

    /// Makes sure that an object can be read at `version`, by reading a byte of it: only that asks the archive behind an entry.
    fn probe(&self, key: &Key, version: &Version) -> Result<()> {
        let range = Range::Part { offset: 0, length: 1 };
        self.store().get(key, range, Some(version), 1, &mut Vec::new()).map_err(vanished).map(drop)
    }

    /// Large decoded blocks go to files that the kernel can read by itself, from now on.
    ///
    /// # Errors
    /// The system's, where that is not allowed.
    pub fn use_files(&self) -> std::io::Result<()> {
        self.cache.use_files()
    }

    /// No more of them: the kernel does not take them.
    pub fn stop_files(&self) {
        if let Some(files) = self.cache.files() {
            files.stop();
        }
    }

    /// Takes note that the kernel reads an open file by itself.
    pub fn count_passed(&self) {
        self.passed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether to open or read `inode` may take long even where the store is near, so that it must not hold up other requests: its
    /// block is large and not in memory.
    pub fn may_wait(&self, inode: u64) -> bool {
        match self.thing(inode) {
            Ok(Thing::Place(place)) if place.is_chunk() => {
                let id = self.block_id(inode, &place, place.pin.as_ref().map(|meta| &meta.version));
                place.chunks.array.chunk_bytes().is_some_and(|bytes| self.cache.may_wait(id, bytes))
            }
            _ => false,
        }
    }

    /// Passes all of the content of an open file to `take`, for the kernel, unless somebody else has opened it as well, or had before:
    /// if nobody has, nobody reads it now, and nobody opens it until `take` returns. Whether the kernel has all of it.
    ///
    /// # Errors
    /// As [`Block::part`], and those of `take`: then the kernel may have a part of it.
    pub fn hand_over(&self, inode: u64, whole: &Whole, take: impl FnOnce(&[u8]) -> std::io::Result<()>) -> Result<bool> {
        let Some(alone) = self.pins.alone(inode) else { return Ok(false) };
        let Whole { id, block, is_enough } = whole;
        let length = block.length();
        block.part(0, length, take)??;
        alone.settle();
        self.cache.progress(*id, block, 0, length);
        if *is_enough {
            self.cache.handed(*id, block);
        }
        Ok(true)
    }

    /// Whether what the kernel has been given of an array need not be here as well. Who opens it again has its version looked at: of a store
    /// that is near, a call or two; of one that is far, a request. With `--refresh` the versions of a chunk have no common number to
    /// tell by what the kernel has.
    pub(super) fn relies_on_kernel(&self, chunks: &Chunks) -> bool {
        !chunks.lost.load(Ordering::Relaxed) && !self.is_distant() && self.options.refresh.is_none()
    }

    /// Takes note that the kernel has forgotten a chunk that it had been given, and which is nowhere now.
    pub(super) fn note_lost(&self, inode: u64) {
        if let Some(chunks) = inode::unpack(inode).and_then(|(slot, _)| self.arrays.read().get(slot).cloned()) {
            chunks.lost.store(true, Ordering::Relaxed);
        }
    }

    /// Takes back an open whose answer has not reached the kernel.
    pub fn undo_open(&self, handle: u64) {
        if let Some(Open::Chunk(inode, ..)) = self.files.remove(handle) {
            self.pins.undo(inode);
        }
    }

    /// Closes a file.
    pub fn release(&self, handle: u64) {
        if let Some(Open::Chunk(inode, ..)) = self.files.remove(handle) {
            self.pins.release(inode);
        }
    }

    /// Passes `length` bytes from `offset` of an open file to `reply`; fewer only at its end.
    ///
    /// # Errors
    /// By meaning, naming the key; never short data.
    pub fn read<T>(&self, handle: u64, offset: u64, length: u32, reply: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let open = self.files.get(handle).ok_or_else(|| Error::usage("not an open file"))?;
        match open {
            Open::Bytes(bytes) => Ok(reply(part(&bytes, offset, length))),
            Open::Chunk(inode, place, pin) => {
                if self.pins.is_handed(inode) {
                    place.chunks.lost.store(true, Ordering::Relaxed);
                }
                let id = self.block_id(inode, &place, pin.as_ref());
                let block = self.block(inode, &place, pin)?;
                let result = block.part(offset, length.into(), reply);
                self.cache.progress(id, &block, offset, length.into());
                result
            }
            Open::File(inode, file) if file.meta.seekable => {
                let end = offset.saturating_add(length.into());
                if let Some(e) = self.failures.find(inode, (offset, end)) {
                    return Err(e);
                }
                let bytes = self.part_of(&file, offset, length);
                let bytes = bytes.inspect_err(|e| self.failures.note(inode, (offset, end), e))?;
                Ok(reply(&bytes))
            }
            Open::File(inode, file) => self.whole(inode, &file)?.part(offset, length.into(), reply),
        }
    }

    /// `length` bytes from `offset` of a file that is shown as it is; fewer only at its end.
    fn part_of(&self, file: &File, offset: u64, length: u32) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let range = Range::Part { offset, length: u64::from(length) };
        let pin = Some(&file.meta.version);
        let meta = self.store().get(&file.key, range, pin, u64::from(length), &mut bytes).map_err(vanished)?;
        let (start, end) = range.within(meta.size);
        if bytes.len() as u64 != end - start {
            return Err(Error::new(Kind::Unavailable, "the store gave fewer bytes than it holds").about(&file.key));
        }
        Ok(bytes)
    }

    /// What names the block of a chunk that is shown as `inode`.
    pub(super) fn block_id(&self, inode: u64, place: &Place, version: Option<&Version>) -> BlockId {
        let Some(version) = self.options.refresh.and(version) else { return inode.into() };
        place.number().map_or_else(|| inode.into(), |number| BlockId::of_version(number, digest(version)))
    }

    /// The decoded block that a chunk file shows.
    pub(super) fn block(&self, inode: u64, place: &Place, pin: Option<Version>) -> Result<Arc<Block>> {
        let chunks: &Chunks = &place.chunks;
        let mut made = false;
        let id = self.block_id(inode, place, pin.as_ref());
        let result = self.cache.get(id, pin.as_ref(), chunks.array.chunk_bytes(), || {
            made = true;
            match &pin {
                None => chunk::fill(&chunks.array),
                Some(pin) => self.read_chunk(place, pin, None),
            }
        });
        let counters = &chunks.counters;
        if made { &counters.misses } else { &counters.hits }.fetch_add(1, Ordering::Relaxed);
        if result.is_err() {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Reads and decodes a chunk at a version; of `part`, where it is known already where the encoded block lies.
    pub(super) fn read_chunk(&self, place: &Place, pin: &Version, part: Option<Part>) -> Result<Block> {
        let array = &place.chunks.array;
        let part = part.map_or_else(|| self.part(place), Ok).map_err(|e| self.of_now(e, place, pin)).map_err(vanished)?;
        let mut cost = chunk::Cost::default();
        let settle = |block| self.cache.settle(block);
        let block = chunk::read(self.store(), &part, array, Some(pin), &self.budget, &mut cost, settle);
        self.note_read(place, &part, block, cost)
    }

    /// Takes note of what reading a chunk cost, and of what it says of the index.
    pub(super) fn note_read(&self, place: &Place, part: &Part, block: Result<Block>, cost: chunk::Cost) -> Result<Block> {
        let counters = &place.chunks.counters;
        counters.encoded.fetch_add(cost.encoded, Ordering::Relaxed);
        counters.nanoseconds.fetch_add(cost.decode_nanoseconds, Ordering::Relaxed);
        let block = block.map_err(vanished).inspect_err(|e| {
            if e.kind() == Kind::Changed {
                self.indexes.forget(&part.key);
            }
        })?;
        counters.decoded.fetch_add(block.length(), Ordering::Relaxed);
        Ok(block)
    }

    /// What keeps a block from being found says nothing of the pinned version where the store has another by now, or none.
    fn of_now(&self, e: Error, place: &Place, pin: &Version) -> Error {
        if !matches!(e.kind(), Kind::Corrupt | Kind::Unsupported | Kind::TooBig) {
            return e;
        }
        let Ok(key) = chunk::key(&place.chunks.key, &place.chunks.array, &place.path) else { return e };
        match self.store().head_object(&key) {
            Ok(meta) if meta.version != *pin => Error::new(Kind::Changed, "has changed since it was opened").about(key),
            Err(gone) if gone.kind() == Kind::NotFound => gone,
            _ => e,
        }
    }

    /// The whole content of a file whose ranges cannot be read by themselves.
    fn whole(&self, inode: u64, file: &File) -> Result<Arc<Block>> {
        self.cache.get(inode.into(), Some(&file.meta.version), None, || {
            let _share = self.budget.take(file.meta.size);
            let mut bytes = Vec::new();
            let pin = Some(&file.meta.version);
            let meta = self.store().get(&file.key, Range::All, pin, limits::WHOLE_FILE, &mut bytes).map_err(vanished)?;
            Ok(self.cache.settle(Block::new(bytes, Some(meta.version))))
        })
    }
}

/// An object that was there when it was opened has changed, whatever the store says of it now.
fn vanished(e: Error) -> Error {
    if e.kind() == Kind::NotFound { Error::new(Kind::Changed, "is gone since it was opened").about(e) } else { e }
}

fn part(bytes: &[u8], offset: u64, length: u32) -> &[u8] {
    let (start, end) = Range::Part { offset, length: u64::from(length) }.within(bytes.len() as u64);
    usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(start, end)| bytes.get(start..end)).unwrap_or_default()
}
