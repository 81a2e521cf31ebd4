//! Codec configurations in metadata: numcodecs' (Zarr v2, NCZarr) and N5's.
//!
//! Only what decoding needs is read; levels are ignored, and so are unknown parameters of codecs that tell by themselves whether
//! they were undone. Numbers may be given as strings, as some versions of netCDF do. A codec that is well formed but not undone
//! here is no error for Zarr: it stays in the metadata.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::xz::Filter;
use super::{Codec, Framing, Location, Lzma, Number, Sum, number};
use crate::error::{Error, Result};
use crate::limits;
use serde_json::{Map, Value};

type Config = Map<String, Value>;

/// The codec that numcodecs configures so; `None` for one that is not undone here and must stay in the metadata.
///
/// `item_size` is the size of the array's elements, for NCZarr: its `shuffle` of element size 0 means that. Without it, 0
/// means no shuffling, as in numcodecs.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] when it is no configuration: no `id`, a parameter that is missing or makes no sense.
pub fn from_numcodecs(config: &Value, item_size: Option<usize>) -> Result<Option<Codec>> {
    let config = config.as_object().ok_or_else(|| Error::corrupt("a codec that is no object"))?;
    let id = config.get("id").ok_or_else(|| Error::corrupt("a codec without an id"))?;
    let id = id.as_str().ok_or_else(|| Error::corrupt("a codec whose id is no string"))?;
    let read = Reader { name: id, config };
    let id = id.strip_prefix("numcodecs.").unwrap_or(id);
    if let Some(known) = parameters(id)
        && config.keys().any(|name| name != "id" && !known.contains(&name.as_str()))
    {
        return Ok(None);
    }
    Ok(Some(match id {
        "gzip" => Codec::Gzip,
        "zlib" => Codec::Zlib,
        "bz2" => Codec::Bzip2,
        "lzma" => return lzma(&read),
        "lz4" => Codec::Lz4(Framing::Prefixed),
        "zstd" => Codec::Zstd,
        "blosc" => Codec::Blosc,
        "crc32" => Codec::Checksum(Sum::Crc32, read.location(Location::Start)?),
        "adler32" => Codec::Checksum(Sum::Adler32, read.location(Location::Start)?),
        "crc32c" => Codec::Checksum(Sum::Crc32c, read.location(Location::End)?),
        "fletcher32" => Codec::Checksum(Sum::Fletcher32, Location::End),
        "jenkins_lookup3" => {
            if read.get("prefix").is_some() {
                return Ok(None);
            }
            let initial = read.integer("initval")?.unwrap_or(0);
            let initial = u32::try_from(initial).map_err(|_| read.bad("initval"))?;
            Codec::Checksum(Sum::Jenkins(initial), Location::End)
        }
        "shuffle" => {
            let size = read.integer("elementsize")?.unwrap_or(4);
            let size = usize::try_from(size).map_err(|_| read.bad("elementsize"))?;
            let size = if size == 0 { item_size.unwrap_or(1) } else { size };
            if u64::try_from(size).unwrap_or(u64::MAX) > limits::ITEM {
                return Err(read.bad("elementsize"));
            }
            Codec::Shuffle(size)
        }
        "delta" => match read.types("dtype", "astype")? {
            Some((decoded, encoded)) if number::can_accumulate(decoded, encoded) => Codec::Delta { decoded, encoded },
            _ => return Ok(None),
        },
        "fixedscaleoffset" => {
            let scale = read.float("scale")?;
            let offset = read.float("offset")?;
            match read.types("dtype", "astype")? {
                Some((decoded, encoded)) if encoded.kind() != number::Kind::Bool => {
                    Codec::FixedScaleOffset { decoded, encoded, scale, offset }
                }
                _ => return Ok(None),
            }
        }
        "quantize" => match read.types("dtype", "astype")? {
            Some((decoded, encoded)) => Codec::AsType { decoded, encoded },
            None => return Ok(None),
        },
        "astype" => {
            let (Some(decoded), Some(encoded)) = (read.get("decode_dtype"), read.get("encode_dtype")) else {
                return Err(Error::corrupt("codec astype: encode_dtype or decode_dtype is missing"));
            };
            match (decoded.as_str(), encoded.as_str()) {
                (Some(decoded), Some(encoded)) if decoded == encoded => Codec::Identity("astype"),
                (Some(decoded), Some(encoded)) => match (Number::parse(decoded), Number::parse(encoded)) {
                    (Some(decoded), Some(encoded)) => Codec::AsType { decoded, encoded },
                    _ => return Ok(None),
                },
                _ => return Ok(None),
            }
        }
        "packbits" => Codec::PackBits,
        "bitround" => Codec::Identity("bitround"),
        _ => return Ok(None),
    }))
}

