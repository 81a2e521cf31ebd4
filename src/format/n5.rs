//! N5: `attributes.json` and the header of a block.
//!
//! N5 counts axes from the fastest; shown, they are reversed, and then the bytes of a block need no transposition. Elements are
//! big-endian. Any directory of a container is a group. A block at the edge may be cropped or padded: its header tells.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{
    Array, Content, DType, Envelope, Fill, Format, Formats, Group, Kept, Keys, Node, Order, Placement, Shard, Stored, Swap,
};
use crate::codec::Chain;
use crate::error::{Error, Result};
use crate::format::{Context, Documents, axes, check_sizes, document, dtype, fill, inside, json, names, object, scales};
use serde_json::{Map, Value, json};

mod codecs;

/// The document of a group or dataset.
pub const DOCUMENT: &str = "attributes.json";

/// Members that describe a dataset, with those that its layout was read from; all others are its attributes.
const MEMBERS: &[&str] = &["dimensions", "blockSize", "dataType", "compression", "compressionType"];

/// The member by which Paintera tells that a dataset holds a label multiset for each element.
const MULTISET: &str = "isLabelMultiset";

/// The attribute that says what blocks are which Zarr cannot spell.
const BLOCKS: &str = "_n5_blocks";

/// Name of the encoding, in metadata, of chunks that hold numbers of their own number, little-endian.
pub const VARLENGTH: &str = "n5-varlength";

/// Name of the encoding, in metadata, of chunks that hold a serialised object.
pub const OBJECT: &str = "n5-object";

/// Newest major version of the format that is known.
const MAJOR: u64 = 4;

/// What a directory is to N5; `None` where it is nothing.
///
/// # Errors
/// For a document that cannot be read or contradicts itself, named.
pub fn detect(documents: &Documents, context: &Context<'_>) -> Result<Option<Node>> {
    let inherited = context.parent == Some(Format::N5) || context.wanted == Formats::Only(Format::N5);
    let Some(bytes) = document(documents, DOCUMENT)? else {
        return Ok(inherited.then(|| Node::Group(group(Map::new()))));
    };
    let mut members = match json::parse(bytes).map_err(|e| inside(DOCUMENT, e))? {
        Value::Object(members) => members,
        // Outside of a container it is someone else's file.
        _ if !inherited => return Ok(None),
        other => return Err(Error::corrupt(format!("{DOCUMENT}: {} where an object is expected", json::kind(&other)))),
    };
    // A multi-resolution group of BigDataViewer has a dataType but no dimensions.
    let dataset = members.contains_key("dimensions") && (members.contains_key("blockSize") || members.contains_key("dataType"));
    if !dataset {
        scales::reorder_ome(&mut members, context.source_axes);
        return Ok(Some(Node::Group(group(members))));
    }
    array(members, context.source_axes).map(|array| Some(Node::Array(Box::new(array)))).map_err(|e| inside(DOCUMENT, e))
}

fn group(attributes: Map<String, Value>) -> Group {
    Group { format: Format::N5, attributes: Ok(attributes), consolidated: false, multiscale: None }
}

/// What a person should know of a version that is newer than any known one. It is read as well as it can be: what matters is in
/// each dataset's own members.
pub fn newer_version(documents: &Documents) -> Option<String> {
    let members = object(documents, DOCUMENT).ok().flatten()?;
    let version = members.get("n5")?;
    let major = version.as_str().and_then(|v| v.split('.').next()).and_then(|m| m.parse::<u64>().ok())?;
    (major > MAJOR).then(|| format!("{DOCUMENT}: version {} of N5 is newer than {MAJOR}, the newest known", json::cite(version)))
}

