//! The list `codecs` of an array: what to undo, at which level of sharding, and what stays.
//!
//! A list changes the array, makes bytes of it, and changes the bytes, in this order. A shard has a list of its own inside, for
//! chunks whose axes are those that lead into it. Sharding is undone where all around it is: then its chunks are the chunks
//! shown. A codec that is not known stays, with all inside it, and with the order of axes that leads to it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod read;

use super::dtype::{self, Typed};
use super::{Members, has_order};
use crate::array::{DType, Kept, Shard, Swap};
use crate::codec::{Chain, Codec, Length};
use crate::error::{Error, Result};
use crate::format::{axes as lengths, json};
use crate::limits;
use read::Stage;
use serde_json::{Map, Value, json};

/// What the codecs of an array make of its chunks.
pub(super) struct Plan {
    /// Shape of the chunks shown.
    pub chunks: Vec<u64>,
    /// The shards around a chunk, outermost first.
    pub levels: Vec<Shard>,
    /// What to undo in a chunk.
    pub chain: Chain,
    /// Byte order of the elements then.
    pub swaps: Vec<Swap>,
    /// Order of the axes then; empty where it is that of the array.
    pub axes: Vec<usize>,
    /// What is not undone.
    pub kept: Kept,
}

/// Reads `codecs` of an array whose objects hold `shape` elements each.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for a list that no writer can have followed, [`crate::error::Kind::Unsupported`] for an
/// index of a shard that cannot be read.
pub(super) fn plan(codecs: &Value, shape: Vec<u64>, typed: &Typed) -> Result<Plan> {
    let mut list = list_of(codecs)?;
    let mut shapes = vec![shape];
    let mut levels = Vec::new();
    let mut order: Vec<usize> = (0..shapes.first().map_or(0, Vec::len)).collect();
    loop {
        let stages = read::stages(list, order.len(), &typed.dtype)?;
        check(&stages)?;
        let Some((configuration, envelope)) = undone_sharding(&stages) else {
            return innermost(list, stages, shapes, levels, order, typed);
        };
        order = transposed(&stages, order);
        let envelope = Chain::new(envelope)?;
        let outer = shapes.last().map_or(&[][..], Vec::as_slice);
        let (level, inner) = level(configuration, outer, &order, envelope).map_err(|e| about(&e))?;
        levels.push(level);
        shapes.push(inner);
        list = list_of(configuration.get("codecs").unwrap_or(&Value::Null)).map_err(|e| about(&e))?;
    }
}

fn about(e: &Error) -> Error {
    Error::new(e.kind(), format!("sharding_indexed: {}", e.reason()))
}

fn list_of(codecs: &Value) -> Result<&[Value]> {
    match codecs {
        Value::Array(list) if list.len() > limits::CODECS => {
            Err(Error::too_big(format!("{} codecs; at most {} are read", list.len(), limits::CODECS)))
        }
        Value::Array(list) => Ok(list),
        other => Err(Error::corrupt(format!("{} is no list of codecs", json::cite(other)))),
    }
}

/// That what changes arrays comes before the one codec that makes bytes, and what changes bytes after it.
fn check(stages: &[Stage<'_>]) -> Result<()> {
    let mut makers = stages.iter().enumerate().filter(|(_, stage)| stage.makes_bytes()).map(|(at, _)| at);
    let maker = match (makers.next(), makers.next()) {
        (Some(_), Some(_)) => return Err(Error::corrupt("two codecs that make bytes of an array")),
        (None, _) if stages.iter().any(|stage| matches!(stage, Stage::Unknown)) => return Ok(()),
        (None, _) => return Err(Error::corrupt("no codec that makes bytes of the elements, such as `bytes`")),
        (Some(at), None) => at,
    };
    let misplaced = |(at, stage): (usize, &Stage<'_>)| match stage {
        Stage::Bytes(_) if at < maker => true,
        Stage::Stream(_) => at < maker,
        Stage::Transpose(_) | Stage::Elements(_) => at > maker,
        _ => false,
    };
    match stages.iter().enumerate().find(|(at, stage)| misplaced((*at, stage))) {
        Some((at, _)) => Err(Error::corrupt(format!("codec number {at} stands on the wrong side of the one that makes bytes"))),
        None => Ok(()),
    }
}

/// The sharding of a list, and what its bytes are encoded with; `None` where there is none, or where it cannot be undone.
fn undone_sharding<'a>(stages: &[Stage<'a>]) -> Option<(&'a Members, Vec<Codec>)> {
    let mut found = None;
    let mut envelope = Vec::new();
    for stage in stages {
        match stage {
            Stage::Sharding(configuration) => found = Some(*configuration),
            Stage::Stream(codec) => envelope.push(codec.clone()),
            Stage::Transpose(_) | Stage::Elements(Some(Codec::Identity(_))) => {}
            _ => return None,
        }
    }
    found.map(|configuration| (configuration, envelope))
}

