//! The one way from a chunk's index to its decoded bytes: placement, store, codecs, layout.
//!
//! Every length is known before anything is allocated, and the memory for encoded and decoded bytes is taken from a shared
//! budget first. The bytes and the version they belong to come from the same read.

mod n5;

pub use n5::is_varlength;

use crate::array::{Array, Content, Envelope};
use crate::block;
use crate::cache::{Block, Budget};
use crate::codec::Length;
use crate::error::{Error, Kind, Result};
use crate::limits;
use crate::placement::Part;
use crate::store::{Key, Range, Store, Version};
use crate::view::names;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// What a chunk read cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Encoded bytes read from the store.
    pub encoded: u64,
    /// Nanoseconds of decoding.
    pub decode_nanoseconds: u64,
}

/// The key of a chunk in the store.
///
/// # Errors
/// [`crate::error::Kind::TooBig`] when the key gets longer than keys can be.
pub fn key(directory: &Key, array: &Array, index: &[u64]) -> Result<Key> {
    directory.join(names::stored(array, index))
}

/// Reads and decodes one chunk: the whole content of the file that shows it.
///
/// `pin` is the version that the object must have. `settle` puts the block where it stays, before its share of the budget is given
/// back.
///
/// # Errors
/// [`crate::error::Kind::NotFound`] when the store says that the object is absent; otherwise by meaning, naming the key.
pub fn read(
    store: &dyn Store,
    part: &Part,
    array: &Array,
    pin: Option<&Version>,
    budget: &Budget,
    cost: &mut Cost,
    settle: impl FnOnce(Block) -> Block,
) -> Result<Block> {
    let needs = Needs::of(array, part)?;
    let _share = budget.take(needs.memory);
    Ok(settle(Encoded::read(store, part, needs, pin)?.decode(array, cost)?))
}

/// What reading and decoding a chunk takes.
pub struct Needs {
    /// The length of the result.
    length: Length,
    /// The most encoded bytes that can stand for it.
    limit: u64,
    /// Bytes of memory.
    pub memory: u64,
}

impl Needs {
    /// Those of the chunk whose encoded block is `part`.
    ///
    /// # Errors
    /// [`crate::error::Kind::TooBig`], naming the key.
    pub fn of(array: &Array, part: &Part) -> Result<Self> {
        let (length, limit) = lengths(array).map_err(|e| e.about(&part.key))?;
        // The share covers the encoded bytes as stored and twice the decoded ones: a filter or a change of layout makes a copy. Between
        // compressors there may be more.
        let stored = part.length().min(limit);
        let steps = (length.bound() as u64).saturating_mul(2).max(array.stored.chain.memory(stored, length));
        Ok(Self { length, limit, memory: stored.saturating_add(steps) })
    }
}

/// The stored block of a chunk, before it is decoded.
pub struct Encoded<'a> {
    part: &'a Part,
    bytes: Vec<u8>,
    length: Length,
    version: Version,
    /// What the outermost codec gives of it, where that has been undone, and the nanoseconds that this took.
    undone: Option<Vec<u8>>,
    spent: u64,
}

impl<'a> Encoded<'a> {
    /// Reads it at the version `pin`.
    ///
    /// # Errors
    /// As [`read`].
    pub fn read(store: &dyn Store, part: &'a Part, needs: Needs, pin: Option<&Version>) -> Result<Self> {
        let Needs { length, limit, .. } = needs;
        let key = &part.key;
        let mut bytes = Vec::new();
        let version = match &part.body {
            Some(body) => {
                // Read at this version; nobody may have pinned another.
                if pin.is_some_and(|pin| *pin != part.meta.version) {
                    return Err(changed().about(key));
                }
                let (start, end) = part.range.within(body.len() as u64);
                let found =
                    usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(start, end)| body.get(start..end));
                bytes.extend_from_slice(found.unwrap_or_default());
                part.meta.version.clone()
            }
            None => {
                let pin = match (part.range, pin) {
                    (Range::All, pin) => pin,
                    // A part was found by an index of this version; in another it is anything.
                    (_, Some(pin)) if *pin != part.meta.version => return Err(changed().about(key)),
                    _ => Some(&part.meta.version),
                };
                store.get(key, part.range, pin, limit, &mut bytes)?.version
            }
        };
        Ok(Self { part, bytes, length, version, undone: None, spent: 0 })
    }

    /// What the codecs are undone of, and the length of the result, where that is known before.
    fn payload(&self, array: &Array) -> Option<(&[u8], usize)> {
        match (array.stored.envelope, self.length) {
            (Envelope::N5(Content::Elements), _) => n5::elements_payload(array, &self.bytes),
            (Envelope::None, Length::Exact(length)) if !array.stored.narrow_text => {
                Some((&self.bytes, stored_length(array, length, self.part.block.as_deref())))
            }
            _ => None,
        }
    }

    /// Decodes it.
    ///
    /// # Errors
    /// As [`read`].
    pub fn decode(self, array: &Array, cost: &mut Cost) -> Result<Block> {
        let Self { part, bytes, length, version, undone, spent } = self;
        cost.encoded = bytes.len() as u64;
        let begun = Instant::now();
        let bytes = decode_rest(array, bytes, undone, length, part.block.as_deref()).map_err(|e| e.about(&part.key))?;
        cost.decode_nanoseconds = spent.saturating_add(nanoseconds(begun));
        Ok(Block::new(bytes, Some(version)))
    }
}