fn array(mut members: Map<String, Value>, source_axes: bool) -> Result<Array> {
    ["dimensions", "blockSize"].into_iter().for_each(|name| make_whole(&mut members, name));
    let mut shape = axes(&members, "dimensions")?;
    let layout = codecs::layout(&members)?;
    let mut chunks = layout.block.clone();
    if shape.is_empty() {
        return Err(Error::corrupt("dimensions: an empty list"));
    }
    if chunks.len() != shape.len() {
        return Err(Error::corrupt(format!("blockSize: {} axes where dimensions has {}", chunks.len(), shape.len())));
    }
    if chunks.contains(&0) {
        return Err(Error::corrupt(format!("blockSize: {chunks:?} has a length of 0")));
    }
    let (dtype, content) = dtype(&members)?;
    let size = dtype.size().unwrap_or(0);
    check_sizes(&shape, &chunks, u64::try_from(size).unwrap_or(u64::MAX))?;
    let is_multiset = content == Content::Elements && size == 1 && members.get(MULTISET) == Some(&json!(true));
    let placement = placement(&layout, source_axes);
    // Without a header, the elements of a whole block, and texts as Zarr has them.
    let envelope = if layout.header { Envelope::N5(content) } else { Envelope::None };
    if !layout.header && content == Content::Object {
        return Err(Error::unsupported("objects without a block header"));
    }
    let order = if source_axes { Order::F } else { Order::C };
    if !source_axes {
        shape.reverse();
        chunks.reverse();
    }
    let describes = |name: &str| MEMBERS.contains(&name) || layout.members.contains(&name);
    let attributes: Map<String, Value> = members.into_iter().filter(|(name, _)| !describes(name)).collect();
    let (attributes, dimension_names) = dimensions(attributes, shape.len(), source_axes);
    let swap = Swap { offset: 0, width: size, count: 1 };
    let mut array = Array {
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
            placement,
            reversed: !source_axes,
            envelope,
            chain: layout.chain,
            swaps: if size > 1 && layout.big_endian { vec![swap] } else { Vec::new() },
            axes: Vec::new(),
            narrow_text: false,
            last: Vec::new(),
        },
        dtype,
    };
    match content {
        Content::Strings => keep(&mut array, json!({"id": "vlen-utf8"}), json!("")),
        Content::Object => {
            keep(&mut array, json!({"id": OBJECT}), Value::Null);
            describe(&mut array, json!({"mode": "object"}));
        }
        _ if is_multiset => make_varlength(&mut array),
        _ => {}
    }
    Ok(array)
}

/// Makes integers of a list's numbers that are whole but written as fractions, or as texts: Java reads either as what it is.
fn make_whole(members: &mut Map<String, Value>, name: &str) {
    for value in members.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter(|value| !value.is_boolean()) {
        if let Some(whole) = fill::integer(value).and_then(|whole| u64::try_from(whole).ok()) {
            *value = json!(whole);
        }
    }
}

/// Where blocks lie. The index of a shard has N5's first axis fastest: C order, once axes are reversed.
fn placement(layout: &codecs::Layout, source_axes: bool) -> Placement {
    if layout.shards.is_empty() {
        return Placement::Object;
    }
    let quotients = |whole: &[u64], part: &[u64]| -> Vec<u64> {
        let mut counts: Vec<u64> = whole.iter().zip(part).map(|(w, p)| w.checked_div(*p).unwrap_or(0)).collect();
        if !source_axes {
            counts.reverse();
        }
        counts
    };
    let rank = layout.block.len();
    let level = |level: &codecs::Level| Shard {
        parts: quotients(&level.shape, &level.part),
        chunks: quotients(&level.part, &layout.block),
        axes: if source_axes { (0..rank).rev().collect() } else { (0..rank).collect() },
        at_start: level.at_start,
        big_endian: level.big_endian,
        index: level.index.clone(),
        envelope: Chain::default(),
    };
    Placement::Shards(layout.shards.iter().map(level).collect())
}

/// Takes an array's blocks to hold as many numbers as their headers tell, whatever their shapes are: nothing that Zarr can spell. The
/// metadata names an encoding that no reader takes for another.
pub fn make_varlength(array: &mut Array) {
    let Some(size) = array.dtype.size().filter(|_| array.stored.envelope == Envelope::N5(Content::Elements)) else { return };
    let mut spelled = dtype::spell(&array.dtype);
    array.stored.envelope = Envelope::N5(Content::Varlength(size));
    describe(array, json!({"mode": "varlength", "dtype": spelled}));
    let filter = json!({"id": VARLENGTH, "dtype": spelled.take()});
    keep(array, filter, Value::Null);
}