/// The order of axes that the transpositions of a list make of another one.
fn transposed(stages: &[Stage<'_>], order: Vec<usize>) -> Vec<usize> {
    stages.iter().fold(order, |order, stage| match stage {
        Stage::Transpose(by) => by.iter().filter_map(|&axis| order.get(axis).copied()).collect(),
        _ => order,
    })
}

/// One level of sharding in a container of `outer` elements, and the shape of its parts, both along the shown axes. `order`
/// tells which shown axis each axis of the shard is. What depends on the innermost chunks is filled in later.
fn level(configuration: &Members, outer: &[u64], order: &[usize], envelope: Chain) -> Result<(Shard, Vec<u64>)> {
    let found = lengths(configuration, "chunk_shape")?;
    if found.len() != order.len() {
        return Err(Error::corrupt(format!("chunk_shape: {} axes where the array has {}", found.len(), order.len())));
    }
    let mut inner = vec![1; order.len()];
    let mut parts = vec![1; order.len()];
    for (&length, &axis) in found.iter().zip(order) {
        let (Some(inner), Some(parts), Some(&outer)) = (inner.get_mut(axis), parts.get_mut(axis), outer.get(axis)) else {
            return Err(Error::new(crate::error::Kind::Bug, "an order of axes that is none"));
        };
        match (outer.checked_rem(length), outer.checked_div(length)) {
            (Some(0), Some(n)) if n > 0 => (*inner, *parts) = (length, n),
            _ => return Err(Error::corrupt(format!("chunk_shape: {length} does not divide {outer}"))),
        }
    }
    let at_start = match configuration.get("index_location") {
        None | Some(Value::Null) => false,
        Some(Value::String(place)) if place == "end" => false,
        Some(Value::String(place)) if place == "start" => true,
        Some(other) => {
            return Err(Error::corrupt(format!("index_location: {} is neither \"start\" nor \"end\"", json::cite(other))));
        }
    };
    let (index, big_endian) =
        index_chain(configuration, order.len()).map_err(|e| Error::new(e.kind(), format!("index_codecs: {}", e.reason())))?;
    let level = Shard { parts, chunks: Vec::new(), axes: order.to_vec(), at_start, big_endian, index, envelope };
    if level.count().is_none_or(|count| count > limits::INDEX) {
        return Err(Error::too_big(format!("a shard of {:?} parts; at most {} are read", level.parts, limits::INDEX)));
    }
    Ok((level, inner))
}

/// What the index of a shard of so many axes is encoded with, and whether its numbers are big-endian. Without a word it is what
/// all writers use: little-endian numbers and a CRC-32C.
fn index_chain(configuration: &Members, rank: usize) -> Result<(Chain, bool)> {
    let Some(list) = configuration.get("index_codecs").filter(|v| !v.is_null()) else {
        let sum = Codec::Checksum(crate::codec::Sum::Crc32c, crate::codec::Location::End);
        return Ok((Chain::new(vec![sum])?, false));
    };
    let list = list_of(list)?;
    // The last axis of the index holds an offset and a length.
    let stages = read::stages(list, rank.saturating_add(1), &DType::UInt(8))?;
    check(&stages)?;
    let mut big = false;
    let mut codecs = Vec::new();
    for (stage, spelled) in stages.into_iter().zip(list) {
        match stage {
            Stage::Bytes(endian) => big = endian == Some(true),
            Stage::Stream(codec) => codecs.push(codec),
            Stage::Transpose(order) if order.is_sorted() => {}
            _ => return Err(Error::unsupported(format!("{} is not undone in an index", json::cite(spelled)))),
        }
    }
    let chain = Chain::new(codecs)?;
    match chain.encoded_length(Length::Exact(16)) {
        Length::Exact(_) => Ok((chain, big)),
        Length::AtMost(_) => {
            let names = chain.names().join(", ");
            Err(Error::unsupported(format!("{names} compresses, so that the length of the index cannot be known")))
        }
    }
}

/// The innermost list: that of a chunk shown.
fn innermost(
    list: &[Value],
    stages: Vec<Stage<'_>>,
    shapes: Vec<Vec<u64>>,
    mut levels: Vec<Shard>,
    order: Vec<usize>,
    typed: &Typed,
) -> Result<Plan> {
    let chunks = shapes.last().cloned().unwrap_or_default();
    for (level, parts) in levels.iter_mut().zip(shapes.iter().skip(1)) {
        level.chunks = parts.iter().zip(&chunks).map(|(part, chunk)| part.checked_div(*chunk).unwrap_or(1)).collect();
    }
    let stays = stages.iter().rposition(|stage| !stage.is_undone());
    let maker = stages.iter().position(Stage::makes_bytes);
    let big = stages.iter().any(|stage| matches!(stage, Stage::Bytes(Some(true))));
    // zarr-python takes such fields for little-endian, tensorstore for big-endian: each finds the words that it read so.
    let disputed = big && typed.disputed && has_order(&typed.dtype);
    let rest = match stays {
        None if !is_reordered(&stages) && typed.dtype != DType::Opaque && !disputed => None,
        stays => stays.max(maker).map(|last| last.saturating_add(1)),
    };
    if let Some(first) = rest {
        let kept = kept(list.get(..first).unwrap_or(list), &order, &typed.dtype);
        let chain = stages.into_iter().skip(first).filter_map(|stage| match stage {
            Stage::Stream(codec) => Some(codec),
            _ => None,
        });
        let chain = Chain::new(chain.collect())?;
        return Ok(Plan { chunks, levels, chain, swaps: Vec::new(), axes: Vec::new(), kept });
    }
    if typed.dtype == DType::Object {
        return Err(Error::corrupt("elements of no fixed size without a codec for them"));
    }
    let order = transposed(&stages, order);
    let mut codecs: Vec<Codec> = stages.into_iter().filter_map(Stage::into_codec).collect();
    // What calculates makes little-endian numbers of what is stored; the outermost of them knows the stored byte order.
    let mut calculates = false;
    for codec in codecs.iter_mut().rev() {
        if let Codec::Delta { encoded, .. } | Codec::FixedScaleOffset { encoded, .. } | Codec::AsType { encoded, .. } = codec {
            if big && !calculates {
                *encoded = encoded.big_endian();
            }
            calculates = true;
        } else if *codec == Codec::PackBits {
            calculates = true;
        }
    }
    let swaps = if big && !calculates { dtype::big_endian(&typed.dtype) } else { Vec::new() };
    let axes = if order.iter().enumerate().all(|(at, axis)| at == *axis) { Vec::new() } else { order };
    Ok(Plan { chunks, levels, chain: Chain::new(codecs)?, swaps, axes, kept: Kept::default() })
}

/// Whether elements are put into another order after a codec that depends on it. Then nothing tells in which order it went
/// over them: numcodecs goes by the layout in memory.
fn is_reordered(stages: &[Stage<'_>]) -> bool {
    let mut ordered = false;
    for stage in stages {
        match stage {
            Stage::Elements(Some(Codec::Delta { .. } | Codec::PackBits)) => ordered = true,
            Stage::Transpose(by) if ordered && by.iter().enumerate().any(|(at, axis)| at != *axis) => return true,
            _ => {}
        }
    }
    false
}

/// What stays: the codecs of `list`, applied to an array whose axes `order` has.
fn kept(list: &[Value], order: &[usize], dtype: &DType) -> Kept {
    let mut zarr3 = Vec::new();
    if order.iter().enumerate().any(|(at, axis)| at != *axis) {
        zarr3.push(json!({"name": "transpose", "configuration": {"order": order}}));
    }
    zarr3.extend_from_slice(list);
    let filters: Option<Vec<Vec<Value>>> = zarr3.iter().map(|codec| in_zarr2(codec, dtype)).collect();
    let filters: Vec<Value> = filters.unwrap_or_default().into_iter().flatten().collect();
    let spelled = (!filters.is_empty()).then(|| crate::format::dtype::spell(dtype));
    Kept { filters, dtype: spelled, zarr3: Some(zarr3), ..Kept::default() }
}

/// A codec that stays as filters of Zarr v2, none where v2 does the same without a word; `None` where there is no such thing.
fn in_zarr2(codec: &Value, dtype: &DType) -> Option<Vec<Value>> {
    let (name, configuration) = super::named(codec).ok()?;
    let id = match name {
        "bytes" => {
            let little = configuration.get("endian").is_none_or(|endian| endian == "little");
            return (little || !has_order(dtype)).then(Vec::new);
        }
        "transpose" => {
            let same = |(at, axis): (usize, &Value)| axis.as_u64().and_then(|axis| usize::try_from(axis).ok()) == Some(at);
            let order = configuration.get("order")?.as_array()?;
            return order.iter().enumerate().all(same).then(Vec::new);
        }
        "vlen-utf8" | "vlen-bytes" if *dtype == DType::Object => name,
        "gzip" | "zstd" => name,
        _ => name.strip_prefix("numcodecs.")?,
    };
    let mut filter = Map::new();
    filter.insert("id".to_owned(), json!(id));
    filter.extend(configuration.iter().map(|(name, value)| (name.clone(), value.clone())));
    if read::says_no_size(id, configuration) {
        // Version 2 has another size in mind.
        filter.insert(read::ELEMENT_SIZE.to_owned(), json!(dtype.size()?));
    }
    Some(vec![Value::Object(filter)])
}