/// Begins to decode two blocks of an array at once, where that takes less time than one after the other (see
/// [`Chain::undo_two`](crate::codec::Chain::undo_two)). What is wrong with one of them is found when it is decoded.
pub fn begin_two(array: &Array, first: &mut Encoded<'_>, second: &mut Encoded<'_>) {
    let begun = Instant::now();
    let (Some((a, for_a)), Some((b, for_b))) = (first.payload(array), second.payload(array)) else { return };
    // A panic that one of them causes is not to fall on the other: it comes again for that one when it is decoded.
    let undo = AssertUnwindSafe(|| array.stored.chain.undo_two([a, b], [for_a, for_b]));
    [first.undone, second.undone] = catch_unwind(undo).unwrap_or_default();
    (first.spent, second.spent) = (nanoseconds(begun) / 2, nanoseconds(begun) / 2);
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn changed() -> Error {
    Error::new(Kind::Changed, "has changed since it was opened")
}

/// A chunk that is not stored: all elements have the fill value.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] where the shown chunks are encoded, so that no plain bytes stand for the fill value.
pub fn fill(array: &Array) -> Result<Block> {
    let length = array
        .chunk_bytes()
        .and_then(|n| usize::try_from(n).ok())
        .ok_or_else(|| Error::unsupported("an absent chunk of an encoded array has no plain bytes"))?;
    Ok(Block::new(block::filled(length, array.fill.bytes.as_deref().unwrap_or(&[0])), None))
}

/// The length of the decoded chunk, and the most encoded bytes that can stand for it.
fn lengths(array: &Array) -> Result<(Length, u64)> {
    let variable = usize::try_from(limits::VARIABLE_CHUNK).unwrap_or(usize::MAX);
    let length = match array.chunk_bytes() {
        Some(n) => Length::Exact(usize::try_from(n).map_err(|_| Error::too_big(format!("a chunk of {n} bytes")))?),
        None => Length::AtMost(variable),
    };
    let header = match array.stored.envelope {
        Envelope::None => 0,
        Envelope::N5(_) => 8 + 4 * array.shape.len() as u64,
    };
    let payload = match array.stored.envelope {
        Envelope::None | Envelope::N5(Content::Elements) => length,
        // What is shown may be shorter or longer than what the block holds.
        Envelope::N5(_) => Length::AtMost(variable.max(length.bound())),
    };
    let encoded = match array.stored.chain.encoded_length(payload) {
        // A longer object is read all the same, up to a bound, so that its length can be named in the error.
        Length::Exact(n) => limits::encoded(n as u64),
        Length::AtMost(n) => n as u64,
    };
    Ok((length, encoded.saturating_add(header)))
}

/// The length in bytes of a block of the shape `short`, or of a whole one of `length`.
fn stored_length(array: &Array, length: usize, short: Option<&[u64]>) -> usize {
    let item = array.dtype.size().unwrap_or(1);
    short.map_or(length, |short| sizes(short).iter().fold(item, |n, &d| n.saturating_mul(d)))
}

fn sizes(shape: &[u64]) -> Vec<usize> {
    shape.iter().map(|&n| usize::try_from(n).unwrap_or(usize::MAX)).collect()
}

/// Decodes the bytes of a stored block into the content of the shown chunk file. Pure.
///
/// `short` is the shape of a block that holds less than a chunk: it is padded with the fill value.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] or [`crate::error::Kind::Unsupported`], naming what was found and what is demanded.
pub fn decode(array: &Array, encoded: Vec<u8>, length: Length, short: Option<&[u64]>) -> Result<Vec<u8>> {
    decode_rest(array, encoded, None, length, short)
}

/// The same, where the outermost codec may have been undone, by [`begin_two`].
fn decode_rest(
    array: &Array,
    encoded: Vec<u8>,
    undone: Option<Vec<u8>>,
    length: Length,
    short: Option<&[u64]>,
) -> Result<Vec<u8>> {
    let stored = &array.stored;
    if let Envelope::N5(content) = stored.envelope {
        // Reversing the axes has put them in C order; kept as they are, they are shown in the order they are stored in.
        let mut bytes = n5::decode(array, content, &encoded, undone)?;
        let item = stored.swaps.first().map_or(1, |swap| swap.width);
        block::swap(&mut bytes, item, &stored.swaps);
        return Ok(bytes);
    }
    let Length::Exact(length) = length else {
        return stored.chain.decode_owned(encoded, length);
    };
    let item = array.dtype.size().unwrap_or(1);
    let block = sizes(short.unwrap_or(&array.chunks));
    let length = stored_length(array, length, short);
    let mut bytes = match undone {
        Some(undone) => stored.chain.finish(undone, Length::Exact(length))?,
        None if stored.narrow_text => narrow_text(array, encoded, length)?,
        None => stored.chain.decode_owned(encoded, Length::Exact(length))?,
    };
    block::swap(&mut bytes, item, &stored.swaps);
    if !stored.axes.is_empty() {
        bytes = block::transpose(&bytes, &block, &stored.axes, item)?;
    }
    if short.is_some() {
        let fill = array.fill.bytes.clone().unwrap_or_else(|| vec![0; item]);
        bytes = block::pad(bytes, &block, &sizes(&array.chunks), item, &fill)?;
    }
    Ok(bytes)
}

/// Whether the blocks of an array that may hold narrow text do, as far as its first readable ones tell: a quarter of the length.
///
/// # Errors
/// The store's failure to tell, where no block did.
pub fn is_narrow(store: &dyn Store, directory: &Key, array: &Array) -> Result<bool> {
    let Ok((length, limit)) = lengths(array) else { return Ok(false) };
    let mut tries = 0;
    let mut failure = Ok(false);
    let mut prefixes = vec![Vec::new()];
    while let Some(prefix) = prefixes.pop() {
        let key = if prefix.is_empty() { Ok(directory.clone()) } else { key(directory, array, &prefix) };
        let listing = match key.and_then(|key| store.list(&key)) {
            Ok(listing) => listing,
            Err(e) => {
                failure = note(failure, e);
                continue;
            }
        };
        for (name, _) in listing.iter() {
            match names::parse(array, &prefix, name) {
                Some(names::Path::Prefix(path)) if prefixes.len() < PROBES => prefixes.push(path),
                Some(names::Path::Chunk(index)) if tries < PROBES => {
                    tries += 1;
                    let mut encoded = Vec::new();
                    let read = self::key(directory, array, &index)
                        .and_then(|key| store.get(&key, Range::All, None, limit, &mut encoded));
                    match read.and_then(|_| array.stored.chain.decode_owned(encoded, Length::AtMost(length.bound()))) {
                        Ok(bytes) => return Ok(bytes.len().checked_mul(4) == Some(length.bound())),
                        Err(e) => failure = note(failure, e),
                    }
                }
                _ => {}
            }
        }
    }
    failure
}

/// What a look at blocks comes to when one could not be read: the first failure of the store, if that is what it was.
fn note(so_far: Result<bool>, e: Error) -> Result<bool> {
    if e.is_failure() { so_far.and(Err(e)) } else { so_far }
}

/// Most blocks looked at by [`is_narrow`].
const PROBES: usize = 8;

/// A block of characters that may be stored as one byte each (see [`crate::array::Stored::narrow_text`]), widened.
fn narrow_text(array: &Array, encoded: Vec<u8>, length: usize) -> Result<Vec<u8>> {
    let bytes = array.stored.chain.decode_owned(encoded, Length::AtMost(length))?;
    if bytes.len() == length {
        return Ok(bytes);
    }
    if bytes.len().checked_mul(4) != Some(length) {
        return Err(Error::corrupt(format!("{} bytes; characters of this array take {length} or {}", bytes.len(), length / 4)));
    }
    let big = !array.stored.swaps.is_empty();
    let widen = |&b: &u8| if big { u32::from(b).to_be_bytes() } else { u32::from(b).to_le_bytes() };
    Ok(bytes.iter().flat_map(widen).collect())
}
