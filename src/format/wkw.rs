//! WEBKNOSSOS WKW: `header.wkw`, and what a dataset's `datasource-properties.json` says of layers and magnifications.
//!
//! A directory of cubes is an array. WKW counts axes from the fastest: channel, x, y, z; shown, they are reversed, and then the
//! bytes of a block need no transposition. Elements are little-endian. The files do not tell how large an array is: the
//! dataset's bounding box does, and which cubes are there.
//! Format: <https://github.com/scalableminds/webknossos-wrap>.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod properties;

pub use properties::{Layer, Mag, Place, Properties, VoxelSize, below, multiscale, numbers};

use crate::array::{
    Array, Attributes, Cube, DType, Envelope, Fill, Format, Group, Kept, Keys, Node, Order, Placement, Stored, Style,
};
use crate::codec::{Chain, Codec, Framing};
use crate::error::{Error, Result};
use crate::format::{Context, Documents, check_sizes, document, inside};
use crate::limits;
use serde_json::json;

/// The document that makes a directory an array: the header of its files.
pub const HEADER: &str = "header.wkw";
/// The document of a dataset. It describes nothing that is encoded, so it is shown as it is, too.
pub const PROPERTIES: &str = "datasource-properties.json";

/// Bytes of a header.
const LENGTH: usize = 16;

/// What a directory is to WKW; `None` where it is nothing. The array's extent is at least that of its bounding box;
/// [`cover`] extends it to the cubes that are there.
///
/// # Errors
/// For a header that cannot be read or contradicts itself, named.
pub fn detect(documents: &Documents, context: &Context<'_>) -> Result<Option<Node>> {
    if let Some(header) = document(documents, HEADER)? {
        let array = array(header, context).map_err(|e| inside(HEADER, e))?;
        return Ok(Some(Node::Array(Box::new(array))));
    }
    match properties(documents) {
        // Without the document the arrays are still there, and as large as their files.
        Some(Err(e)) => return Ok(Some(group(Err(e)))),
        Some(Ok(properties)) if properties.has_cubes() => return Ok(Some(group(Ok(properties.attributes)))),
        _ => {}
    }
    Ok(context.place.and_then(Place::group_attributes).map(|attributes| group(Ok(attributes))))
}

/// A group of layers or magnifications.
pub fn group(attributes: Result<Attributes>) -> Node {
    Node::Group(Group::of(Format::Wkw, attributes))
}

/// What the directory says of the dataset that it is; `None` where it does not.
pub fn properties(documents: &Documents) -> Option<Result<Properties>> {
    let bytes = document(documents, PROPERTIES).transpose()?;
    Some(bytes.and_then(|bytes| Properties::parse(bytes).map_err(|e| inside(PROPERTIES, e))))
}

/// What all files of an array have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Header {
    /// The bytes that say it.
    bytes: [u8; 8],
    /// Log2 of the voxels along each side of a block.
    block: u32,
    /// Log2 of the blocks along each side of a file.
    side: u32,
    compressed: bool,
    /// Type of a value, 1 to 10.
    voxel: u8,
    /// Values of a voxel.
    channels: u64,
}

fn header(bytes: &[u8]) -> Result<Header> {
    let head: Option<&[u8; LENGTH]> = bytes.first_chunk();
    let cut = || Error::corrupt(format!("{} bytes, fewer than the {LENGTH} of a WKW header", bytes.len()));
    let geometry: [u8; 8] = *head.and_then(|head| head.first_chunk()).ok_or_else(cut)?;
    let [w, k, w2, version, lengths, block_type, voxel, voxel_size] = geometry;
    if [w, k, w2] != *b"WKW" {
        return Err(Error::corrupt(format!("begins with {:02x?} instead of `WKW`", [w, k, w2])));
    }
    if version != 1 {
        return Err(Error::unsupported(format!("version {version} of WKW; 1 is read")));
    }
    if !(1..=3).contains(&block_type) {
        return Err(Error::unsupported(format!("block type {block_type}; 1 (raw), 2 (LZ4) and 3 (LZ4HC) are read")));
    }
    let size = dtype(voxel).and_then(|dtype| dtype.size()).and_then(|size| u8::try_from(size).ok());
    let size = size.ok_or_else(|| Error::unsupported(format!("voxel type {voxel}; 1 to 10 are read")))?;
    if voxel_size == 0 || voxel_size.checked_rem(size) != Some(0) {
        return Err(Error::corrupt(format!("{voxel_size} bytes for a voxel of values of {size} bytes")));
    }
    let side = u32::from(lengths >> 4);
    // Also of raw blocks, which have no jump table: where a single file is damaged, each of its blocks is there and fails.
    if 1u64 << side.saturating_mul(3) > limits::INDEX {
        return Err(Error::too_big(format!("a file of 2^{side} blocks on each side; at most {} blocks are read", limits::INDEX)));
    }
    Ok(Header {
        bytes: geometry,
        block: u32::from(lengths & 0x0f),
        side,
        compressed: block_type != 1,
        voxel,
        channels: u64::from(voxel_size.checked_div(size).unwrap_or(1)),
    })
}

