//! N5: `attributes.json` and the header of a block.
//!
//! N5 counts axes from the fastest; shown, they are reversed, and then the bytes of a block need no transposition. Elements are
//! big-endian. Any directory of a container is a group. A block at the edge may be cropped or padded: its header tells.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Array, DType, Envelope, Fill, Format, Group, Kept, Keys, Node, Order, Placement, Stored, Swap};
use crate::codec::{Chain, config};
use crate::error::{Error, Result};
use crate::format::{Context, Documents, axes, check_sizes, inside, json, names, object};
use serde_json::{Map, Value, json};

/// The document of a group or dataset.
const DOCUMENT: &str = "attributes.json";

/// Members that describe a dataset; all others are its attributes.
const MEMBERS: &[&str] = &["dimensions", "blockSize", "dataType", "compression", "compressionType", "codecs"];

/// Newest major version of the format that is known.
const MAJOR: u64 = 4;

/// What a directory is to N5; `None` where it is nothing.
///
/// # Errors
/// For a document that cannot be read or contradicts itself, named.
pub fn detect(documents: &Documents, context: &Context) -> Result<Option<Node>> {
    let inherited = context.parent == Some(Format::N5) || context.only == Some(Format::N5);
    let Some(members) = object(documents, DOCUMENT)? else {
        return Ok(inherited.then(|| Node::Group(group(Map::new()))));
    };
    check_version(&members);
    // A multi-resolution group of BigDataViewer has a dataType but no dimensions.
    let dataset = members.contains_key("dimensions") && (members.contains_key("blockSize") || members.contains_key("dataType"));
    if !dataset {
        return Ok(Some(Node::Group(group(members))));
    }
    array(members, context.source_axes).map(|array| Some(Node::Array(Box::new(array)))).map_err(|e| inside(DOCUMENT, e))
}

fn group(attributes: Map<String, Value>) -> Group {
    Group { format: Format::N5, attributes: Ok(attributes), consolidated: false }
}

/// Newer versions are read as well as they can be: what matters is in each dataset's own members.
fn check_version(members: &Map<String, Value>) {
    if let Some(version) = members.get("n5") {
        let major = version.as_str().and_then(|v| v.split('.').next()).and_then(|m| m.parse::<u64>().ok());
        if major.is_some_and(|m| m > MAJOR) {
            log::warn!("{DOCUMENT}: version {} of N5 is newer than {MAJOR}, the newest known", json::cite(version));
        }
    }
}

fn array(members: Map<String, Value>, source_axes: bool) -> Result<Array> {
    let mut shape = axes(&members, "dimensions")?;
    let mut chunks = axes(&members, "blockSize")?;
    if shape.is_empty() {
        return Err(Error::corrupt("dimensions: an empty list"));
    }
    if chunks.len() != shape.len() {
        return Err(Error::corrupt(format!("blockSize: {} axes where dimensions has {}", chunks.len(), shape.len())));
    }
    if chunks.contains(&0) {
        return Err(Error::corrupt(format!("blockSize: {chunks:?} has a length of 0")));
    }
    let dtype = dtype(&members)?;
    let size = dtype.size().unwrap_or(0);
    check_sizes(&shape, &chunks, u64::try_from(size).unwrap_or(u64::MAX))?;
    let chain = Chain::new(config::from_n5(&members)?)?;
    let order = if source_axes { Order::F } else { Order::C };
    if !source_axes {
        shape.reverse();
        chunks.reverse();
    }
    let attributes: Map<String, Value> = members.into_iter().filter(|(name, _)| !MEMBERS.contains(&name.as_str())).collect();
    let (attributes, dimension_names) = dimensions(attributes, shape.len(), source_axes);
    let swap = Swap { offset: 0, width: size, count: 1 };
    Ok(Array {
        format: Format::N5,
        shape,
        chunks,
        fill: Fill { bytes: Some(vec![0; size]), zarr2: json!(0) },
        order,
        keys: Keys::plain(b'/'),
        dimension_names,
        attributes: Ok(attributes),
        kept: Kept::default(),
        stored: Stored {
            keys: Keys::plain(b'/'),
            placement: Placement::Object,
            reversed: !source_axes,
            envelope: Envelope::N5,
            chain,
            swaps: if size > 1 { vec![swap] } else { Vec::new() },
            axes: Vec::new(),
            narrow_text: false,
        },
        dtype,
    })
}

