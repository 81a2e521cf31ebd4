//! Where the block of a chunk lies: an object, a part of a shard, or a block of a WKW cube. Indexes of shards and jump tables of
//! cubes are read once for each version and kept, within a bound of their own; a chunk then costs one ranged read.
//!
//! An index is checked where it is used, so that a damaged entry fails alone. What it says is absent is
//! [`crate::error::Kind::NotFound`]; what it says that cannot be is [`crate::error::Kind::Corrupt`].

use crate::array::{Array, Cube, Placement, Shard};
use crate::codec::{Chain, Length};
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::store::{Key, Meta, Range, Store};
use crate::view::names;
use lru::LruCache;
use parking_lot::Mutex;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The encoded bytes of one block: a part of an object.
#[derive(Debug, Clone)]
pub struct Part {
    /// The object.
    pub key: Key,
    /// What is known of the object.
    pub meta: Meta,
    /// The part of it; of `body` where that is there.
    pub range: Range,
    /// The content of the shard, where it has to be read as a whole.
    pub body: Option<Arc<Vec<u8>>>,
    /// The shape of the block, where it is shorter than a chunk.
    pub block: Option<Vec<u64>>,
}

impl Part {
    /// Bytes of the encoded block.
    pub fn length(&self) -> u64 {
        let (start, end) = self.range.within(self.body.as_ref().map_or(self.meta.size, |body| body.len() as u64));
        end - start
    }
}

/// What is known of a shard or cube.
#[derive(Debug, Clone)]
struct Index {
    /// Offset and length of each part of a shard, one after the other; the end of each block of a compressed cube.
    numbers: Arc<Vec<u64>>,
    meta: Meta,
    body: Option<Arc<Vec<u8>>>,
    looked: Instant,
}

impl Index {
    fn weight(&self) -> u64 {
        self.numbers.len() as u64 * 8 + self.body.as_ref().map_or(0, |body| body.len() as u64) + 256
    }
}

/// An object, and which part of which part of it; empty for the object itself.
type IndexId = (Key, Vec<u64>);

struct State {
    indexes: LruCache<IndexId, Index>,
    bytes: u64,
}

/// The indexes in memory, least recently used, bounded in bytes.
pub struct Indexes {
    state: Mutex<State>,
    /// One reader of an index at a time, by a hash of its key: the others find it in memory.
    reading: [Mutex<()>; 64],
    capacity: u64,
    refresh: Option<Duration>,
}

/// The part of a shard that a level's index tells, in its container.
struct Container {
    offset: u64,
    /// Unknown until the object has been looked at.
    length: Option<u64>,
    body: Option<Arc<Vec<u8>>>,
}

impl Indexes {
    /// Indexes of at most `capacity` bytes together, looked at again when they are older than `refresh`.
    pub fn new(capacity: u64, refresh: Option<Duration>) -> Self {
        let state = State { indexes: LruCache::unbounded(), bytes: 0 };
        Self { state: Mutex::new(state), reading: [const { Mutex::new(()) }; 64], capacity, refresh }
    }

    /// Bytes held now, and their number.
    pub fn usage(&self) -> (u64, usize) {
        let state = self.state.lock();
        (state.bytes, state.indexes.len())
    }

    /// Finds the block of the chunk `index` of the array at `directory`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when the store or an index says that it is absent; otherwise by meaning, naming the object.
    pub fn locate(&self, store: &dyn Store, directory: &Key, array: &Array, index: &[u64]) -> Result<Part> {
        let key = directory.join(names::stored(array, index))?;
        let find = || match &array.stored.placement {
            Placement::Object => {
                let meta = store.head_object(&key)?;
                Ok(Part { key: key.clone(), meta, range: Range::All, body: None, block: array.short_block(index) })
            }
            Placement::Shards(levels) => self.in_shard(store, &key, array, levels, index).map_err(|e| about(e, &key)),
            Placement::Cube(cube) => self.in_cube(store, &key, cube, &cube_order(array, index)).map_err(|e| about(e, &key)),
        };
        let is_nested = matches!(&array.stored.placement, Placement::Shards(levels) if levels.len() > 1);
        find().or_else(|e| match e.kind() {
            // An index in memory was of the version before, and told where in it the one within lies.
            Kind::Changed if is_nested => {
                self.forget(&key);
                find()
            }
            _ => Err(e),
        })
    }

