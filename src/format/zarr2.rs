//! Zarr version 2: `.zarray`, `.zgroup` and `.zattrs`.
//!
//! Codecs are undone from the outside in, up to the first that is not known. That one and all inside it stay, in the bytes and
//! in the metadata; then elements keep the stored byte order and layout too, for those lie further in. Missing members count as
//! null where that can hide nothing. Attributes that cannot be read do not hide the data.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Array, Attributes, DType, Envelope, Format, Group, Kept, Keys, Node, Order, Placement, Stored};
use crate::codec::{Chain, config};
use crate::error::{Error, Result};
use crate::format::{Context, Documents, axes, check_sizes, document, dtype, fill, inside, json, names, nczarr, object};
use crate::limits;
use serde_json::{Map, Value};

/// Codecs that turn objects into bytes.
const OBJECT_CODECS: &[&str] =
    &["vlen-utf8", "vlen-bytes", "vlen-array", "json", "json2", "msgpack", "msgpack2", "pickle", "categorize"];

/// What a directory is to Zarr v2; `None` where it is nothing.
///
/// # Errors
/// For a document that cannot be read or contradicts itself, named.
pub fn detect(documents: &Documents, context: &Context<'_>) -> Result<Option<Node>> {
    let is_group = documents.contains_key(".zgroup");
    if documents.contains_key(".zarray") {
        match array(documents) {
            Ok(array) => return Ok(Some(Node::Array(Box::new(array)))),
            Err(e) if !is_group => return Err(e),
            Err(_) => {}
        }
    }
    let side_object = documents.contains_key(".nczgroup");
    let child = context.parent == Some(Format::Zarr2) && documents.contains_key(".zattrs");
    if is_group || side_object || child {
        return group(documents).map(|group| Some(Node::Group(group)));
    }
    Ok(None)
}

/// What a person should know of a group that holds an array's document too, which cannot be read.
pub fn passed_over(documents: &Documents) -> Option<String> {
    let is_group = documents.contains_key(".zarray") && documents.contains_key(".zgroup");
    let e = is_group.then(|| array(documents).err()).flatten()?;
    Some(format!("{e}; the directory is shown as the group that .zgroup says it is"))
}

fn group(documents: &Documents) -> Result<Group> {
    let members = object(documents, ".zgroup")?;
    if let Some(members) = &members {
        check_version(members).map_err(|e| inside(".zgroup", e))?;
    }
    let members = members.unwrap_or_default();
    let attributes = attributes(documents).and_then(|found| nczarr::group_attributes(documents, &members, found));
    Ok(Group { format: Format::Zarr2, attributes, consolidated: documents.contains_key(".zmetadata"), multiscale: None })
}

fn array(documents: &Documents) -> Result<Array> {
    let members = object(documents, ".zarray")?.unwrap_or_default();
    let found = attributes(documents);
    let marks = nczarr::array_marks(documents, &members, found.as_ref().ok());
    let mut array = described(&members, &marks).map_err(|e| inside(".zarray", e))?;
    array.attributes = found.and_then(|found| nczarr::array_attributes(documents, &marks, found, array.shape.len()));
    array.dimension_names = match &array.attributes {
        Ok(attributes) => names(attributes, "_ARRAY_DIMENSIONS", array.shape.len()),
        Err(_) => None,
    };
    Ok(array)
}

/// The attributes of the source, or why they cannot be read.
fn attributes(documents: &Documents) -> Result<Attributes> {
    match document(documents, ".zattrs")? {
        None => Ok(Map::new()),
        Some(bytes) => json::parse_object(bytes).map_err(|e| inside(".zattrs", e)),
    }
}

fn check_version(members: &Map<String, Value>) -> Result<()> {
    match members.get("zarr_format") {
        Some(Value::Number(n)) if n.as_str() == "2" => Ok(()),
        // webknossos writes its groups so.
        Some(Value::String(s)) if s == "2" => Ok(()),
        Some(other) => Err(Error::unsupported(format!("zarr_format: {} where 2 is expected", json::cite(other)))),
        None => Err(Error::corrupt("no `zarr_format`")),
    }
}

/// The array that the members of `.zarray` describe, without attributes yet.
fn described(members: &Map<String, Value>, marks: &nczarr::ArrayMarks) -> Result<Array> {
    check_version(members)?;
    let shape = axes(members, "shape")?;
    let chunks = chunks(members, &shape)?;
    let spelled_dtype = members.get("dtype").ok_or_else(|| Error::corrupt("no `dtype`"))?;
    let mut spelled = dtype::parse(spelled_dtype)?;
    if marks.narrow_chars() && spelled.dtype == DType::Text(1) {
        spelled = dtype::Spelled { dtype: DType::Bytes { length: 1, char: true }, swaps: Vec::new() };
    }
    let item = spelled.dtype.size();
    check_sizes(&shape, &chunks, item.and_then(|n| u64::try_from(n).ok()).unwrap_or(1))?;
    let (chain, mut kept) = chain(members, item)?;
    if spelled.dtype == DType::Object && kept.is_empty() {
        return Err(Error::unsupported("dtype: |O without a codec for objects among the filters"));
    }
    let fill_value = members.get("fill_value").unwrap_or(&Value::Null);
    let mut fill = fill::parse(fill_value, &spelled.dtype, &spelled.swaps, marks.is_nczarr())?;
    let stored_order = order(members, shape.len())?;
    let keys = Keys::plain(separator(members)?);
    let (plain, rank) = (kept.is_empty(), shape.len());
    if !plain {
        kept.dtype = Some(spelled_dtype.clone());
        // Where it spells bytes, it spells stored ones.
        fill.zarr2 = if fill.zarr2.is_string() { fill_value.clone() } else { fill.zarr2 };
    }
    Ok(Array {
        format: Format::Zarr2,
        shape,
        chunks,
        fill,
        order: if plain { Order::C } else { stored_order },
        keys: keys.clone(),
        dimension_names: None,
        attributes: Ok(Map::new()),
        stored: Stored {
            keys,
            placement: Placement::Object,
            reversed: false,
            envelope: Envelope::None,
            chain,
            swaps: if plain { spelled.swaps } else { Vec::new() },
            axes: if plain && stored_order == Order::F { (0..rank).rev().collect() } else { Vec::new() },
            narrow_text: plain && spelled.dtype == DType::Text(1),
            last: Vec::new(),
        },
        dtype: spelled.dtype,
        kept,
    })
}

