//! Reading ahead: a reader that opens chunk after chunk is recognised, and the chunks that it will open next are fetched and
//! decoded by threads of their own, so that the store's latency and the decoding hide behind what the reader does.
//!
//! Nobody waits for it but who opens a chunk that is being decoded: what is read ahead takes at most a part of the cache and of the memory
//! for decoding, a reader that comes before its turn decodes for itself, and what goes wrong here is told when the chunk is opened.

mod streams;

use super::{Chunks, Place, Vfs};
use crate::array::Array;
use crate::cache::{Block, BlockId, Making};
use crate::chunk::{self, Cost, Encoded, Needs};
use crate::error::Result;
use crate::placement::Part;
use crate::store::Version;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use streams::Reach;
pub use streams::Streams;

/// Most chunks read ahead of one reader.
const DEPTH: usize = 64;

/// Chunks waiting to be read ahead, for the whole mount.
#[derive(Default)]
pub struct Ahead {
    queue: Mutex<VecDeque<Wish>>,
    wake: Condvar,
    workers: AtomicUsize,
    /// The threads are to end. Set and read while the queue is held.
    ended: AtomicBool,
    /// Chunks that were read ahead.
    pub fetched: AtomicU64,
    /// Those of them that were read two at once.
    pub in_pairs: AtomicU64,
}

/// A chunk to read ahead, and another one of its array to read with it.
type Wish = (Place, Option<Place>);

impl Vfs {
    /// Starts `threads` threads that read ahead, until [`Vfs::end_reading_ahead`] or the end of the process; fewer where no
    /// more can be started.
    pub fn read_ahead(self: &Arc<Self>, threads: usize) {
        for _ in 0..threads {
            let vfs = Arc::clone(self);
            let started = std::thread::Builder::new().spawn(move || {
                while let Some((place, other)) = vfs.ahead.take() {
                    // A panic of a decoder is told to who opens the chunk; this thread lives on.
                    let _ = catch_unwind(AssertUnwindSafe(|| vfs.fetch_ahead(&place, other.as_ref())));
                }
            });
            match started {
                Ok(_) => self.ahead.workers.fetch_add(1, Ordering::Relaxed),
                Err(e) => return log::debug!("no thread that reads ahead: {e}"),
            };
        }
    }

    /// Has the threads that read ahead end, each after the chunk that it is at.
    pub fn end_reading_ahead(&self) {
        self.ahead.workers.store(0, Ordering::Relaxed);
        let _queue = self.ahead.queue.lock();
        self.ahead.ended.store(true, Ordering::Relaxed);
        self.ahead.wake.notify_all();
    }

    /// Takes note that a chunk was opened, and has the next ones fetched if the order of reading is known.
    pub(super) fn note_open(&self, place: &Place) {
        let chunks = &place.chunks;
        let Some(reach) = self.reach(&chunks.array) else { return };
        let mut wanted = chunks.streams.lock().opened(&chunks.array.grid(), &place.path, reach);
        // Nobody is woken for what is in memory, ours or the kernel's. If it is of a version before, who opens it finds that out. (With
        // `--refresh` the version has to be known first.)
        if self.options.refresh.is_none() {
            wanted.retain(|path| !chunks.places.pack(chunks.slot, path).is_some_and(|inode| self.is_known(chunks, inode)));
        }
        self.ahead.put(chunks, wanted, reach.at_once);
    }

    /// Whether the block of a chunk is in memory, or in the kernel's, as far as that keeps what it is given. The cache is asked first:
    /// what is dropped of it has been given to the kernel before.
    fn is_known(&self, chunks: &Chunks, inode: u64) -> bool {
        self.cache.has(inode.into()) || self.relies_on_kernel(chunks) && self.pins.is_handed(inode)
    }

    /// How many chunks of an array may be read ahead of a reader: four times as many as the threads fetch at once, so that they have work
    /// while the reader waits for a processor; within a quarter of the cache and half of the memory for decoding. `None` where none may.
    fn reach(&self, array: &Array) -> Option<Reach> {
        let workers = self.ahead.workers.load(Ordering::Relaxed);
        let bytes = array.chunk_bytes().filter(|_| workers > 0)?;
        let room = (self.options.cache_size / 4 / bytes.max(1)).min(self.budget.limit() / 2 / bytes.saturating_mul(3).max(1));
        let at_once = if self.goes_in_pairs(array) { 2 } else { 1 };
        let depth = usize::try_from(room).unwrap_or(DEPTH).min(workers.saturating_mul(4 * at_once)).min(DEPTH);
        // Where each step costs a wait for the network there are few.
        let growth = if self.store().is_distant() { 4 } else { 2 };
        (depth > 0).then_some(Reach { depth, growth, at_once })
    }

    /// Whether two chunks of an array are read ahead at once: where two are decoded in less time than one after the other. Of a store that
    /// is far away each would wait for the other's request.
    fn goes_in_pairs(&self, array: &Array) -> bool {
        let is_large = array.chunk_bytes().is_none_or(|bytes| self.cache.is_large(bytes));
        array.stored.chain.goes_in_pairs() && !is_large && !self.store().is_distant()
    }

