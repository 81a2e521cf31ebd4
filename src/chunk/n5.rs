//! Blocks with an N5 header: what they hold becomes what is shown.
//!
//! The header's claims are checked against the array before anything is allocated. A block of another kind than its array's is an
//! error that names it, never other bytes.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::note;
use crate::array::{Array, Content, Envelope, Order, Placement};
use crate::block::{self, labels, strings};
use crate::codec::Length;
use crate::error::{Error, Result};
use crate::format::n5::{self, BlockHeader, Mode};
use crate::limits;
use crate::store::{Key, Meta, ObjectKind, Range, Store};
use crate::view::names;
use std::cell::Cell;

/// Most blocks whose header is looked at to tell what a dataset holds.
const PROBES: u32 = 8;
/// So few elements in a block do not tell that each has one number.
const FEW: usize = 4;
/// Most directories listed to find them.
const LISTINGS: u32 = 64;

/// Decodes a block into the content of the shown chunk file. Pure. Of elements, `undone` is what the outermost codec gives, where that has
/// been undone.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`], [`crate::error::Kind::TooBig`] or [`crate::error::Kind::Unsupported`], naming what was found and
/// what is allowed.
pub fn decode(array: &Array, content: Content, encoded: &[u8], undone: Option<Vec<u8>>) -> Result<Vec<u8>> {
    let block_size = block_size(array);
    let header = n5::block_header(encoded, block_size.len())?;
    match content {
        Content::Elements => elements(array, &header, &block_size, encoded, undone),
        Content::Varlength(item) => varlength(array, &header, &block_size, item, encoded),
        Content::Strings => {
            let stored = shape(&header, &block_size)?;
            let limit = variable();
            let blob = array.stored.chain.decode(payload(encoded, &header), Length::AtMost(limit))?;
            let texts = stored.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            // Java counts bytes and never looks at it again; the number of texts makes sense as well.
            if let Some(count) = header.count
                && usize::try_from(count).ok() != Some(blob.len())
                && usize::try_from(count).ok() != texts
            {
                return Err(Error::corrupt(format!("texts of {} bytes where the header says {count}", blob.len())));
            }
            strings::to_vlen_utf8(&blob, &stored, &full(&block_size), limit)
        }
        Content::Object => object(array, &header, encoded, block_size.len()),
        Content::LabelMultisets => {
            let stored = shape(&header, &block_size)?;
            let count = stored.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            let count = count.ok_or_else(|| Error::corrupt("a block header with more elements than memory"))?;
            let bytes = varlength(array, &header, &block_size, 1, encoded)?;
            let labels = labels::most_frequent(&bytes, count)?;
            block::pad(labels, &stored, &full(&block_size), 8, &[0; 8])
        }
    }
}

/// The block size in N5's order, fastest axis first. Shown in C order axes are reversed; in the source's order they are not.
fn block_size(array: &Array) -> Vec<u64> {
    let mut block_size = array.chunks.clone();
    if array.order == Order::C {
        block_size.reverse();
    }
    block_size
}

/// The shape of a whole block, slowest axis first.
fn full(block_size: &[u64]) -> Vec<usize> {
    block_size.iter().rev().map(|&c| usize::try_from(c).unwrap_or(usize::MAX)).collect()
}

/// The shape of what a block holds, slowest axis first.
fn shape(header: &BlockHeader, block_size: &[u64]) -> Result<Vec<usize>> {
    let mut stored = n5::stored_shape(header, block_size)?;
    stored.reverse();
    Ok(stored)
}

fn payload<'a>(encoded: &'a [u8], header: &BlockHeader) -> &'a [u8] {
    encoded.get(header.payload..).unwrap_or_default()
}

/// Most bytes of a block whose length its metadata does not tell.
fn variable() -> usize {
    usize::try_from(limits::VARIABLE_CHUNK).unwrap_or(usize::MAX)
}

/// Elements are padded to the whole block: what an edge block does not store is fill value.
fn elements(array: &Array, header: &BlockHeader, block_size: &[u64], encoded: &[u8], undone: Option<Vec<u8>>) -> Result<Vec<u8>> {
    let item = array.dtype.size().unwrap_or(1);
    let stored = shape(header, block_size)?;
    let length = Length::Exact(elements_length(header, &stored, item)?);
    let bytes = match undone {
        Some(undone) => array.stored.chain.finish(undone, length)?,
        None => array.stored.chain.decode(payload(encoded, header), length)?,
    };
    // N5's fill value is 0, which has the same bytes in either order.
    block::pad(bytes, &stored, &full(block_size), item, &vec![0; item])
}

/// Bytes of the elements of a block of the shape `stored`.
fn elements_length(header: &BlockHeader, stored: &[usize], item: usize) -> Result<usize> {
    n5::check_count(header, stored)?;
    let length = stored.iter().try_fold(item, |n, &d| n.checked_mul(d));
    length.ok_or_else(|| Error::corrupt("a block header with more elements than memory"))
}

/// What the codecs are undone of in a block of elements, and the length of the result; `None` where its header is damaged.
pub fn elements_payload<'a>(array: &Array, encoded: &'a [u8]) -> Option<(&'a [u8], usize)> {
    let block_size = block_size(array);
    let header = n5::block_header(encoded, block_size.len()).ok()?;
    let stored = shape(&header, &block_size).ok()?;
    let length = elements_length(&header, &stored, array.dtype.size().unwrap_or(1)).ok()?;
    Some((payload(encoded, &header), length))
}