/// The parameters of a codec whose result nothing checks: another one, misspelt or of a later release, may mean other numbers.
/// `None` for those that tell themselves whether they were undone.
fn parameters(id: &str) -> Option<&'static [&'static str]> {
    Some(match id {
        "shuffle" => &["elementsize"],
        "delta" => &["dtype", "astype"],
        "fixedscaleoffset" => &["scale", "offset", "dtype", "astype"],
        "quantize" => &["digits", "dtype", "astype"],
        "astype" => &["encode_dtype", "decode_dtype"],
        "packbits" => &[],
        "bitround" => &["keepbits"],
        _ => return None,
    })
}

/// Whether a codec of this id turns objects into bytes, so that an array with it has no fixed size of an element.
pub fn is_object_codec(id: &str) -> bool {
    let id = id.strip_prefix("numcodecs.").unwrap_or(id);
    matches!(id, "vlen-utf8" | "vlen-bytes" | "vlen-array" | "json" | "json2" | "msgpack" | "msgpack2" | "pickle" | "categorize")
}

/// The codecs of an N5 dataset, from its attributes: `compression`, or `compressionType` of the first version.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] naming a compression that is not read; [`crate::error::Kind::Corrupt`] where none is
/// given or its type is no string.
pub fn from_n5(attributes: &Map<String, Value>) -> Result<Vec<Codec>> {
    if let Some(compression) = attributes.get("compression").filter(|v| !v.is_null()) {
        return match (compression, compression.get("type")) {
            (Value::String(name), _) | (Value::Object(_), Some(Value::String(name))) => n5_codec(name),
            _ => Err(Error::corrupt("compression without a type")),
        };
    }
    match attributes.get("compressionType") {
        Some(Value::String(name)) => n5_codec(name),
        Some(_) => Err(Error::corrupt("compressionType is no string")),
        None => Err(Error::corrupt("neither compression nor compressionType")),
    }
}

/// The codecs that an N5 compression of this name is.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] naming one that is not read.
pub fn n5_codec(name: &str) -> Result<Vec<Codec>> {
    Ok(vec![match name {
        "raw" => return Ok(Vec::new()),
        // `useZlib` tells writers to leave gzip's wrapper out, and early z5 left it out untold; the stream says what it is.
        "gzip" | "zlib" => Codec::GzipOrZlib,
        "bzip2" | "bz2" => Codec::Bzip2,
        "xz" | "lzma" => Codec::Lzma(Lzma::Container),
        "lz4" => Codec::Lz4(Framing::Sniffed),
        "zstd" | "zstandard" => Codec::Zstd,
        "blosc" => Codec::Blosc,
        _ => return Err(Error::unsupported(format!("N5 compression {name:?}"))),
    }])
}

fn lzma(read: &Reader<'_>) -> Result<Option<Codec>> {
    // Python's numbers: 0 any container, 1 xz, 2 alone, 3 raw. A container describes itself.
    if read.integer("format")?.unwrap_or(1) != 3 {
        return Ok(Some(Codec::Lzma(Lzma::Container)));
    }
    let filters = read.get("filters").and_then(Value::as_array).ok_or_else(|| read.bad("filters"))?;
    if filters.is_empty() || filters.len() > 4 {
        return Err(read.bad("filters"));
    }
    let mut chain = Vec::new();
    for filter in filters {
        let config = filter.as_object().ok_or_else(|| read.bad("filters"))?;
        match lzma_filter(&Reader { name: read.name, config })? {
            Some(filter) => chain.push(filter),
            None => return Ok(None),
        }
    }
    Ok(Some(Codec::Lzma(Lzma::Raw(chain))))
}

