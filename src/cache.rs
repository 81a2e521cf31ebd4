//! The cache of decoded blocks: least recently used, bounded in bytes, one decode per block however many ask.
//!
//! A block is kept with the version of the object it came from, and is given only to those who opened that version. While a
//! block is being made, others who want it wait for the same result. An error is remembered for [`ERROR_TIME`], because the
//! kernel asks for a failed page twice. The newest block is always kept, even when it alone is over the bound; otherwise a
//! reader of one large chunk would have it decoded for each of its reads.

mod budget;
mod files;
mod handed;
mod turns;

use crate::error::{Error, Kind, Result};
use crate::pieces;
use crate::store::{Range, Version};
pub use budget::{Budget, Share};
use files::MemoryFile;
pub use files::{Files, Hold};
use handed::Handed;
use lru::LruCache;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use turns::Turns;

/// How long a failure answers for the block without a new attempt.
pub const ERROR_TIME: Duration = Duration::from_secs(1);

/// Most failures remembered at once.
const ERRORS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Bytes of bookkeeping that each block costs beside its content.
const OVERHEAD: u64 = 256;

/// A decoded block.
#[derive(Debug)]
pub struct Block {
    content: Content,
    /// The version of the object it was made from; `None` for a block that is not stored.
    pub version: Option<Version>,
    /// How often it is held for the kernel.
    holds: AtomicUsize,
}

/// The content of the file that shows a block.
#[derive(Debug)]
enum Content {
    Memory(Vec<u8>),
    /// A file of [`Files`], and its length.
    File(MemoryFile, u64),
}

impl Block {
    /// A block in memory.
    pub fn new(bytes: Vec<u8>, version: Option<Version>) -> Self {
        Self { content: Content::Memory(bytes), version, holds: AtomicUsize::new(0) }
    }

    /// Number of bytes.
    pub fn length(&self) -> u64 {
        match &self.content {
            Content::Memory(bytes) => bytes.len() as u64,
            Content::File(_, length) => *length,
        }
    }

    /// Bytes of memory that it takes.
    fn weight(&self) -> u64 {
        let content = match &self.content {
            Content::Memory(bytes) => bytes.capacity() as u64,
            Content::File(_, length) => *length,
        };
        content.saturating_add(OVERHEAD)
    }

    /// The file that it is in, if it is in one.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.content {
            Content::Memory(_) => None,
            Content::File(file, _) => Some(file.as_fd()),
        }
    }

    /// Passes `length` bytes from `offset` to `reply`; fewer only at its end.
    ///
    /// # Errors
    /// [`Kind::Bug`] when the file that holds it does not give them.
    pub fn part<T>(&self, offset: u64, length: u64, reply: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let (start, end) = Range::Part { offset, length }.within(self.length());
        let cut = || Error::new(Kind::Bug, "a block in memory that ends early");
        let length = usize::try_from(end.saturating_sub(start)).map_err(|_| cut())?;
        match &self.content {
            Content::Memory(bytes) => {
                let start = usize::try_from(start).map_err(|_| cut())?;
                Ok(reply(bytes.get(start..).and_then(|rest| rest.get(..length)).ok_or_else(cut)?))
            }
            Content::File(file, _) => {
                let mut bytes = vec![0; length];
                let mut done = 0;
                while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
                    let rest = rest.get_mut(..pieces::piece(rest.len())).unwrap_or_default();
                    match rustix::io::pread(file.as_fd(), rest, start.saturating_add(done as u64)).map_err(io::Error::from)? {
                        0 => return Err(cut()),
                        n => done = done.saturating_add(n),
                    }
                }
                Ok(reply(&bytes))
            }
        }
    }
}

/// Counters of a cache.
#[derive(Debug, Default)]
pub struct Counters {
    /// Blocks found in memory.
    pub hits: AtomicU64,
    /// Blocks that had to be made.
    pub misses: AtomicU64,
    /// Requests that waited for a block which another one was making.
    pub waits: AtomicU64,
    /// Blocks dropped to make room.
    pub evictions: AtomicU64,
}