/// The array of the most frequent labels that is shown beside the label multisets of a dataset; `None` where it has none.
pub fn most_frequent_labels(array: &Array) -> Option<Array> {
    let attributes = array.attributes.as_ref().ok()?;
    if array.stored.envelope != Envelope::N5(Content::Varlength(1)) || attributes.get(MULTISET) != Some(&json!(true)) {
        return None;
    }
    let mut labels = array.clone();
    let mut attributes = attributes.clone();
    attributes.shift_remove(MULTISET);
    attributes.shift_remove(BLOCKS);
    labels.attributes = Ok(attributes);
    labels.dtype = DType::UInt(8);
    labels.fill = Fill { bytes: Some(vec![0; 8]), zarr2: json!(0) };
    labels.kept = Kept::default();
    labels.stored.envelope = Envelope::N5(Content::LabelMultisets);
    labels.stored.swaps.clear();
    Some(labels)
}

/// Takes the chunks to be encoded by `filter`.
fn keep(array: &mut Array, filter: Value, fill: Value) {
    array.dtype = DType::Object;
    array.kept = Kept { filters: vec![filter], dtype: Some(json!("|O")), ..Kept::default() };
    array.fill = Fill { bytes: None, zarr2: fill };
}

/// Says in an attribute what the blocks are, for those who read the files themselves.
fn describe(array: &mut Array, blocks: Value) {
    if let Ok(attributes) = &mut array.attributes {
        attributes.insert(BLOCKS.to_owned(), blocks);
    }
}

/// The type of the elements, and what blocks of it hold.
fn dtype(members: &Map<String, Value>) -> Result<(DType, Content)> {
    let value = members.get("dataType").ok_or_else(|| Error::corrupt("no `dataType`"))?;
    let dtype = match value.as_str() {
        Some("string") => return Ok((DType::Object, Content::Strings)),
        Some("object") => return Ok((DType::Object, Content::Object)),
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
    };
    Ok((dtype, Content::Elements))
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

/// The header of an object as the specification has it, with rank and shape before the number of bytes; `None` where it is not.
/// Java leaves both out, and [`block_header`] reads that.
pub fn object_header_with_shape(bytes: &[u8], rank: usize) -> Option<BlockHeader> {
    let (mode, rest) = bytes.split_first_chunk::<2>()?;
    let (claimed, rest) = rest.split_first_chunk::<2>()?;
    if u16::from_be_bytes(*mode) != 2 || usize::from(u16::from_be_bytes(*claimed)) != rank {
        return None;
    }
    let (_, rest) = rest.split_at_checked(rank.checked_mul(4)?)?;
    let (count, payload) = rest.split_first_chunk::<4>()?;
    let payload = bytes.len().checked_sub(payload.len())?;
    Some(BlockHeader { mode: Mode::Object, dims: Vec::new(), count: Some(u32::from_be_bytes(*count)), payload })
}

/// The shape of what a block holds, in the stored order like `block_size`: at most `block_size`, less where it is cropped.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for a length of 0 or over the block's, and for a block without a shape.
pub fn stored_shape(header: &BlockHeader, block_size: &[u64]) -> Result<Vec<usize>> {
    if header.mode == Mode::Object {
        return Err(Error::corrupt("a block that holds a serialised object in a dataset of something else"));
    }
    let fits = |(&d, &b): (&u32, &u64)| (d > 0 && u64::from(d) <= b).then(|| usize::try_from(d).ok()).flatten();
    let shape: Option<Vec<usize>> = header.dims.iter().zip(block_size).map(fits).collect();
    shape.filter(|s| s.len() == block_size.len()).ok_or_else(|| {
        Error::corrupt(format!("a block claims a shape of {:?}; from 1 to {block_size:?} is allowed", header.dims))
    })
}

/// Checks that a block has as many elements as its shape.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] for a block of another length, which belongs to another kind of dataset.
pub fn check_count(header: &BlockHeader, shape: &[usize]) -> Result<()> {
    let product = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    match header.count {
        Some(count) if product != usize::try_from(count).ok() => Err(Error::unsupported(format!(
            "a block of variable length, {count} elements in a shape of {shape:?}, in a dataset of whole blocks"
        ))),
        _ => Ok(()),
    }
}