fn dtype(voxel: u8) -> Option<DType> {
    Some(match voxel {
        1 => DType::UInt(1),
        2 => DType::UInt(2),
        3 => DType::UInt(4),
        4 => DType::UInt(8),
        5 => DType::Float(4),
        6 => DType::Float(8),
        7 => DType::Int(1),
        8 => DType::Int(2),
        9 => DType::Int(4),
        10 => DType::Int(8),
        _ => return None,
    })
}

/// The array whose files have the header that `bytes` begin with: those of `header.wkw`, or of any of the files.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] and [`crate::error::Kind::Unsupported`] for what no reader knows,
/// [`crate::error::Kind::TooBig`] for blocks over [`limits::CHUNK`], and for files of more blocks than [`limits::INDEX`].
pub fn array(bytes: &[u8], context: &Context<'_>) -> Result<Array> {
    let header = header(bytes)?;
    let dtype = dtype(header.voxel).ok_or_else(|| Error::unsupported("a voxel type without a size"))?;
    let size = dtype.size().unwrap_or(1);
    let length = 1u64 << header.block;
    // In the order z, y, x, channel.
    let mut shape = context.place.and_then(Place::extent).unwrap_or([0; 3]).to_vec();
    let mut chunks = vec![length; 3];
    let mut names = vec!["z", "y", "x"];
    if header.channels > 1 {
        shape.push(header.channels);
        chunks.push(header.channels);
        names.push("c");
    }
    if context.source_axes {
        shape.reverse();
        chunks.reverse();
        names.reverse();
    }
    let item = u64::try_from(size).unwrap_or(u64::MAX);
    check_sizes(&shape, &chunks, item)?;
    let block = chunks.iter().fold(item, |n, &c| n.saturating_mul(c));
    let chain = if header.compressed { Chain::new(vec![Codec::Lz4(Framing::Bare)])? } else { Chain::default() };
    let mut attributes = context.place.and_then(Place::attributes).unwrap_or_default();
    attributes.insert("_ARRAY_DIMENSIONS".to_owned(), json!(names));
    let cube = Cube { side: 1u64 << header.side, compressed: header.compressed, block, header: header.bytes };
    Ok(Array {
        format: Format::Wkw,
        shape,
        chunks,
        fill: Fill { bytes: Some(vec![0; size]), zarr2: json!(0) },
        order: if context.source_axes { Order::F } else { Order::C },
        keys: Keys::plain(b'/'),
        dimension_names: Some(names.iter().map(|name| Some((*name).to_owned())).collect()),
        attributes: Ok(attributes),
        kept: Kept::default(),
        stored: Stored {
            keys: Keys { style: Style::Cube, separator: b'/', suffix: ".wkw".to_owned() },
            placement: Placement::Cube(cube),
            reversed: context.source_axes,
            envelope: Envelope::None,
            chain,
            swaps: Vec::new(),
            axes: Vec::new(),
            narrow_text: false,
            last: Vec::new(),
        },
        dtype,
    })
}

/// Extends an array so that it covers the cubes that are there: so many along z, y and x. Where a bounding box reaches into
/// the last cube already, it stays as it is, if boxes tell all (`is_boxed`). Tells whether anything was extended.
///
/// # Errors
/// [`crate::error::Kind::TooBig`] for an array that no reader counts.
pub fn cover(array: &mut Array, cubes: [u64; 3], is_boxed: bool) -> Result<bool> {
    let Placement::Cube(cube) = array.stored.placement else { return Ok(false) };
    let mut extended = false;
    let first = if array.stored.reversed { array.shape.len().saturating_sub(3) } else { 0 };
    let mut counts = cubes;
    if array.stored.reversed {
        counts.reverse();
    }
    let axes = array.shape.iter_mut().zip(&array.chunks).skip(first);
    for ((length, &block), count) in axes.zip(counts) {
        let voxels = block.saturating_mul(cube.side);
        let whole = count.saturating_mul(voxels);
        if if is_boxed { count > length.div_ceil(voxels.max(1)) } else { whole > *length } {
            *length = whole;
            extended = true;
        }
    }
    let item = array.dtype.size().and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX);
    if array.shape.iter().any(|&n| n >= super::AXIS) {
        return Err(Error::too_big(format!("cubes that reach to {:?} voxels", array.shape)));
    }
    check_sizes(&array.shape, &array.chunks, item)?;
    Ok(extended)
}
