//! One codec of Zarr v3's `codecs`: the specification's, numcodecs' under the names that zarr-python gives them, or unknown.
//!
//! numcodecs' codecs that calculate change the type of what follows, so a list is read with the type in hand. One that says
//! another type than the array has, or a byte order of its own, is not undone: its readers disagree.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::super::{Members, beside, named, understood};
use crate::array::DType;
use crate::codec::{self, Codec, Location, Number, Sum};
use crate::error::{Error, Result};
use crate::format::{dtype, inside, json};
use serde_json::{Value, json};

/// What a codec does.
#[derive(Debug)]
pub(super) enum Stage<'a> {
    /// Puts the axes into another order: encoded axis i is decoded axis `order[i]`.
    Transpose(Vec<usize>),
    /// Changes elements; `None` where it stays.
    Elements(Option<Codec>),
    /// Makes bytes of elements of fixed size; whether big-endian, if it says.
    Bytes(Option<bool>),
    /// Makes a shard.
    Sharding(&'a Members),
    /// Makes bytes in a way that stays.
    Serializer,
    /// Changes bytes.
    Stream(Codec),
    /// Not known, neither what it does nor where it may stand.
    Unknown,
}

impl Stage<'_> {
    pub(super) fn makes_bytes(&self) -> bool {
        matches!(self, Self::Bytes(_) | Self::Sharding(_) | Self::Serializer)
    }

    pub(super) fn is_undone(&self) -> bool {
        matches!(self, Self::Transpose(_) | Self::Elements(Some(_)) | Self::Bytes(_) | Self::Stream(_))
    }

    pub(super) fn into_codec(self) -> Option<Codec> {
        match self {
            Self::Elements(codec) => codec,
            Self::Stream(codec) => Some(codec),
            _ => None,
        }
    }
}

/// Reads a list of codecs for an array of `rank` axes with elements of `dtype`.
pub(super) fn stages<'a>(list: &'a [Value], rank: usize, dtype: &DType) -> Result<Vec<Stage<'a>>> {
    let mut number = dtype::spell(dtype).as_str().and_then(Number::parse);
    list.iter().map(|codec| stage(codec, rank, dtype, &mut number)).collect()
}

fn stage<'a>(codec: &'a Value, rank: usize, dtype: &DType, number: &mut Option<Number>) -> Result<Stage<'a>> {
    let (name, configuration) = named(codec)?;
    // What decoding depends on without a check. Streams and checksums tell by themselves whether they were understood.
    let members: Option<&[&str]> = match name {
        "transpose" => Some(&["order"]),
        "bytes" | "endian" => Some(&["endian"]),
        "sharding_indexed" => Some(&["chunk_shape", "codecs", "index_codecs", "index_location"]),
        _ => None,
    };
    members.map_or(Ok(()), |members| understood(configuration, members)).map_err(|e| inside(name, e))?;
    let stage = match name {
        "transpose" => Stage::Transpose(permutation(configuration, rank).map_err(|e| inside(name, e))?),
        // `endian` is what drafts of the specification called it.
        "bytes" | "endian" => {
            if *dtype == DType::Object {
                return Err(Error::corrupt(format!("{name}: elements of no fixed size")));
            }
            Stage::Bytes(match configuration.get("endian") {
                None | Some(Value::Null) => None,
                Some(Value::String(order)) if order == "little" => Some(false),
                Some(Value::String(order)) if order == "big" => Some(true),
                Some(other) => {
                    return Err(Error::corrupt(format!("{name}: {} is neither \"little\" nor \"big\"", json::cite(other))));
                }
            })
        }
        "sharding_indexed" => Stage::Sharding(configuration),
        "vlen-utf8" | "vlen-bytes" | "vlen-array" => Stage::Serializer,
        "gzip" => Stage::Stream(Codec::Gzip),
        "zstd" => Stage::Stream(Codec::Zstd),
        "blosc" => Stage::Stream(Codec::Blosc),
        "crc32c" => Stage::Stream(Codec::Checksum(Sum::Crc32c, Location::End)),
        "bitround" => Stage::Elements(Some(Codec::Identity("bitround"))),
        _ => match name.strip_prefix("numcodecs.") {
            Some(id) => by_numcodecs(id, configuration, dtype, number).map_err(|e| inside(name, e))?,
            None => Stage::Unknown,
        },
    };
    // What stays is judged by who knows it.
    if !matches!(stage, Stage::Unknown | Stage::Serializer) {
        beside(name, codec)?;
    }
    Ok(stage)
}