/// What names a block: the file that shows it or, where each version is a file of its own, the chunk and the version. Those are one
/// block for who reads ahead, before there is a file, and for who opens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockId {
    number: u64,
    /// A digest; whether a block is of a version is told by [`Block::version`].
    version: u64,
}

impl BlockId {
    /// The block of the chunk `number` at a version, by its digest.
    pub fn of_version(number: u64, version: u64) -> Self {
        Self { number, version }
    }
}

impl From<u64> for BlockId {
    fn from(inode: u64) -> Self {
        Self { number: inode, version: 0 }
    }
}

struct Flight {
    result: Mutex<Option<Result<Arc<Block>>>>,
    done: Condvar,
}

struct State {
    blocks: LruCache<BlockId, Arc<Block>>,
    bytes: u64,
    handed: Handed,
    errors: LruCache<(BlockId, Option<Version>), (Instant, Error)>,
    flights: HashMap<(BlockId, Option<Version>), Arc<Flight>>,
}

impl State {
    fn put(&mut self, id: BlockId, block: Arc<Block>) {
        self.bytes += block.weight();
        if let Some((_, old)) = self.blocks.push(id, block) {
            self.lost(id, &old);
        }
    }

    /// A block is in memory no more.
    fn lost(&mut self, id: BlockId, block: &Block) {
        self.bytes -= block.weight();
        self.handed.remove(&id);
    }

    fn is_wanted(&mut self, key: &(BlockId, Option<Version>)) -> bool {
        let is_there = self.blocks.peek(&key.0).is_some_and(|block| block.version == key.1);
        !is_there && !self.flights.contains_key(key) && self.recent_error(key).is_none()
    }

    /// What making a block failed with within the last [`ERROR_TIME`].
    fn recent_error(&mut self, key: &(BlockId, Option<Version>)) -> Option<Error> {
        let (when, error) = self.errors.get(key)?;
        if when.elapsed() < ERROR_TIME {
            return Some(error.clone());
        }
        self.errors.pop(key);
        None
    }
}

/// See the module.
pub struct Cache {
    state: Mutex<State>,
    capacity: u64,
    counters: Counters,
    files: OnceLock<Files>,
    turns: Arc<Turns>,
}

/// The right to make a block that nobody else makes meanwhile: who wants it waits for the result. Where there is none (making it
/// panics), that is what they are told.
pub struct Making<'a> {
    cache: &'a Cache,
    key: (BlockId, Option<Version>),
    flight: Arc<Flight>,
    result: Option<Result<Arc<Block>>>,
}

impl Making<'_> {
    /// The block, of `bytes` where the number is known, from `make`. A large one may wait for its turn first.
    ///
    /// # Errors
    /// What `make` returned.
    pub fn make(mut self, bytes: Option<u64>, make: impl FnOnce() -> Result<Block>) -> Result<Arc<Block>> {
        let Cache { turns, .. } = self.cache;
        let (id, large) = (self.key.0, bytes.filter(|bytes| turns.is_large(*bytes)));
        if let Some(bytes) = large {
            turns.enter(id, bytes.saturating_add(OVERHEAD));
        }
        let begun = Instant::now();
        let result = make().map(|block| Arc::new(self.cache.settle(block)));
        if let Some(bytes) = large.filter(|_| result.is_ok()) {
            turns.made(id, bytes, begun.elapsed());
        }
        self.result = Some(result.clone());
        result
    }
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        let result = self.result.take().unwrap_or_else(|| Err(Error::new(Kind::Bug, "the decoder panicked")));
        let mut state = self.cache.state.lock();
        state.flights.remove(&self.key);
        match &result {
            Ok(block) => self.cache.insert(&mut state, self.key.0, block.clone()),
            Err(e) => {
                // A version may be there again.
                if e.kind() != Kind::Changed {
                    state.errors.put(self.key.clone(), (Instant::now(), e.clone()));
                }
                self.cache.turns.leave(self.key.0);
            }
        }
        drop(state);
        *self.flight.result.lock() = Some(result);
        self.flight.done.notify_all();
    }
}