    /// Forgets what is known of an object that turned out to be another version.
    pub fn forget(&self, key: &Key) {
        let mut state = self.state.lock();
        let stale: Vec<IndexId> = state.indexes.iter().map(|(id, _)| id).filter(|id| id.0 == *key).cloned().collect();
        for id in stale {
            state.remove(&id);
        }
    }

    fn in_shard(&self, store: &dyn Store, key: &Key, array: &Array, levels: &[Shard], index: &[u64]) -> Result<Part> {
        let mut container = Container { offset: 0, length: None, body: None };
        let mut path = Vec::new();
        let mut found: Option<Meta> = None;
        for (depth, level) in levels.iter().enumerate() {
            let short = if depth == 0 { short_shard(array, level, index) } else { None };
            let slot = slot(level, short.as_ref().unwrap_or(level), index)?;
            let level = short.as_ref().unwrap_or(level);
            let most = content(array, levels.get(depth..).unwrap_or_default());
            let known =
                self.get(store, key, &path, |meta| read_shard(store, key, level, most, &container, meta), found.as_ref())?;
            let body = known.body.clone().or(container.body.clone());
            // The part lies in the decoded shard, in a range of it, or in the whole object.
            let (base, length) = match (&known.body, container.length) {
                (Some(body), _) => (0, body.len() as u64),
                (None, Some(length)) => (container.offset, length),
                (None, None) => (0, known.meta.size),
            };
            let entry = |at: usize| known.numbers.get(at).copied();
            let first = usize::try_from(slot).ok().and_then(|s| s.checked_mul(2));
            let numbers = first.and_then(|at| Some((entry(at)?, entry(at.checked_add(1)?)?)));
            let (offset, bytes) = numbers.ok_or_else(|| Error::corrupt(format!("an index without entry {slot}")))?;
            if (offset, bytes) == (u64::MAX, u64::MAX) {
                return Err(Error::not_found());
            }
            check_entry(level, slot, (offset, bytes), length)?;
            container = Container { offset: base + offset, length: Some(bytes), body };
            path.push(slot);
            found = Some(known.meta);
        }
        let meta = found.ok_or_else(|| Error::new(Kind::Bug, "a shard without levels"))?;
        let range = Range::Part { offset: container.offset, length: container.length.unwrap_or(0) };
        Ok(Part { key: key.clone(), meta, range, body: container.body, block: None })
    }

    fn in_cube(&self, store: &dyn Store, key: &Key, cube: &Cube, index: &[u64]) -> Result<Part> {
        let known = self.get(store, key, &[], |_| read_cube(store, key, cube), None)?;
        let &[z, y, x, ..] = index else { return Err(Error::new(Kind::Bug, "a cube has three axes")) };
        let slot = morton([x % cube.side, y % cube.side, z % cube.side]);
        let size = known.body.as_ref().map_or(known.meta.size, |body| body.len() as u64);
        let at = usize::try_from(slot).ok();
        let bounds = if cube.compressed {
            let end = at.and_then(|at| known.numbers.get(at).copied());
            let start = match slot {
                0 => Some(cube_data(cube)),
                _ => at.and_then(|at| known.numbers.get(at.checked_sub(1)?).copied()),
            };
            start.zip(end)
        } else {
            let start = slot.checked_mul(cube.block).and_then(|n| n.checked_add(cube_data(cube)));
            start.and_then(|start| Some((start, start.checked_add(cube.block)?)))
        };
        let (start, end) = bounds.ok_or_else(|| Error::corrupt(format!("no entry for block {slot}")))?;
        if start > end || start < cube_data(cube) || end > size {
            return Err(Error::corrupt(format!("block {slot} is said to be at {start} to {end} of {size} bytes")));
        }
        if start == end {
            // No writer leaves a block out, and no reader makes anything of none.
            return Err(Error::corrupt(format!("block {slot} has no bytes")));
        }
        let range = Range::Part { offset: start, length: end - start };
        Ok(Part { key: key.clone(), meta: known.meta, range, body: known.body, block: None })
    }