fn chunks(members: &Map<String, Value>, shape: &[u64]) -> Result<Vec<u64>> {
    let mut chunks = axes(members, "chunks")?;
    if chunks.len() != shape.len() {
        return Err(Error::corrupt(format!("chunks: {} axes where the shape has {}", chunks.len(), shape.len())));
    }
    if shape.iter().zip(&chunks).any(|(&s, &c)| c == 0 && s != 0) {
        return Err(Error::corrupt(format!("chunks: {chunks:?} has a length of 0 where the shape {shape:?} has not")));
    }
    // An axis without elements has no chunks, and some readers refuse a length of 0.
    chunks.iter_mut().for_each(|c| *c = (*c).max(1));
    Ok(chunks)
}

/// The order of elements; one axis or none has but one, which is called C.
fn order(members: &Map<String, Value>, rank: usize) -> Result<Order> {
    match members.get("order") {
        Some(Value::String(s)) if s == "C" => Ok(Order::C),
        Some(Value::String(s)) if s == "F" => Ok(if rank < 2 { Order::C } else { Order::F }),
        Some(other) => Err(Error::corrupt(format!("order: {} is neither \"C\" nor \"F\"", json::cite(other)))),
        None => Err(Error::corrupt("no `order`")),
    }
}

/// Whether `.zarray` does not say how chunks are named. Then `.` is meant, though not by all writers.
pub fn leaves_separator_out(documents: &Documents) -> bool {
    let members = object(documents, ".zarray").ok().flatten();
    members.is_some_and(|members| members.get("dimension_separator").is_none_or(Value::is_null))
}

fn separator(members: &Map<String, Value>) -> Result<u8> {
    match members.get("dimension_separator") {
        None | Some(Value::Null) => Ok(b'.'),
        Some(Value::String(s)) if s == "." => Ok(b'.'),
        Some(Value::String(s)) if s == "/" => Ok(b'/'),
        Some(other) => Err(Error::corrupt(format!("dimension_separator: {} is neither \".\" nor \"/\"", json::cite(other)))),
    }
}

/// What to undo, and what stays. `item` is the size of a stored element in bytes.
fn chain(members: &Map<String, Value>, item: Option<usize>) -> Result<(Chain, Kept)> {
    let filters = match members.get("filters") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(filters)) => filters.as_slice(),
        Some(other) => return Err(Error::corrupt(format!("filters: {} is no list of codecs", json::cite(other)))),
    };
    let compressor = members.get("compressor").filter(|c| !c.is_null());
    if filters.len() >= limits::CODECS {
        return Err(Error::too_big(format!("{} filters; at most {} codecs are read", filters.len(), limits::CODECS)));
    }
    // Every codec is looked at, also those that stay: a malformed one is an error wherever it stands.
    let compressor_codec = compressor.map(|c| codec(c, item).map_err(|e| inside("compressor", e))).transpose()?;
    let mut removable = filters.iter().map(|f| codec(f, item).map_err(|e| inside("filters", e))).collect::<Result<Vec<_>>>()?;
    if let Some(None) = compressor_codec {
        let kept = Kept { filters: filters.to_vec(), compressor: compressor.cloned(), ..Kept::default() };
        return Ok((Chain::default(), kept));
    }
    let first = removable.iter().rposition(Option::is_none).map_or(0, |last| last.saturating_add(1));
    let outer = removable.split_off(first);
    let kept = Kept { filters: filters.get(..first).unwrap_or(&[]).to_vec(), ..Kept::default() };
    let codecs = outer.into_iter().flatten().chain(compressor_codec.flatten()).collect();
    Ok((Chain::new(codecs)?, kept))
}

/// The codec of a configuration; `None` for one that stays.
fn codec(config: &Value, item: Option<usize>) -> Result<Option<crate::codec::Codec>> {
    let Some(id) = config.get("id").and_then(Value::as_str) else {
        return Err(Error::corrupt(format!("{} is no codec: it has no `id`", json::cite(config))));
    };
    if item.is_none() && OBJECT_CODECS.contains(&id) {
        return Ok(None);
    }
    config::from_numcodecs(config, item)
}
