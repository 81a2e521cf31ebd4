//! Reading ahead: a reader that opens chunk after chunk is recognised, and the chunks that it will open next are fetched and
//! decoded by threads of their own, so that the store's latency and the decoding hide behind what the reader does.
//!
//! Nobody waits for it: what is read ahead takes at most a part of the cache and of the memory for decoding, a reader that comes
//! before its turn decodes for itself, and what goes wrong here is told when the chunk is opened.

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

/// Readers of one array that are told apart.
const STREAMS: usize = 16;

/// How far out of order those may come who go through the chunks together, each taking the next one.
const ABREAST: usize = 16;

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

/// How much is read ahead of a reader.
#[derive(Debug, Clone, Copy)]
struct Reach {
    /// Most chunks, once the order has held for some time.
    depth: usize,
    /// How many times as many there are each time that it holds.
    growth: usize,
    /// Chunks that are read at once: as many are asked for at a time, or a multiple of it.
    at_once: usize,
}

/// In which order a reader goes through the chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Order {
    /// Along the last axis, then the one before it, by number.
    Grid,
    /// The same, by the decimal text of the numbers: a shell's `*`, and listings of object stores.
    Text,
    /// The same difference of indices each time: along any axis.
    Step(Vec<i64>),
}

/// One reader, or several who share the chunks among them: those come nearly in order.
#[derive(Debug, Default)]
struct Stream {
    /// The furthest chunk that was opened.
    last: Vec<u64>,
    /// How many steps of the order that is.
    at: u64,
    /// Chunks at most [`ABREAST`] before it that were not opened yet, with their steps.
    skipped: VecDeque<(u64, Vec<u64>)>,
    /// How many in a row never were.
    missed: usize,
    /// The difference of indices that led to `last`.
    moved: Option<Vec<i64>>,
    /// The same of the last one that was the very next, from which an order is guessed.
    step: Option<Vec<i64>>,
    order: Option<Order>,
    /// How often the order told the next chunk.
    run: u32,
    /// The last chunk asked for ahead, and how many chunks that is after `last`.
    frontier: Option<(Vec<u64>, usize)>,
}

/// The readers of one array, the latest first.
#[derive(Debug, Default)]
pub struct Streams {
    streams: VecDeque<Stream>,
}

impl Streams {
    /// Takes note that `index` was opened, and tells the chunks to read ahead.
    fn opened(&mut self, grid: &[u64], index: &[u64], reach: Reach) -> Vec<Vec<u64>> {
        if let Some(mut stream) = self.take(|stream| stream.has_met(index).then_some(())).map(|(stream, ())| stream) {
            stream.skipped.retain(|(_, skipped)| skipped != index);
            stream.missed = 0;
            self.streams.push_front(stream);
            return Vec::new();
        }
        let reached = self.take(|stream| stream.follows(grid, index)).or_else(|| self.take(|stream| stream.passes(grid, index)));
        let Some((mut stream, (order, skipped))) = reached else {
            let step = self.streams.front().and_then(|before| difference(&before.last, index));
            self.streams.push_front(Stream { last: index.to_vec(), step, ..Stream::default() });
            self.streams.truncate(STREAMS);
            return Vec::new();
        };
        let wanted = stream.go_on(grid, index, reach, order, skipped);
        self.streams.push_front(stream);
        wanted
    }

    /// Takes out the latest reader of whom `tell` tells something.
    fn take<T>(&mut self, tell: impl Fn(&Stream) -> Option<T>) -> Option<(Stream, T)> {
        let (at, told) = self.streams.iter().enumerate().find_map(|(at, stream)| Some((at, tell(stream)?)))?;
        Some((self.streams.remove(at)?, told))
    }
}

impl Stream {
    /// Whether `index` was the last, or was passed by.
    fn has_met(&self, index: &[u64]) -> bool {
        self.last == index || self.skipped.iter().any(|(_, skipped)| skipped == index)
    }

    /// The order in which `index` comes next; the known one first. None are skipped.
    fn follows(&self, grid: &[u64], index: &[u64]) -> Option<(Order, Vec<Vec<u64>>)> {
        let step = self.step.clone().map(Order::Step);
        let mut orders = self.order.iter().cloned().chain([Order::Grid, Order::Text]).chain(step);
        let order = orders.find(|order| order.next(grid, &self.last).as_deref() == Some(index))?;
        Some((order, Vec::new()))
    }

    /// The known order, if `index` comes soon by it, and the chunks before that. It must have held twice: who reads at random often comes
    /// near to where somebody else was, and wants nothing of what is between.
    fn passes(&self, grid: &[u64], index: &[u64]) -> Option<(Order, Vec<Vec<u64>>)> {
        let order = self.order.as_ref().filter(|_| self.run >= 2)?;
        let mut skipped = Vec::new();
        let mut at = self.last.clone();
        for _ in 0..ABREAST {
            at = order.next(grid, &at)?;
            if at == index {
                return Some((order.clone(), skipped));
            }
            skipped.push(at.clone());
        }
        None
    }