    /// The index of a shard or cube, from memory or by `read`. Within a shard its version is that of `outer`.
    fn get(
        &self,
        store: &dyn Store,
        key: &Key,
        path: &[u64],
        read: impl FnOnce(Option<&Meta>) -> Result<Index>,
        outer: Option<&Meta>,
    ) -> Result<Index> {
        let id = (key.clone(), path.to_vec());
        if let Some(index) = self.known(store, &id, outer)? {
            return Ok(index);
        }
        let mut hasher = std::hash::DefaultHasher::new();
        id.hash(&mut hasher);
        let lock = usize::try_from(hasher.finish() % 64).ok().and_then(|i| self.reading.get(i));
        let _turn = lock.map(|lock| lock.lock());
        if let Some(index) = self.known(store, &id, outer)? {
            return Ok(index);
        }
        // The answer may be long on its way, and is as old as the question.
        let looked = Instant::now();
        let index = Index { looked, ..read(outer)? };
        let mut state = self.state.lock();
        state.remove(&id);
        state.bytes += index.weight();
        state.indexes.put(id, index.clone());
        while state.bytes > self.capacity && state.indexes.len() > 1 {
            let Some((_, old)) = state.indexes.pop_lru() else { break };
            state.bytes -= old.weight();
        }
        Ok(index)
    }

    /// What is in memory, if it is still of the version that the store has.
    fn known(&self, store: &dyn Store, id: &IndexId, outer: Option<&Meta>) -> Result<Option<Index>> {
        let Some(index) = self.state.lock().indexes.get(id).cloned() else { return Ok(None) };
        let fresh = match (outer, self.refresh) {
            (Some(outer), _) => outer.version == index.meta.version,
            (None, Some(age)) if index.looked.elapsed() >= age => {
                let looked = Instant::now();
                let fresh = store.head_object(&id.0)?.version == index.meta.version;
                if fresh && let Some(index) = self.state.lock().indexes.get_mut(id) {
                    index.looked = index.looked.max(looked);
                }
                fresh
            }
            _ => true,
        };
        Ok(fresh.then_some(index))
    }
}

impl State {
    fn remove(&mut self, id: &IndexId) {
        if let Some(old) = self.indexes.pop(id) {
            self.bytes -= old.weight();
        }
    }
}

/// The index of a block in the order z, y, x and channel.
fn cube_order(array: &Array, index: &[u64]) -> Vec<u64> {
    let mut index = index.to_vec();
    if array.stored.reversed {
        index.reverse();
    }
    index
}

/// Absence is told without words; everything else names the object.
fn about(e: Error, key: &Key) -> Error {
    if e.kind() == Kind::NotFound { e } else { e.about(key) }
}

/// The number of the part of `shard` that holds the chunk `index`. All shards are as `level` says but for the last ones, which may have
/// fewer parts.
fn slot(level: &Shard, shard: &Shard, index: &[u64]) -> Result<u64> {
    let bug = || Error::new(Kind::Bug, "a shard of another rank than its array");
    level.axes.iter().try_fold(0u64, |n, &axis| {
        let (i, parts) = (*index.get(axis).ok_or_else(bug)?, *level.parts.get(axis).ok_or_else(bug)?);
        let part = i.checked_div(*level.chunks.get(axis).ok_or_else(bug)?).and_then(|i| i.checked_rem(parts)).ok_or_else(bug)?;
        let parts = *shard.parts.get(axis).filter(|parts| part < **parts).ok_or_else(bug)?;
        n.checked_mul(parts).and_then(|n| n.checked_add(part)).ok_or_else(bug)
    })
}

/// The shard that holds the chunk `index`, where it is a last one of fewer parts than `level` has, the outermost of its array.
fn short_shard(array: &Array, level: &Shard, index: &[u64]) -> Option<Shard> {
    if array.stored.last.is_empty() {
        return None;
    }
    let (grid, per_object) = (array.grid(), array.chunks_per_object());
    let mut short = level.clone();
    for (axis, parts) in short.parts.iter_mut().enumerate() {
        let (i, per) = (*index.get(axis)?, *per_object.get(axis)?);
        if i.checked_div(per)? + 1 == grid.get(axis)?.div_ceil(per) {
            let part = level.chunks.get(axis)?.checked_mul(*array.chunks.get(axis)?)?;
            *parts = array.stored.last.get(axis)?.checked_div(part)?;
        }
    }
    Some(short)
}

/// Decoded and encoded bytes of the index of `level`.
fn index_lengths(level: &Shard) -> Result<(usize, u64)> {
    let count = level.count().filter(|n| *n <= limits::INDEX);
    let count =
        count.ok_or_else(|| Error::too_big(format!("a shard of {:?} parts; at most {} are read", level.parts, limits::INDEX)))?;
    let decoded = usize::try_from(count.saturating_mul(16)).unwrap_or(usize::MAX);
    match level.index.encoded_length(Length::Exact(decoded)) {
        Length::Exact(n) => Ok((decoded, n as u64)),
        Length::AtMost(_) => Err(Error::unsupported("an index whose codecs compress: its length cannot be known")),
    }
}