fn permutation(configuration: &Members, rank: usize) -> Result<Vec<usize>> {
    let order = configuration.get("order").unwrap_or(&Value::Null);
    let wrong = || Error::corrupt(format!("{} is no order of {rank} axes", json::cite(order)));
    match order {
        Value::String(order) if order == "C" => Ok((0..rank).collect()),
        Value::String(order) if order == "F" => Ok((0..rank).rev().collect()),
        Value::Array(list) => {
            let axis = |n: &Value| n.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n < rank);
            let axes: Option<Vec<usize>> = list.iter().map(axis).collect();
            let axes = axes.filter(|axes| axes.len() == rank).ok_or_else(wrong)?;
            let mut sorted = axes.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if sorted.len() == rank { Ok(axes) } else { Err(wrong()) }
        }
        _ => Err(wrong()),
    }
}

/// The parameter of `shuffle` that its wrapper in zarr-python takes from the array where it is missing.
pub(super) const ELEMENT_SIZE: &str = "elementsize";

/// Whether this is a `shuffle` of numcodecs that does not say of how many bytes.
pub(super) fn says_no_size(id: &str, configuration: &Members) -> bool {
    id == "shuffle" && configuration.get(ELEMENT_SIZE).is_none_or(Value::is_null)
}

/// A codec of numcodecs, which its wrapper in zarr-python takes for one that changes elements, makes bytes or changes bytes.
fn by_numcodecs(id: &str, configuration: &Members, dtype: &DType, number: &mut Option<Number>) -> Result<Stage<'static>> {
    let mut members = configuration.clone();
    if says_no_size(id, configuration) {
        // That of the array's elements, whatever changes them before. numcodecs itself would take 4, as it does in version 2.
        let Some(size) = dtype.size() else { return Ok(Stage::Unknown) };
        members.insert(ELEMENT_SIZE.to_owned(), json!(size));
    }
    // The type of the array where none is told.
    let types: &[&str] = match id {
        "delta" | "fixedscaleoffset" | "quantize" => &["dtype"],
        "astype" => &["decode_dtype"],
        _ => &[],
    };
    for name in types.iter().filter(|name| configuration.get(**name).is_none_or(Value::is_null)) {
        if let Some(number) = number {
            members.insert((*name).to_owned(), json!(number.spelled()));
        }
    }
    members.insert("id".to_owned(), json!(id));
    let read = || codec::from_numcodecs(&Value::Object(members), None);
    match id {
        "vlen-utf8" | "vlen-bytes" | "vlen-array" | "pcodec" | "zfpy" | "json2" | "msgpack2" | "pickle" => Ok(Stage::Serializer),
        "delta" | "fixedscaleoffset" | "quantize" | "astype" | "packbits" | "bitround" => {
            let codec = read()?.filter(|codec| follows(codec, number));
            if codec.is_none() {
                *number = None;
            }
            Ok(Stage::Elements(codec))
        }
        _ => Ok(read()?.map_or(Stage::Unknown, Stage::Stream)),
    }
}

/// Whether a codec takes elements of the type `number`; then it becomes the type that follows.
fn follows(codec: &Codec, number: &mut Option<Number>) -> bool {
    let Some(given) = *number else { return false };
    let (decoded, encoded) = match codec {
        Codec::Delta { decoded, encoded }
        | Codec::FixedScaleOffset { decoded, encoded, .. }
        | Codec::AsType { decoded, encoded } => (*decoded, *encoded),
        Codec::PackBits => {
            *number = None;
            return given.kind() == codec::Kind::Bool;
        }
        _ => return true,
    };
    *number = Some(encoded);
    decoded == given && encoded == encoded.little_endian()
}