    /// Goes on to `index`, and tells the chunks to read ahead.
    fn go_on(&mut self, grid: &[u64], index: &[u64], reach: Reach, order: Order, skipped: Vec<Vec<u64>>) -> Vec<Vec<u64>> {
        if self.order.as_ref() != Some(&order) {
            (self.run, self.frontier) = (0, None);
        }
        let moved = difference(&self.last, index);
        let is_even = moved == self.moved;
        self.moved.clone_from(&moved);
        self.run = self.run.saturating_add(1);
        self.last = index.to_vec();
        let steps = skipped.len() + 1;
        self.skipped.extend((self.at + 1..).zip(skipped.iter().cloned()));
        self.at += steps as u64;
        while self.skipped.front().is_some_and(|(at, _)| at + (ABREAST as u64) < self.at) {
            self.skipped.pop_front();
            self.missed = self.missed.saturating_add(1);
        }
        if steps == 1 {
            self.step = moved;
        } else if is_even && self.missed > ABREAST / 2 {
            // One reader, who leaves out the same each time by now: that is another order.
            *self = Self { last: std::mem::take(&mut self.last), step: moved, ..Self::default() };
            return Vec::new();
        }
        let depth = reach.depth.min(reach.growth.saturating_pow(self.run.min(16)));
        let asked = self.frontier.as_ref().map_or(0, |(_, count)| *count);
        let (mut at, mut count) = match self.frontier.take() {
            Some((at, count)) if count > steps => (at, count - steps),
            _ => (index.to_vec(), 0),
        };
        // What was passed by, beyond what has been asked for, will be opened soon.
        let mut wanted: Vec<Vec<u64>> = skipped.into_iter().skip(asked).take(depth).collect();
        let at_once = reach.at_once.clamp(1, depth.max(1));
        let end = count + depth.saturating_sub(count) / at_once * at_once;
        while count < end
            && wanted.len() < depth
            && let Some(next) = order.next(grid, &at)
        {
            wanted.push(next.clone());
            (at, count) = (next, count + 1);
        }
        (self.frontier, self.order) = (Some((at, count)), Some(order));
        wanted
    }
}

impl Order {
    /// The chunk after `index`; `None` after the last.
    fn next(&self, grid: &[u64], index: &[u64]) -> Option<Vec<u64>> {
        let mut next = index.to_vec();
        let after = match self {
            Self::Step(step) => {
                for ((i, d), n) in next.iter_mut().zip(step).zip(grid) {
                    *i = i.checked_add_signed(*d).filter(|i| i < n)?;
                }
                return Some(next);
            }
            Self::Grid => |i: u64, n: u64| i.checked_add(1).filter(|i| *i < n),
            Self::Text => next_text,
        };
        for (i, n) in next.iter_mut().zip(grid).rev() {
            match after(*i, *n) {
                Some(following) => {
                    *i = following;
                    return Some(next);
                }
                None => *i = 0,
            }
        }
        None
    }
}

/// The number below `n` whose decimal text comes next after that of `i`.
fn next_text(i: u64, n: u64) -> Option<u64> {
    if i == 0 {
        return (n > 1).then_some(1);
    }
    if let Some(longer) = i.checked_mul(10).filter(|longer| *longer < n) {
        return Some(longer);
    }
    let mut i = i;
    while i > 0 {
        if i % 10 != 9 && i + 1 < n {
            return Some(i + 1);
        }
        i /= 10;
    }
    None
}

fn difference(from: &[u64], to: &[u64]) -> Option<Vec<i64>> {
    let step: Option<Vec<i64>> =
        from.iter().zip(to).map(|(a, b)| Some(i64::try_from(*b).ok()? - i64::try_from(*a).ok()?)).collect();
    step.filter(|step| step.iter().any(|d| *d != 0))
}