/// That an entry of an index lies in its shard of `length` bytes, and not in the index itself.
fn check_entry(level: &Shard, slot: u64, (offset, bytes): (u64, u64), length: u64) -> Result<()> {
    let (_, index) = index_lengths(level)?;
    let (low, high) = if level.at_start { (index, length) } else { (0, length.saturating_sub(index)) };
    match offset.checked_add(bytes) {
        Some(end) if offset >= low && end <= high => Ok(()),
        _ => Err(Error::corrupt(format!(
            "the index says that part {slot} has {bytes} bytes at {offset}, in a shard with data from {low} to {high}"
        ))),
    }
}

/// Most bytes that the first of `levels` holds: as many as its parts can have, and their indexes.
fn content(array: &Array, levels: &[Shard]) -> u64 {
    let chunk = array.chunk_bytes().unwrap_or(limits::VARIABLE_CHUNK).saturating_mul(2).saturating_add(4096);
    let most = levels.iter().rev().fold(chunk, |part, level| {
        let index = index_lengths(level).map_or(0, |(_, encoded)| encoded);
        level.count().unwrap_or(u64::MAX).saturating_mul(part).saturating_add(index)
    });
    most.min(limits::WHOLE_FILE)
}

/// Reads the index of a shard: an object, or a part of one whose `meta` is known. It holds at `most` so many bytes, where it has to
/// be decoded as a whole.
fn read_shard(
    store: &dyn Store,
    key: &Key,
    level: &Shard,
    most: u64,
    container: &Container,
    meta: Option<&Meta>,
) -> Result<Index> {
    let (decoded, encoded) = index_lengths(level)?;
    let index = |numbers: Vec<u64>, meta: Meta, body| Index { numbers: Arc::new(numbers), meta, body, looked: Instant::now() };
    let meta = match meta {
        Some(meta) => meta.clone(),
        // Only what has to be read whole is looked at first.
        None if level.envelope.is_empty() => {
            let range = if level.at_start { Range::Part { offset: 0, length: encoded } } else { Range::Suffix(encoded) };
            let mut bytes = Vec::new();
            let meta = store.get(key, range, None, encoded, &mut bytes)?;
            if meta.seekable {
                return Ok(index(shard_index(level, &bytes, decoded)?, meta, None));
            }
            meta
        }
        None => store.head_object(key)?,
    };
    if level.envelope.is_empty() && meta.seekable && container.body.is_none() {
        let length = container.length.unwrap_or(meta.size);
        let skip = if level.at_start { Some(0) } else { length.checked_sub(encoded) };
        let skip = skip.ok_or_else(|| Error::corrupt(format!("a shard of {length} bytes with an index of {encoded}")))?;
        let range = Range::Part { offset: container.offset + skip, length: encoded.min(length) };
        let mut bytes = Vec::new();
        store.get(key, range, Some(&meta.version), encoded, &mut bytes)?;
        return Ok(index(shard_index(level, &bytes, decoded)?, meta, None));
    }
    // The content of the shard is held as a whole: it is encoded, or lies in what can only be read from its start.
    let slice = |body: &Vec<u8>| {
        let (start, end) = match container.length {
            Some(length) => (container.offset, container.offset.saturating_add(length)),
            None => (0, body.len() as u64),
        };
        usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(s, e)| body.get(s..e)).map(<[u8]>::to_vec)
    };
    let held = match &container.body {
        Some(body) => slice(body).ok_or_else(|| Error::corrupt("a shard that ends early"))?,
        None => {
            let mut bytes = Vec::new();
            let range = match container.length {
                Some(length) => Range::Part { offset: container.offset, length },
                None => Range::All,
            };
            store.get(key, range, Some(&meta.version), limits::WHOLE_FILE, &mut bytes)?;
            bytes
        }
    };
    // What is not encoded may have room between its parts, and is held already.
    let most = if level.envelope.is_empty() { limits::WHOLE_FILE } else { most };
    let body = level.envelope.decode_owned(held, Length::AtMost(usize::try_from(most).unwrap_or(usize::MAX)))?;
    let bytes = if level.at_start {
        body.get(..body.len().min(usize::try_from(encoded).unwrap_or(usize::MAX)))
    } else {
        usize::try_from(encoded).ok().and_then(|n| body.get(body.len().saturating_sub(n)..))
    };
    let numbers = shard_index(level, bytes.unwrap_or_default(), decoded)?;
    Ok(index(numbers, meta, Some(Arc::new(body))))
}