fn dtype(members: &Map<String, Value>) -> Result<DType> {
    let value = members.get("dataType").ok_or_else(|| Error::corrupt("no `dataType`"))?;
    Ok(match value.as_str() {
        Some("uint8") => DType::UInt(1),
        Some("uint16") => DType::UInt(2),
        Some("uint32") => DType::UInt(4),
        Some("uint64") => DType::UInt(8),
        Some("int8") => DType::Int(1),
        Some("int16") => DType::Int(2),
        Some("int32") => DType::Int(4),
        Some("int64") => DType::Int(8),
        Some("float32") => DType::Float(4),
        Some("float64") => DType::Float(8),
        _ => return Err(Error::unsupported(format!("dataType: {} is not read", json::cite(value)))),
    })
}

/// Adds `_ARRAY_DIMENSIONS` from `axes`, in the order that is shown.
///
/// Where the attribute is there already, zarr-python's N5 store wrote it, in the reversed order.
fn dimensions(
    mut attributes: Map<String, Value>,
    rank: usize,
    source_axes: bool,
) -> (Map<String, Value>, Option<Vec<Option<String>>>) {
    const NAME: &str = "_ARRAY_DIMENSIONS";
    let (mut found, from_axes) = match names(&attributes, NAME, rank) {
        Some(names) => (names, false),
        None if attributes.contains_key(NAME) => return (attributes, None),
        None => match names(&attributes, "axes", rank) {
            Some(names) => (names, true),
            None => return (attributes, None),
        },
    };
    if from_axes != source_axes {
        found.reverse();
    }
    let mut distinct = found.clone();
    distinct.sort_unstable();
    distinct.dedup();
    if from_axes && distinct.len() != rank {
        return (attributes, None);
    }
    attributes.insert(NAME.to_owned(), json!(found));
    (attributes, Some(found))
}

/// What the elements of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As many as its shape says.
    Default,
    /// As many as the header says.
    Varlength,
    /// A serialised object without a shape.
    Object,
}

/// The header of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHeader {
    /// What the elements are.
    pub mode: Mode,
    /// Length of each axis in the stored order, first axis fastest; empty for [`Mode::Object`].
    pub dims: Vec<u32>,
    /// Number of elements, where the header tells it.
    pub count: Option<u32>,
    /// Offset of the encoded elements, in bytes.
    pub payload: usize,
}

/// The largest header of a block of `rank` axes, in bytes.
pub const fn header_length(rank: usize) -> usize {
    rank.saturating_mul(4).saturating_add(8)
}

/// Reads the header at the start of a block of an array of `rank` axes.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] when it is cut, of another rank, or of an unknown mode.
pub fn block_header(bytes: &[u8], rank: usize) -> Result<BlockHeader> {
    let mut at = 0usize;
    let mut field = |length: usize| -> Result<u32> {
        let end = at.saturating_add(length);
        let field = bytes
            .get(at..end)
            .ok_or_else(|| Error::corrupt(format!("a block of {} bytes ends within its header", bytes.len())))?;
        at = end;
        Ok(field.iter().fold(0, |n, &b| n << 8 | u32::from(b)))
    };
    let mode = match field(2)? {
        0 => Mode::Default,
        1 => Mode::Varlength,
        2 => Mode::Object,
        other => return Err(Error::corrupt(format!("a block of mode {other}; 0, 1 and 2 are known"))),
    };
    let mut dims = Vec::new();
    if mode != Mode::Object {
        let claimed = field(2)?;
        if usize::try_from(claimed).ok() != Some(rank) {
            return Err(Error::corrupt(format!("a block of {claimed} axes in a dataset of {rank}")));
        }
        dims = (0..rank).map(|_| field(4)).collect::<Result<_>>()?;
    }
    let count = if mode == Mode::Default { None } else { Some(field(4)?) };
    Ok(BlockHeader { mode, dims, count, payload: at })
}

/// The shape of what a block holds, in the stored order like `block_size`: at most `block_size`, less where it is cropped.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for a length of 0 or over the block's, [`crate::error::Kind::Unsupported`] for objects and for
/// blocks with another number of elements than their shape has.
pub fn stored_shape(header: &BlockHeader, block_size: &[u64]) -> Result<Vec<usize>> {
    if header.mode == Mode::Object {
        return Err(Error::unsupported("a block that holds a serialised object"));
    }
    let fits = |(&d, &b): (&u32, &u64)| (d > 0 && u64::from(d) <= b).then(|| usize::try_from(d).ok()).flatten();
    let shape: Option<Vec<usize>> = header.dims.iter().zip(block_size).map(fits).collect();
    let shape = shape.filter(|s| s.len() == block_size.len()).ok_or_else(|| {
        Error::corrupt(format!("a block claims a shape of {:?}; from 1 to {block_size:?} is allowed", header.dims))
    })?;
    let product = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    match header.count {
        Some(count) if product != usize::try_from(count).ok() => {
            Err(Error::unsupported(format!("a block of variable length: {count} elements in a shape of {shape:?}")))
        }
        _ => Ok(shape),
    }
}