    /// Puts chunks into the cache. What fails here fails again, with its reason, when the chunk is opened.
    fn fetch_ahead(&self, first: &Place, second: Option<&Place>) {
        match (self.locate_ahead(first), second.and_then(|place| self.locate_ahead(place))) {
            (Some(first), Some(second)) => self.fetch_two(&first, &second),
            (Some(one), None) | (None, Some(one)) => {
                if let Some(making) = self.cache.begin(one.id, Some(one.version())) {
                    self.make_ahead(&one, making, || self.read_chunk(one.place, one.version(), Some(one.part.clone())));
                }
            }
            (None, None) => {}
        }
    }

    /// The same of two chunks of an array, decoded at once.
    fn fetch_two<'a>(&self, first: &'a Located<'_>, second: &'a Located<'_>) {
        let array = &first.place.chunks.array;
        let (Ok(for_first), Ok(for_second)) = (Needs::of(array, &first.part), Needs::of(array, &second.part)) else { return };
        // One share for both: who holds one while waiting for another may wait for who does the same.
        let _share = self.budget.take(for_first.memory.saturating_add(for_second.memory));
        let read = |chunk: &'a Located<'_>, needs| Encoded::read(self.store(), &chunk.part, needs, Some(chunk.version()));
        let begin = |chunk: &Located<'_>| self.cache.begin(chunk.id, Some(chunk.version()));
        // Who opens one of the two does not wait for the store's answer about the other. So the one that is opened later is read before
        // there is a right to either, and who waits for the first waits for its own.
        let b = read(second, for_second);
        let right = begin(first);
        let a = right.is_some().then(|| read(first, for_first));
        let mut both = [(first, right, a), (second, begin(second), Some(b))];
        let mut are_two = false;
        if let [(_, Some(_), Some(Ok(a))), (_, Some(_), Some(Ok(b)))] = &mut both {
            chunk::begin_two(array, a, b);
            are_two = true;
        }
        for (chunk, right, encoded) in both {
            let (Some(making), Some(encoded)) = (right, encoded) else { continue };
            let decode = || {
                let mut cost = Cost::default();
                let block = encoded.and_then(|encoded| encoded.decode(array, &mut cost));
                self.note_read(chunk.place, &chunk.part, block.map(|block| self.cache.settle(block)), cost)
            };
            // A panic is told to who waits for this one.
            let made = catch_unwind(AssertUnwindSafe(|| self.make_ahead(chunk, making, decode)));
            self.ahead.in_pairs.fetch_add(u64::from(are_two && made.unwrap_or(false)), Ordering::Relaxed);
        }
    }

    /// Finds a chunk that is to be read ahead; `None` where that is not to be done. Who waited for another who makes it would read nothing
    /// ahead meanwhile.
    fn locate_ahead<'a>(&self, place: &'a Place) -> Option<Located<'a>> {
        let inode = place.number()?;
        let part = self.part(place).ok()?;
        let id = self.block_id(inode, place, Some(&part.meta.version));
        let crowded = place.chunks.array.chunk_bytes().is_some_and(|bytes| self.cache.is_crowded(id, bytes));
        let is_wanted = !crowded && self.cache.is_wanted(id, Some(&part.meta.version));
        // Its reader may have opened it since it was asked for.
        let is_handed = self.relies_on_kernel(&place.chunks) && self.pins.is_handed(inode);
        (is_wanted && !is_handed).then_some(Located { place, part, id })
    }

    /// Makes the block of a chunk. Whether it is right.
    fn make_ahead(&self, chunk: &Located<'_>, making: Making<'_>, make: impl FnOnce() -> Result<Block>) -> bool {
        let Chunks { array, counters, .. } = &*chunk.place.chunks;
        counters.misses.fetch_add(1, Ordering::Relaxed);
        let is_right = making.make(array.chunk_bytes(), make).is_ok();
        if is_right { &self.ahead.fetched } else { &counters.errors }.fetch_add(1, Ordering::Relaxed);
        is_right
    }
}

/// A chunk that is to be read ahead.
struct Located<'a> {
    place: &'a Place,
    part: Part,
    id: BlockId,
}

impl Located<'_> {
    fn version(&self) -> &Version {
        &self.part.meta.version
    }
}

impl Ahead {
    fn put(&self, chunks: &Arc<Chunks>, wanted: Vec<Vec<u64>>, at_once: usize) {
        if wanted.is_empty() {
            return;
        }
        let mut wanted = wanted.into_iter().map(|path| Place { chunks: chunks.clone(), path: path.into(), pin: None });
        let mut queue = self.queue.lock();
        while let Some(place) = wanted.next() {
            let other = if at_once > 1 { wanted.next() } else { None };
            // Readers that went elsewhere leave their wishes behind: the oldest go first.
            if queue.len() >= DEPTH * 4 {
                queue.pop_front();
            }
            queue.push_back((place, other));
            self.wake.notify_one();
        }
    }

    /// The next wish, as soon as there is one; `None` when there will be no more.
    fn take(&self) -> Option<Wish> {
        let mut queue = self.queue.lock();
        loop {
            if self.ended.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(wish) = queue.pop_front() {
                return Some(wish);
            }
            self.wake.wait(&mut queue);
        }
    }
}