/// A filter by liblzma's numbers; `None` for one that is not known.
fn lzma_filter(read: &Reader<'_>) -> Result<Option<Filter>> {
    const LZMA1: i64 = 0x4000_0000_0000_0001;
    const LZMA2: i64 = 0x21;
    let id = read.integer("id")?.ok_or_else(|| read.bad("id"))?;
    // Nothing checks a raw stream, and null is no default. Branches counted from another start (`start_offset`) are not undone.
    let known: &[&str] = match id {
        3 => &["dist"],
        4..=9 => &[],
        _ => &["preset", "dict_size", "lc", "lp", "pb", "mode", "nice_len", "mf", "depth"],
    };
    if read.config.iter().any(|(name, value)| value.is_null() || name != "id" && !known.contains(&name.as_str())) {
        return Ok(None);
    }
    let small = |key, default| -> Result<u32> {
        let value = read.integer(key)?.unwrap_or(default);
        u32::try_from(value).map_err(|_| read.bad(key))
    };
    match id {
        3 => {
            let distance = u16::try_from(small("dist", 1)?).ok().filter(|d| (1..=256).contains(d));
            Ok(Some(Filter::Delta(distance.ok_or_else(|| read.bad("dist"))?)))
        }
        4..=9 => Ok(u8::try_from(id).ok().map(Filter::Branch)),
        LZMA1 | LZMA2 => {
            // The dictionary of each preset, as powers of two; the upper bits of a preset are flags.
            let preset = usize::try_from(small("preset", 6)? & 31).unwrap_or(6);
            let power = [18u32, 20, 21, 22, 22, 23, 23, 24, 25, 26].get(preset).ok_or_else(|| read.bad("preset"))?;
            let (lc, lp, pb) = (small("lc", 3)?, small("lp", 0)?, small("pb", 2)?);
            if lc.saturating_add(lp) > 4 || pb > 4 {
                return Err(read.bad("lc, lp or pb"));
            }
            let dictionary = small("dict_size", 1i64 << power)?;
            Ok(Some(Filter::Lzma { second: id == LZMA2, dictionary, lc, lp, pb }))
        }
        _ => Ok(None),
    }
}

/// Parameters of one codec.
struct Reader<'a> {
    name: &'a str,
    config: &'a Config,
}

impl<'a> Reader<'a> {
    fn bad(&self, key: &str) -> Error {
        Error::corrupt(format!("codec {}: {key} is missing or makes no sense", self.name))
    }

    /// A parameter that is there and not null.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.config.get(key).filter(|v| !v.is_null())
    }

    fn integer(&self, key: &str) -> Result<Option<i64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = match value {
            Value::Number(n) => n.as_i64().or_else(|| n.as_f64().and_then(whole)),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        number.map(Some).ok_or_else(|| self.bad(key))
    }

    fn float(&self, key: &str) -> Result<f64> {
        let number = match self.get(key) {
            Some(Value::Number(n)) => n.as_f64(),
            Some(Value::String(text)) => text.trim().parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.bad(key))
    }

    /// The decoded and the encoded type, the latter the former unless given; `None` where one is no plain number.
    fn types(&self, decoded: &str, encoded: &str) -> Result<Option<(Number, Number)>> {
        let decoded = self.get(decoded).ok_or_else(|| self.bad(decoded))?;
        let encoded = self.get(encoded).unwrap_or(decoded);
        let parse = |value: &Value| value.as_str().and_then(Number::parse);
        Ok(parse(decoded).zip(parse(encoded)))
    }

    fn location(&self, default: Location) -> Result<Location> {
        match self.get("location").map(Value::as_str) {
            None => Ok(default),
            Some(Some("start")) => Ok(Location::Start),
            Some(Some("end")) => Ok(Location::End),
            Some(_) => Err(self.bad("location")),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the value is whole and in range")]
fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 9.0e15).then_some(value as i64)
}

#[cfg(test)]
mod tests;