impl Cache {
    /// A cache of at most `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            state: Mutex::new(State {
                blocks: LruCache::unbounded(),
                bytes: 0,
                handed: Handed::default(),
                errors: LruCache::new(ERRORS),
                flights: HashMap::new(),
            }),
            capacity,
            counters: Counters::default(),
            files: OnceLock::new(),
            turns: Arc::new(Turns::new(capacity)),
        }
    }

    /// Large blocks go to files from now on.
    ///
    /// # Errors
    /// As [`Files::new`].
    pub fn use_files(&self) -> io::Result<()> {
        let files = Files::new(self.capacity)?;
        // A second one would be as good as the first.
        let _ = self.files.set(files);
        Ok(())
    }

    /// The files for large blocks, where there are any.
    pub fn files(&self) -> Option<&Files> {
        self.files.get()
    }

    /// Keeps a block that lies in a file for as long as the result lives; `None` for one in memory, one that the cache no longer
    /// has, and when too much is held.
    pub fn hold(&self, id: BlockId, block: &Arc<Block>) -> Option<Hold> {
        block.file()?;
        let files = self.files.get()?;
        // The lock keeps it from being dropped meanwhile.
        let state = self.state.lock();
        if state.blocks.peek(&id).is_some_and(|known| Arc::ptr_eq(known, block)) {
            files.hold(id, block, &self.turns)
        } else {
            None
        }
    }

    /// A large block goes to a file of its own, where there are files. Who has made it still has its share of the memory for
    /// decoding, and the file needs as much again: others go first.
    pub fn settle(&self, mut block: Block) -> Block {
        if let Content::Memory(bytes) = &block.content
            && let Some(files) = self.files.get().filter(|files| files.takes(bytes.len() as u64) && files.has_room())
        {
            self.make_room(&mut self.state.lock(), None, block.weight());
            match files.write(bytes) {
                Ok(file) => block.content = Content::File(file, bytes.len() as u64),
                Err(e) => log::debug!("a block of {} bytes stays in memory: {e}", bytes.len()),
            }
        }
        block
    }

    /// The block `id` of `bytes` at `version`, where the number is known: from memory, from whoever is making it, or from `make`.
    ///
    /// A large one may wait for its turn: callers that serve others meanwhile ask [`Cache::may_wait`] first.
    ///
    /// # Errors
    /// What `make` returned, now or within the last [`ERROR_TIME`].
    pub fn get(
        &self,
        id: BlockId,
        version: Option<&Version>,
        bytes: Option<u64>,
        make: impl FnOnce() -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let key = (id, version.cloned());
        let flight = {
            let mut state = self.state.lock();
            if let Some(block) = state.blocks.get(&id)
                && block.version.as_ref() == version
            {
                self.counters.hits.fetch_add(1, Ordering::Relaxed);
                let block = block.clone();
                state.handed.remove(&id);
                return Ok(block);
            }
            if let Some(error) = state.recent_error(&key) {
                return Err(error);
            }
            match state.flights.get(&key) {
                Some(flight) => flight.clone(),
                None => {
                    let making = self.depart(&mut state, key);
                    drop(state);
                    return making.make(bytes, make);
                }
            }
        };
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let mut result = flight.result.lock();
        loop {
            if let Some(result) = &*result {
                return result.clone();
            }
            flight.done.wait(&mut result);
        }
    }

    /// The right to make the block `id` at `version`; `None` where it is in memory, somebody is making it, or that failed within the last
    /// [`ERROR_TIME`].
    pub fn begin(&self, id: BlockId, version: Option<&Version>) -> Option<Making<'_>> {
        let key = (id, version.cloned());
        let mut state = self.state.lock();
        if state.is_wanted(&key) { Some(self.depart(&mut state, key)) } else { None }
    }

    /// Whether [`Cache::begin`] gives the right to make a block.
    pub fn is_wanted(&self, id: BlockId, version: Option<&Version>) -> bool {
        self.state.lock().is_wanted(&(id, version.cloned()))
    }

    fn depart(&self, state: &mut State, key: (BlockId, Option<Version>)) -> Making<'_> {
        let flight = Arc::new(Flight { result: Mutex::new(None), done: Condvar::new() });
        state.flights.insert(key.clone(), flight.clone());
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        Making { cache: self, key, flight, result: None }
    }

    /// Whether the block is in memory. Does not count as a use.
    pub fn contains(&self, id: BlockId, version: Option<&Version>) -> bool {
        self.state.lock().blocks.peek(&id).is_some_and(|block| block.version.as_ref() == version)
    }

    /// Whether the block is in memory at any version. Does not count as a use.
    pub fn has(&self, id: BlockId) -> bool {
        self.state.lock().blocks.contains(&id)
    }

    /// Whether a block of so many bytes is large, so that making it may wait for its turn.
    pub fn is_large(&self, bytes: u64) -> bool {
        self.turns.is_large(bytes)
    }

    /// Whether a block of so many bytes is large and not in memory, so that getting it may take long.
    pub fn may_wait(&self, id: BlockId, bytes: u64) -> bool {
        self.turns.is_large(bytes) && !self.has(id)
    }

    /// Whether a block would have to wait for its turn.
    pub fn is_crowded(&self, id: BlockId, bytes: u64) -> bool {
        self.turns.is_crowded(id, bytes.saturating_add(OVERHEAD))
    }

    /// A reader has got `length` bytes from `offset` of a block.
    pub fn progress(&self, id: BlockId, block: &Block, offset: u64, length: u64) {
        if self.turns.is_large(block.length()) {
            self.turns.progress(id, (offset, offset.saturating_add(length)), block.length());
        }
    }

    /// The kernel has been given all of a block, and keeps it as long as it has memory. Here only the latest of such blocks are kept.
    pub fn handed(&self, id: BlockId, block: &Arc<Block>) {
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        if state.blocks.peek(&id).is_some_and(|known| Arc::ptr_eq(known, block)) {
            state.handed.put(id, block.weight());
        }
        while let Some(oldest) = state.handed.excess() {
            if let Some(old) = state.blocks.pop(&oldest) {
                state.lost(oldest, &old);
                dropped.push(old);
            }
        }
        // Memory is given back without the lock.
        drop(state);
    }

    /// The kernel has let go of a block that it was given: what is here is kept as others are. Whether it is here.
    pub fn forgotten(&self, id: BlockId) -> bool {
        let mut state = self.state.lock();
        state.handed.remove(&id);
        state.blocks.contains(&id)
    }

    fn insert(&self, state: &mut State, id: BlockId, block: Arc<Block>) {
        state.put(id, block);
        self.make_room(state, Some(id), 0);
    }

    /// Drops blocks until there is room for `more` bytes, but not `newest`.
    fn make_room(&self, state: &mut State, newest: Option<BlockId>, more: u64) {
        // Large ones that somebody is in the middle of would be made again at once: they go only if nothing else is left.
        self.drop_blocks(state, newest, more, true);
        self.drop_blocks(state, newest, more, false);
    }

    fn drop_blocks(&self, state: &mut State, newest: Option<BlockId>, more: u64, spare: bool) {
        // What is held would free nothing, and is the first that is asked for again.
        for _ in 0..state.blocks.len() {
            if state.bytes.saturating_add(more) <= self.capacity {
                break;
            }
            let Some((oldest, old)) = state.blocks.pop_lru() else { break };
            let is_spared = spare && self.turns.is_large(old.length()) && self.turns.is_read(oldest);
            if newest == Some(oldest) || old.holds.load(Ordering::Relaxed) > 0 || is_spared {
                state.blocks.push(oldest, old);
                continue;
            }
            state.lost(oldest, &old);
            self.turns.lose(oldest);
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Bytes held now, and the bound.
    pub fn usage(&self) -> (u64, u64, usize) {
        let state = self.state.lock();
        (state.bytes, self.capacity, state.blocks.len())
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests;