/// The numbers of a shard's index from its encoded bytes: offset and length of each part, which has `decoded` bytes. Pure.
///
/// # Errors
/// [`Kind::Corrupt`] when it is cut or its checksum is wrong.
pub fn shard_index(level: &Shard, bytes: &[u8], decoded: usize) -> Result<Vec<u64>> {
    let bytes =
        level.index.decode(bytes, Length::Exact(decoded)).map_err(|e| Error::new(e.kind(), format!("index: {}", e.reason())))?;
    let number = if level.big_endian { u64::from_be_bytes } else { u64::from_le_bytes };
    Ok(bytes.as_chunks().0.iter().map(|n| number(*n)).collect())
}

/// Bytes of the header of a WKW file.
const CUBE_HEADER: u64 = 16;

/// Offset of the first block in a WKW file.
fn cube_data(cube: &Cube) -> u64 {
    let blocks = if cube.compressed { cube.side.saturating_pow(3) } else { 0 };
    blocks.saturating_mul(8).saturating_add(CUBE_HEADER)
}

fn read_cube(store: &dyn Store, key: &Key, cube: &Cube) -> Result<Index> {
    let length = cube_data(cube);
    if length > limits::INDEX * 16 {
        return Err(Error::too_big(format!("a cube of {} blocks on each side", cube.side)));
    }
    let mut bytes = Vec::new();
    let range = Range::Part { offset: 0, length };
    let meta = store.get(key, range, None, length, &mut bytes)?;
    // What an annotation took back is downloaded as a file of one block without any bytes.
    if meta.size == 0 && cube.side == 1 {
        return Err(Error::not_found());
    }
    let numbers = Arc::new(cube_index(cube, &bytes)?);
    let body = if meta.seekable {
        None
    } else {
        let mut body = Vec::new();
        store.get(key, Range::All, Some(&meta.version), limits::WHOLE_FILE, &mut body)?;
        Some(Arc::new(body))
    };
    Ok(Index { numbers, meta, body, looked: Instant::now() })
}

/// The jump table of a compressed WKW file, the end of each block, from the bytes before its data; empty for a raw one. Pure.
///
/// # Errors
/// [`Kind::Corrupt`] when the bytes are cut, or the header is another than the array's.
pub fn cube_index(cube: &Cube, bytes: &[u8]) -> Result<Vec<u64>> {
    let head = bytes.first_chunk::<16>();
    let head =
        head.ok_or_else(|| Error::corrupt(format!("{} bytes, fewer than the {CUBE_HEADER} of a WKW header", bytes.len())))?;
    let (geometry, offset) = head.split_at(8);
    if !is_same_geometry(geometry, &cube.header) {
        return Err(Error::corrupt(format!("the header is {geometry:02x?}, where that of the array is {:02x?}", cube.header)));
    }
    let offset = offset.first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
    let data = cube_data(cube);
    if offset != data {
        return Err(Error::corrupt(format!("data is said to begin at {offset}, where header and jump table end at {data}")));
    }
    if (bytes.len() as u64) < data {
        return Err(Error::corrupt(format!("{} bytes, where header and jump table take {data}", bytes.len())));
    }
    let table = bytes.get(16..).unwrap_or_default();
    Ok(if cube.compressed { table.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n)).collect() } else { Vec::new() })
}

/// Whether two headers mean the same: LZ4 and its variant with high compression (block types 2 and 3) decode alike.
fn is_same_geometry(one: &[u8], other: &[u8; 8]) -> bool {
    let decoding = |byte: u8| if byte == 3 { 2 } else { byte };
    one.len() == other.len()
        && one.iter().zip(other).enumerate().all(|(at, (a, b))| a == b || (at == 5 && decoding(*a) == decoding(*b)))
}

/// The place of a block in a WKW file: the bits of its indices x, y, z interleaved, x's lowest first.
pub fn morton(index: [u64; 3]) -> u64 {
    (0..21u32).fold(0, |n, bit| index.iter().zip(0u32..).fold(n, |n, (i, axis)| n | (i >> bit & 1) << (3 * bit + axis)))
}

/// What an index may be encoded with so that its length is known: nothing, or checksums.
pub fn is_index_chain(chain: &Chain) -> bool {
    matches!(chain.encoded_length(Length::Exact(16)), Length::Exact(_))
}

#[cfg(test)]
mod tests;