/// As many numbers as the header says, in the order they are stored in.
fn varlength(array: &Array, header: &BlockHeader, block_size: &[u64], item: usize, encoded: &[u8]) -> Result<Vec<u8>> {
    if header.mode == Mode::Object {
        return Err(Error::corrupt("a block that holds a serialised object in a dataset of numbers"));
    }
    let count = match header.count {
        Some(count) => usize::try_from(count).ok(),
        // A block that happens to have as many numbers as elements is written in the mode of those.
        None => shape(header, block_size)?.iter().try_fold(1usize, |n, &d| n.checked_mul(d)),
    };
    let length = count.and_then(|n| n.checked_mul(item)).filter(|&n| n <= variable());
    let length = length.ok_or_else(|| {
        let claim = header.count.unwrap_or(u32::MAX);
        Error::too_big(format!("a block of {claim} numbers; at most {} bytes are shown", variable()))
    })?;
    array.stored.chain.decode(payload(encoded, header), Length::Exact(length))
}

/// The bytes of an object. Java's header has no shape before the number of bytes; the specification's has.
fn object(array: &Array, header: &BlockHeader, encoded: &[u8], rank: usize) -> Result<Vec<u8>> {
    if header.mode != Mode::Object {
        return Err(Error::corrupt("a block that holds no object in a dataset of objects"));
    }
    let read = |header: &BlockHeader| {
        let length = header.count.and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= variable());
        let length = length.ok_or_else(|| {
            let claim = header.count.unwrap_or(u32::MAX);
            Error::too_big(format!("an object of {claim} bytes; at most {} are shown", variable()))
        })?;
        array.stored.chain.decode(payload(encoded, header), Length::Exact(length))
    };
    read(header).or_else(|e| n5::object_header_with_shape(encoded, rank).and_then(|header| read(&header).ok()).ok_or(e))
}

/// Whether the blocks of a numeric dataset hold other numbers of elements than their shapes have, as far as its first ones tell.
///
/// Nothing in the metadata says it. The first block is looked at and, where it is absent or damaged or could be either, some more. What
/// a dataset is taken for decides what its blocks may be; so a wrong guess leads to errors, not to wrong bytes.
///
/// # Errors
/// The store's failure to tell, where no block did.
pub fn is_varlength(store: &dyn Store, directory: &Key, array: &Array) -> Result<bool> {
    if array.stored.envelope != Envelope::N5(Content::Elements) || !matches!(array.stored.placement, Placement::Object) {
        return Ok(false);
    }
    let block_size = block_size(array);
    let rank = block_size.len();
    let failure = Cell::new(Ok(false));
    let told = |answer: Result<Meta>| answer.map_err(|e| failure.set(note(failure.replace(Ok(false)), e))).ok();
    let look = |key: &Key| -> Option<bool> {
        let mut bytes = Vec::new();
        let length = u64::try_from(n5::header_length(rank)).ok()?;
        told(store.get(key, Range::Part { offset: 0, length }, None, length, &mut bytes))?;
        let header = n5::block_header(&bytes, rank).ok()?;
        let stored = n5::stored_shape(&header, &block_size);
        match header.mode {
            // A few numbers can be as many as elements by chance.
            Mode::Default => (stored.ok()?.iter().product::<usize>() > FEW).then_some(false),
            // z5 writes every block of a dataset in this mode, and one can have as many numbers as elements.
            Mode::Varlength if stored.is_ok_and(|stored| n5::check_count(&header, &stored).is_ok()) => None,
            // A damaged header is no reason to take the whole dataset for something else.
            Mode::Varlength => {
                let mut encoded = Vec::new();
                let limit = limits::encoded(limits::VARIABLE_CHUNK);
                told(store.get(key, Range::All, None, limit, &mut encoded))?;
                varlength(array, &header, &block_size, array.dtype.size()?, &encoded).is_ok().then_some(true)
            }
            Mode::Object => None,
        }
    };
    let first = directory.join(names::stored(array, &vec![0; rank]));
    if let Some(answer) = first.ok().and_then(|key| look(&key)) {
        return Ok(answer);
    }
    let mut walk = Walk { store, grid: array.grid(), probes: PROBES, listings: LISTINGS, failure: Ok(false) };
    if array.order == Order::C {
        walk.grid.reverse();
    }
    match walk.first(directory, 0, &look) {
        Some(answer) => Ok(answer),
        None => walk.failure.and(failure.into_inner()),
    }
}

/// A search for stored blocks, in the order that the store lists them in.
struct Walk<'a> {
    store: &'a dyn Store,
    /// Number of blocks along each axis, in the stored order.
    grid: Vec<u64>,
    probes: u32,
    listings: u32,
    /// What the store failed to list.
    failure: Result<bool>,
}

impl Walk<'_> {
    /// The first answer that `look` gives for a block below `key`, which `depth` indices lead to.
    fn first(&mut self, key: &Key, depth: usize, look: &dyn Fn(&Key) -> Option<bool>) -> Option<bool> {
        let &limit = self.grid.get(depth)?;
        self.listings = self.listings.checked_sub(1)?;
        let listing = match self.store.list(key) {
            Ok(listing) => listing,
            Err(e) => {
                self.failure = note(std::mem::replace(&mut self.failure, Ok(false)), e);
                return None;
            }
        };
        let leaf = depth.saturating_add(1) == self.grid.len();
        for (name, kind) in listing.iter() {
            if names::number(name).is_none_or(|i| i >= limit) {
                continue;
            }
            let Ok(child) = key.join(name) else { continue };
            let answer = match kind {
                ObjectKind::File if leaf => {
                    self.probes = self.probes.checked_sub(1)?;
                    look(&child)
                }
                ObjectKind::Directory if !leaf => self.first(&child, depth.saturating_add(1), look),
                _ => None,
            };
            if answer.is_some() {
                return answer;
            }
        }
        None
    }
}