impl Vfs {
    /// Starts `threads` threads that read ahead, until [`Vfs::end_reading_ahead`] or the end of the process.
    pub fn read_ahead(self: &Arc<Self>, threads: usize) {
        self.ahead.workers.fetch_add(threads, Ordering::Relaxed);
        for _ in 0..threads {
            let vfs = Arc::clone(self);
            std::thread::spawn(move || {
                while let Some((place, other)) = vfs.ahead.take() {
                    // A panic of a decoder is told to who opens the chunk; this thread lives on.
                    let _ = catch_unwind(AssertUnwindSafe(|| vfs.fetch_ahead(&place, other.as_ref())));
                }
            });
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
        // Nobody is woken for what is in memory. If it is of a version before, who opens it finds that out. (With `--refresh` the version
        // has to be known first.)
        if self.options.refresh.is_none() {
            wanted.retain(|path| !chunks.places.pack(chunks.slot, path).is_some_and(|inode| self.cache.has(inode.into())));
        }
        self.ahead.put(chunks, wanted, reach.at_once);
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
        is_wanted.then_some(Located { place, part, id })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(depth: usize) -> Reach {
        Reach { depth, growth: 2, at_once: 1 }
    }

    fn walk(grid: &[u64], indices: &[&[u64]]) -> Vec<Vec<u64>> {
        let mut streams = Streams::default();
        let mut wanted = Vec::new();
        for index in indices {
            wanted.extend(streams.opened(grid, index, reach(4)));
        }
        wanted
    }

    #[test]
    fn orders_of_numbers() {
        // sorted(map(str, range(23)))
        let text = [0, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2, 20, 21, 22, 3, 4, 5, 6, 7, 8, 9];
        let mut all = vec![0];
        while let Some(next) = next_text(*all.last().unwrap(), 23) {
            all.push(next);
        }
        assert_eq!(all, text);
        assert_eq!((next_text(0, 1), next_text(9, 10), next_text(1, 2)), (None, None, None));
        assert_eq!(Order::Grid.next(&[2, 3], &[0, 2]), Some(vec![1, 0]));
        assert_eq!(Order::Grid.next(&[2, 3], &[1, 2]), None);
        assert_eq!(Order::Step(vec![1, -1]).next(&[2, 3], &[0, 0]), None);
    }

    #[test]
    fn a_reader_of_chunk_after_chunk_is_recognised() {
        assert_eq!(walk(&[1, 9], &[&[0, 3], &[0, 4]]), [[0, 5], [0, 6]]);
        // Each chunk is asked for once, further ahead the longer the order holds.
        assert_eq!(walk(&[1, 9], &[&[0, 0], &[0, 1], &[0, 2], &[0, 3]]), [[0, 2], [0, 3], [0, 4], [0, 5], [0, 6], [0, 7]]);
        // By text, and along the first axis.
        assert_eq!(walk(&[1, 30], &[&[0, 1], &[0, 10], &[0, 11]])[..2], [[0, 11], [0, 12]]);
        assert_eq!(walk(&[9, 9], &[&[0, 5], &[1, 5], &[2, 5]]), [[3, 5], [4, 5]]);
    }

    #[test]
    fn chunks_are_asked_for_two_at_a_time_where_two_are_read_at_once() {
        let mut streams = Streams::default();
        let mut asked = |n| streams.opened(&[14], &[n], Reach { depth: 4, growth: 2, at_once: 2 }).concat();
        let wanted: Vec<Vec<u64>> = (0..14).map(&mut asked).collect();
        let pairs = [vec![], vec![2, 3], vec![4, 5], vec![6, 7], vec![], vec![8, 9], vec![], vec![10, 11], vec![], vec![12, 13]];
        assert_eq!(wanted[..10], pairs);
        assert!(wanted[10..].concat().is_empty());
    }

    #[test]
    fn those_who_share_the_chunks_are_one_reader() {
        // Each takes the next chunk, but they do not come in just that order.
        let indices = [0u64, 1, 2, 4, 3, 6, 5, 9, 8, 7, 10, 11].map(|n| [n]);
        let indices: Vec<&[u64]> = indices.iter().map(|index| &index[..]).collect();
        let wanted: Vec<u64> = walk(&[50], &indices).concat();
        assert_eq!(wanted, (2..=15).collect::<Vec<_>>());
        // Who comes early leaves nothing out, nor do chunks that are not there.
        let all_but = |early: u64, absent: fn(u64) -> bool| {
            let order = (0..early / 2).chain([early]).chain(early / 2..early).chain(early + 1..200);
            let indices: Vec<[u64; 1]> = order.filter(|n| !absent(*n)).map(|n| [n]).collect();
            let indices: Vec<&[u64]> = indices.iter().map(|index| &index[..]).collect();
            let wanted = walk(&[200], &indices).concat();
            (2..200).all(|n| n == early || absent(n) || wanted.contains(&n)) && wanted.len() < 220
        };
        assert!(all_but(14, |_| false) && all_but(14, |n| n % 5 == 3));
        // No more at a time than are wanted at most.
        let mut streams = Streams::default();
        (0..4).for_each(|n| drop(streams.opened(&[50], &[n], reach(2))));
        assert_eq!(streams.opened(&[50], &[16], reach(2)), [[6], [7]]);
        // Too far on is another one, and who leaves out every second is soon recognised.
        assert!(walk(&[100], &[&[0], &[1], &[2], &[60]]).concat().iter().all(|n| *n < 7));
        let indices: Vec<[u64; 1]> = (0..4).chain((5..61).step_by(2)).map(|n| [n]).collect();
        let indices: Vec<&[u64]> = indices.iter().map(|index| &index[..]).collect();
        let wanted = walk(&[100], &indices).concat();
        assert!(wanted.iter().filter(|n| **n > 45).all(|n| n % 2 == 1) && wanted.contains(&67), "{wanted:?}");
    }

    #[test]
    fn readers_are_told_apart_and_others_cause_nothing() {
        assert_eq!(walk(&[50], &[&[0], &[30], &[1], &[31]]), [[2], [3], [32], [33]]);
        assert!(walk(&[100], &[&[0], &[57], &[3], &[88], &[20]]).is_empty());
        // One of them came next by chance.
        assert_eq!(walk(&[100], &[&[0], &[57], &[58], &[3], &[62], &[60], &[70]]), [[59], [60]]);
        assert!(walk(&[100], &[&[5], &[5], &[5]]).is_empty());
        assert_eq!(walk(&[4], &[&[1], &[2]]), [[3]]);
    }
}
